/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_priv.h - what the fake backend's files share among themselves */
#ifndef FAKE_PRIV_H
#define FAKE_PRIV_H

#include "fake_backend.h"

#define FH_LANE_BUFS DCM_FETCHES_MAX

static inline void fb_set_buf(struct dcm_vm *vm, u32 lane, u32 i, void *buf)
{
	vm->lane[lane].fetch[i].buf = buf;
}

static inline u32 fb_slab_state_of(const struct fb_slab *s)
{
	return __atomic_load_n(&s->state, __ATOMIC_RELAXED);
}

/* fake_backend.c */
const char *fb_page_text(const struct fake_backend *fb, u32 gfn);
bool fb_chance(struct fake_backend *fb, u32 lane, u32 per_10000);
void fb_nest(struct fake_backend *fb, u32 lane);
void fb_wake_pages(struct fake_backend *fb, u32 gfn, u32 nr);
void fb_check_content(struct fake_backend *fb, u32 gfn, u64 content,
		      const char *what);
void *fb_ptr(const struct fake_backend *fb, u64 index);
u64 fb_index(const struct fake_backend *fb, const void *p);

/* fake_ops.c */
extern const struct dcm_ops fb_ops;
void fb_advance(struct fake_backend *fb, u64 ticks);

/* fake_donor.c */
int fb_io_post(struct dcm_lane *lane, struct dcm_io *io);
void fb_io_flush(struct dcm_lane *lane);
int fb_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max);
void fb_unsure(struct fake_backend *fb, u32 gfn, u32 nr);
void fb_sure(struct fake_backend *fb, u32 gfn);
void fb_io_uses_frame(struct fake_backend *fb, u32 frame, u32 nr);

/* fake_seal.c */
int fb_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
	       struct dcm_seal *s);
int fb_op_open(struct dcm_lane *lane, void *data, u32 page, u32 gfn,
	       const struct dcm_seal *s, bool keep);
/* A word of a slab, opened if pages are sealed; false: it does not open. */
bool fb_slab_word(const struct fake_backend *fb, u32 gfn, u64 *word);

/* fake_check.c */
void fb_note_lost(struct fake_backend *fb, u32 gfn);

#endif /* FAKE_PRIV_H */
