// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rebuild_pace.c - how fast copies that were lost are made again
 *
 * A rebuild that is slow leaves memory exposed to a second donor's death for
 * longer; one that is fast makes the guest's faults wait behind its READs and
 * WRITEs. So the rate follows the faults. Each quarter of a second the 99th percentile
 * of their latency is compared with its value before the rebuild. If it is more than
 * twice as high, the rate is halved, down to 1/64 of the limit; but not at the first
 * such look in a row, as a short stop of a busy host makes a few faults slow. Else the
 * rate is doubled, up to the limit that the operator has set.
 *
 *	before a rebuild     the rebuild
 *	calm = p99     |  limit, limit, limit/2, limit/4, limit/2, ...
 *
 * A token bucket keeps to the rate. It holds no more than 20 ms' worth of bytes: many
 * READs together would hold up the faults behind them, which shows in the 99th
 * percentile. infiniswap-nsdi17 rebuilds nothing: it falls back on the disk.
 *
 * Locking: none, one thread uses a pace.
 */
#include <string.h>

#include "rebuild_pace.h"

#define SECOND_NS (1000ull * 1000 * 1000)
#define LOOK_NS (SECOND_NS / 4)
#define BEGIN_NS (3 * SECOND_NS) /* not called for so long: a rebuild begins */
#define BURSTS 50 /* the bucket holds 1/50 of a second */
#define SLOWEST 64 /* the lowest rate is 1/64 of the limit */
#define SAMPLES 100 /* with fewer faults the 99th percentile tells nothing */
#define WORSE 2

bool dcm_rebuild_pace_looks(const struct dcm_rebuild_pace *p, u64 now)
{
	return p->limit && now - p->look_ns >= LOOK_NS;
}

void dcm_rebuild_pace_look(struct dcm_rebuild_pace *p, u64 now,
			   const struct dcm_hist *faults)
{
	struct dcm_hist since;
	bool begins = now - p->look_ns >= BEGIN_NS;
	u64 p99 = 0;
	u32 i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		since.bucket[i] = faults->bucket[i] - p->faults.bucket[i];
	p->faults = *faults;
	p->look_ns = now;
	if (dcm_hist_count(&since) >= SAMPLES)
		p99 = dcm_hist_quantile(&since, 9900);
	if (begins) {
		p->calm_ns = p99;
		p->rate = p->limit;
		p->worse = false;
	} else if (p->calm_ns && p99 > WORSE * p->calm_ns) {
		if (p->worse)
			p->rate = max(p->rate / 2, p->limit / SLOWEST);
		p->worse = true;
	} else {
		p->rate = min(p->rate * 2, p->limit);
		p->worse = false;
	}
}

int dcm_rebuild_pace_wait(struct dcm_rebuild_pace *p, u64 now)
{
	u64 most = p->rate / BURSTS, ns = min(now - p->at_ns, SECOND_NS);

	if (!p->limit)
		return 0;
	p->at_ns = now;
	p->left = min(p->left + (s64)(p->rate * (ns / 1000) / 1000000),
		      (s64)most);
	if (p->left > 0)
		return 0;
	return (int)min((u64)-p->left * 1000 / max(p->rate, (u64)1) + 1,
			(u64)1000);
}

void dcm_rebuild_pace_copied(struct dcm_rebuild_pace *p, u64 bytes, bool hurry)
{
	if (!hurry)
		p->left -= (s64)(bytes - p->copied);
	p->copied = bytes;
}
