// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copies_test.c - extents with two slabs, placed on real donors
 *
 * An extent's slabs are on different donors. When a donor dies its extents get
 * other slabs, as long as some donor has none of theirs; else they stay exposed
 * until there is one. files_test.c has donors of memory and of files.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "donor.h"
#include "host.h"

#define NR 8u /* extents that are used */

/* Donors a, b and c. */
static void three_start(struct host *h, struct donor *d,
			enum dcm_host_redundancy redundancy)
{
	static const char *const names[] = { "a", "b", "c" };
	u32 i;

	for (i = 0; i < 3; i++) {
		donor_start(&d[i], NULL, 0, host_keys, donor_small);
		host_donor(h, names[i], d[i].tcp);
	}
	host_start_redundant(h, redundancy, NR);
}

/* How many extents have lost @losts slabs. */
static u32 losers(struct host *h, unsigned int losts)
{
	u32 e, n = 0;

	for (e = 0; e < NR; e++)
		n += get(h, &h->lost_of[e]) == losts;
	return n;
}

/* Extents whose copies may be lost together, as of the last look. */
static u32 near_now(struct host *h)
{
	static struct dcm_client_status st;

	dcm_client_status(h->client, &st);
	return st.near;
}

static u64 slabs_of_three(struct host *h)
{
	return status(h, 0).slabs + status(h, 1).slabs + status(h, 2).slabs;
}

static void test_each_copy_on_another_donor(void **state)
{
	struct host h = { 0 };
	struct donor d[3];
	u32 e, i, on_a;

	(void)state;
	three_start(&h, d, DCM_REDUNDANCY_REPLICA_2);
	for (e = 0; e < NR; e++)
		assert_int_not_equal(h.slab[e]->donor, h.old[e]->donor);
	/* figures are a moment old */
	WAIT(slabs_of_three(&h) == 2 * NR);
	for (i = 0; i < 3; i++)
		assert_in_range(status(&h, i).slabs, 1, NR);
	on_a = status(&h, 0).slabs;

	donor_signal(&d[0], SIGKILL);
	WAIT(get(&h, &h.losts) == on_a);
	assert_int_equal(losers(&h, 1), on_a);
	/* others are sought at once, not within a second */
	assert_int_equal(get(&h, &h.lost_late), 0);
	WAIT(status(&h, 1).slabs == NR && status(&h, 2).slabs == NR);
	assert_int_equal(get(&h, &h.attached), 2 * NR + on_a);

	/* every extent has one slab on b: each of them loses that, and no more */
	donor_signal(&d[1], SIGKILL);
	WAIT(get(&h, &h.losts) == on_a + NR);
	assert_int_equal(losers(&h, 1), NR - on_a);
	assert_int_equal(losers(&h, 2), on_a);
	WAIT(logged(&h, "has 1 of 2 copies"));
	WAIT(status(&h, 2).slabs == NR);
	assert_int_equal(get(&h, &h.starved), 0);
	assert_int_equal(get(&h, &h.attached), 2 * NR + on_a);
	host_stop(&h);
	for (i = 0; i < 3; i++)
		donor_end(&d[i]);
}

/* From one slab to two and back: what is too many is moved as if donors wanted it. */
static void test_copies_are_changed(void **state)
{
	struct host h = { 0 };
	struct donor d[3];
	u32 e, i;

	(void)state;
	three_start(&h, d, DCM_REDUNDANCY_NONE);
	assert_int_equal(dcm_client_redundancy_set(h.client, DCM_REDUNDANCY_NR),
			 -EINVAL);
	assert_int_equal(dcm_client_redundancy_set(h.client,
						   DCM_REDUNDANCY_NONE),
			 -EALREADY);
	/* connections that wait for a shorter time are made anew */
	assert_int_equal(dcm_client_redundancy_set(h.client,
						   DCM_REDUNDANCY_REPLICA_2),
			 0);
	WAIT(get(&h, &h.attached) == 2 * NR);
	for (e = 0; e < NR; e++)
		assert_int_not_equal(h.slab[e]->donor, h.old[e]->donor);
	assert_int_equal(get(&h, &h.evicts), 0);

	assert_int_equal(dcm_client_redundancy_set(h.client,
						   DCM_REDUNDANCY_NONE),
			 0);
	WAIT(get(&h, &h.evicts) == NR);
	for (e = 0; e < NR; e++)
		dcm_client_release(h.client, h.slab[e]);
	WAIT(slabs_of_three(&h) == NR);
	assert_int_equal(get(&h, &h.losts), 0);
	assert_int_equal(get(&h, &h.attached), 2 * NR);
	host_stop(&h);
	for (i = 0; i < 3; i++)
		donor_end(&d[i]);
}

