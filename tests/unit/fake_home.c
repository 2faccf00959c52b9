// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_home.c - the ops that touch the guest's mapping and the frames
 *
 * See fake_home.h. Overlap of ops on one page is seen twice over: by a mark
 * set while an op runs (catches it in single-threaded runs, where nested lanes
 * play the other threads), and by a plain counter each op increments (catches
 * it under ThreadSanitizer even when the two did not meet).
 */
#include "fake_home.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fake_priv.h"

char fh_repro[160];
unsigned int fh_alloc_fail_at;
unsigned int fh_alloc_calls;
long fh_alloc_live;

/* The core's allocator, from malloc() so that ASan watches the tables. */
void *vzalloc(unsigned long bytes)
{
	void *p;

	fh_alloc_calls++;
	if (fh_alloc_fail_at && fh_alloc_calls == fh_alloc_fail_at)
		return NULL;
	if (!bytes)
		return NULL;
	p = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	if (!p)
		return NULL;
	memset(p, 0, bytes);
	fh_alloc_live++;
	return p;
}

void vfree(const void *p)
{
	if (p)
		fh_alloc_live--;
	free((void *)(uintptr_t)p);
}

u64 fh_random(u64 *state)
{
	u64 z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void fh_violation(const struct fake_home *fh, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "\nVIOLATION at tick %llu: ",
		fh ? (unsigned long long)READ_ONCE(fh->tick) : 0ull);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	if (fh && fh->vm)
		fprintf(stderr,
			"\nbudget %llu direct %lld (mapped %lld frames %lld) writeback %lld inactive %lld active %u proactive %u",
			(unsigned long long)READ_ONCE(fh->vm->budget),
			(long long)atomic64_read(&fh->vm->direct),
			(long long)fh->mapped, (long long)fh->frames,
			(long long)atomic64_read(&fh->vm->wb_pages),
			(long long)atomic64_read(&fh->vm->inactive_pages),
			fh->vm->active.nr_pages, fh->vm->proactive.nr_pages);
	fprintf(stderr, "\nagain: %s\n",
		fh_repro[0] ? fh_repro : "(table test)");
	fflush(stderr);
	abort();
}

/* One line about a page, for messages. */
const char *fh_page_text(const struct fake_home *fh, u32 gfn)
{
	static __thread char buf[8][256];
	static __thread unsigned int at;
	char *p = buf[at++ % 8], pd[160];

	dcm_pd_text(fh->vm, gfn, pd, sizeof(pd));
	snprintf(p, 256, "[%s; word %#llx truth %#llx]", pd,
		 (unsigned long long)READ_ONCE(fh->page[gfn]),
		 (unsigned long long)READ_ONCE(fh->truth[gfn]));
	return p;
}

bool fh_chance(struct fake_home *fh, u32 lane, u32 per_10000)
{
	return per_10000 && fh_random(&fh->lane[lane].rng) % 10000 < per_10000;
}

/* Another lane gets its chance while this one is inside an op. */
void fh_nest(struct fake_home *fh, u32 lane)
{
	u32 other;

	if (!fh->cfg.nest || fh->depth >= 3 ||
	    !fh_chance(fh, lane, fh->cfg.p_nest))
		return;
	other = (u32)(fh_random(&fh->lane[lane].rng) % fh->cfg.nr_lanes);
	if (fh->lane[other].in_core)
		return;
	fh->depth++;
	fh->nr_nested++;
	fh->cfg.nest(fh->cfg.arg, other);
	fh->depth--;
}

static void op_begin(struct fake_home *fh, struct dcm_lane *lane, u32 gfn,
		     u32 nr, const char *what)
{
	u32 i;

	if ((u64)gfn + nr > fh->cfg.nr_pages)
		fh_violation(fh, "%s of %u+%u: past the VM's end", what, gfn,
			     nr);
	for (i = gfn; i < gfn + nr; i++) {
		if (__atomic_exchange_n(&fh->op[i], 1, __ATOMIC_RELAXED))
			fh_violation(fh,
				     "%s of %u+%u while another op runs on %s",
				     what, gfn, nr, fh_page_text(fh, i));
		fh->witness[i]++;
	}
	fh_nest(fh, lane->id);
}

static void op_end(struct fake_home *fh, struct dcm_lane *lane, u32 gfn, u32 nr)
{
	u32 i;

	fh_nest(fh, lane->id);
	for (i = gfn; i < gfn + nr; i++) {
		fh->witness[i]++;
		__atomic_store_n(&fh->op[i], 0, __ATOMIC_RELAXED);
	}
}

