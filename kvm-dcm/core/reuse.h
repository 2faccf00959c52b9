/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * reuse.h - is a page one of the sample whose touches are watched? (reuse.c)
 */
#ifndef DCM_CORE_REUSE_H
#define DCM_CORE_REUSE_H

#include "hist.h"
#include "vm.h"

static inline u32 dcm_reuse_hash(u32 group)
{
	u32 h = group * 0x9e3779b1u + 0x7f4a7c15u;

	h = (h ^ h >> 16) * 0x85ebca6bu;
	h = (h ^ h >> 13) * 0xc2b2ae35u;
	return h ^ h >> 16;
}

/**
 * dcm_reuse_page() - the watched page of the 64 KiB that a page is in
 * @vm: the VM
 * @gfn: any page of the 64 KiB
 *
 * Return: the page, perhaps @gfn itself; %DCM_NIL: none of them is watched.
 */
static inline u32 dcm_reuse_page(const struct dcm_vm *vm, u32 gfn)
{
	u32 h = dcm_reuse_hash(gfn >> DCM_ORDER_MAX);

	if (likely(h >= READ_ONCE(vm->reuse_below)))
		return DCM_NIL;
	gfn = (gfn & ~(DCM_BLOCK_MAX - 1)) | (h & (DCM_BLOCK_MAX - 1));
	return likely(gfn < vm->nr_pages) ? gfn : DCM_NIL;
}

/* The watched page of a block, as a bit counted from @head; 0: it has none, or @not. */
static inline u16 dcm_reuse_mask(const struct dcm_vm *vm, u32 head,
				 unsigned int order, u32 not )
{
	u32 gfn;

	/* most missed blocks are the one page that was asked for */
	if (!order && head == not )
		return 0;
	gfn = dcm_reuse_page(vm, head);
	return unlikely(gfn != DCM_NIL) && gfn - head < 1u << order &&
			       gfn != not ?
		       (u16)(1u << (gfn - head)) :
		       0;
}

void dcm_reuse_touched(struct dcm_lane *lane, u32 gfn);
void dcm_reuse_mapped(struct dcm_lane *lane, u32 gfn, bool fresh);
void dcm_reuse_forget(struct dcm_vm *vm, u32 gfn);
u16 dcm_reuse_hide(struct dcm_lane *lane, u16 mask);

/* An access to a page has faulted: count the touch if the page is of the sample. */
static inline void dcm_reuse_touch(struct dcm_lane *lane, u32 gfn)
{
	if (unlikely(dcm_reuse_page(lane->vm, gfn) == gfn))
		dcm_reuse_touched(lane, gfn);
}

bool dcm_reuse_init(struct dcm_vm *vm, u64 budget);
void dcm_reuse_exit(struct dcm_vm *vm);
u64 dcm_reuse_bytes(const struct dcm_ops *ops);

#endif /* DCM_CORE_REUSE_H */
