// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor_world.c - a donor's connections, sessions and GC workers, for libFuzzer
 *
 * An input is all that happens to a donor: connections of two tenants are
 * opened, say HELLO, control, data and GC messages, whole, in parts or as junk,
 * read their answers or do not, and are closed; strangers take the listeners'
 * seats, which are few; GC workers say anything, or end; the capacity changes, a
 * key is taken out, the donor drains; time passes. Whatever happens: the donor
 * sends nothing that its own codec does not take, and once all hosts are gone for
 * as long as their patience nothing of them is left.
 *
 * The donor's parts are the real ones on libuv, but for those that the harness
 * has in their place: the cipher (plain_tls.c), GC workers' processes
 * (gc_children.c), the clock, the host's memory, RDMA, restarts, and main.c's timers. The
 * connections' other ends are fake_hosts.c's.
 *
 * Slabs are memory, or files (fake_disk.c), as the program that has this file
 * chooses.
 *
 * There is one thread, so that an input does the same each time, and nothing
 * waits. libuv's jobs are done when the input says, in the order it says. The
 * data worker goes on at each turn (data_fiber.c).
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gc_session.h"
#include "rdma_pd.h"
#include "donor.h"
#include "donor_world.h"
#include "hostmem.h"
#include "../../donor-daemon/log_limit.h"
#include "rdma.h"
#include "restart.h"
#include "data_fiber.h"
#include "fake_hosts.h"
#include "gc_children.h"

#define JOBS	16u
#define MEMORY	(16ull << 30) /* of the host */

int __wrap_fallocate(int fd, int mode, off_t at, off_t n);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb fn,
			 uv_after_work_cb after);

static struct dcm_donor donor;
static u64 now_ns = 1000000000000u;

/* ---- the clock ---- */

/* libuv's too: this program's comes first. Other clocks are the fuzzer's own. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = (time_t)(now_ns / 1000000000u);
	ts->tv_nsec = (long)(now_ns % 1000000000u);
	return 0;
}

void donor_world_pass(u64 ns)
{
	now_ns += ns;
}

/* ---- the host's memory ---- */

static u64 memory_free = MEMORY;
static bool no_pages;

u64 donor_world_free(u64 *total)
{
	*total = MEMORY;
	return memory_free;
}

int dcm_hostmem_read(const char *root, uint64_t huge_bytes,
		     struct dcm_hostmem *hm)
{
	EXPECT(!*root && !huge_bytes);
	hm->total = MEMORY;
	hm->free = memory_free;
	return 0;
}

uint64_t dcm_hostmem_huge_default(const char *root)
{
	(void)root;
	return 0;
}

/* A page comes when it is touched: what the kernel takes time for is to zero it. */
int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
	EXPECT(fd >= 0 && !mode && !(at % 4096) && n > 0);
	errno = ENOSPC;
	return no_pages ? -1 : 0;
}

/* ---- libuv's threads: jobs ---- */

struct job {
	uv_work_t *work;
	uv_work_cb fn;
	uv_after_work_cb after;
};

static struct job jobs[JOBS];
static u32 nr_jobs, jobs_wait;
static bool jobs_last_first;

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb fn,
			 uv_after_work_cb after)
{
	EXPECT(loop == &donor.loop && nr_jobs < JOBS);
	jobs[nr_jobs++] = (struct job){ work, fn, after };
	return 0;
}

static void jobs_turn(void)
{
	struct job j;
	u32 i;

	if (jobs_wait && jobs_wait--)
		return;
	/* what is done may ask for more, but not without end */
	for (u32 n = 0; nr_jobs; n++) {
		EXPECT(n < 4 * JOBS);
		i = jobs_last_first ? nr_jobs - 1 : 0;
		j = jobs[i];
		memmove(&jobs[i], &jobs[i + 1],
			(--nr_jobs - i) * sizeof(*jobs));
		j.fn(j.work);
		j.after(j.work, 0);
	}
}

/* ---- no RDMA ---- */

const struct dcm_export_ops dcm_export_verbs = { .name = "verbs",
						 .slow = true };

bool dcm_rdma_on(const struct dcm_conn *conn)
{
	(void)conn;
	return false;
}

bool dcm_rdma_ready(const struct dcm_session *s)
{
	(void)s;
	return false;
}

u32 dcm_rdma_ticket(struct dcm_conn *conn, u16 lane, struct dcm_wire_msg *msg)
{
	(void)conn;
	(void)lane;
	(void)msg;
	return DCM_WS_TRANSPORT;
}

void dcm_rdma_lane_close(struct dcm_session *s, u16 lane)
{
	(void)s;
	(void)lane;
}

