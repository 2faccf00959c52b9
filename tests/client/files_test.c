// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * files_test.c - slabs on donors of memory and of files, real ones
 *
 * Files take the place of memory only where no donor of memory has room, and
 * busy extents go to memory again once one has, or change places with cold ones.
 * With redundancy = disk each extent has a slab of both kinds.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "donor.h"
#include "host.h"

#define NR 8u /* extents that are used */

static const char *const four_slabs[] = {
	"--capacity",	 "8M", "--slab-size", "2M", "--head-room", "0",
	"--spare-slabs", "0",  NULL
};

/* A donor of files in a directory of its own. */
static void files_start(struct donor *d, char *path)
{
	const char *const opts[] = { "--medium",    "file",	 "--path",
				     mkdtemp(path), DONOR_SMALL, NULL };

	assert_non_null(opts[3]);
	donor_start(d, NULL, 0, host_keys, opts);
}

/*
 * Donor a lends 4 slabs of memory, f files: a is full before f is asked, and no
 * extent waits.
 */
static void test_files_when_memory_is_full(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor a, f;

	(void)state;
	donor_start(&a, NULL, 0, host_keys, four_slabs);
	files_start(&f, path);
	host_donor(&h, "a", a.tcp);
	host_donor(&h, "f", f.tcp);
	host_start_cfg(&h, (struct dcm_client_config){
				   .extent = SLAB, .data_encryption = true });
	WAIT(status(&h, 0).state == DCM_DONOR_UP &&
	     status(&h, 1).state == DCM_DONOR_UP);
	want(&h, 0, 4);
	WAIT(get(&h, &h.attached) == 4);
	WAIT(status(&h, 0).slabs == 4);
	assert_int_equal(status(&h, 1).slabs, 0);
	want(&h, 4, NR);
	WAIT(get(&h, &h.attached) == NR);
	WAIT(status(&h, 0).slabs == 4 && status(&h, 1).slabs == NR - 4);
	assert_int_equal(get(&h, &h.starved), 0);
	host_stop(&h);
	donor_end(&a);
	donor_end(&f);
	assert_int_equal(rmdir(path), 0);
}

/* Two copies, one donor of memory: the second is a file, read last, and stays. */
static void test_copy_in_a_file(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor a, f;
	u32 e;

	(void)state;
	donor_start(&a, NULL, 0, host_keys, donor_small);
	files_start(&f, path);
	host_donor(&h, "a", a.tcp);
	host_donor(&h, "f", f.tcp);
	host_start_redundant(&h, DCM_REDUNDANCY_REPLICA_2, NR);
	for (e = 0; e < NR; e++) {
		assert_int_equal(h.old[e]->donor, 0);
		assert_int_equal(h.old[e]->ref.rank, DCM_RANK_MEMORY);
		assert_int_equal(h.slab[e]->donor, 1);
		assert_int_equal(h.slab[e]->ref.rank, DCM_RANK_FILE);
	}
	donor_signal(&a, SIGKILL);
	WAIT(get(&h, &h.losts) == NR);
	for (e = 0; e < NR; e++)
		assert_int_equal(get(&h, &h.lost_of[e]), 1);
	WAIT(status(&h, 1).slabs == NR);
	host_stop(&h);
	donor_end(&a);
	donor_end(&f);
	assert_int_equal(rmdir(path), 0);
}

/* Whether the donors a, b and f have lent this many slabs. */
static bool slabs_are(struct host *h, u64 a, u64 b, u64 f)
{
	return status(h, 0).slabs == a && status(h, 1).slabs == b &&
	       status(h, 2).slabs == f;
}

static void redundancy_set(struct host *h, enum dcm_host_redundancy redundancy)
{
	assert_int_equal(dcm_client_redundancy_set(h->client, redundancy), 0);
}

/* Donors a and b of memory, f of files. */
static void kinds_start(struct host *h, struct donor *d, char *path,
			enum dcm_host_redundancy redundancy)
{
	static const char *const names[] = { "a", "b", "f" };
	u32 i;

