// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * met.c - objects and types that a trace met, for TRACE_MET, CLEAR and ASK
 *
 * Opaque objects are needed while the trace runs: they go into a bounded queue.
 * Threads wait while many are in it, until the runtime takes some. Those that messages
 * bring, which must not wait, have more room: one for each 3 KiB of the space, as a
 * program may have parked very many threads. Opaque objects that are a whole region
 * have a flag in the table of regions instead.
 *
 * Weak objects are few among many, and may be asked for again and again: a bit
 * is kept for each word of marks with one (0.02 % of the space). The marked
 * objects of these words are read anew each time, as far as there is room in the
 * answer, and for some milliseconds at most.
 */
#include "work.h"

/* the work of one request, at most; a word without bits costs 1 */
#define GC_WEAK_LOOK	(1u << 20)
#define GC_BLOCK_LOOK	63u	/* a word of marks costs this much more */

void gc_opaque_add(struct dcm_gc_trace *t, u64 offset, bool wait)
{
	const u32 most = gc_opaque_max(t->space);
	bool full;

	pthread_mutex_lock(&t->lock);
	while (wait && !gc_stopped(t) && t->opaque_n >= GC_OPAQUE_WAIT) {
		t->opaque_waits++;
		pthread_cond_broadcast(&t->quiet);
		pthread_cond_wait(&t->taken, &t->lock);
		t->opaque_waits--;
	}
	full = t->opaque_n == most;
	if (!full) {
		t->opaque[((u64)t->opaque_first + t->opaque_n++) % most] =
			offset;
		t->activity++;
	}
	pthread_mutex_unlock(&t->lock);
	if (full)
		gc_stop(t, VIRTIO_GC_LIMIT, VIRTIO_GC_NONE);
}

