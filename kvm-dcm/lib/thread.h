/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * thread.h - is this thread inside libdcm?
 *
 * The preload shim must distinguish libdcm's own calls of malloc() and mmap() from the
 * program's, as libdcm's memory must never be paged. Threads of libdcm are always
 * inside; threads of the program are while they are in a function of libdcm.
 */
#ifndef DCM_THREAD_H
#define DCM_THREAD_H

#include <pthread.h>
#include <signal.h>

extern __thread int dcm_thread_inside
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/*
 * A thread of the program enters libdcm: block signals, so that no handler runs in
 * here.
 */
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

/* Start a thread of libdcm, with all signals blocked and its own stack. 0 or -errno. */
int dcm_thread_start(pthread_t *t, void *(*fn)(void *), void *arg);

#endif /* DCM_THREAD_H */
