// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_check.c - fsck for a VM: descriptors, queues, frames and slabs agree
 *
 * Reads the core's structures but trusts none: the expected state is derived from
 * the fake backend's own records. For single-threaded runs, and after all
 * threads have stopped.
 */
#include "fake_backend.h"
#include "fake_priv.h"

#include <stdio.h>
#include <stdlib.h>

struct walk {
	struct fake_backend *fb;
	bool quiet;
	u8 *seen; /* heads met in a queue */
	u64 frames; /* frame pages the descriptors own */
	u64 *lag; /* of each extent: pages that left without its files */
};

static u64 want_content(const struct fake_backend *fb, u32 gfn)
{
	u64 t = fb->truth[gfn];

	return t & 1 ? 0 : t;
}

/* A slot of a page's set holds what the page is. */
static void check_slot(struct fake_backend *fb, u32 gfn,
		       const struct dcm_slab_ref *ref, const char *what)
{
	const struct fb_slab *s;
	u64 c;

	if (!ref)
		fb_violation(fb, "%s: on a slab that is not attached: %s", what,
			     fb_page_text(fb, gfn));
	s = fb_slab_of(fb, ref);
	if (s->state == FH_SLAB_DEAD)
		return;
	c = fb->store[s->base + (gfn & (fb->vm->extent_pages - 1))];
	if (!fb_slab_word(fb, gfn, &c) || c != want_content(fb, gfn))
		fb_violation(fb, "%s: slab %u has %#llx: %s", what,
			     (u32)ref->id, (unsigned long long)c,
			     fb_page_text(fb, gfn));
}

/* A clean page must be on all slots of its set; zero if that is empty. */
static void check_remote(struct fake_backend *fb, u32 gfn, const char *what)
{
	struct dcm_vm *vm = fb->vm;
	u32 w = pd_word(pd_of(vm, gfn));
	struct dcm_extent *e = &vm->extent[gfn >> vm->extent_shift];
	u8 at = pd_at(w);
	unsigned int slot;

	if (w & PD_LOST) {
		if (w & PD_AT)
			fb_violation(fb, "%s: lost and remote: %s", what,
				     fb_page_text(fb, gfn));
		fb_note_lost(fb, gfn);
		return;
	}
	if (fb->truth[gfn] == FH_LOST)
		fb_violation(fb, "%s: lost page came back: %s", what,
			     fb_page_text(fb, gfn));
	if (fb->truth[gfn] != fb->maybe[gfn])
		return; /* being discarded */
	if (!(w & PD_AT)) {
		if (want_content(fb, gfn))
			fb_violation(fb, "%s: content is nowhere: %s", what,
				     fb_page_text(fb, gfn));
		return;
	}
	for (slot = 0; slot < DCM_SLOTS; slot++)
		if (at >> slot & 1)
			check_slot(fb, gfn, e->slot[slot].slab, what);
}

static void check_frame(struct walk *k, u32 head, u32 nr)
{
	struct fake_backend *fb = k->fb;
	u32 frame = pd_of(fb->vm, head)->frame, i;

	if (frame / DCM_BLOCK_MAX >= fb->nr_groups ||
	    (fb->group[frame / DCM_BLOCK_MAX] >> frame % DCM_BLOCK_MAX &
	     ((1u << nr) - 1)) != (1u << nr) - 1)
		fb_violation(fb, "frame %u of %s is not allocated", frame,
			     fb_page_text(fb, head));
	for (i = 0; i < nr; i++)
		fb_check_content(fb, head + i, fb->store[frame + i],
				 "fsck: frame");
	k->frames += nr;
}

