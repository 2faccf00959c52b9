// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_donor.c - slabs, donors, and the transport between, all hostile
 *
 * An I/O completes some ticks after it was posted, in any order, unless its
 * donor is silent (then later) or dead (then with an error). While a WRITE is
 * in flight the slab's pages are torn; a WRITE that ends in -ENOTCONN may have
 * happened, not happened, or have left them torn, page by page, or it happens
 * later. A lane has a connection to each donor. It breaks as a whole: all that
 * is in flight fails, and what it brought may reach the slab at any time until
 * the donor welcomes the lane's next one. Checked:
 * never two I/Os on one slab page, the right offset, a stable source, a slab
 * that is still the core's, one landing buffer for one READ.
 */
#include "fake_home.h"
#include "fake_priv.h"

#include <stdio.h>

struct fh_slab *fh_slab_of(struct fake_home *fh, const struct dcm_slab_ref *ref)
{
	struct fh_slab *s;

	if (!ref)
		fh_violation(fh, "I/O without a slab");
	s = container_of((struct dcm_slab_ref *)(uintptr_t)ref, struct fh_slab,
			 ref);
	if (s < fh->slab || s >= fh->slab + fh->cfg.nr_slabs)
		fh_violation(fh, "I/O on a slab that does not exist");
	return s;
}

static u32 slab_state(const struct fh_slab *s)
{
	return __atomic_load_n(&s->state, __ATOMIC_RELAXED);
}

static void slab_state_set(struct fake_home *fh, struct fh_slab *s, u32 state)
{
	pthread_mutex_lock(&fh->late_lock);
	__atomic_store_n(&s->state, state, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fh->late_lock);
}

static bool donor_is(const u64 *until, const struct fake_home *fh)
{
	return __atomic_load_n(until, __ATOMIC_RELAXED) > READ_ONCE(fh->tick);
}

/* A page of a READ whose bytes the core will not look at: a hole. */
static bool masked(const struct fake_home *fh, u32 lane,
		   const struct dcm_io *io, u32 page)
{
	const struct dcm_fetch *f = fh->vm->lane[lane].fetch;

	if (io->op != DCM_IO_READ || (uintptr_t)io < (uintptr_t)f ||
	    (uintptr_t)io >= (uintptr_t)(f + DCM_FETCHES_MAX))
		return false;
	f = container_of(io, struct dcm_fetch, io);
	return f->zero & (1u << (f->first + page));
}

static void busy_set(struct fake_home *fh, u32 lane, struct fh_slab *s,
		     const struct dcm_io *io, u32 p, u32 i)
{
	if (masked(fh, lane, io, i))
		return;
	if (__atomic_exchange_n(&s->busy[p], 1, __ATOMIC_RELAXED))
		fh_violation(fh,
			     "two I/Os in flight on one page: %s, second is a %s",
			     fh_page_text(fh,
					  s->extent * fh->cfg.extent_pages + p),
			     io->op == DCM_IO_READ ? "READ" : "WRITE");
}

static void busy_clear(struct fake_home *fh, u32 lane, struct fh_slab *s,
		       const struct dcm_io *io, u32 p, u32 i)
{
	if (!masked(fh, lane, io, i))
		__atomic_store_n(&s->busy[p], 0, __ATOMIC_RELAXED);
}

static void write_begin(struct fake_home *fh, struct fh_slab *s,
			struct fh_io *q, u32 first, u32 nr)
{
	u64 at = fh_index(fh, q->io->data);
	u32 i;

	for (i = 0; i < nr; i++) {
		u64 c = fh->store[at + i];
		u32 gfn = s->extent * fh->cfg.extent_pages + first + i;

		if (c && c >> FH_GFN_SHIFT != gfn)
			fh_violation(fh,
				     "WRITE of %#llx to the place of page %u",
				     (unsigned long long)c, gfn);
		if (!c)
			__atomic_fetch_add(&fh->nr_zero_written, 1,
					   __ATOMIC_RELAXED);
		q->src[i] = c;
		q->old[i] = fh->store[s->base + first + i];
		fh->store[s->base + first + i] = FH_TORN;
	}
}

/* ---- connections ---- */

static void late_add(const struct fake_home *fh, struct fh_way *way,
		     struct fh_slab *s, u32 page, u64 content)
{
	if (way->nr_late == FH_LATE_MAX)
		fh_violation(fh, "more writes in doubt than were in flight");
	way->late[way->nr_late++] =
		(struct fh_late){ .slab = s,
				  .lent = READ_ONCE(s->lent),
				  .page = page,
				  .content = content };
}

