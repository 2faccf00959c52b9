/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loss.h - the extents lost with one donor, for one log line
 *
 * Under the caller's lock; nothing here sleeps or allocates.
 */
#ifndef DCM_CLIENT_LOSS_H
#define DCM_CLIENT_LOSS_H

#include "../lib/dcm_context.h"
#include "config.h"

#define DCM_LOSS_LIST 12u /* extents that a line names */
#define DCM_LOSS_TEXT (DCM_LOSS_LIST * 11 + 8)

/**
 * struct dcm_loss - losses that are not logged yet
 * @donor: the donor that had the slabs
 * @since_ns: when the last of them was lost
 * @nr: number of extents
 * @extent: the lowest of them
 * @pages: pages without another copy
 */
struct dcm_loss {
	char donor[DCM_NAME_MAX + 1];
	u64 since_ns;
	u32 nr;
	u32 extent[DCM_LOSS_LIST];
	u64 pages;
};

/* Add an extent; the lowest are kept. */
void dcm_loss_add(struct dcm_loss *l, u32 extent, u64 pages);

/* "s 1,2,5": follows "extent" in a line. */
void dcm_loss_text(const struct dcm_loss *l, char text[DCM_LOSS_TEXT]);

#endif /* DCM_CLIENT_LOSS_H */
