/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_priv.h - what the fake home's files share among themselves */
#ifndef FAKE_PRIV_H
#define FAKE_PRIV_H

#include "fake_home.h"

#define FH_LANE_BUFS DCM_FETCHES_MAX

static inline void fh_set_buf(struct dcm_vm *vm, u32 lane, u32 i, void *buf)
{
	vm->lane[lane].fetch[i].buf = buf;
}

/* fake_home.c */
const char *fh_page_text(const struct fake_home *fh, u32 gfn);
bool fh_chance(struct fake_home *fh, u32 lane, u32 per_10000);
void fh_nest(struct fake_home *fh, u32 lane);
void fh_wake_pages(struct fake_home *fh, u32 gfn, u32 nr);
void fh_check_content(struct fake_home *fh, u32 gfn, u64 content,
		      const char *what);
void *fh_ptr(const struct fake_home *fh, u64 index);
u64 fh_index(const struct fake_home *fh, const void *p);
void fh_advance(struct fake_home *fh, u64 ticks);

/* fake_donor.c */
int fh_io_post(struct dcm_lane *lane, struct dcm_io *io);
void fh_io_flush(struct dcm_lane *lane);
int fh_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max);
void fh_io_uses_frame(struct fake_home *fh, u32 frame, u32 nr);

/* fake_check.c */
void fh_note_lost(struct fake_home *fh, u32 gfn);

#endif /* FAKE_PRIV_H */
