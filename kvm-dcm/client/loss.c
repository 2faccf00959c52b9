// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * loss.c - the extents lost with one donor, for one log line
 *
 * A donor's slabs are lost one after the other; an operator wants one line for
 * the donor. libdcm and dcm-hostd collect losses here until no more follow.
 */
#include <stdio.h>
#include <string.h>

#include "loss.h"

void dcm_loss_add(struct dcm_loss *l, u32 extent, u64 pages)
{
	u32 n = min(l->nr, DCM_LOSS_LIST), i = n;

	while (i && l->extent[i - 1] > extent)
		i--;
	if (i < DCM_LOSS_LIST) {
		memmove(&l->extent[i + 1], &l->extent[i],
			(min(n, DCM_LOSS_LIST - 1) - i) * sizeof(u32));
		l->extent[i] = extent;
	}
	l->nr++;
	l->pages += pages;
}

void dcm_loss_text(const struct dcm_loss *l, char text[DCM_LOSS_TEXT])
{
	size_t at = (size_t)snprintf(text, DCM_LOSS_TEXT, "%s ",
				     l->nr == 1 ? "" : "s");
	u32 i;

	for (i = 0; i < min(l->nr, DCM_LOSS_LIST); i++)
		at += (size_t)snprintf(text + at, DCM_LOSS_TEXT - at, "%s%u",
				       i ? "," : "", l->extent[i]);
	if (l->nr > DCM_LOSS_LIST)
		snprintf(text + at, DCM_LOSS_TEXT - at, ",...");
}
