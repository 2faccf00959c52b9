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
 * It must be possible to make files there that have no name, take direct I/O of pages,
 * and can be allocated ahead.
 *
 * Return: a descriptor, or a negative errno.
 */
int dcm_file_dir_open(const char *path, char *err, size_t err_len);

/* Make an empty file without a name in @dir. A descriptor, or a negative errno. */
int dcm_file_new(int dir);

/* Get the size and the free space of @dir's file system. 0 or a negative errno. */
int dcm_file_space(int dir, struct dcm_hostmem *hm);

#endif /* DCM_FILE_SLAB_H */
