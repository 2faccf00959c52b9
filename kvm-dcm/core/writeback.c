// SPDX-License-Identifier: GPL-2.0-only
/*
 * writeback.c - write-back descriptors and their cancelled ownership
 *
 * A write-back belongs to the lane that chose the victim; only that lane looks
 * at it, at its next poll (dcm-tc18, 3.4, fig. 8). Block and descriptor point
 * at each other; a re-reference by any lane clears the block's pointer under
 * the block's lock, and the lane that owns the descriptor finds out when the
 * write is done. Normal ownership then makes the block NotDirect. Cancelled
 * ownership only gives the frame back, after the lane that cancelled it has
 * copied the bytes out (held).
 *
 *	page descriptor <-------> write-back descriptor     normal
 *	page descriptor           write-back descriptor     cancelled
 *	                <--------
 *
 * The paper lets a second write-back of the same page overtake the first on
 * the connection and trusts the queue pair to keep their order. Here lanes
 * have connections of their own, so a page of a cancelled write carries
 * PD_INFLIGHT, and is not written again, until that write has completed; and
 * longer if its connection broke (doubt.c). No transport needs to keep any
 * order.
 *
 * A copy is a write-back of a block that stays mapped: it is unmapped, mapped
 * again read-only with frames of its own, and BUSY until its pages are clean.
 * So its state can't change, and no access but a first write waits. Or it stays
 * writable (@open): then no access waits, and its pages are dirty all the time.
 *
 * Only runs of dirty, non-zero pages are written, one WRITE each, to every open
 * slot of the extent. When all WRITEs have ended, the slots on which none failed become
 * the pages' new set, in one step: no slot with older bytes stays in it.
 *
 * If WRITEs to some slots failed, the pages are thin. If a connection failed that is
 * back, or may be within thin_after, the block stays, Inactive and clean. If WRITEs to all
 * slots failed, the block becomes Inactive and dirty. In both cases it is written again
 * when it is next chosen as a victim; a page that is clean but thin is then written
 * only to the slots that lack it. Its bytes are direct, so dcm_extent_fill() need not
 * read them from a donor. (A sealed page is written to all slots: seal.c.)
 */
#include "internal.h"

static struct dcm_wb *wb_alloc(struct dcm_lane *lane)
{
	unsigned int limit = (unsigned int)dcm_tune(lane->vm, DCM_T_writebacks);
	unsigned int i;

	if (lane->nr_wb >= limit || !dcm_doubt_room(lane))
		return NULL;
	for (i = 0; i < DCM_WBS_MAX; i++) {
		if (!lane->wb[i].in_use) {
			lane->wb[i].in_use = true;
			lane->nr_wb++;
			return &lane->wb[i];
		}
	}
	return NULL;
}

static void wb_free(struct dcm_lane *lane, struct dcm_wb *wb)
{
	wb->in_use = false;
	lane->nr_wb--;
}

static u32 wb_index(const struct dcm_wb *wb)
{
	return (u32)(wb - wb->lane->wb);
}

/*
 * Make one WRITE to a slot for each run of these pages. A WRITE of zeroes only is
 * marked (@zero), as some transports need not send the bytes.
 */
static void wb_make_ios(struct dcm_wb *wb, u8 slot, u16 pages)
{
	struct dcm_lane *lane = wb->lane;
	bool sealed = READ_ONCE(lane->vm->sealed);
	unsigned int i = 0, n = 1u << wb->order;

	while (i < n) {
		struct dcm_io *io;
		unsigned int start;
		bool zero = true;

		if (!(pages & (1u << i))) {
			i++;
			continue;
		}
		start = i;
		for (; i < n && (pages & (1u << i)); i++)
			zero &= wb->zero >> i & 1;
		io = &wb->io[wb->nr_io++];
		io->op = DCM_IO_WRITE;
		io->zero = zero && !sealed;
		io->bytes = (i - start) * DCM_PAGE_SIZE;
		io->data = lane->vm->ops->frame_data(lane,
						     sealed ? wb->sealed :
							      wb->frame,
						     start);
		io->owner = wb;
		io->kind = DCM_IO_WRITE_BACK;
		io->posted_ns = 0;
		io->slot = slot;
		/* a page number; dcm_slot_io() makes it a slab offset */
		io->offset = wb->gfn + start;
	}
}

