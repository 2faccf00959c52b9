// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap_check.c - a runtime whose heap donors collect, through libvgc
 *
 *	heap_check check DEVICE SEED HEAPS	everything, every bit compared
 *	heap_check loop DEVICE SEED		the same for ever; made to be killed
 *	heap_check kill DEVICE SEED FAILURES	while workers are killed: until so
 *						much has failed, and then worked
 *	heap_check lose DEVICE SEED DONOR	until a donor is gone for good
 *	heap_check outlive DEVICE SEED STEP PID	a donor is killed at a step (start, roots,
 *						...): PID, or 0: has somebody do it by
 *						saying "kill"; goes on with what is left
 *	heap_check survive DEVICE SEED STEP PID	the same where pages have copies: nothing is
 *						lost
 *	heap_check hint DEVICE SEED DIR		hints; a step for each file in DIR
 *	heap_check stall DEVICE SEED DIR	a donor stops, and goes on, in steps
 *	heap_check drain DEVICE SEED DIR	while slabs go from donor to donor, until
 *						there is a file DIR/enough
 *
 * Runs in a guest, linked statically, and with libdcm in one process; 0 and
 * "ok", or 1 and what was wrong. While it checks another thread reads all of
 * the space, so that pages come and go under the donors' hands.
 */
#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

#define ROUNDS_MAX	10000u
#define HINTED		(1ull << 20)
#define STALE_TRIES	20u

static const char *device;

struct toucher {
	pthread_t thread;
	struct heap *h;
	bool stop;
	u64 touched;
};

/* Reads all pages, in any order, while other threads write them, on purpose. */
__attribute__((no_sanitize_thread)) static void *touch(void *arg)
{
	struct toucher *t = arg;
	u64 seed = 88172645463325252ull, sum = 0;

	while (!__atomic_load_n(&t->stop, __ATOMIC_RELAXED)) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		sum += *(volatile u64 *)(t->h->space +
					 seed % (t->h->bytes / 4096) * 4096 +
					 seed / 7 % 512 * 8);
		__atomic_fetch_add(&t->touched, 1, __ATOMIC_RELEASE);
	}
	return (void *)(uintptr_t)(sum & 1);
}

static void touch_start(struct toucher *t, struct heap *h)
{
	*t = (struct toucher){ .h = h };
	h->touched = &t->touched;
	EXPECT(!pthread_create(&t->thread, NULL, touch, t));
}

static void touch_stop(struct toucher *t)
{
	__atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
	pthread_join(t->thread, NULL);
	t->h->touched = NULL;
}

/* It has room for one donor's tables only. */
static u32 compact(struct heap *h, u32 donor)
{
	u32 moves, status = heap_compact(h, donor, &moves);

	EXPECT(!status || status == VIRTIO_GC_NO_SPACE, "status %u", status);
	return moves;
}

/* A life of a heap: each way to collect it after the other. */
static void one_heap(u32 seed)
{
	u32 cleared, evacuated, compacted = 0;
	struct toucher t;
	struct heap h;

	heap_open(&h, device, seed);
	/* which is no matter for what is found */
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_DIRECT, 0, HINTED),
		  VIRTIO_GC_OK);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_COLD, HINTED, HINTED),
		  VIRTIO_GC_OK);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_FETCH, 0, h.bytes),
		  VIRTIO_GC_OK);
	/* what it touches while that is moved it waits for, no longer */
	touch_start(&t, &h);
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	heap_donors(&h);
	cleared = heap_arrays_clear(&h);
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	heap_trace_stale(&h);
	heap_must(&h, heap_trace_running(&h), VIRTIO_GC_OK);
	mut_opaque_clear(h.m);
	heap_drop(&h, 50);
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	heap_must(&h, heap_evacuate(&h, &evacuated), VIRTIO_GC_OK);
	EXPECT(evacuated);
	/* what has moved is traced and moved again */
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	for (u32 d = 0; d < vgc_info(h.v)->donors; d++) {
		compacted += compact(&h, d);
		heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	}
	/* of a few large ones those where tables have room may leave no gap */
	EXPECT(compacted || h.m->nr_objects < HEAP_REGIONS);
	touch_stop(&t);
	printf("heap %u: %u objects live, %u arrays cleared, %u regions evacuated, %u compacted, %llu touches\n",
	       seed, h.m->nr_objects, cleared, evacuated, compacted,
	       (unsigned long long)t.touched);
	fflush(stdout);
	heap_close(&h);
}

