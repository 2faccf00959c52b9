// SPDX-License-Identifier: GPL-2.0-or-later
/* keep_test.c - the state of a donor, whose writer is killed at any moment */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../donor-daemon/keep.h"

#define SESSIONS 8u
#define SLABS 24u
#define KILLS 100u

static const struct dcm_keep_shape shape = {
	.donor_id = 0x1234,
	.slab_bytes = 2u << 20,
	.nr_sessions = SESSIONS,
	.nr_slabs = SLABS,
};

/* Everything of a record follows from its id. */
static struct dcm_keep_session session_of(u64 id)
{
	struct dcm_keep_session s = { .id = id };

	memset(s.secret, (int)(id & 0xff), sizeof(s.secret));
	snprintf(s.tenant, sizeof(s.tenant), "t%llu", (unsigned long long)id);
	return s;
}

static struct dcm_keep_slab slab_of(u64 id)
{
	return (struct dcm_keep_slab){
		.id = id,
		.serial = id,
		.session = id * 3,
		.cookie = ~id,
		.transport = id & 1 ? DCM_WT_TCP : DCM_WT_SHM,
	};
}

static struct dcm_keep *keep_new(void)
{
	int error;
	struct dcm_keep *k = dcm_keep_new(&shape, &error);

	assert_non_null(k);
	assert_int_equal(error, 0);
	return k;
}

/* As the next process gets it. */
static struct dcm_keep *keep_next(struct dcm_keep *k)
{
	const char *why = NULL;
	struct dcm_keep *next = dcm_keep_adopt(dup(dcm_keep_fd(k)), &why);

	if (!next)
		fail_msg("%s", why);
	assert_memory_equal(dcm_keep_shape(next), &shape, sizeof(shape));
	return next;
}

static u32 sessions(const struct dcm_keep *k)
{
	struct dcm_keep_session s, want;
	u32 n = 0;
	u64 print;

	for (u32 i = 1; i <= SESSIONS; i++) {
		if (!dcm_keep_session_get(k, i, &s, &print))
			continue;
		want = session_of(s.id);
		assert_memory_equal(&s, &want, sizeof(s));
		assert_int_equal(print & 0xff, s.id & 0xff);
		n++;
	}
	return n;
}

static bool slab_there(const struct dcm_keep *k, u64 id)
{
	struct dcm_keep_slab s, want = slab_of(id);

	for (u32 i = 1; i <= SLABS; i++) {
		if (!dcm_keep_slab_get(k, i, &s) || s.id != id)
			continue;
		assert_memory_equal(&s, &want, sizeof(s));
		return true;
	}
	return false;
}

static u32 slabs(const struct dcm_keep *k)
{
	struct dcm_keep_slab s;
	u32 n = 0;

	for (u32 i = 1; i <= SLABS; i++)
		if (dcm_keep_slab_get(k, i, &s)) {
			assert_true(slab_there(k, s.id));
			n++;
		}
	return n;
}

static void test_outlives(void **state)
{
	struct dcm_keep *k = keep_new(), *next;
	struct dcm_keep_session s;
	struct dcm_keep_slab slab;
	u32 number[SESSIONS], i;

	(void)state;
	for (i = 0; i < SESSIONS; i++) {
		s = session_of(i + 1);
		number[i] = dcm_keep_session_add(k, &s, i + 1);
		assert_in_range(number[i], 1, SESSIONS);
	}
	s = session_of(99);
	assert_int_equal(dcm_keep_session_add(k, &s, 99), 0);
	dcm_keep_session_drop(k, number[3]);
	dcm_keep_session_print(k, number[4], 0x500 + 5);
	slab = slab_of(70);
	assert_int_not_equal(dcm_keep_slab_add(k, &slab), 0);
	slab = slab_of(7);
	i = dcm_keep_slab_add(k, &slab);
	assert_int_not_equal(i, 0);
	dcm_keep_slab_drop(k, i);
	next = keep_next(k);
	dcm_keep_free(k);
	assert_int_equal(sessions(next), SESSIONS - 1);
	assert_int_equal(slabs(next), 1);
	assert_true(slab_there(next, 70));
	assert_int_equal(dcm_keep_serial(next), 70);
	/* what is free there is used first */
	s = session_of(99);
	assert_int_equal(dcm_keep_session_add(next, &s, 99), number[3]);
	assert_int_equal(dcm_keep_session_add(next, &s, 99), 0);
	dcm_keep_free(next);
	dcm_keep_free(NULL);
}

