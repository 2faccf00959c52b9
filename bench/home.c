// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * home.c - a guest that costs nothing; see home.h
 */
#include "home.h"
#include "common.h"

static struct home *home_of(struct dcm_lane *lane)
{
	return lane->vm->priv;
}

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct home *h = home_of(lane);
	u32 nr = 1u << f->order;
	u16 hide = 0;

	f->hidden = 0;
	/* As kvm-dcm.ko: dirty is what the page tables say, not a guess. */
	if (h->accessed_bits)
		f->writable = f->write && f->fault_page < nr ?
				      (u16)(1u << f->fault_page) :
				      0;
	if (f->sample && f->order && !h->accessed_bits) {
		u32 k = (u32)(bench_rand(&h->rng) >> 32) % nr;

		/* As libdcm: any page that was read, but not the faulting one. */
		hide = (u16)(((1u << f->nr) - 1) << f->first) & (u16)~f->zero;
		if (f->fault_page < nr)
			hide &= (u16) ~(1u << f->fault_page);
		while (hide && !(hide & (1u << k)))
			k = (k + 1) % nr;
		hide &= (u16)(1u << k);
		f->hidden = hide;
	}
	for (u32 i = 0; i < nr; i++) {
		u8 keep = h->page[f->gfn + i] & (HOME_WRITTEN | HOME_SEEN);

		if (hide & (1u << i))
			h->page[f->gfn + i] = keep | HOME_HIDDEN;
		else
			h->page[f->gfn + i] =
				keep | HOME_PRESENT |
				(h->accessed_bits || f->writable & (1u << i) ?
					 HOME_WRITABLE :
					 0);
	}
	return 0;
}

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, bool keep)
{
	struct home *h = home_of(lane);

	(void)frame;
	(void)keep;
	for (u32 i = 0; i < 1u << order; i++) {
		u8 *p = &h->page[gfn + i];

		*p &= (u8) ~(HOME_WRITABLE | HOME_HIDDEN);
		*p |= HOME_PRESENT;
		if (h->accessed_bits || writable & (1u << i))
			*p |= HOME_WRITABLE;
	}
}

static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	u8 *p = &home_of(lane)->page[gfn];

	if (!(*p & HOME_HIDDEN))
		return 0;
	*p &= (u8)~HOME_HIDDEN;
	*p |= HOME_PRESENT | (write ? HOME_WRITABLE : 0);
	return 1;
}

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct home *h = home_of(lane);

	for (u32 i = 0; i < nr; i++)
		if (h->page[gfn + i] & HOME_PRESENT)
			h->page[gfn + i] |= HOME_WRITABLE;
}

static void op_unmap(struct dcm_lane *lane, struct dcm_unmap *v, unsigned int n)
{
	struct home *h = home_of(lane);

	for (unsigned int k = 0; k < n; k++, v++) {
		for (u32 i = 0; i < 1u << v->order; i++) {
			u8 *p = &h->page[v->gfn + i];

			if (*p & HOME_HIDDEN)
				v->observed |= (u16)(1u << i);
			if (h->accessed_bits) {
				v->observed |= (u16)(1u << i);
				if (*p & HOME_TOUCHED)
					v->touched |= (u16)(1u << i);
				if (*p & HOME_DIRTY)
					v->dirty |= (u16)(1u << i);
			}
			*p &= HOME_WRITTEN | HOME_SEEN;
		}
		v->frame = v->gfn;
		v->err = 0;
	}
}

static void op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	(void)lane;
	(void)gfn;
	(void)nr;
}

static u16 op_zero_mask(struct dcm_lane *lane, u32 frame, unsigned int order,
			u16 mask)
{
	struct home *h = home_of(lane);
	u16 zero = 0;

	for (u32 i = 0; i < 1u << order; i++)
		if (!(h->page[frame + i] & HOME_WRITTEN))
			zero |= (u16)(1u << i);
	return zero & mask;
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	return &home_of(lane)->page[frame + page];
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	(void)lane;
	(void)frame;
	(void)order;
}

