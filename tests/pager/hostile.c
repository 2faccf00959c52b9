// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostile.c - with PAGER_TEST_HOSTILE=SEED a pager's donors are behind the worst
 * possible transport: operations are refused, reported as failed though done,
 * split, late, reordered; connections die, if they can be made again (not shm),
 * and WRITEs of theirs take effect afterwards
 *
 * With PAGER_TEST_LIAR=SEED the transport only delays, splits and reorders, and
 * from SIGUSR1 on the first donor lies: pages have wrong bits, are others, or of
 * before. A donor that lies from the start would be believed: a page has a sum
 * only while its extent has copies.
 *
 * Linked with --wrap=dcm_client_start. A program that ends without an error
 * fails all the same if one of these faults never happened.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../kvm-dcm/transport/hostile.h"
#include "../../kvm-dcm/client/client.h"

#define OFTEN_PPM 20000u
#define DIES_PPM 500u
#define LATE_PPM 2000u
#define DELAY_NS 2000000u
#define LATE_NS 5000000u

int __real_dcm_client_start(const struct dcm_client_config *cfg,
			    const struct dcm_client_ops *cb, void *arg,
			    struct dcm_client **client);
int __wrap_dcm_client_start(const struct dcm_client_config *cfg,
			    const struct dcm_client_ops *cb, void *arg,
			    struct dcm_client **client);

static struct dcm_hostile dials = {
	.ppm = {
		[DCM_HOSTILE_AGAIN] = OFTEN_PPM,
		[DCM_HOSTILE_SPLIT] = OFTEN_PPM,
		[DCM_HOSTILE_DELAY] = OFTEN_PPM,
		[DCM_HOSTILE_REORDER] = OFTEN_PPM,
	},
	.delay_ns = DELAY_NS,
	.late_ns = LATE_NS,
};

static u64 seed;

static struct dcm_endpoint *worse(void *arg, struct dcm_endpoint *ep)
{
	struct dcm_hostile_args args = {
		.inner = ep,
		.dials = &dials,
		.seed = __atomic_add_fetch(&seed, 1, __ATOMIC_RELAXED),
	};
	int err;

	(void)arg;
	ep = dcm_transport_hostile.open(&args, &err);
	if (!ep) {
		fprintf(stderr, "no hostile transport: %d\n", err);
		abort();
	}
	return ep;
}

static void counts_print(void)
{
	fprintf(stderr, "hostile:");
	for (u32 i = 0; i < DCM_HOSTILE_NR; i++) {
		u64 n = (u64)READ_ONCE(dials.count[i]);

		fprintf(stderr, " %s %llu",
			dcm_hostile_kind_name((enum dcm_hostile_kind)i),
			(unsigned long long)n);
		if (dials.ppm[i] && !n) {
			fprintf(stderr, ": never\n");
			_exit(1);
		}
	}
	fprintf(stderr, "; done late %llu\n",
		(unsigned long long)READ_ONCE(dials.late_done));
}

static void lie(int sig)
{
	(void)sig;
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_FLIP], OFTEN_PPM);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_SWAP], OFTEN_PPM);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_OLD], OFTEN_PPM);
}

static void fail_often(bool can_die)
{
	dials.ppm[DCM_HOSTILE_EIO] = OFTEN_PPM;
	dials.ppm[DCM_HOSTILE_EIO_LATE] = OFTEN_PPM;
	if (can_die) {
		dials.ppm[DCM_HOSTILE_DIE] = DIES_PPM;
		dials.ppm[DCM_HOSTILE_LATE] = LATE_PPM;
	}
}

int __wrap_dcm_client_start(const struct dcm_client_config *cfg,
			    const struct dcm_client_ops *cb, void *arg,
			    struct dcm_client **client)
{
	const char *fails = getenv("PAGER_TEST_HOSTILE");
	const char *lies = getenv("PAGER_TEST_LIAR");
	const char *text = fails ? fails : lies;
	struct dcm_client_config worse_cfg = *cfg;

	if (text) {
		if (!seed)
			atexit(counts_print);
		seed = strtoull(text, NULL, 0) << 20 | 1;
		if (fails)
			fail_often(cfg->nr_donors &&
				   cfg->donors[0].address[0] == 't');
		else
			signal(SIGUSR1, lie);
		worse_cfg.wrap = worse;
	}
	return __real_dcm_client_start(&worse_cfg, cb, arg, client);
}
