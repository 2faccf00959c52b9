// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_donor.c - donors and the transport to their slabs, all hostile
 *
 * An I/O completes some ticks after it was posted, in any order, unless its
 * donor is silent (then later) or dead (then with an error). While a WRITE is
 * in flight the slab's pages are torn; one that fails may have happened, not
 * happened, or have left them torn, page by page; one that ends in -ENOTCONN may
 * also happen later. A lane has a connection to each donor. It breaks as a whole:
 * all that is in flight fails, and what it brought may reach the slab at any time
 * until the donor welcomes the lane's next one. Checked:
 * never two I/Os on one slab page, the right offset, a stable source, a slab
 * that is still the core's, one landing buffer for one READ.
 *
 * A slab page is *sure* when its last WRITE was answered well and the core has to
 * remember that: not if the write-back was cancelled, or another WRITE of it to
 * that slab failed, or a later write-back of the page goes to other slots only, or
 * the WRITE is of a spread, which may begin again with the page: until it has ended.
 * While a slab takes writes, a page that is sure there can't be lost. (In
 * single-threaded runs.)
 */
#include "fake_backend.h"
#include "fake_priv.h"

#include <stdio.h>

#define POLLS_MAX 1000 /* in one tick */

static bool donor_is(const u64 *until, const struct fake_backend *fb)
{
	return __atomic_load_n(until, __ATOMIC_RELAXED) > READ_ONCE(fb->tick);
}

/* A page of a READ whose bytes the core will not look at: a hole. */
static bool masked(const struct fake_backend *fb, u32 lane,
		   const struct dcm_io *io, u32 page)
{
	const struct dcm_fetch *f = fb->vm->lane[lane].fetch;

	if (io->op != DCM_IO_READ || (uintptr_t)io < (uintptr_t)f ||
	    (uintptr_t)io >= (uintptr_t)(f + DCM_FETCHES_MAX))
		return false;
	f = container_of(io, struct dcm_fetch, io);
	return f->zero & (1u << (f->first + page));
}

static void busy_set(struct fake_backend *fb, u32 lane, struct fb_slab *s,
		     const struct dcm_io *io, u32 p, u32 i)
{
	if (masked(fb, lane, io, i))
		return;
	if (__atomic_exchange_n(&s->busy[p], 1, __ATOMIC_RELAXED))
		fb_violation(fb,
			     "two I/Os in flight on one page: %s, second is a %s",
			     fb_page_text(fb,
					  s->extent * fb->cfg.extent_pages + p),
			     io->op == DCM_IO_READ ? "READ" : "WRITE");
}

static void busy_clear(struct fake_backend *fb, u32 lane, struct fb_slab *s,
		       const struct dcm_io *io, u32 p, u32 i)
{
	if (!masked(fb, lane, io, i))
		__atomic_store_n(&s->busy[p], 0, __ATOMIC_RELAXED);
}

static void write_begin(struct fake_backend *fb, struct fb_slab *s,
			struct fb_io *q, u32 first, u32 nr)
{
	u64 at = fb_index(fb, q->io->data);
	bool zero = true;
	u32 i;

	for (i = 0; i < nr; i++) {
		u32 gfn = s->extent * fb->cfg.extent_pages + first + i;
		u64 word = fb->store[at + i], c = word;

		if (!fb_slab_word(fb, gfn, &c))
			fb_violation(fb,
				     "WRITE of %#llx of page %u: not sealed",
				     (unsigned long long)word, gfn);
		if (c && c >> FH_GFN_SHIFT != gfn)
			fb_violation(fb,
				     "WRITE of %#llx to the place of page %u",
				     (unsigned long long)c, gfn);
		if (!c)
			__atomic_fetch_add(&fb->nr_zero_written, 1,
					   __ATOMIC_RELAXED);
		zero &= !word;
		q->src[i] = word;
		q->old[i] = fb->store[s->base + first + i];
		fb->store[s->base + first + i] = FH_TORN;
		s->sure[first + i] = false;
	}
	/* what says so is not sent */
	if (q->io->zero && !zero)
		fb_violation(fb, "WRITE of %u pages says zero", nr);
	if (q->io->zero)
		__atomic_fetch_add(&fb->nr_zero_said, nr, __ATOMIC_RELAXED);
}

/* ---- what the core has to remember ---- */

/* The page's slab in a slot of its extent, or NULL. */
static struct fb_slab *slab_in(struct fake_backend *fb, u32 gfn, u32 slot)
{
	const struct dcm_slab_ref *ref = READ_ONCE(
		fb->vm->extent[gfn >> fb->vm->extent_shift].slot[slot].slab);

