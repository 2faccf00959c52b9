// SPDX-License-Identifier: GPL-2.0-only
/*
 * stream.c - find accesses in equal steps, and fetch the next ones ahead
 *
 * A program that goes through its memory in equal steps, forwards or backwards, waits
 * for a donor at each block. Such a sequence of accesses is a *stream*: the pages that
 * it will need next are fetched while it works on those that are direct. The paper
 * (dcm-tc18) fetches nothing beyond the block. Steps are found as hardware
 * prefetchers do: among the last few misses are three at equal distances, or two
 * adjacent blocks, the second entered at the end that adjoins the first. The core
 * knows no threads; streams of several threads are told apart by their addresses.
 * (Leap, ATC'20, looks for a majority of steps.)
 *
 *	    seen      |          asked for             |
 *	[ . ] [ . ]   [ next ] [      ] [ mark ] [      ]  a step each
 *	                                 ^ its touch asks for more
 *
 * Only misses find a stream, as the core sees few other accesses. When half of the
 * pages that were asked for are used, more are asked for, twice as many each time, up
 * to the tunable `stream`. To notice that they are used, a page in the middle, the
 * *mark*, is left unmapped: its touch is a fault that needs no network. So a stream
 * that goes well takes one fault for several blocks.
 *
 * Random accesses must cost nothing: a stream has to go on as foreseen for some
 * steps before anything is fetched for it, for more steps if fetched pages went unused
 * lately, and all streams together may have an eighth of the budget under way or
 * unused. Blocks are evicted for it as for hints (ahead.c), and few READs are in
 * flight.
 *
 * Locking: streams.lock, only tried: an access that finds it taken is not seen. It
 * is not held while blocks are brought in.
 */
#include "internal.h"

#define SURE 3u /* accesses as foreseen, before the first page is brought in */
#define WASTE_STEP 48u /* one access more for each 48 of 255 of @waste */
#define STEP_MAX 4096 /* pages */
#define SHARE 8 /* of the budget: for pages that were brought in and not used */
#define OLD 64u /* a stream is over after so many accesses of others */
#define HERE_MAX 8u /* blocks or steps that may be skipped, as they are here */
/* a stream went well if 8 times as much was used as is left over */
#define USED 8u
/* used steps after which a stream counts as one that went well */
#define LONG 1024u
/* pages that are asked for together, if steps are larger than 1 */
#define FAR 4u
#define FIRST 4u /* pages that are first asked for, if steps are 1 */
#define APART 2 /* larger steps use few pages of a block: fetch single pages */
/* at most so many chunks (chunk_of()) are asked for at one access */
#define ONCE 4u

static bool side_by_side(s32 step)
{
	return step == 1 || step == -1;
}

/* Pages that are asked for together. */
static u32 chunk_of(const struct dcm_stream *s)
{
	return side_by_side(s->step) ? DCM_BLOCK_MAX : FAR;
}

/* Steps from the stream's next page to @gfn; -1: @gfn is not one of its pages. */
static s64 steps_to(const struct dcm_stream *s, u32 gfn)
{
	s64 way = (s64)gfn - s->next, step = s->step;

	if (step < 0) {
		way = -way;
		step = -step;
	}
	/* no division before this check: it is made for each stream */
	if (way < 0 || way > step * (s64)(s->asked + HERE_MAX * DCM_BLOCK_MAX))
		return -1;
	if (step > 1)
		way = way % step ? -1 : way / step;
	return way;
}

/* Are the pages of the steps from @from to @to here? A hint: no lock is held. */
static bool steps_here(const struct dcm_vm *vm, const struct dcm_stream *s,
		       u32 from, s64 to)
{
	s64 i = from;
	u32 n = 0, o;

	while (i < to && n++ < HERE_MAX) {
		s64 gfn = s->next + i * s->step, head;

		if (gfn < 0 || gfn >= vm->nr_pages)
			return false;
		o = pd_order(pd_word(pd_of(vm, (u32)gfn)));
		head = gfn & ~((1u << o) - 1);
		if (pd_state(pd_word(pd_of(vm, (u32)head))) == DCM_NOTDIRECT)
			return false;
		if (!side_by_side(s->step))
			i++;
		else
			i += s->step > 0 ? head + (1u << o) - gfn :
					   gfn - head + 1;
	}
	return i >= to;
}

/* Find the stream that has foreseen an access; @steps: out: steps_to(). */
static struct dcm_stream *stream_find(struct dcm_vm *vm, u32 gfn,
				      const struct dcm_miss *m, s64 *steps)
{
	struct dcm_streams *t = &vm->streams;
	struct dcm_stream *s;

	for (s = t->stream; s < t->stream + DCM_STREAMS_MAX; s++) {
		if (!s->step || t->clock - s->used > OLD)
			continue;
		*steps = steps_to(s, gfn);
		if (*steps < 0)
			continue;
		if (*steps < s->asked ||
		    (m && steps_here(vm, s, s->asked, *steps)))
			return s;
	}
	return NULL;
}