static void check_where(struct walk *k, u32 head, enum dcm_where where)
{
	struct dcm_vm *vm = k->fb->vm;
	u32 i, j, b;

	if (where == DCM_W_QUEUE) {
		if (!k->seen[head])
			fb_violation(k->fb, "says it is queued, but is not: %s",
				     fb_page_text(k->fb, head));
		return;
	}
	for (i = 0; i < vm->nr_lanes; i++) {
		struct dcm_lane *l = &vm->lane[i];

		if (where == DCM_W_VICTIM) {
			for (j = l->victims.first; j < l->victims.nr; j++)
				if (l->victims.gfn[j] == head)
					return;
			continue;
		}
		b = pd_state(pd_word(pd_of(vm, head))) == DCM_PROACTIVE;
		for (j = 0; where == DCM_W_BUFFER && j < l->ins[b].nr; j++)
			if (l->ins[b].gfn[j] == head)
				return;
	}
	fb_violation(k->fb, "in no queue and no buffer (where %u): %s", where,
		     fb_page_text(k->fb, head));
}

static void check_writeback(struct walk *k, u32 head)
{
	struct dcm_vm *vm = k->fb->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	struct dcm_wb *wb;

	if (pd->next >= vm->nr_lanes || pd->prev >= DCM_WBS_MAX)
		fb_violation(k->fb, "no write-back descriptor: %s",
			     fb_page_text(k->fb, head));
	wb = &vm->lane[pd->next].wb[pd->prev];
	if (!wb->in_use || wb->cancelled || wb->gfn != head ||
	    wb->order != pd_order(pd_word(pd)) || wb->frame != pd->frame)
		fb_violation(k->fb, "wrong write-back descriptor: %s",
			     fb_page_text(k->fb, head));
}

/* A mapped block, and frames beside it that are being written. */
static bool copied(const struct dcm_vm *vm, u32 head)
{
	u32 i, j;

	for (i = 0; i < vm->nr_lanes; i++)
		for (j = 0; j < DCM_WBS_MAX; j++) {
			const struct dcm_wb *wb = &vm->lane[i].wb[j];

			if (wb->in_use && wb->copy && wb->gfn == head)
				return true;
		}
	return false;
}

/* Open slots that lack a page which others have. */
static u8 page_lacks(const struct fake_backend *fb, u32 gfn)
{
	const struct dcm_extent *e =
		&fb->vm->extent[gfn >> fb->vm->extent_shift];
	u8 at = pd_at(pd_word(pd_of(fb->vm, gfn)));

	return at ? e->open & (u8)~at : 0;
}

/* A page that left, and that an open slot lacks, is known to the control plane. */
static void check_thin(struct walk *k, u32 gfn)
{
	struct fake_backend *fb = k->fb;
	u32 extent = gfn >> fb->vm->extent_shift;
	const struct dcm_extent *e = &fb->vm->extent[extent];

	if ((page_lacks(fb, gfn) & ~e->files) && !e->thin &&
	    extent != fb->filling)
		fb_violation(fb, "thin, and nothing says so: %s",
			     fb_page_text(fb, gfn));
}

/* Is what a GC worker made of a page on its way from the primary to the copies? */
static bool page_spreads(const struct dcm_vm *vm, u32 gfn)
{
	u32 i, j;

	for (i = 0; i < vm->nr_lanes; i++) {
		const struct dcm_move *mv = &vm->lane[i].move;

		for (j = 0; mv->left && j < mv->nr; j++) {
			const struct dcm_move_op *m = &mv->op[j];

			if (m->changed && gfn - (m->gfn + m->first) < m->nr)
				return true;
		}
	}
	return false;
}

/* A page left: if only files lack it, it lags. */
static void note_lag(struct walk *k, u32 gfn)
{
	u32 extent = gfn >> k->fb->vm->extent_shift;
	const struct dcm_extent *e = &k->fb->vm->extent[extent];

	if (page_lacks(k->fb, gfn) && !e->thin && !(e->fill & DCM_FILL_THIN) &&
	    !page_spreads(k->fb->vm, gfn))
		k->lag[extent]++;
}

