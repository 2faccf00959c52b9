/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * home.h - a guest that costs nothing, for driving the core alone
 *
 * Every op the core calls is a few memory accesses: pages have no bytes, I/O
 * is done at once, a page table is a byte a page. What is left is the core.
 */
#ifndef BENCH_HOME_H
#define BENCH_HOME_H

#include "core.h"

#define HOME_PRESENT  0x1
#define HOME_WRITABLE 0x2
#define HOME_HIDDEN   0x4	/* left out by install, to sample */
#define HOME_TOUCHED  0x8	/* since it was installed: the accessed bit */
#define HOME_DIRTY    0x10	/* since it was installed */
#define HOME_WRITTEN  0x20	/* ever: it isn't zero */
#define HOME_SEEN     0x40	/* ever touched */

/**
 * struct home - the guest, one lane
 * @vm: the core's
 * @lane: the one lane
 * @page: HOME_* of each
 * @accessed_bits: unmap tells which pages were touched, as a kernel's page
 *	tables do; otherwise only sampled pages are known, as in libdcm
 * @done: I/O that is done and not yet polled
 */
struct home {
	struct dcm_vm *vm;
	struct dcm_lane *lane;
	u8 *page;
	bool accessed_bits;
	struct dcm_io *done;
	struct dcm_slab_ref slab;
	u64 rng;
};

/* Exits when there is no memory or the budget is too small. */
struct home *home_new(u32 nr_pages, u64 budget_pages, bool accessed_bits);
void home_free(struct home *h);

/* One access; the faults it takes are taken. */
void home_access(struct home *h, u32 page, bool write);

/* Set a tunable by name, or exit. */
void home_tune(struct home *h, const char *name, u64 value);

/* Fault until the page is there, which home_access() found it is not. */
void home_fault(struct home *h, u32 page, u32 flags);

#endif /* BENCH_HOME_H */