static bool was_missed(const struct dcm_streams *t, s64 gfn)
{
	u32 i;

	for (i = 0; i < DCM_PAST_MAX; i++)
		if (t->past[i].end && t->past[i].gfn == gfn)
			return true;
	return false;
}

/* Do recent misses lead to @m in equal steps? Returns the step; 0: no. */
static s32 step_find(const struct dcm_streams *t, const struct dcm_miss *m)
{
	u32 i;

	for (i = 1; i <= DCM_PAST_MAX; i++) {
		const struct dcm_miss *past =
			&t->past[(t->misses - i) % DCM_PAST_MAX];
		s64 way = (s64)m->gfn - past->gfn;

		if (!past->end)
			break;
		if (m->head == past->end && m->gfn == m->head)
			return 1;
		if (m->end == past->head && m->gfn == m->end - 1)
			return -1;
		if (way && way <= STEP_MAX && way >= -STEP_MAX &&
		    was_missed(t, past->gfn - way))
			return (s32)way;
	}
	return 0;
}

static void asked_set(struct dcm_streams *t, struct dcm_stream *s, u32 steps)
{
	WRITE_ONCE(t->asked, t->asked + steps - s->asked);
	s->asked = (u16)steps;
}

/* End a stream: learn whether it went well, and forget the steps it asked for. */
static void stream_end(struct dcm_streams *t, struct dcm_stream *s)
{
	if (s->asked + s->went)
		dcm_learn(&t->waste, s->asked * USED > s->went);
	asked_set(t, s, 0);
	s->step = 0;
	s->went = 0;
	s->sure = 0;
}

/* A miss that no stream has foreseen may begin one, which replaces the oldest. */
static struct dcm_stream *stream_begin(struct dcm_streams *t,
				       const struct dcm_miss *m)
{
	struct dcm_stream *s = &t->stream[0];
	s32 step = step_find(t, m);
	u32 i;

	if (!step)
		return NULL;
	for (i = 1; i < DCM_STREAMS_MAX; i++)
		if ((s32)(t->stream[i].used - s->used) < 0)
			s = &t->stream[i];
	stream_end(t, s);
	s->step = step;
	s->depth = side_by_side(s->step) ? FIRST : 1;
	return s;
}

/* An access has continued a stream: it is @steps after the stream's next page. */
static void stream_go(struct dcm_streams *t, struct dcm_stream *s, u32 gfn,
		      const struct dcm_miss *m, s64 steps)
{
	bool asked = steps < s->asked;

	s->sure = (u8)min(s->sure + 1u, 255u);
	if (asked && !m)
		s->went += (u16)steps + 1;
	if (s->went >= LONG) {
		dcm_learn(&t->waste, false);
		s->went = 0;
	}
	/* a miss of a page that was asked for: it never came, or was evicted again */
	asked_set(t, s, asked && !m ? s->asked - (u32)steps - 1 : 0);
	s->next = (s64)gfn + s->step;
	if (m && side_by_side(s->step))
		s->next = s->step > 0 ? (s64)m->end : (s64)m->head - 1;
}

/**
 * struct stream_plan - pages to bring in for a stream
 * @stream: the stream
 * @used: its @used when the plan was made; if it differs later the plan is void
 * @first: the first page
 * @step: the distance from each page to the next
 * @nr: number of pages
 */
struct stream_plan {
	struct dcm_stream *stream;
	u32 used;
	s64 first;
	s32 step;
	u32 nr;
};

/*
 * The most steps that a stream may have asked for and not used. All streams together
 * may use a share of the budget, so first end those that no access has continued for
 * long: the steps that they asked for no longer count.
 */
static u32 depth_max(struct dcm_vm *vm, const struct dcm_stream *s)
{
	u64 share = READ_ONCE(vm->budget) / SHARE;
	struct dcm_streams *t = &vm->streams;
	u32 others, i;

	for (i = 0; i < DCM_STREAMS_MAX; i++)
		if (t->stream[i].asked && t->clock - t->stream[i].used > OLD)
			stream_end(t, &t->stream[i]);
	others = t->asked - s->asked;
	return (u32)min(dcm_tune(vm, DCM_T_stream) * chunk_of(s),
			share - min(share, (u64)others));
}

/* Steps from the end of a plan to the next border between blocks of the largest size. */
static u32 to_block_end(const struct stream_plan *p)
{
	s64 end = p->first + (s64)p->nr * p->step;

	if (p->step == 1)
		return -(u32)end & (DCM_BLOCK_MAX - 1);
	return p->step == -1 && end >= 0 ?
		       (u32)(end + 1) & (DCM_BLOCK_MAX - 1) :
		       0;
}

/* Ask for more steps of a stream once half of those asked for are used. */
static bool stream_more(struct dcm_vm *vm, struct dcm_stream *s,
			struct stream_plan *p)
{
	struct dcm_streams *t = &vm->streams;
	u32 chunk = chunk_of(s), most = depth_max(vm, s);
	u32 depth = min((u32)s->depth, most);