void dcm_rdma_session_end(struct dcm_session *s)
{
	(void)s;
}

struct dcm_rdma_pd *dcm_rdma_pd_get(struct dcm_rdma_pd *pd)
{
	return pd;
}

void dcm_rdma_pd_put(struct dcm_rdma_pd *pd)
{
	(void)pd;
}

/* ---- no descriptor store ---- */

void dcm_restart_session(struct dcm_session *s)
{
	(void)s;
}

void dcm_restart_session_end(struct dcm_session *s)
{
	(void)s;
}

void dcm_restart_slab(struct dcm_slab *slab)
{
	(void)slab;
}

void dcm_restart_slab_end(struct dcm_slab *slab)
{
	(void)slab;
}

void dcm_restart_slab_freed(const struct dcm_donor *from,
			    const struct dcm_slab *slab)
{
	(void)from;
	(void)slab;
}

/* ---- what main.c does ---- */

static void turn(void)
{
	const struct dcm_tenant *t;

	uv_run(&donor.loop, UV_RUN_NOWAIT);
	jobs_turn();
	if (donor_medium.turn)
		donor_medium.turn();
	data_fiber_run();
	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant, node)
		EXPECT(t->bytes <= t->quota_bytes);
	hosts_read();
}

static void pass(u32 ms)
{
	donor_world_pass(ms * 1000000ull);
	uv_update_time(&donor.loop);
}

static void quarter(u32 ms)
{
	u64 now;

	pass(ms);
	now = dcm_now(&donor);
	if (now > donor.quarter_at + 2000)
		donor.stalled_at = now;
	donor.quarter_at = now;
	dcm_conn_deadlines(&donor);
	dcm_gc_session_reap(&donor);
	dcm_evict_proceed(&donor);
}

static void second(void)
{
	dcm_pool_sample(&donor.pool, true);
	if (!donor.draining) {
		dcm_pool_balance(&donor.pool);
		dcm_evict_start(&donor);
	}
	dcm_control_heartbeats(&donor);
}

static void capacity(u32 n)
{
	donor.cfg.capacity.bytes = n * SLAB;
	dcm_pool_limits(&donor.pool, &donor.cfg);
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
	dcm_pool_balance(&donor.pool);
	dcm_evict_start(&donor);
}

static u32 key_file;

/* Both tenants have a key, or one of them. */
static void keys(u32 which)
{
	static const char *const files[] = {
		"a:11111111111111111111111111111111\nb:22222222222222222222222222222222\n",
		"a:11111111111111111111111111111111\n",
		"b:22222222222222222222222222222222\n",
	};
	char text[128], err[128];

	key_file = which % 3;
	snprintf(text, sizeof(text), "%s", files[key_file]);
	EXPECT(!dcm_tenants_parse(&donor.tenants, "keys", text, strlen(text),
				  err, sizeof(err)));
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
}

/* How much the host has free, and whether a slab gets its pages. */
static void memory(u32 how)
{
	memory_free = MEMORY >> (how & 3) * 4;
	no_pages = how & 4;
}

/* When jobs are done, and where the data worker stops, and for how long. */
static void threads(u32 how)
{
	if (how & 0x80) {
		jobs_last_first = how & 0x40;
		jobs_wait = how & 7;
	} else {
		data_fiber_set(1 + (how & 15), how >> 4);
	}
}

static void drain(void)
{
	donor.draining = true;
	donor.drain_deadline = dcm_now(&donor) + donor.cfg.drain_ms;
	dcm_evict_proceed(&donor);
}

static void step(struct in *in)
{
	u32 what = byte(in);

	switch (what % 16) {
	case 0:
	case 1:
		host_open(&donor, in);
		break;
	case 2:
	case 3:
		host_hello(in);
		turn();
		break;
	case 4:
	case 5:
		host_control(in);
		break;
	case 6:
		host_data(in);
		break;
	case 7:
	case 8:
		host_gc(in);
		break;
	case 9:
		host_junk(in);
		break;
	case 10:
		host_leave(in);
		break;
	case 11:
		gc_child_step(in);
		break;
	case 12:
		quarter(byte(in) & 0x80 ? 3000 : 250);
		break;
	case 13:
		second();
		break;
	case 14:
		host_deaf(what >> 4 & 7);
		break;
	default:
		what = byte(in);
		if (what < 0x40 && donor_medium.set)
			donor_medium.set(byte(in));
		else if (what < 0x80)
			capacity(what % 9);
		else if (what < 0xc0)
			threads(byte(in));
		else if (what < 0xe0)
			memory(what);
		else if (what < 0xf8)
			keys(what);
		else
			drain();
	}
	if (!(what & 0x80))
		turn();
}

