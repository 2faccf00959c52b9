// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * classic.c - LRU, CLOCK, S3-FIFO, ARC and Belady's optimum; see classic.h
 *
 * S3-FIFO as in Yang et al., SOSP 2023, algorithm 1: a small queue of a tenth,
 * a main queue with reinsertion, a ghost queue as long as the main one, two
 * bits of frequency. ARC as in Megiddo and Modha, FAST 2003, figure 4.
 */
#include "classic.h"
#include "common.h"

static void *table_new(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("policy: no memory");
	return p;
}

uint64_t lru_misses(const struct trace *t, uint32_t frames)
{
	uint32_t head =
		t->nr_pages; /* sentinel of a ring: next is the newest */
	uint32_t *next = table_new(t->nr_pages + 1, sizeof(*next));
	uint32_t *prev = table_new(t->nr_pages + 1, sizeof(*prev));
	uint8_t *state = table_new(t->nr_pages, 1); /* 1: seen, 2: resident */
	uint32_t used = 0;
	uint64_t misses = 0;

	next[head] = prev[head] = head;
	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t p = TRACE_PAGE(t->record[i]);

		if (state[p] & 2) {
			next[prev[p]] = next[p];
			prev[next[p]] = prev[p];
		} else {
			misses += state[p];
			state[p] = 3;
			if (used == frames) {
				uint32_t v = prev[head];

				prev[head] = prev[v];
				next[prev[v]] = head;
				state[v] = 1;
			} else {
				used++;
			}
		}
		next[p] = next[head];
		prev[p] = head;
		prev[next[p]] = p;
		next[head] = p;
	}
	free(next);
	free(prev);
	free(state);
	return misses;
}

uint64_t clock_misses(const struct trace *t, uint32_t frames)
{
	uint32_t *frame = table_new(frames, sizeof(*frame));
	uint8_t *state = table_new(t->nr_pages,
				   1); /* 1: seen, 2: resident, 4: referenced */
	uint32_t used = 0, hand = 0;
	uint64_t misses = 0;

	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t p = TRACE_PAGE(t->record[i]);

		if (state[p] & 2) {
			state[p] |= 4;
			continue;
		}
		misses += state[p];
		state[p] = 3;
		if (used < frames) {
			frame[used++] = p;
			continue;
		}
		while (state[frame[hand]] & 4) {
			state[frame[hand]] = 3;
			hand = (hand + 1) % frames;
		}
		state[frame[hand]] = 1;
		frame[hand] = p;
		hand = (hand + 1) % frames;
	}
	free(frame);
	free(state);
	return misses;
}

/* A queue of page numbers; entries may be stale, which their users notice. */
struct ring {
	uint32_t *item;
	uint32_t size;
	uint64_t head, tail;
};

static void ring_push(struct ring *r, uint32_t v)
{
	r->item[r->tail++ % r->size] = v;
}

static uint32_t ring_pop(struct ring *r)
{
	return r->item[r->head++ % r->size];
}

static uint32_t ring_used(const struct ring *r)
{
	return (uint32_t)(r->tail - r->head);
}

enum s3_where { S3_OUT, S3_SMALL, S3_MAIN };

struct s3 {
	struct ring small, main, ghost;
	uint8_t *where, *freq, *seen;
	uint64_t *ghost_at; /* 1 + the ghost's place in its queue, 0: none */
	uint32_t small_max, main_max;
};

static void s3_ghost_add(struct s3 *s, uint32_t p)
{
	if (ring_used(&s->ghost) == s->main_max) {
		uint64_t at = s->ghost.head;
		uint32_t old = ring_pop(&s->ghost);

		if (s->ghost_at[old] == at + 1)
			s->ghost_at[old] = 0;
	}
	s->ghost_at[p] = s->ghost.tail + 1;
	ring_push(&s->ghost, p);
}

static void s3_main_evict(struct s3 *s)
{
	for (;;) {
		uint32_t p = ring_pop(&s->main);

		if (!s->freq[p]) {
			s->where[p] = S3_OUT;
			return;
		}
		s->freq[p]--;
		ring_push(&s->main, p);
	}
}