static void op_discard(struct dcm_lane *lane, u32 gfn, unsigned int order)
{
	memset(&home_of(lane)->page[gfn], 0, 1u << order);
}

static int op_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct home *h = home_of(lane);

	io->next = h->done;
	h->done = io;
	return 0;
}

static void op_io_flush(struct dcm_lane *lane)
{
	(void)lane;
}

static int op_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct home *h = home_of(lane);
	struct dcm_io **end = &h->done;
	int n = 0;

	*done = h->done;
	while (*end && n < max) {
		end = &(*end)->next;
		n++;
	}
	h->done = *end;
	*end = NULL;
	return n;
}

static void op_want_slab(struct dcm_vm *vm, u32 extent)
{
	(void)vm;
	die("home: extent %u has no slab", extent);
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	(void)lane;
	die("home: page %u of %u lost", gfn, nr);
}

/* Counts calls: the core orders things by it, and a clock would cost. */
static u64 op_now_ns(void)
{
	static u64 now;

	return ++now;
}

static bool op_relax(struct dcm_lane *lane)
{
	(void)lane;
	return true;
}

static const struct dcm_ops ops = {
	.install = op_install,
	.remap = op_remap,
	.reveal = op_reveal,
	.unprotect = op_unprotect,
	.unmap = op_unmap,
	.wake = op_wake,
	.zero_mask = op_zero_mask,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = op_discard,
	.io_post = op_io_post,
	.io_flush = op_io_flush,
	.io_poll = op_io_poll,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = op_now_ns,
	.relax = op_relax,
};

struct home *home_new(u32 nr_pages, u64 budget_pages, bool accessed_bits)
{
	struct home *h = calloc(1, sizeof(*h));
	struct dcm_vm_config cfg = {
		.nr_pages = nr_pages,
		.extent_pages = 1u << 18,
		.nr_lanes = 1,
		.budget_pages = budget_pages,
		.seed = 1,
		.ops = &ops,
		.priv = h,
	};
	int err;

	if (!h || !(h->page = calloc(nr_pages + DCM_BLOCK_MAX, 1)))
		die("home: no memory");
	h->accessed_bits = accessed_bits;
	h->rng = 7;
	h->vm = dcm_vm_create(&cfg, &err);
	if (!h->vm)
		die("home: %u pages, budget %llu: %s", nr_pages,
		    (unsigned long long)budget_pages, strerror(-err));
	h->lane = &h->vm->lane[0];
	h->slab = (struct dcm_slab_ref){ .bytes = 1ull << 30, .fd = -1 };
	for (u32 e = 0; e < h->vm->nr_extents; e++)
		if (dcm_extent_attach(h->vm, e, &h->slab))
			die("home: cannot attach a slab");
	return h;
}

void home_free(struct home *h)
{
	dcm_vm_destroy(h->vm);
	free(h->page);
	free(h);
}

void home_tune(struct home *h, const char *name, u64 value)
{
	if (dcm_tunable_set(h->vm, name, value))
		die("home: cannot set %s to %llu", name,
		    (unsigned long long)value);
}

void home_fault(struct home *h, u32 page, u32 flags)
{
	enum dcm_fault_result r = dcm_fault(h->lane, page, flags);

	for (int i = 0; r != DCM_FAULT_DONE; i++) {
		if (i > 1000)
			die("home: a fault makes no progress");
		while (dcm_poll(h->lane))
			;
		if (r == DCM_FAULT_PENDING && (h->page[page] & HOME_PRESENT))
			break;
		r = dcm_fault(h->lane, page, flags);
	}
}

void home_access(struct home *h, u32 page, bool write)
{
	u8 *p = &h->page[page];

	while (!(*p & HOME_PRESENT))
		home_fault(h, page, write ? DCM_FF_WRITE : 0);
	if (write) {
		while (!(*p & HOME_WRITABLE))
			home_fault(h, page,
				   *p & HOME_PRESENT ?
					       DCM_FF_WRITE | DCM_FF_WP :
					       DCM_FF_WRITE);
		*p |= HOME_WRITTEN | HOME_DIRTY;
	}
	*p |= HOME_TOUCHED | HOME_SEEN;
}
