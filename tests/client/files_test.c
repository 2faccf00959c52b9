// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * files_test.c - slabs on donors of memory and of files, real ones
 *
 * Files take the place of memory only where no donor of memory has room, and
 * busy extents go to memory again once one has. With redundancy = disk each
 * extent has a slab of both kinds.
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

/* What the donors a, b and f have. */
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
		assert_int_equal(io(h, h->slab[extent], DCM_IO_WRITE,
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
		cmocka_unit_test(test_back_to_two_in_memory),
		cmocka_unit_test(test_disk_lazy),
	};

	return host_run("files", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
