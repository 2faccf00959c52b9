// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vm.c - one VM process of the torture test
 *
 * Its memory is several times its budget. Threads own it in pieces of 64
 * pages; the owner writes, zeroes, discards, lets the kernel read and write,
 * and checks every word of what it reads: a page holds its number, a sequence
 * number, and words made of both. Everybody looks at everybody's first word.
 * The main thread moves the budget between the least that works and all of it,
 * and turns the tunables.
 *
 * A page whose access ends in SIGBUS (or EFAULT from the kernel) is lost. It
 * must have been allowed to be (may_lose), must stay lost, and reads zero
 * after a discard. A lost page that reads as anything is a failure.
 */
#include "torture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libdcm.h"

#define PAGES (VM_BYTES / PAGE)
#define PIECE 64u
#define SEQ_LOST UINT32_MAX

static struct vm_shared *me;
static struct dcm_pager *pager;
static char *mem;
static uint32_t *seq; /* by owner: 0 zero, SEQ_LOST lost */
static uint32_t *last; /* highest sequence number ever used */
static uint32_t vm_id;

static __thread sigjmp_buf on_bus;
static __thread volatile sig_atomic_t armed;

static void add(uint64_t *v, uint64_t n)
{
	__atomic_fetch_add(v, n, __ATOMIC_RELAXED);
}

static __attribute__((noreturn, format(printf, 1, 2))) void
wrong(const char *fmt, ...)
{
	uint32_t no = 0;
	va_list ap;

	if (__atomic_compare_exchange_n(&me->failed, &no, 1, false,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		va_start(ap, fmt);
		vsnprintf(me->why, sizeof(me->why), fmt, ap);
		va_end(ap);
		__atomic_store_n(&me->failed, 2, __ATOMIC_SEQ_CST);
	}
	_exit(1);
}

static void bus(int sig, siginfo_t *si, void *ctx)
{
	(void)ctx;
	if (!armed)
		wrong("signal %d at %p outside of a checked access", sig,
		      si->si_addr);
	if ((char *)si->si_addr < mem || (char *)si->si_addr >= mem + VM_BYTES)
		wrong("signal %d at %p outside of the memory", sig,
		      si->si_addr);
	armed = 0;
	siglongjmp(on_bus, 1);
}

static uint64_t *page(uint32_t p)
{
	return (uint64_t *)(mem + (uint64_t)p * PAGE);
}

static uint64_t word(uint32_t p, uint32_t s, unsigned int i)
{
	uint64_t w = (uint64_t)vm_id << 56 | (uint64_t)p << 32 | s;

	return i ? w * 0x9e3779b97f4a7c15ull + i : w;
}

static void now_lost(uint32_t p, const char *how)
{
	if (!__atomic_load_n(&me->may_lose, __ATOMIC_SEQ_CST))
		wrong("page %u was lost (%s), but nothing happened that loses pages",
		      p, how);
	seq[p] = SEQ_LOST;
	add(&me->lost, 1);
}

static void fill(uint32_t p, uint32_t s)
{
	uint64_t *w = page(p);
	unsigned int i;

	w[0] = word(p, s, 0);
	for (i = 1; i < WORDS; i++)
		w[i] = word(p, s, i);
}

static void check_words(uint32_t p, const volatile uint64_t *w, const char *how)
{
	uint32_t s = seq[p];
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		uint64_t want = s ? word(p, s, i) : 0, got = w[i];

		if (s == SEQ_LOST)
			wrong("lost page %u reads %#llx (%s)", p,
			      (unsigned long long)got, how);
		if (got != want)
			wrong("page %u word %u is %#llx, not %#llx, sequence %u (%s)",
			      p, i, (unsigned long long)got,
			      (unsigned long long)want, s, how);
	}
	add(&me->checked, 1);
}

static void do_check(uint32_t p)
{
	if (sigsetjmp(on_bus, 1)) {
		now_lost(p, "SIGBUS at a read");
		return;
	}
	armed = 1;
	check_words(p, page(p), "read");
	armed = 0;
}