/*
 * Slots that have the pages, now that all WRITEs have ended. A slot that is lost just
 * now may be among them: dcm_extent_lost() takes it out of all sets, after
 * dcm_slots_end(). If no WRITE succeeded on any slot the result is 0, though some slots
 * needed none: their donors may have died without anyone noticing.
 */
static u8 wb_well(const struct dcm_vm *vm, const struct dcm_wb *wb)
{
	u8 well = wb->targets &
		  (u8) ~(wb->bad | READ_ONCE(extent_of(vm, wb->gfn)->gone));

	return well & wb->written ? well : 0;
}

/* The slots @well now have the bytes in @wb's frame: make them the pages' set. */
static void pages_written(struct dcm_lane *lane, const struct dcm_wb *wb,
			  u8 well, u32 clear)
{
	struct dcm_extent *e = extent_of(lane->vm, wb->gfn);
	struct dcm_pd *pd = pd_of(lane->vm, wb->gfn);
	u32 mask = PD_AT | clear, bits = pd_at_bits(well), i;
	u16 pages = wb->pages;

	if (unlikely(READ_ONCE(e->open) & (u8) ~(well | wb->behind))) {
		WRITE_ONCE(e->thin, true);
		dcm_count(lane, DCM_C_THIN_PAGES, hweight16(pages));
	}
	for (i = 0; unlikely(wb->clean >> i); i++)
		if (wb->clean & (1u << i))
			pd_assign(&pd[i], clear, bits);
	pages &= (u16)~wb->clean;
	for (i = 0; i < 1u << wb->order; i++)
		if (pages & (1u << i))
			pd_assign(&pd[i], mask, bits);
}

/* Pages that a WRITE may still land on. */
static u16 wb_doubtful(const struct dcm_wb *wb)
{
	u16 pages = 0;
	u32 s;

	for (s = 0; s < DCM_SLOTS; s++)
		pages |= wb->doubt[s];
	return pages;
}

/* Record WRITEs that failed with their connection. Block locked or BUSY. */
static void wb_doubt(struct dcm_lane *lane, const struct dcm_wb *wb)
{
	u16 pages = wb_doubtful(wb);
	u8 slots = 0;
	u32 s;

	if (!pages)
		return;
	for (s = 0; s < DCM_SLOTS; s++)
		if (wb->doubt[s])
			slots |= (u8)(1u << s);
	dcm_doubt_add(lane, wb->gfn, pages, slots);
}

/* Pages that stayed writable while they were copied: are they written to since? */
static void pages_guessed(struct dcm_vm *vm, const struct dcm_wb *wb)
{
	struct dcm_pd *pd = pd_of(vm, wb->gfn);
	u32 i;

	for (i = 0; i < 1u << wb->order; i++)
		if (pd_word(&pd[i]) & PD_DIRTY)
			pd_set(&pd[i], PD_GUESSED);
}

/* All WRITEs of a copy have ended: the block is BUSY, and in no queue. */
static void copy_finish(struct dcm_lane *lane, struct dcm_wb *wb)
{
	struct dcm_vm *vm = lane->vm;
	u32 head = wb->gfn, frame = wb->frame;
	unsigned int order = wb->order;

	u8 well = wb_well(vm, wb);

	atomic64_sub(1 << order, &vm->wb_pages);
	if (!(pd_at_bits(well) & dcm_primary_bits(vm, head)))
		dcm_sync_failed(lane, head, order);
	if (!well) {
		dcm_count(lane, DCM_C_WRITE_ERRORS, 1);
	} else if (wb->open) {
		pages_written(lane, wb, well, PD_FRESH);
		pages_guessed(vm, wb);
	} else {
		/* no longer FRESH either: mapped read-only, it was not written since */
		pages_written(lane, wb, well, PD_DIRTY | PD_GUESSED | PD_FRESH);
	}
	if (unlikely(wb->bad))
		wb_doubt(lane, wb);
	dcm_slots_end(vm, head, wb->targets);
	wb_free(lane, wb);
	vm->ops->release(lane, frame, order);
	dcm_frames_put(vm, 1u << order);
	pd_lock(pd_of(vm, head));
	dcm_queue_in(lane, head, order);
	dcm_block_unbusy(lane, head, order);
}

