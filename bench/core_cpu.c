// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * core_cpu.c - the core's CPU time per fault, outside system calls
 *
 *   core_cpu PAGES BUDGET FAULTS [write percent]
 *
 * The real core behind a guest that costs nothing (guest.c: no system call, no
 * bytes moved), budget full, uniformly random pages, so that nearly every
 * access is a miss with a fetch and an eviction. CPU time of the thread over
 * all of it, less that of the same loop over the same accesses with the core
 * left out, divided by the faults the core counted.
 */
#include "common.h"
#include "guest.h"

static u64 loop(struct guest *g, u32 pages, u64 accesses,
		unsigned int write_percent, bool core)
{
	u64 rng = 99, t = bench_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (u64 i = 0; i < accesses; i++) {
		u64 r = bench_rand(&rng);
		u32 page = (u32)((r >> 32) % pages);
		bool write = (r >> 8) % 100 < write_percent;
		volatile u8 *p = &g->page[page];

		if (core)
			guest_access(g, page, write);
		else
			*p = *p | GUEST_SEEN;
	}
	return bench_clock_ns(CLOCK_THREAD_CPUTIME_ID) - t;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		die("usage: core_cpu PAGES BUDGET ACCESSES [write percent]");
	u32 pages = (u32)strtoul(argv[1], NULL, 10);
	u64 budget = strtoull(argv[2], NULL, 10);
	u64 accesses = strtoull(argv[3], NULL, 10);
	unsigned int write_percent = argc > 4 ? (unsigned int)atoi(argv[4]) : 0;
	struct dcm_stats before, after;
	struct guest *g;

	if (!pages || !budget || !accesses)
		die("core_cpu: numbers above 0");
	g = guest_new(pages, budget, false);
	for (u32 i = 0; i < pages; i++)
		guest_access(g, i, true);
	loop(g, pages, accesses / 4, write_percent, true);
	u64 empty = loop(g, pages, accesses, write_percent, false);
	dcm_vm_stats(g->vm, &before);
	u64 full = loop(g, pages, accesses, write_percent, true);
	dcm_vm_stats(g->vm, &after);
	u64 faults = after.count[DCM_C_FAULTS] - before.count[DCM_C_FAULTS];
	u64 fetches = after.count[DCM_C_FETCHES] - before.count[DCM_C_FETCHES];
	u64 writes =
		after.count[DCM_C_WRITEBACKS] - before.count[DCM_C_WRITEBACKS];

	printf("{\"accesses\":%llu,\"faults\":%llu,\"fetches\":%llu,\"writebacks\":%llu,"
	       "\"core_ns\":%llu,\"empty_ns\":%llu,\"ns_per_fault\":%.1f}\n",
	       (unsigned long long)accesses, (unsigned long long)faults,
	       (unsigned long long)fetches, (unsigned long long)writes,
	       (unsigned long long)full, (unsigned long long)empty,
	       faults ? (double)(full - empty) / (double)faults : 0.0);
	guest_free(g);
	return 0;
}