static void do_write(uint32_t p)
{
	uint32_t s = last[p] + 1;

	if (seq[p] != SEQ_LOST)
		do_check(p);
	if (sigsetjmp(on_bus, 1)) {
		now_lost(p, "SIGBUS at a write");
		return;
	}
	armed = 1;
	fill(p, s);
	armed = 0;
	if (seq[p] == SEQ_LOST)
		wrong("lost page %u could be written", p);
	seq[p] = last[p] = s;
}

static void do_zero(uint32_t p)
{
	if (sigsetjmp(on_bus, 1)) {
		now_lost(p, "SIGBUS at zeroing");
		return;
	}
	armed = 1;
	memset(page(p), 0, PAGE);
	armed = 0;
	if (seq[p] == SEQ_LOST)
		wrong("lost page %u could be zeroed", p);
	seq[p] = 0;
}

static void do_discard(uint32_t p, uint32_t nr)
{
	uint32_t i;
	int err = dcm_pager_discard(pager, page(p), (size_t)nr * PAGE);

	if (err)
		wrong("dcm_pager_discard: %s", strerror(-err));
	for (i = p; i < p + nr; i++)
		seq[i] = 0;
	add(&me->discards, nr);
}

/* The kernel reads the page into a pipe, and writes another from it. */
static void do_kernel(uint32_t p, const int *pipe_fd)
{
	static __thread uint64_t copy[WORDS];
	ssize_t n = write(pipe_fd[1], page(p), PAGE), got = 0;

	if (n < 0 && errno == EFAULT) {
		now_lost(p, "EFAULT at write()");
		return;
	}
	if (n < 0)
		wrong("write() of page %u: %s", p, strerror(errno));
	while (got < n) {
		ssize_t r =
			read(pipe_fd[0], (char *)copy + got, (size_t)(n - got));

		if (r <= 0)
			wrong("read() of a pipe: %s", strerror(errno));
		got += r;
	}
	if (n != PAGE)
		return; /* copied in two, the second half was lost */
	check_words(p, copy, "write()");
}

/* Somebody else's page: whose it says it is can't change. */
static void do_peek(uint32_t p)
{
	uint64_t w;

	if (sigsetjmp(on_bus, 1)) {
		if (!__atomic_load_n(&me->may_lose, __ATOMIC_SEQ_CST))
			wrong("page %u was lost (peek), but nothing happened that loses pages",
			      p);
		return;
	}
	armed = 1;
	w = *(volatile uint64_t *)page(p);
	armed = 0;
	if (w && w >> 32 != word(p, 0, 0) >> 32)
		wrong("page %u says %#llx", p, (unsigned long long)w);
}

struct thread {
	pthread_t id;
	uint32_t nr;
	uint64_t rng;
};

static uint32_t own_page(struct thread *t)
{
	uint32_t pieces = PAGES / PIECE, piece;

	piece = (uint32_t)rnd(&t->rng, pieces / THREADS) * THREADS + t->nr;
	return piece * PIECE + (uint32_t)rnd(&t->rng, PIECE);
}

static void *thread_run(void *arg)
{
	struct thread *t = arg;
	uint32_t p, n, i, hot = own_page(t);
	int fd[2];

	if (pipe(fd))
		wrong("pipe: %s", strerror(errno));
	while (!__atomic_load_n(&me->stop, __ATOMIC_RELAXED)) {
		p = rnd(&t->rng, 3) ?
			    own_page(t) :
			    hot - hot % PIECE + (uint32_t)rnd(&t->rng, PIECE);
		n = PIECE - p % PIECE;
		if (seq[p] == SEQ_LOST && !rnd(&t->rng, 4))
			do_discard(p, 1);
		switch (rnd(&t->rng, 32)) {
		case 0 ... 9:
			do_check(p);
			break;
		case 10 ... 19:
			do_write(p);
			break;
		case 20:
			do_zero(p);
			break;
		case 21:
			do_discard(p, 1 + (uint32_t)rnd(&t->rng,
							(n < 20 ? n : 20)));
			break;
		case 22 ... 24:
			for (i = p; i < p + (n < 32 ? n : 32); i++)
				do_check(i);
			break;
		case 25 ... 26:
			for (i = p; i < p + (n < 32 ? n : 32); i++)
				do_write(i);
			break;
		case 27 ... 28:
			do_kernel(p, fd);
			break;
		case 29:
			hot = p;
			break;
		default:
			do_peek((uint32_t)rnd(&t->rng, PAGES));
		}
		add(&me->ops, 1);
	}
	/* Everything of mine once more. */
	for (p = 0; p < PAGES; p++)
		if (p / PIECE % THREADS == t->nr &&
		    p / PIECE / THREADS < PAGES / PIECE / THREADS)
			do_check(p);
	close(fd[0]);
	close(fd[1]);
	return NULL;
}

