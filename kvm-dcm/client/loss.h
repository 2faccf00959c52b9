/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loss.h - extents lost with one donor, gathered into one line
 *
 * The caller's lock; nothing here sleeps or allocates.
 */
#ifndef DCM_CLIENT_LOSS_H
#define DCM_CLIENT_LOSS_H

#include "../lib/dcm_context.h"
#include "config.h"

#define DCM_LOSS_LIST 12u /* extents that a line names */
#define DCM_LOSS_TEXT (DCM_LOSS_LIST * 11 + 8)

/**
 * struct dcm_loss - what was lost and not said yet
 * @donor: whose slabs they were
 * @since_ns: when the last of them was lost
 * @nr: extents
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

/* One more extent; the lowest are kept. */
void dcm_loss_add(struct dcm_loss *l, u32 extent, u64 pages);

/* "s 1,2,5": what follows "extent" in a line. */
void dcm_loss_text(const struct dcm_loss *l, char text[DCM_LOSS_TEXT]);

#endif /* DCM_CLIENT_LOSS_H */
