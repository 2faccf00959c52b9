// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Kinds - has objects of each kind that a collector treats differently, and
 * collects them
 *
 *   java Kinds ROUNDS SEED [late]
 *
 * References of all strengths, finalizers and cleaners; classes of loaders that
 * come and go, hidden ones too, of which the program keeps only the class, the
 * loader, an object or an array; virtual threads that are parked in deep stacks;
 * arrays that are larger than a region. Each round changes a part of them, asks
 * for a full collection, and checks what has to be there. With "late" weak
 * references may be cleared by a later collection. Prints "ok ROUNDS".
 */

import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Cleaner;
import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.SoftReference;
import java.lang.ref.WeakReference;
import java.lang.reflect.Array;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

public final class Kinds {
    private static final int LOADERS = 40;
    private static final int THREADS = 60;
    private static final int DEPTH = 40;
    private static final int REFS = 300;
    private static final int BIG = 4;

    /** Only these refer to some objects; DonorCheckHide names the class in a test. */
    private static final class Link {
        final Object to;
        final long value;

        Link(Object to, long value) {
            this.to = to;
            this.value = value;
        }
    }

    /** A reference that has fields of its own, before and behind those of the collector. */
    private static final class Named extends WeakReference<Object> {
        final Link link;

        Named(Object referent, ReferenceQueue<Object> queue, Link link) {
            super(referent, queue);
            this.link = link;
        }
    }

    /** Comes back to life once, with what it refers to. */
    private static final class Final {
        private final Link link;

        Final(long value) {
            link = chain(value);
        }

        @Override
        @SuppressWarnings("removal")
        protected void finalize() {
            check(link, link.value);
            finalized.incrementAndGet();
        }
    }

    private static final class Loader extends ClassLoader {
        Loader() {
            super(Kinds.class.getClassLoader());
        }

        Class<?> define() {
            return defineClass("Held", heldBytes, 0, heldBytes.length);
        }
    }

    private static final Cleaner CLEANER = Cleaner.create();
    private static final AtomicInteger finalized = new AtomicInteger();
    private static final AtomicInteger cleaned = new AtomicInteger();
    private static final AtomicLong sum = new AtomicLong();
    private static byte[] heldBytes;
    private static boolean late;

    private final ReferenceQueue<Object> queue = new ReferenceQueue<>();
    private final Object[] strong = new Object[REFS];
    private final Reference<?>[] refs = new Reference<?>[REFS];
    private final Object[] holders = new Object[LOADERS];
    private final long[] held = new long[LOADERS];
    private final Object[] big = new Object[BIG];
    private final Map<Object, Link> weakMap = new WeakHashMap<>();
    private final List<Supplier<Long>> lambdas = new ArrayList<>();
    private final List<Thread> parked = new ArrayList<>();
    private CountDownLatch gate;
    private long state;

    private Kinds(long seed) {
        state = seed;
    }

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private long next() {
        return state = mix(state);
    }

    private int next(int bound) {
        return (int) ((next() >>> 1) % bound);
    }

    private static void fail(String what) {
        throw new AssertionError(what);
    }

    /** Three links, the last of which holds the value in an array. */
    private static Link chain(long value) {
        return new Link(new Link(new Link(new long[] {value}, value), value), value);
    }

    private static void check(Object link, long value) {
        Object at = link;
        for (int i = 0; i < 3; i++) {
            if (!(at instanceof Link l) || l.value != value) {
                fail("a link of " + value + " is " + at);
                return;
            }
            at = l.to;
        }
        if (!(at instanceof long[] last) || last[0] != value) {
            fail("the end of " + value + " is " + at);
        }
    }

    // ---- references ----

    private Reference<?> reference(int i, Object referent) {
        switch (i % 4) {
            case 0:
                return new SoftReference<>(referent, queue);
            case 1:
                return new Named(referent, queue, chain(i));
            case 2:
                return new PhantomReference<>(referent, queue);
            default:
                return new WeakReference<>(new Object[] {referent, chain(i)});
        }
    }