/*
 * Can a slot to which a WRITE failed with its connection be written soon? Then keep the
 * block here. Its donor may be back before the last WRITE has ended.
 */
static bool wb_waits(const struct dcm_lane *lane, const struct dcm_wb *wb)
{
	u8 cut = wb->cut;

	if (likely(!cut))
		return false;
	cut &= READ_ONCE(extent_of(lane->vm, wb->gfn)->open);
	return cut && dcm_slots_soon(lane, wb->gfn, cut);
}

/* A WRITE to a slot failed. */
static void wb_failed(struct dcm_wb *wb, u8 slot, int err)
{
	wb->bad |= (u8)(1u << slot);
	if (err == -ENOTCONN)
		wb->cut |= (u8)(1u << slot);
}

/* The block stays, as not all slots have it: Inactive again. Locked; not on return. */
static void wb_stays(struct dcm_lane *lane, struct dcm_wb *wb, u8 well)
{
	unsigned int order = wb->order;
	u32 head = wb->gfn;

	if (well)
		pages_written(lane, wb, well, PD_DIRTY | PD_GUESSED | PD_FRESH);
	else
		dcm_count(lane, DCM_C_WRITE_ERRORS, 1);
	wb->failed = true;
	dcm_state_set(lane, head, DCM_INACTIVE);
	dcm_slots_end(lane->vm, head, wb->targets);
	wb_free(lane, wb);
	dcm_queue_in(lane, head, order);
	pd_unlock(pd_of(lane->vm, head));
}

/* All WRITEs have ended. */
static void wb_finish(struct dcm_lane *lane, struct dcm_wb *wb)
{
	struct dcm_vm *vm = lane->vm;
	u32 head = wb->gfn, n = 1u << wb->order, frame = wb->frame, i;
	struct dcm_pd *pd = pd_of(vm, head);
	u16 pages = wb->pages, zero = wb->zero;
	unsigned int order = wb->order;
	u8 well = wb_well(vm, wb);
	u32 lock = head;

	if (wb->copy) {
		copy_finish(lane, wb);
		return;
	}
	/*
	 * The block keeps its shape while it points here. Once that pointer
	 * is cleared, the page may be part of any block: lock that.
	 */
	lock = dcm_block_lock(vm, head, &order);
	order = wb->order;
	/* Pairs with dcm_wb_unhold(). */
	if (wb->cancelled && smp_load_acquire(&wb->held)) {
		pd_unlock(pd_of(vm, lock));
		lane->wb_parked += !wb->parked;
		wb->parked = true;
		return;
	}
	lane->wb_parked -= wb->parked;
	wb->parked = false;
	atomic64_sub(n, &vm->wb_pages);
	if (unlikely(wb->bad))
		wb_doubt(lane, wb);
	if (wb->cancelled) {
		pd_unlock(pd_of(vm, lock));
		pages &= (u16)~wb_doubtful(wb);
		for (i = 0; i < n; i++)
			if (pages & (1u << i))
				pd_landed(pd_of(vm, head + i));
		dcm_slots_end(vm, head, wb->targets);
		wb_free(lane, wb);
		vm->ops->release(lane, frame, order);
		dcm_frames_put(vm, n);
		return;
	}
	pd->prev = DCM_NIL;
	pd->next = DCM_NIL;
	if (unlikely(!well || wb_waits(lane, wb))) {
		wb_stays(lane, wb, well);
		return;
	}
	pages_written(lane, wb, well, 0);
	for (i = 0; i < n; i++)
		if (zero & (1u << i) & ~pages)
			pd_clear(pd_of(vm, head + i), PD_AT);
	dcm_hist_add(&lane->hist[DCM_H_WRITEBACK],
		     vm->ops->now_ns() - wb->t_post);
	dcm_slots_end(vm, head, wb->targets);
	wb_free(lane, wb);
	dcm_evict_finish(lane, head, order, frame);
}