	return ref ? fb_slab_of(fb, ref) : NULL;
}

static void unsure_on(struct fake_backend *fb, u32 gfn, u8 slots)
{
	u32 i;

	for (i = 0; i < DCM_SLOTS; i++) {
		struct fb_slab *s = slab_in(fb, gfn, i);

		if (s && (slots >> i & 1))
			s->sure[gfn & (fb->vm->extent_pages - 1)] = false;
	}
}

/* A write-back of these pages was cancelled. */
void fb_unsure(struct fake_backend *fb, u32 gfn, u32 nr)
{
	for (; nr; nr--, gfn++) {
		fb->cancels[gfn]++;
		unsure_on(fb, gfn, DCM_SLOTS_ALL);
	}
}

/* A worker's page is on all slots of its set for good: its spread has ended. */
void fb_sure(struct fake_backend *fb, u32 gfn)
{
	u8 at = pd_at(pd_word(pd_of(fb->vm, gfn)));
	u32 i;

	for (i = 0; i < DCM_SLOTS; i++)
		if (at >> i & 1)
			slab_in(fb, gfn, i)
				->sure[gfn & (fb->vm->extent_pages - 1)] = true;
}

static u8 *wb_bad_of(struct fake_backend *fb, const struct dcm_wb *wb)
{
	return &fb->lane[wb->lane->id].wb_bad[wb - wb->lane->wb];
}

/* A WRITE failed: all that its write-back wrote to that slot is forgotten. */
static void write_failed(struct fake_backend *fb, const struct dcm_io *io)
{
	const struct dcm_wb *wb = io->owner;
	u32 i;

	if (fb->cfg.threads || io->op != DCM_IO_WRITE ||
	    io->kind != DCM_IO_WRITE_BACK)
		return;
	*wb_bad_of(fb, wb) |= (u8)(1u << io->slot);
	for (i = 0; i < 1u << wb->order; i++)
		if (wb->pages >> i & 1)
			unsure_on(fb, wb->gfn + i, (u8)(1u << io->slot));
}

/* A WRITE is posted: slots that the write-back leaves out have older bytes. */
static void write_posted(struct fake_backend *fb, struct fb_io *q,
			 const struct fb_slab *s, u32 first, u32 nr)
{
	const struct dcm_wb *wb = q->io->owner;
	u32 gfn = s->extent * fb->cfg.extent_pages + first, i;

	if (fb->cfg.threads)
		return;
	for (i = 0; i < nr; i++, gfn++) {
		q->cancels[i] = fb->cancels[gfn];
		if (q->io->kind == DCM_IO_WRITE_BACK &&
		    !(wb->clean >> (gfn - wb->gfn) & 1))
			unsure_on(fb, gfn, (u8)~wb->targets);
	}
}

/* Is it an I/O of what a worker changed? Its sum is not known. */
static bool spreads(const struct dcm_io *io)
{
	return io->kind == DCM_IO_MOVE &&
	       ((const struct dcm_move_op *)io->owner)->changed;
}

/* A WRITE was answered well: must the core remember it for page @i of it? */
static bool write_sure(struct fake_backend *fb, const struct fb_io *q,
		       const struct fb_slab *s, u32 first, u32 i)
{
	u32 gfn = s->extent * fb->cfg.extent_pages + first + i;

	if (fb->cfg.threads || spreads(q->io) ||
	    q->cancels[i] != fb->cancels[gfn])
		return false;
	return q->io->kind != DCM_IO_WRITE_BACK ||
	       !(*wb_bad_of(fb, q->io->owner) >> q->io->slot & 1);
}

/* ---- connections ---- */

static void late_add(const struct fake_backend *fb, struct fb_way *way,
		     struct fb_slab *s, u32 page, u64 content)
{
	if (way->nr_late == FH_LATE_MAX)
		fb_violation(fb, "more writes in doubt than were in flight");
	way->late[way->nr_late++] =
		(struct fb_late){ .slab = s,
				  .lent = READ_ONCE(s->lent),
				  .page = page,
				  .content = content };
}

/* The bytes reach the slab, if it is still the one they were sent to. */
static void late_land(struct fake_backend *fb, struct fb_way *way, u32 i)
{
	const struct fb_late *l = &way->late[i];

	pthread_mutex_lock(&fb->late_lock);
	if (fb_slab_state_of(l->slab) == FH_SLAB_LIVE &&
	    l->slab->lent == l->lent) {
		fb->store[l->slab->base + l->page] = l->content;
		l->slab->sure[l->page] = false;
		fb->nr_late++;
	}
	pthread_mutex_unlock(&fb->late_lock);
	way->late[i] = way->late[--way->nr_late];
}

