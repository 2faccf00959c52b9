/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * thread.h - is this thread inside libdcm?
 *
 * The preload shim must tell libdcm's own calls of malloc() and mmap() from the
 * program's: what libdcm uses must never be paged. Its threads are inside for
 * good, the program's while they are in a function of libdcm.
 */
#ifndef DCM_THREAD_H
#define DCM_THREAD_H

#include <pthread.h>
#include <signal.h>

extern __thread int dcm_thread_inside
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Entered by a thread of the program: no signal handler may run in here. */
static inline void dcm_thread_enter(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	dcm_thread_inside++;
}

static inline void dcm_thread_leave(const sigset_t *old)
{
	dcm_thread_inside--;
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* A thread with all signals blocked and a stack of its own. 0 or -errno. */
int dcm_thread_start(pthread_t *t, void *(*fn)(void *), void *arg);

#endif /* DCM_THREAD_H */
