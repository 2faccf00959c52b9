// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * risk.c - count the memory that a VM loses if donors die
 *
 * An extent is lost when all donors die that have slabs of it. So extents are counted
 * by their set of donors. There may be many sets (12 donors make 66 pairs), of which
 * only the first %DCM_RISK_SETS are counted separately. infiniswap-nsdi17 can't lose
 * memory when donors die, as its disk has all of it; dcm-tc18 has one copy.
 *
 * Locking: the caller's.
 */
#include <stdio.h>

#include "risk.h"

static struct dcm_risk_set *set_find(struct dcm_risk *risk, u64 donors)
{
	u32 i;

	for (i = 0; i < risk->nr_sets; i++)
		if (risk->set[i].donors == donors)
			return &risk->set[i];
	if (risk->nr_sets == DCM_RISK_SETS)
		return NULL;
	risk->set[risk->nr_sets].donors = donors;
	return &risk->set[risk->nr_sets++];
}

void dcm_risk_add(struct dcm_risk *risk, u64 donors, bool thin)
{
	struct dcm_risk_set *set;

	if (thin || !(donors & (donors - 1))) {
		for (; donors; donors &= donors - 1)
			risk->alone[__builtin_ctzll(donors)]++;
		return;
	}
	set = set_find(risk, donors);
	if (set)
		set->extents++;
	else
		risk->others++;
}

void dcm_risk_add_lag(struct dcm_risk *risk, u64 memory, u64 pages)
{
	/* if two donors have slabs in memory, one of them may die */
	if (memory && !(memory & (memory - 1)))
		risk->lag_alone[__builtin_ctzll(memory)] += pages;
}

u64 dcm_risk_alone(const struct dcm_risk *risk, u32 donor, u64 extent)
{
	return risk->alone[donor] * extent + risk->lag_alone[donor] * 4096;
}

u32 dcm_risk_exposed(const struct dcm_risk *risk, u32 copies)
{
	u32 exposed = risk->thin, i;

	if (copies == 1)
		return 0;
	for (i = 0; i < copies; i++)
		exposed += risk->with[i];
	return exposed;
}

void dcm_risk_names(u64 donors, const struct dcm_client_status *st, char *buf,
		    size_t len)
{
	size_t at = 0;
	u32 i;

	buf[0] = 0;
	for (i = 0; i < st->nr_donors && at < len; i++)
		if (donors >> st->donor[i].number & 1)
			at += (size_t)snprintf(buf + at, len - at, "%s%s",
					       at ? "+" : "",
					       st->donor[i].name);
}
