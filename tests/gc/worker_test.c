// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * worker_test.c - dcm-gc-worker, as its donor and the host of a session see it
 *
 * The workers and their host are worker_host.c's. GC_WORKER is the program.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "worker_host.h"

#ifdef __SANITIZE_THREAD__
#define HEAPS_DEFAULT 9u
#else
#define HEAPS_DEFAULT 30u
#endif
#define HEAPS \
	(getenv("GC_HEAPS") ? (u32)atoi(getenv("GC_HEAPS")) : HEAPS_DEFAULT)

static struct mut_config config_of(u32 i)
{
	const char *text = getenv("GC_SEED");

	return (struct mut_config){
		.seed = (text ? strtoull(text, NULL, 0) : 20261121) + i,
		.regions = 5 + i % 4 + 3 * (1 + i % 3),
		.spare = 3 * (1 + i % 3),
		.region_bytes = REGION,
		.donors = 1 + i % 3,
		.ref_bytes = i & 4 ? 8 : 4,
		.header = i / 3,
		.shape = (enum mut_shape)(i / 2 % MUT_SHAPES),
		.objects = 2500,
		.roots = 10,
		.array_max = 200,
	};
}

/* As in one process, so in several. */
static void test_trace(void **state)
{
	u64 carried = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = config_of(i);
		struct host h;
		u8 *live;

		host_start(&h, &c);
		live = calloc(h.m->nr_objects, 1);
		assert_non_null(live);
		mut_trace(h.m, live, NULL);
		for (u32 epoch = 1; epoch < 3; epoch++) {
			assert_int_equal(host_trace_start(&h, epoch), 0);
			assert_int_equal(host_trace_finish(&h, epoch), 0);
			host_check(&h, epoch, live);
		}
		assert_int_equal(h.lost, 0);
		carried += h.carried;
		free(live);
		host_end(&h);
	}
	assert_true(carried);
	printf("# %u heaps, %llu messages between workers\n", HEAPS,
	       (unsigned long long)carried);
}

static u32 write_count_tell(struct host *h, u32 d, u32 region, u32 count)
{
	const struct dcm_gc_write_count le = { htole32(region),
					       htole32(count) };
	const struct dcm_gc_message msg = {
		.kind = htole32(DCM_GC_WRITE_COUNTS),
		.n = htole32(1),
		.bytes = htole32(sizeof(le)),
	};

	return done_status(host_call(h, d, msg, &le));
}

/* A worker that is told of a write to a region it traced has no result for it. */
static void test_write_counts(void **state)
{
	(void)state;
	for (u32 i = 0; i < HEAPS; i += 3) {
		struct mut_config c = config_of(i);
		u32 epoch = 1, traced, count;
		struct host h;

		host_start(&h, &c);
		for (traced = 0; !h.m->top[traced]; traced++)
			;
		assert_true(traced < c.regions);
		assert_int_equal(write_count_tell(&h, 0, c.regions, 2),
				 VIRTIO_GC_INVALID);
		/* nothing of the trace is in the last one */
		assert_int_equal(host_trace_start(&h, epoch), 0);
		assert_int_equal(write_count_tell(&h, 0, c.regions - 1, 2), 0);
		assert_int_equal(host_trace_finish(&h, epoch++), 0);
		/* one that is over, one under way, more than can be counted */
		for (count = 1; count; count = count == 1 ? 2 :
					 count == 2 ? U32_MAX :
						    0) {
			assert_int_equal(host_trace_start(&h, epoch), 0);
			assert_int_equal(write_count_tell(&h, 0, traced, count),
					 0);
			/* [VGC-D-24] */
			assert_int_equal(host_trace_finish(&h, epoch++),
					 VIRTIO_GC_STALE);
			/* a new trace needs the places first */
			worker_place(&h, 0);
			assert_int_equal(host_trace_start(&h, epoch), 0);
			assert_int_equal(host_trace_finish(&h, epoch++), 0);
		}
		host_end(&h);
	}
}

static void moved_tell(struct host *h, u32 d, const struct virtio_gc_region *le,
		       u32 n)
{
	struct dcm_gc_message *got =
		host_call(h, d,
		(struct dcm_gc_message){
			.kind = htole32(DCM_GC_MOVED),
			.n = htole32(n),
			.bytes = htole32(n * (u32)sizeof(*le)),
		},
		le);

	assert_non_null(got);
	assert_int_equal(le32toh(((struct virtio_gc_done *)(got + 1))->status),
			 0);
}

