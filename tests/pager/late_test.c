// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * late_test.c - a program whose connections are held, cut and delivered late
 *
 *	late_test CONFIG
 *
 * It runs in step with a test that owns the network (test_writes_that_land_late):
 * after each step it prints the step's name and waits for a line of input.
 *
 *	first     every page is written, four times the budget, and again, so that a
 *		  donor has a slab for each; soon nothing is going on
 *	squeezed  the budget was lowered: the pager's own thread writes pages out,
 *	          over a connection of its own, which the test holds, then cuts
 *	second    every page is written again, with other content; pages on their way
 *	          out were written again over fault threads' connections if possible
 *	checked   every page was read, after the test delivered what it held
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "libdcm.h"
#include "fail.h"

#define PAGE 4096u
#define PASSES 4u

static void step(const char *name)
{
	char line[16];

	printf("%s\n", name);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		fail("nobody goes along");
}

int main(int argc, char **argv)
{
	struct dcm_pager *pager;
	uint64_t budget, pages, pass, i, wrong = 0, seen = 0;
	volatile uint64_t *m;
	char err[512];

	if (argc != 2)
		fail("usage: see the top of late_test.c");
	pager = dcm_pager_open(argv[1], err, sizeof(err));
	if (!pager)
		fail("%s", err);
	budget = dcm_pager_budget(pager);
	pages = 4 * budget / PAGE;
	m = dcm_pager_map(pager, pages * PAGE);
	if (!m)
		fail("map");
	for (pass = 0; pass < 2; pass++)
		for (i = 0; i < pages; i++)
			m[i * PAGE / 8] = i << 8 | 1;
	step("first");
	if (dcm_pager_set_budget(pager, budget / 2))
		fail("the budget is refused");
	step("squeezed");
	if (dcm_pager_set_budget(pager, budget))
		fail("the budget is refused");
	for (pass = 2; pass <= PASSES; pass++)
		for (i = 0; i < pages; i++)
			m[i * PAGE / 8] = i << 8 | pass;
	step("second");
	for (i = 0; i < pages; i++) {
		uint64_t got = m[i * PAGE / 8];

		if (got != (i << 8 | PASSES)) {
			seen = got;
			wrong++;
		}
	}
	if (wrong)
		fail("%llu pages are not what was written last: %#llx",
		     (unsigned long long)wrong, (unsigned long long)seen);
	printf("checked\n");
	dcm_pager_close(pager);
	return 0;
}
