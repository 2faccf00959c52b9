// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_slab.c - slabs of donors: lent, attached, revoked, given back
 *
 * A slab dies or is let go under @late_lock: no late bytes land in it from then
 * on. Checked: no I/O is in flight on a slab that is let go, or lent.
 */
#include "fake_backend.h"
#include "fake_priv.h"

struct fb_slab *fb_slab_of(struct fake_backend *fb,
			   const struct dcm_slab_ref *ref)
{
	struct fb_slab *s;

	if (!ref)
		fb_violation(fb, "I/O without a slab");
	s = container_of((struct dcm_slab_ref *)(uintptr_t)ref, struct fb_slab,
			 ref);
	if (s < fb->slab || s >= fb->slab + fb->cfg.nr_slabs)
		fb_violation(fb, "I/O on a slab that does not exist");
	return s;
}

struct fb_slab *fb_slab_open(struct fake_backend *fb, u32 extent)
{
	const struct dcm_extent *e = &fb->vm->extent[extent];
	u8 open = READ_ONCE(e->open);

	return open ? fb_slab_of(fb, e->slot[ffs_u32(open) - 1].slab) : NULL;
}

static void slab_state_set(struct fake_backend *fb, struct fb_slab *s,
			   u32 state)
{
	pthread_mutex_lock(&fb->late_lock);
	__atomic_store_n(&s->state, state, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fb->late_lock);
}

struct fb_slab *fb_slab_take(struct fake_backend *fb, u64 pick, s32 not )
{
	u32 n, i, k;

	for (n = 0; n < fb->cfg.nr_slabs; n++) {
		struct fb_slab *s = &fb->slab[(pick + n) % fb->cfg.nr_slabs];

		if (fb_slab_state_of(s) != FH_SLAB_FREE ||
		    fb->donor[s->donor].dead || (s32)s->donor == not )
			continue;
		for (k = 0, i = 0; i < fb->cfg.extent_pages; i++)
			k += s->busy[i];
		if (k)
			fb_violation(fb, "slab %u is free with I/O in flight",
				     (u32)s->ref.id);
		pthread_mutex_lock(&fb->late_lock);
		WRITE_ONCE(s->lent, s->lent + 1);
		pthread_mutex_unlock(&fb->late_lock);
		for (i = 0; i < fb->cfg.extent_pages; i++)
			fb->store[s->base + i] = FH_UNWRITTEN;
		memset(s->sure, 0, fb->cfg.extent_pages);
		return s;
	}
	return NULL;
}

int fb_slab_attach(struct fake_backend *fb, struct fb_slab *s, u32 extent)
{
	int err;

	s->extent = extent;
	__atomic_store_n(&s->state, FH_SLAB_LIVE, __ATOMIC_RELAXED);
	if (fb->cfg.sums && fb->vm->extent[extent].used &&
	    !dcm_extent_sums_of(fb->vm, extent))
		dcm_extent_sums(fb->vm, extent,
				&fb->sums[extent * fb->cfg.extent_pages]);
	if (fb->cfg.seal && !dcm_extent_seals_of(fb->vm, extent))
		dcm_extent_seals(fb->vm, extent,
				 &fb->seals[extent * fb->cfg.extent_pages]);
	err = dcm_extent_attach(fb->vm, extent, &s->ref);
	if (err)
		__atomic_store_n(&s->state, FH_SLAB_FREE, __ATOMIC_RELAXED);
	return err;
}

unsigned int fb_give_slabs(struct fake_backend *fb, u64 pick)
{
	unsigned int n = 0;
	u32 e;

	for (e = 0; e < fb->vm->nr_extents; e++) {
		struct fb_slab *s;

		if (!__atomic_load_n(&fb->want[e], __ATOMIC_RELAXED))
			continue;
		s = fb_slab_take(fb, pick + e, -1);
		if (!s)
			continue;
		__atomic_store_n(&fb->want[e], false, __ATOMIC_RELAXED);
		n += !fb_slab_attach(fb, s, e);
	}
	return n;
}

/* The donor revoked the slab, or died: the content is gone, operations fail. */
void fb_slab_kill(struct fake_backend *fb, struct fb_slab *s)
{
	u32 i;

	slab_state_set(fb, s, FH_SLAB_DEAD);
	if (!fb->cfg.threads) /* a lane may be reading it just now */
		for (i = 0; i < fb->cfg.extent_pages; i++)
			fb->store[s->base + i] = FH_GONE;
}

/* The core released the slab: until it is lent again, any I/O is a violation. */
void fb_slab_free(struct fake_backend *fb, struct fb_slab *s)
{
	u32 i;

	/* Nothing lands there from here on. */
	slab_state_set(fb, s, FH_SLAB_FREE);
	for (i = 0; i < fb->cfg.extent_pages; i++) {
		if (__atomic_load_n(&s->busy[i], __ATOMIC_RELAXED))
			fb_violation(fb,
				     "slab %u let go with I/O in flight on %u",
				     (u32)s->ref.id, i);
		fb->store[s->base + i] = FH_GONE;
	}
}

void fb_donor_kill(struct fake_backend *fb, u32 donor)
{
	u32 i;

	fb->donor[donor].dead = true;
	for (i = 0; i < fb->cfg.nr_slabs; i++)
		if (fb->slab[i].donor == donor &&
		    fb_slab_state_of(&fb->slab[i]) == FH_SLAB_LIVE)
			fb_slab_kill(fb, &fb->slab[i]);
}
