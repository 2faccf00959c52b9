// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_worker.c - a GC worker of a donor, which changes pages in a slab
 *
 * While it works, a page is what it was (@truth) or what the worker made of it
 * (@maybe); the test says when one of them counts, or has the slabs say so. Pages
 * are frozen by holding them, as another guest thread would.
 */
#include "fake_backend.h"
#include "fake_priv.h"

bool fb_freeze(struct fake_backend *fb, u32 gfn, u32 nr)
{
	u32 i;

	for (i = gfn; i < gfn + nr; i++)
		if (__atomic_exchange_n(&fb->wlock[i], 1, __ATOMIC_ACQUIRE))
			break;
	if (i == gfn + nr) {
		fb->frozen = gfn;
		fb->nr_frozen = nr;
		return true;
	}
	fb_thaw(fb, gfn, i - gfn);
	return false;
}

void fb_thaw(struct fake_backend *fb, u32 gfn, u32 nr)
{
	fb->nr_frozen = 0;
	for (; nr; nr--, gfn++)
		__atomic_store_n(&fb->wlock[gfn], 0, __ATOMIC_RELEASE);
}

void fb_page_change(struct fake_backend *fb, struct fb_slab *s, u32 gfn)
{
	u32 page = gfn & (fb->vm->extent_pages - 1);

	if (s->busy[page])
		fb_violation(fb,
			     "a worker changes a page with I/O in flight: %s",
			     fb_page_text(fb, gfn));
	s->sure[page] = false;
	if (fb_slab_state_of(s) != FH_SLAB_LIVE)
		return;
	fb->maybe[gfn] = (u64)gfn << FH_GFN_SHIFT | (u64)++fb->seq[gfn]
							    << FH_SEQ_SHIFT;
	fb->store[s->base + page] = fb->maybe[gfn];
}

void fb_page_changed(struct fake_backend *fb, u32 gfn, bool changed)
{
	if (changed)
		fb->truth[gfn] = fb->maybe[gfn];
	else
		fb->maybe[gfn] = fb->truth[gfn];
}

bool fb_page_settled(struct fake_backend *fb, u32 gfn)
{
	const struct dcm_extent *e =
		&fb->vm->extent[gfn >> fb->vm->extent_shift];
	u32 w = pd_word(pd_of(fb->vm, gfn)), slot;
	u64 was = fb->truth[gfn], is = 0;
	bool known = false, changed;

	if (!(w & (PD_AT | PD_LOST)))
		fb_violation(fb, "a worker's page is nowhere: %s",
			     fb_page_text(fb, gfn));
	for (slot = 0; slot < DCM_SLOTS; slot++) {
		const struct fb_slab *s;
		u64 c;

		if (!(pd_at(w) >> slot & 1))
			continue;
		s = fb_slab_of(fb, e->slot[slot].slab);
		if (fb_slab_state_of(s) == FH_SLAB_DEAD)
			continue;
		c = fb->store[s->base + (gfn & (fb->vm->extent_pages - 1))];
		if (known && c != is)
			fb_violation(fb,
				     "slabs disagree on a worker's page: %s",
				     fb_page_text(fb, gfn));
		fb_check_content(fb, gfn, c, "a worker's page");
		known = true;
		is = c;
	}
	/* what no slab can say may be lost as either */
	changed = !known || is != (was & 1 ? 0 : was);
	fb_page_changed(fb, gfn, changed);
	return changed;
}
