/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fd_limit.h - divide the limit of open files among slabs, connections and the rest */
#ifndef DCM_FD_LIMIT_H
#define DCM_FD_LIMIT_H

#include "config.h"

/**
 * dcm_fd_limit_check() - check that the limit of open files is enough for @cfg
 * @cfg: sets its @fd_slabs, the number of slabs for which there are
 *	descriptors beside all other uses
 *
 * Raises the soft limit as far as possible.
 *
 * Return: 0; or -EMFILE, and one line, if the limit is too low for @cfg.
 */
int dcm_fd_limit_check(struct dcm_config *cfg, char *err, size_t err_len);

/* If the limit of open files reduces a capacity of @bytes, log by how much; once. */
void dcm_fd_limit_warn(const struct dcm_config *cfg, u64 bytes);

#endif /* DCM_FD_LIMIT_H */
