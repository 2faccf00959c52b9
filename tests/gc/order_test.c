// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * order_test.c - messages that come in no order a host would send them in
 *
 * One worker process and one slab. Each test says something twice, too early, or
 * too late, then makes the worker use the result. The worker may refuse
 * and go on, or end with a status of its own; a signal, or the status of a
 * sanitizer, is a fault. GC_WORKER is the program.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../donor-daemon/gc/child.h"
#include "../../kvm-dcm/proto/gc_message.h"
#include "../../donor-daemon/gc/gc.h"

#define REGION	(64ull << 10)
#define REGIONS	4u
#define ADDRESS (1ull << 32)
#define NODE	16u
#define BUFFER	(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX)
#define GONE	U32_MAX
/* main.c's exit status when the number in a GC_SLAB is in use already */
#define WORKER_SLAB_TWICE 10

/* One worker, and the slab that is passed to the worker. */
struct lab {
	struct dcm_gc_child child;
	int slab;
	u8 *memory;
	u64 tag;
	u64 got[BUFFER / 8];
};

static const char *worker_path;

static void lab_send(struct lab *l, struct dcm_gc_message msg,
		     const void *payload, int fd)
{
	msg.tag = htole64(l->tag);
	/* its end shows when an answer is waited for */
	while (dcm_gc_child_send(&l->child, &msg, payload, fd) == -EAGAIN)
		usleep(100);
}

/* A message and its answer, %NULL when the worker has ended. */
static const struct dcm_gc_message *
lab_call(struct lab *l, struct dcm_gc_message msg, const void *payload)
{
	const struct dcm_gc_message *got = (void *)l->got;
	struct pollfd p = { .fd = l->child.fd, .events = POLLIN };

	l->tag++;
	lab_send(l, msg, payload, -1);
	for (;;) {
		ssize_t n;

		assert_int_equal(poll(&p, 1, 60000), 1);
		n = dcm_gc_child_receive(&l->child, l->got, BUFFER);
		assert_true(n >= 0);
		if (!n)
			return NULL;
		if (le64toh(got->tag) == l->tag &&
		    le32toh(got->kind) != DCM_GC_FORWARD)
			return got;
	}
}

static u32 lab_status(struct lab *l, struct dcm_gc_message msg,
		      const void *payload)
{
	const struct dcm_gc_message *got = lab_call(l, msg, payload);
	const struct virtio_gc_done *done = (const void *)(got + 1);

	if (!got)
		return GONE;
	assert_int_equal(le32toh(got->kind), DCM_GC_DONE);
	return le32toh(done->status);
}

static u32 lab_request(struct lab *l, struct virtio_gc_req req,
		       const void *body, size_t bytes)
{
	static u8 buf[DCM_GC_PAYLOAD_MAX];
	const struct dcm_gc_message msg = {
		.kind = htole32(DCM_GC_REQUEST),
		.bytes = htole32((u32)(sizeof(req) + bytes)),
	};

	assert_true(sizeof(req) + bytes <= sizeof(buf));
	memcpy(buf, &req, sizeof(req));
	if (bytes)
		memcpy(buf + sizeof(req), body, bytes);
	return lab_status(l, msg, buf);
}

static void lab_slab(struct lab *l, u32 number, int fd, u64 bytes)
{
	const struct dcm_gc_message msg = {
		.kind = htole32(DCM_GC_SLAB),
		.n = htole32(number),
		.value = htole64(bytes),
	};

	lab_send(l, msg, NULL, fd);
}

static u32 lab_place(struct lab *l, u32 region, u32 donor, u32 slab, u64 at)
{
	const struct dcm_gc_place le = {
		.region = htole32(region),
		.donor = htole32(donor),
		.slab = htole64(slab),
		.offset = htole64(at),
	};
	const struct dcm_gc_message msg = {
		.kind = htole32(DCM_GC_PLACE),
		.n = htole32(1),
		.bytes = htole32(sizeof(le)),
	};

	return lab_status(l, msg, &le);
}

static u32 lab_create(struct lab *l)
{
	const struct virtio_gc_space space = {
		.bytes = htole64(REGIONS * REGION),
		.region_bytes = htole64(REGION),
		.address = htole64(ADDRESS),
		.ref_bytes = 8,
		.type_bytes = 4,
		.type_mask = htole32(0xffff),
	};

	return lab_request(l,
			   (struct virtio_gc_req){
				   .command = htole16(VIRTIO_GC_SPACE_CREATE) },
		&space, sizeof(space));
}

