// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_ops.c - struct dcm_ops on the guest's mapping and the frames
 *
 * See fake_backend.h. Overlap of ops on one page is seen twice over: by a mark
 * set while an op runs (catches it in single-threaded runs, where nested lanes
 * play the other threads), and by a plain counter each op increments (catches
 * overlap under ThreadSanitizer even when the two ops did not run at once).
 *
 * Frames come in groups of 16, and a group serves one block at a time. Checked:
 * a frame that is used is allocated, and none is freed twice; a page is mapped
 * when it must be, and what is mapped is what was last written.
 *
 * Locking: none. Page words, groups and counters change by one atomic
 * operation each.
 */
#include "fake_backend.h"

#include <sched.h>

#include "fake_priv.h"

static void op_begin(struct fake_backend *fb, struct dcm_lane *lane, u32 gfn,
		     u32 nr, const char *what)
{
	u32 i;

	if ((u64)gfn + nr > fb->cfg.nr_pages)
		fb_violation(fb, "%s of %u+%u: past the VM's end", what, gfn,
			     nr);
	for (i = gfn; i < gfn + nr; i++) {
		if (__atomic_exchange_n(&fb->op[i], 1, __ATOMIC_RELAXED))
			fb_violation(fb,
				     "%s of %u+%u while another op runs on %s",
				     what, gfn, nr, fb_page_text(fb, i));
		fb->witness[i]++;
	}
	fb_nest(fb, lane->id);
}

static void op_end(struct fake_backend *fb, struct dcm_lane *lane, u32 gfn,
		   u32 nr)
{
	u32 i;

	fb_nest(fb, lane->id);
	for (i = gfn; i < gfn + nr; i++) {
		fb->witness[i]++;
		__atomic_store_n(&fb->op[i], 0, __ATOMIC_RELAXED);
	}
}

static void add(s64 *v, s64 n)
{
	__atomic_fetch_add(v, n, __ATOMIC_RELAXED);
}

static void note_direct(struct fake_backend *fb)
{
	s64 d = READ_ONCE(fb->mapped) + READ_ONCE(fb->frames);
	s64 m = READ_ONCE(fb->direct_max);

	if (d > m)
		WRITE_ONCE(fb->direct_max, d);
}

/* ---- frames ---- */

