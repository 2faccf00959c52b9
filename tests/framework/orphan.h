/* SPDX-License-Identifier: GPL-2.0-or-later */
/* orphan.h - processes that end when the test that forked them is killed: no orphans */
#ifndef TEST_ORPHAN_H
#define TEST_ORPHAN_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

/* As fork(). The child is killed when the thread that called this ends. */
static inline pid_t fork_no_orphan(void)
{
	pid_t parent = getpid(), pid = fork();

	/* A parent that was dead by then sends no signal. */
	if (!pid && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
		_exit(126);
	return pid;
}

#endif /* TEST_ORPHAN_H */
