// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostile_test.c - the hostile transport does each of its faults, and no other
 *
 * In front of an shm endpoint: bytes that were reported as written must be there.
 * hostile_lies_test.c has what takes another transport.
 */
/* links: kvm-dcm/transport/hostile.c kvm-dcm/transport/shm.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kvm-dcm/transport/hostile.h"
#include "../../kvm-dcm/transport/shm.h"

#define PAGE 4096u
#define NR 64u
#define SLAB (NR * 65536u)

static struct dcm_slab_ref slab;
static u8 src[NR][65536];

static struct dcm_endpoint *open_ep(struct dcm_hostile *dials, u64 seed)
{
	struct dcm_hostile_args args = { .dials = dials, .seed = seed };
	struct dcm_endpoint *ep;
	int err;

	args.inner = dcm_transport_shm.open(NULL, &err);
	assert_non_null(args.inner);
	ep = dcm_transport_hostile.open(&args, &err);
	assert_non_null(ep);
	assert_true(ep->ops->caps & DCM_TR_DIRECT);
	assert_false(ep->ops->caps & (DCM_TR_ORDERED | DCM_TR_INLINE));
	return ep;
}

struct result {
	unsigned int done;
	unsigned int failed;
	unsigned int again;
	unsigned int overtaken;
	bool dead;
};

/* Write, then read, every block of the slab once. */
static struct result run(struct dcm_hostile *dials, u64 seed, u8 fill)
{
	struct dcm_endpoint *ep = open_ep(dials, seed);
	struct dcm_io io[NR], *done;
	struct result r = { 0 };
	unsigned int pass, i, idle;
	short ev;

	for (pass = 0; pass < 2; pass++) {
		unsigned int seen = 0, posted = 0;

		for (i = 0; i < NR; i++) {
			int ret, tries = 0;

			memset(src[i], fill + (int)i, 65536);
			io[i] = (struct dcm_io){
				.slab = &slab,
				.offset = i * 65536u,
				.bytes = 65536,
				.op = pass ? DCM_IO_READ : DCM_IO_WRITE,
				.data = src[i],
				.status = 1,
			};
			while ((ret = ep->ops->post(ep, &io[i])) == -EAGAIN &&
			       tries++ < 1000)
				r.again++;
			if (ret)
				break;
			posted++;
		}
		ep->ops->flush(ep);
		for (idle = 0; seen < posted && idle < 200;) {
			struct dcm_io *next;
			int n = ep->ops->poll(ep, &done, 5);
			struct pollfd p;

			for (; done; done = next, seen++) {
				u64 seq = done->offset / 65536;

				next = done->next;
				assert_int_not_equal(done->status, 1);
				r.done++;
				r.overtaken += seq != seen;
				if (done->status) {
					r.failed++;
				} else if (pass) {
					u8 *q = done->data;
					u32 k;

					for (k = 1; k < 65536; k++)
						assert_int_equal(q[k], q[0]);
				}
			}
			if (!n) {
				p.fd = ep->ops->wait_fd(ep, &ev);
				p.events = ev;
				assert_true(p.fd >= 0);
				poll(&p, 1, 100);
				idle++;
			} else {
				idle = 0;
			}
		}
	}
	r.dead = ep->ops->dead(ep);
	ep->ops->close(ep);
	return r;
}

static void test_tame(void **state)
{
	struct dcm_hostile d = { 0 };
	struct result r = run(&d, 5, 3);
	unsigned int i;

	(void)state;
	assert_int_equal(r.done, 2 * NR);
	assert_int_equal(r.failed + r.again + r.overtaken, 0);
	for (i = 0; i < NR; i++)
		assert_int_equal(((u8 *)slab.map)[i * 65536u], 3 + i);
}

static void test_each(void **state)
{
	enum dcm_hostile_kind k;

	(void)state;
	for (k = 0; k < DCM_HOSTILE_LATE; k++) {
		struct dcm_hostile d = { .delay_ns = 300000 };
		struct result r;

		d.ppm[k] = k == DCM_HOSTILE_DIE ? 50000 : 400000;
		r = run(&d, 42 + k, 7);
		assert_true(READ_ONCE(d.count[k]) > 0);
		switch (k) {
		case DCM_HOSTILE_AGAIN:
			assert_true(r.again > 0);
			/* fall through */
		case DCM_HOSTILE_SPLIT:
			assert_int_equal(r.done, 2 * NR);
			assert_int_equal(r.failed + r.overtaken, 0);
			break;
		case DCM_HOSTILE_DELAY:
		case DCM_HOSTILE_REORDER:
			assert_int_equal(r.done, 2 * NR);
			assert_int_equal(r.failed, 0);
			/* whether a delay changes the order is a matter of luck */
			if (k == DCM_HOSTILE_REORDER)
				assert_true(r.overtaken > 0);
			break;
		case DCM_HOSTILE_SILENCE:
			assert_int_equal(r.failed, 0);
			assert_int_equal(r.done + (u64)READ_ONCE(d.count[k]),
					 2 * NR);
			break;
		case DCM_HOSTILE_DIE:
			assert_true(r.dead);
			assert_true(r.failed > 0);
			break;
		default:
			assert_int_equal(r.done, 2 * NR);
			assert_int_equal(r.failed, READ_ONCE(d.count[k]));
		}
		assert_true(k == DCM_HOSTILE_DIE || !r.dead);
		assert_string_not_equal(dcm_hostile_kind_name(k), "?");
	}
}

static void test_same_seed(void **state)
{
	struct dcm_hostile a = { .ppm = { 100000, 300000, 0, 0, 50000, 50000,
					  50000, 0, 0 } };
	struct dcm_hostile b = a;
	unsigned int k;

	(void)state;
	run(&a, 99, 1);
	run(&b, 99, 1);
	for (k = 0; k < DCM_HOSTILE_NR; k++)
		assert_int_equal(READ_ONCE(a.count[k]), READ_ONCE(b.count[k]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tame),
		cmocka_unit_test(test_each),
		cmocka_unit_test(test_same_seed),
	};

	slab.id = 1;
	slab.bytes = SLAB;
	slab.fd = memfd_create("slab", 0);
	if (slab.fd < 0 || ftruncate(slab.fd, SLAB))
		return 1;
	slab.map = mmap(NULL, SLAB, PROT_READ, MAP_SHARED, slab.fd, 0);
	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