/* Any bit of what is in use. */
static void test_damaged(void **state)
{
	struct dcm_keep *k = keep_new(), *next;
	struct dcm_keep_session s = session_of(5);
	struct dcm_keep_slab slab = slab_of(6);
	const char *why;
	size_t bytes, i;
	u32 caught = 0;
	u8 *p;

	(void)state;
	dcm_keep_session_add(k, &s, 5);
	dcm_keep_slab_add(k, &slab);
	bytes = (size_t)lseek(dcm_keep_fd(k), 0, SEEK_END);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		 dcm_keep_fd(k), 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	for (i = 0; i < bytes * 8; i++) {
		p[i / 8] ^= (u8)(1 << i % 8);
		next = dcm_keep_adopt(dup(dcm_keep_fd(k)), &why);
		caught += !next;
		dcm_keep_free(next);
		p[i / 8] ^= (u8)(1 << i % 8);
	}
	printf("%u of %zu changed bits were found\n", caught, i);
	/* the head, both records, and the marks of free ones */
	assert_true(caught >= (56 + 16 + 96 + 48 + 14 + 46) * 8 - 64);
	next = keep_next(k);
	dcm_keep_free(next);
	munmap(p, bytes);
	dcm_keep_free(k);
}

/* The writer's notes in shared memory: slabs that are recorded for sure; its next step. */
struct told {
	u8 slab[(1u << 16) + 1];
	u64 next;
};

static _Noreturn void writer(struct dcm_keep *k, struct told *t)
{
	u32 number[SLABS] = { 0 }, session[SESSIONS] = { 0 };
	u64 id[SLABS], at;

	for (;;) {
		struct dcm_keep_session s;
		struct dcm_keep_slab slab;

		at = t->next++ & 0xffff;
		if (number[at % SLABS]) {
			u64 old = id[at % SLABS];

			__atomic_store_n(&t->slab[old], 0, __ATOMIC_SEQ_CST);
			dcm_keep_slab_drop(k, number[at % SLABS]);
		}
		id[at % SLABS] = at + 1;
		slab = slab_of(id[at % SLABS]);
		number[at % SLABS] = dcm_keep_slab_add(k, &slab);
		__atomic_store_n(&t->slab[id[at % SLABS]], 1, __ATOMIC_SEQ_CST);
		if (session[at % SESSIONS])
			dcm_keep_session_drop(k, session[at % SESSIONS]);
		s = session_of(t->next);
		session[at % SESSIONS] =
			dcm_keep_session_add(k, &s, t->next & 0xff);
		dcm_keep_session_print(k, session[at % SESSIONS], t->next);
	}
}

static void test_killed(void **state)
{
	u64 steps = 0;
	u32 kills;

	(void)state;
	for (kills = 0; kills < KILLS; kills++) {
		struct dcm_keep *k = keep_new(), *next;
		struct told *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		u32 i, us = 0;
		pid_t pid;

		assert_ptr_not_equal(t, MAP_FAILED);
		assert_int_equal(getrandom(&us, sizeof(us), 0), sizeof(us));
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			writer(k, t);
		while (!READ_ONCE(t->next))
			sched_yield();
		usleep(us % 3000);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		next = keep_next(k);
		sessions(next);
		slabs(next);
		for (i = 0; i < sizeof(t->slab); i++)
			if (t->slab[i]) {
				assert_true(slab_there(next, i));
				assert_true(dcm_keep_serial(next) >= i);
			}
		steps += t->next;
		dcm_keep_free(next);
		dcm_keep_free(k);
		munmap(t, sizeof(*t));
	}
	printf("killed %u times in %llu steps\n", kills,
	       (unsigned long long)steps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outlives),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