/* The bytes reach the slab, if it is still the one they were sent to. */
static void late_land(struct fake_home *fh, struct fh_way *way, u32 i)
{
	const struct fh_late *l = &way->late[i];

	pthread_mutex_lock(&fh->late_lock);
	if (slab_state(l->slab) == FH_SLAB_LIVE && l->slab->lent == l->lent) {
		fh->store[l->slab->base + l->page] = l->content;
		fh->nr_late++;
	}
	pthread_mutex_unlock(&fh->late_lock);
	way->late[i] = way->late[--way->nr_late];
}

void fh_way_break(struct fake_home *fh, u32 lane, u32 donor)
{
	struct fh_lane *l = &fh->lane[lane];
	struct fh_way *way = &l->way[donor];

	if (way->broken)
		return;
	way->broken = true;
	/* mostly at once; now and then long after others have written again */
	way->welcome_at =
		READ_ONCE(fh->tick) +
		fh_random(&l->rng) % (fh_random(&l->rng) % 2 ? 400 : 20000);
}

static bool in_flight(struct fake_home *fh, const struct fh_lane *l, u32 donor)
{
	u32 i;

	for (i = 0; i < l->nr_io; i++)
		if (l->io[i].io &&
		    fh_slab_of(fh, l->io[i].io->slab)->donor == donor)
			return true;
	return false;
}

/* Time passes: what is late arrives, in part, and donors welcome lanes again. */
static void ways_step(struct fake_home *fh, struct dcm_lane *lane)
{
	struct fh_lane *l = &fh->lane[lane->id];
	u32 d, i;

	for (d = 0; d < fh->cfg.nr_donors; d++) {
		struct fh_way *way = &l->way[d];

		for (i = 0; i < way->nr_late;)
			if (fh_random(&l->rng) % 256)
				i++;
			else
				late_land(fh, way, i);
		if (!way->broken || READ_ONCE(fh->tick) < way->welcome_at ||
		    in_flight(fh, l, d) ||
		    donor_is(&fh->donor[d].unreachable_until, fh) ||
		    donor_is(&fh->donor[d].silent_until, fh))
			continue;
		/* what is left is done or dropped before the welcome */
		while (way->nr_late)
			if (fh_random(&l->rng) % 2)
				late_land(fh, way, way->nr_late - 1);
			else
				way->nr_late--;
		way->broken = false;
		dcm_lane_fenced(lane, d);
	}
}

static void check_buffers(struct fake_home *fh, struct fh_lane *l,
			  const struct dcm_io *io)
{
	u64 at = fh_index(fh, io->data), b;
	u32 i;

	for (i = 0; i < l->nr_io; i++) {
		const struct dcm_io *o = l->io[i].io;

		if (o->op != DCM_IO_READ)
			continue;
		b = fh_index(fh, o->data);
		if (at < b + o->bytes / DCM_PAGE_SIZE &&
		    b < at + io->bytes / DCM_PAGE_SIZE)
			fh_violation(fh, "two READs land in one buffer");
	}
}

int fh_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct fake_home *fh = lane->priv;
	struct fh_lane *l = &fh->lane[lane->id];
	struct fh_slab *s = fh_slab_of(fh, io->slab);
	u32 first = (u32)(io->offset / DCM_PAGE_SIZE), i;
	u32 nr = io->bytes / DCM_PAGE_SIZE;
	struct fh_io *q;

	fh_nest(fh, lane->id);
	ways_step(fh, lane);
	if (io->offset % DCM_PAGE_SIZE || io->bytes % DCM_PAGE_SIZE || !nr ||
	    nr > DCM_BLOCK_MAX || io->offset + io->bytes > s->ref.bytes)
		fh_violation(fh, "I/O at %#llx+%u of a slab of %#llx",
			     (unsigned long long)io->offset, io->bytes,
			     (unsigned long long)s->ref.bytes);
	if (slab_state(s) == FH_SLAB_DETACHED || slab_state(s) == FH_SLAB_FREE)
		fh_violation(fh, "I/O on slab %llu after the core let it go",
			     (unsigned long long)s->ref.id);
	if (l->nr_io >= fh->cfg.qdepth ||
	    fh_chance(fh, lane->id, fh->cfg.p_again))
		return -EAGAIN;
	if (donor_is(&fh->donor[s->donor].unreachable_until, fh) ||
	    l->way[s->donor].broken)
		return -ENOTCONN;
	if (io->op == DCM_IO_READ && !fh->cfg.direct)
		check_buffers(fh, l, io);
	q = &l->io[l->nr_io++];
	q->io = io;
	q->due = READ_ONCE(fh->tick) +
		 (fh->cfg.max_delay ?
			  fh_random(&l->rng) % (fh->cfg.max_delay + 1) :
			  0);
	for (i = 0; i < nr; i++)
		busy_set(fh, lane->id, s, io, first + i, i);
	if (io->op == DCM_IO_WRITE)
		write_begin(fh, s, q, first, nr);
	io->posted_ns = READ_ONCE(fh->tick) * 1000 + 1;
	__atomic_fetch_add(&fh->nr_posts, 1, __ATOMIC_RELAXED);
	return 0;
}

