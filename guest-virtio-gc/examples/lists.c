// SPDX-License-Identifier: BSD-3-Clause
/*
 * lists.c - a small runtime whose heap is collected by the donors that hold it
 *
 *	cc lists.c -lvgc && ./a.out			in a guest
 *	cc lists.c -lvgc -Wl,--no-as-needed -ldcm &&
 *		VGC_DEVICE=dcm:/etc/kvm-dcm/vm.ini ./a.out	beside libdcm
 *
 * The program keeps some linked lists, adds to them and drops some, and makes
 * far more objects than its heap has room for. When half of the regions are
 * used, the donors trace the heap and move live objects out of regions that are
 * mostly garbage. If any step of that fails the runtime collects by itself and
 * goes on: here it finds the regions without any live object. If a donor is
 * lost for good, objects are lost; this runtime does not handle that.
 *
 * All objects are of one type, 64 bytes, with two references, which are plain
 * addresses; 0 is none:
 *
 *	 0 type | 4 number | 8 next | 16 other | 24 ...
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libvgc.h>

#define REGION		(64ul << 10)
#define REGIONS		128u
#define ADDRESS		(3ul << 30)
#define NODE		1u	/* the type's id */
#define LISTS		16u
#define NODES		(16u * 1024)	/* made in each round: a MiB */
#define ROUNDS		24u

struct node {
	uint32_t type;
	uint32_t number;
	struct node *next;
	struct node *other;
	uint64_t sum[5];
};

static struct vgc *gc;
static char *heap;
static uint32_t top[REGIONS];	/* bytes used in each region */
static uint32_t current;
static uint32_t epoch;
static struct node *list[LISTS];	/* the roots */
static uint32_t by_donors, by_itself, moved_regions;

static union {
	struct virtio_gc_done done;
	char room[sizeof(struct virtio_gc_done) +
		  REGIONS * sizeof(struct virtio_gc_live)];
} answer;
static const void *const entries = &answer.done + 1;

/* Run a command and get its answer. True if that is OK. */
static bool ask(uint16_t command, uint16_t flags, const void *arg,
		size_t arg_bytes, uint32_t count, const void *list_of,
		size_t entry_bytes)
{
	struct vgc_call c = {
		.command = command,
		.flags = flags,
		.epoch = command < VIRTIO_GC_TRACE_START ? 0 : epoch,
		.arg = arg,
		.arg_bytes = (uint32_t)arg_bytes,
		.entries = list_of,
		.entry_bytes = (uint32_t)entry_bytes,
		.count = count,
		.answer = &answer,
		.answer_room = sizeof(answer),
	};

	return !vgc_do(gc, &c) && answer.done.status == VIRTIO_GC_OK;
}

/* ---- the heap ---- */

static bool heap_open(void)
{
	struct virtio_gc_space space = {
		.bytes = REGIONS * REGION,
		.region_bytes = REGION,
		.address = ADDRESS,
		.ref_bytes = 8,		/* references are addresses */
		.type_bytes = 4,	/* the type is in the first four bytes */
		.type_mask = 0xffffffff,
	};
	struct {
		struct virtio_gc_type type;
		struct virtio_gc_run run;
	} node = {
		.type = {
			.id = NODE,
			.kind = VIRTIO_GC_FIXED,
			.bytes = sizeof(struct node),
			.runs = 1,
		},
		.run = { .offset = 8, .count = 2 },
	};
	struct virtio_gc_types types = { .runs = 1 };
	struct vgc_call c = {
		.command = VIRTIO_GC_TYPES_ADD,
		.arg = &types,
		.arg_bytes = sizeof(types),
		.entries = &node.type,
		.entry_bytes = sizeof(node.type),
		.count = 1,
		.tail = &node.run,
		.tail_bytes = sizeof(node.run),
		.answer = &answer,
		.answer_room = sizeof(answer),
	};
	char err[256];

	gc = vgc_open(NULL, err, sizeof(err));
	if (!gc) {
		fprintf(stderr, "%s\n", err);
		return false;
	}
	heap = vgc_create(gc, &space);
	if (!heap) {
		fprintf(stderr, "no space: %s\n", strerror(errno));
		return false;
	}
	return !vgc_do(gc, &c) && answer.done.status == VIRTIO_GC_OK;
}

static uint32_t region_of(const void *object)
{
	return (uint32_t)(((const char *)object - heap) / REGION);
}

/* ---- collecting without donors ---- */

