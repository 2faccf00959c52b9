/* SPDX-License-Identifier: GPL-2.0-or-later */
/* files.h - descriptors: how many there are, and what for */
#ifndef DCM_FILES_H
#define DCM_FILES_H

#include "config.h"

/**
 * dcm_files_check() - is the limit of open files enough for @cfg?
 * @cfg: its @file_slabs becomes the number of slabs that there are descriptors
 *	for beside everything else
 *
 * Raises the soft limit as far as it goes.
 *
 * Return: 0; or -1, and one line, if what @cfg promises can't be had at all.
 */
int dcm_files_check(struct dcm_config *cfg, char *err, size_t err_len);

/* Says once what the limit takes from a capacity of @bytes, if anything. */
void dcm_files_warn(const struct dcm_config *cfg, uint64_t bytes);

#endif /* DCM_FILES_H */