/* Type 1: sixteen bytes, a reference at 8. Type 2: a length at 4, references. */
static u32 lab_types(struct lab *l)
{
	struct {
		struct virtio_gc_types head;
		struct virtio_gc_type type[2];
		struct virtio_gc_run run;
	} body = {
		.head.runs = htole32(1),
		.type[0] = { .id = htole32(1),
			     .kind = VIRTIO_GC_FIXED,
			     .bytes = htole32(NODE),
			     .runs = htole16(1) },
		.type[1] = { .id = htole32(2),
			     .kind = VIRTIO_GC_REFS,
			     .length_bytes = 4,
			     .length_offset = htole32(4),
			     .first = htole32(8) },
		.run = { htole32(8), htole32(1) },
	};

	return lab_request(l,
			   (struct virtio_gc_req){
				   .command = htole16(VIRTIO_GC_TYPES_ADD),
					.count = htole32(2) },
		&body, sizeof(body));
}

/* Regions from @first on, @n of them, each with objects up to @top. */
static u32 lab_regions(struct lab *l, u16 command, u32 epoch, u32 first, u32 n,
		       u64 top)
{
	struct virtio_gc_region le[REGIONS] = { 0 };

	for (u32 i = 0; i < n; i++) {
		le[i].region = htole32(first + i);
		le[i].top = htole64((first + i) * REGION + top);
	}
	return lab_request(l,
			   (struct virtio_gc_req){ .command = htole16(command),
						   .epoch = htole32(epoch),
						   .count = htole32(n) },
			   le, n * sizeof(*le));
}

static u32 lab_root(struct lab *l, u32 epoch, u64 offset)
{
	const __le64 le = htole64(ADDRESS + offset);

	return lab_request(l,
			   (struct virtio_gc_req){
				   .command = htole16(VIRTIO_GC_TRACE_ROOTS),
					.epoch = htole32(epoch),
					.count = htole32(1) },
		&le, sizeof(le));
}

/* Wait until the worker is quiet, then FINISH. */
static u32 lab_finish(struct lab *l, u32 epoch)
{
	for (u32 quiet = 0; quiet < 2;) {
		const struct dcm_gc_message *got =
			lab_call(l,
				 (struct dcm_gc_message){
					 .kind = htole32(DCM_GC_POLL),
					 .epoch = htole32(epoch) },
				 NULL);
		const struct dcm_gc_flags_le *f = (const void *)(got + 1);

		if (!got)
			return GONE;
		if (f->status)
			return le32toh(f->status);
		quiet = f->tracing || f->roots || f->ghosts || f->changed ?
				0 :
				quiet + 1;
	}
	return lab_status(l,
			  (struct dcm_gc_message){
				  .kind = htole32(DCM_GC_FINISH),
						   .epoch = htole32(epoch) },
			  NULL);
}

static void node_write(struct lab *l, u64 at, u64 ref)
{
	const u64 node[2] = { htole64(1), htole64(ref) };

	memcpy(l->memory + at, node, sizeof(node));
}

/* A chain of nodes through all regions, from the first byte on. */
static void heap_fill(struct lab *l)
{
	for (u64 at = 0; at < REGIONS * REGION; at += NODE)
		node_write(l, at,
			   at + NODE < REGIONS * REGION ? ADDRESS + at + NODE :
							  0);
}

