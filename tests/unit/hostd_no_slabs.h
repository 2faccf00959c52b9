/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hostd_no_slabs.h - for tests of hostd/gc.c and hostd/window.c: a file has no slabs */
#ifndef TEST_HOSTD_NO_SLABS_H
#define TEST_HOSTD_NO_SLABS_H

#include <time.h>

#include "hostd/hostd.h"

u64 hostd_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

bool dcm_slab_worker_where(struct dcm_slab_worker *w, u32 extent, u32 *donor,
			   u64 *slab)
{
	(void)w;
	(void)extent;
	(void)donor;
	(void)slab;
	return false;
}

bool dcm_slab_worker_losing(struct dcm_slab_worker *w)
{
	(void)w;
	return false;
}

#endif /* TEST_HOSTD_NO_SLABS_H */
