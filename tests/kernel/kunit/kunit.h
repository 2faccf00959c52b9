/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * kunit.h - what the tests inside the kernel share (fixture.c)
 */
#ifndef DCMFS_KUNIT_H
#define DCMFS_KUNIT_H

#include <kunit/test.h>

#include "dcmfs.h"

#define KUNIT_EXTENT SZ_2M
#define KUNIT_OPTIONS "extent=2M,budget=1M,lanes=2"
#define KUNIT_PAGES (2 * KUNIT_EXTENT / PAGE_SIZE) /* of kunit_served() */

/**
 * struct kunit_mem - a file of a dcmfs that is mounted nowhere
 * @mnt: its mount
 * @file: the file, of no name
 * @vm: its memory; %NULL until it has a size
 */
struct kunit_mem {
	struct vfsmount *mnt;
	struct file *file;
	struct dcmfs_vm *vm;
};

struct kunit_mem *kunit_mem(struct kunit *test, const char *options, u64 bytes);
struct file *kunit_tmpfile(struct kunit_mem *mem);
struct file *kunit_memfd(struct kunit *test, u64 bytes);
int kunit_fd(struct file *file);
int kunit_attach(struct dcmfs_vm *vm, struct file *memfd, u64 id, u32 extent);
struct kunit_mem *kunit_served(struct kunit *test, bool seal);
u64 __user *kunit_map(struct kunit *test, struct file *file, u64 bytes);

/* Not so soon: whoever faults in the kernel is not kept waiting long. */
void kunit_poke(struct kunit *test, u64 __user *at, u64 value);
u64 kunit_peek(struct kunit *test, u64 __user *at);

u64 kunit_word(unsigned long page);
void kunit_pages_write(struct kunit *test, u64 __user *at);
unsigned long kunit_pages_wrong(struct kunit *test, u64 __user *at);

void kunit_no_memory(struct kunit *test);
void kunit_memory(void);
bool kunit_fail_nth(unsigned int nth);
bool kunit_failed(void);

#endif /* DCMFS_KUNIT_H */