static void add(s64 *v, s64 n)
{
	__atomic_fetch_add(v, n, __ATOMIC_RELAXED);
}

static void note_direct(struct fake_home *fh)
{
	s64 d = READ_ONCE(fh->mapped) + READ_ONCE(fh->frames);
	s64 m = READ_ONCE(fh->direct_max);

	if (d > m)
		WRITE_ONCE(fh->direct_max, d);
}

void fh_wake_pages(struct fake_home *fh, u32 gfn, u32 nr)
{
	u32 i;

	for (i = gfn; i < gfn + nr && i < fh->cfg.nr_pages; i++)
		__atomic_fetch_add(&fh->wakes[i], 1, __ATOMIC_RELEASE);
}

static u64 content_of(u64 version)
{
	return version & 1 ? 0 : version;
}

/* The bytes of @gfn, wherever they are now, must be what was last written. */
void fh_check_content(struct fake_home *fh, u32 gfn, u64 content,
		      const char *what)
{
	u64 t = READ_ONCE(fh->truth[gfn]), m = READ_ONCE(fh->maybe[gfn]);

	/* being discarded, it is zero again a little before we are told */
	if (t == FH_LOST && m != FH_LOST && content == content_of(m))
		return;
	if (t == FH_LOST)
		fh_violation(fh, "%s: lost page %s gets content %#llx", what,
			     fh_page_text(fh, gfn),
			     (unsigned long long)content);
	if (content == content_of(t) || content == content_of(m))
		return;
	fh_violation(fh, "%s: page %s has %#llx instead of %#llx", what,
		     fh_page_text(fh, gfn), (unsigned long long)content,
		     (unsigned long long)content_of(t));
}

/* ---- frames ---- */

void *fh_ptr(const struct fake_home *fh, u64 index)
{
	return fh->window + index * DCM_PAGE_SIZE;
}

u64 fh_index(const struct fake_home *fh, const void *p)
{
	u64 off = (u64)((const char *)p - fh->window);

	if ((const char *)p < fh->window || off % DCM_PAGE_SIZE ||
	    off / DCM_PAGE_SIZE >= fh->nr_store)
		fh_violation(fh, "pointer %p leads nowhere", p);
	return off / DCM_PAGE_SIZE;
}

