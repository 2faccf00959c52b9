// SPDX-License-Identifier: GPL-2.0-only
/*
 * fetch.c - bringing a block in: frames, the READ, the landing
 *
 * A fetch takes frames that are already free (dcm-tc18, 3.3), makes the block
 * BUSY, and posts one READ from the first to the last page that a donor holds;
 * pages never written need no network and are made zero. The block is mapped
 * as a whole. Pages that the access will write, or that were written last time
 * (PD_WROTE), are mapped writable and count as dirty; the first write to any
 * other page is a fault. This cheap prediction saves most of those faults.
 * Pages dirty by prediction alone (PD_GUESSED) are mapped read-only now and then, so
 * that a page no longer written becomes clean again: the less often, the more fetched
 * pages of the same 2 MiB are written (evict.c). The first write of a new page
 * (PD_FRESH) predicts little: it counts as a write as often as they are.
 *
 * A block that comes back soon after its eviction goes to Proactive (ghost.c).
 *
 * A READ that fails is posted to another slot of the pages' set at once. When
 * none is left it is posted again, later and later, until it works or all those
 * slabs are declared gone; then the pages are LOST, never zero. A READ that brings
 * wrong bytes takes its slot out of the pages' set (wrong.c), and goes on likewise. A
 * block that no access has asked for (ahead.c) is given up when no slot is left; an
 * access that has come to wait for it meanwhile faults again.
 *
 * States of a fetch: FREE -> IO -> FREE, IO <-> RETRY.
 */
#include "internal.h"

#define RETRY_MIN_NS (200ull * 1000)
#define RETRY_MAX_NS (50ull * 1000 * 1000)

/* Take frames for @nr pages out of the budget; false: it has no room. */
bool dcm_frames_take(struct dcm_vm *vm, u32 nr)
{
	if (atomic64_add_return(nr, &vm->direct) <= (s64)READ_ONCE(vm->budget))
		return true;
	atomic64_sub(nr, &vm->direct);
	return false;
}

void dcm_frames_put(struct dcm_vm *vm, u32 nr)
{
	atomic64_sub(nr, &vm->direct);
}

/* Moves use the buffers of the first fetches, so fetches ahead take the last ones. */
static struct dcm_fetch *fetch_alloc(struct dcm_lane *lane, bool ahead)
{
	unsigned int i = ahead ? DCM_FETCHES_MAX - DCM_AHEAD_MAX : 0;

	static_assert(DCM_MOVES_MAX + DCM_AHEAD_MAX < DCM_FETCHES_MAX,
		      "no buffer has two uses");
	for (; i < DCM_FETCHES_MAX; i++) {
		if (lane->fetch[i].state == DCM_FETCH_FREE) {
			if (ahead)
				lane->nr_ahead++;
			else
				lane->nr_fetch++;
			return &lane->fetch[i];
		}
	}
	return NULL;
}

static void fetch_free(struct dcm_lane *lane, struct dcm_fetch *f)
{
	f->state = DCM_FETCH_FREE;
	if (unlikely(f->ahead))
		lane->nr_ahead--;
	else
		lane->nr_fetch--;
}

/* Does an access wait for the block? Then it is known which page it needs. */
static bool fetch_asked(const struct dcm_fetch *f)
{
	return !f->pull && !f->ahead;
}

/**
 * dcm_fetch_begin() - set up a fetch
 * @lane: caller's lane
 * @head: block: locked, NotDirect, not BUSY, uniform (no LOST page, one slot);
 *	its frames are taken
 * @order: its size
 * @page: the page asked for; %DCM_NIL: no access has asked
 * @what: what for
 * @sets: where its pages are
 *
 * Return: the fetch, and the block BUSY; or %NULL when too many are in flight.
 */
struct dcm_fetch *dcm_fetch_begin(struct dcm_lane *lane, u32 head,
				  unsigned int order, u32 page,
				  enum dcm_fetch_for what, struct dcm_sets sets)
{
	struct dcm_vm *vm = lane->vm;
	bool ahead = what == DCM_FOR_AHEAD || what == DCM_FOR_STREAM;
	struct dcm_fetch *f = fetch_alloc(lane, ahead);
	bool write = what == DCM_FOR_WRITE;
	u16 remote = sets.some, wrote;
	unsigned int first, last;