void fh_io_flush(struct dcm_lane *lane)
{
	(void)lane;
}

static void read_end(struct fake_home *fh, u32 lane, struct fh_slab *s,
		     struct dcm_io *io, u32 first, u32 nr)
{
	u64 at;
	u32 i;

	__atomic_fetch_add(&fh->nr_reads, 1, __ATOMIC_RELAXED);
	if (fh->cfg.direct) {
		io->data = fh_ptr(fh, s->base + first);
		return;
	}
	at = fh_index(fh, io->data);
	for (i = 0; i < nr; i++)
		fh->store[at + i] = masked(fh, lane, io, i) ?
					    FH_TORN :
					    fh->store[s->base + first + i];
}

/* A move may WRITE straight out of a mapped slab, and that slab may go. */
static bool source_gone(struct fake_home *fh, const struct dcm_io *io)
{
	u64 at = fh_index(fh, io->data), first = fh->slab[0].base;

	return io->op == DCM_IO_WRITE && at >= first &&
	       slab_state(&fh->slab[(at - first) / fh->cfg.extent_pages]) !=
		       FH_SLAB_LIVE;
}

static void write_end(struct fake_home *fh, struct fh_slab *s, struct fh_io *q,
		      u32 lane, u32 first, u32 nr)
{
	struct fh_way *way = &fh->lane[lane].way[s->donor];
	u64 at = fh_index(fh, q->io->data);
	u32 i;

	__atomic_fetch_add(&fh->nr_writes, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		u64 *p = &fh->store[s->base + first + i];

		if (fh->store[at + i] != q->src[i] && !source_gone(fh, q->io))
			fh_violation(
				fh,
				"WRITE: source of page %u changed in flight to %#llx",
				s->extent * fh->cfg.extent_pages + first + i,
				(unsigned long long)fh->store[at + i]);
		if (slab_state(s) != FH_SLAB_LIVE)
			continue;
		if (!q->io->status)
			*p = q->src[i];
		else if (q->io->status == -EIO)
			*p = q->old[i];
		else
			switch (fh_random(&fh->lane[lane].rng) % 6) {
			case 0:
				*p = q->src[i];
				break;
			case 1:
				*p = q->old[i];
				break;
			case 2 ... 4:
				*p = q->old[i];
				late_add(fh, way, s, first + i, q->src[i]);
				break;
			default:
				break; /* torn */
			}
	}
}

static void complete(struct fake_home *fh, u32 lane, struct fh_io *q)
{
	struct dcm_io *io = q->io;
	struct fh_slab *s = fh_slab_of(fh, io->slab);
	u32 first = (u32)(io->offset / DCM_PAGE_SIZE), i;
	u32 nr = io->bytes / DCM_PAGE_SIZE;

	io->status = 0;
	if (slab_state(s) == FH_SLAB_DEAD)
		io->status = fh_random(&fh->lane[lane].rng) & 1 ? -ESTALE :
								  -ENOTCONN;
	else if (donor_is(&fh->donor[s->donor].unreachable_until, fh) ||
		 fh->lane[lane].way[s->donor].broken)
		io->status = -ENOTCONN;
	else if (source_gone(fh, io))
		io->status = -EFAULT;
	else if (fh_chance(fh, lane, fh->cfg.p_error))
		/* a slab that is ours can be read: -EIO is for WRITEs only */
		io->status = fh_random(&fh->lane[lane].rng) % 8 == 0 ?
				     -ENOTCONN :
			     io->op == DCM_IO_WRITE ? -EIO :
						      0;
	if (io->status)
		__atomic_fetch_add(&fh->nr_errors, 1, __ATOMIC_RELAXED);
	if (io->status == -ENOTCONN)
		fh_way_break(fh, lane, s->donor);
	if (io->op == DCM_IO_WRITE)
		write_end(fh, s, q, lane, first, nr);
	else if (!io->status)
		read_end(fh, lane, s, io, first, nr);
	for (i = 0; i < nr; i++)
		busy_clear(fh, lane, s, io, first + i, i);
}