/*
 * a and b are of one group, c and d on one host: an extent's two slabs are on a or
 * b, and on c or d. Without c and d both are in the group, and that is told.
 */
static void test_copies_are_far_apart(void **state)
{
	static const char *const listen[] = { "127.0.0.2:0", "127.0.0.3:0",
					      "127.0.0.4:0", "127.0.0.4:0" };
	static const char *const names[] = { "a", "b", "c", "d" };
	struct host h = { 0 };
	struct donor d[4];
	u32 e, i;

	(void)state;
	for (i = 0; i < 4; i++) {
		const char *opts[] = { DONOR_SMALL, "--listen", listen[i],
				       NULL };

		donor_start(&d[i], NULL, -1, host_keys, opts);
		host_donor(&h, names[i], d[i].tcp);
	}
	strcpy(h.donors[0].group, "rack");
	strcpy(h.donors[1].group, "rack");
	host_start_cfg(&h, (struct dcm_client_config){
				   .extent = SLAB,
						       .data_encryption = true,
						       .redundancy = DCM_REDUNDANCY_REPLICA_2 });
	for (i = 0; i < 4; i++)
		WAIT(status(&h, i).state == DCM_DONOR_UP);
	want(&h, 0, NR);
	WAIT(get(&h, &h.attached) == 2 * NR);
	for (e = 0; e < NR; e++)
		assert_int_not_equal(h.slab[e]->donor < 2, h.old[e]->donor < 2);
	assert_int_equal(near_now(&h), 0);

	donor_signal(&d[2], SIGKILL);
	donor_signal(&d[3], SIGKILL);
	WAIT(status(&h, 0).slabs == NR && status(&h, 1).slabs == NR);
	WAIT(near_now(&h) == NR);
	host_stop(&h);
	for (i = 0; i < 4; i++)
		donor_end(&d[i]);
}

/*
 * a and b are of one group, and have all copies. Then c comes, of another: one slab of
 * each extent goes there, four extents at a time, and the new one comes first.
 */
static void test_near_copies_are_moved_apart(void **state)
{
	static const char *const listen[] = { "127.0.0.2:0", "127.0.0.3:0",
					      "127.0.0.4:0" };
	static const char *const names[] = { "a", "b" };
	struct dcm_host_donor more = { .name = "c", .group = "other" };
	struct host h = { 0 };
	struct donor d[3];
	u32 e, i, done = 0;

	(void)state;
	for (i = 0; i < 3; i++) {
		const char *opts[] = { DONOR_SMALL, "--listen", listen[i],
				       NULL };

		donor_start(&d[i], NULL, -1, host_keys, opts);
		if (i < 2) {
			host_donor(&h, names[i], d[i].tcp);
			strcpy(h.donors[i].group, "rack");
		}
	}
	host_start_redundant(&h, DCM_REDUNDANCY_REPLICA_2, NR);
	WAIT(near_now(&h) == NR);
	assert_int_equal(get(&h, &h.evicts), 0);
	strcpy(more.address, d[2].tcp);
	assert_int_equal(dcm_client_donor_add(h.client, &more), 0);
	while (done < NR) {
		WAIT(get(&h, &h.evicts) > done);
		/* as the slab worker would, once the other one is filled */
		for (e = 0; e < NR; e++) {
			struct dcm_client_slab *s = taken(&h, &h.leaving[e]);

			if (!s)
				continue;
			assert_int_equal(h.slab[e]->donor, 2);
			assert_true(s->donor < 2);
			dcm_client_release(h.client, s);
			done++;
		}
	}
	WAIT(near_now(&h) == 0);
	WAIT(status(&h, 2).slabs == NR && slabs_of_three(&h) == 2 * NR);
	assert_int_equal(get(&h, &h.evicts), NR);
	assert_int_equal(get(&h, &h.losts), 0);
	host_stop(&h);
	for (i = 0; i < 3; i++)
		donor_end(&d[i]);
}

