// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostile_io_test.c - operations on a transport that does its worst
 *
 * The transport in between delays, reorders and fails operations, and dies; the
 * donors are real.
 */
#include <stdio.h>

#include "../../kvm-dcm/transport/hostile.h"
#include "donor.h"
#include "host.h"

static struct dcm_hostile dials = { .delay_ns = 2000000, .late_ns = 3000000 };

static struct dcm_endpoint *wrap(void *arg, struct dcm_endpoint *ep)
{
	static u64 seed;
	struct dcm_hostile_args args = { .inner = ep,
					 .dials = &dials,
					 .seed = ++seed };
	int err;

	(void)arg;
	ep = dcm_transport_hostile.open(&args, &err);
	assert_non_null(ep);
	return ep;
}

/*
 * Many operations in flight on a transport that does its worst, before real
 * donors: every write that was reported as done is there.
 */
static void hostile(bool local)
{
	enum { NR = 48 };
	struct job {
		struct dcm_io io;
		u64 buf[PAGE / 8];
		u32 e, p;
		u64 version;
		bool busy;
	};
	static struct job job[NR];
	static u64 at[4][NR]; /* version certain to be there */
	static bool sure[4][NR];
	struct dcm_client_config cfg = { .extent = SLAB, .wrap = wrap };
	struct donor d[2];
	struct host h = { 0 };
	u64 rng = 12345, checked = 0, version = 0, end = now_ms() + 60000;
	char path[128], addr[160];
	u32 i, k, steps = 0, deaths;

	memset(job, 0, sizeof(job));
	memset(sure, 0, sizeof(sure));
	memset(&dials.count, 0, sizeof(dials.count));
	WRITE_ONCE(dials.late_done, 0);
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", host_dir,
			 'a' + (int)i);
		donor_start(&d[i], local ? path : NULL, local ? -1 : 0,
			    host_keys, donor_small);
		snprintf(addr, sizeof(addr), "unix:%s", path);
		host_donor(&h, i ? "b" : "a", local ? addr : d[i].tcp);
	}
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	host_start_cfg(&h, cfg);
	want(&h, 0, 4);
	WAIT(get(&h, &h.attached) == 4);
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 30000);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_SILENCE], 0);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_ESTALE], 0);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_DIE], local ? 0 : 300);
	/* a late WRITE is done before what is written there next, or never */
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_LATE], local ? 0 : 1000);
	for (i = DCM_HOSTILE_FLIP; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	while (steps < 60000) {
		struct dcm_io *done;

		assert_true(now_ms() < end);
		for (i = 0; i < NR; i++) {
			struct job *j = &job[i];
			int ret;

			if (j->busy)
				continue;
			rng ^= rng << 13;
			rng ^= rng >> 7;
			rng ^= rng << 17;
			/* a page is one job's, as in the core */
			j->e = rng % 4;
			j->p = i;
			j->io = (struct dcm_io){
				.slab = &h.slab[j->e]->ref,
				.offset = (u64)i * PAGE,
				.bytes = PAGE,
				.op = rng >> 20 & 1 ? DCM_IO_READ :
						      DCM_IO_WRITE,
				.data = j->buf,
			};
			if (j->io.op == DCM_IO_WRITE) {
				j->version = ++version;
				fill(j->buf, j->e, j->p, j->version);
			}
			ret = dcm_client_io_post(h.client, 0, &j->io);
			if (ret == -EAGAIN || ret == -ENOTCONN)
				break;
			assert_int_equal(ret, 0);
			if (j->io.op == DCM_IO_WRITE)
				sure[j->e][i] = false;
			j->busy = true;
		}
		dcm_client_io_flush(h.client, 0);
		dcm_client_io_poll(h.client, 0, &done, 16);
		for (; done; done = done->next) {
			struct job *j = container_of(done, struct job, io);
			static u64 want_buf[PAGE / 8];

			steps++;
			j->busy = false;
			if (done->status)
				continue;
			if (done->op == DCM_IO_WRITE) {
				at[j->e][j->p] = j->version;
				sure[j->e][j->p] = true;
				continue;
			}
			if (!sure[j->e][j->p])
				continue;
			fill(want_buf, j->e, j->p, at[j->e][j->p]);
			assert_memory_equal(done->data, want_buf, PAGE);
			checked++;
		}
	}
	assert_true(checked > 5000);
	deaths = (u32)READ_ONCE(dials.count[DCM_HOSTILE_DIE]);
	assert_true(local ? !deaths : deaths > 0);
	assert_true(local ? !READ_ONCE(dials.late_done) :
			    READ_ONCE(dials.late_done) > 0);
	/* let operations in flight end: they use this function's memory */
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	for (k = 0; dcm_client_io_in_flight(h.client, 0); k++) {
		struct dcm_io *done;

		assert_true(now_ms() < end);
		dcm_client_io_poll(h.client, 0, &done, 16);
	}
	assert_int_equal(h.losts, 0);
	host_stop(&h);
	donor_end(&d[0]);
	donor_end(&d[1]);
}

static void test_hostile_tcp(void **state)
{
	(void)state;
	hostile(false);
}

static void test_hostile_shm(void **state)
{
	(void)state;
	hostile(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_tcp),
		cmocka_unit_test(test_hostile_shm),
	};

	return host_run("hostile_io", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