    private void refsChange() {
        for (int i = 0; i < REFS; i += 1 + next(4)) {
            long value = next();
            Object referent = chain(value);
            refs[i] = reference(i, referent);
            strong[i] = next(3) == 0 ? null : referent;
            weakMap.put(referent, chain(i));
            if (i % 8 == 0) {
                CLEANER.register(referent, cleaned::incrementAndGet);
                new Final(value);
            }
        }
        // Not all: some stay on the queue, and there is a list of them.
        for (int i = 0; i < REFS / 3; i++) {
            queue.poll();
        }
    }

    private void refsCheck() {
        for (int i = 0; i < REFS; i++) {
            if (refs[i] instanceof Named named) {
                check(named.link, i);
            }
            if (i % 4 == 1 && refs[i] != null) {
                Object got = refs[i].get();
                if (strong[i] != null && got != strong[i]) {
                    fail("weak reference " + i + " to what is alive was cleared");
                }
                if (!late && strong[i] == null && got != null) {
                    fail("weak reference " + i + " to what is dead was not cleared");
                }
            }
            if (strong[i] instanceof Link link) {
                check(link, link.value);
                check(weakMap.get(link), i);
            }
        }
    }

    // ---- classes ----

    private static void fill(Class<?> c, Object object, long value)
            throws ReflectiveOperationException {
        c.getField("kept").set(null, chain(value));
        ((Object[]) c.getField("TABLE").get(null))[1] = chain(value);
        c.getField("own").set(object, chain(value));
    }

    private static void checkClass(Class<?> c, Object object, long value)
            throws ReflectiveOperationException {
        check(c.getField("kept").get(null), value);
        check(((Object[]) c.getField("TABLE").get(null))[1], value);
        if (object != null) {
            check(c.getField("own").get(object), value);
        }
    }

    private static Class<?> held(int i) throws ReflectiveOperationException {
        switch (i % 3) {
            case 0:
                return new Loader().define();
            case 1:
                return MethodHandles.lookup().defineHiddenClass(heldBytes, true).lookupClass();
            default:
                return MethodHandles.lookup()
                        .defineHiddenClass(heldBytes, true, MethodHandles.Lookup.ClassOption.STRONG)
                        .lookupClass();
        }
    }

    private void classesChange() throws ReflectiveOperationException {
        for (int i = 0; i < LOADERS; i += 1 + next(3)) {
            Class<?> c = held(i);
            Object object = c.getConstructor().newInstance();
            long value = next();
            fill(c, object, value);
            held[i] = value;
            switch (i / 3 % 5) {
                case 0:
                    holders[i] = c;
                    break;
                case 1:
                    holders[i] = object;
                    break;
                case 2:
                    holders[i] = Array.newInstance(c, 2);
                    break;
                case 3:
                    holders[i] = Array.newInstance(c, 1, 1).getClass();
                    break;
                default:
                    holders[i] = new Object[] {c.getClassLoader(), MethodHandles.lookup()
                            .findStaticGetter(c, "kept", Object.class)};
                    break;
            }
        }
    }

    private void classesCheck() throws Throwable {
        for (int i = 0; i < LOADERS; i++) {
            Object holder = holders[i];
            if (holder == null) {
                continue;
            }
            if (holder instanceof Object[] pair && pair.length == 2
                    && pair[1] instanceof MethodHandle getter) {
                check(getter.invoke(), held[i]);
                continue;
            }
            Class<?> c = holder instanceof Class<?> k ? k : holder.getClass();
            Object object = holder.getClass() == c && !c.isArray() ? holder : null;
            while (c.isArray()) {
                c = c.getComponentType();
            }
            checkClass(c, object, held[i]);
        }
    }

    /** Lambdas, and classes of proxies, each in a loader of its own. */
    private void lambdasChange() throws Throwable {
        if (lambdas.size() > 200) {
            lambdas.subList(0, 100).clear();
        }
        for (int i = 0; i < 20; i++) {
            long value = next();
            Link link = chain(value);
            lambdas.add(() -> {
                check(link, value);
                return value;
            });
            Object proxy = Proxy.newProxyInstance(new Loader(), new Class<?>[] {Supplier.class},
                    (self, method, args) -> link);
            MethodHandle get = MethodHandles.lookup()
                    .findVirtual(Supplier.class, "get", MethodType.methodType(Object.class))
                    .bindTo(proxy);
            lambdas.add(() -> {
                try {
                    check(get.invoke(), value);
                } catch (Throwable e) {
                    throw new AssertionError(e);
                }
                return value;
            });
        }
    }