/* Post the WRITEs not posted yet; finish when none is left or pending. */
static unsigned int wb_post(struct dcm_lane *lane, struct dcm_wb *wb)
{
	unsigned int n = 0;

	while (wb->posted < wb->nr_io) {
		struct dcm_io *io = &wb->io[wb->posted];
		u32 gfn = (u32)io->offset;
		int err = dcm_slot_io(lane, gfn, io->slot, io);

		if (err == -EAGAIN) {
			io->offset = gfn;
			return n;
		}
		n++;
		wb->posted++;
		if (err)
			wb_failed(wb, io->slot, err);
		else
			wb->pending++;
	}
	lane->wb_unposted--;
	if (!wb->pending)
		wb_finish(lane, wb);
	return n;
}

/* Post WRITEs that found the queue full. Returns steps taken. */
unsigned int dcm_wb_post(struct dcm_lane *lane)
{
	unsigned int i, n = 0;

	for (i = 0; lane->wb_unposted && i < DCM_WBS_MAX; i++) {
		struct dcm_wb *wb = &lane->wb[i];

		if (wb->in_use && wb->posted < wb->nr_io)
			n += wb_post(lane, wb);
	}
	return n;
}

/* Finish write-backs that were held when their WRITEs ended. */
unsigned int dcm_wb_unpark(struct dcm_lane *lane)
{
	unsigned int i, n = 0;

	for (i = 0; lane->wb_parked && i < DCM_WBS_MAX; i++) {
		struct dcm_wb *wb = &lane->wb[i];

		/* Pairs with dcm_wb_unhold(). */
		if (wb->in_use && wb->parked && !smp_load_acquire(&wb->held)) {
			wb_finish(lane, wb);
			n++;
		}
	}
	return n;
}

/**
 * dcm_wb_claim() - take a descriptor for a block, and begin to write to its extent
 * @lane: caller's lane
 * @head: the block, BUSY by the caller
 * @pages: pages that will be written and then leave; 0: the block stays mapped
 * @lag: pages that leave too, and that some file lacks (lag.c)
 * @err: out: -EAGAIN: no descriptor is free, or too many pages would lag; -ENODEV,
 *	-EBUSY: as dcm_slots_target()
 *
 * Return: the descriptor, or %NULL.
 */
struct dcm_wb *dcm_wb_claim(struct dcm_lane *lane, u32 head, u16 pages, u16 lag,
			    int *err)
{
	struct dcm_vm *vm = lane->vm;
	u32 nr = hweight16(pages | lag);
	u8 behind = dcm_lag_slots(lane, head, nr), targets;
	struct dcm_wb *wb;

	/* pages of @lag that are not written would lag, and have no room to */
	if (unlikely(!behind && (lag & (u16)~pages)) &&
	    !READ_ONCE(extent_of(vm, head)->thin)) {
		*err = -EAGAIN;
		return NULL;
	}
	targets = dcm_slots_target(lane, head, behind, err);
	if (!targets)
		return NULL;
	wb = wb_alloc(lane);
	/* other lanes may have used up lag_pages since dcm_lag_slots() looked */
	if (!wb || (unlikely(behind) && !dcm_lag_take(vm, head, nr))) {
		if (wb)
			wb_free(lane, wb);
		*err = -EAGAIN;
		dcm_slots_end(vm, head, targets);
		return NULL;
	}
	wb->behind = behind;
	wb->lane = lane;
	wb->gfn = head;
	wb->targets = targets;
	memset(wb->doubt, 0, sizeof(wb->doubt));
	return wb;
}

