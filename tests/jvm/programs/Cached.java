// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Cached - a large cache of values that are made again when they are not there,
 * by the Caffeine library
 *
 *   java -cp caffeine.jar Cached MIB READS SEED
 *
 * A cache of so many MiB, and twice as many keys as fit, of which few are read
 * often. Each value that is read is checked; what is in the cache must not weigh
 * more than it may. Prints "ok" and a sum.
 */
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.LoadingCache;
import java.util.SplittableRandom;

public final class Cached {
    private static final int MEAN = 1000; // bytes of a value

    private record Value(int key, byte[] bytes, String name) {}

    private static long mix(long x) {
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private static int length(int key) {
        return MEAN / 2 + (int) (mix(key) & 1023);
    }

    private static Value make(Integer key) {
        byte[] bytes = new byte[length(key)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (key + i);
        }
        return new Value(key, bytes, "value " + key);
    }

    private static int weigh(Integer key, Value value) {
        return value.bytes.length + 120;
    }

    private static void check(int key, Value value) {
        if (value.key != key || value.bytes.length != length(key) || !value.name.equals("value " + key)) {
            throw new AssertionError("key " + key + " has " + value.name);
        }
        for (int i = 0; i < value.bytes.length; i += 61) {
            if (value.bytes[i] != (byte) (key + i)) {
                throw new AssertionError("byte " + i + " of key " + key + " is " + value.bytes[i]);
            }
        }
    }

    public static void main(String[] args) {
        long bytes = Long.parseLong(args[0]) << 20, reads = Long.parseLong(args[1]), sum = 0;
        int keys = (int) (2 * bytes / MEAN);
        SplittableRandom random = new SplittableRandom(Long.parseLong(args[2]));
        LoadingCache<Integer, Value> cache = Caffeine.newBuilder().maximumWeight(bytes)
                .weigher(Cached::weigh).executor(Runnable::run).build(Cached::make);
        for (long i = 0; i < reads; i++) {
            double x = random.nextDouble();
            int key = (int) mix((long) (keys * x * x)) & Integer.MAX_VALUE;
            Value value = cache.get(key);
            check(key, value);
            sum = 31 * sum + value.bytes.length;
        }
        cache.cleanUp();
        long held = 0;
        for (var entry : cache.asMap().entrySet()) {
            check(entry.getKey(), entry.getValue());
            held += weigh(entry.getKey(), entry.getValue());
        }
        if (held > bytes || held < bytes / 2) {
            throw new AssertionError("the cache holds " + held + " of " + bytes + " bytes");
        }
        System.out.println("ok " + Long.toHexString(sum));
    }
}
