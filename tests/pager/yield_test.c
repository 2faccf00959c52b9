// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * yield_test.c - the fault thread makes way for one faulter, and only then
 *
 *	yield_test CONFIG
 *
 * One thread faults densely: the lane must become SCHED_IDLE. After that the
 * lane must become an ordinary thread again. Then one thread faults in bursts
 * and computes in between, another faults now and then: all must get their
 * pages. Exit status 77: this process may not do that, nothing was tested.
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "libdcm.h"
#include "../framework/thread.h"
#include "uffd/yield.h"

#define PAGES 16384u /* four times the budget */
#define DENSE_S 30 /* at most, until the lane yields */
#define BURSTS 40
#define RARE 200

static volatile uint64_t *mem;
static bool done;
static pid_t lane;

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static void touch(uint64_t *seed)
{
	uint64_t page;

	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	page = (*seed >> 33) % PAGES;
	if (mem[page * 512] != page + 1) {
		fprintf(stderr, "FAILED: page %llu holds %llu\n",
			(unsigned long long)page,
			(unsigned long long)mem[page * 512]);
		exit(1);
	}
}

static void *rare(void *arg)
{
	uint64_t seed = 99;
	int i;

	(void)arg;
	for (i = 0; i < RARE; i++) {
		touch(&seed);
		usleep(1000);
	}
	__atomic_store_n(&done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, i, end;
	struct dcm_pager *pg;
	pthread_t thread;
	char err[512];
	bool seen = false;

	if (argc != 2)
		return 2;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || !dcm_yield_can())
		return 77;
	pg = dcm_pager_open(argv[1], err, sizeof(err));
	if (!pg) {
		fprintf(stderr, "%s\n", err);
		return 3;
	}
	mem = dcm_pager_map(pg, (size_t)PAGES * 4096);
	if (!mem) {
		perror("dcm_pager_map");
		return 3;
	}
	for (i = 0; i < PAGES; i++)
		mem[i * 512] = i + 1;
	/* After the first faults: before, the lane may have no name yet. */
	lane = test_thread_find("dcm-fault-0");
	if (!lane) {
		fprintf(stderr, "FAILED: no thread dcm-fault-0\n");
		return 1;
	}
	end = now_us() + DENSE_S * 1000000u;
	while (!seen && now_us() < end) {
		for (i = 0; i < 64; i++)
			touch(&seed);
		seen = sched_getscheduler(lane) == SCHED_IDLE;
	}
	if (!seen) {
		fprintf(stderr, "FAILED: the lane never yielded\n");
		return 1;
	}
	/* The lane changes its own policy, when it next gets the CPU. */
	end = now_us() + DENSE_S * 1000000u;
	while (sched_getscheduler(lane) != SCHED_OTHER && now_us() < end)
		usleep(10000);
	if (sched_getscheduler(lane) != SCHED_OTHER) {
		fprintf(stderr, "FAILED: the lane yields on in silence\n");
		return 1;
	}
	if (pthread_create(&thread, NULL, rare, NULL))
		return 3;
	for (i = 0; i < BURSTS || !__atomic_load_n(&done, __ATOMIC_SEQ_CST);
	     i++) {
		for (end = now_us() + 3000; now_us() < end;)
			touch(&seed);
		for (end = now_us() + 10000; now_us() < end;)
			;
	}
	pthread_join(thread, NULL);
	printf("yielding, and ordinary again\n");
	dcm_pager_close(pg);
	return 0;
}