static u32 frame_alloc(struct fake_home *fh, unsigned int order)
{
	u32 start = READ_ONCE(fh->chunk_hint), n;

	for (n = 0; n < fh->nr_chunks; n++) {
		u32 c = (start + n) % fh->nr_chunks, empty = 0;

		if (__atomic_load_n(&fh->chunk[c], __ATOMIC_RELAXED))
			continue;
		if (!__atomic_compare_exchange_n(&fh->chunk[c], &empty,
						 page_mask(order), false,
						 __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		WRITE_ONCE(fh->chunk_hint, c + 1);
		add(&fh->frames, 1 << order);
		return c * DCM_BLOCK_MAX;
	}
	fh_violation(fh, "out of frames: leaked");
}

static void frame_check(const struct fake_home *fh, u32 frame, u32 nr,
			const char *what)
{
	u32 c = frame / DCM_BLOCK_MAX, i = frame % DCM_BLOCK_MAX;
	u32 mask = ((1u << nr) - 1) << i;

	if (c >= fh->nr_chunks || i + nr > DCM_BLOCK_MAX)
		fh_violation(fh, "%s: no such frame %u", what, frame);
	if ((__atomic_load_n(&fh->chunk[c], __ATOMIC_RELAXED) & mask) != mask)
		fh_violation(fh, "%s: frame %u+%u is not allocated (live %#x)",
			     what, frame, nr, fh->chunk[c]);
}

static void frame_free(struct fake_home *fh, u32 frame, u32 nr,
		       const char *what)
{
	u32 c = frame / DCM_BLOCK_MAX, i = frame % DCM_BLOCK_MAX, j, old;
	u32 mask = ((1u << nr) - 1) << i;

	frame_check(fh, frame, nr, what);
	for (j = 0; j < nr; j++)
		fh->store[frame + j] = FH_POISON;
	old = __atomic_fetch_and(&fh->chunk[c], ~mask, __ATOMIC_RELEASE);
	if ((old & mask) != mask)
		fh_violation(fh, "%s: frame %u freed twice", what, frame);
	add(&fh->frames, -(s64)nr);
}

/* ---- mapping ---- */

static void map_page(struct fake_home *fh, u32 gfn, u64 content, bool writable,
		     u64 extra, const char *what)
{
	u64 old, w = content | FH_PRESENT | extra;

	if (writable || fh->cfg.dirty_bits)
		w |= FH_WRITABLE;
	/* before it is mapped: from then on the guest may write */
	fh_check_content(fh, gfn, content, what);
	old = __atomic_exchange_n(&fh->page[gfn], w, __ATOMIC_RELAXED);
	if (old & FH_PRESENT)
		fh_violation(fh, "%s over the present page %s", what,
			     fh_page_text(fh, gfn));
	add(&fh->mapped, 1);
}

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct fake_home *fh = lane->priv;
	u32 nr = 1u << f->order, i, hide = DCM_BLOCK_MAX;
	u64 at = 0, c;

	op_begin(fh, lane, f->gfn, nr, "install");
	if (f->gfn & (nr - 1))
		fh_violation(fh, "install: block %u+%u is not aligned", f->gfn,
			     nr);
	if (fh_chance(fh, lane->id, fh->cfg.p_install_fail)) {
		op_end(fh, lane, f->gfn, nr);
		return -ENOMEM;
	}
	if (f->nr)
		at = fh_index(fh, f->io.data);
	if (f->sample && nr > 1) {
		hide = (u32)(fh_random(&fh->lane[lane->id].rng) % nr);
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
				fh_violation(fh,
					     "install: page %u+%u is neither zero nor read",
					     f->gfn, i);
			c = fh->store[at + i - f->first];
		}
		map_page(fh, f->gfn + i, c, f->writable & (1u << i),
			 i == hide ? FH_HIDDEN | FH_SAMPLED : 0, "install");
	}
	__atomic_fetch_add(&fh->nr_installs, 1, __ATOMIC_RELAXED);
	note_direct(fh);
	op_end(fh, lane, f->gfn, nr);
	fh_wake_pages(fh, f->gfn, nr);
	return 0;
}

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, bool keep)
{
	struct fake_home *fh = lane->priv;
	u32 nr = 1u << order, i;

	op_begin(fh, lane, gfn, nr, "remap");
	frame_check(fh, frame, nr, "remap");
	for (i = 0; i < nr; i++)
		map_page(fh, gfn + i, fh->store[frame + i],
			 writable & (1u << i), 0, "remap");
	if (!keep)
		frame_free(fh, frame, nr, "remap");
	__atomic_fetch_add(&fh->nr_remaps, 1, __ATOMIC_RELAXED);
	note_direct(fh);
	op_end(fh, lane, gfn, nr);
	fh_wake_pages(fh, gfn, nr);
}

static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	struct fake_home *fh = lane->priv;
	u64 w, n;
	int r = 0;

	op_begin(fh, lane, gfn, 1, "reveal");
	w = READ_ONCE(fh->page[gfn]);
	if (!(w & FH_PRESENT))
		fh_violation(fh, "reveal of %s: not mapped",
			     fh_page_text(fh, gfn));
	while (w & FH_HIDDEN) {
		n = w & ~FH_HIDDEN;
		if (write)
			n |= FH_WRITABLE;
		if (__atomic_compare_exchange_n(&fh->page[gfn], &w, n, false,
						__ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			r = 1;
			break;
		}
	}
	op_end(fh, lane, gfn, 1);
	fh_wake_pages(fh, gfn, 1);
	return r;
}

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_home *fh = lane->priv;
	u32 i;

	op_begin(fh, lane, gfn, nr, "unprotect");
	for (i = gfn; i < gfn + nr; i++) {
		u64 w = __atomic_fetch_or(&fh->page[i], FH_WRITABLE,
					  __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fh_violation(fh, "unprotect of %s: not mapped",
				     fh_page_text(fh, i));
	}
	op_end(fh, lane, gfn, nr);
	fh_wake_pages(fh, gfn, nr);
}

