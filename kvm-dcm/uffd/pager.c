// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pager.c - create a pager, read its figures, change its settings, close it
 *
 * All memory that the fault path uses is mapped here, before the first fault,
 * and locked if the limit allows. Frames and guest memory are the budget's; the
 * rest is small. Order of creation: userfaultfd, frames, client (which learns
 * the slab size), the core, threads, status socket; destroyed in reverse.
 *
 * Functions that the program's threads call run with signals blocked, and with the
 * thread marked as inside libdcm (thread.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "slab_worker.h"
#include "../lib/thread.h"
#include "../lib/log.h"
#include "../lib/value.h"
#include "pager.h"
#include "affinity.h"
#include "status.h"
#include "vmsock.h"

#define FETCH_BUF (DCM_BLOCK_MAX * DCM_PAGE_SIZE)
/* a lane's, together */
#define FETCH_BUFS ((size_t)FETCH_BUF * DCM_FETCHES_MAX)
#define FIRST_DONOR_MS 10000u
#define CACHED_MAX 512u /* pages that free frames may keep */
#define CACHED_MIN 16u

static u64 cached_pages(u64 budget_pages)
{
	return min(max(budget_pages / 128, (u64)CACHED_MIN), (u64)CACHED_MAX);
}

/* The core's part of the budget: less what free frames and frames to drop may keep. */
static u64 core_pages(u64 budget_pages)
{
	u64 own = 2 * cached_pages(budget_pages);

	return budget_pages > own ? budget_pages - own : 0;
}

/*
 * If all donors are on this host, a fetch costs no more than mapping an Inactive block
 * again; even less than with a clean block, whose bytes were copied to a frame before.
 * So no clean blocks are kept Inactive, and few others. Instead a block counts as hot
 * if it is fetched again soon after its eviction.
 */
static void near_tune(struct dcm_pager *pg)
{
	u32 i;

	/* not with sealed pages: a fetch has to decrypt them */
	if (pg->cfg.seal)
		return;
	for (i = 0; i < pg->cfg.nr_donors; i++)
		if (strncmp(pg->cfg.donor[i].address, "unix:", 5))
			return;
	dcm_pager_set(pg, "inactive_share", 100);
	dcm_pager_set(pg, "keep_clean", 0);
	dcm_pager_set(pg, "ghost_share", 5000);
}

static int core_create(struct dcm_pager *pg, u64 nr_pages, u64 extent,
		       char *err, size_t len)
{
	u64 pages = pg->cfg.budget >> DCM_PAGE_SHIFT;
	struct dcm_vm_config vc = {
		.nr_pages = nr_pages,
		.extent_pages = (u32)(extent >> DCM_PAGE_SHIFT),
		.nr_lanes = pg->nr_lanes,
		.seed = dcm_now_ns(),
		.ops = &dcm_pager_ops,
		.priv = pg,
	};
	int why = 0;
	u32 i;

	pg->frames.cached_max = cached_pages(pages);
	vc.budget_pages = core_pages(pages);
	pg->vm = dcm_vm_create(&vc, &why);
	if (!pg->vm) {
		if (why == -EINVAL)
			snprintf(err, len,
				 "budget of %llu KiB is too small for %u lanes",
				 (unsigned long long)pages * 4, pg->nr_lanes);
		else
			snprintf(err, len,
				 "no memory for %llu MiB of descriptors",
				 (unsigned long long)nr_pages >> 16);
		return why;
	}
	pg->budget_bytes = pages << DCM_PAGE_SHIFT;
	near_tune(pg);
	for (i = 0; i < pg->cfg.nr_tunables; i++) {
		const struct dcm_host_tunable *t = &pg->cfg.tunable[i];

		why = dcm_pager_set(pg, t->name, t->value);
		if (why) {
			snprintf(err, len, "tunable %s = %llu: %s", t->name,
				 (unsigned long long)t->value,
				 why == -ENOENT ? "there is no such tunable" :
						  "out of range");
			return why;
		}
	}
	return 0;
}

static int lanes_create(struct dcm_pager *pg)
{
	u32 i, k;

	pg->lane = vzalloc(sizeof(*pg->lane) * pg->nr_lanes);
	if (!pg->lane)
		return -ENOMEM;
	for (i = 0; i < pg->nr_lanes; i++) {
		struct dcm_pg_lane *l = &pg->lane[i];

		l->pg = pg;
		l->id = i;
		l->core = &pg->vm->lane[i];
		l->core->priv = l;
		l->cpu = -1;
		l->follow_cpu = -1;
		l->go_cpu = -1;
		l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (l->wake_fd < 0)
			return -errno;
		for (k = 0; k < DCM_FETCHES_MAX; k++)
			l->core->fetch[k].buf = pg->fetch_bufs +
						i * FETCH_BUFS +
						(size_t)k * FETCH_BUF;
	}
	/* Faults must be served when the host has no page to spare. */
	mlock(pg->lane, sizeof(*pg->lane) * pg->nr_lanes);
	mlock(pg->vm->lane, sizeof(*pg->vm->lane) * pg->nr_lanes);
	mlock(pg->zero, FETCH_BUF);
	return 0;
}

static void donors_text(struct dcm_pager *pg, char *buf, size_t len)
{
	struct dcm_client_status *st = calloc(1, sizeof(*st));
	size_t at = 0;
	u32 i;

	buf[0] = 0;
	if (!st)
		return;
	dcm_client_status(pg->client, st);
	for (i = 0; i < st->nr_donors && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s (%s): %s",
				       i ? "; " : "", st->donor[i].name,
				       st->donor[i].address,
				       st->donor[i].why[0] ? st->donor[i].why :
							     "no answer");
	free(st);
}

static int client_create(struct dcm_pager *pg, u64 bytes, u64 *extent,
			 char *err, size_t len)
{
	struct dcm_key key;
	struct dcm_client_config cc = {
		.donors = pg->cfg.donor,
		.nr_donors = pg->cfg.nr_donors,
		.nr_lanes = pg->nr_lanes,
		.size = bytes,
		.extent = pg->cfg.extent,
		.redundancy = pg->cfg.redundancy,
		.scatter = pg->cfg.scatter,
		.cold_after_ms = (u32)pg->cfg.cold_after_ms,
		.data_encryption = pg->cfg.data_encryption && !pg->cfg.seal,
		.no_map = pg->cfg.seal,
		.transport = pg->cfg.transport,
		.patience_ms = (u32)pg->cfg.patience_ms,
		.area = pg->fetch_bufs,
		.area_bytes = FETCH_BUFS * pg->nr_lanes,
	};
	char why[DCM_ERR_MAX];
	u32 i;
	int rc;

	rc = dcm_key_load(pg->cfg.key_file, pg->cfg.tenant, &key, why);
	if (rc) {
		snprintf(err, len, "%s", why);
		return rc;
	}
	cc.tenant = key.tenant;
	cc.key = key.key;
	cc.key_len = key.len;
	rc = dcm_client_start(&cc, &dcm_pg_client_ops, &pg->slabs, &pg->client);
	dcm_key_wipe(&key);
	if (rc) {
		snprintf(err, len, "donors can't be used: %s", strerror(-rc));
		return rc;
	}
	for (i = 0; i < pg->cfg.nr_donors; i++)
		if (pg->cfg.drained >> i & 1)
			dcm_client_donor_drain(pg->client,
					       pg->cfg.donor[i].name, true);
	*extent = dcm_client_extent_bytes(pg->client, FIRST_DONOR_MS);
	if (!*extent) {
		donors_text(pg, why, sizeof(why));
		snprintf(err, len, "no donor answered within %u s: %s",
			 FIRST_DONOR_MS / 1000, why);
		return -EHOSTUNREACH;
	}
	return 0;
}

static unsigned int uffd_flags(void)
{
	const char *s = getenv("DCM_WITHOUT");
	unsigned int flags = 0;

	if (!s)
		return 0;
	if (strstr(s, "move"))
		flags |= DCM_UFFD_NO_MOVE;
	if (strstr(s, "vector"))
		flags |= DCM_UFFD_NO_VECTOR;
	if (strstr(s, "poison"))
		flags |= DCM_UFFD_NO_POISON;
	return flags;
}

/* NAME-PID, as dcmctl run names a program; "-" for characters that can't be used */
static void name_default(char *name, size_t len)
{
	const char *program = program_invocation_short_name;

	snprintf(name, len, "%.48s-%d", program, (int)getpid());
	for (char *p = name; *p; p++) {
		char one[] = { 'x', *p, 0 };

		if (!dcm_name_valid(one))
			*p = '-';
	}
	if (!dcm_name_valid(name))
		snprintf(name, len, "vm-%d", (int)getpid());
}

static int pager_create(struct dcm_pager *pg, char *err, size_t len)
{
	u64 span = (u64)DCM_PAGE_SIZE << DCM_SPAN_SHIFT, extent = 0;
	u64 bytes = (pg->cfg.size + span - 1) & ~(span - 1);
	u64 nr_pages = bytes >> DCM_PAGE_SHIFT;
	int rc;

	if (!bytes || nr_pages >= 1ull << DCM_FRAME_SHIFT) {
		snprintf(err, len, "size must be between 2M and 2T");
		return -EINVAL;
	}
	pg->start_ns = dcm_now_ns();
	pg->nr_fault = max(pg->cfg.lanes, 1u);
	pg->nr_lanes = pg->nr_fault + 2;
	pg->active = 1;
	pg->follow = !getenv("DCM_NO_FOLLOW");
	pg->spin = !getenv("DCM_NO_SPIN");
	pthread_mutex_init(&pg->discard_lock, NULL);
	pthread_mutex_init(&pg->lost_lock, NULL);
	dcm_page_sums_init(&pg->sums);
	/* If the log thread can't start, lines are only dropped sooner. */
	dcm_log_start();
	rc = dcm_uffd_open(&pg->uffd, uffd_flags(), err, len);
	if (rc)
		return rc;
	pg->have_uffd = true;
	snprintf(err, len, "no memory for %llu MiB of address space",
		 (unsigned long long)bytes >> 20);
	pg->zero = vzalloc(FETCH_BUF);
	pg->fetch_bufs = vzalloc(FETCH_BUFS * pg->nr_lanes);
	if (!pg->zero || !pg->fetch_bufs)
		return -ENOMEM;
	memset(pg->zero, 0, FETCH_BUF);
	rc = dcm_guest_init(pg, nr_pages);
	if (!rc)
		rc = dcm_frames_init(pg, nr_pages);
	if (!rc)
		rc = dcm_sample_init(pg);
	if (!rc)
		rc = dcm_pg_worker_init(pg, nr_pages);
	if (rc)
		return rc;
	rc = client_create(pg, bytes, &extent, err, len);
	if (!rc)
		rc = core_create(pg, nr_pages, extent, err, len);
	if (rc)
		return rc;
	dcm_affinity_init(pg);
	snprintf(err, len, "can't start threads");
	rc = lanes_create(pg);
	if (!rc)
		rc = dcm_fresh_init(pg);
	if (!rc && pg->cfg.seal)
		rc = dcm_page_seals_start(pg);
	if (!rc)
		rc = dcm_pg_worker_start(pg);
	if (!rc)
		rc = dcm_lanes_start(pg);
	if (!rc)
		rc = dcm_vmsock_start(pg, err, len);
	return rc;
}

static void pager_destroy(struct dcm_pager *pg)
{
	u32 i;

	dcm_vmsock_stop(pg);
	if (pg->lane) {
		dcm_lanes_stop(pg);
		dcm_pg_worker_stop(pg);
	}
	/* No access can be answered any more: the guest memory goes first. */
	if (pg->guest.range)
		dcm_guest_free(pg);
	if (pg->client)
		dcm_client_stop(pg->client);
	dcm_slab_worker_free(&pg->slabs);
	if (pg->have_uffd)
		dcm_uffd_close(&pg->uffd);
	dcm_frames_free(pg);
	for (i = 0; pg->lane && i < pg->nr_lanes; i++)
		if (pg->lane[i].wake_fd > 0)
			close(pg->lane[i].wake_fd);
	dcm_page_seals_free(pg);
	dcm_fresh_free(pg);
	vfree(pg->lane);
	vfree(pg->fetch_bufs);
	vfree(pg->sample);
	vfree(pg->zero);
	dcm_page_sums_free(pg->vm);
	dcm_vm_destroy(pg->vm);
	vfree(pg);
}

struct dcm_pager *dcm_pager_create(const struct dcm_host_config *cfg, char *err,
				   size_t len)
{
	struct dcm_pager *pg;
	sigset_t old;
	int rc;

	dcm_thread_enter(&old);
	pg = vzalloc(sizeof(*pg));
	if (!pg) {
		snprintf(err, len, "no memory");
		errno = ENOMEM;
		goto out;
	}
	pg->cfg = *cfg;
	if (!pg->cfg.name[0])
		name_default(pg->cfg.name, sizeof(pg->cfg.name));
	pg->rebuild.limit = cfg->rebuild_rate;
	pg->slabs.lag_most = dcm_redundancy_lag(cfg->redundancy, cfg->disk_lag);
	rc = pager_create(pg, err, len);
	if (rc) {
		pager_destroy(pg);
		pg = NULL;
		errno = -rc;
		goto out;
	}
	if (len)
		err[0] = 0;
out:
	dcm_thread_leave(&old);
	return pg;
}

struct dcm_pager *dcm_pager_open_sized(const char *path, uint64_t size,
				       uint64_t budget, char *err, size_t len)
{
	struct dcm_host_config *cfg;
	struct dcm_pager *pg = NULL;
	char why[DCM_ERR_MAX];
	sigset_t old;
	int rc;

	dcm_thread_enter(&old);
	cfg = calloc(1, sizeof(*cfg));
	rc = cfg ? dcm_host_config_load(path, cfg, why) : -ENOMEM;
	if (rc) {
		snprintf(err, len, "%s", cfg ? why : "no memory");
		errno = -rc;
	} else {
		if (size)
			cfg->size = size;
		if (budget)
			cfg->budget = budget;
		pg = dcm_pager_create(cfg, err, len);
	}
	free(cfg);
	dcm_thread_leave(&old);
	return pg;
}

struct dcm_pager *dcm_pager_open(const char *path, char *err, size_t len)
{
	return dcm_pager_open_sized(path, 0, 0, err, len);
}

void dcm_pager_close(struct dcm_pager *pg)
{
	sigset_t old;

	if (!pg)
		return;
	dcm_thread_enter(&old);
	pager_destroy(pg);
	dcm_thread_leave(&old);
}

/** dcm_map_aligned() - memory in which each span can be a huge page, or %NULL */
void *dcm_map_aligned(size_t bytes)
{
	size_t span = (size_t)DCM_PAGE_SIZE << DCM_SPAN_SHIFT, before;
	char *p = mmap(NULL, bytes + span, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	before = -(size_t)p & (span - 1);
	if (before)
		munmap(p, before);
	munmap(p + before + bytes, span - before);
	return p + before;
}

void *dcm_pager_map(struct dcm_pager *pg, size_t bytes)
{
	sigset_t old;
	void *p;
	int rc;

	if (!bytes || bytes & (DCM_PAGE_SIZE - 1)) {
		errno = EINVAL;
		return NULL;
	}
	dcm_thread_enter(&old);
	p = dcm_map_aligned(bytes);
	if (!p)
		goto out;
	rc = dcm_guest_add(pg, (u64)p, bytes >> DCM_PAGE_SHIFT, true);
	if (rc) {
		munmap(p, bytes);
		p = NULL;
		errno = -rc;
	}
out:
	dcm_thread_leave(&old);
	return p;
}

int dcm_pager_adopt(struct dcm_pager *pg, void *addr, size_t bytes)
{
	sigset_t old;
	int rc;

	if (((u64)addr | bytes) & (DCM_PAGE_SIZE - 1))
		return -EINVAL;
	dcm_thread_enter(&old);
	rc = dcm_guest_add(pg, (u64)addr, bytes >> DCM_PAGE_SHIFT, false);
	dcm_thread_leave(&old);
	return rc;
}

uint32_t dcm_pager_donors(struct dcm_pager *pg)
{
	return pg->cfg.nr_donors;
}

/* ---- budget and knobs ---- */

int dcm_pager_set_budget(struct dcm_pager *pg, uint64_t bytes)
{
	u64 pages = bytes >> DCM_PAGE_SHIFT;
	int rc = dcm_set_budget(pg->vm, core_pages(pages));

	if (rc)
		return rc;
	WRITE_ONCE(pg->frames.cached_max, cached_pages(pages));
	WRITE_ONCE(pg->budget_bytes, pages << DCM_PAGE_SHIFT);
	dcm_pg_worker_wake(pg);
	return 0;
}

/* As dcm_client_redundancy_set(). The status thread's. */
int dcm_pager_redundancy_set(struct dcm_pager *pg,
			     enum dcm_host_redundancy redundancy)
{
	enum dcm_host_redundancy was = pg->cfg.redundancy;
	int err;

	WRITE_ONCE(pg->cfg.redundancy, redundancy);
	err = dcm_client_redundancy_set(pg->client, redundancy);
	if (err && err != -EALREADY) {
		WRITE_ONCE(pg->cfg.redundancy, was);
		return err;
	}
	/* -EALREADY, but another value: disk and disk:lazy have the same slabs */
	if (redundancy != was)
		err = 0;
	WRITE_ONCE(pg->slabs.lag_most,
		   dcm_redundancy_lag(redundancy, pg->cfg.disk_lag));
	if (!err)
		dcm_log(DCM_LOG_NOTICE,
			"VM %s: redundancy is %s now, it was %s", pg->cfg.name,
			dcm_redundancies[redundancy].name,
			dcm_redundancies[was].name);
	return err;
}

uint64_t dcm_pager_min_budget(struct dcm_pager *pg)
{
	return (dcm_min_budget(pg->vm) + 2 * CACHED_MIN) << DCM_PAGE_SHIFT;
}

uint64_t dcm_pager_budget(struct dcm_pager *pg)
{
	return READ_ONCE(pg->budget_bytes);
}

int dcm_pager_set(struct dcm_pager *pg, const char *name, uint64_t value)
{
	return dcm_tunable_set(pg->vm, name, value);
}

char *dcm_pager_status(struct dcm_pager *pg)
{
	sigset_t old;
	char *s;

	dcm_thread_enter(&old);
	s = dcm_status_text(pg);
	dcm_thread_leave(&old);
	return s;
}