	if (!f)
		return NULL;
	pd_set(pd_of(vm, head), PD_BUSY);
	wrote = dcm_block_flag(vm, head, order, PD_WROTE);
	f->gfn = head;
	f->order = (u8)order;
	f->zero = page_mask(order) & (u16)~remote;
	f->writable = wrote | f->zero;
	f->fault_page = DCM_BLOCK_MAX;
	if (page != DCM_NIL) {
		f->fault_page = (u8)(page - head);
		if (write)
			f->writable |= (u16)(1u << f->fault_page);
	}
	f->hidden = 0;
	f->write = write;
	f->pull = what == DCM_FOR_PULL;
	f->ahead = ahead;
	f->stream = what == DCM_FOR_STREAM;
	f->again = false;
	f->sample = false;
	f->hide = 0;
	f->tries = 0;
	f->failed = false;
	f->reread = false;
	f->at = sets.at;
	f->tried = 0;
	f->slot = 0;
	f->first = 0;
	f->nr = 0;
	f->t_fault = vm->ops->now_ns();
	f->t_read = 0;
	f->t_there = 0;
	if (remote) {
		first = ffs_u32(remote) - 1;
		last = (unsigned int)ilog2((u64)remote);
		f->first = (u8)first;
		f->nr = (u8)(last - first + 1);
		if (fetch_asked(f))
			f->again = dcm_ghost_back(lane, page, f->nr);
		f->sample = f->nr > 1 && (fetch_asked(f) || f->stream) &&
			    dcm_tune(vm, DCM_T_elastic) &&
			    dcm_chance(lane, dcm_eblk_sample_bp(vm, head));
		f->hide = dcm_reuse_mask(vm, head, order, page);
		f->hide &= (u16)~f->zero;
		if (unlikely(f->hide))
			f->hide = f->pull ? 0 : dcm_reuse_hide(lane, f->hide);
	}
	f->state = DCM_FETCH_IO;
	return f;
}

/* Give up a fetch that no access has asked for: the block stays NotDirect. */
static void fetch_drop(struct dcm_lane *lane, struct dcm_fetch *f)
{
	unsigned int order = f->order;
	u32 gfn = f->gfn;

	if (f->state == DCM_FETCH_RETRY)
		lane->nr_retry--;
	if (!f->stream)
		dcm_count(lane, DCM_C_AHEAD_DROPPED, f->nr);
	dcm_frames_put(lane->vm, 1u << order);
	fetch_free(lane, f);
	pd_lock(pd_of(lane->vm, gfn));
	dcm_block_unbusy(lane, gfn, order);
}

/* Try again later. @full: no READ failed: a queue is full, or memory is short. */
static void fetch_retry_later(struct dcm_lane *lane, struct dcm_fetch *f,
			      bool full)
{
	u64 wait = RETRY_MIN_NS << min((unsigned int)f->tries, 8u);

	if (unlikely(f->ahead) && !full) {
		fetch_drop(lane, f);
		return;
	}
	f->tries = (u16)min(f->tries + 1u, 1000u);
	f->again_ns = lane->vm->ops->now_ns() + min(wait, (u64)RETRY_MAX_NS);
	if (f->state != DCM_FETCH_RETRY) {
		f->state = DCM_FETCH_RETRY;
		lane->nr_retry++;
	}
}

/*
 * No slot has the whole block any more. Pages that no slot has are lost, and the
 * access to them must stop; others are fetched anew.
 */
static void fetch_lost(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e = extent_of(vm, f->gfn);
	u32 nr = 1u << f->order, gfn = f->gfn, i, lost = 0;
	u8 gone = READ_ONCE(e->gone);

	for (i = 0; i < nr; i++) {
		struct dcm_pd *pd = pd_of(vm, gfn + i);
		u8 at = pd_at(pd_word(pd));

		/* Other slots may have some pages, if not the whole block. */
		if (at && !(at & (u8)~gone)) {
			pd_assign(pd, PD_AT, PD_LOST);
			lost++;
		}
	}
	atomic64_add(lost, &e->lost_pages);
	dcm_count(lane, DCM_C_LOST_PAGES, lost);
	dcm_frames_put(vm, nr);
	fetch_free(lane, f);
	pd_lock(pd_of(vm, gfn));
	pd_set(pd_of(vm, gfn), PD_WAITER);
	dcm_block_unbusy(lane, gfn, f->order);
}

/* Slots that the READ could be posted to now. */
static u8 fetch_slots(const struct dcm_lane *lane, const struct dcm_fetch *f)
{
	return f->at &
	       (u8) ~(f->tried | READ_ONCE(extent_of(lane->vm, f->gfn)->gone));
}