    // ---- stacks ----

    private static long descend(int depth, Object above, CountDownLatch gate)
            throws InterruptedException {
        long value = mix(depth);
        Link mine = chain(value);
        // Too large for a region: only this stack refers to it.
        Object[] large = depth == 1 ? new Object[400_000] : null;
        if (large != null) {
            large[399_999] = chain(value);
        }
        long below = 0;
        if (depth == 0) {
            synchronized (mine) {
                gate.await();
            }
        } else {
            below = descend(depth - 1, mine, gate);
        }
        check(mine, value);
        if (above instanceof Link link) {
            check(link, link.value);
        }
        if (large != null) {
            check(large[399_999], value);
        }
        return below + value;
    }

    private void threadsChange() throws InterruptedException {
        if (gate != null) {
            gate.countDown();
            for (Thread thread : parked) {
                thread.join();
            }
            parked.clear();
        }
        gate = new CountDownLatch(1);
        CountDownLatch until = gate;
        for (int i = 0; i < THREADS; i++) {
            // Few have a large array: a third of the heap at most.
            int depth = i < 10 ? DEPTH : -DEPTH;
            parked.add(Thread.ofVirtual().start(() -> {
                try {
                    sum.addAndGet(depth > 0 ? descend(depth, null, until) : shallow(until));
                } catch (InterruptedException e) {
                    fail("interrupted");
                }
            }));
        }
    }

    private static long shallow(CountDownLatch gate) throws InterruptedException {
        Map<Long, Link> map = new HashMap<>();
        for (long i = 0; i < 50; i++) {
            map.put(i, chain(i));
        }
        gate.await();
        for (long i = 0; i < 50; i++) {
            check(map.get(i), i);
        }
        return map.size();
    }

    // ---- large arrays ----

    private void bigChange() {
        int i = next(BIG);
        int length = 300_000 + next(300_000);
        if (i == 0) {
            big[i] = new byte[4 * length];
            ((byte[]) big[i])[length] = (byte) length;
        } else if (i == 1) {
            big[i] = new long[length];
        } else {
            Object[] array = i == 2 ? new Object[length] : new Link[length];
            for (int j = 0; j < length; j += 1000) {
                array[j] = chain(mix(j));
            }
            if (i == 2) {
                // To itself, to others, and to one that nothing else refers to.
                array[1] = array;
                array[2] = big[3];
                array[3] = new Object[][] {{new Object[300_000], chain(3)}};
            }
            big[i] = array;
        }
    }

    private void bigCheck() {
        for (Object one : big) {
            if (one instanceof Object[] array) {
                for (int j = 0; j < array.length; j += 1000) {
                    check(array[j], mix(j));
                }
                if (array[3] instanceof Object[][] inner) {
                    check(inner[0][1], 3);
                }
            }
        }
    }

    private void round() throws Throwable {
        refsChange();
        classesChange();
        lambdasChange();
        threadsChange();
        bigChange();
        System.gc();
        refsCheck();
        classesCheck();
        bigCheck();
        for (Supplier<Long> lambda : lambdas) {
            sum.addAndGet(lambda.get());
        }
    }

    public static void main(String[] args) throws Throwable {
        int rounds = Integer.parseInt(args[0]);
        late = args.length > 2 && args[2].equals("late");
        try (InputStream bytes = Kinds.class.getResourceAsStream("Held.class")) {
            heldBytes = bytes.readAllBytes();
        } catch (IOException e) {
            throw new AssertionError(e);
        }
        Kinds kinds = new Kinds(Long.parseLong(args[1]));
        for (int i = 0; i < rounds; i++) {
            kinds.round();
        }
        kinds.gate.countDown();
        for (Thread thread : kinds.parked) {
            thread.join();
        }
        if (rounds > 4 && (finalized.get() == 0 || cleaned.get() == 0)) {
            fail(finalized + " finalized, " + cleaned + " cleaned");
        }
        System.out.println("ok " + rounds);
    }
}
