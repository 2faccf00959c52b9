// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_pause.c - the pause that starts a trace, by what was written since CLEAN,
 * and sending just that over TCP on loopback
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gc_world.h"

static void receive(int fd, void *buf, size_t n)
{
	for (ssize_t r; n; n -= (size_t)r) {
		r = recv(fd, buf, n, 0);
		if (r <= 0)
			_exit(0);
		buf = (u8 *)buf + r;
	}
}

/* A process that takes pages into memory and says when it has them. */
int gc_sink_start(u64 bytes)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	pid_t pid;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len))
		die("gc_host: no TCP on loopback");
	pid = fork();
	if (pid < 0)
		die("gc_host: can't start a process");
	if (!pid) {
		u8 *to = gc_heap_map(bytes);

		fd = accept(l, NULL, NULL);
		for (;;) {
			u64 n;

			receive(fd, &n, sizeof(n));
			receive(fd, to, n);
			if (send(fd, to, 1, MSG_NOSIGNAL) != 1)
				_exit(0);
		}
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die("gc_host: no connection to the sink");
	close(l);
	return fd;
}

static u64 pages_send(int fd, const struct gc_heap *h, const u8 *dirty, u64 n)
{
	u64 bytes = n * PAGE, t = bench_now_ns();
	struct iovec v[64];
	u32 nv = 0;
	u8 said;

	if (send(fd, &bytes, sizeof(bytes), 0) != sizeof(bytes))
		die("gc_host: the sink is gone");
	for (u64 p = 0; p <= h->bytes / PAGE; p++) {
		struct msghdr m = { .msg_iov = v };

		if (p < h->bytes / PAGE && dirty[p])
			v[nv++] = (struct iovec){ h->memory + p * PAGE, PAGE };
		if (!nv || (nv < 64 && p < h->bytes / PAGE))
			continue;
		m.msg_iovlen = nv;
		/* a blocking socket takes all of it */
		if (sendmsg(fd, &m, 0) != (ssize_t)(nv * PAGE))
			die("gc_host: the sink is gone");
		nv = 0;
	}
	receive(fd, &said, 1);
	return bench_now_ns() - t;
}

/* Write to @n pages, wherever; which is in @dirty. */
static void pages_write(struct gc_heap *h, u8 *dirty, u64 n, u64 *rng)
{
	memset(dirty, 0, h->bytes / PAGE);
	while (n) {
		u64 at = h->at[bench_rand(rng) % h->n];

		/* an object's first word says nothing */
		*(volatile u64 *)(h->memory + at) = *rng;
		n -= !dirty[at / PAGE];
		dirty[at / PAGE] = 1;
	}
}

/* ---- a program that runs meanwhile ---- */

/**
 * struct bystander - a program that visits objects, and writes to one of 16
 * @gap_ns: the longest time between two of its steps since it was last taken
 * @run: it runs; @runs: it has begun to (all __atomic)
 */
struct bystander {
	pthread_t thread;
	struct gc_heap *h;
	u64 gap_ns;
	u64 sum;
	bool run;
	bool runs;
	bool end;
};

static void *bystander_run(void *arg)
{
	struct bystander *b = arg;
	u64 rng = 17, last = bench_now_ns();

	while (!__atomic_load_n(&b->end, __ATOMIC_RELAXED)) {
		u64 now;

		if (!__atomic_load_n(&b->run, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&b->runs, false, __ATOMIC_RELEASE);
			usleep(100);
			last = bench_now_ns();
			continue;
		}
		__atomic_store_n(&b->runs, true, __ATOMIC_RELEASE);
		for (u32 i = 0; i < 16; i++) {
			volatile u64 *p =
				(void *)(b->h->memory +
					 b->h->at[bench_rand(&rng) % b->h->n]);

			/* an object's first word says nothing */
			if (i)
				b->sum += *p;
			else
				*p = rng;
		}
		now = bench_now_ns();
		if (now - last > __atomic_load_n(&b->gap_ns, __ATOMIC_RELAXED))
			__atomic_store_n(&b->gap_ns, now - last,
					 __ATOMIC_RELAXED);
		last = now;
	}
	return NULL;
}

static void bystander_set(struct bystander *b, bool run)
{
	__atomic_store_n(&b->run, run, __ATOMIC_RELEASE);
	while (__atomic_load_n(&b->runs, __ATOMIC_ACQUIRE) != run)
		usleep(100);
}

static u64 bystander_gap(struct bystander *b)
{
	return __atomic_exchange_n(&b->gap_ns, 0, __ATOMIC_RELAXED);
}

/*
 * The first of a pair of runs is for a trace that goes on beside the program,
 * the second for one that it waits for.
 */
void gc_bench_pause(struct gc_world *w, u32 runs, int fd)
{
	u64 pages = w->h.bytes / PAGE, rng = 99, sum = 0;
	u8 *dirty = gc_heap_map(pages);
	struct bystander b = { .h = &w->h };

	gc_space_make(w);
	if (pthread_create(&b.thread, NULL, bystander_run, &b))
		die("gc_host: can't start a thread");
	printf("{\"pages\":%llu,\"runs\":[", (unsigned long long)pages);
	/* nothing, and what a quarter, a half and one second write */
	for (u32 i = 0; i < runs * 8; i++) {
		u64 n = pages / 10 * (u64[]){ 0, 1, 2, 4 }[i / 2 % 4] / 4;
		u64 cleaned, pause, begun, copy, gap = 0, quiet = 0;
		bool beside = !(i % 2);

		for (u64 p = 0; p < pages; p++)
			sum += *(volatile u8 *)(w->h.memory + p * PAGE);
		/* of what the last run's bystander wrote */
		gc_clean(w);
		pages_write(&w->h, dirty, pages / 10, &rng);
		cleaned = bench_now_ns();
		gc_clean(w);
		cleaned = bench_now_ns() - cleaned;
		pages_write(&w->h, dirty, n, &rng);
		copy = n ? pages_send(fd, &w->h, dirty, n) : 0;
		/*
		 * What the trace finds is no matter here, and a donor that has
		 * little of a processor would not find it in time.
		 */
		pause = bench_now_ns();
		gc_trace_start(w, beside ? VIRTIO_GC_TRACE_CONCURRENT : 0);
		begun = bench_now_ns();
		pause = begun - pause;
		if (beside)
			bystander_set(&b, true);
		/* which is taken when the donors have begun */
		gc_trace_root(w, 0);
		begun = bench_now_ns() - begun;
		if (beside) {
			gap = bystander_gap(&b);
			/* as long again, and nothing else happens */
			usleep((useconds_t)(begun / 1000));
			quiet = bystander_gap(&b);
			bystander_set(&b, false);
		}
		if (gc_trace_finish(w))
			die("gc_host: what nothing refers to lives");
		printf("%s{\"beside\":%u,\"dirty\":%llu,\"clean_ns\":%llu,"
		       "\"pause_ns\":%llu,\"begun_ns\":%llu,"
		       "\"gap_ns\":%llu,\"quiet_gap_ns\":%llu,"
		       "\"copy_ns\":%llu}",
		       i ? "," : "", beside, (unsigned long long)n,
		       (unsigned long long)cleaned, (unsigned long long)pause,
		       (unsigned long long)begun, (unsigned long long)gap,
		       (unsigned long long)quiet, (unsigned long long)copy);
	}
	__atomic_store_n(&b.end, true, __ATOMIC_RELAXED);
	pthread_join(b.thread, NULL);
	printf("],\"sum\":%llu}\n", (unsigned long long)(sum + b.sum));
	close(fd);
	wait(NULL);
}