/* All of it on donors, of which some will fail; says so. */
static void heap_up(struct heap *h, u32 seed)
{
	heap_open(h, device, seed);
	mut_opaque_clear(h->m);
	heap_donors(h);
	/* all that the device allows: donors and workers share emulated processors */
	h->deadline_ms = vgc_info(h->v)->deadline_max_ms;
	printf("up\n");
	fflush(stdout);
}

/*
 * Until @want commands have failed, whatever they were doing, and after that a
 * whole round went well. The heap is looked at after each: heap_trace() and
 * heap_evacuate() end the program if a failure changed anything.
 */
static void killed(u32 seed, u32 want)
{
	u32 failed = 0, good = 0, moved = 0, i, n;
	struct heap h;

	heap_up(&h, seed);
	for (i = 0; i < ROUNDS_MAX && (failed < want || !good); i++) {
		u32 status = heap_trace(&h), donors = vgc_info(h.v)->donors;

		n = 0;
		if (!status)
			status = i % 3 ? heap_evacuate(&h, &n) :
					 heap_compact(&h, i / 3 % donors, &n);
		moved += n;
		/* its own collector always can */
		mut_trace(h.m, h.live, NULL);
		/* [VGC-D-13] */
		EXPECT(status == VIRTIO_GC_OK ||
			      status == VIRTIO_GC_WORKER_LOST ||
			      status == VIRTIO_GC_DONOR_LOST ||
			      status == VIRTIO_GC_TIMED_OUT ||
			      status == VIRTIO_GC_NO_TRACE ||
			      (status == VIRTIO_GC_NO_SPACE && i % 3 == 0),
		      "command %u: status %u of donor %d", h.asked, status,
		      (int)h.answer.done.donor);
		if (status == VIRTIO_GC_NO_SPACE)
			status = VIRTIO_GC_OK;
		failed += !!status;
		if (failed >= want && !status)
			good++;
	}
	EXPECT(good, "%u rounds, %u failed", i, failed);
	printf("%u rounds, %u failed, %u regions moved\n", i, failed, moved);
	heap_close(&h);
}

/*
 * Until the file is there, and a whole round went well after that. Each trace finds
 * the same bits, or ends with a status: a donor gave up the regions that it traced.
 */
static void drained(u32 seed, const char *dir)
{
	u32 rounds = 0, traced = 0, moved = 0, status = 1, n;
	bool enough = false;
	char path[256];
	struct heap h;

	snprintf(path, sizeof(path), "%s/enough", dir);
	heap_up(&h, seed);
	for (; !enough || status || !moved; rounds++) {
		EXPECT(rounds < ROUNDS_MAX);
		enough = !access(path, F_OK);
		status = rounds % 3 ? heap_trace(&h) : heap_trace_running(&h);
		EXPECT(!status || status == VIRTIO_GC_WORKER_LOST ||
			      status == VIRTIO_GC_TIMED_OUT ||
			      (status == VIRTIO_GC_STALE && rounds % 3),
		      "status %u", status);
		mut_opaque_clear(h.m);
		traced += !status;
		if (!status && rounds % 3) {
			status = heap_evacuate(&h, &n);
			EXPECT(!status || status == VIRTIO_GC_WORKER_LOST ||
				      status == VIRTIO_GC_TIMED_OUT,
			      "status %u", status);
			moved += n;
		}
		mut_trace(h.m, h.live, NULL);
	}
	printf("%u rounds, %u traced, %u regions moved\n", rounds, traced,
	       moved);
	heap_close(&h);
}

/*
 * The donor of this number goes for good. A status says so in time, and which part of
 * the heap was on it. Regions on other donors are as they were, and the space can be
 * given up. No thread may touch lost regions: it would wait for ever.
 */
static void lose(u32 seed, u32 donor)
{
	u32 status = 0, kept = 0;
	struct heap h;
	u64 at;

	heap_open(&h, device, seed);
	mut_opaque_clear(h.m);
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	heap_remember(&h);
	heap_donors(&h);
	h.deadline_ms = vgc_info(h.v)->deadline_max_ms;
	printf("up\n");
	fflush(stdout);
	for (u32 i = 0; i < ROUNDS_MAX && status != VIRTIO_GC_DONOR_LOST; i++) {
		usleep(10000);
		status = heap_trace_start(&h);
		EXPECT(status == VIRTIO_GC_OK ||
			      status == VIRTIO_GC_WORKER_LOST ||
			      status == VIRTIO_GC_TIMED_OUT ||
			      status == VIRTIO_GC_DONOR_LOST,
		      "status %u", status);
	}
	EXPECT(status == VIRTIO_GC_DONOR_LOST, "status %u in the end", status);
	at = le64toh(h.answer.done.at);
	printf("lost: donor %d, region %d\n", (int)h.answer.done.donor,
	       at == VIRTIO_GC_NONE ? -1 : (int)(at / HEAP_REGION));
	fflush(stdout);
	EXPECT(h.answer.done.donor == VIRTIO_GC_NO_DONOR ||
	      le32toh(h.answer.done.donor) == donor);
	EXPECT(at == VIRTIO_GC_NONE || h.donor[at / HEAP_REGION] == donor);
	for (u32 r = 0; r < h.regions; r++) {
		if (h.donor[r] == donor)
			continue;
		EXPECT(!memcmp(h.was + r * HEAP_REGION,
			      h.space + r * HEAP_REGION, HEAP_REGION));
		kept++;
	}
	EXPECT(kept && kept < h.regions, "%u regions", kept);
	heap_close(&h);
}

