/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * jitter.h - random delays and failures, for tests
 *
 * Empty unless the module is built with DCM_JITTER=1.
 */
#ifndef DCMFS_JITTER_H
#define DCMFS_JITTER_H

#include <linux/types.h>

/**
 * enum dcmfs_point - where a thread may be delayed, by some ticks at most
 * @DCMFS_AT_FAULT: a fault, before it looks at its block
 * @DCMFS_AT_INSTALL: frames are there, before they can be mapped
 * @DCMFS_AT_LOCKED: a page is locked and handed over, and not mapped yet
 * @DCMFS_AT_UNMAP: a block's pages are locked, before they are unmapped
 * @DCMFS_AT_UNMAPPED: after that, before they are looked at
 * @DCMFS_AT_DISCARD: pages are locked, before they are discarded
 * @DCMFS_AT_POST: before an I/O
 * @DCMFS_AT_DONE: I/O is complete, before any thread is told
 */
enum dcmfs_point {
	DCMFS_AT_FAULT,
	DCMFS_AT_INSTALL,
	DCMFS_AT_LOCKED,
	DCMFS_AT_UNMAP,
	DCMFS_AT_UNMAPPED,
	DCMFS_AT_DISCARD,
	DCMFS_AT_POST,
	DCMFS_AT_DONE,
	DCMFS_NR_POINTS
};

#ifdef DCMFS_JITTER
void dcmfs_jitter(enum dcmfs_point where);
bool dcmfs_jitter_fails(void);
#else
static inline void dcmfs_jitter(enum dcmfs_point where)
{
}

/* Should this frame allocation fail? */
static inline bool dcmfs_jitter_fails(void)
{
	return false;
}
#endif

#endif /* DCMFS_JITTER_H */
