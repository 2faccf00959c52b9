// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fibers.c - threads that take turns, as an input says
 *
 * In place of the system's (an input's program is linked with --wrap for each call
 * here): what happens depends on the input alone, and a turn costs no system
 * call's wait. Threads change where one waits for a mutex, a condition or another
 * thread's end; and where one locks or unlocks, when fibers_run() says so.
 *
 * A wait with a time ends when all threads wait. If there is none, they wait
 * for each other, which is a failure.
 *
 * Calls of the fuzzer's own threads are the system's.
 */
#include <errno.h>
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

#include "fibers.h"
#include "input.h"

#define FIBERS 20u
#define STACK (256u << 10)

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t id, void **ret);
int __wrap_pthread_join(pthread_t id, void **ret);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
				  const struct timespec *end);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);

/**
 * struct fiber - a thread; the first one is the fuzzer's
 * @taken: it was created, and not joined
 * @done: its function has returned
 * @waits: for this condition or fiber; NULL: it can run
 * @timed: it waits with a time
 * @late: that ended its wait
 */
struct fiber {
	ucontext_t context;
	void *fake;
	const void *stack;
	size_t stack_bytes;
	bool taken;
	bool done;
	const void *waits;
	bool timed;
	bool late;
	void *(*fn)(void *);
	void *arg;
};

static struct fiber fibers[FIBERS] = { { .taken = true } };
static u8 stacks[FIBERS][STACK] __attribute__((aligned(64)));
static struct fiber *current = fibers;
static u32 places_left; /* 0: any number */
static pthread_t first_thread;

static __attribute__((constructor)) void first_thread_set(void)
{
	first_thread = pthread_self();
}

static bool ours(void)
{
	return pthread_equal(pthread_self(), first_thread);
}

bool fibers_first(void)
{
	return current == fibers;
}

u32 fibers_there(void)
{
	u32 n = 0;

	for (u32 i = 1; i < FIBERS; i++)
		n += fibers[i].taken;
	return n;
}

/* ---- turns ---- */

UNTRACED static struct fiber *next_ready(void)
{
	const u32 at = (u32)(current - fibers);

	for (u32 i = 1; i <= FIBERS; i++) {
		struct fiber *f = &fibers[(at + i) % FIBERS];

		if (f->taken && !f->done && !f->waits)
			return f;
	}
	return NULL;
}

UNTRACED static void go(struct fiber *to)
{
	struct fiber *from = current;

	if (to == from)
		return;
	current = to;
	__sanitizer_start_switch_fiber(from->done ? NULL : &from->fake,
				       to->stack, to->stack_bytes);
	EXPECT(!swapcontext(&from->context, &to->context));
	__sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
}

UNTRACED static void wait_for(const void *what, bool timed)
{
	struct fiber *to;

	current->waits = what;
	current->timed = timed;
	current->late = false;
	to = next_ready();
	for (u32 i = 0; !to && i < FIBERS; i++)
		if (fibers[i].waits && fibers[i].timed) {
			to = &fibers[i];
			to->late = true;
			to->waits = NULL;
		}
	EXPECT(to);
	go(to);
}

UNTRACED static void wake(const void *what, u32 nr)
{
	for (u32 i = 0; nr && i < FIBERS; i++)
		if (fibers[i].waits == what) {
			fibers[i].waits = NULL;
			nr--;
		}
}

/* Here the first thread may go on instead. */
UNTRACED static void place(void)
{
	if (current != fibers && places_left && !--places_left)
		go(next_ready() == current ? current : fibers);
}

UNTRACED void fibers_run(u32 places)
{
	struct fiber *f;

	EXPECT(fibers_first());
	places_left = places;
	while ((f = next_ready()) != fibers) {
		go(f);
		if (places && !places_left)
			break;
	}
	places_left = 0;
}

/* ---- from create to join ---- */

static void fiber_begin(void)
{
	const void *stack;
	size_t bytes;

	__sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
	/* the first one that begins comes from the first thread */
	if (!fibers[0].stack_bytes) {
		fibers[0].stack = stack;
		fibers[0].stack_bytes = bytes;
	}
	current->fn(current->arg);
	current->done = true;
	wake(current, FIBERS);
	go(next_ready());
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	struct fiber *f = fibers;

	/* the fuzzer's own have no attributes */
	if (!attr)
		return __real_pthread_create(id, attr, fn, arg);
	while (f->taken)
		if (++f == fibers + FIBERS)
			return EAGAIN;
	*f = (struct fiber){ .taken = true, .fn = fn, .arg = arg };
	f->stack = stacks[f - fibers];
	f->stack_bytes = STACK;
	EXPECT(!getcontext(&f->context));
	f->context.uc_stack.ss_sp = stacks[f - fibers];
	f->context.uc_stack.ss_size = STACK;
	makecontext(&f->context, fiber_begin, 0);
	*id = (pthread_t)f;
	return 0;
}

int __wrap_pthread_join(pthread_t id, void **ret)
{
	struct fiber *f = (struct fiber *)id;

	if (!ours())
		return __real_pthread_join(id, ret);
	EXPECT(f > fibers && f < fibers + FIBERS && f->taken && !ret);
	while (!f->done)
		wait_for(f, false);
	f->taken = false;
	return 0;
}

/* ---- mutexes and conditions ---- */

UNTRACED static void mutex_take(pthread_mutex_t *m)
{
	while (pthread_mutex_trylock(m)) {
		struct fiber *to = next_ready();

		EXPECT(to && to != current);
		go(to);
	}
}

UNTRACED int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	if (!ours())
		return __real_pthread_mutex_lock(m);
	place();
	mutex_take(m);
	return 0;
}

UNTRACED int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	const int err = __real_pthread_mutex_unlock(m);

	if (ours())
		place();
	return err;
}

UNTRACED static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, bool timed)
{
	EXPECT(!__real_pthread_mutex_unlock(m));
	wait_for(c, timed);
	mutex_take(m);
	return current->late ? ETIMEDOUT : 0;
}

UNTRACED int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return ours() ? cond_wait(c, m, false) : __real_pthread_cond_wait(c, m);
}

UNTRACED int __wrap_pthread_cond_timedwait(pthread_cond_t *c,
					   pthread_mutex_t *m,
					   const struct timespec *end)
{
	(void)end;
	EXPECT(ours());
	return cond_wait(c, m, true);
}

UNTRACED int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
	if (!ours())
		return __real_pthread_cond_signal(c);
	wake(c, 1);
	return 0;
}

UNTRACED int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
	if (!ours())
		return __real_pthread_cond_broadcast(c);
	wake(c, FIBERS);
	return 0;
}
