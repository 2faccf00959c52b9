/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_pager.h - a pager that wants extents and uses slabs, as an input says */
#ifndef FUZZ_FAKE_PAGER_H
#define FUZZ_FAKE_PAGER_H

#include "../../kvm-dcm/client/client.h"
#include "input.h"

#define EXTENTS 6u
#define LANES 2u

/* The control plane of a pager that has asked for nothing yet. */
struct dcm_client *pager_start(const struct dcm_client_config *cfg);

/* From now on extents may have several slabs, each of another donor. */
void pager_many(void);

/* An extent is asked for. */
void pager_want(u32 how);
/* A slab is released, said to be stale, written to, or another one asked for. */
void pager_slab_step(struct in *in);
/* A lane posts operations, and polls. */
void pager_lane_step(struct in *in);

/* Check the control plane's state against the slabs that the pager asked for and has. */
void pager_check(void);

/* All slabs are given up, and operations polled. */
void pager_release(void);
/* No operation is on its way. */
bool pager_idle(void);

#endif /* FUZZ_FAKE_PAGER_H */