void fb_way_break(struct fake_backend *fb, u32 lane, u32 donor)
{
	struct fb_lane *l = &fb->lane[lane];
	struct fb_way *way = &l->way[donor];

	if (way->broken)
		return;
	way->broken = true;
	/* mostly at once; now and then long after others have written again */
	way->welcome_at =
		READ_ONCE(fb->tick) +
		fb_random(&l->rng) % (fb_random(&l->rng) % 2 ? 400 : 20000);
}

static bool in_flight(struct fake_backend *fb, const struct fb_lane *l,
		      u32 donor)
{
	u32 i;

	for (i = 0; i < l->nr_io; i++)
		if (l->io[i].io &&
		    fb_slab_of(fb, l->io[i].io->slab)->donor == donor)
			return true;
	return false;
}

/* Time passes: late WRITEs arrive in part, and donors welcome lanes again. */
static void ways_step(struct fake_backend *fb, struct dcm_lane *lane)
{
	struct fb_lane *l = &fb->lane[lane->id];
	u32 d, i;

	for (d = 0; d < fb->cfg.nr_donors; d++) {
		struct fb_way *way = &l->way[d];

		for (i = 0; i < way->nr_late;)
			if (fb_random(&l->rng) % 256)
				i++;
			else
				late_land(fb, way, i);
		if (!way->broken || READ_ONCE(fb->tick) < way->welcome_at ||
		    in_flight(fb, l, d) ||
		    donor_is(&fb->donor[d].unreachable_until, fb) ||
		    donor_is(&fb->donor[d].silent_until, fb))
			continue;
		/* the remaining late WRITEs are done or dropped before the WELCOME */
		while (way->nr_late)
			if (fb_random(&l->rng) % 2)
				late_land(fb, way, way->nr_late - 1);
			else
				way->nr_late--;
		way->broken = false;
		dcm_lane_fenced(lane, d);
	}
}

static void check_buffers(struct fake_backend *fb, struct fb_lane *l,
			  const struct dcm_io *io)
{
	u64 at = fb_index(fb, io->data), b;
	u32 i;

	for (i = 0; i < l->nr_io; i++) {
		const struct dcm_io *o = l->io[i].io;

		if (o->op != DCM_IO_READ)
			continue;
		b = fb_index(fb, o->data);
		if (at < b + o->bytes / DCM_PAGE_SIZE &&
		    b < at + io->bytes / DCM_PAGE_SIZE)
			fb_violation(fb, "two READs land in one buffer");
	}
}

int fb_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct fake_backend *fb = lane->priv;
	struct fb_lane *l = &fb->lane[lane->id];
	struct fb_slab *s = fb_slab_of(fb, io->slab);
	u32 first = (u32)(io->offset / DCM_PAGE_SIZE), i;
	u32 nr = io->bytes / DCM_PAGE_SIZE;
	struct fb_io *q;

	fb_nest(fb, lane->id);
	ways_step(fb, lane);
	if (io->kind == DCM_IO_WRITE_BACK &&
	    io == ((struct dcm_wb *)io->owner)->io)
		*wb_bad_of(fb, io->owner) = 0;
	if (io->offset % DCM_PAGE_SIZE || io->bytes % DCM_PAGE_SIZE || !nr ||
	    nr > DCM_BLOCK_MAX || io->offset + io->bytes > s->ref.bytes)
		fb_violation(fb, "I/O at %#llx+%u of a slab of %#llx",
			     (unsigned long long)io->offset, io->bytes,
			     (unsigned long long)s->ref.bytes);
	if (fb_slab_state_of(s) == FH_SLAB_DETACHED ||
	    fb_slab_state_of(s) == FH_SLAB_FREE)
		fb_violation(fb, "I/O on slab %llu after the core let it go",
			     (unsigned long long)s->ref.id);
	if (l->nr_io >= fb->cfg.qdepth ||
	    fb_chance(fb, lane->id, fb->cfg.p_again))
		return -EAGAIN;
	if (donor_is(&fb->donor[s->donor].unreachable_until, fb) ||
	    l->way[s->donor].broken) {
		write_failed(fb, io);
		return -ENOTCONN;
	}
	if (io->op == DCM_IO_READ && !fb->cfg.direct)
		check_buffers(fb, l, io);
	q = &l->io[l->nr_io++];
	q->io = io;
	q->due = READ_ONCE(fb->tick) +
		 (fb->cfg.max_delay ?
			  fb_random(&l->rng) % (fb->cfg.max_delay + 1) :
			  0);
	for (i = 0; i < nr; i++)
		busy_set(fb, lane->id, s, io, first + i, i);
	if (io->op == DCM_IO_WRITE) {
		write_begin(fb, s, q, first, nr);
		write_posted(fb, q, s, first, nr);
	}
	io->posted_ns = READ_ONCE(fb->tick) * 1000 + 1;
	__atomic_fetch_add(&fb->nr_posts, 1, __ATOMIC_RELAXED);
	return 0;
}