/* Every command, as long as each goes well and nobody dies of one; a status. */
static u32 round_any(struct heap *h, u32 *moves)
{
	u32 status = heap_trace(h), n;

	*moves = 0;
	if (!status && !h->loss.happened) {
		status = heap_evacuate(h, moves);
		EXPECT(status || *moves || h->loss.happened);
	}
	if (!status && !h->loss.happened)
		status = heap_trace(h);
	for (u32 d = 0; !h->loss.happened && d < vgc_info(h->v)->donors; d++) {
		if (!status) {
			status = heap_compact(h, d, &n);
			*moves += n;
		}
		if (status == VIRTIO_GC_NO_SPACE)
			status = VIRTIO_GC_OK;
		if (!status && !h->loss.happened)
			status = heap_trace(h);
	}
	return status;
}

/* Until the pager knows that a donor is gone; the heap is as it was. */
static void lost_wait(struct heap *h)
{
	u32 status = VIRTIO_GC_DONOR_LOST, i;

	for (i = 0; i < ROUNDS_MAX && status; i++) {
		status = heap_trace(h);
		EXPECT(!status || status == VIRTIO_GC_WORKER_LOST ||
			      status == VIRTIO_GC_DONOR_LOST ||
			      status == VIRTIO_GC_TIMED_OUT,
		      "status %u", status);
		usleep(10000);
	}
	EXPECT(!status);
}

/*
 * A donor dies of a command. Objects on other donors are as they were, or where the
 * tables say; the runtime finishes moves that were begun, forgets lost regions, and
 * goes on, with the donors that are left.
 */
