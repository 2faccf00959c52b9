// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * work.c - divide a trace among threads
 *
 * A thread uses its own entries without a lock. When other threads have none, or its
 * ring is full, it opens a batch of its oldest entries, which stand for the most work,
 * and a thread without work steals the batch. A batch is so large that its mutex costs
 * little.
 *
 * Memory is bounded: objects for which there is no room are counted, and those
 * with references leave a bit in the grey bitmap, one for each 64 bytes of
 * heap. Threads without other work take grey words, in the order of addresses,
 * and scan all marked objects in them, again or for the first time.
 */
#include <errno.h>
#include <stdlib.h>

#include "work.h"

int gc_worker_init(struct gc_worker *w, struct dcm_gc_trace *t, bool thread)
{
	w->trace = t;
	w->ring_mask = (u32)(t->ring_bytes / sizeof(*w->ring)) - 1;
	pthread_mutex_init(&w->lock, NULL);
	w->seen = gc_map(GC_SEEN_WORDS * sizeof(*w->seen));
	for (u32 i = 0; i < GC_EDGES; i++)
		w->edge[i] = gc_unit_none(t->space);
	w->tally = gc_map(t->space->nr_regions * sizeof(*w->tally));
	if (thread) {
		w->ring = gc_map(t->ring_bytes);
		w->open = calloc(GC_PUBLIC, sizeof(*w->open));
		w->sent = calloc(GC_SENT, sizeof(*w->sent));
		if (!w->ring || !w->open || !w->sent)
			return -ENOMEM;
	}
	return w->seen && w->tally ? 0 : -ENOMEM;
}

void gc_worker_free(struct gc_worker *w)
{
	if (!w->trace)
		return;
	gc_unmap(w->ring, w->trace->ring_bytes);
	gc_unmap(w->seen, GC_SEEN_WORDS * sizeof(*w->seen));
	gc_unmap(w->tally, w->trace->space->nr_regions * sizeof(*w->tally));
	free(w->open);
	free(w->sent);
	for (u32 i = 0; i < DCM_WIRE_GC_DONORS; i++)
		free(w->ghosts[i]);
	pthread_mutex_destroy(&w->lock);
}

void gc_stop(struct dcm_gc_trace *t, u32 status, u64 at)
{
	pthread_mutex_lock(&t->lock);
	if (!t->stop) {
		t->stop_at = at;
		WRITE_ONCE(t->stop, status);
	}
	pthread_cond_broadcast(&t->work);
	pthread_cond_broadcast(&t->quiet);
	pthread_cond_broadcast(&t->acked);
	pthread_cond_broadcast(&t->taken);
	pthread_mutex_unlock(&t->lock);
}

/*
 * Count one more piece of work that threads can find (@avail). Pairs with work_wait().
 */
static void work_there(struct dcm_gc_trace *t)
{
	__atomic_add_fetch(&t->avail, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&t->idle, __ATOMIC_SEQ_CST)) {
		pthread_mutex_lock(&t->lock);
		pthread_cond_signal(&t->work);
		pthread_mutex_unlock(&t->lock);
	}
}

static void work_gone(struct dcm_gc_trace *t)
{
	__atomic_sub_fetch(&t->avail, 1, __ATOMIC_SEQ_CST);
}

void gc_work_grey(struct dcm_gc_trace *t, u64 unit)
{
	struct dcm_gc_space *s = t->space;
	u64 *word = &s->grey[unit >> 9], bit = 1ull << (unit >> 3 & 63);

	if (__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST))
		return;
	__atomic_add_fetch(&s->regions[unit >> (s->region_shift - 3)].grey, 1,
			   __ATOMIC_SEQ_CST);
	work_there(t);
}

bool gc_work_open(struct gc_worker *w)
{
	u32 have = w->tail - w->head, n = min(have / 2 + 1, GC_STEAL);
	bool room;

	if (!have)
		return true;
	pthread_mutex_lock(&w->lock);
	room = w->open_n < GC_PUBLIC;
	if (room) {
		struct gc_batch *b =
			&w->open[(w->open_first + w->open_n) % GC_PUBLIC];

		b->n = n;
		for (u32 i = 0; i < n; i++)
			b->entry[i] = w->ring[w->head++ & w->ring_mask];
		WRITE_ONCE(w->open_n, w->open_n + 1);
	}
	pthread_mutex_unlock(&w->lock);
	if (room)
		work_there(w->trace);
	return room;
}

static void batch_push(struct gc_worker *w, const struct gc_batch *b)
{
	for (u32 i = 0; i < b->n; i++)
		w->ring[w->tail++ & w->ring_mask] = b->entry[i];
}

/* Take an open batch of @from: its oldest; of the thread's own ones, the newest. */
static bool work_steal(struct gc_worker *w, struct gc_worker *from)
{
	bool got;

	if (!READ_ONCE(from->open_n))
		return false;
	pthread_mutex_lock(&from->lock);
	got = from->open_n;
	if (got) {
		u32 i = from->open_first;

		WRITE_ONCE(from->open_n, from->open_n - 1);
		if (w == from)
			i = (i + from->open_n) % GC_PUBLIC;
		else
			from->open_first = (i + 1) % GC_PUBLIC;
		batch_push(w, &from->open[i]);
	}
	pthread_mutex_unlock(&from->lock);
	if (got)
		work_gone(w->trace);
	return got;
}