/* Compaction by processes: afterwards as much is alive as before. */
static void test_compact(void **state)
{
	u64 moves = 0, updates = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS / 3; i++) {
		struct mut_config c = config_of(i + 100);
		struct virtio_gc_region list[32];
		struct virtio_gc_area area;
		u64 objects = 0, bytes = 0;
		struct host h;
		struct mut *m;
		u8 *live;

		host_start(&h, &c);
		m = h.m;
		live = calloc(m->nr_objects, 1);
		assert_non_null(live);
		/* an opaque object's references are its own business */
		mut_opaque_clear(m);
		mut_clean(m);
		mut_trace(m, live, NULL);
		for (u32 o = 0; o < m->nr_objects; o++) {
			objects += live[o];
			bytes += live[o] ? m->objects[o].bytes : 0;
		}
		assert_int_equal(host_trace_start(&h, 1), 0);
		assert_int_equal(host_trace_finish(&h, 1), 0);
		for (u32 r = 0; r < c.regions; r++)
			list[r] = (struct virtio_gc_region){
				.region = htole32(r),
				.top = htole64(r * REGION + m->top[r]),
			};
		area.tables = htole64((c.regions - c.donors) * REGION);
		area.bytes = htole64(c.donors * REGION);
		for (u32 d = 0; d < h.n; d++) {
			struct virtio_gc_done *done =
				host_request(&h, d, VIRTIO_GC_COMPACT, 1,
					     c.regions - c.donors, &area,
					     sizeof(area), list,
					     (c.regions - c.donors) *
						     sizeof(*list));
			struct virtio_gc_moved *moved = (void *)(done + 1);
			struct virtio_gc_region gone[32];
			u32 n;

			assert_non_null(done);
			assert_int_equal(le32toh(done->status), 0);
			n = le32toh(done->count);
			for (u32 k = 0; k < n; k++) {
				u32 to = le32toh(moved[k].to);
				u32 from = le32toh(moved[k].from);

				m->top[to] =
					le64toh(moved[k].end) - to * REGION;
				gone[k] = list[from];
				m->top[from] = 0;
			}
			moves += n;
			/* the other donors then ask this one for new places */
			for (u32 k = 0; k < h.n && n; k++)
				if (k != d)
					moved_tell(&h, k, gone, n);
		}
		for (u32 r = 0; r < c.regions; r++)
			list[r].top = htole64(r * REGION + m->top[r]);
		for (u32 d = 0; d < h.n; d++) {
			struct virtio_gc_done *done =
				host_request(&h, d, VIRTIO_GC_UPDATE, 1,
					     c.regions - c.donors, NULL, 0,
					     list,
					     (c.regions - c.donors) *
						     sizeof(*list));

			assert_non_null(done);
			assert_int_equal(le32toh(done->status), 0);
			updates += le64toh(done->value);
		}
		for (u32 k = 0; k < m->nr_roots; k++) {
			__le64 a = htole64(m->l.address + m->roots[k]);
			struct virtio_gc_done *done;

			if (m->roots[k] == MUT_NULL)
				continue;
			done = host_request(&h, m->owner[m->roots[k] / REGION],
					    VIRTIO_GC_FORWARD, 1, 1, NULL, 0,
					    &a, 8);
			assert_non_null(done);
			memcpy(&a, done + 1, 8);
			m->roots[k] = le64toh(a) - m->l.address;
		}
		assert_int_equal(host_trace_start(&h, 2), 0);
		/* nothing is at an opaque object's old place; none refers on */
		h.opaque_ends = true;
		assert_int_equal(host_trace_finish(&h, 2), 0);
		for (u32 r = 0; r < c.regions; r++) {
			struct virtio_gc_range range = {
				.first = htole32(r),
				.regions = htole32(1),
				.bitmaps = htole64(VIRTIO_GC_NONE),
			};
			struct virtio_gc_done *done =
				host_request(&h, m->owner[r],
					     VIRTIO_GC_TRACE_RESULTS, 2, 0,
				&range, sizeof(range), NULL, 0);
			struct virtio_gc_live *l = (void *)(done + 1);

			assert_non_null(done);
			objects -= le64toh(l->objects);
			bytes -= le64toh(l->bytes);
		}
		assert_int_equal(objects, 0);
		assert_int_equal(bytes, 0);
		free(live);
		host_end(&h);
	}
	assert_true(moves && updates);
	printf("# %llu regions moved, %llu references updated\n",
	       (unsigned long long)moves, (unsigned long long)updates);
}