/* ---- the donor's life ---- */

static void start(void)
{
	char err[256] = "";

	signal(SIGPIPE, SIG_IGN);
	dcm_log_init((enum dcm_log_level)0);
	dcm_config_init(&donor.cfg);
	donor.cfg.slab_bytes = SLAB;
	donor.cfg.capacity = (struct dcm_size){ .bytes = 8 * SLAB };
	donor.cfg.head_room = (struct dcm_size){ .bytes = 0 };
	donor.cfg.tenant_bytes = (struct dcm_size){ .bytes = 160ull << 20 };
	donor.cfg.tenant_connections = 6;
	donor.cfg.connections = 6;
	donor.cfg.handshakes = 3;
	donor.cfg.sessions = 4;
	donor.cfg.spare_slabs = 0;
	donor.cfg.threads = 1;
	donor.cfg.data_encryption = false;
	donor.cfg.medium = donor_medium.medium;
	snprintf(donor.cfg.path, sizeof(donor.cfg.path), "/slabs");
	donor.cfg.gc_workers = 3;
	donor.cfg.gc_threads = 1;
	donor.cfg.gc_memory = (struct dcm_size){ .bytes = 64ull << 20 };
	snprintf(donor.cfg.gc_worker, sizeof(donor.cfg.gc_worker), "/bin/true");
	dcm_tenants_init(&donor.tenants);
	dcm_list_init(&donor.conns);
	dcm_list_init(&donor.sessions);
	dcm_admission_init(&donor.proven, 1);
	dcm_admission_init(&donor.listeners[0].admission, 2);
	dcm_admission_init(&donor.listeners[1].admission, 3);
	dcm_gc_session_start(&donor);
	/* files are shown to no GC worker */
	EXPECT(!donor.gc_path[0] == (donor.cfg.medium == DCM_MEDIUM_FILE));
	donor.tls = dcm_tls_server_new(NULL, NULL, err, sizeof(err));
	uv_loop_init(&donor.loop);
	EXPECT(!dcm_pool_init(&donor.pool, &donor.loop, &donor.cfg, err,
			    sizeof(err)));
	donor.pool.done = dcm_control_slab_gone;
	donor.pool.done_arg = &donor;
	EXPECT(!dcm_data_start(&donor, err, sizeof(err)));
	hosts_start();
	gc_children_begin();
	keys(0);
}

static bool all_gone(void)
{
	const struct dcm_tenant *t;

	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant, node)
		if (t->bytes || t->gc_bytes || t->workers || t->dying ||
		    t->connections || t->sessions || t->users)
			return false;
	for (u32 i = 0; i < 2; i++)
		if (donor.listeners[i].admission.nr_seats ||
		    donor.listeners[i].admission.nr_sources)
			return false;
	return !donor.nr_conns && !donor.nr_handshakes && !donor.nr_sessions &&
	       !donor.nr_lost && !donor.proven.nr_seats &&
	       !donor.proven.nr_sources && !donor.nr_gc_sessions &&
	       !donor.nr_dying && !donor.pool.charged &&
	       !donor.pool.nr_mapped && !donor.pool.nr_evicting &&
	       !donor.pool.nr_releasing && !donor.pool.nr_wants;
}

/* Hosts are gone: so is, when their patience is over, all that they had. */
static void finish(void)
{
	hosts_close();
	data_fiber_set(0, 0);
	jobs_wait = 0;
	if (donor_medium.set)
		donor_medium.set(0);
	turn();
	/* then threads have slabs and data connections to give back */
	for (u32 i = 0; !all_gone(); i++) {
		EXPECT(i < 64);
		quarter(i < 7 ? 900 : 1900);
		turn();
	}
	EXPECT(!nr_jobs);
	donor.draining = false;
	donor.evict.asking = false;
	hosts_forget();
}

/* As every input finds it. */
static void begin(void)
{
	memory(0);
	jobs_last_first = false;
	donor.pool.room_known = false;
	donor.pool.retry_at = 0;
	dcm_pool_sample(&donor.pool, true);
	if (key_file)
		keys(0);
	capacity(8);
	donor.quarter_at = dcm_now(&donor);
}

int donor_world_run(const uint8_t *data, size_t size)
{
	static bool started;
	struct in in = { data, data + size };

	if (size > 1024)
		return 0;
	if (!started)
		start();
	started = true;
	begin();
	while (in.at < in.end)
		step(&in);
	finish();
	return 0;
}