void gc_weak_add(struct dcm_gc_trace *t, u64 unit)
{
	u64 *word = &t->weak[unit >> 12], bit = 1ull << (unit >> 6 & 63);

	if (!(READ_ONCE(*word) & bit))
		__atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

void gc_whole_say(struct dcm_gc_trace *t, u32 region)
{
	pthread_mutex_lock(&t->lock);
	t->space->regions[region].say = true;
	t->say_n++;
	t->activity++;
	pthread_mutex_unlock(&t->lock);
}

/* Take the objects of regions that must be answered (@say), as far as there is room. */
static u32 met_whole(struct dcm_gc_trace *t, __le64 *out, u32 max)
{
	struct dcm_gc_space *s = t->space;
	u32 n = 0;

	for (; n < max && t->say_n; t->say_next++) {
		u32 region = t->say_next % s->nr_regions;

		if (!s->regions[region].say)
			continue;
		s->regions[region].say = false;
		t->say_n--;
		out[n++] = htole64(s->l.address +
				   ((u64)region << s->region_shift));
	}
	return n;
}

static u32 met_opaque(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	const u32 most = gc_opaque_max(t->space);
	u32 n = 0;

	pthread_mutex_lock(&t->lock);
	for (; n < max && t->opaque_n; n++) {
		out[n] = htole64(t->space->l.address +
				 t->opaque[t->opaque_first]);
		t->opaque_first = (t->opaque_first + 1) % most;
		t->opaque_n--;
	}
	n += met_whole(t, out + n, max - n);
	*left = t->opaque_n + t->say_n;
	if (n) {
		t->activity++;
		pthread_cond_broadcast(&t->taken);
	}
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* Read the marked object at @unit; false: it is none that is weak. */
static bool weak_read(const struct dcm_gc_space *s, u64 unit,
		      struct gc_object *o)
{
	u64 offset = unit << 3, in = offset & (s->l.region_bytes - 1);
	const struct gc_region *r = &s->regions[offset >> s->region_shift];

	return r->base && in < r->top && !gc_region_whole(r) &&
	       !gc_object_read(s, r->base + in, r->top - in, o) &&
	       o->type->flags & VIRTIO_GC_TYPE_WEAK;
}

/*
 * Go on to the next weak object, from *@unit on. False: there is none, or this
 * request has used up its @look, and *@unit is where the next one goes on.
 */
static bool weak_find(const struct dcm_gc_trace *t, u64 *unit, u32 *look,
		      struct gc_object *o)
{
	const struct dcm_gc_space *s = t->space;
	const u64 end = s->l.bytes >> 3;

	while (*unit < end && *look) {
		u64 word = *unit >> 6, marks;
		u64 blocks = READ_ONCE(t->weak[word >> 6]) >> (word & 63);

		--*look;
		if (!(blocks & 1)) {
			word += blocks ? (u64)__builtin_ctzll(blocks) :
					 64 - (word & 63);
			*unit = word << 6;
			continue;
		}
		marks = READ_ONCE(s->marks[word]) >> (*unit & 63);
		for (; marks; marks >>= 1, ++*unit)
			if (marks & 1 && weak_read(s, *unit, o))
				return true;
		*unit = (word + 1) << 6;
		*look -= min(*look, GC_BLOCK_LOOK);
	}
	return false;
}

/* Take weak objects, from where the last call stopped. */
static u32 met_weak(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	struct dcm_gc_space *s = t->space;
	u32 n = 0, look = GC_WEAK_LOOK;
	struct gc_object o;

	while (weak_find(t, &t->weak_next, &look, &o) && n < max)
		out[n++] = htole64(s->l.address + (t->weak_next++ << 3));
	*left = t->weak_next < s->l.bytes >> 3;
	return n;
}

/* The types of word @i of the bitmaps that a thread has seen and no answer has had. */
static u64 types_new(const struct dcm_gc_trace *t, u32 i)
{
	u64 seen = 0;

	for (u32 w = 0; w <= t->threads; w++)
		seen |= READ_ONCE(t->workers[w].seen[i]);
	return seen & ~t->types_said[i];
}

static u32 met_types(struct dcm_gc_trace *t, __le64 *out, u32 max, u64 *left)
{
	const struct gc_types *types = &t->space->types;
	u32 n = 0;

	*left = 0;
	for (u32 i = 0; i * 64 < types->nr; i++) {
		for (u64 w = types_new(t, i); w; w &= w - 1) {
			u32 bit = (u32)__builtin_ctzll(w);

			if (n == max) {
				*left = 1;
				return n;
			}
			t->types_said[i] |= 1ull << bit;
			out[n++] = htole64(gc_type_at(types, i * 64 + bit)->id);
		}
	}
	return n;
}

/* Is this donor quiet: has it nothing to do until a message brings more? */
static bool trace_quiet(struct dcm_gc_trace *t)
{
	bool quiet;

	pthread_mutex_lock(&t->lock);
	quiet = t->idle == t->threads && !t->inject_n &&
		!__atomic_load_n(&t->avail, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&t->lock);
	return quiet;
}

u32 dcm_gc_trace_met(struct dcm_gc_space *s, u32 epoch, u32 what, __le64 *out,
		     u32 max, u32 *n, u64 *left)
{
	struct dcm_gc_trace *t = s->trace;

	*n = 0;
	*left = 0;
	/* after TYPES_REPLACE the records of types and weak objects are invalid */
	if (!t || t->epoch != epoch || t->types_gone)
		return VIRTIO_GC_NO_TRACE;
	if (what == VIRTIO_GC_MET_OPAQUE) {
		*n = met_opaque(t, out, max, left);
		return VIRTIO_GC_OK;
	}
	if (!t->finished && (what != VIRTIO_GC_MET_TYPES || !trace_quiet(t)))
		return VIRTIO_GC_BUSY;
	if (what == VIRTIO_GC_MET_WEAK)
		*n = met_weak(t, out, max, left);
	else if (what == VIRTIO_GC_MET_TYPES)
		*n = met_types(t, out, max, left);
	else
		return VIRTIO_GC_INVALID;
	return VIRTIO_GC_OK;
}

u32 dcm_gc_trace_ask(struct dcm_gc_space *s, u32 epoch, const __le64 *addresses,
		     u32 n, u8 *bits)
{
	if (!s->trace || s->trace->epoch != epoch)
		return VIRTIO_GC_NO_TRACE;
	memset(bits, 0, n / 8 + (n % 8 != 0));
	for (u32 i = 0; i < n; i++) {
		u64 offset = le64toh(addresses[i]) - s->l.address;
		const struct gc_region *r;
		u64 word;

		if (offset >= s->l.bytes || offset & 7)
			continue;
		r = &s->regions[offset >> s->region_shift];
		/* marks of a region that is not traced are an earlier trace's */
		if (!r->base || (offset & (s->l.region_bytes - 1)) >= r->top)
			continue;
		word = READ_ONCE(s->marks[offset >> 9]);
		bits[i / 8] |= (u8)((word >> (offset >> 3 & 63) & 1) << i % 8);
	}
	return VIRTIO_GC_OK;
}

/* May the reference of the weak object @o at @unit have to be cleared? */
static bool weak_clears(const struct dcm_gc_space *s, u64 unit,
			const struct gc_object *o, u64 *referent)
{
	const u8 *field = s->regions[unit >> (s->region_shift - 3)].base +
			  ((unit << 3) & (s->l.region_bytes - 1)) +
			  o->type->referent;
	const struct gc_region *to;
	u64 in;

	if (gc_ref_decode(&s->l, gc_ref_load(field, s->l.ref_bytes),
			  referent) != GC_REF_HERE)
		return false;
	to = &s->regions[*referent >> s->region_shift];
	in = *referent & (s->l.region_bytes - 1);
	/* objects that are not traced live by definition */
	if (in >= to->top || (in && gc_region_whole(to)))
		return false;
	return !to->base ||
	       !(READ_ONCE(s->marks[*referent >> 9]) >> (*referent >> 3 & 63) &
		 1);
}

u32 dcm_gc_trace_clear(struct dcm_gc_space *s, u32 epoch, u32 flags,
		       struct virtio_gc_weak *out, u32 max, u32 *n, u64 *left)
{
	struct dcm_gc_trace *t = s->trace;
	u32 look = GC_WEAK_LOOK;
	struct gc_object o;
	u64 referent;

	*n = 0;
	*left = 0;
	if (!t || t->epoch != epoch || t->types_gone)
		return VIRTIO_GC_NO_TRACE;
	if (!t->finished && !trace_quiet(t))
		return VIRTIO_GC_BUSY;
	if (flags & VIRTIO_GC_MET_AGAIN)
		t->clear_next = 0;
	for (; weak_find(t, &t->clear_next, &look, &o); t->clear_next++) {
		if (!weak_clears(s, t->clear_next, &o, &referent))
			continue;
		if (*n == max)
			break;
		out[*n].object = htole64(s->l.address + (t->clear_next << 3));
		out[(*n)++].referent = htole64(s->l.address + referent);
	}
	*left = t->clear_next < s->l.bytes >> 3;
	return VIRTIO_GC_OK;
}