/*
 * Eight donors, two copies, a scatter width of 2: copies of what one donor has are on
 * two others. The pairs of donors that have an extent are counted.
 */
static void test_scatter(void **state)
{
	bool pair[8][8] = { 0 };
	struct host h = { 0 };
	struct donor d[8];
	char name[16];
	u32 e, i, k, nr = 0;

	(void)state;
	for (i = 0; i < 8; i++) {
		char listen[32];
		const char *opts[] = { DONOR_SMALL, "--listen", listen, NULL };

		snprintf(listen, sizeof(listen), "127.0.0.%u:0", i + 2);
		donor_start(&d[i], NULL, -1, host_keys, opts);
		snprintf(name, sizeof(name), "d%u", i);
		host_donor(&h, name, d[i].tcp);
	}
	host_start_cfg(&h, (struct dcm_client_config){
				   .extent = SLAB,
				   .data_encryption = true,
				   .redundancy = DCM_REDUNDANCY_REPLICA_2,
				   .scatter = 2 });
	for (i = 0; i < 8; i++)
		WAIT(status(&h, i).state == DCM_DONOR_UP);
	want(&h, 0, EXTENTS);
	WAIT(get(&h, &h.attached) == 2 * EXTENTS);
	for (e = 0; e < EXTENTS; e++) {
		i = h.slab[e]->donor;
		k = h.old[e]->donor;
		assert_int_not_equal(i, k);
		nr += !pair[i][k];
		pair[i][k] = pair[k][i] = true;
	}
	assert_true(nr <= 8);
	for (i = 0; i < 8; i++) {
		for (k = 0, e = 0; k < 8; k++)
			e += pair[i][k];
		assert_true(e <= 2);
	}
	host_stop(&h);
	for (i = 0; i < 8; i++)
		donor_end(&d[i]);
}

/* One donor: nothing waits for the second copy, which comes with a second donor. */
static void test_exposed_until_there_is_a_donor(void **state)
{
	struct host h = { 0 };
	struct donor a, b;
	int port;

	(void)state;
	donor_start(&a, NULL, 0, host_keys, donor_small);
	donor_start(&b, NULL, 0, host_keys, donor_small);
	port = atoi(strrchr(b.tcp, ':') + 1);
	host_donor(&h, "a", a.tcp);
	host_donor(&h, "b", b.tcp);
	donor_end(&b);
	host_start_cfg(&h, (struct dcm_client_config){
				   .extent = SLAB,
						       .data_encryption = true,
						       .redundancy = DCM_REDUNDANCY_REPLICA_2 });
	want(&h, 0, NR);
	WAIT(get(&h, &h.attached) == NR);
	WAIT(logged(&h, "has 1 of 2 copies"));
	assert_int_equal(on_donor(&h, NR, 0), NR);
	donor_start(&b, NULL, port, host_keys, donor_small);
	WAIT(get(&h, &h.attached) == 2 * NR);
	WAIT(status(&h, 0).slabs == NR && status(&h, 1).slabs == NR);
	assert_int_equal(get(&h, &h.starved), 0);
	host_stop(&h);
	donor_end(&a);
	donor_end(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_copy_on_another_donor),
		cmocka_unit_test(test_copies_are_changed),
		cmocka_unit_test(test_copies_are_far_apart),
		cmocka_unit_test(test_near_copies_are_moved_apart),
		cmocka_unit_test(test_scatter),
		cmocka_unit_test(test_exposed_until_there_is_a_donor),
	};

	return host_run("copies", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