static void change_something(uint64_t *rng)
{
	static const struct {
		const char *name;
		uint64_t lo, n;
	} knob[] = {
		{ "epsilon", 0, 1000 },		 { "proactive_share", 0, 9001 },
		{ "inactive_share", 100, 4900 }, { "reserve_pages", 1, 256 },
		{ "batch_blocks", 1, 64 },	 { "elastic", 0, 2 },
		{ "sample_bp", 0, 10001 },	 { "writebacks", 1, 64 },
		{ "keep_clean", 0, 2 },		 { "ghost_share", 0, 40001 },
	};
	uint64_t lo = dcm_pager_min_budget(pager), n;
	int err;

	n = rnd(rng, 4);
	if (n < 2) {
		n = n ? lo : lo + rnd(rng, VM_BYTES / 2);
		err = dcm_pager_set_budget(pager, n & ~(uint64_t)(PAGE - 1));
		if (err)
			wrong("dcm_pager_set_budget(%llu): %s",
			      (unsigned long long)n, strerror(-err));
		add(&me->budgets, 1);
		return;
	}
	if (n == 2) {
		n = 4096ull << rnd(rng, 5);
		err = dcm_pager_set(pager, "largest_block", n);
	} else {
		unsigned int k =
			(unsigned int)rnd(rng, sizeof(knob) / sizeof(knob[0]));

		n = knob[k].lo + rnd(rng, knob[k].n);
		err = dcm_pager_set(pager, knob[k].name, n);
	}
	if (err)
		wrong("dcm_pager_set: %s", strerror(-err));
}

/* With copies: tell the controller what they are like. */
static void tell_status(void)
{
	char *s = dcm_pager_status(pager);

	if (!s || !status_tell(me, s))
		wrong("no status");
	free(s);
}

/* Lost pages must be in the figures. */
static void check_status(void)
{
	char *s = dcm_pager_status(pager), *at;

	if (!s)
		wrong("no status");
	at = strstr(s, "\"lost_pages\":");
	if (!at)
		wrong("no lost_pages in the status");
	if (me->lost && !strtoull(at + 13, NULL, 10))
		wrong("%llu accesses were stopped, and the status knows of no lost page",
		      (unsigned long long)me->lost);
	free(s);
}

int vm_main(int index, const char *config, uint64_t seed)
{
	struct sigaction sa = { .sa_sigaction = bus, .sa_flags = SA_SIGINFO };
	struct thread t[THREADS];
	char err[512];
	uint32_t i;

	me = &shared[index];
	vm_id = (uint32_t)index + 1;
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGBUS, &sa, NULL);
	pager = dcm_pager_open(config, err, sizeof(err));
	if (!pager)
		wrong("dcm_pager_open: %s", err);
	mem = dcm_pager_map(pager, VM_BYTES);
	if (!mem)
		wrong("dcm_pager_map: %s", strerror(errno));
	seq = calloc(PAGES, sizeof(*seq));
	last = calloc(PAGES, sizeof(*last));
	if (!seq || !last)
		wrong("out of memory");
	__atomic_store_n(&me->ready, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < THREADS; i++) {
		t[i] = (struct thread){ .nr = i, .rng = seed * 131 + i };
		if (pthread_create(&t[i].id, NULL, thread_run, &t[i]))
			wrong("pthread_create");
	}
	while (!__atomic_load_n(&me->stop, __ATOMIC_RELAXED)) {
		usleep(50000 + (useconds_t)rnd(&seed, 300000));
		change_something(&seed);
		tell_status();
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i].id, NULL);
	check_status();
	tell_status();
	dcm_pager_close(pager);
	free(seq);
	free(last);
	return 0;
}