	donor_start(&d[0], NULL, 0, host_keys, donor_small);
	donor_start(&d[1], NULL, 0, host_keys, donor_small);
	files_start(&d[2], path);
	for (i = 0; i < 3; i++)
		host_donor(h, names[i], d[i].tcp);
	host_start_redundant(h, redundancy, NR);
}

static void kinds_end(struct host *h, struct donor *d, const char *path)
{
	u32 i;

	host_stop(h);
	for (i = 0; i < 3; i++)
		donor_end(&d[i]);
	assert_int_equal(rmdir(path), 0);
}

/* All donors of memory die: each extent has its file, and is exposed. */
static void test_disk_outlives_all_memory(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor d[3];

	(void)state;
	kinds_start(&h, d, path, DCM_REDUNDANCY_DISK);
	WAIT(status(&h, 0).slabs + status(&h, 1).slabs == NR &&
	     status(&h, 2).slabs == NR);
	donor_signal(&d[0], SIGKILL);
	WAIT(slabs_are(&h, 0, NR, NR));
	donor_signal(&d[1], SIGKILL);
	WAIT(slabs_are(&h, 0, 0, NR));
	WAIT(logged(&h, "has 1 of 2 copies"));
	assert_int_equal(get(&h, &h.starved), 0);
	kinds_end(&h, d, path);
}

/* From disk to replica:2+disk: one more in memory. */
static void test_from_disk_to_replica_and_disk(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor d[3];

	(void)state;
	kinds_start(&h, d, path, DCM_REDUNDANCY_DISK);
	redundancy_set(&h, DCM_REDUNDANCY_REPLICA_2_DISK);
	WAIT(slabs_are(&h, NR, NR, NR));
	assert_int_equal(get(&h, &h.evicts), 0);
	kinds_end(&h, d, path);
}

/* From two copies in memory to disk: the file comes first, then memory goes. */
static void test_from_replica_to_disk(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor d[3];

	(void)state;
	kinds_start(&h, d, path, DCM_REDUNDANCY_REPLICA_2);
	WAIT(slabs_are(&h, NR, NR, 0));
	redundancy_set(&h, DCM_REDUNDANCY_DISK);
	WAIT(get(&h, &h.attached) == 3 * NR);
	WAIT(get(&h, &h.evicts) == NR);
	WAIT(slabs_are(&h, NR, NR, NR));
	assert_int_equal(get(&h, &h.losts), 0);
	kinds_end(&h, d, path);
}

/* Use an extent's slab as a busy guest would, until its activity is known. */
static void busy(struct host *h, u32 extent, unsigned int attached)
{
	static u64 page[PAGE / 8];
	u32 i = 0;

	do {
		fill(page, extent, i % 512, i);
		assert_int_equal(io(h, slab_of(h, extent), DCM_IO_WRITE,
				    (u64)(i % 512) * PAGE, PAGE, page),
				 0);
		usleep(1000);
	} while (++i < 30000 && get(h, &h->attached) == attached);
}

/* Memory comes: the busy extent goes there, the others stay where they are. */
static void test_busy_extents_go_to_memory(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor a, b, f;
	struct dcm_host_donor more = { .name = "b" };

	(void)state;
	donor_start(&a, NULL, 0, host_keys, four_slabs);
	donor_start(&b, NULL, 0, host_keys, donor_small);
	files_start(&f, path);
	host_donor(&h, "a", a.tcp);
	host_donor(&h, "f", f.tcp);
	host_start_cfg(&h, (struct dcm_client_config){
				   .extent = SLAB, .data_encryption = true });
	WAIT(status(&h, 0).state == DCM_DONOR_UP &&
	     status(&h, 1).state == DCM_DONOR_UP);
	want(&h, 0, NR);
	WAIT(get(&h, &h.attached) == NR);
	WAIT(status(&h, 0).slabs == 4 && status(&h, 1).slabs == NR - 4);
	for (u32 e = 0; e < NR; e++)
		if (h.slab[e]->donor == 1) {
			strcpy(more.address, b.tcp);
			assert_int_equal(dcm_client_donor_add(h.client, &more),
					 0);
			busy(&h, e, NR);
			assert_int_equal(get(&h, &h.attached), NR + 1);
			assert_int_equal(h.slab[e]->donor, 2);
			WAIT(get(&h, &h.evicts) == 1);
			dcm_client_release(h.client, h.old[e]);
			break;
		}
	WAIT(status(&h, 2).slabs == 1 && status(&h, 1).slabs == NR - 5);
	assert_int_equal(get(&h, &h.starved), 0);
	host_stop(&h);
	donor_end(&a);
	donor_end(&b);
	donor_end(&f);
	assert_int_equal(rmdir(path), 0);
}

