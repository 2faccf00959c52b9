// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.c - a pager's figures as one JSON object
 *
 * dcmctl shows from it: budget and direct memory, faults, latencies, block
 * sizes, donors, lanes, address ranges, and every counter by its name. A new
 * figure that is not a counter of the core is added here.
 *
 * Locking: none. Figures are read while they change; each one is right at some
 * instant. Nothing here waits for a lane.
 */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "../client/about_json.h"
#include "../client/risk_json.h"
#include "../core/internal.h"
#include "status.h"

static void json_put(json_t *o, const char *key, u64 v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *hist_json(struct dcm_pager *pg, enum dcm_hist_id id)
{
	json_t *o = json_object();
	struct dcm_hist h;

	dcm_vm_hist(pg->vm, id, &h);
	json_put(o, "p50", dcm_hist_quantile(&h, 5000));
	json_put(o, "p90", dcm_hist_quantile(&h, 9000));
	json_put(o, "p99", dcm_hist_quantile(&h, 9900));
	json_put(o, "p999", dcm_hist_quantile(&h, 9990));
	json_put(o, "max", dcm_hist_quantile(&h, 10000));
	json_put(o, "count", dcm_hist_count(&h));
	return o;
}

static json_t *buckets_json(const struct dcm_hist *h)
{
	json_t *a = json_array();
	unsigned int i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		if (h->bucket[i])
			json_array_append_new(a,
					      json_pack("[I,I]",
							(json_int_t)
								dcm_hist_floor(
									i),
							(json_int_t)
								h->bucket[i]));
	return a;
}

/* dcm_vm_away() as a list of non-empty buckets: [pages evicted since, fetches]. */
static json_t *away_json(struct dcm_pager *pg)
{
	struct dcm_hist h;

	dcm_vm_away(pg->vm, &h);
	return buckets_json(&h);
}

/* dcm_vm_reuse(); distances as [other pages touched since the last touch, touches]. */
static json_t *reuse_json(struct dcm_pager *pg)
{
	json_t *o = json_object();
	struct dcm_reuse_stats st;

	dcm_vm_reuse(pg->vm, &st);
	json_put(o, "watched", st.watched);
	json_put(o, "pages", st.pages);
	json_put(o, "blind", st.blind);
	json_put(o, "unknown", st.unknown);
	json_put(o, "rested_ms", st.rested_ms);
	json_object_set_new(o, "touches", buckets_json(&st.distance));
	return o;
}

static json_t *faults_json(const u64 *c)
{
	json_t *o = json_object();

	json_put(o, "total", c[DCM_C_FAULTS]);
	json_put(o, "missing", c[DCM_C_FAULT_MISSING]);
	json_put(o, "minor", c[DCM_C_FAULT_MINOR] + c[DCM_C_FAULT_CANCEL]);
	json_put(o, "wp", c[DCM_C_FAULT_WP]);
	json_put(o, "zero", c[DCM_C_FAULT_ZERO]);
	json_put(o, "busy", c[DCM_C_FAULT_BUSY]);
	json_put(o, "stalled", c[DCM_C_FAULT_STALL]);
	json_put(o, "sample", c[DCM_C_FAULT_SAMPLE]);
	json_put(o, "spurious", c[DCM_C_FAULT_SPURIOUS]);
	json_put(o, "lost", c[DCM_C_FAULT_LOST]);
	return o;
}

static json_t *mix_json(const u64 *c)
{
	static const char *const name[] = { "4K", "8K", "16K", "32K", "64K" };
	json_t *o = json_object();
	unsigned int i;

	for (i = 0; i <= DCM_ORDER_MAX; i++)
		json_put(o, name[i], c[DCM_C_MIX_4K + i]);
	return o;
}

static json_t *prefetch_json(const u64 *c)
{
	json_t *o = json_object();

	json_put(o, "fetched", c[DCM_C_PREFETCHED]);
	json_put(o, "observed", c[DCM_C_PREFETCH_SEEN]);
	json_put(o, "touched", c[DCM_C_PREFETCH_HIT]);
	return o;
}

static json_t *donors_json(struct dcm_pager *pg,
			   const struct dcm_client_status *st,
			   const struct dcm_risk *risk)
{
	u64 extent = dcm_client_extent_bytes(pg->client, 0);
	json_t *a = json_array();
	u32 i;

	for (i = 0; i < st->nr_donors; i++) {
		const struct dcm_client_donor_status *d = &st->donor[i];
		json_t *o = json_object();

		json_object_set_new(o, "name", json_string(d->name));
		json_object_set_new(o, "address", json_string(d->address));
		json_object_set_new(o, "transport",
				    json_string(d->transport ? d->transport :
							       ""));
		json_object_set_new(o, "medium",
				    json_string(d->file ? "file" : "memory"));
		json_object_set_new(o, "state",
				    json_string(dcm_client_donor_state_name(
					    d->state)));
		json_object_set_new(o, "leaving", json_boolean(d->leaving));
		json_put(o, "slabs", d->slabs);
		json_put(o, "bytes", d->bytes);
		json_put(o, "orphans", d->orphans);
		json_put(o, "orphans_waiting", d->orphans_waiting);
		json_put(o, "alone_bytes",
			 dcm_risk_alone(risk, d->number, extent));
		json_put(o, "wrong_pages",
			 __atomic_load_n(&pg->sums.wrong[d->number],
					 __ATOMIC_RELAXED));
		json_put(o, "rtt_ns", d->rtt_ns);
		json_put(o, "reads", d->reads);
		json_put(o, "writes", d->writes);
		json_put(o, "slabs_free", d->slabs_free);
		json_put(o, "slabs_total", d->slabs_total);
		json_put(o, "slabs_used", d->slabs_used);
		dcm_about_put(o, d);
		json_put(o, "silent_ms", d->silent_ms);
		json_put(o, "patience_ms", d->patience_ms);
		json_put(o, "slab_bytes", extent);
		json_object_set_new(o, "why", json_string(d->why));
		json_array_append_new(a, o);
	}
	return a;
}

/* Add the donors' figures to @o. */
static void donors_put(json_t *o, struct dcm_pager *pg)
{
	struct dcm_client_status *st = calloc(1, sizeof(*st));
	struct dcm_risk risk;

	if (!st)
		return;
	dcm_client_status(pg->client, st);
	dcm_slab_worker_risk(&pg->slabs, &risk);
	json_object_set_new(o, "donors", donors_json(pg, st, &risk));
	json_object_set_new(o, "together",
			    dcm_risk_together(&risk, st,
					      dcm_client_extent_bytes(pg->client,
								      0)));
	json_put(o, "waiting", st->wanted);
	json_put(o, "lag_bytes", risk.lag_pages << DCM_PAGE_SHIFT);
	json_put(o, "near_bytes",
		 st->near * dcm_client_extent_bytes(pg->client, 0));
	free(st);
}

static u32 pager_copies(const struct dcm_pager *pg)
{
	return dcm_redundancies[READ_ONCE(pg->cfg.redundancy)].copies;
}

/* Has the extent fewer whole copies than it should have? */
static bool extent_exposed(const struct dcm_pager *pg,
			   const struct dcm_extent *e)
{
	return READ_ONCE(e->thin) ||
	       hweight16(READ_ONCE(e->open)) < pager_copies(pg);
}

/*
 * The extents with slabs as JSON; also counts indirect pages, which only these can
 * have, and exposed extents. Extents that are being filled are not counted as exposed
 * here: the slab worker counts those.
 */
static json_t *extents_json(struct dcm_pager *pg, u64 *indirect, u32 *exposed)
{
	struct dcm_vm *vm = pg->vm;
	json_t *o = json_object();
	u32 i, mapped = 0, moving = 0;

	*indirect = 0;
	*exposed = 0;
	for (i = 0; i < vm->nr_extents; i++) {
		struct dcm_extent *e = &vm->extent[i];
		u64 gfn = (u64)i << vm->extent_shift, end;
		unsigned int slabs = 0, s;

		for (s = 0; s < DCM_SLOTS; s++)
			slabs += !!READ_ONCE(e->slot[s].slab);
		mapped += slabs > 0;
		moving += slabs > pager_copies(pg);
		if (!slabs)
			continue;
		*exposed += pager_copies(pg) > 1 && extent_exposed(pg, e);
		end = min(gfn + vm->extent_pages, (u64)vm->nr_pages);
		for (; gfn < end; gfn++) {
			u32 w = pd_word(pd_of(vm, gfn));
			/* the state is in the head, other flags are in the page */
			u64 head = gfn & ~((1ull << pd_order(w)) - 1);

			*indirect += (w & PD_AT) &&
				     pd_state(pd_word(pd_of(vm, head))) ==
					     DCM_NOTDIRECT;
		}
	}
	json_put(o, "total", vm->nr_extents);
	json_put(o, "mapped", mapped);
	json_put(o, "moving", moving);
	json_put(o, "lost", READ_ONCE(pg->slabs.nr_lost));
	return o;
}

static json_t *tunable_values(struct dcm_pager *pg)
{
	json_t *o = json_object();
	unsigned int i;

	for (i = 0; i < DCM_T_NR; i++)
		json_put(o, dcm_tunables[i].name, dcm_tunable_get(pg->vm, i));
	return o;
}

static json_t *lanes_json(struct dcm_pager *pg)
{
	json_t *a = json_array();
	u32 i;

	for (i = 0; i < pg->nr_fault; i++) {
		struct dcm_pg_lane *l = &pg->lane[i];
		json_t *o = json_object();

		json_put(o, "messages", READ_ONCE(l->messages));
		json_put(o, "moves", READ_ONCE(l->migrations));
		json_put(o, "huge", READ_ONCE(l->huge));
		json_put(o, "spin_hits", READ_ONCE(l->spin_hits));
		json_put(o, "yielded", READ_ONCE(l->yield.served));
		json_put(o, "regrets", READ_ONCE(l->yield.regrets));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *range_json(const char *what, u64 from, u64 bytes)
{
	return json_pack("{s:s,s:I,s:I}", "what", what, "from",
			 (json_int_t)from, "to", (json_int_t)(from + bytes));
}

/* Address ranges of paged memory, for tests that measure it in /proc/PID/smaps. */
static json_t *ranges_json(struct dcm_pager *pg)
{
	json_t *a = json_array();
	u64 va = 0, len, gfn;

	json_array_append_new(a, range_json("frames", pg->frames.base,
					    pg->frames.bytes));
	while ((va = dcm_guest_next(&pg->guest, va, U64_MAX, &len, &gfn)),
	       len) {
		json_array_append_new(a, range_json("guest", va, len));
		va += len;
	}
	return a;
}

json_t *dcm_status_json(struct dcm_pager *pg)
{
	struct dcm_stats *st = calloc(1, sizeof(*st));
	json_t *o = json_object(), *lat;
	u64 indirect, cached;
	const u64 *c;
	u32 i, exposed;

	if (!st)
		return o;
	dcm_vm_stats(pg->vm, st);
	c = st->count;
	cached = (u64)max(READ_ONCE(pg->frames.cached), (s64)0);
	json_object_set_new(o, "ok", json_true());
	json_object_set_new(o, "name", json_string(pg->cfg.name));
	json_put(o, "pid", (u64)getpid());
	json_object_set_new(o, "version", json_string(DCM_VERSION));
	json_object_set_new(o, "mode",
			    json_string(pg->cfg.mode == DCM_MODE_QEMU ?
						"qemu" :
						"program"));
	json_object_set_new(o, "uptime_s",
			    json_real((double)(dcm_now_ns() - pg->start_ns) /
				      1e9));
	json_put(o, "budget_bytes", READ_ONCE(pg->budget_bytes));
	json_put(o, "min_budget_bytes", dcm_pager_min_budget(pg));
	json_put(o, "direct_bytes", (st->direct + cached) << DCM_PAGE_SHIFT);
	json_object_set_new(o, "extents",
			    extents_json(pg, &indirect, &exposed));
	json_put(o, "indirect_bytes", indirect << DCM_PAGE_SHIFT);
	json_put(o, "size_bytes", (u64)pg->vm->nr_pages << DCM_PAGE_SHIFT);
	json_put(o, "pinned_bytes",
		 READ_ONCE(pg->guest.pinned) << DCM_PAGE_SHIFT);
	json_put(o, "in_flight_bytes", st->in_writeback << DCM_PAGE_SHIFT);
	json_put(o, "ahead_bytes", st->ahead << DCM_PAGE_SHIFT);
	json_put(o, "in_flight_max_bytes", st->in_flight_max << DCM_PAGE_SHIFT);
	json_object_set_new(o, "faults", faults_json(c));
	json_put(o, "fetches", c[DCM_C_FETCHES]);
	json_put(o, "fetched_bytes", c[DCM_C_FETCHED_PAGES] << DCM_PAGE_SHIFT);
	json_put(o, "writebacks", c[DCM_C_WRITEBACKS]);
	json_put(o, "written_bytes", c[DCM_C_WRITTEN_PAGES] << DCM_PAGE_SHIFT);
	json_put(o, "cancelled", c[DCM_C_CANCELLED]);
	json_put(o, "clean_drops", c[DCM_C_CLEAN_DROPS]);
	json_put(o, "zero_pages", c[DCM_C_ZERO_PAGES]);
	json_put(o, "stretch", c[DCM_C_STRETCH]);
	json_put(o, "reduce", c[DCM_C_REDUCE]);
	json_object_set_new(o, "block_mix", mix_json(c));
	json_object_set_new(o, "prefetch", prefetch_json(c));
	lat = json_object();
	for (i = 0; i < DCM_H_NR; i++)
		json_object_set_new(lat, dcm_hist_names[i], hist_json(pg, i));
	json_object_set_new(o, "latency_ns", lat);
	json_put(o, "evicted_pages", st->evicted);
	json_object_set_new(o, "away", away_json(pg));
	json_object_set_new(o, "reuse", reuse_json(pg));
	json_put(o, "lost_pages", c[DCM_C_LOST_PAGES]);
	donors_put(o, pg);
	json_put(o, "copies", pager_copies(pg));
	json_object_set_new(o, "redundancy",
			    json_string(
				    dcm_redundancies[READ_ONCE(
							     pg->cfg.redundancy)]
					    .name));
	json_object_set_new(o, "seal", json_boolean(pg->cfg.seal));
	json_put(o, "metadata_bytes", st->metadata);
	json_put(o, "exposed_bytes",
		 (u64)exposed * pg->vm->extent_pages << DCM_PAGE_SHIFT);
	json_put(o, "filling", READ_ONCE(pg->slabs.nr_filling));
	json_object_set_new(o, "tunables", tunable_values(pg));
	json_object_set_new(o, "lanes", lanes_json(pg));
	json_object_set_new(o, "ranges", ranges_json(pg));
	lat = json_object();
	for (i = 0; i < DCM_C_NR; i++)
		json_put(lat, dcm_counter_names[i], c[i]);
	json_object_set_new(o, "counters", lat);
	free(st);
	return o;
}

char *dcm_status_text(struct dcm_pager *pg)
{
	json_t *o = dcm_status_json(pg);
	char *s = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	return s;
}