static int memory_new(u64 bytes)
{
	int fd = memfd_create("slab", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void lab_start(struct lab *l)
{
	const u64 bytes = REGIONS * REGION;

	memset(l, 0, sizeof(*l));
	l->slab = memory_new(bytes);
	l->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 l->slab, 0);
	assert_true(l->memory != MAP_FAILED);
	heap_fill(l);
	assert_int_equal(
		dcm_gc_child_start(&l->child,
				   &(struct dcm_gc_child_how){
					   .path = worker_path,
					   .threads = 1,
					   .memory = dcm_gc_child_memory(bytes,
									 1),
					   .slabs = 2 * bytes,
					   .group = -1 }),
		0);
	lab_slab(l, 0, l->slab, bytes);
	assert_int_equal(lab_create(l), VIRTIO_GC_OK);
	assert_int_equal(lab_types(l), VIRTIO_GC_OK);
	for (u32 i = 0; i < REGIONS; i++)
		assert_int_equal(lab_place(l, i, 0, 0, i * REGION),
				 VIRTIO_GC_OK);
}

/* The worker goes on and answers, or has ended with @end, which is not 0. */
static void lab_end(struct lab *l, int end)
{
	u32 status = lab_status(l,
				(struct dcm_gc_message){
					.kind = htole32(DCM_GC_FINISH),
					    .epoch = htole32(99) },
		NULL);
	int how = 0;

	if (status == GONE) {
		assert_int_equal(waitpid(l->child.pid, &how, 0), l->child.pid);
		close(l->child.fd);
		l->child.pid = 0;
		if (WIFSIGNALED(how))
			fail_msg("the worker died of signal %d", WTERMSIG(how));
		assert_int_equal(WEXITSTATUS(how), end);
	} else {
		assert_int_equal(end, 0);
	}
	dcm_gc_child_end(&l->child);
	munmap(l->memory, REGIONS * REGION);
	close(l->slab);
}

/* A slab's number is used again: the slab with regions in it must stay mapped. */
static void test_slab_number_used_twice(void **state)
{
	struct lab l;
	int other = memory_new(REGION);

	(void)state;
	lab_start(&l);
	lab_slab(&l, 0, other, REGION);
	if (lab_regions(&l, VIRTIO_GC_TRACE_START, 1, 0, REGIONS, REGION) ==
	    VIRTIO_GC_OK) {
		lab_root(&l, 1, 0);
		lab_finish(&l, 1);
	}
	lab_end(&l, WORKER_SLAB_TWICE);
	close(other);
}

/* MOVED of a region without a location: no donor knows references to the region. */
static void test_moved_that_is_nowhere(void **state)
{
	struct virtio_gc_region le = { .region = htole32(REGIONS - 1) };
	const struct dcm_gc_message moved = {
		.kind = htole32(DCM_GC_MOVED),
		.n = htole32(1),
		.bytes = htole32(sizeof(le)),
	};
	struct lab l;

	(void)state;
	lab_start(&l);
	assert_int_equal(lab_place(&l, REGIONS - 1, VIRTIO_GC_NO_DONOR, 0, 0),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_TRACE_START, 1, 0,
				     REGIONS - 1, REGION),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_root(&l, 1, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_finish(&l, 1), VIRTIO_GC_OK);
	assert_int_equal(lab_status(&l, moved, &le), VIRTIO_GC_INVALID);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_UPDATE, 0, 0, REGIONS - 1,
				     REGION),
			 VIRTIO_GC_OK);
	lab_end(&l, 0);
}

/* A region that another donor moved, and that has no location afterwards. */
static void test_moved_and_then_nowhere(void **state)
{
	struct virtio_gc_region le = { .region = htole32(REGIONS - 1) };
	const struct dcm_gc_message moved = {
		.kind = htole32(DCM_GC_MOVED),
		.n = htole32(1),
		.bytes = htole32(sizeof(le)),
	};
	struct lab l;

	(void)state;
	lab_start(&l);
	assert_int_equal(lab_place(&l, REGIONS - 1, 1, 0, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_TRACE_START, 1, 0,
				     REGIONS - 1, REGION),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_root(&l, 1, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_finish(&l, 1), VIRTIO_GC_OK);
	assert_int_equal(lab_status(&l, moved, &le), VIRTIO_GC_OK);
	assert_int_equal(lab_place(&l, REGIONS - 1, VIRTIO_GC_NO_DONOR, 0, 0),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_UPDATE, 0, 0, REGIONS - 1,
				     REGION),
			 VIRTIO_GC_OK);
	lab_end(&l, 0);
}

/*
 * A trace that got one reference into another donor's region, which then is
 * this donor's: objects that an older trace marked there are not below the top.
 */
static void test_placed_after_the_trace(void **state)
{
	const u32 array[2] = { htole32(2), htole32(1u << 28) };
	struct lab l;

	(void)state;
	lab_start(&l);
	node_write(&l, (REGIONS - 1) * REGION,
		   ADDRESS + (REGIONS - 1) * REGION + 2 * NODE);
	node_write(&l, (REGIONS - 1) * REGION + 2 * NODE, 0);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_TRACE_START, 1, 0, REGIONS,
				     REGION),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_root(&l, 1, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_finish(&l, 1), VIRTIO_GC_OK);
	assert_int_equal(lab_place(&l, REGIONS - 1, 1, 0, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_TRACE_START, 2, 0, REGIONS,
				     NODE),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_finish(&l, 2), VIRTIO_GC_OK);
	assert_int_equal(lab_place(&l, REGIONS - 1, 0, 0,
				   (REGIONS - 1) * REGION),
			 VIRTIO_GC_OK);
	/* marked by the first trace: an array that leaves the slab far behind */
	memset(l.memory + (REGIONS - 1) * REGION, 0, REGION);
	node_write(&l, (REGIONS - 1) * REGION, 0);
	memcpy(l.memory + (REGIONS - 1) * REGION + 2 * NODE, array,
	       sizeof(array));
	lab_regions(&l, VIRTIO_GC_UPDATE, 0, REGIONS - 1, 1, NODE);
	lab_end(&l, 0);
}