/* Extents that a guest uses: @busy up to a thousand times a second, @warm a few times. */
struct use {
	u32 busy;
	u32 warm[4];
	u32 nr_warm;
};

/* So for @ms, and no longer than until a counter is @until. */
static void work(struct host *h, const struct use *u, u32 ms,
		 const unsigned int *counter, unsigned int until)
{
	static u64 page[PAGE / 8];
	u64 now = now_ms(), end = now + ms, warm_at = now;
	u32 i, turn = 0;

	for (i = 0; now < end && !(counter && get(h, counter) >= until);
	     i++, now = now_ms()) {
		u32 e = u->busy;

		/* by the clock: on a slow machine they must not get cold */
		if (u->nr_warm && now >= warm_at) {
			e = u->warm[turn++ % u->nr_warm];
			warm_at = now + 50;
		}
		fill(page, e, i % 512, i);
		assert_int_equal(io(h, slab_of(h, e), DCM_IO_WRITE,
				    (u64)(i % 512) * PAGE, PAGE, page),
				 0);
		usleep(1000);
	}
	if (counter)
		assert_int_equal(get(h, counter), until);
}

/* The @n-th of the extents whose newest slab is on a donor. */
static u32 extent_on(struct host *h, u32 donor, u32 n)
{
	u32 e;

	for (e = 0; e < NR; e++)
		if (h->slab[e]->donor == donor && !n--)
			return e;
	fail_msg("donor %u has too few", donor);
	return 0;
}

/*
 * Memory is full: a busy extent stays on files while all that is in memory is in use,
 * and changes places with an extent that is not. Then nothing moves any more.
 */
static void test_cold_extent_makes_room(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor a, f;
	struct use u;
	u32 cold, i;

	(void)state;
	donor_start(&a, NULL, 0, host_keys, four_slabs);
	files_start(&f, path);
	host_donor(&h, "a", a.tcp);
	host_donor(&h, "f", f.tcp);
	/* a write to files may wait for the disk for seconds: none gets cold by that */
	host_start_cfg(&h, (struct dcm_client_config){ .extent = SLAB,
						       .data_encryption = true,
						       .cold_after_ms = 6000 });
	WAIT(status(&h, 0).state == DCM_DONOR_UP &&
	     status(&h, 1).state == DCM_DONOR_UP);
	want(&h, 0, NR);
	WAIT(get(&h, &h.attached) == NR);
	WAIT(status(&h, 0).slabs == 4 && status(&h, 1).slabs == NR - 4);
	u = (struct use){ .busy = extent_on(&h, 1, 0), .nr_warm = 4 };
	for (i = 0; i < 4; i++)
		u.warm[i] = extent_on(&h, 0, i);
	work(&h, &u, 9000, NULL, 0);
	assert_int_equal(get(&h, &h.attached), NR);
	/* one is no longer used */
	cold = u.warm[--u.nr_warm];
	write_extent(&h, cold, 7);
	work(&h, &u, 30000, &h.evicts, 1);
	assert_int_equal(get(&h, &h.attached), NR + 1);
	assert_non_null(h.leaving[cold]);
	assert_int_equal(h.leaving[cold]->donor, 0);
	assert_int_equal(h.slab[cold]->donor, 1);
	slab_copy(&h, h.slab[cold], h.leaving[cold]);
	dcm_client_release(h.client, h.leaving[cold]);
	work(&h, &u, 30000, &h.attached, NR + 2);
	assert_int_equal(h.slab[u.busy]->donor, 0);
	work(&h, &u, 30000, &h.evicts, 2);
	assert_int_equal(h.leaving[u.busy]->donor, 1);
	dcm_client_release(h.client, h.leaving[u.busy]);
	WAIT(status(&h, 0).slabs == 4 && status(&h, 1).slabs == NR - 4);
	/* another one is not used: that the first was copied does not displace it */
	u.nr_warm--;
	work(&h, &u, 12000, NULL, 0);
	assert_int_equal(get(&h, &h.attached), NR + 2);
	assert_int_equal(get(&h, &h.evicts), 2);
	check_slab(&h, h.slab[cold], cold, 7);
	host_stop(&h);
	donor_end(&a);
	donor_end(&f);
	assert_int_equal(rmdir(path), 0);
}

