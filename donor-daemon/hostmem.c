// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostmem.c - how much memory the host has, and how much is free
 *
 * MemAvailable, bounded by every memory cgroup from this process's up to the
 * root (v2, v1 or both mounted): a daemon in a container must not lend memory
 * beyond its limit, or it would be killed. Inactive file pages do not count as
 * a cgroup's use, as MemAvailable does for the host. Paths of another cgroup
 * namespace ("/../..") can't be followed and leave the mount's root only.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "hostmem.h"

#define TEXT_MAX (256u << 10)

/* A file of proc or cgroup as a string; NULL if it does not exist. */
static char *text_read(const char *root, const char *path)
{
	char full[1024];
	size_t len;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >=
	    sizeof(full)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return dcm_file_read(full, TEXT_MAX, &len);
}

/* The number after @key at the beginning of a line; @otherwise if none. */
static u64 text_field(const char *text, const char *key, u64 otherwise)
{
	size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (!strncmp(p, key, n))
			return strtoull(p + n, NULL, 10);
	}
	return otherwise;
}

/* Read a file with one number; "max" and a missing file are U64_MAX. */
static u64 number_read(const char *root, const char *dir, const char *name)
{
	char path[768];
	u64 v = U64_MAX;
	char *text, *end;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    sizeof(path))
		return v;
	text = text_read(root, path);
	if (!text)
		return v;
	v = strtoull(text, &end, 10);
	if (end == text)
		v = U64_MAX;
	free(text);
	return v;
}

static void cgroup_bound(const char *root, const char *dir, const char *limit,
			 const char *usage, const char *inactive,
			 struct dcm_hostmem *hm)
{
	u64 max = number_read(root, dir, limit);
	u64 used = number_read(root, dir, usage);
	u64 cache = 0;
	char path[768];
	char *text;

	if (max >= hm->total || used == U64_MAX)
		return; /* no limit, or one beyond the host's own */
	if ((size_t)snprintf(path, sizeof(path), "%s/memory.stat", dir) <
	    sizeof(path)) {
		text = text_read(root, path);
		if (text)
			cache = text_field(text, inactive, 0);
		free(text);
	}
	used -= cache < used ? cache : used;
	used = used < max ? max - used : 0;
	if (used < hm->free) {
		hm->free = used;
		hm->total = max;
	}
}

/*
 * Apply the limits of the cgroup at @mount, and of each one on the way down to @path.
 */
static void cgroup_walk(const char *root, const char *mount, const char *path,
			bool v2, struct dcm_hostmem *hm)
{
	struct dcm_hostmem host = *hm;
	char dir[640];
	size_t len;

	if (strstr(path, "/.."))
		path = "/";
	if ((size_t)snprintf(dir, sizeof(dir), "%s%s", mount, path) >=
	    sizeof(dir))
		return;
	for (;;) {
		struct dcm_hostmem here = host;

		len = strlen(dir);
		while (len && dir[len - 1] == '/')
			dir[--len] = 0;
		if (v2) {
			cgroup_bound(root, dir, "memory.max", "memory.current",
				     "inactive_file ", &here);
			cgroup_bound(root, dir, "memory.high", "memory.current",
				     "inactive_file ", &here);
		} else {
			cgroup_bound(root, dir, "memory.limit_in_bytes",
				     "memory.usage_in_bytes",
				     "total_inactive_file ", &here);
		}
		if (here.free < hm->free)
			*hm = here;
		if (len <= strlen(mount))
			return;
		*strrchr(dir, '/') = 0;
	}
}

static void cgroup_read(const char *root, struct dcm_hostmem *hm)
{
	char *text = text_read(root, "/proc/self/cgroup");
	char *save = NULL;

	if (!text)
		return;
	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *client = strchr(line, ':');
		char *path = client ? strchr(client + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		client++;
		if (!*client) {
			cgroup_walk(root, "/sys/fs/cgroup", path, true, hm);
			cgroup_walk(root, "/sys/fs/cgroup/unified", path, true,
				    hm);
		} else if (!strcmp(client, "memory")) {
			cgroup_walk(root, "/sys/fs/cgroup/memory", path, false,
				    hm);
		}
	}
	free(text);
}

static void commit_bound(const char *root, const char *meminfo,
			 struct dcm_hostmem *hm)
{
	u64 limit = text_field(meminfo, "CommitLimit:", 0) << 10;
	u64 used = text_field(meminfo, "Committed_AS:", 0) << 10;

	if (number_read(root, "/proc/sys/vm", "overcommit_memory") != 2)
		return;
	used = used < limit ? limit - used : 0;
	if (used < hm->free)
		hm->free = used;
}

u64 dcm_hostmem_huge_default(const char *root)
{
	char *text = text_read(root, "/proc/meminfo");
	u64 kib = text ? text_field(text, "Hugepagesize:", 0) : 0;

	free(text);
	return kib << 10;
}

int dcm_hostmem_read(const char *root, u64 huge_bytes, struct dcm_hostmem *hm)
{
	char dir[128];
	char *text;
	u64 nr, free_pages, reserved;

	if (huge_bytes) {
		snprintf(dir, sizeof(dir),
			 "/sys/kernel/mm/hugepages/hugepages-%llukB",
			 (unsigned long long)(huge_bytes >> 10));
		nr = number_read(root, dir, "nr_hugepages");
		free_pages = number_read(root, dir, "free_hugepages");
		reserved = number_read(root, dir, "resv_hugepages");
		if (nr == U64_MAX || free_pages == U64_MAX)
			return -ENOENT;
		if (reserved == U64_MAX || reserved > free_pages)
			reserved = 0;
		hm->total = nr * huge_bytes;
		hm->free = (free_pages - reserved) * huge_bytes;
		return 0;
	}
	text = text_read(root, "/proc/meminfo");
	if (!text)
		return -errno;
	hm->total = text_field(text, "MemTotal:", 0) << 10;
	hm->free = text_field(text, "MemAvailable:", 0) << 10;
	if (hm->total)
		commit_bound(root, text, hm);
	free(text);
	if (!hm->total)
		return -EINVAL;
	cgroup_read(root, hm);
	return 0;
}
