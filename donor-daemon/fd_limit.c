// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fd_limit.c - divide the limit of open files among slabs, connections and the rest
 *
 * Each slab and each connection is a descriptor, and all share the process's
 * limit. So the donor reserves before it lends: descriptors that connections,
 * peers without a role, and the daemon itself may ever need are kept back, and
 * slabs get the rest. The capacity is reduced to that, so a MAP without a
 * descriptor is refused like any beyond the capacity, and however small slabs
 * are, they take no descriptor from a host that connects.
 *
 *	limit = OWN + 2 x GC workers + seats x (sockets + 1)
 *	        + connections x (1, with a UNIX socket 2) + slabs
 *
 * With a UNIX socket a connection may need a second descriptor, one that waits to be
 * passed: at most %DCM_CHAN_FDS / 2 of each connection.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "fd_limit.h"
#include "log_limit.h"

#define OWN	384u	/* log, event loop, threads (64 x 2), HTTP (128), RDMA, ... */
#define OWN_FILE 64u	/* the threads' rings */

static u64 fd_limit_raise(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return 0;
	if (rl.rlim_cur != rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rl))
			dcm_warn("the limit of open files stays low: %s",
				 strerror(errno));
		if (getrlimit(RLIMIT_NOFILE, &rl))
			return 0;
	}
	return rl.rlim_cur;
}

static u64 fd_limit_reserved(const struct dcm_config *cfg)
{
	u64 sockets = cfg->nr_listen + (cfg->unix_path[0] ? 1 : 0);

	return OWN + (cfg->medium == DCM_MEDIUM_FILE ? OWN_FILE : 0) +
	       2ull * cfg->gc_workers + cfg->handshakes * (sockets + 1) +
	       cfg->connections * (cfg->unix_path[0] ? 2ull : 1ull);
}

int dcm_fd_limit_check(struct dcm_config *cfg, char *err, size_t err_len)
{
	u64 limit = fd_limit_raise();
	u64 kept = fd_limit_reserved(cfg);

	if (limit <= kept) {
		snprintf(err, err_len,
			 "the limit of open files, %llu, is too low: connections = %u and handshakes = %u need %llu, and each slab one more; raise LimitNOFILE (ulimit -n), or lower them in [limits]",
			 (unsigned long long)limit, cfg->connections,
			 cfg->handshakes, (unsigned long long)kept);
		return -EMFILE;
	}
	cfg->fd_slabs = limit - kept;
	return 0;
}

void dcm_fd_limit_warn(const struct dcm_config *cfg, u64 bytes)
{
	u64 slabs = bytes / cfg->slab_bytes;

	if (slabs <= cfg->fd_slabs)
		return;
	dcm_warn("capacity: %llu MiB are %llu slabs, and the limit of open files leaves %llu: lending up to %llu MiB; raise LimitNOFILE to %llu, or slab-size",
		 (unsigned long long)(bytes >> 20), (unsigned long long)slabs,
		 (unsigned long long)cfg->fd_slabs,
		 (unsigned long long)(cfg->fd_slabs * cfg->slab_bytes >> 20),
		 (unsigned long long)(fd_limit_reserved(cfg) + slabs));
}