/* Take injected entries, which are not marked yet. */
static bool work_injected(struct gc_worker *w)
{
	struct dcm_gc_trace *t = w->trace;
	struct gc_batch b = { .n = 0 };

	pthread_mutex_lock(&t->lock);
	if (t->inject_n) {
		b = t->inject[t->inject_first];
		t->inject_first = (t->inject_first + 1) % GC_INJECT;
		t->inject_n--;
	}
	pthread_mutex_unlock(&t->lock);
	if (!b.n)
		return false;
	work_gone(t);
	for (u32 i = 0; i < b.n; i++)
		gc_edge(w, b.entry[i]);
	return true;
}

/* Take some references of a range, @bytes each, in one region of this donor. */
static const u8 *range_take(struct dcm_gc_trace *t, u32 bytes, u64 *n)
{
	const struct dcm_gc_space *s = t->space;
	const u8 *p = NULL;

	pthread_mutex_lock(&t->lock);
	while (t->ranges_n && !p) {
		struct gc_range *r = &t->ranges[t->ranges_n - 1];
		u64 region = r->next >> s->region_shift;
		u64 end = min(r->end, (region + 1) << s->region_shift);
		const u8 *base = s->regions[region].base;

		if (base) {
			*n = min((end - r->next) / bytes, (u64)GC_SLICE_REFS);
			end = r->next + *n * bytes;
			p = base + (r->next & (s->l.region_bytes - 1));
		}
		r->next = end;
		if (r->next == r->end) {
			WRITE_ONCE(t->ranges_n, t->ranges_n - 1);
			work_gone(t);
		}
	}
	pthread_mutex_unlock(&t->lock);
	return p;
}

static bool work_range(struct gc_worker *w)
{
	const u8 *p;
	u64 n;

	if (!READ_ONCE(w->trace->ranges_n))
		return false;
	p = range_take(w->trace, w->trace->space->l.ref_bytes, &n);
	if (p)
		gc_scan_roots(w, p, n);
	return p;
}

bool gc_work_inject(struct dcm_gc_trace *t, const u64 *entries, u32 n)
{
	struct gc_batch *b;

	if (t->inject_n == GC_INJECT)
		return false;
	b = &t->inject[(t->inject_first + t->inject_n) % GC_INJECT];
	b->n = n;
	memcpy(b->entry, entries, n * sizeof(*entries));
	t->inject_n++;
	__atomic_add_fetch(&t->avail, 1, __ATOMIC_SEQ_CST);
	pthread_cond_signal(&t->work);
	return true;
}

/* Take the marked objects of the grey word taken last. */
static bool work_grey_next(struct gc_worker *w)
{
	const u64 *marks = w->trace->space->marks;
	u32 before = w->tail;

	for (; w->grey; w->grey &= w->grey - 1) {
		u64 at = (w->grey_at << 6) + (u64)__builtin_ctzll(w->grey);
		u32 m = READ_ONCE(marks[at >> 3]) >> (at & 7) * 8 & 0xff;

		if (w->tail - before > GC_STEAL)
			break;
		for (; m; m &= m - 1)
			w->ring[w->tail++ & w->ring_mask] =
				(at << 3) + (u64)__builtin_ctz(m) +
				(GC_SLICE_AGAIN << GC_UNIT_BITS);
	}
	return w->tail != before;
}

/* Take a grey word of @region. */
static bool work_grey_claim(struct gc_worker *w, u32 region)
{
	struct dcm_gc_space *s = w->trace->space;
	u64 words = gc_grey_words(s), first = region * words;
	u64 from = w->grey_at + 1 - first;

	/* go on after the last one, so that each word is looked at once a round */
	if (from >= words)
		from = 0;
	for (u64 i = 0; i < words; i++) {
		u64 at = from + i < words ? from + i : from + i - words;
		u64 *word = &s->grey[first + at];

		if (!READ_ONCE(*word))
			continue;
		w->grey = __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
		if (!w->grey)
			continue;
		w->grey_at = first + at;
		__atomic_sub_fetch(&s->regions[region].grey, 1,
				   __ATOMIC_SEQ_CST);
		work_gone(w->trace);
		return true;
	}
	return false;
}

static bool work_grey(struct gc_worker *w)
{
	struct dcm_gc_space *s = w->trace->space;
	u32 n = s->nr_regions, last = (u32)(w->grey_at / gc_grey_words(s));

	for (u32 i = 0; i < n; i++) {
		u32 region = (last + i) % n;

		while (READ_ONCE(s->regions[region].grey) &&
		       work_grey_claim(w, region))
			if (work_grey_next(w))
				return true;
	}
	return false;
}

/* Nothing was found: wait until there is work again. */
static void work_wait(struct dcm_gc_trace *t)
{
	pthread_mutex_lock(&t->lock);
	__atomic_add_fetch(&t->idle, 1, __ATOMIC_SEQ_CST);
	while (!gc_stopped(t) &&
	       !__atomic_load_n(&t->avail, __ATOMIC_SEQ_CST)) {
		if (t->idle == t->threads)
			pthread_cond_broadcast(&t->quiet);
		pthread_cond_wait(&t->work, &t->lock);
	}
	__atomic_sub_fetch(&t->idle, 1, __ATOMIC_SEQ_CST);
	t->activity++;
	pthread_mutex_unlock(&t->lock);
}

bool gc_work_get(struct gc_worker *w)
{
	struct dcm_gc_trace *t = w->trace;
	u32 self = (u32)(w - t->workers);

	for (;;) {
		if (gc_stopped(t))
			return false;
		if (work_grey_next(w))
			return true;
		for (u32 i = 0; i < t->threads; i++)
			if (work_steal(w, &t->workers[(self + i) % t->threads]))
				return true;
		if (work_injected(w) || work_range(w) || work_grey(w))
			return true;
		gc_ghost_flush(w);
		work_wait(t);
	}
}
