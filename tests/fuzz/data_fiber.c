// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data_fiber.c - a donor's data worker, on a stack of its own
 *
 * In place of a thread: the worker goes on when it is told to, and stops where it
 * would sleep, or where the input says: before it takes a lock, and while it
 * holds a slab. So whatever the event loop does comes between.
 */
#include <sanitizer/common_interface_defs.h>
#include <sys/epoll.h>
#include <ucontext.h>

#include "data_fiber.h"
#include "donor_world.h"
#include "input.h"
#include "pool.h"

#define STACK (256u << 10)
#define LOOK_NS 10000u /* that a call of epoll takes */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);
int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);
struct dcm_slab *__real_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session);
struct dcm_slab *__wrap_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session);
void __real_dcm_slab_put(struct dcm_slab *slab);
void __wrap_dcm_slab_put(struct dcm_slab *slab);

static struct {
	ucontext_t main;
	ucontext_t worker;
	void *(*fn)(void *);
	void *arg;
	/* the sanitizer is told of each change of stacks */
	void *main_fake;
	void *worker_fake;
	const void *main_stack;
	size_t main_size;
	bool runs;
	u32 locks;
	u32 stop_in; /* places where it can stop; 0: it does not */
	u32 wait; /* turns until it goes on */
} fiber;

static u8 fiber_stack[STACK] __attribute__((aligned(64)));

static void fiber_begin(void)
{
	__sanitizer_finish_switch_fiber(NULL, &fiber.main_stack,
					&fiber.main_size);
	fiber.fn(fiber.arg);
	abort();
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	EXPECT(!attr && !fiber.fn);
	*t = pthread_self();
	fiber.fn = fn;
	fiber.arg = arg;
	EXPECT(!getcontext(&fiber.worker));
	fiber.worker.uc_stack.ss_sp = fiber_stack;
	fiber.worker.uc_stack.ss_size = sizeof(fiber_stack);
	makecontext(&fiber.worker, fiber_begin, 0);
	/* or what is known of its variables is forgotten at each change */
	fiber.worker.uc_stack.ss_size = 0;
	return 0;
}

void data_fiber_run(void)
{
	EXPECT(!fiber.runs);
	if (fiber.wait && fiber.wait--)
		return;
	fiber.runs = true;
	__sanitizer_start_switch_fiber(&fiber.main_fake, fiber_stack,
				       sizeof(fiber_stack));
	EXPECT(!swapcontext(&fiber.main, &fiber.worker));
	__sanitizer_finish_switch_fiber(fiber.main_fake, NULL, NULL);
	fiber.runs = false;
}

static void fiber_stop(void)
{
	__sanitizer_start_switch_fiber(&fiber.worker_fake, fiber.main_stack,
				       fiber.main_size);
	EXPECT(!swapcontext(&fiber.worker, &fiber.main));
	__sanitizer_finish_switch_fiber(fiber.worker_fake, NULL, NULL);
}

/* Here something else may come between. */
static void fiber_place(void)
{
	if (fiber.runs && !fiber.locks && fiber.stop_in && !--fiber.stop_in)
		fiber_stop();
}

int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms)
{
	int n;

	EXPECT(fiber.runs && !fiber.locks);
	fiber_place();
	/* a worker that polls looks at the clock, too */
	if (!ms)
		donor_world_pass(LOOK_NS);
	while (!(n = __real_epoll_wait(fd, ev, max, 0)) && ms) {
		fiber_stop();
		if (ms > 0)
			ms = 0; /* its time is over when it goes on */
	}
	return n;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	fiber_place();
	fiber.locks += fiber.runs;
	/* a lock that is held would be waited for without end */
	EXPECT(!pthread_mutex_trylock(m));
	return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	fiber.locks -= fiber.runs;
	return __real_pthread_mutex_unlock(m);
}

struct dcm_slab *__wrap_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session)
{
	struct dcm_slab *slab = __real_dcm_slab_get(pool, id, session);

	fiber_place();
	return slab;
}

void __wrap_dcm_slab_put(struct dcm_slab *slab)
{
	fiber_place();
	__real_dcm_slab_put(slab);
}

void data_fiber_set(u32 stop_in, u32 wait)
{
	fiber.stop_in = stop_in;
	fiber.wait = wait;
}
