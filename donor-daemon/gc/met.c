// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * met.c - objects and types that a trace met and the runtime asks for
 *
 * Opaque objects are needed while the trace runs: they go into a bounded queue,
 * and threads wait when it is full. Weak objects and types are needed after it:
 * the marks are walked as far as there is room in the answer, and nothing is
 * kept.
 */
#include "work.h"

void gc_opaque_add(struct dcm_gc_trace *t, u64 offset, bool wait)
{
	bool full;

	pthread_mutex_lock(&t->lock);
	while (wait && !gc_stopped(t) && t->opaque_n == GC_OPAQUE_MAX) {
		t->opaque_waits++;
		pthread_cond_broadcast(&t->quiet);
		pthread_cond_wait(&t->taken, &t->lock);
		t->opaque_waits--;
	}
	full = t->opaque_n == GC_OPAQUE_MAX;
	if (!full) {
		t->opaque[(t->opaque_first + t->opaque_n++) % GC_OPAQUE_MAX] =
			offset;
		t->activity++;
	}
	pthread_mutex_unlock(&t->lock);
	if (full)
		gc_stop(t, VIRTIO_GC_LIMIT, VIRTIO_GC_NONE);
}

static u32 met_opaque(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	u32 n = 0;

	pthread_mutex_lock(&t->lock);
	for (; n < max && t->opaque_n; n++) {
		out[n] = htole64(t->space->l.address +
				 t->opaque[t->opaque_first]);
		t->opaque_first = (t->opaque_first + 1) % GC_OPAQUE_MAX;
		t->opaque_n--;
	}
	*left = t->opaque_n;
	if (n) {
		t->activity++;
		pthread_cond_broadcast(&t->taken);
	}
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* Continue where the last call stopped, region by region. */
static u32 met_weak(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	struct dcm_gc_space *s = t->space;
	struct gc_object o;
	u32 n = 0;

	for (; t->weak_region < s->nr_regions; t->weak_region++) {
		const struct gc_region *r = &s->regions[t->weak_region];
		const u64 *marks = gc_region_marks(s, t->weak_region);

		while (r->base && t->weak_unit < r->top >> 3) {
			u64 unit = t->weak_unit;
			u64 word = marks[unit >> 6] >> (unit & 63);

			if (!word) {
				t->weak_unit = (unit | 63) + 1;
				continue;
			}
			unit += (u64)__builtin_ctzll(word);
			if (!gc_object_read(s, r->base + unit * 8,
					    r->top - unit * 8, &o) &&
			    o.type->flags & VIRTIO_GC_TYPE_WEAK) {
				if (n == max) {
					t->weak_unit = unit;
					*left = 1;
					return n;
				}
				out[n++] = htole64(s->l.address +
						   ((u64)t->weak_region
						    << s->region_shift) +
					unit * 8);
			}
			t->weak_unit = unit + 1;
		}
		t->weak_unit = 0;
	}
	*left = 0;
	return n;
}

static u32 met_types(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	u32 n = 0;

	*left = 0;
	for (; t->types_next < t->space->nr_types; t->types_next++) {
		bool seen = false;

		for (u32 i = 0; i <= t->threads; i++)
			seen |= t->workers[i].seen[t->types_next];
		if (!seen)
			continue;
		if (n == max) {
			*left = 1;
			break;
		}
		out[n++] = htole64(t->space->types[t->types_next].id);
	}
	return n;
}

u32 dcm_gc_trace_met(struct dcm_gc_space *s, u32 epoch, u32 what, __le64 *out,
		     u32 max, u32 *n, u64 *left)
{
	struct dcm_gc_trace *t = s->trace;

	*n = 0;
	*left = 0;
	if (!t || t->epoch != epoch)
		return VIRTIO_GC_NO_TRACE;
	if (what == VIRTIO_GC_MET_OPAQUE) {
		*n = met_opaque(t, out, max, left);
		return VIRTIO_GC_OK;
	}
	if (!t->finished)
		return VIRTIO_GC_BUSY;
	if (what == VIRTIO_GC_MET_WEAK)
		*n = met_weak(t, out, max, left);
	else if (what == VIRTIO_GC_MET_TYPES)
		*n = met_types(t, out, max, left);
	else
		return VIRTIO_GC_INVALID;
	return VIRTIO_GC_OK;
}