/*
 * Donor a lends 4 slabs of memory, b more, f and g files. The first 4 extents have
 * what they are to have; extent 4 lacks memory, and is busy while the others are cold.
 */
static void full_memory_start(struct host *h, struct donor *d, char path[2][32],
			      enum dcm_host_redundancy redundancy)
{
	static const char *const names[] = { "a", "b", "f", "g" };
	u32 copies = dcm_redundancies[redundancy].copies, i;

	donor_start(&d[0], NULL, 0, host_keys, four_slabs);
	donor_start(&d[1], NULL, 0, host_keys, donor_small);
	for (i = 0; i < 2; i++)
		files_start(&d[2 + i],
			    strcpy(path[i], "/tmp/dcm-files-XXXXXX"));
	for (i = 0; i < 4; i++)
		host_donor(h, names[i], d[i].tcp);
	/* disk: only a lends memory */
	if (copies == 2 && dcm_redundancies[redundancy].files)
		h->donors[1] = h->donors[--h->nr_donors];
	host_start_cfg(h, (struct dcm_client_config){ .extent = SLAB,
						      .data_encryption = true,
						      .redundancy = redundancy,
						      .cold_after_ms = 1000 });
	for (i = 0; i < h->nr_donors; i++)
		WAIT(status(h, i).state == DCM_DONOR_UP);
	want(h, 0, 4);
	WAIT(get(h, &h->attached) == 4 * copies);
	want(h, 4, 5);
	WAIT(get(h, &h->attached) == 5 * copies);
	WAIT(status(h, 0).slabs == 4);
}

static void full_memory_end(struct host *h, struct donor *d, char path[2][32])
{
	u32 i;

	host_stop(h);
	for (i = 0; i < 4; i++)
		donor_end(&d[i]);
	for (i = 0; i < 2; i++)
		assert_int_equal(rmdir(path[i]), 0);
}

/* replica:2: the cold extent has three slabs before it gives memory back. */
static void test_cold_copy_makes_room(void **state)
{
	const struct use u = { .busy = 4 };
	struct host h = { 0 };
	struct donor d[4];
	char path[2][32];
	u32 cold = 0;

	(void)state;
	full_memory_start(&h, d, path, DCM_REDUNDANCY_REPLICA_2);
	work(&h, &u, 30000, &h.evicts, 1);
	assert_int_equal(get(&h, &h.attached), 11);
	while (cold < 4 && !h.leaving[cold])
		cold++;
	assert_true(cold < 4);
	assert_int_equal(h.leaving[cold]->donor, 0);
	assert_true(h.slab[cold]->donor >= 2);
	dcm_client_release(h.client, h.leaving[cold]);
	work(&h, &u, 30000, &h.attached, 12);
	assert_int_equal(h.slab[4]->donor, 0);
	work(&h, &u, 30000, &h.evicts, 2);
	assert_true(h.leaving[4]->donor >= 2);
	dcm_client_release(h.client, h.leaving[4]);
	work(&h, &u, 5000, NULL, 0);
	assert_int_equal(get(&h, &h.attached), 12);
	assert_int_equal(get(&h, &h.evicts), 2);
	full_memory_end(&h, d, path);
}