/* No fewer pages are counted than lag, and no more lag than may. */
static void check_lag(const struct walk *k)
{
	struct fake_backend *fb = k->fb;
	u64 counted = 0, real = 0, n;
	u32 i;

	for (i = 0; i < fb->vm->nr_extents; i++) {
		n = dcm_extent_lag(fb->vm, i);
		if (k->lag[i] > n)
			fb_violation(fb,
				"%llu pages of extent %u lag, counted %llu",
				(unsigned long long)k->lag[i], i,
				(unsigned long long)n);
		real += k->lag[i];
		counted += n;
	}
	if ((u64)atomic64_read(&fb->vm->lag) != counted)
		fb_violation(fb, "%lld pages lag, by extents %llu",
			     (long long)atomic64_read(&fb->vm->lag),
			     (unsigned long long)counted);
	if (real > fb->lag_most)
		fb_violation(fb, "%llu pages lag, more than %llu",
			     (unsigned long long)real,
			     (unsigned long long)fb->lag_most);
}

static void check_block(struct walk *k, u32 head, unsigned int order)
{
	struct fake_backend *fb = k->fb;
	struct dcm_vm *vm = fb->vm;
	u32 w = pd_word(pd_of(vm, head)), nr = 1u << order, i;
	enum dcm_state s = pd_state(w);
	bool mapped = s == DCM_ACTIVE || s == DCM_PROACTIVE;
	bool copy = mapped && (w & PD_BUSY) && copied(vm, head);

	if (s >= DCM_NR_STATES)
		fb_violation(fb, "state %u: %s", s, fb_page_text(fb, head));
	if ((w & PD_BUSY) && (k->quiet || (s != DCM_NOTDIRECT && !copy)))
		fb_violation(fb, "BUSY for nobody: %s", fb_page_text(fb, head));
	for (i = 0; i < nr; i++) {
		u32 pw = pd_word(pd_of(vm, head + i));

		if (pd_order(pw) != order)
			fb_violation(fb,
				     "page %u of block %u (order %u) says order %u",
				     head + i, head, order, pd_order(pw));
		if ((pw & PD_LOCK) || (i && (pw & (PD_BUSY | PD_WHERE_MASK))))
			fb_violation(fb, "lock, BUSY or queue left on %s",
				     fb_page_text(fb, head + i));
		if (k->quiet && (pw & PD_INFLIGHT))
			fb_violation(fb, "INFLIGHT with nothing in flight: %s",
				     fb_page_text(fb, head + i));
		if (fb_present(fb, head + i) != mapped)
			fb_violation(fb, "%s: %s",
				     mapped ? "not mapped" : "mapped",
				     fb_page_text(fb, head + i));
		if (s == DCM_NOTDIRECT ||
		    (!(pw & PD_DIRTY) && !(fb->page[head + i] & FH_DIRTY)))
			check_remote(fb, head + i, "fsck");
		if (s == DCM_NOTDIRECT && !(w & PD_BUSY))
			check_thin(k, head + i);
		if (s == DCM_NOTDIRECT)
			note_lag(k, head + i);
	}
	switch (s) {
	case DCM_ACTIVE:
	case DCM_PROACTIVE:
		if (!copy)
			check_where(k, head, pd_where(w));
		break;
	case DCM_INACTIVE:
		check_where(k, head, pd_where(w));
		check_frame(k, head, nr);
		break;
	case DCM_WRITEBACK:
		check_writeback(k, head);
		check_frame(k, head, nr);
		break;
	default:
		break;
	}
}

static void check_queue(struct walk *k, const struct dcm_fifo *f,
			enum dcm_state state, u32 lane)
{
	struct fake_backend *fb = k->fb;
	struct dcm_vm *vm = fb->vm;
	u32 gfn = f->head, prev = DCM_NIL, blocks = 0, pages = 0;

	while (gfn != DCM_NIL) {
		struct dcm_pd *pd = pd_of(vm, gfn);
		u32 w = pd_word(pd);

		if (k->seen[gfn]++)
			fb_violation(fb, "queued twice: %s",
				     fb_page_text(fb, gfn));
		if (pd->prev != prev || pd_state(w) != state ||
		    pd_where(w) != DCM_W_QUEUE ||
		    !(w & PD_KEPT) != (f != &vm->kept) ||
		    (state == DCM_INACTIVE && pd_lane(w) != lane))
			fb_violation(fb, "does not belong in the %s queue: %s",
				     dcm_state_names[state],
				     fb_page_text(fb, gfn));
		blocks++;
		pages += 1u << pd_order(w);
		prev = gfn;
		gfn = pd->next;
	}
	if (f->tail != prev || f->nr_blocks != blocks || f->nr_pages != pages)
		fb_violation(fb,
			     "%s queue: %u blocks %u pages, counted %u and %u",
			     dcm_state_names[state], blocks, pages,
			     f->nr_blocks, f->nr_pages);
}

