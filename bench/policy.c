// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * policy.c - misses of LRU-3 and of others on a recorded page trace
 *
 *   policy TRACE PERCENT [name=value ...]
 *
 * LRU-3 is the real core behind a guest that costs nothing (guest.c), three
 * times: elastic blocks as libdcm runs them (use of pages known by sampling),
 * elastic blocks with a kernel's accessed bits, and fixed 4 KiB with nothing
 * fetched ahead. The others
 * are classic.c. Room for all is PERCENT of the trace's footprint; the core
 * takes its reserve of free frames out of that. name=value sets a tunable of
 * the elastic runs.
 *
 * A miss is a fetch from a donor that an access waits for; the first touch of
 * a page is no miss for anyone.
 */
#include "classic.h"
#include "common.h"
#include "guest.h"

struct variant {
	const char *name;
	bool elastic;
	bool accessed_bits;
};

static const struct variant variants[] = {
	{ "lru3_elastic", true, false },
	{ "lru3_elastic_accessed_bits", true, true },
	{ "lru3_4k", false, false },
};

static void lru3_run(const struct trace *t, uint32_t frames,
		     const struct variant *v, char **tune, int nr_tune)
{
	struct guest *g = guest_new(t->nr_pages, frames, v->accessed_bits);
	struct dcm_stats st;

	if (!v->elastic) {
		guest_tune(g, "elastic", 0);
		guest_tune(g, "largest_block", 4096);
		guest_tune(g, "stream", 0); /* which pages stay, alone */
	}
	for (int i = 0; v->elastic && i < nr_tune; i++) {
		char name[64];
		unsigned long long value;

		if (sscanf(tune[i], "%63[^=]=%llu", name, &value) != 2)
			die("policy: '%s' is not name=value", tune[i]);
		guest_tune(g, name, value);
	}
	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t r = t->record[i], p = TRACE_PAGE(r);
		uint8_t s = g->page[p];

		/* Anonymous memory: what is read before it is written is zero. */
		if ((s & GUEST_PRESENT) &&
		    (!(r & TRACE_WRITE) || (s & GUEST_WRITABLE))) {
			g->page[p] = s | GUEST_TOUCHED |
				     (r & TRACE_WRITE ?
					      GUEST_WRITTEN | GUEST_DIRTY :
					      0);
			continue;
		}
		guest_access(g, p, r & TRACE_WRITE);
	}
	dcm_vm_stats(g->vm, &st);
	printf(",\"%s\":{\"misses\":%llu,\"pages\":%llu,\"minor\":%llu,\"faults\":%llu,"
	       "\"written\":%llu,\"stretch\":%llu,\"reduce\":%llu,\"prefetch_seen\":%llu,"
	       "\"prefetch_hit\":%llu}",
	       v->name, (unsigned long long)st.count[DCM_C_FAULT_MISSING],
	       (unsigned long long)st.count[DCM_C_FETCHED_PAGES],
	       (unsigned long long)(st.count[DCM_C_FAULT_MINOR] +
				    st.count[DCM_C_FAULT_CANCEL]),
	       (unsigned long long)st.count[DCM_C_FAULTS],
	       (unsigned long long)st.count[DCM_C_WRITTEN_PAGES],
	       (unsigned long long)st.count[DCM_C_STRETCH],
	       (unsigned long long)st.count[DCM_C_REDUCE],
	       (unsigned long long)st.count[DCM_C_PREFETCH_SEEN],
	       (unsigned long long)st.count[DCM_C_PREFETCH_HIT]);
	guest_free(g);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		die("usage: policy TRACE PERCENT [name=value ...]");
	unsigned long percent = strtoul(argv[2], NULL, 10);
	struct trace t = trace_load(argv[1]);
	uint32_t frames = (uint32_t)((uint64_t)t.footprint * percent / 100);

	if (percent < 1 || percent > 100 || frames < 100)
		die("policy: %lu %% of %u pages is too little", percent,
		    t.footprint);
	printf("{\"records\":%u,\"footprint\":%u,\"frames\":%u", t.nr_records,
	       t.footprint, frames);
	printf(",\"lru\":%llu", (unsigned long long)lru_misses(&t, frames));
	printf(",\"clock\":%llu", (unsigned long long)clock_misses(&t, frames));
	printf(",\"s3fifo\":%llu",
	       (unsigned long long)s3fifo_misses(&t, frames));
	printf(",\"arc\":%llu", (unsigned long long)arc_misses(&t, frames));
	printf(",\"opt\":%llu", (unsigned long long)opt_misses(&t, frames));
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		lru3_run(&t, frames, &variants[i], argv + 3, argc - 3);
	printf("}\n");
	return 0;
}
