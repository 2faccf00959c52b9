// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * liar.c - a libvgc whose donors lie
 *
 * Stands between a JVM and the real libvgc ($REAL_LIBVGC), which it passes each
 * call on to, and makes one lie ($LIE) of what donors have answered. The JVM sees
 * what it would see of a donor that runs another program.
 *
 *   dropped   a mark is missing in each bitmap
 *   added     a mark is there for what is no object
 *   counted   the first of these, and the counts agree with it
 *   overlap   the second, and the counts agree with it
 *   bytes     regions have more live bytes than bytes
 *   short     bitmaps end early
 *   status    a status that does not exist
 *   opaque    an opaque object is met that is none
 *   weak      a weak object is met that is none
 *   types     an object of an unknown type is met
 *   endless   there is always one more type to take
 *   restless  donors are never quiet
 *   cards     all cards but the first are missing
 *   outside   a card lies outside of the heap
 *   nowhere   a reference goes into no region
 *   ended     the first copies of a move end later
 *   place     two objects were moved to one place
 *   before    a table counts an object that there is not
 *   unmoved   no lie: a move has no room
 *   unupdated no lie: the worker is lost before references are updated
 *   parts     no lie: in the first part of the heap there are no weak objects
 *   stale     no lie: memory of arrays has come to another donor
 *   moved     no lie: so has a region that is searched for cards
 *
 * Three are of one command ($AT, its number), of its 1st, 3rd, 7th, 15th call and
 * so on:
 *
 *   refused   no lie: it is not done, since a worker is lost
 *   unheard   it is done, and its answer does not come in time
 *   stopped   no lie: before it the test gets a byte ($ASKED), and answers ($GO)
 */
#include <fcntl.h>
#include <dlfcn.h>
#include <libvgc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <virtio_gc.h>

#define REGIONS 4096
#define REGION_BYTES (1u << 20)	/* of a heap of 256 MiB */

static void *real;
/* of the regions of the last results: their counts are changed */
static bool changed[REGIONS];
/* of the trace in which a region has moved */
static uint32_t moved_epoch;
/* where the heap is */
static char *heap;

static bool lie_is(const char *lie)
{
	return !strcmp(getenv("LIE"), lie);
}

static void *lookup(const char *name)
{
	if (!real)
		real = dlopen(getenv("REAL_LIBVGC"), RTLD_NOW);
	if (!real || !dlsym(real, name)) {
		fprintf(stderr, "liar: no %s\n", name);
		abort();
	}
	return dlsym(real, name);
}

struct vgc *vgc_open(const char *device, char *err, size_t len)
{
	struct vgc *(*f)(const char *, char *, size_t) = lookup("vgc_open");

	return f(device, err, len);
}

void vgc_close(struct vgc *v)
{
	void (*f)(struct vgc *) = lookup("vgc_close");

	f(v);
}

const struct vgc_info *vgc_info(const struct vgc *v)
{
	const struct vgc_info *(*f)(const struct vgc *) = lookup("vgc_info");

	return f(v);
}

uint64_t vgc_budget(const struct vgc *v)
{
	uint64_t (*f)(const struct vgc *) = lookup("vgc_budget");

	return f(v);
}

void *vgc_create_over(struct vgc *v, const struct virtio_gc_space *space)
{
	void *(*f)(struct vgc *, const struct virtio_gc_space *) =
		lookup("vgc_create_over");

	heap = f(v, space);
	return heap;
}

static void results_lie(struct virtio_gc_live *live, uint32_t count,
			uint32_t first)
{
	for (uint32_t i = 0; i < count && first + i < REGIONS; i++, live++) {
		changed[first + i] = live->objects > 8 && live->bytes > 256;
		if (!changed[first + i])
			continue;
		if (lie_is("counted")) {
			live->objects--;
			live->bytes -= 16;
		} else if (lie_is("overlap")) {
			live->objects++;
		} else if (lie_is("bytes")) {
			live->bytes += 1ull << 30;
		}
	}
}