static void unmap_one(struct fake_home *fh, struct dcm_unmap *v)
{
	u32 nr = 1u << v->order, i;

	v->frame = frame_alloc(fh, v->order);
	v->touched = 0;
	v->observed = 0;
	for (i = 0; i < nr; i++) {
		u16 bit = (u16)(1u << i);
		u64 w = __atomic_exchange_n(&fh->page[v->gfn + i], 0,
					    __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fh_violation(fh, "unmap of %s: not mapped",
				     fh_page_text(fh, v->gfn + i));
		if (w & FH_DIRTY) {
			if (fh->cfg.dirty_bits)
				v->dirty |= bit;
			else if (!(v->dirty & bit))
				fh_violation(fh,
					     "unmap: core does not know %s dirty",
					     fh_page_text(fh, v->gfn + i));
		}
		if (fh->cfg.touched_bits || (w & FH_SAMPLED)) {
			v->observed |= bit;
			if (fh->cfg.touched_bits ? !!(w & FH_ACCESSED) :
						   !(w & FH_HIDDEN))
				v->touched |= bit;
		}
		fh->store[v->frame + i] = w & FH_CONTENT;
	}
	add(&fh->mapped, -(s64)nr);
	v->err = 0;
	if (v->drop && !v->dirty) {
		frame_free(fh, v->frame, nr, "unmap");
		v->frame = DCM_NIL;
	}
}

static void op_unmap(struct dcm_lane *lane, struct dcm_unmap *v,
		     unsigned int nr)
{
	struct fake_home *fh = lane->priv;
	unsigned int i;

	if (!nr || nr > DCM_BATCH_MAX)
		fh_violation(fh, "unmap of %u blocks at once", nr);
	for (i = 0; i < nr; i++)
		op_begin(fh, lane, v[i].gfn, 1u << v[i].order, "unmap");
	for (i = 0; i < nr; i++) {
		if (fh_chance(fh, lane->id, fh->cfg.p_pinned)) {
			__atomic_fetch_add(&fh->nr_pinned, 1, __ATOMIC_RELAXED);
			v[i].err = -EBUSY;
			v[i].frame = DCM_NIL;
			continue;
		}
		unmap_one(fh, &v[i]);
	}
	__atomic_fetch_add(&fh->nr_unmaps, nr, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		op_end(fh, lane, v[i].gfn, 1u << v[i].order);
}

static void op_copy(struct dcm_lane *lane, struct dcm_unmap *v)
{
	struct fake_home *fh = lane->priv;
	u32 nr = 1u << v->order, i;

	op_begin(fh, lane, v->gfn, nr, "copy");
	if (fh->cfg.dirty_bits || !v->dirty)
		fh_violation(fh, "copy of %#x of %s", v->dirty,
			     fh_page_text(fh, v->gfn));
	if (fh_chance(fh, lane->id, fh->cfg.p_pinned)) {
		__atomic_fetch_add(&fh->nr_pinned, 1, __ATOMIC_RELAXED);
		v->err = -EBUSY;
		op_end(fh, lane, v->gfn, nr);
		return;
	}
	v->err = 0;
	v->frame = frame_alloc(fh, v->order);
	v->touched = 0;
	v->observed = 0;
	for (i = 0; i < nr; i++) {
		u16 bit = (u16)(1u << i);
		u64 w;

		fh->store[v->frame + i] = FH_POISON;
		if (!(v->dirty & bit))
			continue;
		w = __atomic_fetch_and(&fh->page[v->gfn + i],
				       ~(FH_WRITABLE | FH_DIRTY | FH_HIDDEN),
				       __ATOMIC_ACQ_REL);
		if (!(w & FH_PRESENT))
			fh_violation(fh, "copy of %s: not mapped",
				     fh_page_text(fh, v->gfn + i));
		if (w & FH_HIDDEN)
			v->observed |= bit;
		fh->store[v->frame + i] = w & FH_CONTENT;
	}
	__atomic_fetch_add(&fh->nr_copies, 1, __ATOMIC_RELAXED);
	note_direct(fh);
	op_end(fh, lane, v->gfn, nr);
	fh_wake_pages(fh, v->gfn, nr);
}

static void op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	fh_wake_pages(lane->priv, gfn, nr);
}

static u16 op_zero_mask(struct dcm_lane *lane, u32 frame, unsigned int order,
			u16 mask)
{
	struct fake_home *fh = lane->priv;
	u16 m = 0;
	u32 i;

	frame_check(fh, frame, 1u << order, "zero_mask");
	if (mask & ~page_mask(order))
		fh_violation(fh, "zero_mask: pages %#x of order %u", mask,
			     order);
	for (i = 0; i < 1u << order; i++)
		if ((mask & (1u << i)) && !fh->store[frame + i])
			m |= (u16)(1u << i);
	return m;
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	struct fake_home *fh = lane->priv;

	frame_check(fh, frame + page, 1, "frame_data");
	return fh_ptr(fh, frame + page);
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	struct fake_home *fh = lane->priv;

	fh_io_uses_frame(fh, frame, 1u << order);
	fh_nest(fh, lane->id);
	frame_free(fh, frame, 1u << order, "release");
	__atomic_fetch_add(&fh->nr_release, 1, __ATOMIC_RELAXED);
}

static void op_discard(struct dcm_lane *lane, u32 gfn, unsigned int order)
{
	struct fake_home *fh = lane->priv;
	u32 nr = 1u << order, i;

	op_begin(fh, lane, gfn, nr, "discard");
	for (i = gfn; i < gfn + nr; i++) {
		u64 w = __atomic_exchange_n(&fh->page[i], 0, __ATOMIC_RELAXED);

		if (!(w & FH_PRESENT))
			fh_violation(fh, "discard of %s: not mapped",
				     fh_page_text(fh, i));
		if (READ_ONCE(fh->truth[i]) == READ_ONCE(fh->maybe[i]) ||
		    !(READ_ONCE(fh->maybe[i]) & 1))
			fh_violation(fh, "discard of %s: nobody gave it up",
				     fh_page_text(fh, i));
	}
	add(&fh->mapped, -(s64)nr);
	__atomic_fetch_add(&fh->nr_discards, nr, __ATOMIC_RELAXED);
	op_end(fh, lane, gfn, nr);
}

static void op_want_slab(struct dcm_vm *vm, u32 extent)
{
	struct fake_home *fh = vm->priv;

	if (extent >= vm->nr_extents)
		fh_violation(fh, "want_slab: no extent %u", extent);
	__atomic_store_n(&fh->want[extent], true, __ATOMIC_RELAXED);
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct fake_home *fh = lane->priv;
	u32 i;

	__atomic_fetch_add(&fh->nr_lost_calls, 1, __ATOMIC_RELAXED);
	for (i = gfn; i < gfn + nr; i++)
		fh_note_lost(fh, i);
	fh_wake_pages(fh, gfn, nr);
}

static u64 now_tick; /* ops->now_ns() gets no lane */

static u64 op_now_ns(void)
{
	return __atomic_load_n(&now_tick, __ATOMIC_RELAXED) * 1000;
}

void fh_advance(struct fake_home *fh, u64 ticks)
{
	__atomic_store_n(&now_tick,
			 __atomic_add_fetch(&fh->tick, ticks, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
}

/* The core waits for another lane: let the others run. */
static bool op_relax(struct dcm_lane *lane)
{
	struct fake_home *fh = lane->priv;
	u32 i;

	if (fh->cfg.threads) {
		sched_yield();
		return true;
	}
	if (fh->give_up)
		return false;
	if (++fh->relaxed > 1000000)
		fh_violation(fh, "lane %u waits for ever", lane->id);
	fh_advance(fh, 1 + fh->relaxed / 100);
	for (i = 0; i < fh->cfg.nr_lanes; i++)
		if (!fh->lane[i].in_core)
			fh_poll(fh, i);
	if (fh->cfg.idle)
		fh->cfg.idle(fh->cfg.arg);
	return true;
}

static const struct dcm_ops fake_ops = {
	.install = op_install,
	.remap = op_remap,
	.reveal = op_reveal,
	.unprotect = op_unprotect,
	.unmap = op_unmap,
	.copy = op_copy,
	.wake = op_wake,
	.zero_mask = op_zero_mask,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = op_discard,
	.io_post = fh_io_post,
	.io_flush = fh_io_flush,
	.io_poll = fh_io_poll,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = op_now_ns,
	.relax = op_relax,
};

/* ---- life ---- */

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void slabs_make(struct fake_home *fh, u32 base)
{
	u32 i;

	fh->slab = must(calloc(fh->cfg.nr_slabs, sizeof(*fh->slab)));
	for (i = 0; i < fh->cfg.nr_slabs; i++) {
		struct fh_slab *s = &fh->slab[i];

		s->donor = i % fh->cfg.nr_donors;
		s->base = base + i * fh->cfg.extent_pages;
		s->busy = must(calloc(fh->cfg.extent_pages, 1));
		s->ref.id = i;
		s->ref.peer = s->donor;
		s->ref.bytes = (u64)fh->cfg.extent_pages * DCM_PAGE_SIZE;
		s->ref.fd = -1;
	}
}

struct fake_home *fh_create(const struct fh_config *cfg)
{
	struct fake_home *fh = must(calloc(1, sizeof(*fh)));
	struct dcm_vm_config vc = {
		.nr_pages = cfg->nr_pages,
		.extent_pages = cfg->extent_pages,
		.nr_lanes = cfg->nr_lanes,
		.budget_pages = cfg->budget,
		.sparse = cfg->sparse,
		.dirty_late = cfg->dirty_bits,
		.seed = cfg->seed,
		.ops = &fake_ops,
		.priv = fh,
	};
	u32 i, j, n = cfg->nr_pages, bufs;
	int err = 0;

	fh->cfg = *cfg;
	if (!fh->cfg.nr_donors)
		fh->cfg.nr_donors = 1;
	if (!fh->cfg.qdepth || fh->cfg.qdepth > FH_QUEUE_MAX)
		fh->cfg.qdepth = FH_QUEUE_MAX;
	fh->page = must(calloc(n, sizeof(*fh->page)));
	fh->truth = must(calloc(n, sizeof(*fh->truth)));
	fh->maybe = must(calloc(n, sizeof(*fh->maybe)));
	fh->seq = must(calloc(n, sizeof(*fh->seq)));
	fh->wakes = must(calloc(n, sizeof(*fh->wakes)));
	fh->witness = must(calloc(n, sizeof(*fh->witness)));
	fh->op = must(calloc(n, 1));
	fh->wlock = must(calloc(n, 1));
	fh->want = must(calloc(n, 1));
	if (cfg->sparse)
		fh->descriptors = must(
			calloc(n + DCM_PDS_PAGES, sizeof(*fh->descriptors)));
	fh->lane = must(calloc(cfg->nr_lanes, sizeof(*fh->lane)));
	for (i = 0; i < n; i++)
		fh->truth[i] = fh->maybe[i] = (u64)i << FH_GFN_SHIFT | 1;
	for (i = 0; i < cfg->nr_lanes; i++)
		fh->lane[i].rng = cfg->seed * 977 + i;

	fh->nr_chunks = n + cfg->nr_lanes * (DCM_WBS_MAX + DCM_FETCHES_MAX);
	fh->chunk = must(calloc(fh->nr_chunks, sizeof(*fh->chunk)));
	bufs = cfg->nr_lanes * FH_LANE_BUFS * DCM_BLOCK_MAX;
	fh->nr_store = (u64)fh->nr_chunks * DCM_BLOCK_MAX + bufs +
		       (u64)cfg->nr_slabs * cfg->extent_pages;
	fh->store = must(calloc(fh->nr_store, sizeof(*fh->store)));
	for (i = 0; i < fh->nr_store; i++)
		fh->store[i] = FH_POISON;
	fh->window = mmap(NULL, fh->nr_store * DCM_PAGE_SIZE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fh->window == MAP_FAILED)
		abort();
	slabs_make(fh, fh->nr_chunks * DCM_BLOCK_MAX + bufs);

	pthread_mutex_init(&fh->late_lock, NULL);
	fh->limit = cfg->budget;
	__atomic_store_n(&now_tick, 0, __ATOMIC_RELAXED);
	fh->vm = dcm_vm_create(&vc, &err);
	if (!fh->vm) {
		if (!fh_alloc_fail_at)
			fh_violation(fh, "dcm_vm_create: %d", err);
		if (err != -ENOMEM)
			fh_violation(fh,
				     "dcm_vm_create: %d when allocation fails",
				     err);
		fh_destroy(fh);
		return NULL;
	}
	for (i = 0; i < cfg->nr_lanes; i++) {
		fh->vm->lane[i].priv = fh;
		for (j = 0; j < FH_LANE_BUFS; j++)
			fh_set_buf(fh->vm, i, j,
				   fh_ptr(fh,
					  (u64)fh->nr_chunks * DCM_BLOCK_MAX +
						  (i * FH_LANE_BUFS + j) *
							  DCM_BLOCK_MAX));
	}
	return fh;
}

void fh_destroy(struct fake_home *fh)
{
	u32 i;

	if (fh->vm)
		dcm_vm_destroy(fh->vm);
	pthread_mutex_destroy(&fh->late_lock);
	for (i = 0; i < fh->cfg.nr_slabs; i++)
		free(fh->slab[i].busy);
	munmap(fh->window, fh->nr_store * DCM_PAGE_SIZE);
	free(fh->slab);
	free(fh->store);
	free(fh->chunk);
	free(fh->lane);
	free(fh->descriptors);
	free(fh->want);
	free(fh->wlock);
	free(fh->op);
	free(fh->witness);
	free(fh->wakes);
	free(fh->seq);
	free(fh->maybe);
	free(fh->truth);
	free(fh->page);
	free(fh);
}
