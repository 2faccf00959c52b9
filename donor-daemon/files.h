/* SPDX-License-Identifier: GPL-2.0-or-later */
/* files.h - how many descriptors there are, and their uses */
#ifndef DCM_FILES_H
#define DCM_FILES_H

#include "config.h"

/**
 * dcm_files_check() - whether the limit of open files is enough for @cfg
 * @cfg: sets its @file_slabs, the number of slabs for which there are
 *	descriptors beside all other uses
 *
 * Raises the soft limit as far as possible.
 *
 * Return: 0; or -1, and one line, if the limit is too low for @cfg.
 */
int dcm_files_check(struct dcm_config *cfg, char *err, size_t err_len);

/* Log once how much of a capacity of @bytes the limit takes, if any. */
void dcm_files_warn(const struct dcm_config *cfg, uint64_t bytes);

#endif /* DCM_FILES_H */