/*
 * A worker is killed at any moment: the host notices, the heap is unchanged, and
 * another worker does the whole job.
 */
static void test_killed(void **state)
{
	u32 noticed = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = config_of(3 * i + 2);
		struct host h;
		u8 *live, *before;
		u32 victim = i % c.donors, status;

		host_start(&h, &c);
		live = calloc(h.m->nr_objects, 1);
		before = malloc(h.m->l.bytes);
		assert_true(live && before);
		memcpy(before, h.m->donors, h.m->l.bytes);
		mut_trace(h.m, live, NULL);
		if (!(i & 1))
			kill(h.child[victim].pid, SIGKILL);
		status = host_trace_start(&h, 1);
		if (!status) {
			kill(h.child[victim].pid, SIGKILL);
			status = host_trace_finish(&h, 1);
		}
		/* the job may have been done before the worker died */
		if (status) {
			/* [VGC-D-13] */
			assert_int_equal(status, VIRTIO_GC_WORKER_LOST);
			assert_true(h.lost >> victim & 1);
			noticed++;
		}
		/* [VGC-D-12] */
		assert_memory_equal(before, h.m->donors, h.m->l.bytes);
		dcm_gc_child_end(&h.child[victim]);
		worker_start(&h, victim);
		assert_int_equal(host_trace_start(&h, 2), 0);
		assert_int_equal(host_trace_finish(&h, 2), 0);
		host_check(&h, 2, live);
		free(live);
		free(before);
		host_end(&h);
	}
	assert_true(noticed);
	printf("# %u of %u workers killed in time\n", noticed, HEAPS);
}

static u64 status_field(pid_t pid, const char *name)
{
	char path[64], line[256];
	u64 value = U64_MAX;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 10);
	fclose(f);
	return value;
}

/* The installed program: its descriptors, and its rights. */
static void test_sandbox(void **state)
{
	struct mut_config c = config_of(0);
	char path[64], log[64];
	struct dirent *e;
	struct host h;
	u32 fds = 0;
	DIR *dir;

	(void)state;
	worker_path = getenv("GC_WORKER_PLAIN");
	host_start(&h, &c);
	worker_path = getenv("GC_WORKER");
	assert_int_equal(host_trace_start(&h, 1), 0);
	assert_int_equal(host_trace_finish(&h, 1), 0);
	assert_int_equal(status_field(h.child[0].pid, "Seccomp:"), 2);
	assert_int_equal(status_field(h.child[0].pid, "NoNewPrivs:"), 1);
	/* not dumpable, so /proc/PID/fd is root's */
	if (!geteuid()) {
		snprintf(path, sizeof(path), "/proc/%d/fd", h.child[0].pid);
		dir = opendir(path);
		assert_non_null(dir);
		while ((e = readdir(dir)))
			fds += e->d_name[0] != '.';
		closedir(dir);
		/* /dev/null three times, the socket: no other memory [VGC-D-11] */
		assert_int_equal(fds, 4);
		snprintf(path, sizeof(path), "/proc/%d/fd/2", h.child[0].pid);
		fds = (u32)readlink(path, log, sizeof(log) - 1);
		assert_true(fds < sizeof(log));
		log[fds] = 0;
		assert_string_equal(log, "/dev/null");
		assert_int_equal(status_field(h.child[0].pid, "CapEff:"), 0);
	}
	host_end(&h);
}