static u32 frame_alloc(struct fake_backend *fb, unsigned int order)
{
	u32 start = READ_ONCE(fb->group_hint), n;

	for (n = 0; n < fb->nr_groups; n++) {
		u32 c = (start + n) % fb->nr_groups, empty = 0;

		if (__atomic_load_n(&fb->group[c], __ATOMIC_RELAXED))
			continue;
		if (!__atomic_compare_exchange_n(&fb->group[c], &empty,
						 page_mask(order), false,
						 __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		WRITE_ONCE(fb->group_hint, c + 1);
		add(&fb->frames, 1 << order);
		return c * DCM_BLOCK_MAX;
	}
	fb_violation(fb, "out of frames: leaked");
}

static void frame_check(const struct fake_backend *fb, u32 frame, u32 nr,
			const char *what)
{
	u32 c = frame / DCM_BLOCK_MAX, i = frame % DCM_BLOCK_MAX;
	u32 mask = ((1u << nr) - 1) << i;

	if (c >= fb->nr_groups || i + nr > DCM_BLOCK_MAX)
		fb_violation(fb, "%s: no such frame %u", what, frame);
	if ((__atomic_load_n(&fb->group[c], __ATOMIC_RELAXED) & mask) != mask)
		fb_violation(fb, "%s: frame %u+%u is not allocated (live %#x)",
			     what, frame, nr, fb->group[c]);
}

static void frame_free(struct fake_backend *fb, u32 frame, u32 nr,
		       const char *what)
{
	u32 c = frame / DCM_BLOCK_MAX, i = frame % DCM_BLOCK_MAX, j, old;
	u32 mask = ((1u << nr) - 1) << i;

	frame_check(fb, frame, nr, what);
	for (j = 0; j < nr; j++)
		fb->store[frame + j] = FH_POISON;
	old = __atomic_fetch_and(&fb->group[c], ~mask, __ATOMIC_RELEASE);
	if ((old & mask) != mask)
		fb_violation(fb, "%s: frame %u freed twice", what, frame);
	add(&fb->frames, -(s64)nr);
}

/* ---- mapping ---- */

static void map_page(struct fake_backend *fb, u32 gfn, u64 content,
		     bool writable, u64 extra, const char *what)
{
	u64 old, w = content | FH_PRESENT | extra;

	if (writable || fb->cfg.dirty_bits)
		w |= FH_WRITABLE;
	/* before the page is mapped: once mapped, the guest may write */
	fb_check_content(fb, gfn, content, what);
	old = __atomic_exchange_n(&fb->page[gfn], w, __ATOMIC_RELAXED);
	if (old & FH_PRESENT)
		fb_violation(fb, "%s over the present page %s", what,
			     fb_page_text(fb, gfn));
	add(&fb->mapped, 1);
}

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct fake_backend *fb = lane->priv;
	u32 nr = 1u << f->order, i, hide = DCM_BLOCK_MAX;
	u64 at = 0, c;

	op_begin(fb, lane, f->gfn, nr, "install");
	if (f->gfn & (nr - 1))
		fb_violation(fb, "install: block %u+%u is not aligned", f->gfn,
			     nr);
	if (fb_chance(fb, lane->id, fb->cfg.p_install_fail)) {
		op_end(fb, lane, f->gfn, nr);
		return -ENOMEM;
	}
	if (f->nr)
		at = fb_index(fb, f->io.data);
	if (f->hide & (f->hide - 1) || f->hide >> nr || f->hide & f->zero ||
	    f->hide == 1u << f->fault_page)
		fb_violation(fb, "install of %u+%u: hide %#x", f->gfn, nr,
			     f->hide);
	if (f->hide && !fb_chance(fb, lane->id, fb->cfg.p_install_fail)) {
		hide = ffs_u32(f->hide) - 1;
		f->hidden = f->hide;
	} else if (f->sample && nr > 1) {
		hide = (u32)(fb_random(&fb->lane[lane->id].rng) % nr);
		if (hide != f->fault_page)
			f->hidden = (u16)(1u << hide);
		else
			hide = DCM_BLOCK_MAX;
	}
	for (i = 0; i < nr; i++) {
		if (f->zero & (1u << i)) {
			c = 0;
		} else {
			if (i < f->first || i >= (u32)f->first + f->nr)
				fb_violation(fb,
					     "install: page %u+%u is neither zero nor read",
					     f->gfn, i);
			c = fb->store[at + i - f->first];
		}
		map_page(fb, f->gfn + i, c, f->writable & (1u << i),
			 i == hide ? FH_HIDDEN | FH_SAMPLED : 0, "install");
	}
	__atomic_fetch_add(&fb->nr_installs, 1, __ATOMIC_RELAXED);
	note_direct(fb);
	op_end(fb, lane, f->gfn, nr);
	fb_wake_pages(fb, f->gfn, nr);
	return 0;
}

static int op_fresh(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_backend *fb = lane->priv;
	u32 i;

	if (!nr || (gfn ^ (gfn + nr - 1)) >> DCM_HABIT_SHIFT)
		fb_violation(fb, "fresh: %u+%u", gfn, nr);
	op_begin(fb, lane, gfn, nr, "fresh");
	if (fb_chance(fb, lane->id, fb->cfg.p_install_fail) ||
	    (fb->cfg.spans && nr >> DCM_HABIT_SHIFT != 1)) {
		op_end(fb, lane, gfn, nr);
		return -EBUSY;
	}
	for (i = gfn; i < gfn + nr; i++)
		map_page(fb, i, 0, true, 0, "fresh");
	__atomic_fetch_add(&fb->nr_fresh, 1, __ATOMIC_RELAXED);
	note_direct(fb);
	op_end(fb, lane, gfn, nr);
	fb_wake_pages(fb, gfn, nr);
	return 0;
}

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, u16 hide, bool keep)
{
	struct fake_backend *fb = lane->priv;
	u32 nr = 1u << order, i;

	if (hide & (hide - 1) || hide >> nr)
		fb_violation(fb, "remap of %u+%u: hide %#x", gfn, nr, hide);

	op_begin(fb, lane, gfn, nr, "remap");
	if (keep && !fb->cfg.threads)
		fb_unsure(fb, gfn, nr);
	frame_check(fb, frame, nr, "remap");
	for (i = 0; i < nr; i++)
		map_page(fb, gfn + i, fb->store[frame + i],
			 writable & (1u << i),
			 hide & (1u << i) ? FH_HIDDEN | FH_SAMPLED : 0,
			 "remap");
	if (!keep)
		frame_free(fb, frame, nr, "remap");
	__atomic_fetch_add(&fb->nr_remaps, 1, __ATOMIC_RELAXED);
	note_direct(fb);
	op_end(fb, lane, gfn, nr);
	fb_wake_pages(fb, gfn, nr);
}

