/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * uffd.h - userfaultfd: open, probe, and a function for each ioctl used
 */
#ifndef DCM_UFFD_H
#define DCM_UFFD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <linux/userfaultfd.h>

#include "../lib/dcm_context.h"

/* Debian 12's kernel headers are those of 6.1. */
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#define UFFDIO_MOVE_MODE_DONTWAKE ((__u64)1 << 0)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES ((__u64)1 << 1)
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
struct uffdio_move {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 mode;
	__s64 move;
};
#endif

/**
 * struct dcm_uffd - a userfaultfd and what this kernel can do with it
 * @fd: the descriptor
 * @move: UFFDIO_MOVE (6.8): moves a page only if it is not pinned
 * @poison: UFFDIO_POISON (6.6): SIGBUS for one page without a mapping of its own
 * @thread_id: messages name the faulting thread
 * @vector: process_madvise() drops many ranges with one TLB flush
 * @pidfd: this process, for @vector
 */
struct dcm_uffd {
	int fd;
	bool move;
	bool poison;
	bool thread_id;
	bool vector;
	int pidfd;
};

/* dcm_uffd_open() flags: behave as on an older kernel */
#define DCM_UFFD_NO_MOVE	0x1
#define DCM_UFFD_NO_VECTOR	0x2
#define DCM_UFFD_NO_POISON	0x4

/* dcm_uffd_copy() modes */
#define DCM_UFFD_WP		0x1	/* write-protected */
#define DCM_UFFD_QUIET		0x2	/* wakes nobody */

int dcm_uffd_open(struct dcm_uffd *u, unsigned int flags, char *err,
		  size_t len);
void dcm_uffd_close(struct dcm_uffd *u);

int dcm_uffd_register(struct dcm_uffd *u, u64 addr, u64 bytes, bool missing);
int dcm_uffd_unregister(struct dcm_uffd *u, u64 addr, u64 bytes);
int dcm_uffd_copy(struct dcm_uffd *u, u64 dst, const void *src, u64 bytes,
		  unsigned int mode);
int dcm_uffd_move(struct dcm_uffd *u, u64 dst, u64 src, u64 bytes, bool wake,
		  u64 *moved);
int dcm_uffd_protect(struct dcm_uffd *u, u64 addr, u64 bytes, bool wp);
void dcm_uffd_wake(struct dcm_uffd *u, u64 addr, u64 bytes);
int dcm_uffd_poison(struct dcm_uffd *u, u64 addr, u64 bytes);
void dcm_uffd_drop(struct dcm_uffd *u, struct iovec *iov, unsigned int nr);

#endif /* DCM_UFFD_H */