/* Find live objects the simple way: only whole regions become free. */
static void collect_itself(void)
{
	bool lives[REGIONS] = { false };
	uint32_t i;

	for (i = 0; i < LISTS; i++)
		for (struct node *n = list[i]; n; n = n->next)
			lives[region_of(n)] = true;
	for (i = 0; i < REGIONS; i++)
		if (!lives[i])
			top[i] = 0;
	by_itself++;
}

/* The new place of an object, by the forward table of its region. */
static struct node *forward(struct node *n, const struct virtio_gc_move *move,
			    uint32_t moves)
{
	uint64_t unit = ((char *)n - heap) % REGION / VIRTIO_GC_UNIT_BYTES;
	const struct virtio_gc_forward *word;
	const uint32_t *place;
	uint32_t i;

	for (i = 0; n && i < moves; i++) {
		if (move[i].from != region_of(n))
			continue;
		word = (const void *)(heap + move[i].table);
		place = (const void *)(word +
				       REGION / VIRTIO_GC_UNIT_BYTES / 64);
		word += unit / 64;
		place += word->before +
			 __builtin_popcountll(word->starts &
					      ((1ull << unit % 64) - 1));
		return (void *)(heap + move[i].to * REGION +
				*place * VIRTIO_GC_UNIT_BYTES);
	}
	return n;
}

/* Do the work of UPDATE and FORWARD, or the part that is left. */
static void update_itself(const struct virtio_gc_move *move, uint32_t moves)
{
	uint32_t i;

	for (i = 0; i < LISTS; i++) {
		struct node **at = &list[i];

		for (; (*at = forward(*at, move, moves)); at = &(*at)->next)
			(*at)->other = forward((*at)->other, move, moves);
	}
}

/* ---- collecting by donors ---- */

static uint32_t regions(struct virtio_gc_region *out, const bool *skip)
{
	uint32_t i, n = 0;

	for (i = 0; i < REGIONS; i++)
		if (!skip || !skip[i])
			out[n++] = (struct virtio_gc_region){
				.region = i,
				.top = i * REGION + top[i],
			};
	return n;
}

/* The program is stopped meanwhile, so no barrier is needed. */
static bool trace(struct virtio_gc_live *live)
{
	struct virtio_gc_range range = {
		.regions = REGIONS,
		.bitmaps = VIRTIO_GC_NONE,
	};
	struct virtio_gc_region all[REGIONS];
	uint32_t n = regions(all, NULL);

	epoch++;
	if (!ask(VIRTIO_GC_TRACE_START, 0, NULL, 0, n, all, sizeof(*all)) ||
	    !ask(VIRTIO_GC_TRACE_ROOTS, 0, NULL, 0, LISTS, list,
		 sizeof(*list)) ||
	    !ask(VIRTIO_GC_TRACE_FINISH, 0, NULL, 0, 0, NULL, 0) ||
	    !ask(VIRTIO_GC_TRACE_RESULTS, 0, &range, sizeof(range), 0, NULL, 0))
		return false;
	memcpy(live, entries, REGIONS * sizeof(*live));
	return true;
}

/* A free region on a donor; a region never written to has no donor. */
static uint32_t free_on(uint32_t donor, const uint32_t *donors,
			const bool *used)
{
	uint32_t i;

	for (i = 0; i < REGIONS; i++)
		if (!top[i] && !used[i] && donors[i] == donor)
			return i;
	return REGIONS;
}

/* Choose regions that are mostly garbage, and where their objects go. */
static uint32_t moves_choose(struct virtio_gc_move *move,
			     const struct virtio_gc_live *live, bool *from,
			     bool *used)
{
	struct virtio_gc_range range = { .regions = REGIONS };
	struct virtio_gc_region all[REGIONS];
	uint32_t donors[REGIONS], i, n = 0;

	/* After CLEAN each region has a donor. */
	for (i = 0; i < REGIONS; i++)
		all[i] = (struct virtio_gc_region){ .region = i };
	if (!ask(VIRTIO_GC_CLEAN, 0, NULL, 0, REGIONS, all, sizeof(*all)) ||
	    !ask(VIRTIO_GC_SPACE_DONORS, 0, &range, sizeof(range), 0, NULL, 0))
		return 0;
	memcpy(donors, entries, sizeof(donors));
	for (i = 0; i < REGIONS && n < REGIONS / 4; i++) {
		uint32_t to, table;

		if (!top[i] || live[i].bytes > REGION / 2 || used[i])
			continue;
		from[i] = true;
		used[i] = true;
		to = free_on(donors[i], donors, used);
		if (to < REGIONS)
			used[to] = true;
		table = free_on(donors[i], donors, used);
		if (table == REGIONS) {
			from[i] = false;
			continue;
		}
		used[table] = true;
		move[n++] = (struct virtio_gc_move){
			.from = i,
			.to = to,
			.start = to * REGION,
			.table = table * REGION,
			.table_bytes = REGION,
		};
	}
	return n;
}

