// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ahead_test.c - a program that says which pages it reads next
 *
 *	ahead_test CONFIG MIB BUDGET_MIB
 *
 * It writes MIB MiB in order, several times the budget, so that the beginning is on
 * donors. Then it has a part of that brought in, and reads it: by the pager's counters
 * hardly a page of it is fetched by then. Then it asks for far more than there is room
 * for: no more than a quarter of the budget comes, and what was used last stays.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libdcm.h"
#include "fail.h"
#include "status.h"

#define PAGE 4096u

static struct dcm_pager *pager;
static volatile uint64_t *m;

static void pages_check(uint64_t from, uint64_t end)
{
	uint64_t i;

	for (i = from; i < end; i++)
		if (m[i * PAGE / 8] != i + 1)
			fail("page %llu has %#llx", (unsigned long long)i,
			     (unsigned long long)m[i * PAGE / 8]);
}

/* Pages of the range that have to be fetched when it is read. */
static uint64_t pages_missing(uint64_t from, uint64_t end)
{
	uint64_t before = status_number(pager, "FAULT_MISSING");

	pages_check(from, end);
	return status_number(pager, "FAULT_MISSING") - before;
}

/* Have pages brought in. Returns how many were. */
static uint64_t pages_fetch(uint64_t from, uint64_t end)
{
	uint64_t before = status_number(pager, "AHEAD_PAGES");

	if (dcm_pager_fetch(pager, (char *)m + from * PAGE,
			    (end - from) * PAGE))
		fail("dcm_pager_fetch");
	while (status_number(pager, "ahead_bytes"))
		usleep(1000);
	return status_number(pager, "AHEAD_PAGES") - before;
}

int main(int argc, char **argv)
{
	uint64_t pages, budget, few, hot, i, n, missing;
	char err[512];

	if (argc != 4)
		fail("usage: see the top of ahead_test.c");
	pager = dcm_pager_open(argv[1], err, sizeof(err));
	if (!pager)
		fail("%s", err);
	pages = strtoull(argv[2], NULL, 0) << 20 >> 12;
	budget = strtoull(argv[3], NULL, 0) << 20 >> 12;
	m = dcm_pager_map(pager, pages * PAGE);
	if (!m)
		fail("map");
	for (i = 0; i < pages; i++)
		m[i * PAGE / 8] = i + 1;
	/* what was written first has been away for long */
	few = budget / 8;
	n = pages_fetch(0, few);
	missing = pages_missing(0, few);
	printf("of %llu pages %llu came, %llu faults fetched\n",
	       (unsigned long long)few, (unsigned long long)n,
	       (unsigned long long)missing);
	if (n < few * 3 / 4 || missing > few / 16)
		fail("too few came");

	hot = budget / 4;
	pages_check(pages - hot, pages);
	n = pages_fetch(few, few + 2 * budget);
	missing = pages_missing(pages - hot, pages);
	printf("of %llu pages %llu came, %llu of %llu hot ones had gone\n",
	       (unsigned long long)budget * 2, (unsigned long long)n,
	       (unsigned long long)missing, (unsigned long long)hot);
	if (n < budget / 8 || n > budget / 2 || missing > hot / 16)
		fail("not the room there is");
	if (!status_number(pager, "AHEAD_DROPPED"))
		fail("nothing was dropped");
	pages_check(0, pages);
	printf("every byte right\n");
	dcm_pager_close(pager);
	return 0;
}
