/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hist.h - histograms of latencies, and of counts of pages
 *
 * Each histogram is written by one thread, so dcm_hist_add() costs no lock and no
 * shared cache line. The sum of several histograms is a histogram too.
 */
#ifndef DCM_HIST_H
#define DCM_HIST_H

#include "../lib/dcm_context.h"

/* Log-linear: eight buckets an octave, 12 % wide, 1 ns to over an hour. */
#define DCM_HIST_SUB 8
#define DCM_HIST_BUCKETS (42 * DCM_HIST_SUB)

struct dcm_hist {
	u64 bucket[DCM_HIST_BUCKETS];
};

/* Add @n samples of a value. */
static inline void dcm_hist_add_n(struct dcm_hist *h, u64 value, u64 n)
{
	unsigned int i = 0;

	if (value >= DCM_HIST_SUB) {
		unsigned int oct = (unsigned int)ilog2(value);

		i = (oct - 2) * DCM_HIST_SUB +
		    (unsigned int)((value >> (oct - 3)) & (DCM_HIST_SUB - 1));
		if (i >= DCM_HIST_BUCKETS)
			i = DCM_HIST_BUCKETS - 1;
	} else {
		i = (unsigned int)value;
	}
	WRITE_ONCE(h->bucket[i], h->bucket[i] + n);
}

static inline void dcm_hist_add(struct dcm_hist *h, u64 ns)
{
	dcm_hist_add_n(h, ns, 1);
}

/** dcm_hist_floor() - the smallest value that is counted in bucket @i */
u64 dcm_hist_floor(unsigned int i);

/**
 * dcm_hist_quantile() - value below which a share of the samples lie
 * @h: histogram
 * @bp: share in basis points, 5000 is the median, 10000 the largest sample
 *
 * Return: lower edge of the bucket the quantile falls in, in ns; 0 if empty.
 */
u64 dcm_hist_quantile(const struct dcm_hist *h, unsigned int bp);

/** dcm_hist_count() - number of samples in @h */
u64 dcm_hist_count(const struct dcm_hist *h);

#endif /* DCM_HIST_H */