/* A slab that the donor takes back takes its worker with it, and no other. */
static void test_slab_gone(void **state)
{
	struct mut_config c = config_of(1);
	struct host h;
	int status;

	(void)state;
	host_start(&h, &c);
	assert_int_equal(h.n, 2);
	assert_int_equal(ftruncate(h.slab[0], 0), 0);
	/* with roots in both, one dies and the other is asked to stop */
	if (!host_trace_start(&h, 1))
		assert_int_equal(host_trace_finish(&h, 1),
				 VIRTIO_GC_WORKER_LOST);
	assert_int_equal(h.lost, 1);
	assert_int_equal(waitpid(h.child[0].pid, &status, 0), h.child[0].pid);
	close(h.child[0].fd);
	h.child[0].pid = 0;
	/* the other one still answers */
	assert_int_equal(host_status(&h, 1, VIRTIO_GC_TRACE_FINISH, 1, 0, NULL,
				     0, NULL, 0),
			 VIRTIO_GC_UNSUPPORTED);
	for (u32 r = 0; r < c.regions; r++)
		if (!h.m->owner[r])
			mmap(h.m->donors + r * REGION, REGION,
			     PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	host_end(&h);
}

/* Messages of any bytes: an answer or an end, never a crash. */
static void test_noise(void **state)
{
	u32 ended = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = config_of(3 * i);
		struct dcm_gc_flags flags;
		struct host h;
		int status = 0;

		host_start(&h, &c);
		for (u32 k = 0; k < 300 && !h.lost; k++) {
			static const u32 kinds[] = {
				DCM_GC_PLACE,	  DCM_GC_POLL,
				DCM_GC_BITMAP,	  DCM_GC_STOP,
				DCM_GC_MOVED,	  DCM_GC_GHOSTS,
				DCM_GC_ACKED,	  DCM_GC_FORWARD,
				DCM_GC_FORWARDED, DCM_GC_POLL,
				DCM_GC_FINISH,	  DCM_GC_WRITE_COUNTS,
			};
			u64 noise[64];
			struct dcm_gc_message msg;

			for (u32 n = 0; n < 64; n++)
				noise[n] =
					mut_rand(h.m) &
					(k & 1 ? 0x0000000300000007 : U64_MAX);
			msg = (struct dcm_gc_message){
				.kind = htole32(kinds[mut_rand(h.m) % 12]),
				.tag = htole64(12345),
				.epoch = htole32((u32)mut_rand(h.m) % 3),
				.n = htole32((u32)mut_rand(h.m) % 70),
				.value = htole64(mut_rand(h.m) % 9999),
				.donor = htole32((u32)mut_rand(h.m) % 4),
				.bytes = htole32((u32)mut_rand(h.m) % 65 * 8),
			};
			if (k == 299)
				msg.kind = htole32(mut_rand(h.m) % 40);
			/* a request that is nearly one */
			if (!(k % 3)) {
				static const u16 commands[] = {
					1,  2,	4,  16, 17, 18,
					20, 32, 33, 34, 35, 36
				};
				struct virtio_gc_req *req = (void *)noise;
				u32 bytes = le32toh(msg.bytes);

				msg.kind = htole32(DCM_GC_REQUEST);
				memset(req, 0, sizeof(*req));
				req->command =
					htole16(commands[mut_rand(h.m) % 12]);
				req->epoch = htole32(1 + k % 2);
				req->count = htole32(
					bytes < 48 ? 0 : (bytes - 32) / 16);
			}
			host_send(&h, 0, &msg, noise, -1);
			/* its messages to other workers are dropped */
			while (!h.lost) {
				static u64 buf[BUFFER / 8];
				ssize_t n = dcm_gc_child_receive(&h.child[0],
								 buf, BUFFER);

				if (n == -EAGAIN)
					break;
				assert_true(n >= 0);
				h.lost = !n;
			}
		}
		/* and the worker still answers, or has ended in order */
		h.deaf = true;
		if (!h.lost)
			assert_true(host_poll(&h, 0, 1, &flags) <
					    VIRTIO_GC_STATUSES ||
				    h.lost);
		if (h.lost) {
			assert_int_equal(waitpid(h.child[0].pid, &status, 0),
					 h.child[0].pid);
			close(h.child[0].fd);
			h.child[0].pid = 0;
			if (WIFSIGNALED(status))
				fail_msg("seed %llu: ended by signal %d",
					 (unsigned long long)c.seed,
					 WTERMSIG(status));
			assert_in_range(WEXITSTATUS(status), 0, 9);
			assert_int_not_equal(WEXITSTATUS(status), 1);
			ended++;
		}
		host_end(&h);
	}
	printf("# %u of %u workers gave up on noise\n", ended, HEAPS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_write_counts),
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_sandbox),
		cmocka_unit_test(test_slab_gone),
		cmocka_unit_test(test_noise),
	};

	if (!getenv("GC_WORKER") || !getenv("GC_WORKER_PLAIN")) {
		fprintf(stderr,
			"worker_test: GC_WORKER and GC_WORKER_PLAIN are programs; `make check` sets them\n");
		return 2;
	}
	worker_path = getenv("GC_WORKER");
	if (getenv("GC_TEST"))
		cmocka_set_test_filter(getenv("GC_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
