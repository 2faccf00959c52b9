// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vms.c - the VM processes as the controller sees them
 *
 * It starts, stops, continues and kills them, and looks how they are.
 */
#include "controller.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../framework/orphan.h"

#define STUCK_S 60.0 /* a VM that runs and does nothing for so long hangs */

struct vm vm[VMS_MAX];

void vm_config(int i)
{
	char path[128], text[1800];
	size_t n = 0;
	int d;

	n += (size_t)snprintf(text, sizeof(text),
			      "[vm]\nname = torture-%d-%d\nbudget = 8M\n"
			      "size = 64M\nmode = program\nlanes = %d\n"
			      "on-loss = sigbus\n",
			      (int)getpid(), i, 1 + i % 3);
	/* thin_after: a write waits for all that are to have the page */
	if (copies > 1)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      "redundancy = replica:%d\n"
				      "rebuild-rate = 0\n"
				      "[tunables]\nthin_after = 10000\n",
				      copies);
	n += (size_t)snprintf(text + n, sizeof(text) - n,
			      "[key]\ntenant = torture\nfile = %s/keys\n",
			      top_dir);
	for (d = 0; d < nr_donors; d++) {
		if (donor[d].shm)
			n += (size_t)snprintf(text + n, sizeof(text) - n,
					      "[donor %s]\naddress = unix:%s\n",
					      donor[d].name, donor[d].sock);
		else
			n += (size_t)snprintf(text + n, sizeof(text) - n,
					      "[donor %s]\naddress = %s\n",
					      donor[d].name, donor[d].line);
	}
	snprintf(path, sizeof(path), "%s/vm%d.ini", top_dir, i);
	write_file(path, "%s", text);
}

void vm_start(int i, bool may_lose)
{
	struct vm_shared *s = &shared[i];
	char path[128], log[128];

	vm[i].round++;
	memset(s, 0, sizeof(*s));
	s->round = vm[i].round;
	s->may_lose = may_lose;
	vm[i].seen_ops = 0;
	vm[i].seen_at = now_s();
	vm[i].cont_at = 0;
	snprintf(path, sizeof(path), "%s/vm%d.ini", top_dir, i);
	snprintf(log, sizeof(log), "%s/vm%d.log", top_dir, i);
	fflush(stdout);
	vm[i].pid = fork_no_orphan();
	if (vm[i].pid < 0)
		die("fork: %s", strerror(errno));
	if (!vm[i].pid) {
		if (!freopen(log, "a", stderr))
			_exit(2);
		close_range(STDERR_FILENO + 1, ~0u, 0); /* donors' lines */
		/* not exit(): the files are the controller's to remove */
		i = vm_main(i, path,
			    seed * 7919 + vm[i].round * 31 + (uint64_t)i);
		_exit(i);
	}
}

static void vm_tally(int i)
{
	vm[i].ops += shared[i].ops;
	vm[i].checked += shared[i].checked;
	vm[i].lost += shared[i].lost;
	vm[i].discards += shared[i].discards;
	vm[i].budgets += shared[i].budgets;
}

/* Ended without having been told to: why? */
static void vm_ended(int i, int status)
{
	struct vm_shared *s = &shared[i];

	vm[i].pid = 0;
	if (s->failed)
		failed("vm%d: %s", i, s->why);
	if (WIFSIGNALED(status))
		failed("vm%d: killed by signal %d", i, WTERMSIG(status));
	failed("vm%d: ended with status %d", i, WEXITSTATUS(status));
}

void vms_look(void)
{
	double now = now_s();
	int i, status;

	for (i = 0; i < nr_vms; i++) {
		if (vm[i].pid > 0 &&
		    waitpid(vm[i].pid, &status, WNOHANG) == vm[i].pid)
			vm_ended(i, status);
		if (shared[i].failed == 2)
			failed("vm%d: %s", i, shared[i].why);
		if (vm[i].cont_at || shared[i].ops != vm[i].seen_ops) {
			vm[i].seen_ops = shared[i].ops;
			vm[i].seen_at = now;
		} else if (now - vm[i].seen_at > STUCK_S) {
			failed("vm%d hangs: no operation ends for %.0f s", i,
			       STUCK_S);
		}
		if (vm[i].cont_at && now >= vm[i].cont_at) {
			kill(vm[i].pid, SIGCONT);
			vm[i].cont_at = 0;
		}
	}
}

void all_may_lose(void)
{
	int i;

	for (i = 0; i < nr_vms; i++)
		__atomic_store_n(&shared[i].may_lose, 1, __ATOMIC_SEQ_CST);
}

void vm_event(bool losses)
{
	int i = (int)rnd(&rng, (uint64_t)nr_vms);

	if (vm[i].cont_at || !shared[i].ready)
		return;
	switch (rnd(&rng, losses ? 4 : 2)) {
	case 2: /* longer than a connection may be silent: nothing is lost */
		say("vm%d is stopped for 7 s", i);
		kill(vm[i].pid, SIGSTOP);
		vm[i].cont_at = now_s() + 7;
		events.vm_long++;
		break;
	case 3:
		say("vm%d is killed", i);
		kill(vm[i].pid, SIGKILL);
		waitpid(vm[i].pid, NULL, 0);
		vm_tally(i);
		if (shared[i].failed == 2)
			failed("vm%d: %s", i, shared[i].why);
		vm_start(i, losses); /* donors may be down just now */
		events.vm_kill++;
		break;
	default:
		say("vm%d is stopped for a moment", i);
		kill(vm[i].pid, SIGSTOP);
		vm[i].cont_at = now_s() + 0.1 + (double)rnd(&rng, 10) / 10;
		events.vm_stop++;
	}
}

void vms_stop(void)
{
	double end = now_s() + 120;
	int i, status, left = nr_vms;

	for (i = 0; i < nr_vms; i++)
		__atomic_store_n(&shared[i].stop, 1, __ATOMIC_SEQ_CST);
	while (left) {
		for (i = 0; i < nr_vms; i++) {
			if (vm[i].cont_at && now_s() >= vm[i].cont_at) {
				kill(vm[i].pid, SIGCONT);
				vm[i].cont_at = 0;
			}
			if (!vm[i].pid ||
			    waitpid(vm[i].pid, &status, WNOHANG) != vm[i].pid)
				continue;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				vm_ended(i, status);
			vm[i].pid = 0;
			vm_tally(i);
			left--;
		}
		donors_look();
		if (now_s() > end)
			failed("%d VMs do not end", left);
		usleep(20000);
	}
}
