// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * loss.c - the extents lost at one time, for one log line
 *
 * A donor's slabs are lost one after the other; an operator wants one line for
 * the donor. Losses are collected here until no more follow.
 */
#include <stdio.h>
#include <string.h>

#include "loss.h"
#include "../lib/log.h"

#define TEXT_MAX (DCM_LOSS_LIST * 11 + 8)

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

/* "1,2,5", and ",..." if there are more. */
static void extents_text(const struct dcm_loss *l, char text[TEXT_MAX])
{
	size_t at = 0;
	u32 i;

	for (i = 0; i < min(l->nr, DCM_LOSS_LIST); i++)
		at += (size_t)snprintf(text + at, TEXT_MAX - at, "%s%u",
				       i ? "," : "", l->extent[i]);
	if (l->nr > DCM_LOSS_LIST)
		snprintf(text + at, TEXT_MAX - at, ",...");
}

void dcm_loss_log(struct dcm_loss *l, const struct dcm_host_donor *donor,
		  const char *cause, const char *name, const char *on_loss)
{
	char extents[TEXT_MAX], what[DCM_NAME_MAX + DCM_ADDRESS_MAX + 32];

	extents_text(l, extents);
	if (donor)
		snprintf(what, sizeof(what), "donor %s (%s) lost", donor->name,
			 donor->address);
	dcm_log(DCM_LOG_ERR,
		"%s: %llu KiB of %s in extent%s %s had no other copy: accesses to it %s",
		donor ? what : cause, (unsigned long long)l->pages * 4, name,
		l->nr == 1 ? "" : "s", extents, on_loss);
	l->nr = 0;
	l->pages = 0;
}
