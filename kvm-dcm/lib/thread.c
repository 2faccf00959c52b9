// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * thread.c - start a thread of libdcm
 *
 * Every thread that libdcm starts, the client's too, is marked as inside libdcm from
 * its first instruction of ours to its last, so that memory that it allocates is never
 * paged. A thread without the mark would wait for its own fault, sooner or later.
 */
#include <errno.h>
#include <stdlib.h>

#include "thread.h"

__thread int dcm_thread_inside;

struct thread_arg {
	void *(*fn)(void *);
	void *arg;
};

static void *thread_main(void *p)
{
	struct thread_arg a = *(struct thread_arg *)p;

	dcm_thread_inside = 1;
	free(p);
	return a.fn(a.arg);
}

int dcm_thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	struct thread_arg *a = malloc(sizeof(*a));
	sigset_t all, old;
	int err;

	if (!a)
		return -ENOMEM;
	*a = (struct thread_arg){ fn, arg };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(t, NULL, thread_main, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		free(a);
	return -err;
}
