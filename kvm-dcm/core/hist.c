// SPDX-License-Identifier: GPL-2.0-only
/*
 * hist.c - read a histogram: its count, and quantiles
 *
 * Buckets are log-linear, so a quantile is exact to an eighth of its octave, at
 * any latency. Readers may look while the writer adds: a sample is seen or not.
 */
#include "hist.h"

u64 dcm_hist_count(const struct dcm_hist *h)
{
	u64 n = 0;
	unsigned int i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		n += READ_ONCE(h->bucket[i]);
	return n;
}

u64 dcm_hist_floor(unsigned int i)
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
	rank = min(total / 10000 * bp + total % 10000 * bp / 10000, total - 1);
	for (i = 0; i < DCM_HIST_BUCKETS; i++) {
		seen += READ_ONCE(h->bucket[i]);
		if (seen > rank)
			return dcm_hist_floor(i);
	}
	return dcm_hist_floor(DCM_HIST_BUCKETS - 1);
}
