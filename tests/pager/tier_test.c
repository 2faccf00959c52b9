// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tier_test.c - a program that uses half of its memory, and then leaves it alone
 *
 *	tier_test CONFIG MIB
 *
 * It writes MIB MiB in order, prints "filled", and from then on reads and writes
 * random pages of the second half, each of which it checks, until it is given a
 * line of input; then it checks the whole second half once more.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "libdcm.h"
#include "fail.h"

#define PAGE 4096u
#define TOUCHES 256u /* between two looks for input */

/* A page has its number, and how often it was written. */
static void page_check(const volatile uint64_t *m, uint64_t page)
{
	uint64_t got = m[page * PAGE / 8];

	if (got >> 32 != page || !(uint32_t)got)
		fail("page %llu has %#llx", (unsigned long long)page,
		     (unsigned long long)got);
}

static void page_touch(volatile uint64_t *m, uint64_t page, int write)
{
	page_check(m, page);
	if (write)
		m[page * PAGE / 8]++;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	struct dcm_pager *pager;
	uint64_t pages, i, seed = 1;
	volatile uint64_t *m;
	char err[512];

	if (argc != 3)
		fail("usage: see the top of tier_test.c");
	pager = dcm_pager_open(argv[1], err, sizeof(err));
	if (!pager)
		fail("%s", err);
	pages = strtoull(argv[2], NULL, 0) << 20 >> 12;
	m = dcm_pager_map(pager, pages * PAGE);
	if (!m)
		fail("map");
	for (i = 0; i < pages; i++)
		m[i * PAGE / 8] = i << 32 | 1;
	printf("filled\n");
	fflush(stdout);
	while (!poll(&input, 1, 0))
		for (i = 0; i < TOUCHES; i++) {
			seed = seed * 6364136223846793005u +
			       1442695040888963407u;
			page_touch(m, pages / 2 + (seed >> 33) % (pages / 2),
				   seed >> 63);
		}
	for (i = pages / 2; i < pages; i++)
		page_check(m, i);
	printf("every byte right\n");
	dcm_pager_close(pager);
	return 0;
}