static void outlive(u32 seed, const char *step, pid_t victim, bool copies)
{
	static const struct {
		const char *name;
		u16 command;
	} steps[] = {
		{ "start", VIRTIO_GC_TRACE_START },
		{ "roots", VIRTIO_GC_TRACE_ROOTS },
		{ "finish", VIRTIO_GC_TRACE_FINISH },
		{ "results", VIRTIO_GC_TRACE_RESULTS },
		{ "evacuate", VIRTIO_GC_EVACUATE },
		{ "update", VIRTIO_GC_UPDATE },
		{ "forward", VIRTIO_GC_FORWARD },
		{ "release", VIRTIO_GC_RELEASE },
		{ "compact", VIRTIO_GC_COMPACT },
	};
	u32 status, moves, lost, before;
	struct heap h;

	heap_up(&h, seed);
	heap_must(&h, round_any(&h, &moves), VIRTIO_GC_OK);
	before = h.m->nr_objects;
	for (u32 i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (!strcmp(step, steps[i].name))
			h.loss.command = steps[i].command;
	EXPECT(h.loss.command, "%s", step);
	h.loss.victim = victim;
	h.loss.copies = copies;
	status = round_any(&h, &moves);
	EXPECT(h.loss.happened, "status %u", status);
	EXPECT(!status || status == VIRTIO_GC_WORKER_LOST ||
		      status == VIRTIO_GC_DONOR_LOST ||
		      status == VIRTIO_GC_TIMED_OUT,
	      "status %u", status);
	lost = heap_loss_over(&h);
	printf("%s: status %u, %u moves, %u regions lost, %u of %u objects left\n",
	       step, status, moves, lost, h.m->nr_objects, before);
	if (copies)
		lost_wait(&h);
	/* as if nothing had been */
	h.deadline_ms = 0;
	heap_donors(&h);
	/* pages that were here get their copies when they leave, and are written then */
	for (u32 i = 0; i < STALE_TRIES; i++) {
		status = round_any(&h, &moves);
		if (status != VIRTIO_GC_STALE)
			break;
	}
	heap_must(&h, status, VIRTIO_GC_OK);
	EXPECT(moves);
	heap_close(&h);
}

/* ---- hints ---- */

static void read_range(const struct heap *h, u64 from, u64 to)
{
	for (u64 at = from; at < to; at += 4096)
		(void)*(volatile char *)(h->space + at);
}

/* Says where it is; goes on when there is a file of that name. */
static void step(const char *dir, const char *name)
{
	char path[256];

	printf("at %s\n", name);
	fflush(stdout);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	while (access(path, F_OK))
		usleep(20000);
}

/*
 * What is to be kept stays while all else is read, which the pager's counters
 * show; after NORMAL it goes as all else. Hints change nothing but by DISCARD.
 */
static void hints(u32 seed, const char *dir)
{
	struct heap h;

	heap_open(&h, device, seed);
	/* a page that is all zero is not fetched: of some heaps most are */
	for (u64 at = 0; at < h.bytes; at += 4096)
		h.space[at] |= 1;
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_DIRECT, 0, HINTED), 0);
	heap_remember(&h);
	for (u32 i = 0; i < 3; i++)
		read_range(&h, HINTED, h.bytes);
	step(dir, "kept");
	read_range(&h, 0, HINTED);
	step(dir, "read");
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_NORMAL, 0, HINTED), 0);
	for (u32 i = 0; i < 3; i++)
		read_range(&h, HINTED, h.bytes);
	step(dir, "normal");
	read_range(&h, 0, HINTED);
	step(dir, "again");
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_COLD, 0, HINTED), 0);
	step(dir, "cold");
	heap_same(&h);
	/* whatever of it comes in, and while it comes */
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_FETCH, 0, h.bytes), 0);
	heap_same(&h);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_FETCH, HINTED, HINTED), 0);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_DISCARD, 4096, HINTED), 0);
	for (u64 at = 0; at < h.bytes; at++) {
		bool gone = at >= 4096 && at < 4096 + HINTED;

		/* [VGC-D-46] */
		EXPECT(h.space[at] == (gone ? 0 : (char)h.was[at]));
	}
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_COLD, 1, 4096),
		  VIRTIO_GC_INVALID);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_COLD, 0, 0),
		  VIRTIO_GC_INVALID);
	heap_must(&h,
		  heap_hint(&h, VIRTIO_GC_HINT_DISCARD, h.bytes - 4096, 8192),
		  VIRTIO_GC_INVALID);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_DISCARD, 0, ~4095ull),
		  VIRTIO_GC_INVALID);
	heap_must(&h, heap_hint(&h, VIRTIO_GC_HINT_FETCH + 1, 0, 4096),
		  VIRTIO_GC_INVALID);
	heap_close(&h);
}

/*
 * A donor takes nothing for a while: START says so in time. Messages that were on their
 * way are done when it takes them, nothing has changed, and the heap can be traced.
 */
static void stalled(u32 seed, const char *dir)
{
	struct heap h;
	u32 status;

	heap_open(&h, device, seed);
	mut_opaque_clear(h.m);
	heap_remember(&h);
	h.deadline_ms = 500;
	step(dir, "stopped");
	status = heap_trace_start(&h);
	EXPECT(status == VIRTIO_GC_TIMED_OUT, "status %u", status);
	step(dir, "going");
	h.deadline_ms = 0;
	heap_same(&h);
	heap_must(&h, heap_trace(&h), VIRTIO_GC_OK);
	heap_close(&h);
}

static void checked(u32 seed, u32 heaps)
{
	for (u32 i = 0; i < heaps; i++)
		one_heap(seed + i);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 3 ? argv[1] : "";
	const char *what = argc > 4 ? argv[4] : "";
	u32 seed = 0, n = 1;

	if (argc > 3) {
		device = argv[2];
		seed = (u32)atoi(argv[3]);
		n = argc > 4 ? (u32)atoi(what) : n;
	}
	if (!strcmp(mode, "check")) {
		checked(seed, n);
	} else if (!strcmp(mode, "kill")) {
		killed(seed, n);
	} else if (!strcmp(mode, "lose")) {
		lose(seed, n);
	} else if ((!strcmp(mode, "outlive") || !strcmp(mode, "survive")) &&
		   argc > 5) {
		outlive(seed, what, atoi(argv[5]), *mode == 's');
	} else if (!strcmp(mode, "hint")) {
		hints(seed, what);
	} else if (!strcmp(mode, "stall")) {
		stalled(seed, what);
	} else if (!strcmp(mode, "drain")) {
		drained(seed, what);
	} else if (!strcmp(mode, "loop")) {
		for (;;)
			one_heap(seed++);
	} else {
		fprintf(stderr,
			"usage: heap_check check|loop|kill|lose|outlive|survive|hint|stall|drain DEVICE SEED [N|DIR|STEP PID]\n");
		return 2;
	}
	printf("ok\n");
	return 0;
}