static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	struct fake_backend *fb = lane->priv;
	u64 w, n;
	int r = 0;

	op_begin(fb, lane, gfn, 1, "reveal");
	w = READ_ONCE(fb->page[gfn]);
	if (!(w & FH_PRESENT))
		fb_violation(fb, "reveal of %s: not mapped",
			     fb_page_text(fb, gfn));
	while (w & FH_HIDDEN) {
		n = w & ~FH_HIDDEN;
		if (write)
			n |= FH_WRITABLE;
		if (__atomic_compare_exchange_n(&fb->page[gfn], &w, n, false,
						__ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			r = 1;
			break;
		}
	}
	op_end(fb, lane, gfn, 1);
	fb_wake_pages(fb, gfn, 1);
	return r;
}

static int op_hide(struct dcm_lane *lane, u32 gfn, bool dirty)
{
	struct fake_backend *fb = lane->priv;
	u64 w;
	int r;

	op_begin(fb, lane, gfn, 1, "hide");
	w = READ_ONCE(fb->page[gfn]);
	if (!(w & FH_PRESENT))
		fb_violation(fb, "hide of %s: not mapped",
			     fb_page_text(fb, gfn));
	if (w & FH_HIDDEN) {
		r = 1;
	} else if (fb_chance(fb, lane->id, fb->cfg.p_pinned)) {
		r = -EBUSY;
	} else {
		w = __atomic_fetch_or(&fb->page[gfn], FH_HIDDEN | FH_SAMPLED,
				      __ATOMIC_RELAXED);
		if ((w & FH_DIRTY) && !dirty && !fb->cfg.dirty_bits)
			fb_violation(fb, "hide: core does not know %s dirty",
				     fb_page_text(fb, gfn));
		/* as @reveal maps it */
		if (!dirty && !fb->cfg.dirty_bits)
			__atomic_fetch_and(&fb->page[gfn], ~FH_WRITABLE,
					   __ATOMIC_RELAXED);
		__atomic_fetch_add(&fb->nr_hides, 1, __ATOMIC_RELAXED);
		r = 0;
	}
	op_end(fb, lane, gfn, 1);
	return r;
}

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_backend *fb = lane->priv;
	u32 i;

	op_begin(fb, lane, gfn, nr, "unprotect");
	for (i = gfn; i < gfn + nr; i++) {
		u64 w = __atomic_fetch_or(&fb->page[i], FH_WRITABLE,
					  __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fb_violation(fb, "unprotect of %s: not mapped",
				     fb_page_text(fb, i));
	}
	op_end(fb, lane, gfn, nr);
	fb_wake_pages(fb, gfn, nr);
}

