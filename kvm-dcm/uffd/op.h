/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * op.h - operations of struct dcm_ops that have files of their own
 *
 * struct dcm_ops in core/ops.h says what each of them does.
 */
#ifndef DCM_UFFD_OP_H
#define DCM_UFFD_OP_H

#include "pager.h"

/* install.c */
int dcm_op_install(struct dcm_lane *lane, struct dcm_fetch *f);
void dcm_op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order, u32 frame,
		  u16 writable, u16 hide, bool keep);
int dcm_op_reveal(struct dcm_lane *lane, u32 gfn, bool write);
void dcm_op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr);
void dcm_op_wake(struct dcm_lane *lane, u32 gfn, u32 nr);

/* fresh.c */
int dcm_op_fresh(struct dcm_lane *lane, u32 gfn, u32 nr);

/* page_sum.c */
u32 dcm_op_sum(struct dcm_lane *lane, const void *data, u32 page);
void dcm_op_wrong(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer,
		  u32 lost);

/* page_seal.c */
int dcm_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
		struct dcm_seal *s);
int dcm_op_open(struct dcm_lane *lane, void *data, u32 page, u32 gfn,
		const struct dcm_seal *s, bool keep);

/* unmap.c */
int dcm_op_hide(struct dcm_lane *lane, u32 gfn, bool dirty);
void dcm_op_unmap(struct dcm_lane *lane, struct dcm_unmap *v, unsigned int nr);
void dcm_op_copy(struct dcm_lane *lane, struct dcm_unmap *v);
void dcm_op_discard(struct dcm_lane *lane, u32 gfn, u32 nr);

#endif /* DCM_UFFD_OP_H */
