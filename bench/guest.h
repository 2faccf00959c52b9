/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * guest.h - a guest that costs nothing, for driving the core alone
 *
 * Every op the core calls is a few memory accesses: pages have no bytes, I/O
 * is done at once, a page table is a byte a page. So only the core is measured.
 */
#ifndef BENCH_GUEST_H
#define BENCH_GUEST_H

#include "core.h"

#define GUEST_PRESENT  0x1
#define GUEST_WRITABLE 0x2
#define GUEST_HIDDEN   0x4	/* left out by install, to sample */
#define GUEST_TOUCHED  0x8	/* since it was installed: the accessed bit */
#define GUEST_DIRTY    0x10	/* since it was installed */
#define GUEST_WRITTEN  0x20	/* ever: it isn't zero */
#define GUEST_SEEN     0x40	/* ever touched */

/**
 * struct guest - the guest, one lane
 * @vm: the core's
 * @lane: the one lane
 * @page: GUEST_* of each
 * @accessed_bits: unmap tells which pages were touched, as a kernel's page
 *	tables do; otherwise only sampled pages are known, as in libdcm
 * @done: I/O that is done and not yet polled
 */
struct guest {
	struct dcm_vm *vm;
	struct dcm_lane *lane;
	u8 *page;
	bool accessed_bits;
	struct dcm_io *done;
	struct dcm_slab_ref slab;
	u64 rng;
};

/* Exits when there is no memory or the budget is too small. */
struct guest *guest_new(u32 nr_pages, u64 budget_pages, bool accessed_bits);
void guest_free(struct guest *g);

/* One access; the faults it takes are taken. */
void guest_access(struct guest *g, u32 page, bool write);

/* Set a tunable by name, or exit. */
void guest_tune(struct guest *g, const char *name, u64 value);

/* Fault until the page is there, which guest_access() found it is not. */
void guest_fault(struct guest *g, u32 page, u32 flags);

#endif /* BENCH_GUEST_H */