	if (s->sure < SURE + t->waste / WASTE_STEP || s->asked >= depth ||
	    s->asked * 2 > depth)
		return false;
	p->stream = s;
	p->used = s->used;
	p->first = s->next + (s64)s->asked * s->step;
	p->step = s->step;
	p->nr = min(depth - s->asked, ONCE * chunk);
	if (depth >= chunk)
		p->nr += to_block_end(p);
	asked_set(t, s, s->asked + p->nr);
	s->depth = (u16)min(2 * depth, most);
	return true;
}

/* Plan the pages that follow an access, if it continues a stream. Under the lock. */
static bool access_look(struct dcm_vm *vm, u32 gfn, const struct dcm_miss *m,
			struct stream_plan *p)
{
	struct dcm_streams *t = &vm->streams;
	struct dcm_stream *s;
	s64 steps = 0;

	t->clock++;
	s = stream_find(vm, gfn, m, &steps);
	if (!s && m)
		s = stream_begin(t, m);
	if (m)
		t->past[t->misses++ % DCM_PAST_MAX] = *m;
	if (!s)
		return false;
	stream_go(t, s, gfn, m, steps);
	s->used = t->clock;
	return stream_more(vm, s, p);
}

/* Bring in the pages of @want that donors have. False: there is no room now. */
static bool pages_bring(struct dcm_lane *lane, struct dcm_ahead_want *want)
{
	if (!want->single && !dcm_eblk_worth(lane, want->from))
		return true;
	want->gfn = want->from;
	while (want->gfn < want->end)
		if (!dcm_ahead_may(lane) || dcm_ahead_bring(lane, want))
			return false;
	return true;
}

/* Cut a plan to @nr steps: the others count as not asked for yet. */
static void plan_cut(struct dcm_vm *vm, struct stream_plan *p, u32 nr)
{
	struct dcm_streams *t = &vm->streams;
	struct dcm_stream *s = p->stream;

	spin_lock(&t->lock);
	if (s->step == p->step && s->used == p->used)
		asked_set(t, s, s->asked - min(p->nr - nr, (u32)s->asked));
	spin_unlock(&t->lock);
	p->nr = nr;
}

/* Cut a plan to the room there is: dirty pages take time to leave. */
static void plan_fit(struct dcm_lane *lane, struct stream_plan *p)
{
	struct dcm_vm *vm = lane->vm;
	u64 room;

	dcm_evict_for(lane, p->nr + (u32)dcm_evict_reserve(vm));
	dcm_poll(lane);
	room = dcm_ahead_room(vm);
	if (room < p->nr)
		plan_cut(vm, p, (u32)room);
}

static void plan_bring(struct dcm_lane *lane, struct stream_plan *p)
{
	bool near = side_by_side(p->step);
	struct dcm_ahead_want want = {
		.what = DCM_FOR_STREAM,
		.single = p->step > APART || p->step < -APART,
	};
	struct dcm_vm *vm = lane->vm;
	s64 gfn, from, end;
	u32 i, n;

	plan_fit(lane, p);
	want.mark = (u32)(p->first + (s64)(p->nr / 2) * p->step);
	for (i = 0; i < p->nr; i += n) {
		gfn = p->first + (s64)i * p->step;
		if (gfn < 0 || gfn >= vm->nr_pages)
			break;
		from = gfn;
		end = gfn + 1;
		/* steps of 1: at most to the end of the aligned 64 KiB */
		if (near && p->step > 0)
			end = min((gfn | (DCM_BLOCK_MAX - 1)) + 1,
				  min(gfn + p->nr - i, (s64)vm->nr_pages));
		else if (near)
			from = max(gfn & ~(s64)(DCM_BLOCK_MAX - 1),
				   gfn - (p->nr - i) + 1);
		n = (u32)(end - from);
		want.from = (u32)from;
		want.end = (u32)end;
		if (!pages_bring(lane, &want))
			plan_cut(vm, p, i);
	}
	vm->ops->io_flush(lane);
	dcm_poll(lane);
}

/**
 * dcm_stream_access() - look at an access; if it continues a stream, fetch what follows
 * @lane: caller's lane
 * @gfn: the page
 * @miss: the block that is fetched for it; %NULL: it was no miss
 */
void dcm_stream_access(struct dcm_lane *lane, u32 gfn,
		       const struct dcm_miss *miss)
{
	struct dcm_vm *vm = lane->vm;
	struct stream_plan p;
	bool more;

	if (!miss && !READ_ONCE(vm->streams.asked))
		return;
	if (!dcm_tune(vm, DCM_T_stream) || !spin_trylock(&vm->streams.lock))
		return;
	more = access_look(vm, gfn, miss, &p);
	spin_unlock(&vm->streams.lock);
	if (unlikely(more))
		plan_bring(lane, &p);
}
