// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_cpu.c - a tenant's share of the CPU for its GC workers
 *
 * A tenant with many busy workers must not take the CPU from a tenant with a
 * single one, nor all of them together from the donor's own service. There are
 * two ways; the first that is available is used as long as the daemon runs:
 *
 *   cgroup	The service manager has given the daemon a cgroup (v2) of its own
 *		(Delegate=). It is divided: "donor" has the daemon, "gc" all workers
 *		with a third of its weight, "gc/t-NAME" those of a tenant. All
 *		tenants weigh the same, however many threads they have. The number
 *		of threads is bounded there as well.
 *   nice	Without a cgroup: the more workers a tenant has, the higher the nice
 *		value of their threads. A step of nice is a factor of 1.25, so that
 *		the weights of a tenant's workers add up to that of one, up to some
 *		20 of them. A daemon that may not lower nice values again leaves
 *		them: then a worker gets less CPU than it could until it ends.
 *
 * Memory is not bounded by cgroups: pages of slabs that a worker touches first
 * would count against it. Its own memory has a limit (gc/worker/sandbox.c).
 *
 * All on the event loop; it reads and writes a few small files of /proc and of
 * cgroups, which do not block.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "gc_session.h"
#include "log_limit.h"
#include "gc_cpu.h"

#define NICE_FIRST   5		/* of a tenant's only worker */
#define NICE_LAST    19
#define GC_WEIGHT    "33"	/* as nice as NICE_FIRST, beside the daemon's 100 */
#define TEXT_MAX     4096u

static int file_write(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int file_read(int dir, const char *name, char *text)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	int ret = 0;
	ssize_t n;

	text[0] = 0;
	if (fd < 0)
		return -errno;
	n = read(fd, text, TEXT_MAX - 1);
	if (n < 0)
		ret = -errno;
	else
		text[n] = 0;
	close(fd);
	return ret;
}

/* Open the directory of the daemon's cgroup (v2). A descriptor, or a negative errno. */
static int own_cgroup(void)
{
	static const char *const mounts[] = { "/sys/fs/cgroup",
					      "/sys/fs/cgroup/unified" };
	char text[TEXT_MAX], path[2 * TEXT_MAX], *line, *end;
	struct statfs st;
	int ret = file_read(AT_FDCWD, "/proc/self/cgroup", text);

	if (ret)
		return ret;
	line = strncmp(text, "0::", 3) ? strstr(text, "\n0::") : text - 1;
	if (!line)
		return -ENOENT;
	line += 4;
	end = strchr(line, '\n');
	if (end)
		*end = 0;
	if (strstr(line, "/.."))
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		snprintf(path, sizeof(path), "%s%s", mounts[i], line);
		if (statfs(path, &st) || st.f_type != CGROUP2_SUPER_MAGIC)
			continue;
		ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return ret < 0 ? -errno : ret;
	}
	return -ENOENT;
}

/* The reason why @dir can't be divided; %NULL: it can. */
static const char *cgroup_flaw(int dir)
{
	char procs[TEXT_MAX], controllers[TEXT_MAX], pid[24];

	if (dir < 0)
		return "the daemon is in no cgroup of version 2";
	snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (file_read(dir, "cgroup.procs", procs) || strcmp(procs, pid))
		return "other processes are in the daemon's cgroup";
	if (file_read(dir, "cgroup.controllers", controllers) ||
	    (!strstr(controllers, "cpu ") && !strstr(controllers, "cpu\n")))
		return "the daemon's cgroup has no CPU controller; set Delegate=cpu pids";
	if (faccessat(dir, ".", W_OK, AT_EACCESS) ||
	    faccessat(dir, "cgroup.subtree_control", W_OK, AT_EACCESS))
		return "the daemon may not divide its cgroup; set Delegate=cpu pids";
	return NULL;
}

static int group_make(int dir, const char *name)
{
	return mkdirat(dir, name, 0755) && errno != EEXIST ? -errno : 0;
}

