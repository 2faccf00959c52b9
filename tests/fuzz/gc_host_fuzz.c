// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/proto/gc_request.c */
/*
 * gc_host_fuzz.c - libFuzzer on the requests of a virtio-gc device
 *
 * An input is requests one after the other: two bytes of length, two of room
 * for the answer, the bytes. A guest's model follows the answers: spaces that
 * were created must be right and apart, one that is destroyed is emptied, and
 * nothing but it; every request is answered, once, in turn.
 */
#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../kvm-dcm/include/libdcm_gc.h"
#include "../unit/gc_no_donors.h"
#include "../framework/expect.h"

#define EXTENT	(2ull << 20)
#define WINDOW	(64 * EXTENT)
#define BASE	((char *)(1ull << 40))	/* never touched */
#define SPACES	1024u
#define MANY	64u	/* on their way */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct dcm_pager {
	bool resetting;
	uint64_t at;		/* of the last discard */
	uint64_t bytes;
};

struct request {
	struct virtio_gc_req r;
	struct virtio_gc_space space;
	size_t bytes;
	size_t room;
	uint64_t number;
};

static struct dcm_pager pager;
static struct dcm_gc_host *gc;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint64_t submitted, answers;

/* the model: what is created, by window offset and size */
static struct {
	uint64_t at;
	uint64_t bytes;
} model[SPACES];

uint64_t dcm_pager_extent(struct dcm_pager *p, const void *addr)
{
	(void)p;
	return ((const char *)addr - BASE) % (long)EXTENT ? 0 : EXTENT;
}

uint32_t dcm_pager_donors(struct dcm_pager *p)
{
	(void)p;
	return 2;
}

int dcm_pager_discard(struct dcm_pager *p, void *addr, size_t bytes)
{
	p->at = (uint64_t)((char *)addr - BASE);
	p->bytes = bytes;
	EXPECT(bytes && p->at <= WINDOW && bytes <= WINDOW - p->at);
	return 0;
}

static void created(const struct request *q)
{
	uint64_t at = le64toh(q->space.window), n = le64toh(q->space.bytes);
	uint64_t region = le64toh(q->space.region_bytes);
	uint32_t id = le32toh(q->r.space), i;

	EXPECT(q->bytes == sizeof(q->r) + sizeof(q->space));
	EXPECT(id < SPACES && !model[id].bytes);
	EXPECT(region && !(region & (region - 1)) && region <= EXTENT);
	EXPECT(n && at < WINDOW && n <= WINDOW - at && !(at % region) &&
	     !(n % region));
	EXPECT(q->space.type_mask &&
	     (q->space.ref_bytes == 4 || q->space.ref_bytes == 8));
	for (i = 0; i < SPACES; i++)
		EXPECT(!model[i].bytes || at + n <= model[i].at ||
		     model[i].at + model[i].bytes <= at);
	model[id].at = at;
	model[id].bytes = n;
	EXPECT(!pager.bytes);
}

static void destroyed(const struct request *q)
{
	uint32_t id = le32toh(q->r.space);

	EXPECT(q->bytes == sizeof(q->r) && id < SPACES && model[id].bytes);
	EXPECT(pager.at == model[id].at && pager.bytes == model[id].bytes);
	model[id].bytes = 0;
}

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct request *q = token;
	struct virtio_gc_done d = { 0 };

	(void)priv;
	EXPECT(bytes == (q->room < sizeof(d) ? 0 : sizeof(d)));
	if (bytes)
		memcpy(&d, answer, bytes);
	EXPECT(le32toh(d.status) < VIRTIO_GC_STATUSES && !d.count &&
	     !d.reserved && bytes <= q->room);
	if (bytes && le32toh(d.status) == VIRTIO_GC_OK) {
		EXPECT(q->bytes >= sizeof(q->r) && !q->r.reserved);
		switch (le16toh(q->r.command)) {
		case VIRTIO_GC_SPACE_CREATE:
			created(q);
			break;
		case VIRTIO_GC_SPACE_DESTROY:
			destroyed(q);
			break;
		case VIRTIO_GC_CANCEL:
			EXPECT(le32toh(q->r.space) < SPACES &&
			     model[le32toh(q->r.space)].bytes);
			break;
		default:
			EXPECT(0);
		}
	} else {
		/* Refused, it has done nothing. */
		EXPECT(!pager.bytes);
	}
	pager.bytes = 0;
	pthread_mutex_lock(&lock);
	EXPECT(q->number == answers++);
	pthread_cond_signal(&moved);
	pthread_mutex_unlock(&lock);
	free(q);
}

static void wait_below(uint64_t many)
{
	pthread_mutex_lock(&lock);
	while (submitted - answers > many)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

static void submit(const uint8_t *p, size_t bytes, size_t room)
{
	struct request *q = calloc(1, sizeof(*q));
	uint8_t *copy = malloc(bytes ? bytes : 1);
	size_t n;

	EXPECT(q && copy);
	q->bytes = bytes;
	q->room = room;
	q->number = submitted++;
	n = bytes < sizeof(q->r) ? bytes : sizeof(q->r);
	memcpy(&q->r, p, n);
	n = bytes - n < sizeof(q->space) ? bytes - n : sizeof(q->space);
	memcpy(&q->space, p + bytes - n, n);
	/* It may not look at it later. */
	memcpy(copy, p, bytes);
	dcm_gc_host_submit(gc, copy, bytes, room, q);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	const uint8_t *end = data + size;
	char err[256];

	if (!gc) {
		gc = dcm_gc_host_open(&pager, BASE, WINDOW, &ops, NULL, err,
				      sizeof(err));
		EXPECT(gc != NULL);
		dcm_gc_host_start(gc, ~0ull);
	}
	while (end - data >= 4) {
		size_t bytes = data[0] | (size_t)data[1] << 8;
		size_t room = data[2] | (size_t)(data[3] & 0x7f) << 8;
		bool wait = data[3] & 0x80;

		data += 4;
		if (bytes > (size_t)(end - data))
			bytes = (size_t)(end - data);
		submit(data, bytes, room);
		data += bytes;
		wait_below(wait ? 0 : MANY);
	}
	wait_below(0);
	dcm_gc_host_reset(gc);
	/* The whole window, and by then all is forgotten. */
	EXPECT(pager.at == 0 && pager.bytes == WINDOW);
	pager.bytes = 0;
	memset(model, 0, sizeof(model));
	dcm_gc_host_start(gc, ~0ull);
	return 0;
}