/* Post the READ to the best slot that takes it. */
static void fetch_post(struct dcm_lane *lane, struct dcm_fetch *f)
{
	int err, slot;

	f->io.op = DCM_IO_READ;
	f->io.bytes = f->nr * DCM_PAGE_SIZE;
	f->io.owner = f;
	f->io.kind = DCM_IO_FETCH;
	/* A first READ is posted right after the fault: save a look at the clock. */
	f->io.posted_ns = f->tries || f->tried ? 0 : f->t_fault;
	dcm_sums_soon(lane->vm, f->gfn + f->first);
	for (;;) {
		slot = dcm_slot_pick(lane, f->gfn, f->at & (u8)~f->tried);
		if (unlikely(slot < 0))
			break;
		f->slot = (u8)slot;
		f->io.data = f->buf;
		err = dcm_slot_io(lane, f->gfn + f->first, f->slot, &f->io);
		if (likely(!err)) {
			if (f->state == DCM_FETCH_RETRY)
				lane->nr_retry--;
			f->state = DCM_FETCH_IO;
			return;
		}
		if (err == -EAGAIN) {
			fetch_retry_later(lane, f, true);
			return;
		}
		f->failed = true;
		f->tried |= (u8)(1u << slot);
		if (fetch_slots(lane, f))
			dcm_count(lane, DCM_C_FAILOVERS, 1);
	}
	f->tried = 0;
	/* A slot that was lost meanwhile may be in use again, for another slab. */
	f->at &= dcm_block_at(lane->vm, f->gfn, f->order).at;
	if (fetch_slots(lane, f)) {
		fetch_retry_later(lane, f, false);
		return;
	}
	if (f->state == DCM_FETCH_RETRY)
		lane->nr_retry--;
	fetch_lost(lane, f);
}

static void fetch_land(struct dcm_lane *lane, struct dcm_fetch *f);

/*
 * dcm_fetch_start() - post the READ, or land at once where none is needed
 *
 * @f may be free, and in use again, when this returns.
 */
void dcm_fetch_start(struct dcm_lane *lane, struct dcm_fetch *f)
{
	if (f->nr)
		fetch_post(lane, f);
	else
		fetch_land(lane, f);
}

static void fetch_count(struct dcm_lane *lane, const struct dcm_fetch *f)
{
	if (f->nr) {
		dcm_count(lane, DCM_C_FETCHES, 1);
		dcm_count(lane, DCM_C_FETCHED_PAGES, f->nr);
		if (f->fault_page < DCM_BLOCK_MAX && f->nr > 1)
			dcm_count(lane, DCM_C_PREFETCHED, f->nr - 1u);
		if (unlikely(f->stream)) {
			dcm_count(lane, DCM_C_STREAM_PAGES, f->nr);
			dcm_count(lane, DCM_C_PREFETCHED, f->nr);
		} else if (unlikely(f->ahead)) {
			dcm_count(lane, DCM_C_AHEAD_PAGES, f->nr);
		}
	}
	dcm_count(lane, DCM_C_MIX_4K + f->order, 1u << f->order);
}

/* Set page @i's flags for its new residency. */
static void page_landed(struct dcm_pd *pd, const struct dcm_fetch *f, u32 i)
{
	bool asked = i == f->fault_page;
	u32 set = 0;

	if (f->writable & (1u << i))
		set |= PD_DIRTY | (asked && f->write ? 0 : PD_GUESSED);
	if (f->zero & (1u << i))
		set |= PD_FRESH;
	if (asked)
		set |= PD_TOUCHED | PD_OBSERVED | (f->again ? PD_AGAIN : 0);
	else if (!(f->zero & (1u << i)) && (!f->ahead || f->stream))
		set |= PD_PREFETCHED;
	/* A pulled page leaves its slab: the direct copy is the only one. */
	if (f->pull && (pd_word(pd) & PD_AT))
		pd_assign(pd, PD_RESIDENCY | PD_AT, set | PD_DIRTY);
	else
		pd_assign(pd, PD_RESIDENCY, set);
}

/* Tell the sample (reuse.c) of its page that came in mapped, but was not asked for. */
static void pages_unwatched(struct dcm_lane *lane, const struct dcm_fetch *f)
{
	u16 page = dcm_reuse_mask(lane->vm, f->gfn, f->order,
				  f->gfn + f->fault_page);

	if (unlikely(page & (u16)~f->hidden))
		dcm_reuse_mapped(lane, f->gfn + ffs_u32(page) - 1,
				 page & f->zero);
}

static u64 ns_between(u64 from, u64 to)
{
	return to > from ? to - from : 0;
}

/*
 * Count where the access that asked for a block lost its time: before the READ, at the
 * donor, or here. If the pager can't tell when the block was mapped, take the time of
 * the last landing that it could.
 */
static void fetch_waited(struct dcm_lane *lane, const struct dcm_fetch *f)
{
	u64 sent = f->io.posted_ns, there = f->t_fault;

	if (!fetch_asked(f))
		return;
	if (f->nr) {
		there = f->t_read;
		if (unlikely(f->failed || !sent)) {
			dcm_count(lane, DCM_C_WAIT_RETRY_NS,
				  ns_between(f->t_fault, there));
		} else {
			dcm_count(lane, DCM_C_WAIT_QUEUE_NS,
				  ns_between(f->t_fault, sent));
			dcm_count(lane, DCM_C_WAIT_DONOR_NS,
				  ns_between(sent, there));
		}
	}
	if (f->t_there != DCM_TIME_NONE)
		lane->landing_ns = ns_between(there, f->t_there);
	dcm_count(lane, DCM_C_WAIT_HERE_NS, lane->landing_ns);
}