/* Divide the cgroup. A descriptor of "gc"; or a negative errno, and all is undone. */
static int cgroup_divide(int dir)
{
	int ret, gc;

	ret = group_make(dir, "donor");
	if (ret)
		return ret;
	ret = file_write(dir, "donor/cgroup.procs", "0");
	if (!ret)
		ret = file_write(dir, "cgroup.subtree_control", "+cpu");
	if (!ret)
		ret = group_make(dir, "gc");
	if (!ret)
		ret = file_write(dir, "gc/cgroup.subtree_control", "+cpu");
	if (ret)
		goto undo;
	/* the pids controller is optional */
	if (!file_write(dir, "cgroup.subtree_control", "+pids"))
		file_write(dir, "gc/cgroup.subtree_control", "+pids");
	file_write(dir, "gc/cpu.weight", GC_WEIGHT);
	gc = openat(dir, "gc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (gc >= 0)
		return gc;
	ret = -errno;
undo:
	unlinkat(dir, "gc", AT_REMOVEDIR);
	file_write(dir, "cgroup.subtree_control", "-cpu");
	file_write(dir, "cgroup.procs", "0");
	unlinkat(dir, "donor", AT_REMOVEDIR);
	return ret;
}

void dcm_gc_cpu_start(struct dcm_donor *donor)
{
	int dir = own_cgroup();
	const char *flaw = cgroup_flaw(dir);
	int ret;

	donor->gc_cgroup = -1;
	if (!flaw) {
		ret = cgroup_divide(dir);
		if (ret >= 0)
			donor->gc_cgroup = ret;
		else
			flaw = strerror(-ret);
	}
	if (dir >= 0)
		close(dir);
	if (donor->gc_cgroup >= 0)
		dcm_info("GC workers share the CPU by tenant, in cgroups");
	else
		dcm_info("GC workers share the CPU by niceness, not in cgroups: %s",
			flaw);
}

void dcm_gc_cpu_stop(struct dcm_donor *donor)
{
	if (donor->gc_cgroup >= 0)
		close(donor->gc_cgroup);
	donor->gc_cgroup = -1;
}

const char *dcm_gc_cpu_name(const struct dcm_donor *donor)
{
	return donor->gc_cgroup >= 0 ? "cgroup" : "nice";
}

/* No file of a cgroup begins with "t-", so a tenant's name can't clash. */
static void group_name(const struct dcm_tenant *tenant, const char *file,
		       char *name, size_t len)
{
	snprintf(name, len, "t-%s%s", tenant->name, file);
}

int dcm_gc_cpu_join(struct dcm_donor *donor, const struct dcm_tenant *tenant)
{
	char name[DCM_WIRE_TENANT_MAX + 32], threads[24];
	int gc = donor->gc_cgroup, fd, ret;

	if (gc < 0)
		return -ENOENT;
	group_name(tenant, "", name, sizeof(name));
	ret = group_make(gc, name);
	if (ret)
		goto none;
	/* for each worker: the first thread, the one that moves, the tracers */
	snprintf(threads, sizeof(threads), "%u",
		 tenant->quota_workers * (dcm_gc_session_threads(donor) + 2));
	group_name(tenant, "/pids.max", name, sizeof(name));
	file_write(gc, name, threads);
	group_name(tenant, "/cgroup.procs", name, sizeof(name));
	fd = openat(gc, name, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	ret = -errno;
none:
	dcm_log_limited(
		DCM_LOG_WARNING,
		"no cgroup for GC workers of %s, they run in the daemon's: %s",
			tenant->name, strerror(-ret));
	return ret;
}

void dcm_gc_cpu_leave(struct dcm_donor *donor, const struct dcm_tenant *tenant)
{
	char name[DCM_WIRE_TENANT_MAX + 32];

	if (donor->gc_cgroup < 0)
		return;
	group_name(tenant, "", name, sizeof(name));
	/* if it is not empty yet the next worker will use it */
	unlinkat(donor->gc_cgroup, name, AT_REMOVEDIR);
}

int dcm_gc_cpu_nice(u32 workers)
{
	int nice = NICE_FIRST;

	/* in hundredths: the weights of all must add up to that of one */
	for (u64 weight = 100; weight * 9 / 8 < workers * 100ull; nice++)
		weight = weight * 5 / 4;
	return nice < NICE_LAST ? nice : NICE_LAST;
}

void dcm_gc_cpu_renice(pid_t pid, int nice)
{
	char path[48];
	struct dirent *e;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (e = readdir(tasks)))
		if (*e->d_name != '.')
			setpriority(PRIO_PROCESS,
				    (id_t)strtoul(e->d_name, NULL, 10), nice);
	if (tasks)
		closedir(tasks);
}