void fb_io_flush(struct dcm_lane *lane)
{
	(void)lane;
}

/* Will the core notice wrong bytes of this page? */
static bool page_is_known(const struct fake_backend *fb,
			  const struct fb_slab *s, u32 page)
{
	const struct dcm_extent *e = &fb->vm->extent[s->extent];

	if (fb->cfg.seal)
		return true;
	return e->sum && e->sum[page] && (e->used & (e->used - 1)) &&
	       dcm_tunable_get(fb->vm, DCM_T_sums);
}

/* Bytes that are not the page's: torn, older, or of another page. */
static u64 wrong_bytes(struct fake_backend *fb, u32 lane, u64 right)
{
	switch (fb_random(&fb->lane[lane].rng) % 3) {
	case 0:
		return FH_TORN;
	case 1:
		return right ^ 1ull << FH_GFN_SHIFT;
	default:
		return right ^ 1ull << FH_SEQ_SHIFT;
	}
}

static void read_end(struct fake_backend *fb, u32 lane, struct fb_slab *s,
		     struct dcm_io *io, u32 first, u32 nr)
{
	u64 at;
	u32 i;

	__atomic_fetch_add(&fb->nr_reads, 1, __ATOMIC_RELAXED);
	if (fb->cfg.direct) {
		io->data = fb_ptr(fb, s->base + first);
		return;
	}
	at = fb_index(fb, io->data);
	for (i = 0; i < nr; i++) {
		bool hole = masked(fb, lane, io, i);

		fb->store[at + i] = hole ? FH_TORN :
					   fb->store[s->base + first + i];
		if (hole || spreads(io) || !page_is_known(fb, s, first + i))
			continue;
		if (fb->astray)
			fb->astray--;
		else if (fb->cfg.p_wrong &&
			 fb_chance(fb, lane, fb->cfg.p_wrong))
			s->sure[first + i] = false;
		else
			continue;
		fb->store[at + i] = wrong_bytes(fb, lane, fb->store[at + i]);
		__atomic_fetch_add(&fb->nr_wrong, 1, __ATOMIC_RELAXED);
	}
}

/* A move may WRITE straight out of a mapped slab, and that slab may go. */
static bool source_gone(struct fake_backend *fb, const struct dcm_io *io)
{
	u64 at = fb_index(fb, io->data), first = fb->slab[0].base;

	return io->op == DCM_IO_WRITE && at >= first &&
	       fb_slab_state_of(
		       &fb->slab[(at - first) / fb->cfg.extent_pages]) !=
		       FH_SLAB_LIVE;
}

/* Is it a WRITE of what a move has read? */
static bool moves(const struct dcm_io *io)
{
	return io->op == DCM_IO_WRITE && io->kind == DCM_IO_MOVE;
}

static void write_end(struct fake_backend *fb, struct fb_slab *s,
		      struct fb_io *q, u32 lane, u32 first, u32 nr)
{
	struct fb_way *way = &fb->lane[lane].way[s->donor];
	u64 at = fb_index(fb, q->io->data);
	u32 i;

	__atomic_fetch_add(&fb->nr_writes, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		u64 *p = &fb->store[s->base + first + i];

		if (fb->store[at + i] != q->src[i] && !source_gone(fb, q->io))
			fb_violation(
				fb,
				"WRITE: source of page %u changed in flight to %#llx",
				s->extent * fb->cfg.extent_pages + first + i,
				(unsigned long long)fb->store[at + i]);
		if (fb_slab_state_of(s) != FH_SLAB_LIVE)
			continue;
		s->sure[first + i] = !q->io->status &&
				     write_sure(fb, q, s, first, i);
		if (!q->io->status)
			*p = q->src[i];
		else if (q->io->status == -EIO)
			*p = q->old[i];
		else
			switch (fb_random(&fb->lane[lane].rng) % 6) {
			case 0:
				*p = q->src[i];
				break;
			case 1:
				*p = q->old[i];
				break;
			case 2 ... 4:
				*p = q->old[i];
				/* no other error lets it happen later */
				if (q->io->status == -ENOTCONN)
					late_add(fb, way, s, first + i,
						 q->src[i]);
				break;
			default:
				break; /* torn */
			}
	}
}