static void check_sums(struct walk *k)
{
	struct fake_backend *fb = k->fb;
	struct dcm_vm *vm = fb->vm;
	u64 fetch = 0, wb = 0, cancelled = 0, inactive = 0;
	u32 i, j;

	for (i = 0; i < vm->nr_lanes; i++) {
		struct dcm_lane *l = &vm->lane[i];

		for (j = 0; j < DCM_FETCHES_MAX; j++)
			if (l->fetch[j].state != DCM_FETCH_FREE)
				fetch += 1u << l->fetch[j].order;
		for (j = 0; j < DCM_WBS_MAX; j++) {
			if (!l->wb[j].in_use)
				continue;
			wb += 1u << l->wb[j].order;
			if (l->wb[j].cancelled || l->wb[j].copy)
				cancelled += 1u << l->wb[j].order;
		}
		inactive += l->inactive.nr_pages;
		if (k->quiet &&
		    (l->nr_fetch || l->nr_ahead || l->nr_wb || l->nr_retry ||
		     l->wb_unposted || fb->lane[i].nr_io))
			fb_violation(fb, "lane %u is not idle", i);
	}
	if ((u64)fb->frames != k->frames + cancelled)
		fb_violation(fb,
			     "%lld frames allocated, %llu in blocks, %llu in cancelled write-backs and copies",
			     (long long)fb->frames,
			     (unsigned long long)k->frames,
			     (unsigned long long)cancelled);
	if ((u64)atomic64_read(&vm->direct) !=
	    (u64)fb->mapped + (u64)fb->frames + fetch)
		fb_violation(fb,
			     "direct is %lld, but %lld mapped, %lld in frames, %llu coming",
			     (long long)atomic64_read(&vm->direct),
			     (long long)fb->mapped, (long long)fb->frames,
			     (unsigned long long)fetch);
	if ((u64)atomic64_read(&vm->wb_pages) != wb)
		fb_violation(fb, "wb_pages is %lld, counted %llu",
			     (long long)atomic64_read(&vm->wb_pages),
			     (unsigned long long)wb);
	if ((u64)atomic64_read(&vm->inactive_pages) != inactive)
		fb_violation(fb, "inactive_pages is %lld, counted %llu",
			     (long long)atomic64_read(&vm->inactive_pages),
			     (unsigned long long)inactive);
}

/* The queue has pages of the VM only, and no more than the VM has. */
static void check_ahead(const struct fake_backend *fb)
{
	const struct dcm_ahead *a = &fb->vm->ahead;
	u64 pages = 0;
	u32 i;

	for (i = 0; i < a->nr; i++) {
		u32 at = (a->first + i) % DCM_AHEAD_EXTENTS;
		u64 nr = a->extent[at].nr;

		if (!nr || a->extent[at].gfn + nr > fb->vm->nr_pages)
			fb_violation(fb, "queued to be fetched: %u+%llu",
				     a->extent[at].gfn, (unsigned long long)nr);
		pages += nr;
	}
	if (a->nr > DCM_AHEAD_EXTENTS || a->pages != pages ||
	    pages > fb->vm->nr_pages)
		fb_violation(fb,
			     "%llu pages in %u extents to be fetched, counted %llu",
			     (unsigned long long)pages, a->nr,
			     (unsigned long long)a->pages);
}