/* Clear the last mark, or set the bit behind it, in a bitmap of @count words. */
static void bitmap_lie(uint64_t *words, size_t count)
{
	size_t i = count, bit;

	while (i && !words[i - 1])
		i--;
	if (!i)
		return;
	bit = i * 64 - 1 - (size_t)__builtin_clzll(words[i - 1]);
	if (lie_is("added") || lie_is("overlap"))
		bit++; /* the next word's first, if need be */
	if (bit < count * 64)
		words[bit / 64] ^= 1ull << bit % 64;
}

static void bitmaps_lie(struct vgc_call *c, struct virtio_gc_done *done)
{
	const struct virtio_gc_range *range = c->arg;
	uint64_t *words = (uint64_t *)(done + 1);

	if (lie_is("short")) {
		c->answer_bytes -= 64;
		return;
	}
	if (!lie_is("dropped") && !lie_is("added") && !lie_is("counted") &&
	    !lie_is("overlap"))
		return;
	for (uint32_t i = 0; i < range->regions; i++) {
		if (range->first + i < REGIONS && changed[range->first + i])
			bitmap_lie(words, range->bitmaps / 8);
		words += range->bitmaps / 8;
	}
}

static void met_lie(struct vgc_call *c, struct virtio_gc_done *done)
{
	const struct virtio_gc_met *met = c->arg;
	uint64_t *entries = (uint64_t *)(done + 1);

	if (met->what == VIRTIO_GC_MET_OPAQUE && lie_is("opaque")) {
		*entries = 0xdeadbeef000;
		done->count = 1;
		c->answer_bytes = sizeof(*done) + sizeof(*entries);
	} else if (met->what == VIRTIO_GC_MET_TYPES && lie_is("types")) {
		*entries = 0xfffffff0;
		done->count = 1;
		c->answer_bytes = sizeof(*done) + sizeof(*entries);
	} else if (met->what == VIRTIO_GC_MET_TYPES && lie_is("endless")) {
		done->count = 0;
		done->value = 1;
	} else if (met->what == VIRTIO_GC_MET_CLEAR && lie_is("weak") &&
		   done->count) {
		entries[0] += 8;
	}
}

static void cards_lie(struct vgc_call *c, struct virtio_gc_done *done)
{
	struct virtio_gc_card *card = (void *)(done + 1);

	if (!done->count)
		return;
	if (lie_is("outside")) {
		card->card = 0xfffffff0;
	} else if (lie_is("nowhere")) {
		card->region = 0xfffffff0;
	} else if (lie_is("cards")) {
		done->count = 1;
		c->answer_bytes = sizeof(*done) + done->count * sizeof(*card);
	}
}

/* Change the table that donors wrote for the last move, or the answer on the first. */
static void moves_lie(struct virtio_gc_moved *moved, uint32_t count)
{
	char *table = heap + moved[count - 1].table;
	struct virtio_gc_forward *words = (void *)table;
	uint32_t *places = (uint32_t *)(words + REGION_BYTES / 512);

	if (lie_is("ended"))
		moved->end += 8;
	else if (lie_is("place") && moved[count - 1].objects > 1)
		places[1] = places[0];
	else if (lie_is("before"))
		words[REGION_BYTES / 512 - 1].before++;
}

/* Answer with a status, instead of donors. */
static int answer_with(struct vgc_call *c, uint32_t status)
{
	struct virtio_gc_done *done = c->answer;

	memset(done, 0, sizeof(*done));
	done->status = status;
	done->donor = VIRTIO_GC_NO_DONOR;
	c->answer_bytes = sizeof(*done);
	return 0;
}

/* Before each look at weak objects from the first one on: none so far. */
static bool part_empty(struct vgc_call *c)
{
	static bool pending;
	const struct virtio_gc_met *met = c->arg;
	struct virtio_gc_done *done = c->answer;

	if (c->command != VIRTIO_GC_TRACE_MET || !lie_is("parts") ||
	    met->what != VIRTIO_GC_MET_CLEAR)
		return false;
	if (c->flags & VIRTIO_GC_MET_AGAIN) {
		answer_with(c, VIRTIO_GC_OK);
		done->value = 1;
		pending = true;
		return true;
	}
	if (pending)
		c->flags |= VIRTIO_GC_MET_AGAIN;
	pending = false;
	return false;
}