int fh_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct fake_home *fh = lane->priv;
	struct fh_lane *l = &fh->lane[lane->id];
	struct dcm_io **tail = done;
	u32 start, i, n;
	int got = 0;

	fh_nest(fh, lane->id);
	*done = NULL;
	if (fh->cfg.threads)
		fh_advance(fh, 20);
	ways_step(fh, lane);
	n = l->nr_io;
	start = n ? (u32)(fh_random(&l->rng) % n) : 0;
	for (i = 0; i < n && got < max; i++) {
		struct fh_io *q = &l->io[(start + i) % n];
		struct fh_slab *s = fh_slab_of(fh, q->io->slab);

		if (!l->way[s->donor].broken &&
		    (q->due > READ_ONCE(fh->tick) ||
		     donor_is(&fh->donor[s->donor].silent_until, fh)))
			continue;
		complete(fh, lane->id, q);
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
void fh_io_uses_frame(struct fake_home *fh, u32 frame, u32 nr)
{
	u32 i, j;

	if (fh->cfg.threads)
		return; /* others' queues are theirs; POISON tells as well */
	for (i = 0; i < fh->cfg.nr_lanes; i++) {
		for (j = 0; j < fh->lane[i].nr_io; j++) {
			const struct dcm_io *io = fh->lane[i].io[j].io;
			u64 at;

			if (!io || io->op != DCM_IO_WRITE)
				continue;
			at = fh_index(fh, io->data);
			if (at < frame + nr &&
			    frame < at + io->bytes / DCM_PAGE_SIZE)
				fh_violation(fh,
					     "frame %u given back while a WRITE reads it",
					     frame);
		}
	}
}

/* ---- slabs ---- */

struct fh_slab *fh_slab_take(struct fake_home *fh, u64 pick, s32 not )
{
	u32 n, i, k;

	for (n = 0; n < fh->cfg.nr_slabs; n++) {
		struct fh_slab *s = &fh->slab[(pick + n) % fh->cfg.nr_slabs];

		if (slab_state(s) != FH_SLAB_FREE || fh->donor[s->donor].dead ||
		    (s32)s->donor == not )
			continue;
		for (k = 0, i = 0; i < fh->cfg.extent_pages; i++)
			k += s->busy[i];
		if (k)
			fh_violation(fh, "slab %u is free with I/O in flight",
				     (u32)s->ref.id);
		pthread_mutex_lock(&fh->late_lock);
		WRITE_ONCE(s->lent, s->lent + 1);
		pthread_mutex_unlock(&fh->late_lock);
		for (i = 0; i < fh->cfg.extent_pages; i++)
			fh->store[s->base + i] = FH_UNWRITTEN;
		return s;
	}
	return NULL;
}

static void slab_lend(struct fh_slab *s, u32 extent)
{
	s->extent = extent;
	__atomic_store_n(&s->state, FH_SLAB_LIVE, __ATOMIC_RELAXED);
}

unsigned int fh_give_slabs(struct fake_home *fh, u64 pick)
{
	unsigned int n = 0;
	u32 e;

	for (e = 0; e < fh->vm->nr_extents; e++) {
		struct fh_slab *s;
		int err;

		if (!__atomic_load_n(&fh->want[e], __ATOMIC_RELAXED))
			continue;
		s = fh_slab_take(fh, pick + e, -1);
		if (!s)
			continue;
		__atomic_store_n(&fh->want[e], false, __ATOMIC_RELAXED);
		slab_lend(s, e);
		err = dcm_extent_attach(fh->vm, e, &s->ref);
		if (err)
			__atomic_store_n(&s->state, FH_SLAB_FREE,
					 __ATOMIC_RELAXED);
		else
			n++;
	}
	return n;
}

/* The donor took it back, or died: content gone, errors from now on. */
void fh_slab_kill(struct fake_home *fh, struct fh_slab *s)
{
	u32 i;

	slab_state_set(fh, s, FH_SLAB_DEAD);
	if (!fh->cfg.threads) /* a lane may be reading it just now */
		for (i = 0; i < fh->cfg.extent_pages; i++)
			fh->store[s->base + i] = FH_GONE;
}

/* The core let go of it. Any I/O from now on is a violation, until lent. */
void fh_slab_free(struct fake_home *fh, struct fh_slab *s)
{
	u32 i;

	/* Nothing lands there from here on. */
	slab_state_set(fh, s, FH_SLAB_FREE);
	for (i = 0; i < fh->cfg.extent_pages; i++) {
		if (__atomic_load_n(&s->busy[i], __ATOMIC_RELAXED))
			fh_violation(fh,
				     "slab %u let go with I/O in flight on %u",
				     (u32)s->ref.id, i);
		fh->store[s->base + i] = FH_GONE;
	}
}

void fh_donor_kill(struct fake_home *fh, u32 donor)
{
	u32 i;

	fh->donor[donor].dead = true;
	for (i = 0; i < fh->cfg.nr_slabs; i++)
		if (fh->slab[i].donor == donor &&
		    slab_state(&fh->slab[i]) == FH_SLAB_LIVE)
			fh_slab_kill(fh, &fh->slab[i]);
}
