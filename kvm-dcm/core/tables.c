// SPDX-License-Identifier: GPL-2.0-only
/*
 * tables.c - the names of states, tunables and counters; histograms
 *
 * Each table is made from the one list in its header, so that an enum, its
 * text and its documentation can't drift apart.
 */
#include "core.h"

const char *const dcm_state_names[DCM_NR_STATES] = {
	[DCM_NOTDIRECT] = "NotDirect", [DCM_ACTIVE] = "Active",
	[DCM_PROACTIVE] = "Proactive", [DCM_INACTIVE] = "Inactive",
	[DCM_WRITEBACK] = "Writeback",
};

const struct dcm_tunable dcm_tunables[DCM_T_NR] = {
#define X(id, unit, def, lo, hi, why) \
	[DCM_T_##id] = { #id, unit, def, lo, hi, why },
	DCM_TUNABLES(X)
#undef X
};

const char *const dcm_counter_names[DCM_C_NR] = {
#define X(id, text) [DCM_C_##id] = #id,
	DCM_COUNTERS(X)
#undef X
};

const char *const dcm_counter_texts[DCM_C_NR] = {
#define X(id, text) [DCM_C_##id] = text,
	DCM_COUNTERS(X)
#undef X
};

const char *const dcm_hist_names[DCM_H_NR] = {
	[DCM_H_FAULT] = "fault",
	[DCM_H_FETCH] = "fetch",
	[DCM_H_WRITEBACK] = "writeback",
};

u64 dcm_hist_count(const struct dcm_hist *h)
{
	u64 n = 0;
	unsigned int i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		n += READ_ONCE(h->bucket[i]);
	return n;
}

static u64 bucket_floor(unsigned int i)
{
	unsigned int oct = i / DCM_HIST_SUB + 2;

	if (i < DCM_HIST_SUB)
		return i;
	return (1ull << oct) + ((u64)(i % DCM_HIST_SUB) << (oct - 3));
}

u64 dcm_hist_quantile(const struct dcm_hist *h, unsigned int bp)
{
	u64 total = dcm_hist_count(h);
	u64 rank, seen = 0;
	unsigned int i;

	if (!total)
		return 0;
	/* in steps that can't overflow: total * bp would at 2^50 samples */
	rank = total / 10000 * bp + total % 10000 * bp / 10000;
	for (i = 0; i < DCM_HIST_BUCKETS; i++) {
		seen += READ_ONCE(h->bucket[i]);
		if (seen > rank)
			return bucket_floor(i);
	}
	return bucket_floor(DCM_HIST_BUCKETS - 1);
}
