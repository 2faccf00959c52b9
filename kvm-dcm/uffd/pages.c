// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pages.c - map, unmap and collect some pages of a block
 *
 * A block has up to 16 pages; a mask says which of them a call is about, and
 * a run of set bits is one system call. A mask never has a page that is not
 * the guest's (dcm_guest_mask()).
 *
 * Locking: none. The block is BUSY, so no other lane changes its mapping; a
 * lane's @iov is its own.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "pages.h"

/* Add pages under @mask to the ranges that one call drops. */
void dcm_pages_drop_add(struct dcm_pg_lane *l, u64 va, u16 mask,
			unsigned int *nr)
{
	unsigned int i = 0, n;

	for (; dcm_mask_next_run(mask, &i, &n); i += n) {
		struct iovec new = { (void *)(va + i * DCM_PAGE_SIZE),
				     (size_t)n * DCM_PAGE_SIZE };
		struct iovec *last = *nr ? &l->iov[*nr - 1] : NULL;

		if (last &&
		    (char *)last->iov_base + last->iov_len == new.iov_base)
			last->iov_len += new.iov_len;
		else
			l->iov[(*nr)++] = new;
	}
}

/* Unmap pages again that were mapped write-protected. */
void dcm_pages_take_out(struct dcm_pg_lane *l, u64 va, u16 mask)
{
	unsigned int nr = 0;

	dcm_pages_drop_add(l, va, mask, &nr);
	dcm_uffd_drop(&l->pg->uffd, l->iov, nr);
}

/* Copy the pages under @mask; @src is the block's first byte. */
int dcm_pages_copy_in(struct dcm_pager *pg, u64 va, const char *src, u16 mask,
		      unsigned int mode, u16 *done)
{
	unsigned int i = 0, n;

	for (; dcm_mask_next_run(mask, &i, &n); i += n) {
		int err = dcm_uffd_copy(&pg->uffd, va + i * DCM_PAGE_SIZE,
					src ? src + i * DCM_PAGE_SIZE :
					      (char *)pg->zero,
					n * DCM_PAGE_SIZE, mode);

		/*
		 * ENOENT: the run spans two VMAs, as after mprotect() of a
		 * part; or, for one page, no VMA has it. EEXIST should not
		 * happen; if it does, a page is mapped already. Try the
		 * pages one by one.
		 */
		if (n > 1 && (err == -ENOENT || err == -EEXIST)) {
			unsigned int k;

			for (k = i; k < i + n; k++) {
				err = dcm_pages_copy_in(pg, va, src,
							(u16)(1u << k), mode,
							done);
				if (err)
					return err;
			}
			continue;
		}
		if (err && err != -EEXIST && err != -ENOENT)
			return err;
		*done |= (u16)(((1u << n) - 1) << i);
	}
	return 0;
}

int dcm_pages_move(struct dcm_pager *pg, u64 to, u64 from, u16 mask, bool wake,
		   u16 *moved)
{
	unsigned int i = 0, n;
	int err = 0;
	u64 bytes;

	for (; !err && dcm_mask_next_run(mask, &i, &n); i += n) {
		u64 off = (u64)i * DCM_PAGE_SIZE;

		err = dcm_uffd_move(&pg->uffd, to + off, from + off,
				    n * DCM_PAGE_SIZE, wake, &bytes);
		*moved |= (u16)(((1u << (bytes >> DCM_PAGE_SHIFT)) - 1) << i);
	}
	return err;
}

/* Move the bytes of hidden pages from their own frames to the block's frame. */
void dcm_pages_collect_hidden(struct dcm_pg_lane *l, u32 gfn, u16 hidden,
			   char *dst)
{
	struct dcm_pager *pg = l->pg;
	unsigned int i = 0, n;
	bool w;

	for (; dcm_mask_next_run(hidden, &i, &n); i++) {
		u32 frame = dcm_sample_take(pg, gfn + i, &w);

		if (frame == DCM_NIL)
			continue;
		if (dst)
			memcpy(dst + i * DCM_PAGE_SIZE,
			       dcm_frame_addr(&pg->frames, frame),
			       DCM_PAGE_SIZE);
		dcm_frame_put(l, frame, true);
	}
}