void dcm_wb_unclaim(struct dcm_lane *lane, struct dcm_wb *wb)
{
	dcm_slots_end(lane->vm, wb->gfn, wb->targets);
	wb_free(lane, wb);
}

/* Pages of the block, a bit each, that all of these slots have. */
static u16 pages_on_all(const struct dcm_wb *wb, u8 slots)
{
	u16 pages = page_mask(wb->order);

	for (; slots; slots &= slots - 1)
		pages &= dcm_block_flag(wb->lane->vm, wb->gfn, wb->order,
					pd_at_bits(slots & -slots));
	return pages;
}

/**
 * dcm_pages_write_over() - let clean pages be written to slots that have them, too
 * @wb: @clean is set; the block is BUSY by the caller
 * @pages: of @clean
 *
 * They count as dirty from now on: a WRITE that fails half-way leaves a slot with
 * neither the old nor the new bytes.
 */
void dcm_pages_write_over(struct dcm_wb *wb, u16 pages)
{
	wb->clean &= (u16)~pages;
	for (; pages; pages &= pages - 1)
		pd_set(pd_of(wb->lane->vm, wb->gfn + ffs_u32(pages) - 1),
		       PD_DIRTY | PD_GUESSED);
}

/* Set what a claimed descriptor writes, and from where. Posts nothing. */
static void wb_fill(struct dcm_wb *wb, unsigned int order, u16 pages, u16 zero,
		    u16 clean, u32 frame)
{
	struct dcm_lane *lane = wb->lane;
	u8 m, to = wb->targets;

	wb->order = (u8)order;
	wb->nr_io = 0;
	wb->posted = 0;
	wb->pending = 0;
	wb->pages = pages;
	wb->zero = zero;
	wb->cancelled = false;
	wb->held = false;
	wb->parked = false;
	wb->clean = clean;
	wb->written = 0;
	wb->bad = 0;
	wb->cut = 0;
	wb->failed = false;
	wb->copy = false;
	wb->open = false;
	wb->frame = frame;
	wb->t_post = lane->vm->ops->now_ns();
	dcm_sums_set(lane, wb->gfn, frame, pages);
	if (unlikely(READ_ONCE(lane->vm->sealed)) && !dcm_seals_set(lane, wb)) {
		/* sealing failed: plain bytes must not leave, so write nothing */
		wb->bad = to;
		to = 0;
	}
	if (unlikely(wb->clean))
		dcm_pages_write_over(wb, wb->clean & pages_on_all(wb, to));
	for (m = to; m; m &= m - 1) {
		u8 slot = (u8)(ffs_u32(m) - 1);
		u16 lack = pages;

		if (unlikely(wb->clean))
			lack &= (u16) ~(wb->clean &
				       dcm_block_flag(lane->vm, wb->gfn, order,
						      pd_at_bits(1u << slot)));
		wb_make_ios(wb, slot, lack);
		if (likely(lack))
			wb->written |= (u8)(1u << slot);
	}
	lane->wb_unposted++;
	atomic64_add(1 << order, &lane->vm->wb_pages);
	dcm_count(lane, DCM_C_WRITEBACKS, 1);
	dcm_count(lane, DCM_C_WRITTEN_PAGES, hweight16(pages));
}

/**
 * dcm_wb_copy() - write pages of a mapped block that stays mapped
 * @lane: caller's lane
 * @wb: claimed for the block
 * @order: the block's size
 * @pages: pages to write, none of them PD_INFLIGHT
 * @open: the block is mapped writable, and its dirty pages stay dirty
 * @frame: their bytes; beyond the budget, given back at the end
 *
 * The block is BUSY, in no queue and, unless @open, mapped read-only. When the pages are
 * written they are clean, unless @open, and it is in its queue and no longer BUSY.
 */
