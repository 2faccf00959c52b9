/* SPDX-License-Identifier: GPL-2.0-or-later */
/* file.h - files as slabs: the directory, a slab's file, the disk's free space */
#ifndef DCM_FILE_SLAB_H
#define DCM_FILE_SLAB_H

#include "hostmem.h"

/**
 * dcm_file_dir_open() - open the directory of slabs' files, and try it out
 * @path: the directory
 * @err: one line on failure
 * @err_len: size of @err
 *
 * A file there must be possible that has no name, takes direct I/O of pages, and
 * can be allocated ahead.
 *
 * Return: a descriptor, or a negative errno.
 */
int dcm_file_dir_open(const char *path, char *err, size_t err_len);

/* A new empty file without a name in @dir: a descriptor, or a negative errno. */
int dcm_file_new(int dir);

/* The size of @dir's file system and what is free of it: 0 or a negative errno. */
int dcm_file_space(int dir, struct dcm_hostmem *hm);

#endif /* DCM_FILE_SLAB_H */