static void unmap_one(struct fake_backend *fb, struct dcm_unmap *v)
{
	u32 nr = 1u << v->order, i;

	v->frame = frame_alloc(fb, v->order);
	v->touched = 0;
	v->observed = 0;
	for (i = 0; i < nr; i++) {
		u16 bit = (u16)(1u << i);
		u64 w = __atomic_exchange_n(&fb->page[v->gfn + i], 0,
					    __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fb_violation(fb, "unmap of %s: not mapped",
				     fb_page_text(fb, v->gfn + i));
		if (w & FH_DIRTY) {
			if (fb->cfg.dirty_bits)
				v->dirty |= bit;
			else if (!(v->dirty & bit))
				fb_violation(fb,
					     "unmap: core does not know %s dirty",
					     fb_page_text(fb, v->gfn + i));
		}
		if (fb->cfg.touched_bits || (w & FH_SAMPLED)) {
			v->observed |= bit;
			if (fb->cfg.touched_bits ? !!(w & FH_ACCESSED) :
						   !(w & FH_HIDDEN))
				v->touched |= bit;
		}
		fb->store[v->frame + i] = w & FH_CONTENT;
	}
	add(&fb->mapped, -(s64)nr);
	v->err = 0;
	if (v->drop && !v->dirty) {
		frame_free(fb, v->frame, nr, "unmap");
		v->frame = DCM_NIL;
	}
}

static void op_unmap(struct dcm_lane *lane, struct dcm_unmap *v,
		     unsigned int nr)
{
	struct fake_backend *fb = lane->priv;
	unsigned int i;

	if (!nr || nr > DCM_BATCH_MAX)
		fb_violation(fb, "unmap of %u blocks at once", nr);
	for (i = 0; i < nr; i++)
		op_begin(fb, lane, v[i].gfn, 1u << v[i].order, "unmap");
	for (i = 0; i < nr; i++) {
		if (fb_chance(fb, lane->id, fb->cfg.p_pinned)) {
			__atomic_fetch_add(&fb->nr_pinned, 1, __ATOMIC_RELAXED);
			v[i].err = -EBUSY;
			v[i].frame = DCM_NIL;
			continue;
		}
		unmap_one(fb, &v[i]);
	}
	__atomic_fetch_add(&fb->nr_unmaps, nr, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		op_end(fb, lane, v[i].gfn, 1u << v[i].order);
}

static void op_copy(struct dcm_lane *lane, struct dcm_unmap *v)
{
	struct fake_backend *fb = lane->priv;
	u32 nr = 1u << v->order, i;

	op_begin(fb, lane, v->gfn, nr, "copy");
	if (fb->cfg.dirty_bits || !v->dirty)
		fb_violation(fb, "copy of %#x of %s", v->dirty,
			     fb_page_text(fb, v->gfn));
	if (fb_chance(fb, lane->id, fb->cfg.p_pinned)) {
		__atomic_fetch_add(&fb->nr_pinned, 1, __ATOMIC_RELAXED);
		v->err = -EBUSY;
		op_end(fb, lane, v->gfn, nr);
		return;
	}
	v->err = 0;
	v->frame = frame_alloc(fb, v->order);
	v->touched = 0;
	v->observed = 0;
	/* as libdcm's: a hidden page has to come out of its own frame */
	for (i = 0; i < nr; i++)
		if (v->dirty & 1u << i &&
		    READ_ONCE(fb->page[v->gfn + i]) & FH_HIDDEN)
			v->open = false;
	for (i = 0; i < nr; i++) {
		u16 bit = (u16)(1u << i);
		u64 w;

		fb->store[v->frame + i] = FH_POISON;
		if (!(v->dirty & bit))
			continue;
		if (v->open)
			w = __atomic_load_n(&fb->page[v->gfn + i],
					    __ATOMIC_ACQUIRE);
		else
			w = __atomic_fetch_and(&fb->page[v->gfn + i],
					       ~(FH_WRITABLE | FH_DIRTY |
						 FH_HIDDEN),
				__ATOMIC_ACQ_REL);
		if (!(w & FH_PRESENT))
			fb_violation(fb, "copy of %s: not mapped",
				     fb_page_text(fb, v->gfn + i));
		if (w & FH_HIDDEN)
			v->observed |= bit;
		fb->store[v->frame + i] = w & FH_CONTENT;
	}
	__atomic_fetch_add(&fb->nr_copies, 1, __ATOMIC_RELAXED);
	note_direct(fb);
	op_end(fb, lane, v->gfn, nr);
	fb_wake_pages(fb, v->gfn, nr);
}

static void op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	fb_wake_pages(lane->priv, gfn, nr);
}

static u16 op_zero_mask(struct dcm_lane *lane, u32 frame, unsigned int order,
			u16 mask)
{
	struct fake_backend *fb = lane->priv;
	u16 m = 0;
	u32 i;

	frame_check(fb, frame, 1u << order, "zero_mask");
	if (mask & ~page_mask(order))
		fb_violation(fb, "zero_mask: pages %#x of order %u", mask,
			     order);
	for (i = 0; i < 1u << order; i++)
		if ((mask & (1u << i)) && !fb->store[frame + i])
			m |= (u16)(1u << i);
	return m;
}

static u32 op_sum(struct dcm_lane *lane, const void *data, u32 page)
{
	struct fake_backend *fb = lane->priv;
	u64 c = fb->store[fb_index(fb, data) + page] * 0x9e3779b97f4a7c15ull;

	return (u32)(c >> 32) ^ (u32)c;
}

static void op_wrong(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer,
		     u32 lost)
{
	struct fake_backend *fb = lane->priv;

	if (!pages || lost > hweight16(pages) || peer >= fb->cfg.nr_donors ||
	    gfn >= fb->cfg.nr_pages)
		fb_violation(fb, "wrong bytes of %u+%#x, donor %u, %u lost",
			     gfn, pages, peer, lost);
	fb_nest(fb, lane->id);
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	struct fake_backend *fb = lane->priv;

	frame_check(fb, frame + page, 1, "frame_data");
	return fb_ptr(fb, frame + page);
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	struct fake_backend *fb = lane->priv;

	fb_io_uses_frame(fb, frame, 1u << order);
	fb_nest(fb, lane->id);
	frame_free(fb, frame, 1u << order, "release");
	__atomic_fetch_add(&fb->nr_release, 1, __ATOMIC_RELAXED);
}

static void op_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_backend *fb = lane->priv;
	u32 i;

	op_begin(fb, lane, gfn, nr, "discard");
	for (i = gfn; i < gfn + nr; i++) {
		u64 w = __atomic_exchange_n(&fb->page[i], 0, __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fb_violation(fb, "discard of %s: not mapped",
				     fb_page_text(fb, i));
		if (READ_ONCE(fb->truth[i]) == READ_ONCE(fb->maybe[i]) ||
		    !(READ_ONCE(fb->maybe[i]) & 1))
			fb_violation(fb, "discard of %s: nobody gave it up",
				     fb_page_text(fb, i));
	}
	add(&fb->mapped, -(s64)nr);
	__atomic_fetch_add(&fb->nr_discards, nr, __ATOMIC_RELAXED);
	__atomic_fetch_add(&fb->nr_discard_ops, 1, __ATOMIC_RELAXED);
	op_end(fb, lane, gfn, nr);
}

static bool op_frozen(struct dcm_lane *lane, u32 gfn)
{
	const struct fake_backend *fb = lane->priv;

	return gfn - fb->frozen < fb->nr_frozen;
}

static void op_want_slab(struct dcm_vm *vm, u32 extent)
{
	struct fake_backend *fb = vm->priv;

	if (extent >= vm->nr_extents)
		fb_violation(fb, "want_slab: no extent %u", extent);
	__atomic_store_n(&fb->want[extent], true, __ATOMIC_RELAXED);
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_backend *fb = lane->priv;
	u32 i;

	__atomic_fetch_add(&fb->nr_lost_calls, 1, __ATOMIC_RELAXED);
	for (i = gfn; i < gfn + nr; i++)
		fb_note_lost(fb, i);
	fb_wake_pages(fb, gfn, nr);
}

static u64 now_tick; /* ops->now_ns() gets no lane */

static u64 op_now_ns(void)
{
	return __atomic_load_n(&now_tick, __ATOMIC_RELAXED) * 1000;
}

void fb_advance(struct fake_backend *fb, u64 ticks)
{
	__atomic_store_n(&now_tick,
			 __atomic_add_fetch(&fb->tick, ticks, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
}

/* The core waits for another lane: let the others run. */
static bool op_relax(struct dcm_lane *lane)
{
	struct fake_backend *fb = lane->priv;
	u32 i;

	if (fb->cfg.threads) {
		sched_yield();
		return true;
	}
	if (fb->give_up)
		return false;
	if (++fb->relaxed > 1000000)
		fb_violation(fb, "lane %u waits for ever", lane->id);
	fb_advance(fb, 1 + fb->relaxed / 100);
	for (i = 0; i < fb->cfg.nr_lanes; i++)
		if (!fb->lane[i].in_core)
			fb_poll(fb, i);
	if (fb->cfg.idle)
		fb->cfg.idle(fb->cfg.arg);
	return true;
}

const struct dcm_ops fb_ops = {
	.install = op_install,
	.remap = op_remap,
	.fresh = op_fresh,
	.reveal = op_reveal,
	.hide = op_hide,
	.unprotect = op_unprotect,
	.unmap = op_unmap,
	.copy = op_copy,
	.wake = op_wake,
	.zero_mask = op_zero_mask,
	.sum = op_sum,
	.seal = fb_op_seal,
	.open = fb_op_open,
	.wrong = op_wrong,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = op_discard,
	.io_post = fb_io_post,
	.io_flush = fb_io_flush,
	.io_poll = fb_io_poll,
	.frozen = op_frozen,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = op_now_ns,
	.relax = op_relax,
};
