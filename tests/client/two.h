/* SPDX-License-Identifier: GPL-2.0-or-later */
/* two.h - two real donors, and a host that has both, for tests */
#ifndef TEST_TWO_H
#define TEST_TWO_H

#include "donor.h"
#include "host.h"

struct two {
	struct donor d[2];
	struct host h;
};

/*
 * Donors "a" and "b", and a host connected to both: over shm with @local, else
 * over TCP with TLS. @patience_ms 0: the client's own.
 */
void two_start_cfg(struct two *t, bool local, u32 patience_ms);
void two_start(struct two *t, bool local);
/* Slabs for extents [0, @nr), version 1 in every page. */
void two_fill(struct two *t, u32 nr);
/* Of four extents: those that have a slab of @to too are moved there. */
void two_move(struct two *t, u32 from, u32 to);
void two_end(struct two *t);

#endif /* TEST_TWO_H */