/* disk: each page is on files already, and none is to be there twice. */
static void test_disk_exchanges_nothing(void **state)
{
	const struct use u = { .busy = 4 };
	struct host h = { 0 };
	struct donor d[4];
	char path[2][32];

	(void)state;
	full_memory_start(&h, d, path, DCM_REDUNDANCY_DISK);
	work(&h, &u, 5000, NULL, 0);
	assert_int_equal(get(&h, &h.attached), 10);
	assert_int_equal(get(&h, &h.evicts), 0);
	full_memory_end(&h, d, path);
}

/*
 * replica:2+disk: a donor of memory dies, and only files have room. Once memory has
 * room again each extent is on two donors of memory, and on one of files.
 */
static void test_back_to_two_in_memory(void **state)
{
	static const char *const names[] = { "a", "b", "f", "g" };
	char path[2][32] = { "/tmp/dcm-files-XXXXXX", "/tmp/dcm-files-XXXXXX" };
	struct dcm_host_donor more = { .name = "c" };
	struct host h = { 0 };
	struct donor d[5];
	u32 e, i;

	(void)state;
	donor_start(&d[0], NULL, 0, host_keys, donor_small);
	donor_start(&d[1], NULL, 0, host_keys, donor_small);
	files_start(&d[2], path[0]);
	files_start(&d[3], path[1]);
	donor_start(&d[4], NULL, 0, host_keys, donor_small);
	for (i = 0; i < 4; i++)
		host_donor(&h, names[i], d[i].tcp);
	host_start_redundant(&h, DCM_REDUNDANCY_REPLICA_2_DISK, NR);
	donor_signal(&d[1], SIGKILL);
	WAIT(slabs_are(&h, NR, 0, NR) && status(&h, 3).slabs == NR);
	assert_int_equal(get(&h, &h.attached), 4 * NR);
	assert_int_equal(get(&h, &h.evicts), 0);
	strcpy(more.address, d[4].tcp);
	assert_int_equal(dcm_client_donor_add(h.client, &more), 0);
	WAIT(get(&h, &h.evicts) == NR);
	WAIT(status(&h, 4).slabs == NR);
	for (e = 0; e < NR; e++) {
		assert_true(h.leaving[e]->donor == 2 ||
			    h.leaving[e]->donor == 3);
		dcm_client_release(h.client, h.leaving[e]);
	}
	WAIT(status(&h, 2).slabs + status(&h, 3).slabs == NR);
	assert_int_equal(status(&h, 0).slabs, NR);
	assert_int_equal(get(&h, &h.evicts), NR);
	assert_int_equal(get(&h, &h.attached), 5 * NR);
	host_stop(&h);
	for (i = 0; i < 5; i++)
		donor_end(&d[i]);
	for (i = 0; i < 2; i++)
		assert_int_equal(rmdir(path[i]), 0);
}

/* The same slabs as with disk. */
static void test_disk_lazy(void **state)
{
	char path[] = "/tmp/dcm-files-XXXXXX";
	struct host h = { 0 };
	struct donor d[3];

	(void)state;
	kinds_start(&h, d, path, DCM_REDUNDANCY_DISK_LAZY);
	WAIT(status(&h, 0).slabs + status(&h, 1).slabs == NR &&
	     status(&h, 2).slabs == NR);
	assert_int_equal(dcm_client_redundancy_set(h.client,
						   DCM_REDUNDANCY_DISK),
			 -EALREADY);
	assert_int_equal(get(&h, &h.evicts), 0);
	kinds_end(&h, d, path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_when_memory_is_full),
		cmocka_unit_test(test_copy_in_a_file),
		cmocka_unit_test(test_disk_outlives_all_memory),
		cmocka_unit_test(test_from_disk_to_replica_and_disk),
		cmocka_unit_test(test_from_replica_to_disk),
		cmocka_unit_test(test_busy_extents_go_to_memory),
		cmocka_unit_test(test_cold_extent_makes_room),
		cmocka_unit_test(test_cold_copy_makes_room),
		cmocka_unit_test(test_disk_exchanges_nothing),
		cmocka_unit_test(test_back_to_two_in_memory),
		cmocka_unit_test(test_disk_lazy),
	};

	return host_run("files", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