void dcm_wb_copy(struct dcm_lane *lane, struct dcm_wb *wb, unsigned int order,
		 u16 pages, bool open, u32 frame)
{
	struct dcm_vm *vm = lane->vm;

	atomic64_add(1 << order, &vm->direct);
	wb_fill(wb, order, pages, vm->ops->zero_mask(lane, frame, order, pages),
		pages & (u16)~dcm_block_flag(vm, wb->gfn, order, PD_DIRTY),
		frame);
	wb->copy = true;
	wb->open = open;
	wb_post(lane, wb);
}

/**
 * dcm_wb_start() - write a block back
 * @lane: caller's lane
 * @head: Inactive, in no queue, BUSY by the caller, not locked
 * @order: its size
 * @pages: pages to write, none of them PD_INFLIGHT
 * @zero: pages that are zero; those not in @pages need no write
 * @clean: of @pages: those that are not dirty; slots that have them keep them
 * @lag: pages of the block that some file lacks (lag.c)
 *
 * Return: 0 and the block in Writeback, no longer BUSY; -EIO and the block
 * Inactive again, no longer BUSY, when no WRITE could be posted; -EAGAIN,
 * nothing changed, when the lane has too many write-backs in flight, or too many
 * pages lag; -ENODEV, nothing changed, when the extent has no slab that takes
 * writes; -EBUSY, nothing changed, when one of its donors has been down for less than
 * thin_after.
 */
int dcm_wb_start(struct dcm_lane *lane, u32 head, unsigned int order, u16 pages,
		 u16 zero, u16 clean, u16 lag)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	struct dcm_wb *wb;
	int err;

	wb = dcm_wb_claim(lane, head, pages, lag, &err);
	if (!wb)
		return err;
	wb_fill(wb, order, pages, zero, clean, pd->frame);

	pd_lock(pd);
	dcm_state_set(lane, head, DCM_WRITEBACK);
	pd->prev = wb_index(wb);
	pd->next = lane->id;
	dcm_block_unbusy(lane, head, order);
	wb_post(lane, wb);
	return wb->failed && !wb->in_use ? -EIO : 0;
}

/* The pages of its block that a posted WRITE covers. */
static u16 io_pages(const struct dcm_vm *vm, const struct dcm_wb *wb,
		    const struct dcm_io *io)
{
	u32 first = (u32)(io->offset >> DCM_PAGE_SHIFT) -
		    (wb->gfn & (vm->extent_pages - 1));

	return (u16)(((1u << io->bytes / DCM_PAGE_SIZE) - 1) << first);
}

void dcm_wb_io_done(struct dcm_lane *lane, struct dcm_wb *wb, struct dcm_io *io)
{
	if (unlikely(io->status)) {
		wb_failed(wb, io->slot, io->status);
		if (io->status == -ENOTCONN)
			wb->doubt[io->slot] |= io_pages(lane->vm, wb, io);
	}
	dcm_slot_io_end(lane->vm, wb->gfn, io->slot);
	if (!--wb->pending && wb->posted == wb->nr_io)
		wb_finish(lane, wb);
}

/**
 * dcm_wb_cancel() - a block in Writeback was re-referenced
 * @lane: any lane
 * @head: the block, locked
 * @hold: the frame's bytes must stay until dcm_wb_unhold()
 */
struct dcm_wb *dcm_wb_cancel(struct dcm_lane *lane, u32 head, bool hold)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	struct dcm_wb *wb = &vm->lane[pd->next].wb[pd->prev];
	u32 i;

	wb->cancelled = true;
	WRITE_ONCE(wb->held, hold);
	for (i = 0; i < 1u << wb->order; i++)
		if (wb->pages & (1u << i))
			pd_set(pd_of(vm, head + i), PD_INFLIGHT);
	pd->prev = DCM_NIL;
	pd->next = DCM_NIL;
	return wb;
}

/* The bytes are copied: the owner of the descriptor may finish it. */
void dcm_wb_unhold(struct dcm_wb *wb)
{
	/* The copy is done before wb_finish() or dcm_wb_unpark() see this. */
	smp_store_release(&wb->held, false);
}
