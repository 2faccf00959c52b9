// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donors.c - the donors as the controller sees them
 *
 * It squeezes, drains, stops, continues and kills them, and starts them again.
 */
#include "controller.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct donor donor[DONORS_MAX];

/* Donors that are there and not being hurt already. */
int donors_well(void)
{
	int i, n = 0;

	for (i = 0; i < nr_donors; i++)
		n += donor[i].pid > 0 && !donor[i].cont_at &&
		     !donor[i].draining && donor[i].capacity_mib >= 64;
	return n;
}

void donor_event(bool losses)
{
	struct donor *d = &donor[rnd(&rng, (uint64_t)nr_donors)];
	double now = now_s();

	if (d->pid <= 0 || d->cont_at || d->draining || donors_well() < 3)
		return;
	switch (rnd(&rng, losses ? 7 : 5)) {
	case 0:
	case 1:
		d->normal_at = now + 1 + (double)rnd(&rng, 30) / 10;
		say("%s may lend 2 MiB only", d->name);
		donor_capacity(d, 2);
		events.squeeze++;
		break;
	case 2:
	case 3:
		say("%s drains", d->name);
		d->draining = true;
		if (losses)
			all_may_lose(); /* others may be down or full */
		donor_kill(d, SIGTERM);
		events.drain++;
		break;
	case 4:
		say("%s is stopped for a moment", d->name);
		donor_kill(d, SIGSTOP);
		d->cont_at = now + 0.1 + (double)rnd(&rng, 10) / 10;
		events.stop++;
		break;
	case 5:
		say("%s is stopped for 8 s", d->name);
		donor_kill(d, SIGSTOP);
		d->cont_at = now + 8;
		events.long_stop++;
		break;
	default:
		say("%s is killed", d->name);
		all_may_lose();
		donor_kill(d, SIGKILL);
		waitpid(d->pid, NULL, 0);
		d->pid = 0;
		d->back_at = now + 0.2 + (double)rnd(&rng, 40) / 10;
		events.kill++;
	}
}

void donors_look(void)
{
	double now = now_s();
	int i, status;

	for (i = 0; i < nr_donors; i++) {
		struct donor *d = &donor[i];

		if (d->cont_at && now >= d->cont_at) {
			donor_kill(d, SIGCONT);
			d->cont_at = 0;
		}
		if (d->capacity_mib < 64 && d->pid > 0 && !d->draining &&
		    !d->cont_at && now >= d->normal_at)
			donor_capacity(d, 128);
		if (d->pid > 0 && waitpid(d->pid, &status, WNOHANG) == d->pid) {
			d->pid = 0;
			/* 1: it left slabs behind, for want of other donors */
			if (!d->draining || !WIFEXITED(status) ||
			    WEXITSTATUS(status) > losing)
				failed("donor %s ended with status %#x",
				       d->name, status);
			say("%s has drained (%d)", d->name,
			    WEXITSTATUS(status));
			d->capacity_mib = 128;
			d->back_at = now + (double)rnd(&rng, 20) / 10;
		}
		if (!d->pid && d->back_at && now >= d->back_at) {
			donor_start(d);
			say("%s is back", d->name);
		}
	}
}

/*
 * The last donors have nobody's slabs any more but those of sessions that died
 * in the last 5 s. One that drains is not told again: to it that would mean
 * not to wait for them.
 */
void donors_stop(void)
{
	double end = now_s() + 60;
	int i, left = 0, status;

	for (i = 0; i < nr_donors; i++) {
		if (donor[i].pid <= 0)
			continue;
		if (!donor[i].draining)
			donor_kill(&donor[i], SIGTERM);
		left++;
	}
	while (left) {
		for (i = 0; i < nr_donors; i++) {
			if (donor[i].pid <= 0 ||
			    waitpid(donor[i].pid, &status, WNOHANG) !=
				    donor[i].pid)
				continue;
			donor[i].pid = 0;
			left--;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				failed("donor %s ended with status %#x",
				       donor[i].name, status);
		}
		if (now_s() > end)
			failed("%d donors do not end", left);
		usleep(10000);
	}
}