/* Once in a trace the first of the regions that are searched has moved. */
static bool region_moves(struct vgc_call *c, struct virtio_gc_done *done)
{
	const struct virtio_gc_region *region = c->entries;
	uint32_t i = 0;

	if (c->command != VIRTIO_GC_TRACE_CARDS || !lie_is("moved") ||
	    c->flags != VIRTIO_GC_CARDS_BEGIN || c->epoch == moved_epoch)
		return false;
	while (i < c->count && !(region[i].flags & VIRTIO_GC_REGION_SOURCE))
		i++;
	if (i == c->count)
		return false;
	moved_epoch = c->epoch;
	answer_with(c, VIRTIO_GC_STALE);
	done->at = (region[i].top - 1) / REGION_BYTES * REGION_BYTES;
	return true;
}

/* Is this the 1st, 3rd, 7th, 15th, ... call of the command $AT? */
static bool is_the_call(const struct vgc_call *c)
{
	static unsigned int calls;

	if (c->command != atoi(getenv("AT")))
		return false;
	unsigned int call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);

	if (call & (call + 1))
		return false;
	fprintf(stderr, "liar: call %u\n", call);
	return true;
}

/* Tell the test that a call is about to be made, and wait until it answers. */
static void test_ask(void)
{
	int asked = open(getenv("ASKED"), O_WRONLY | O_CLOEXEC);
	int go = open(getenv("GO"), O_RDONLY | O_CLOEXEC);
	char byte = 0;

	if (asked < 0 || go < 0 || write(asked, &byte, 1) != 1 ||
	    read(go, &byte, 1) != 1)
		abort();
	close(asked);
	close(go);
}

int vgc_do(struct vgc *v, struct vgc_call *c)
{
	int (*f)(struct vgc *, struct vgc_call *) = lookup("vgc_do");
	const struct virtio_gc_range *range = c->arg;
	struct virtio_gc_done *done = c->answer;
	bool unheard = lie_is("unheard") && is_the_call(c);

	if (lie_is("refused") && is_the_call(c))
		return answer_with(c, VIRTIO_GC_WORKER_LOST);
	if (lie_is("stopped") && is_the_call(c))
		test_ask();
	if (c->command == VIRTIO_GC_TRACE_ROOTS &&
	    c->flags & VIRTIO_GC_RANGES && lie_is("stale"))
		return answer_with(c, VIRTIO_GC_STALE);
	if (c->command == VIRTIO_GC_EVACUATE && lie_is("unmoved"))
		return answer_with(c, VIRTIO_GC_NO_SPACE);
	if (c->command == VIRTIO_GC_UPDATE && lie_is("unupdated"))
		return answer_with(c, VIRTIO_GC_WORKER_LOST);
	if (part_empty(c) || region_moves(c, done))
		return 0;
	int rc = f(v, c);

	if (!rc && unheard)
		return answer_with(c, VIRTIO_GC_TIMED_OUT);
	if (rc || done->status != VIRTIO_GC_OK)
		return rc;
	switch (c->command) {
	case VIRTIO_GC_TRACE_RESULTS:
		results_lie((void *)(done + 1), range->regions, range->first);
		break;
	case VIRTIO_GC_TRACE_BITMAPS:
		bitmaps_lie(c, done);
		break;
	case VIRTIO_GC_TRACE_STATE:
		if (lie_is("opaque"))
			done->value |= VIRTIO_GC_STATE_MET;
		if (lie_is("status"))
			done->status = 999;
		if (lie_is("restless"))
			done->value &= ~(uint64_t)VIRTIO_GC_STATE_QUIET;
		break;
	case VIRTIO_GC_TRACE_MET:
		met_lie(c, done);
		break;
	case VIRTIO_GC_TRACE_CARDS:
		cards_lie(c, done);
		break;
	case VIRTIO_GC_EVACUATE:
		moves_lie((void *)(done + 1), done->count);
		break;
	}
	return 0;
}