/* The bytes have arrived: map the block and queue it. */
static void fetch_land(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcm_vm *vm = lane->vm;
	u32 head = f->gfn, nr = 1u << f->order, i;
	struct dcm_pd *pd = pd_of(vm, head);
	unsigned int order = f->order;

	if (vm->ops->install(lane, f)) {
		f->failed = true;
		fetch_retry_later(lane, f, false);
		return;
	}
	fetch_count(lane, f);
	if (!f->t_there)
		f->t_there = vm->ops->now_ns();
	if (f->t_there != DCM_TIME_NONE && likely(!f->ahead))
		dcm_hist_add(&lane->hist[DCM_H_FAULT], f->t_there - f->t_fault);
	fetch_waited(lane, f);
	for (i = 0; i < nr; i++)
		page_landed(&pd[i], f, i);
	pages_unwatched(lane, f);
	pd_lock(pd);
	dcm_state_set(lane, head, DCM_ACTIVE);
	if (f->again ||
	    (fetch_asked(f) && dcm_chance(lane, dcm_tune(vm, DCM_T_epsilon)))) {
		dcm_state_set(lane, head, DCM_PROACTIVE);
		dcm_count(lane, DCM_C_PROMOTED, 1);
	}
	fetch_free(lane, f);
	if (fetch_asked(f))
		head = dcm_eblk_stretch(lane, head, &order);
	dcm_queue_in(lane, head, order);
	dcm_block_unbusy(lane, head, order);
}

/* The READ failed or brought wrong bytes: try another slot, or the same one later. */
static void fetch_failed(struct dcm_lane *lane, struct dcm_fetch *f)
{
	f->failed = true;
	dcm_count(lane, DCM_C_FETCH_RETRIES, 1);
	if (fetch_slots(lane, f)) {
		dcm_count(lane, DCM_C_FAILOVERS, 1);
		fetch_post(lane, f);
		return;
	}
	f->tried = 0;
	fetch_retry_later(lane, f, false);
}

/* Pages for which the READ has brought wrong bytes. */
static u16 fetch_wrong(struct dcm_lane *lane, const struct dcm_fetch *f)
{
	u16 read = (u16)(((1u << f->nr) - 1) << f->first) & (u16)~f->zero;

	return (u16)(dcm_pages_wrong(lane, f->gfn + f->first, &f->io,
				    read >> f->first, false)
		     << f->first);
}

/* The READ of @f completed. */
void dcm_fetch_io_done(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcm_vm *vm = lane->vm;
	u32 gfn = f->gfn;
	u8 slot = f->slot;
	u16 wrong;

	if (unlikely(f->io.status)) {
		dcm_slot_io_end(vm, gfn, slot);
		f->tried |= (u8)(1u << slot);
		fetch_failed(lane, f);
		return;
	}
	wrong = fetch_wrong(lane, f);
	if (unlikely(wrong && !f->reread) &&
	    dcm_wrong_again(lane, gfn, wrong, slot)) {
		f->failed = true;
		f->reread = true;
		dcm_slot_io_end(vm, gfn, slot);
		dcm_count(lane, DCM_C_FETCH_RETRIES, 1);
		fetch_post(lane, f);
		return;
	}
	if (unlikely(wrong)) {
		dcm_wrong_strike(lane, gfn, wrong, slot);
		dcm_slot_io_end(vm, gfn, slot);
		f->at = dcm_block_at(vm, gfn, f->order).at;
		if (f->at)
			fetch_failed(lane, f);
		else
			fetch_lost(lane, f);
		return;
	}
	f->t_read = vm->ops->now_ns();
	if (f->io.posted_ns && f->t_read > f->io.posted_ns)
		dcm_hist_add(&lane->hist[DCM_H_FETCH],
			     f->t_read - f->io.posted_ns);
	fetch_land(lane, f);
	/* Only now: until here the bytes may have been read in place, in the slab. */
	dcm_slot_io_end(vm, gfn, slot);
}

/* Post again the fetches that are due. Returns their number. */
unsigned int dcm_fetch_retry(struct dcm_lane *lane)
{
	unsigned int i, n = 0;
	u64 now;

	if (likely(!lane->nr_retry))
		return 0;
	now = lane->vm->ops->now_ns();
	for (i = 0; i < DCM_FETCHES_MAX; i++) {
		struct dcm_fetch *f = &lane->fetch[i];

		if (f->state != DCM_FETCH_RETRY || now < f->again_ns)
			continue;
		if (f->nr) {
			fetch_post(lane, f);
		} else {
			lane->nr_retry--;
			f->state = DCM_FETCH_IO;
			fetch_land(lane, f);
		}
		n++;
	}
	return n;
}