static void complete(struct fake_backend *fb, u32 lane, struct fb_io *q)
{
	struct dcm_io *io = q->io;
	struct fb_slab *s = fb_slab_of(fb, io->slab);
	u32 first = (u32)(io->offset / DCM_PAGE_SIZE), i;
	u32 nr = io->bytes / DCM_PAGE_SIZE;

	io->status = 0;
	if (fb_slab_state_of(s) == FH_SLAB_DEAD)
		io->status = fb_random(&fb->lane[lane].rng) & 1 ? -ESTALE :
								  -ENOTCONN;
	else if (donor_is(&fb->donor[s->donor].unreachable_until, fb) ||
		 fb->lane[lane].way[s->donor].broken)
		io->status = -ENOTCONN;
	else if (source_gone(fb, io) || (fb->cfg.direct && moves(io) &&
		  fb_chance(fb, lane, fb->cfg.p_error)))
		io->status = -EFAULT;
	else if (fb_chance(fb, lane, fb->cfg.p_error))
		/* a slab that is ours can be read: -EIO is for WRITEs only */
		io->status = fb_random(&fb->lane[lane].rng) % 8 == 0 ?
				     -ENOTCONN :
			     io->op == DCM_IO_WRITE ? -EIO :
						      0;
	if (io->status)
		__atomic_fetch_add(&fb->nr_errors, 1, __ATOMIC_RELAXED);
	if (io->status == -ENOTCONN)
		fb_way_break(fb, lane, s->donor);
	if (io->op == DCM_IO_WRITE) {
		write_end(fb, s, q, lane, first, nr);
		if (io->status)
			write_failed(fb, io);
	} else if (!io->status) {
		read_end(fb, lane, s, io, first, nr);
	}
	for (i = 0; i < nr; i++)
		busy_clear(fb, lane, s, io, first + i, i);
}

/* However much the core has to do, time passes: it may wait for a donor. */
static void poll_passes(struct fake_backend *fb)
{
	if (fb->cfg.threads) {
		fb_advance(fb, 20);
		return;
	}
	if (fb->polled_at != fb->tick)
		fb->polls = 0;
	fb->polled_at = fb->tick;
	if (++fb->polls > POLLS_MAX)
		fb_advance(fb, 1);
}

int fb_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct fake_backend *fb = lane->priv;
	struct fb_lane *l = &fb->lane[lane->id];
	struct dcm_io **tail = done;
	u32 start, i, n;
	int got = 0;

	fb_nest(fb, lane->id);
	*done = NULL;
	poll_passes(fb);
	ways_step(fb, lane);
	n = l->nr_io;
	start = n ? (u32)(fb_random(&l->rng) % n) : 0;
	for (i = 0; i < n && got < max; i++) {
		struct fb_io *q = &l->io[(start + i) % n];
		struct fb_slab *s = fb_slab_of(fb, q->io->slab);

		if (!l->way[s->donor].broken &&
		    (q->due > READ_ONCE(fb->tick) ||
		     donor_is(&fb->donor[s->donor].silent_until, fb)))
			continue;
		complete(fb, lane->id, q);
		q->io->next = NULL;
		*tail = q->io;
		tail = &q->io->next;
		q->io = NULL;
		got++;
	}
	for (i = 0; i < l->nr_io;) {
		if (l->io[i].io)
			i++;
		else
			l->io[i] = l->io[--l->nr_io];
	}
	return got;
}

/* A frame is given back: no WRITE of any lane may still read it. */
void fb_io_uses_frame(struct fake_backend *fb, u32 frame, u32 nr)
{
	u32 i, j;

	if (fb->cfg.threads)
		return; /* others' queues are theirs; POISON tells as well */
	for (i = 0; i < fb->cfg.nr_lanes; i++) {
		for (j = 0; j < fb->lane[i].nr_io; j++) {
			const struct dcm_io *io = fb->lane[i].io[j].io;
			u64 at;

			if (!io || io->op != DCM_IO_WRITE)
				continue;
			at = fb_index(fb, io->data);
			if (at < frame + nr &&
			    frame < at + io->bytes / DCM_PAGE_SIZE)
				fb_violation(fb,
					     "frame %u given back while a WRITE reads it",
					     frame);
		}
	}
}