static void s3_evict(struct s3 *s)
{
	while (ring_used(&s->small) >= s->small_max || !ring_used(&s->main)) {
		uint32_t p = ring_pop(&s->small);

		if (s->freq[p] <= 1) {
			s->where[p] = S3_OUT;
			s3_ghost_add(s, p);
			return;
		}
		s->where[p] = S3_MAIN;
		s->freq[p] = 0;
		ring_push(&s->main, p);
		if (ring_used(&s->main) > s->main_max) {
			s3_main_evict(s);
			return;
		}
		if (!ring_used(&s->small))
			break;
	}
	s3_main_evict(s);
}

uint64_t s3fifo_misses(const struct trace *t, uint32_t frames)
{
	struct s3 s = { .small_max = frames / 10 ? frames / 10 : 1 };
	uint64_t misses = 0;

	s.main_max = frames - s.small_max;
	s.small = (struct ring){ table_new(frames + 1, 4), frames + 1, 0, 0 };
	s.main = (struct ring){ table_new(frames + 1, 4), frames + 1, 0, 0 };
	s.ghost = (struct ring){ table_new(frames + 1, 4), frames + 1, 0, 0 };
	s.where = table_new(t->nr_pages, 1);
	s.freq = table_new(t->nr_pages, 1);
	s.seen = table_new(t->nr_pages, 1);
	s.ghost_at = table_new(t->nr_pages, sizeof(*s.ghost_at));
	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t p = TRACE_PAGE(t->record[i]);

		if (s.where[p] != S3_OUT) {
			if (s.freq[p] < 3)
				s.freq[p]++;
			continue;
		}
		misses += s.seen[p];
		s.seen[p] = 1;
		if (ring_used(&s.small) + ring_used(&s.main) >= frames)
			s3_evict(&s);
		s.freq[p] = 0;
		if (s.ghost_at[p]) {
			s.ghost_at[p] = 0;
			s.where[p] = S3_MAIN;
			ring_push(&s.main, p);
		} else {
			s.where[p] = S3_SMALL;
			ring_push(&s.small, p);
		}
	}
	free(s.small.item);
	free(s.main.item);
	free(s.ghost.item);
	free(s.where);
	free(s.freq);
	free(s.seen);
	free(s.ghost_at);
	return misses;
}

/* The lists of ARC: pages here, seen once and more often; the same of pages gone. */
enum arc_list {
	ARC_T1,
	ARC_T2,
	ARC_B1,
	ARC_B2,
	ARC_LISTS,
	ARC_NONE = ARC_LISTS
};

/* Pages on the lists, the newest next to the list's sentinel, nr_pages + list */
struct arc {
	uint32_t *next, *prev, nr_pages, frames, aim; /* of T1's length */
	uint32_t len[ARC_LISTS];
	uint8_t *on;
};

static void arc_put(struct arc *a, uint32_t p, enum arc_list list)
{
	uint32_t head = a->nr_pages + list;

	a->on[p] = (uint8_t)list;
	a->len[list]++;
	a->next[p] = a->next[head];
	a->prev[p] = head;
	a->prev[a->next[p]] = p;
	a->next[head] = p;
}

static void arc_take(struct arc *a, uint32_t p)
{
	a->len[a->on[p]]--;
	a->on[p] = ARC_NONE;
	a->next[a->prev[p]] = a->next[p];
	a->prev[a->next[p]] = a->prev[p];
}

/* The oldest of a list leaves it. */
static uint32_t arc_pop(struct arc *a, enum arc_list list)
{
	uint32_t p = a->prev[a->nr_pages + list];

	arc_take(a, p);
	return p;
}

/* A frame for a page that was on list @from. */
static void arc_evict(struct arc *a, enum arc_list from)
{
	bool t1 = a->len[ARC_T1] &&
		  (a->len[ARC_T1] > a->aim ||
		   (from == ARC_B2 && a->len[ARC_T1] == a->aim));

	if (!t1 && !a->len[ARC_T2])
		t1 = true;
	if (t1)
		arc_put(a, arc_pop(a, ARC_T1), ARC_B1);
	else
		arc_put(a, arc_pop(a, ARC_T2), ARC_B2);
}

