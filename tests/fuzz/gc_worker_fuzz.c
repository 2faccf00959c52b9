// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/gc/worker/message.c donor-daemon/gc/worker/job.c kvm-dcm/proto/gc_request.c donor-daemon/gc/space.c donor-daemon/gc/types.c donor-daemon/gc/trace.c donor-daemon/gc/scan.c donor-daemon/gc/work.c donor-daemon/gc/ghost.c donor-daemon/gc/met.c donor-daemon/gc/cards.c donor-daemon/gc/move.c donor-daemon/gc/update.c donor-daemon/gc/compact.c kvm-dcm/proto/wire.c tests/fuzz/fibers.c tests/fuzz/gc_messages.c tests/fuzz/gc_slabs.c */
/* libs: -Wl,--wrap=mmap,--wrap=munmap,--wrap=pthread_create,--wrap=pthread_join,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock,--wrap=pthread_cond_wait,--wrap=pthread_cond_timedwait,--wrap=pthread_cond_signal,--wrap=pthread_cond_broadcast */
/*
 * gc_worker_fuzz.c - libFuzzer on what is said to a GC worker, in any order
 *
 * An input is a host: one message after the other, a byte that says which and
 * the bytes of its fields (gc_messages.c). There are three slabs (gc_slabs.c), as
 * many spaces as are made, and two other donors, whose workers are the input too.
 * Whatever is said: in the end all is given back.
 *
 * What ends the worker ends the input here. Its threads are fibers: between two
 * messages they run until they wait, or as far as the input says. No two of them
 * wait for each other.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../../donor-daemon/gc/worker/job.h"
#include "../../kvm-dcm/proto/wire.h"
#include "fibers.h"
#include "gc_messages.h"
#include "gc_slabs.h"

#define NEVER 127u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

u32 worker_donor;
u32 worker_threads = 1;

static jmp_buf ended;

/* ---- what main.c has ---- */

void worker_end(int status)
{
	EXPECT(status > 1 && fibers_first());
	longjmp(ended, 1);
}

static u32 said;

/* From any thread. The input says what other workers answer. */
void worker_send(const struct dcm_gc_message *msg, const void *payload)
{
	const u8 *p = payload;
	u32 sum = 0;

	EXPECT(le32toh(msg->bytes) <= DCM_GC_PAYLOAD_MAX);
	EXPECT(dcm_wire_gc_from(le32toh(msg->kind)) & DCM_SIDE_DONOR);
	/* every byte is one that was written */
	for (u32 i = 0; i < le32toh(msg->bytes); i++)
		sum += p[i];
	said += 1 + (sum & 0);
}

/* ---- steps ---- */

/* The host writes to a slab: an object, or anything, whoever reads it now. */
static void write_slab(struct in *in)
{
	const u32 which = byte(in) % SLABS;
	const u64 at = value(in, (u32)(slab_bytes[which] / 16)) * 16 %
		       slab_bytes[which];
	u32 head[2] = { htole32(byte(in) % 8), htole32((u32)value(in, 9)) };
	u64 ref = value(in, 8);

	ref = ref < 5 ? ADDRESS + ref * REGION + value(in, 64) * 16 : ref & 1;
	slab_write(which, at, head, sizeof(head));
	ref = htole64(ref);
	slab_write(which, at + 8, &ref, sizeof(ref));
}

static u32 pace; /* threads go so far after each message; 0: until they wait */

static void others_run(u32 places)
{
	if (places != NEVER)
		fibers_run(places);
}

/* Threads go on until they wait, or so far now and after each message. */
static void wait_a_little(struct in *in)
{
	const u32 space = (u32)value(in, SPACES);
	const u32 how = byte(in);

	if (how & 0x80) {
		pace = how >> 1 & 63;
		others_run(1 + pace);
	} else {
		if (space < DCM_GC_SPACES_MAX && worker_spaces[space].s)
			dcm_gc_trace_wait(worker_spaces[space].s, 1000000);
		others_run(0);
	}
	if (how & 1)
		write_slab(in);
}

static void step(struct in *in)
{
	const u32 what = byte(in) % (GC_MESSAGES + 1);

	if (what < GC_MESSAGES)
		gc_message(in, what);
	else
		wait_a_little(in);
	others_run(pace);
}

/* ---- a worker's life ---- */

static void start(void)
{
	slabs_start();
	EXPECT(!job_start());
}

/* Everything the worker has goes, as the process would. */
static void forget(void)
{
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		if (worker_spaces[i].s)
			job_stop(&worker_spaces[i], 0);
	fibers_run(0);
	EXPECT(!job_busy());
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++) {
		dcm_gc_space_free(worker_spaces[i].s);
		if (worker_spaces[i].s)
			free(worker_spaces[i].write_counts);
		worker_spaces[i].s = NULL;
	}
	for (u32 i = 0; i < DCM_GC_SLABS_MAX; i++) {
		struct worker_slab *s = &worker_slabs[i];

		if (s->memory && (void *)s->memory != MAP_FAILED)
			slab_unmap(s->memory, s->bytes);
		*s = (struct worker_slab){ 0 };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool started;
	struct in in = { data, data + size };

	if (size > 2048)
		return 0;
	if (!started)
		start();
	started = true;
	slabs_fill();
	if (!setjmp(ended)) {
		/* most inputs want these */
		const u32 how = byte(&in);

		pace = how >> 1;
		if (how & 1) {
			static const u8 begin[] = { 0, 0, 0, 0, 0,   1, 0, 3,
						    0, 0, 2, 0, 0, 0, 4, 0 };
			struct in first = { begin, begin + sizeof(begin) };

			while (first.at < first.end)
				step(&first);
		}
		while (in.at < in.end)
			step(&in);
	}
	gc_messages_end();
	forget();
	/* the one that does requests */
	EXPECT(fibers_there() == 1);
	return 0;
}
