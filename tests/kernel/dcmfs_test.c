// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dcmfs_test.c - drives dcmfs from user space, as root
 *
 *	dcmfs_test basics DIR		a file's calls, one by one
 *	dcmfs_test torture FILE MIB SECONDS PROCESSES SEED
 *	dcmfs_test chaos DIR SECONDS SEED
 *	dcmfs_test guest FILE MIB	a guest under KVM, without a VMM
 *	dcmfs_test links DIR		donors at the other end of a socket
 *	dcmfs_test vhost FILE		pages that vhost-net writes
 *	dcmfs_test use FILE MIB PROCESSES SEED STOP
 *					memory under use, until STOP exists
 *	dcmfs_test budget FILE PAGES	change it
 *	dcmfs_test serve FILE STOP	slabs for a file that others use, until
 *					STOP exists; commands on standard input
 *
 * Exit status 0, or 1 and a line that begins with FAILED.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dcmfs_test.h"

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "FAILED: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	_exit(1);
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* xorshift64* */
uint64_t rnd(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * 0x2545f4914f6cdd1dull) >> 16;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "basics"))
		return basics(argc, argv);
	if (argc == 7 && !strcmp(argv[1], "torture"))
		return torture(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "chaos"))
		return chaos(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "guest"))
		return guest(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "links"))
		return links(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "vhost"))
		return vhost(argc, argv);
	if (argc == 7 && !strcmp(argv[1], "use"))
		return use(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "budget"))
		return budget(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve(argc, argv);
	fprintf(stderr, "usage: see the top of dcmfs_test.c\n");
	return 2;
}
