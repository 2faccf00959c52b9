// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Crowd - has very many virtual threads and classes, and collects them
 *
 *   java Crowd THREADS CLASSES ROUNDS SEED
 *
 * THREADS virtual threads are parked, each with objects that only its stack refers
 * to; a tenth of them goes on and is replaced in each round. CLASSES classes come in
 * all, in loaders of their own, hidden ones, of lambdas and of proxies; of each
 * round's classes half stay for the next. A cache of soft references is filled, and
 * what it has kept is checked. Each round asks for a collection and checks what it
 * has. Prints "ok SUM", which depends on the arguments alone.
 */

import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.management.ManagementFactory;
import java.lang.ref.SoftReference;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;

public final class Crowd {
    private static final int CACHE = 10_000;

    private record Link(Link next, long value) {
    }

    /** Parks until it may go on, with a chain that only its stack has. */
    private static final class Sleeper implements Runnable {
        final long value;
        volatile boolean goOn;
        Thread thread;

        Sleeper(long value) {
            this.value = value;
        }

        @Override
        public void run() {
            Link mine = chain(value);
            parked.incrementAndGet();
            while (!goOn) {
                LockSupport.park();
            }
            parked.decrementAndGet();
            sum.addAndGet(check(mine, value));
        }

        void start() {
            thread = Thread.ofVirtual().start(this);
        }

        void end() throws InterruptedException {
            goOn = true;
            LockSupport.unpark(thread);
            thread.join();
        }
    }

    private static final class Loader extends ClassLoader {
        Loader() {
            super(Crowd.class.getClassLoader());
        }

        Class<?> define() {
            return defineClass("Held", heldBytes, 0, heldBytes.length);
        }
    }

    private static final AtomicInteger parked = new AtomicInteger();
    private static final AtomicLong sum = new AtomicLong();
    private static byte[] heldBytes;

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        return x ^ (x >>> 31);
    }

    private static Link chain(long value) {
        return new Link(new Link(null, mix(value)), value);
    }

    private static long check(Object object, long value) {
        if (!(object instanceof Link link) || link.value() != value
                || link.next().value() != mix(value) || link.next().next() != null) {
            throw new AssertionError("not the chain of " + value + ": " + object);
        }
        return value;
    }

    // ---- threads ----

    private final Sleeper[] sleepers;
    private long seed;

    private Crowd(int threads, long seed) {
        sleepers = new Sleeper[threads];
        this.seed = seed;
    }

    private long next() {
        return seed = mix(seed);
    }

    /** Let each of these go on, if there is one, and park another in its place. */
    private void sleepersChange(int first, int step) throws InterruptedException {
        for (int i = first; i < sleepers.length; i += step) {
            if (sleepers[i] != null) {
                sleepers[i].end();
            }
            sleepers[i] = new Sleeper(next());
            sleepers[i].start();
        }
        while (parked.get() < sleepers.length) {
            Thread.sleep(1);
        }
    }

    // ---- classes ----

    private final List<LongSupplier> classes = new ArrayList<>();

    /** Something that lives as long as a new class, and says its value. */
    private LongSupplier newClass(int kind) throws ReflectiveOperationException {
        long value = next();
        Link link = chain(value);
        if (kind == 0) {
            LongSupplier proxy = (LongSupplier) Proxy.newProxyInstance(new Loader(),
                    new Class<?>[] {LongSupplier.class}, (self, method, args) -> check(link, value));
            return proxy;
        }
        Class<?> held = kind == 1 ? new Loader().define()
                : MethodHandles.lookup().defineHiddenClass(heldBytes, true).lookupClass();
        held.getField("kept").set(null, link);
        Object object = kind == 3 ? held.getConstructor().newInstance() : held;
        return () -> {
            try {
                Class<?> c = object instanceof Class<?> k ? k : object.getClass();
                return check(c.getField("kept").get(null), value);
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        };
    }

    private void classesChange(int count) throws ReflectiveOperationException {
        classes.subList(0, classes.size() / 2).clear();
        for (int i = 0; i < count; i++) {
            classes.add(newClass(i % 4));
        }
    }

    // ---- a cache ----

    private final List<SoftReference<Link>> cache = new ArrayList<>();
    private final long[] cached = new long[CACHE];

    private void cacheFill() {
        for (int i = 0; i < CACHE; i++) {
            boolean there = i < cache.size();
            Link link = there ? cache.get(i).get() : null;
            if (link != null) {
                check(link, cached[i]);
                continue;
            }
            cached[i] = mix(i);
            SoftReference<Link> soft = new SoftReference<>(chain(cached[i]));
            if (there) {
                cache.set(i, soft);
            } else {
                cache.add(soft);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[0]);
        int count = Integer.parseInt(args[1]);
        int rounds = Integer.parseInt(args[2]);
        Crowd crowd = new Crowd(threads, Long.parseLong(args[3]));
        try (InputStream bytes = Crowd.class.getResourceAsStream("Held.class")) {
            heldBytes = bytes.readAllBytes();
        } catch (IOException e) {
            throw new AssertionError(e);
        }
        crowd.sleepersChange(0, 1);
        for (int i = 0; i < rounds; i++) {
            crowd.sleepersChange(i % 10, 10);
            crowd.classesChange(count / rounds);
            crowd.cacheFill();
            System.gc();
            for (LongSupplier one : crowd.classes) {
                sum.addAndGet(one.getAsLong());
            }
        }
        for (Sleeper one : crowd.sleepers) {
            one.end();
        }
        long unloaded = ManagementFactory.getClassLoadingMXBean().getUnloadedClassCount();
        if (unloaded < count / 2) {
            throw new AssertionError(unloaded + " classes were unloaded");
        }
        System.out.println("ok " + Long.toHexString(sum.get()));
    }
}