/* A page that no list knows: what is remembered stays within twice the frames. */
static void arc_forget(struct arc *a)
{
	uint32_t seen_once = a->len[ARC_T1] + a->len[ARC_B1], all = seen_once;

	all += a->len[ARC_T2] + a->len[ARC_B2];
	if (seen_once == a->frames) {
		if (a->len[ARC_T1] < a->frames) {
			arc_pop(a, ARC_B1);
			arc_evict(a, ARC_NONE);
		} else {
			arc_pop(a, ARC_T1);
		}
	} else if (all >= a->frames) {
		if (all == 2 * a->frames)
			arc_pop(a, ARC_B2);
		arc_evict(a, ARC_NONE);
	}
}

/* A page that is gone, but remembered: shift the aim to the side that it was on. */
static void arc_adapt(struct arc *a, enum arc_list list)
{
	uint32_t b1 = a->len[ARC_B1], b2 = a->len[ARC_B2], by;

	if (list == ARC_B1) {
		by = b2 > b1 ? b2 / b1 : 1;
		a->aim = a->aim + by > a->frames ? a->frames : a->aim + by;
	} else {
		by = b1 > b2 ? b1 / b2 : 1;
		a->aim -= by > a->aim ? a->aim : by;
	}
}

uint64_t arc_misses(const struct trace *t, uint32_t frames)
{
	struct arc a = { .nr_pages = t->nr_pages, .frames = frames };
	uint8_t *seen = table_new(t->nr_pages, 1);
	uint64_t misses = 0;

	a.next = table_new(t->nr_pages + ARC_LISTS, sizeof(*a.next));
	a.prev = table_new(t->nr_pages + ARC_LISTS, sizeof(*a.prev));
	a.on = table_new(t->nr_pages, 1);
	memset(a.on, ARC_NONE, t->nr_pages);
	for (uint32_t i = t->nr_pages; i < t->nr_pages + ARC_LISTS; i++)
		a.next[i] = a.prev[i] = i;
	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t p = TRACE_PAGE(t->record[i]);
		enum arc_list on = a.on[p];

		if (on == ARC_B1 || on == ARC_B2) {
			arc_adapt(&a, on);
			arc_evict(&a, on);
		} else if (on == ARC_NONE) {
			arc_forget(&a);
		}
		if (on != ARC_NONE)
			arc_take(&a, p);
		if (on != ARC_T1 && on != ARC_T2)
			misses += seen[p];
		seen[p] = 1;
		arc_put(&a, p, on == ARC_NONE ? ARC_T1 : ARC_T2);
	}
	free(a.next);
	free(a.prev);
	free(a.on);
	free(seen);
	return misses;
}

uint64_t opt_misses(const struct trace *t, uint32_t frames)
{
	uint32_t *next = table_new(t->nr_records, sizeof(*next));
	uint32_t *last = table_new(t->nr_pages, sizeof(*last));
	uint8_t *seen = table_new(t->nr_pages, 1);
	uint32_t leaves = 1, used = 0, *tree;
	uint64_t misses = 0;

	while (leaves < t->nr_pages)
		leaves *= 2;
	/* Max tree over pages: next use of the resident ones, 0 for the others. */
	tree = table_new(2 * (size_t)leaves, sizeof(*tree));
	memset(last, 0xff, t->nr_pages * sizeof(*last));
	for (uint32_t i = t->nr_records; i-- > 0;) {
		uint32_t p = TRACE_PAGE(t->record[i]);

		next[i] = last[p];
		last[p] = i;
	}
	for (uint32_t i = 0; i < t->nr_records; i++) {
		uint32_t p = TRACE_PAGE(t->record[i]), n = leaves + p;

		if (!tree[n]) {
			misses += seen[p];
			seen[p] = 1;
			if (used == frames) {
				uint32_t v = 1;

				while (v < leaves)
					v = tree[2 * v] == tree[v] ? 2 * v :
								     2 * v + 1;
				for (tree[v] = 0, v /= 2; v; v /= 2)
					tree[v] =
						tree[2 * v] > tree[2 * v + 1] ?
							tree[2 * v] :
										  tree[2 * v + 1];
			} else {
				used++;
			}
		}
		tree[n] = next[i];
		for (n /= 2; n; n /= 2)
			tree[n] = tree[2 * n] > tree[2 * n + 1] ?
					  tree[2 * n] :
					  tree[2 * n + 1];
	}
	free(next);
	free(last);
	free(seen);
	free(tree);
	return misses;
}
