/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loss.h - the extents lost at one time, for one log line
 */
#ifndef DCM_CLIENT_LOSS_H
#define DCM_CLIENT_LOSS_H

#include "../lib/dcm_context.h"
#include "config.h"

#define DCM_LOSS_LIST 12u /* extents that a line names */

/**
 * struct dcm_loss - losses that are not logged yet
 * @nr: number of extents
 * @extent: the lowest of them
 * @pages: pages without another copy
 */
struct dcm_loss {
	u32 nr;
	u32 extent[DCM_LOSS_LIST];
	u64 pages;
};

/* Add an extent; the log line names the lowest %DCM_LOSS_LIST of them. */
void dcm_loss_add(struct dcm_loss *l, u32 extent, u64 pages);

/**
 * dcm_loss_log() - log the losses, and forget them
 * @donor: the donor that was lost; %NULL: @cause says what happened
 * @name: of the VM
 * @on_loss: what an access to a lost page does
 */
void dcm_loss_log(struct dcm_loss *l, const struct dcm_host_donor *donor,
		  const char *cause, const char *name, const char *on_loss);

#endif /* DCM_CLIENT_LOSS_H */
