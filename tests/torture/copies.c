// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copies.c - donors that die while VMs have two or three copies of each page
 *
 * A donor is killed, stopped, or its line is cut. The next one is hit when each
 * VM's status has said for a while that nothing is exposed, and so not a page may
 * be lost in the whole run. With -D it is two donors at once, which are killed,
 * and the pages that a VM loses by it may not be more than the status had named
 * for these two.
 */
#include "../framework/proxy.h"
#include "controller.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define STEADY_S 1.0
/* The risk of donors' deaths in a status may be almost this old, in seconds. */
#define TOLD_S 2.5
/* Shortly before: a connection that fails leaves pages thin. */
#define FRESH_S 0.15

int copies = 1;
bool two_at_once;

static double whole_since; /* 0: something is exposed, or a donor not well */
static uint64_t named[VMS_MAX]; /* of the two donors hit last */
static uint64_t lost_before[VMS_MAX];

static uint64_t of(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

/* Is no status older than that? */
static bool all_told(double s)
{
	int i;

	for (i = 0; i < nr_vms; i++)
		if (now_s() - (double)of(&shared[i].told_ms) / 1000 > s)
			return false;
	return true;
}

static bool all_whole(void)
{
	uint32_t all = (1u << nr_donors) - 1;
	int i;

	if (donors_well() < nr_donors)
		return false;
	for (i = 0; i < nr_donors; i++)
		if (donor[i].heal_at)
			return false;
	for (i = 0; i < nr_vms; i++)
		if (!of(&shared[i].whole) || of(&shared[i].up) != all)
			return false;
	return all_told(TOLD_S);
}

static void donor_dies(struct donor *d)
{
	donor_kill(d, SIGKILL);
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
	d->back_at = now_s() + 0.2 + (double)rnd(&rng, 80) / 10;
}

static void hit_one(struct donor *d)
{
	double for_s = 0.1 + (double)rnd(&rng, 80) / 10;

	switch (rnd(&rng, d->proxy ? 3 : 2)) {
	case 0:
		say("%s is killed", d->name);
		donor_dies(d);
		events.kill++;
		break;
	case 1:
		say("%s is stopped for %.1f s", d->name, for_s);
		donor_kill(d, SIGSTOP);
		d->cont_at = now_s() + for_s;
		events.stop++;
		break;
	default:
		say("%s is cut off for %.1f s", d->name, for_s);
		proxy_hush(d->proxy, FROM_HOST | FROM_DONOR, false);
		d->heal_at = now_s() + for_s;
		events.cut++;
	}
}

/* No VM has lost more than what was named. */
static void losses_check(void)
{
	int i;

	for (i = 0; i < nr_vms; i++) {
		uint64_t lost = of(&shared[i].lost_pages) - lost_before[i];

		if (lost * PAGE > named[i])
			failed("vm%d: %llu pages were lost with two donors, for which its status had named %llu",
			       i, (unsigned long long)lost,
			       (unsigned long long)(named[i] / PAGE));
		events.lost += lost;
		events.named += named[i] / PAGE;
		named[i] = 0;
	}
}

static void hit_two(void)
{
	int a = (int)rnd(&rng, (uint64_t)nr_donors), i;
	int b = (a + 1 + (int)rnd(&rng, (uint64_t)nr_donors - 1)) % nr_donors;

	losses_check();
	for (i = 0; i < nr_vms; i++) {
		named[i] =
			of(&shared[i].together[a < b ? a : b][a < b ? b : a]);
		lost_before[i] = of(&shared[i].lost_pages);
		if (named[i])
			__atomic_store_n(&shared[i].may_lose, 1,
					 __ATOMIC_SEQ_CST);
	}
	say("%s and %s are killed", donor[a].name, donor[b].name);
	donor_kill(&donor[a], SIGKILL);
	donor_dies(&donor[b]);
	donor_dies(&donor[a]);
	events.kill += 2;
}

void copies_look(void)
{
	double now = now_s();
	int i;

	for (i = 0; i < nr_donors; i++)
		if (donor[i].heal_at && now >= donor[i].heal_at) {
			proxy_open(donor[i].proxy);
			donor[i].heal_at = 0;
		}
	if (!all_whole()) {
		whole_since = 0;
		return;
	}
	if (!whole_since)
		whole_since = now;
	if (now - whole_since < (two_at_once ? TOLD_S : STEADY_S) ||
	    !all_told(FRESH_S))
		return;
	whole_since = 0;
	if (two_at_once)
		hit_two();
	else
		hit_one(&donor[rnd(&rng, (uint64_t)nr_donors)]);
}

uint64_t copies_hits(void)
{
	return events.kill + events.stop + events.cut;
}

void copies_summary(void)
{
	losses_check();
	printf("torture: %d copies; donors killed %llu, stopped %llu, cut off %llu, %s when nothing was exposed; %llu pages lost of %llu named\n",
	       copies, (unsigned long long)events.kill,
	       (unsigned long long)events.stop, (unsigned long long)events.cut,
	       two_at_once ? "two at once" : "one by one",
	       (unsigned long long)events.lost,
	       (unsigned long long)events.named);
	if (!copies_hits())
		failed("no donor was hit: VMs were exposed all the time");
}
