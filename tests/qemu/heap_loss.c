// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap_loss.c - a donor dies while it works on a heap, and the runtime goes on
 * with what is left
 *
 * A donor or its worker is killed while a command is under way. Before any of the space
 * is touched again CLEAN says, region by region, what went with the donor; a page
 * that was direct as well has not. The runtime then gives up whole moves, as it can't
 * follow a reference into a region without a table, and references into these regions.
 */
#include <endian.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "heap.h"

#define TRY_US		10000u
#define TRIES		3000u

static u64 now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000 + (u64)ts.tv_nsec / 1000;
}

static void *kill_later(void *arg)
{
	const struct heap_loss *l = arg;

	usleep(l->delay_us);
	if (l->victim) {
		EXPECT(!kill(l->victim, SIGKILL));
	} else {
		printf("kill\n");
		fflush(stdout);
	}
	return NULL;
}

/* Until the pager knows of it, as it soon does, CLEAN finds nothing amiss. */
static void lost_find(struct heap *h)
{
	u32 status = VIRTIO_GC_TIMED_OUT, found = 0, donor = 0;

	for (u32 i = 0; i < TRIES && (status || !found); i++) {
		struct virtio_gc_region list[HEAP_REGIONS] = { 0 };
		u32 n = 0, r;
		u64 at;

		for (r = 0; r < h->regions; r++)
			if (!h->lost[r])
				list[n++].region = htole32(r);
		status = heap_ask(h, VIRTIO_GC_CLEAN, 0, n, NULL, 0, list,
				  sizeof(*list));
		EXPECT(!status || status == VIRTIO_GC_TIMED_OUT ||
			      status == VIRTIO_GC_DONOR_LOST,
		      "status %u", status);
		if (status != VIRTIO_GC_DONOR_LOST) {
			usleep(TRY_US);
			continue;
		}
		at = le64toh(h->answer.done.at);
		r = (u32)(at / HEAP_REGION);
		EXPECT(at < h->bytes && at % HEAP_REGION == 0 && !h->lost[r]);
		h->lost[r] = 1;
		/* nothing of another one's */
		if (!found++)
			donor = h->donor[r];
		EXPECT(h->donor[r] == donor, "region %u", r);
	}
	EXPECT(!status && found, "status %u, %u found", status, found);
}

void heap_loss_begin(struct heap *h, u16 command)
{
	struct heap_loss *l = &h->loss;

	if (l->command == command && !l->happened) {
		/* the first time there was more to be written */
		l->delay_us = (u32)(mut_rand(h->m) %
				    (l->took_us[command] * 3 / 4 + 1));
		EXPECT(!pthread_create(&l->killer, NULL, kill_later, l));
	}
	l->began_us = now_us();
}

void heap_loss_end(struct heap *h, u16 command)
{
	static u64 answer[HEAP_ROOM / 8];
	struct heap_loss *l = &h->loss;

	l->took_us[command] = (u32)(now_us() - l->began_us);
	if (l->command != command || l->happened)
		return;
	printf("killed %u us into command %u: status %u after %u us\n",
	       l->delay_us, command, le32toh(h->answer.done.status),
	       l->took_us[command]);
	memcpy(answer, &h->answer, sizeof(answer));
	pthread_join(l->killer, NULL);
	l->happened = true;
	if (!l->copies)
		lost_find(h);
	memcpy(&h->answer, answer, sizeof(answer));
	h->asked = command;
}

void heap_loss_moves(struct heap *h)
{
	for (u32 i = 0; i < h->nr_moves; i++) {
		u8 *from = &h->lost[le32toh(h->move[i].from)];
		u8 *to = &h->lost[le32toh(h->move[i].to)];
		u8 *table = &h->lost[le64toh(h->move[i].table) / HEAP_REGION];

		*from = *to = *table = *from || *to || *table;
	}
}

static bool is_lost(const struct heap *h, u64 at)
{
	return at != MUT_NULL && h->lost[at / HEAP_REGION];
}

/* Objects that are there, and none of them refers to one that is not. */
static void objects_left(struct heap *h)
{
	struct mut *m = h->m;
	u32 k = 0;

	for (u32 o = 0; o < m->nr_objects; o++) {
		struct mut_object obj = m->objects[o];

		m->at_unit[obj.at / 8] = 0;
		if (!is_lost(h, obj.at))
			m->objects[k++] = obj;
	}
	EXPECT(k);
	m->nr_objects = k;
	for (u32 o = 0; o < k; o++) {
		const struct mut_object *obj = &m->objects[o];

		m->at_unit[obj->at / 8] = o + 1;
		for (u64 s = 0; s < mut_slots(m, obj); s++)
			if (is_lost(h, mut_read(m, mut_slot(m, obj, s))))
				mut_write(m, mut_slot(m, obj, s), MUT_NULL);
	}
	/* the program has its hands on others */
	for (u32 i = 0; i < m->nr_roots; i++)
		if (is_lost(h, m->roots[i]))
			m->roots[i] = m->objects[mut_rand(m) % k].at;
}

u32 heap_loss_over(struct heap *h)
{
	u32 n = 0;

	EXPECT(h->loss.happened && !h->nr_moves);
	objects_left(h);
	for (u32 r = 0; r < h->regions; r++) {
		if (!h->lost[r])
			continue;
		heap_must(h,
			  heap_hint(h, VIRTIO_GC_HINT_DISCARD, r * HEAP_REGION,
				    HEAP_REGION),
			  VIRTIO_GC_OK);
		h->m->top[r] = 0;
		h->lost[r] = 0;
		n++;
	}
	EXPECT(!n || !h->loss.copies, "%u regions lost", n);
	h->loss = (struct heap_loss){ 0 };
	return n;
}