/* Nothing refers to these regions any more, whatever the answer. */
static void release(const struct virtio_gc_region *gone, uint32_t n)
{
	uint32_t i;

	ask(VIRTIO_GC_RELEASE, VIRTIO_GC_RELEASE_DISCARD, NULL, 0, n, gone,
	    sizeof(*gone));
	for (i = 0; i < n; i++)
		top[gone[i].region] = 0;
}

static bool collect_by_donors(void)
{
	bool from[REGIONS] = { false }, used[REGIONS] = { false };
	struct virtio_gc_region left[REGIONS], gone[REGIONS] = { 0 };
	struct virtio_gc_live live[REGIONS];
	struct virtio_gc_move move[REGIONS];
	const struct virtio_gc_moved *moved = entries;
	uint32_t n, i;

	if (!trace(live))
		return false;
	/* Regions without live objects: free to move to, once released. */
	for (i = 0, n = 0; i < REGIONS; i++)
		if (top[i] && !live[i].objects)
			gone[n++].region = i;
	release(gone, n);
	n = moves_choose(move, live, from, used);
	if (!n)
		return true;
	if (!ask(VIRTIO_GC_EVACUATE, 0, NULL, 0, n, move, sizeof(*move)))
		return false;
	/* From here on the copies are the objects: no way back. */
	for (i = 0; i < n; i++) {
		if (moved[i].status)
			return false;
		top[moved[i].to] = (uint32_t)(moved[i].end % REGION);
		if (!top[moved[i].to] && moved[i].objects)
			top[moved[i].to] = REGION;
		gone[i] = (struct virtio_gc_region){ .region = move[i].from };
	}
	if (ask(VIRTIO_GC_UPDATE, 0, NULL, 0, regions(left, from), left,
		sizeof(*left)) &&
	    ask(VIRTIO_GC_FORWARD, 0, NULL, 0, LISTS, list, sizeof(*list)))
		memcpy(list, entries, sizeof(list));
	else
		update_itself(move, n);
	release(gone, n);
	moved_regions += n;
	return true;
}

/* ---- the program ---- */

static bool take_region(void)
{
	uint32_t i, used = 0;

	for (i = 0; i < REGIONS; i++)
		used += top[i] != 0;
	if (used > REGIONS / 2) {
		if (collect_by_donors())
			by_donors++;
		else
			collect_itself();
	}
	for (current = 0; current < REGIONS && top[current]; current++)
		;
	return current < REGIONS;
}

static bool add(uint32_t k)
{
	struct node *n;
	uint32_t i;

	/* A collection moves objects: no reference may be held across it. */
	if (top[current] + sizeof(*n) > REGION && !take_region())
		return false;
	n = (void *)(heap + current * REGION + top[current]);
	top[current] += sizeof(*n);
	*n = (struct node){
		.type = NODE,
		.number = list[k] ? list[k]->number + 1 : 0,
		.next = list[k],
		.other = list[k] ? list[k]->next : NULL,
	};
	for (i = 0; i < 5; i++)
		n->sum[i] = (uint64_t)n->number * (i + 1);
	list[k] = n;
	return true;
}

static bool list_is_right(const struct node *n)
{
	uint32_t i;

	for (; n; n = n->next) {
		if (n->type != NODE || !n->next != !n->number ||
		    (n->next && n->next->number != n->number - 1) ||
		    n->other != (n->next ? n->next->next : NULL))
			return false;
		for (i = 0; i < 5; i++)
			if (n->sum[i] != (uint64_t)n->number * (i + 1))
				return false;
	}
	return true;
}

int main(void)
{
	uint32_t round, i;

	if (!heap_open())
		return 1;
	for (round = 0; round < ROUNDS; round++) {
		for (i = round % 3; i < LISTS; i += 3)
			list[i] = NULL;
		for (i = 0; i < NODES; i++)
			if (!add(i % LISTS)) {
				fprintf(stderr, "the heap is full\n");
				return 1;
			}
		for (i = 0; i < LISTS; i++)
			if (!list_is_right(list[i])) {
				fprintf(stderr, "list %u is not right\n", i);
				return 1;
			}
	}
	printf("%u objects; collected %u times by donors, %u by itself; %u regions moved\n",
	       ROUNDS * NODES, by_donors, by_itself, moved_regions);
	vgc_close(gc);
	return 0;
}
