// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Churn - changes a heap all the time and checks each object that it reads
 *
 *   java Churn MIB OPERATIONS SEED THREADS FULL
 *
 * Each thread has a part of the slots. A slot holds a chain of the last four
 * items that were put into it; what an item contains follows from its slot and
 * number. Now and then a humongous array is made, checked and replaced. Weak
 * references to items that are in a chain must not be cleared. FULL times the
 * program asks for a full collection. Prints one line, "ok SUM", which depends
 * on the arguments only; any wrong value ends it with a message and status 1.
 */

import java.lang.ref.WeakReference;

public final class Churn implements Runnable {
    private static final int CHAIN = 4;
    private static final int BIG = 6;
    private static final int ITEM_BYTES = 500; // with its array and text, on average

    private static final class Item {
        final long key;
        final long[] words;
        final String text;
        Item next;

        Item(long key, Item next) {
            this.key = key;
            this.next = next;
            words = new long[8 + (int) (mix(key) & 63)];
            for (int i = 0; i < words.length; i++) {
                words[i] = mix(key + i);
            }
            text = Long.toHexString(key);
        }

        void check(long want) {
            if (key != want || words.length != 8 + (int) (mix(want) & 63)) {
                throw new AssertionError("item " + want + " is " + key + " of " + words.length);
            }
            for (int i = 0; i < words.length; i++) {
                if (words[i] != mix(want + i)) {
                    throw new AssertionError("item " + want + ": word " + i + " is " + words[i]);
                }
            }
            if (!text.equals(Long.toHexString(want))) {
                throw new AssertionError("item " + want + " has the text " + text);
            }
        }
    }

    private final Item[] slots;
    private final int[] puts;
    private final WeakReference<?>[] weak;
    private final int[] weakPuts;
    private final Object[] big = new Object[BIG];
    private final long[] bigSeed = new long[BIG];
    private final long operations;
    private final int full;
    private long state;
    private long sum;
    private Throwable failed;

    private Churn(int slots, long operations, long seed, int full) {
        this.slots = new Item[slots];
        puts = new int[slots];
        weak = new WeakReference<?>[slots / 16 + 1];
        weakPuts = new int[weak.length];
        this.operations = operations;
        this.full = full;
        state = mix(seed);
    }

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private int next(int bound) {
        state = mix(state);
        return (int) ((state >>> 1) % bound);
    }

    private static long key(int slot, int put) {
        return ((long) slot << 32) | put;
    }

    private void put(int slot) {
        Item item = new Item(key(slot, ++puts[slot]), slots[slot]);
        slots[slot] = item;
        for (int i = 1; i < CHAIN && item.next != null; i++) {
            item = item.next;
        }
        item.next = null;
        if (slot % 16 == 0 && puts[slot] % CHAIN == 1) {
            weak[slot / 16] = new WeakReference<>(slots[slot]);
            weakPuts[slot / 16] = puts[slot];
        }
    }

    private void check(int slot) {
        int put = puts[slot];
        int left = Math.min(put, CHAIN);
        Item item = slots[slot];
        for (; item != null; item = item.next, put--, left--) {
            item.check(key(slot, put));
            sum += item.words[item.words.length - 1];
        }
        if (left != 0) {
            throw new AssertionError("the chain of slot " + slot + " misses " + left + " items");
        }
        int w = slot / 16;
        if (slot % 16 == 0 && weakPuts[w] > 0 && weakPuts[w] > puts[slot] - CHAIN) {
            Object to = weak[w].get();
            if (to == null) {
                throw new AssertionError("the weak reference of slot " + slot + " was cleared");
            }
            ((Item) to).check(key(slot, weakPuts[w]));
        }
    }

    /** Replace a humongous array by one of references, or of bytes. */
    private void bigChange(int n) {
        bigCheck(n);
        bigSeed[n] = state = mix(state);
        if ((n & 1) == 0) {
            byte[] bytes = new byte[600_000 + next(2_000_000)];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) (bigSeed[n] >>> (i & 31));
            }
            big[n] = bytes;
        } else {
            Object[] refs = new Object[200_000 + next(200_000)];
            for (int i = 0; i < refs.length; i += 64) {
                refs[i] = Long.valueOf(mix(bigSeed[n] + i));
            }
            big[n] = refs;
        }
    }

    private void bigCheck(int n) {
        if (big[n] instanceof byte[] bytes) {
            for (int i = 0; i < bytes.length; i++) {
                if (bytes[i] != (byte) (bigSeed[n] >>> (i & 31))) {
                    throw new AssertionError("large array " + n + ": byte " + i + " is " + bytes[i]);
                }
            }
        } else if (big[n] instanceof Object[] refs) {
            for (int i = 0; i < refs.length; i++) {
                Long want = i % 64 == 0 ? Long.valueOf(mix(bigSeed[n] + i)) : null;
                if (want == null ? refs[i] != null : !want.equals(refs[i])) {
                    throw new AssertionError("large array " + n + ": entry " + i + " is " + refs[i]);
                }
            }
        }
    }

    private void checkAll() {
        for (int i = 0; i < slots.length; i++) {
            check(i);
        }
        for (int i = 0; i < BIG; i++) {
            bigCheck(i);
        }
    }

    private void work() {
        long fullEvery = full > 0 ? operations / full + 1 : Long.MAX_VALUE;

        for (int i = 0; i < slots.length; i++) {
            put(i);
        }
        for (long done = 1; done <= operations; done++) {
            int slot = next(slots.length);
            check(slot);
            if (next(10) < 7) {
                put(slot);
            }
            if (done % 5000 == 0) {
                bigChange(next(BIG));
            }
            if (done % fullEvery == 0) {
                System.gc();
            }
        }
        checkAll();
        if (full > 0) {
            System.gc();
        }
        checkAll();
    }

    @Override
    public void run() {
        try {
            work();
        } catch (Throwable e) {
            failed = e;
        }
    }

    public static void main(String[] args) throws InterruptedException {
        int mib = Integer.parseInt(args[0]);
        int threads = Integer.parseInt(args[3]);
        int slots = (int) ((long) mib * (1 << 20) / ITEM_BYTES / CHAIN / threads);
        Churn[] churns = new Churn[threads];
        Thread[] started = new Thread[threads];
        long sum = 0;

        for (int i = 0; i < threads; i++) {
            churns[i] = new Churn(slots, Long.parseLong(args[1]) / threads,
                    Long.parseLong(args[2]) + i, i == 0 ? Integer.parseInt(args[4]) : 0);
            started[i] = new Thread(churns[i]);
            started[i].start();
        }
        for (int i = 0; i < threads; i++) {
            started[i].join();
            if (churns[i].failed != null) {
                churns[i].failed.printStackTrace();
                System.exit(1);
            }
            sum += churns[i].sum;
        }
        System.out.println("ok " + Long.toHexString(sum));
    }
}
