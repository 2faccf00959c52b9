// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guest.c - a guest that costs nothing; see guest.h
 */
#include "guest.h"
#include "common.h"

static struct guest *guest_of(struct dcm_lane *lane)
{
	return lane->vm->priv;
}

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct guest *g = guest_of(lane);
	u32 nr = 1u << f->order;
	u16 hide = 0;

	f->hidden = 0;
	/* As kvm-dcm.ko: dirty is what the page tables say, not a guess. */
	if (g->accessed_bits)
		f->writable = f->write && f->fault_page < nr ?
				      (u16)(1u << f->fault_page) :
				      0;
	if (f->hide) {
		hide = f->hide;
		f->hidden = hide;
	} else if (f->sample && f->order && !g->accessed_bits) {
		u32 k = (u32)(bench_rand(&g->rng) >> 32) % nr;

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
		u8 keep = g->page[f->gfn + i] & (GUEST_WRITTEN | GUEST_SEEN);

		if (hide & (1u << i))
			g->page[f->gfn + i] = keep | GUEST_HIDDEN;
		else
			g->page[f->gfn + i] =
				keep | GUEST_PRESENT |
				(g->accessed_bits || f->writable & (1u << i) ?
					 GUEST_WRITABLE :
					 0);
	}
	return 0;
}

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, u16 hide, bool keep)
{
	struct guest *g = guest_of(lane);

	(void)frame;
	(void)keep;
	for (u32 i = 0; i < 1u << order; i++) {
		u8 *p = &g->page[gfn + i];

		*p &= (u8) ~(GUEST_WRITABLE | GUEST_HIDDEN);
		*p |= hide & (1u << i) ? GUEST_HIDDEN : GUEST_PRESENT;
		if (g->accessed_bits || writable & (1u << i))
			*p |= GUEST_WRITABLE;
	}
}

static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	u8 *p = &guest_of(lane)->page[gfn];

	if (!(*p & GUEST_HIDDEN))
		return 0;
	*p &= (u8)~GUEST_HIDDEN;
	*p |= GUEST_PRESENT | (write ? GUEST_WRITABLE : 0);
	return 1;
}

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct guest *g = guest_of(lane);

	for (u32 i = 0; i < nr; i++)
		if (g->page[gfn + i] & GUEST_PRESENT)
			g->page[gfn + i] |= GUEST_WRITABLE;
}

static void op_unmap(struct dcm_lane *lane, struct dcm_unmap *v, unsigned int n)
{
	struct guest *g = guest_of(lane);

	for (unsigned int k = 0; k < n; k++, v++) {
		for (u32 i = 0; i < 1u << v->order; i++) {
			u8 *p = &g->page[v->gfn + i];

			if (*p & GUEST_HIDDEN)
				v->observed |= (u16)(1u << i);
			if (g->accessed_bits) {
				v->observed |= (u16)(1u << i);
				if (*p & GUEST_TOUCHED)
					v->touched |= (u16)(1u << i);
				if (*p & GUEST_DIRTY)
					v->dirty |= (u16)(1u << i);
			}
			*p &= GUEST_WRITTEN | GUEST_SEEN;
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
	struct guest *g = guest_of(lane);
	u16 zero = 0;

	for (u32 i = 0; i < 1u << order; i++)
		if (!(g->page[frame + i] & GUEST_WRITTEN))
			zero |= (u16)(1u << i);
	return zero & mask;
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	return &guest_of(lane)->page[frame + page];
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	(void)lane;
	(void)frame;
	(void)order;
}

static void op_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	memset(&guest_of(lane)->page[gfn], 0, nr);
}

static int op_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct guest *g = guest_of(lane);

	io->next = g->done;
	g->done = io;
	return 0;
}

static void op_io_flush(struct dcm_lane *lane)
{
	(void)lane;
}

static int op_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct guest *g = guest_of(lane);
	struct dcm_io **end = &g->done;
	int n = 0;

	*done = g->done;
	while (*end && n < max) {
		end = &(*end)->next;
		n++;
	}
	g->done = *end;
	*end = NULL;
	return n;
}

static void op_want_slab(struct dcm_vm *vm, u32 extent)
{
	(void)vm;
	die("guest: extent %u has no slab", extent);
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	(void)lane;
	die("guest: page %u of %u lost", gfn, nr);
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

struct guest *guest_new(u32 nr_pages, u64 budget_pages, bool accessed_bits)
{
	struct guest *g = calloc(1, sizeof(*g));
	struct dcm_vm_config cfg = {
		.nr_pages = nr_pages,
		.extent_pages = 1u << 18,
		.nr_lanes = 1,
		.budget_pages = budget_pages,
		.seed = 1,
		.dirty_late = accessed_bits,
		.ops = &ops,
		.priv = g,
	};
	int err;

	if (!g || !(g->page = calloc(nr_pages + DCM_BLOCK_MAX, 1)))
		die("guest: no memory");
	g->accessed_bits = accessed_bits;
	g->rng = 7;
	g->vm = dcm_vm_create(&cfg, &err);
	if (!g->vm)
		die("guest: %u pages, budget %llu: %s", nr_pages,
		    (unsigned long long)budget_pages, strerror(-err));
	g->lane = &g->vm->lane[0];
	g->slab = (struct dcm_slab_ref){ .bytes = 1ull << 30, .fd = -1 };
	for (u32 e = 0; e < g->vm->nr_extents; e++)
		if (dcm_extent_attach(g->vm, e, &g->slab))
			die("guest: cannot attach a slab");
	return g;
}

void guest_free(struct guest *g)
{
	dcm_vm_destroy(g->vm);
	free(g->page);
	free(g);
}

void guest_tune(struct guest *g, const char *name, u64 value)
{
	if (dcm_tunable_set(g->vm, name, value))
		die("guest: cannot set %s to %llu", name,
		    (unsigned long long)value);
}

void guest_fault(struct guest *g, u32 page, u32 flags)
{
	enum dcm_fault_result r = dcm_fault(g->lane, page, flags);

	for (int i = 0; r != DCM_FAULT_DONE; i++) {
		if (i > 1000)
			die("guest: a fault makes no progress");
		while (dcm_poll(g->lane))
			;
		if (r == DCM_FAULT_PENDING && (g->page[page] & GUEST_PRESENT))
			break;
		r = dcm_fault(g->lane, page, flags);
	}
}

void guest_access(struct guest *g, u32 page, bool write)
{
	u8 *p = &g->page[page];

	while (!(*p & GUEST_PRESENT))
		guest_fault(g, page, write ? DCM_FF_WRITE : 0);
	if (write) {
		while (!(*p & GUEST_WRITABLE))
			guest_fault(g, page,
				   *p & GUEST_PRESENT ?
					       DCM_FF_WRITE | DCM_FF_WP :
					       DCM_FF_WRITE);
		*p |= GUEST_WRITTEN | GUEST_DIRTY;
	}
	*p |= GUEST_TOUCHED | GUEST_SEEN;
}