/* A trace that has failed takes no more roots. */
static void test_roots_after_a_trace_failed(void **state)
{
	struct lab l;

	(void)state;
	lab_start(&l);
	node_write(&l, 0, 4);
	assert_int_equal(lab_regions(&l, VIRTIO_GC_TRACE_START, 1, 0, REGIONS,
				     REGION),
			 VIRTIO_GC_OK);
	assert_int_equal(lab_root(&l, 1, 0), VIRTIO_GC_OK);
	assert_int_equal(lab_finish(&l, 1), VIRTIO_GC_BAD_REFERENCE);
	/* FINISH ends its threads */
	assert_int_equal(lab_status(&l,
				    (struct dcm_gc_message){
					    .kind = htole32(DCM_GC_FINISH),
						    .epoch = htole32(1) },
			   NULL),
		VIRTIO_GC_BAD_REFERENCE);
	for (u32 i = 0; i < REGIONS; i++)
		assert_int_equal(lab_place(&l, i, 1, 0, 0), VIRTIO_GC_OK);
	for (u32 i = 0; i < REGIONS; i++)
		assert_int_equal(lab_place(&l, i, 0, 0,
					   (REGIONS - 1 - i) * REGION),
				 VIRTIO_GC_OK);
	for (u32 i = 0; i < 300; i++)
		assert_int_equal(lab_root(&l, 1, i * NODE), VIRTIO_GC_NO_TRACE);
	lab_end(&l, 0);
}

/* As many types as one request holds, with the installed worker program. */
static void test_types_by_the_thousand(void **state)
{
	enum { TYPES = 2000 };
	struct {
		struct virtio_gc_types head;
		struct virtio_gc_type type[TYPES];
	} body = { 0 };
	struct lab l;

	(void)state;
	worker_path = getenv("GC_WORKER_PLAIN");
	lab_start(&l);
	worker_path = getenv("GC_WORKER");
	for (u32 i = 0; i < TYPES; i++)
		body.type[i] = (struct virtio_gc_type){
			.id = htole32(60000 - 7 * i),
			.kind = VIRTIO_GC_FIXED,
			.bytes = htole32(NODE),
		};
	assert_int_equal(lab_request(&l,
			    (struct virtio_gc_req){
					     .command = htole16(
						     VIRTIO_GC_TYPES_ADD),
				    .count = htole32(TYPES) },
			    &body, sizeof(body)),
		VIRTIO_GC_OK);
	/* the same id twice in one request */
	body.type[0].id = htole32(7);
	body.type[TYPES - 1].id = htole32(7);
	for (u32 i = 1; i < TYPES - 1; i++)
		body.type[i].id = htole32(1000 + i);
	assert_int_equal(lab_request(&l,
			    (struct virtio_gc_req){
					     .command = htole16(
						     VIRTIO_GC_TYPES_ADD),
				    .count = htole32(TYPES) },
			    &body, sizeof(body)),
		VIRTIO_GC_INVALID);
	lab_end(&l, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slab_number_used_twice),
		cmocka_unit_test(test_moved_that_is_nowhere),
		cmocka_unit_test(test_moved_and_then_nowhere),
		cmocka_unit_test(test_placed_after_the_trace),
		cmocka_unit_test(test_roots_after_a_trace_failed),
		cmocka_unit_test(test_types_by_the_thousand),
	};

	if (!getenv("GC_WORKER") || !getenv("GC_WORKER_PLAIN")) {
		fprintf(stderr,
			"order_test: GC_WORKER and GC_WORKER_PLAIN are programs; `make check` sets them\n");
		return 2;
	}
	worker_path = getenv("GC_WORKER");
	if (getenv("GC_TEST"))
		cmocka_set_test_filter(getenv("GC_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