void fb_fsck(struct fake_backend *fb, bool quiet)
{
	struct walk k = { .fb = fb, .quiet = quiet };
	struct dcm_vm *vm = fb->vm;
	struct dcm_stats st;
	u32 i, s, head;

	k.seen = calloc(vm->nr_pages, 1);
	k.lag = calloc(vm->nr_extents, sizeof(*k.lag));
	if (!k.seen || !k.lag)
		abort();
	check_queue(&k, &vm->active, DCM_ACTIVE, 0);
	check_queue(&k, &vm->proactive, DCM_PROACTIVE, 0);
	check_queue(&k, &vm->kept, DCM_ACTIVE, 0);
	for (i = 0; i < vm->nr_lanes; i++)
		check_queue(&k, &vm->lane[i].inactive, DCM_INACTIVE, i);
	for (head = 0; head < vm->nr_pages;) {
		unsigned int order = pd_order(pd_word(pd_of(vm, head)));

		if (order > DCM_ORDER_MAX || (head & ((1u << order) - 1)) ||
		    head + (1u << order) > vm->nr_pages)
			fb_violation(fb, "no block: order %u at %u", order,
				     head);
		check_block(&k, head, order);
		head += 1u << order;
	}
	check_sums(&k);
	check_lag(&k);
	check_ahead(fb);
	for (i = 0; quiet && i < vm->nr_extents; i++)
		for (s = 0; s < DCM_SLOTS; s++)
			if (atomic_read(&vm->extent[i].slot[s].inflight))
				fb_violation(fb,
					     "extent %u counts I/O in flight",
					     i);
	dcm_vm_stats(vm, &st);
	if (st.count[DCM_C_ILLEGAL])
		fb_violation(fb,
			     "%llu illegal moves, last: page %llu, %llu -> %llu",
			     (unsigned long long)st.count[DCM_C_ILLEGAL],
			     (unsigned long long)atomic64_read(&vm->illegal) >>
				     8,
			     (unsigned long long)(atomic64_read(&vm->illegal) >>
						  4) &
				     15,
			     (unsigned long long)atomic64_read(&vm->illegal) &
				     15);
	free(k.seen);
	free(k.lag);
}

static u64 beside_pages(const struct fake_backend *fb)
{
	u64 n = 0;
	u32 i, j;

	for (i = 0; i < fb->vm->nr_lanes; i++) {
		const struct dcm_lane *l = &fb->vm->lane[i];

		for (j = 0; j < DCM_WBS_MAX; j++)
			if (l->wb[j].in_use &&
			    (l->wb[j].cancelled || l->wb[j].copy))
				n += 1u << l->wb[j].order;
	}
	return n;
}

/* Frames that fetches in flight will fill: taken when they began. */
static u64 coming_pages(const struct fake_backend *fb)
{
	u64 n = 0;
	u32 i, j;

	for (i = 0; i < fb->vm->nr_lanes; i++) {
		const struct dcm_lane *l = &fb->vm->lane[i];

		for (j = 0; j < DCM_FETCHES_MAX; j++)
			if (l->fetch[j].state != DCM_FETCH_FREE)
				n += 1u << l->fetch[j].order;
	}
	return n;
}

/*
 * Over the budget only frames of cancelled write-backs and of copies of mapped
 * blocks may be; after the budget was lowered the excess may only shrink. So may, with
 * "writebacks" lowered, what is in flight; a lane that had none may begin some.
 */
void fb_check_budget(struct fake_backend *fb)
{
	u64 d = (u64)(fb->mapped + fb->frames) + coming_pages(fb),
	    over = beside_pages(fb);
	u64 budget = READ_ONCE(fb->vm->budget);
	struct dcm_stats st;

	if (d > fb->limit + over)
		fb_violation(fb,
			     "%llu pages direct, budget %llu, was allowed %llu + %llu in flight",
			     (unsigned long long)d, (unsigned long long)budget,
			     (unsigned long long)fb->limit,
			     (unsigned long long)over);
	dcm_vm_stats(fb->vm, &st);
	fb->promised = max(fb->promised, st.in_flight_max);
	if (over > fb->promised)
		fb_violation(fb, "%llu pages in flight, promised at most %llu",
			     (unsigned long long)over,
			     (unsigned long long)fb->promised);
	if (over <= st.in_flight_max)
		fb->promised = st.in_flight_max;
	if (d - min(d, over) < fb->limit)
		fb->limit = max(budget, d - over);
	else
		fb->limit = max(budget, fb->limit);
}
