// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_request.c - the only reader of virtio-gc requests
 *
 * One table has the parts of each command. A request has exactly the bytes that
 * follow from the table and its count, or it is refused before anything is
 * done. The host side of a device (kvm-dcm/gc/queue.c) and the worker both link
 * this file, so both accept the same requests.
 *
 * No state, no allocation.
 */
#include <endian.h>
#include <stdlib.h>

#include "gc_request.h"

#define F(name) (1u << VIRTIO_GC_F_##name)
/* commands of a trace have its epoch, all others 0 */
#define OF_TRACES (F(TRACE) | F(EVACUATE) | F(COMPACT))

/* command, its struct's bytes, bytes of an entry, flags, features */
#define COMMANDS(x)                                                         \
	x(SPACE_CREATE, sizeof(struct virtio_gc_space), 0, 0, 0)            \
	x(SPACE_DESTROY, 0, 0, 0, 0)                                        \
	x(SPACE_DONORS, sizeof(struct virtio_gc_range), 0, 0, 0)            \
	x(TYPES_ADD, sizeof(struct virtio_gc_types),                        \
	  sizeof(struct virtio_gc_type), VIRTIO_GC_TYPES_REPLACE, 0)        \
	x(CLEAN, 0, sizeof(struct virtio_gc_region), 0, 0)                  \
	x(TRACE_START, 0, sizeof(struct virtio_gc_region),                  \
	  VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL, F(TRACE))     \
	x(TRACE_ROOTS, 0, sizeof(__le64), VIRTIO_GC_RANGES, F(TRACE))       \
	x(TRACE_MET, sizeof(struct virtio_gc_met), 0,                       \
	  VIRTIO_GC_MET_WAIT | VIRTIO_GC_MET_AGAIN, F(TRACE))               \
	x(TRACE_FINISH, 0, 0, 0, F(TRACE))                                  \
	x(TRACE_RESULTS, sizeof(struct virtio_gc_range), 0, 0, F(TRACE))    \
	x(TRACE_STATE, 0, 0, 0, F(TRACE) | F(STATE))                        \
	x(TRACE_ASK, 0, sizeof(__le64), 0, F(TRACE) | F(ASK))               \
	x(TRACE_BITMAPS, sizeof(struct virtio_gc_range), 0, 0,              \
	  F(TRACE) | F(BITMAPS))                                            \
	x(TRACE_CARDS, sizeof(struct virtio_gc_cards),                      \
	  sizeof(struct virtio_gc_region),                                  \
	  VIRTIO_GC_CARDS_BEGIN | VIRTIO_GC_RANGES, F(TRACE) | F(CARDS))    \
	x(EVACUATE, 0, sizeof(struct virtio_gc_move),                       \
	  VIRTIO_GC_MOVE_BREADTH_FIRST, F(EVACUATE))                        \
	x(UPDATE, 0, sizeof(struct virtio_gc_region), VIRTIO_GC_RANGES,     \
	  F(EVACUATE))                                                      \
	x(FORWARD, 0, sizeof(__le64), 0, F(EVACUATE))                       \
	x(RELEASE, 0, sizeof(struct virtio_gc_region),                      \
	  VIRTIO_GC_RELEASE_DISCARD, F(EVACUATE))                           \
	x(COMPACT, sizeof(struct virtio_gc_area),                           \
	  sizeof(struct virtio_gc_region), 0, F(COMPACT))                   \
	x(HINT, sizeof(struct virtio_gc_hint),                              \
	  sizeof(struct virtio_gc_extent), 0, F(HINTS))                     \
	x(CANCEL, sizeof(struct virtio_gc_cancel), 0, 0, 0)

struct shape {
	bool known;
	u8 body;
	u8 entry;
	u16 flags;
	u32 features;
};

static const struct shape shapes[] = {
#define ROW(name, body, entry, flags, features) \
	[VIRTIO_GC_##name] = { true, body, entry, flags, features },
	COMMANDS(ROW)
#undef ROW
};

/* Features that the flags of a command need. */
static u32 flags_features(u16 command, u16 flags)
{
	switch (command) {
	case VIRTIO_GC_TYPES_ADD:
		return flags & VIRTIO_GC_TYPES_REPLACE ? F(REPLACE) : 0;
	case VIRTIO_GC_TRACE_START:
		return flags & VIRTIO_GC_TRACE_CONCURRENT ? F(CONCURRENT) : 0;
	case VIRTIO_GC_TRACE_MET:
		return flags & VIRTIO_GC_MET_AGAIN ? F(CLEAR) : 0;
	case VIRTIO_GC_TRACE_ROOTS:
	case VIRTIO_GC_UPDATE:
		return flags & VIRTIO_GC_RANGES ? F(RANGES) : 0;
	default:
		return 0;
	}
}

/* How many entries the answer has at most, and of which size. */
static void answer_size(struct dcm_gc_request *r)
{
	const struct virtio_gc_range *range = r->body;
	const struct virtio_gc_cards *cards = r->body;
	const struct virtio_gc_met *met = r->body;

	switch (r->command) {
	case VIRTIO_GC_SPACE_DONORS:
		r->answer = le32toh(range->regions);
		r->answer_entry = sizeof(__le32);
		break;
	case VIRTIO_GC_TRACE_RESULTS:
		r->answer = le32toh(range->regions);
		r->answer_entry = sizeof(struct virtio_gc_live);
		break;
	case VIRTIO_GC_TRACE_MET:
		r->answer = le32toh(met->max);
		r->answer_entry = le32toh(met->what) == VIRTIO_GC_MET_CLEAR ?
					  sizeof(struct virtio_gc_weak) :
					  sizeof(__le64);
		break;
	case VIRTIO_GC_TRACE_BITMAPS:
		/* body_good(): both are bounded */
		r->answer =
			le32toh(range->regions) * (u32)le64toh(range->bitmaps);
		r->answer_entry = 1;
		break;
	case VIRTIO_GC_TRACE_CARDS:
		r->answer = le32toh(cards->max);
		r->answer_entry = sizeof(struct virtio_gc_card);
		break;
	case VIRTIO_GC_TRACE_ASK:
		r->answer = r->count / 8 + (r->count % 8 != 0);
		r->answer_entry = 1;
		break;
	case VIRTIO_GC_FORWARD:
		r->answer = r->count;
		r->answer_entry = sizeof(__le64);
		break;
	case VIRTIO_GC_EVACUATE:
	case VIRTIO_GC_COMPACT:
		r->answer = r->count;
		r->answer_entry = sizeof(struct virtio_gc_moved);
		break;
	}
	r->answer_bytes = sizeof(struct virtio_gc_done) +
			  (size_t)r->answer * r->answer_entry;
}

static bool region_flags_good(const struct virtio_gc_region *region)
{
	const u32 say = VIRTIO_GC_REGION_SAY, whole = VIRTIO_GC_REGION_WHOLE;
	u32 flags = le32toh(region->flags);

	return !(flags & ~(whole | say)) && flags != say;
}

/* A search begins with regions, or gets ranges, or only goes on. */
static bool cards_good(const struct dcm_gc_request *r)
{
	const struct virtio_gc_cards *cards = r->body;
	bool begin = r->flags & VIRTIO_GC_CARDS_BEGIN;
	bool ranges = r->flags & VIRTIO_GC_RANGES;

	if (cards->reserved[0] || cards->reserved[1] || cards->reserved[2] ||
	    (begin && ranges))
		return false;
	return begin || (!cards->shift && (ranges || !r->count));
}

static bool types_good(const struct virtio_gc_type *type, u32 n, u32 features)
{
	for (u32 i = 0; i < n; i++)
		if (type[i].tail && !(features & F(TAIL)))
			return false;
	return true;
}

/* Fields of @r->body and entries that must be zero, or one of a few. */
static bool body_good(const struct dcm_gc_request *r, u32 features)
{
	const struct virtio_gc_space *space = r->body;
	const struct virtio_gc_types *types = r->body;
	const struct virtio_gc_range *range = r->body;
	const struct virtio_gc_met *met = r->body;
	const struct virtio_gc_hint *hint = r->body;
	const struct virtio_gc_region *region = r->entries;

	if (r->command == VIRTIO_GC_TRACE_CARDS)
		return cards_good(r);
	if (dcm_gc_request_ranges(r))
		return true;
	switch (r->command) {
	case VIRTIO_GC_SPACE_CREATE:
		return !space->reserved && !space->reserved2;
	case VIRTIO_GC_TYPES_ADD:
		return !types->reserved &&
		       types_good(r->entries, r->count, features);
	case VIRTIO_GC_SPACE_DONORS:
		return !range->bitmaps;
	case VIRTIO_GC_TRACE_BITMAPS:
		return le64toh(range->bitmaps) <= VIRTIO_GC_BITMAPS_MAX &&
		       le32toh(range->regions) * le64toh(range->bitmaps) <=
			       VIRTIO_GC_BITMAPS_MAX;
	case VIRTIO_GC_TRACE_MET:
		if (le32toh(met->what) == VIRTIO_GC_MET_CLEAR)
			return features & F(CLEAR);
		return le32toh(met->what) <= VIRTIO_GC_MET_TYPES &&
		       !(r->flags & VIRTIO_GC_MET_AGAIN);
	case VIRTIO_GC_HINT:
		if (le32toh(hint->what) == VIRTIO_GC_HINT_FETCH &&
		    !(features & F(FETCH)))
			return false;
		return !hint->reserved &&
		       le32toh(hint->what) <= VIRTIO_GC_HINT_FETCH;
	case VIRTIO_GC_TRACE_START:
		for (u32 i = 0; i < r->count; i++)
			if (!region_flags_good(&region[i]) ||
			    (region[i].flags && !(features & F(WHOLE))))
				return false;
		return true;
	case VIRTIO_GC_CLEAN:
	case VIRTIO_GC_UPDATE:
	case VIRTIO_GC_RELEASE:
	case VIRTIO_GC_COMPACT:
		for (u32 i = 0; i < r->count; i++)
			if (region[i].flags)
				return false;
		return true;
	default:
		return true;
	}
}

u32 dcm_gc_request_read(const void *buf, size_t len, size_t room,
			const struct dcm_gc_limits *limits,
			struct dcm_gc_request *r)
{
	const struct virtio_gc_req *le = buf;
	const struct virtio_gc_types *types;
	const struct shape *shape;
	u64 want;

	memset(r, 0, sizeof(*r));
	r->answer_bytes = sizeof(struct virtio_gc_done);
	if (len < sizeof(*le))
		return VIRTIO_GC_INVALID;
	r->command = le16toh(le->command);
	r->flags = le16toh(le->flags);
	r->space = le32toh(le->space);
	r->tag = le64toh(le->tag);
	r->epoch = le32toh(le->epoch);
	r->deadline_ms = le32toh(le->deadline_ms);
	r->features = limits->features;
	if (len > limits->request_max)
		return VIRTIO_GC_INVALID;
	if (r->command >= ARRAY_SIZE(shapes) || !shapes[r->command].known)
		return VIRTIO_GC_UNSUPPORTED;
	shape = &shapes[r->command];
	if (r->flags & ~shape->flags ||
	    (shape->features | flags_features(r->command, r->flags)) &
		    ~limits->features)
		return VIRTIO_GC_UNSUPPORTED;
	r->count = le32toh(le->count);
	if (!(shape->features & OF_TRACES) && r->epoch)
		return VIRTIO_GC_INVALID;
	if (le->reserved || r->space >= limits->spaces_max ||
	    (!shape->entry && r->count) || len < sizeof(*le) + shape->body)
		return VIRTIO_GC_INVALID;
	r->body = shape->body ? le + 1 : NULL;
	r->entries = (const u8 *)(le + 1) + shape->body;
	r->entries_bytes = len - sizeof(*le) - shape->body;
	want = (u64)r->count * shape->entry;
	if (dcm_gc_request_ranges(r))
		want = (u64)r->count * sizeof(struct virtio_gc_refs);
	if (r->command == VIRTIO_GC_TYPES_ADD) {
		types = r->body;
		want += (u64)le32toh(types->runs) *
			sizeof(struct virtio_gc_run);
	}
	if (r->entries_bytes != want || !body_good(r, limits->features))
		return VIRTIO_GC_INVALID;
	answer_size(r);
	/* body_good() has the limit of these */
	if (r->answer_bytes > room || (r->command != VIRTIO_GC_TRACE_BITMAPS &&
	     r->answer_bytes > limits->response_max))
		return VIRTIO_GC_INVALID;
	return VIRTIO_GC_OK;
}

bool dcm_gc_request_ranges(const struct dcm_gc_request *r)
{
	return (r->command == VIRTIO_GC_TRACE_ROOTS ||
		r->command == VIRTIO_GC_TRACE_CARDS ||
		r->command == VIRTIO_GC_UPDATE) &&
	       r->flags & VIRTIO_GC_RANGES;
}

u32 dcm_gc_ranges_check(const struct dcm_gc_layout *l,
			const struct virtio_gc_refs *list, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u64 at = le64toh(list[i].address) - l->address;
		u64 count = le64toh(list[i].count);

		if (at >= l->bytes || at % l->ref_bytes || !count ||
		    count > (l->bytes - at) / l->ref_bytes)
			return VIRTIO_GC_INVALID;
	}
	return VIRTIO_GC_OK;
}

void dcm_gc_ranges_mark(const struct dcm_gc_layout *l,
			const struct virtio_gc_refs *list, u32 n, u8 *hit)
{
	for (u32 i = 0; i < n; i++) {
		u64 at = le64toh(list[i].address) - l->address;
		u64 last = at + le64toh(list[i].count) * l->ref_bytes - 1;
		u64 first = at / l->region_bytes;

		memset(hit + first, 1, last / l->region_bytes - first + 1);
	}
}

/* Whether its top is an end of objects in it. */
static bool region_top_good(const struct dcm_gc_layout *l,
			    const struct virtio_gc_region *region)
{
	u64 start = le32toh(region->region) * l->region_bytes;
	u64 top = le64toh(region->top);

	return top >= start && top - start <= l->region_bytes && !(top & 7);
}

static bool start_region_good(const struct dcm_gc_layout *l,
			      const struct virtio_gc_region *region)
{
	return region_flags_good(region) && region_top_good(l, region);
}

static bool cards_region_good(const struct dcm_gc_layout *l,
			      const struct virtio_gc_region *region)
{
	const u32 source = VIRTIO_GC_REGION_SOURCE;
	u32 flags = le32toh(region->flags);

	if (!flags || flags & ~(source | VIRTIO_GC_REGION_TARGET))
		return false;
	return flags & source ? region_top_good(l, region) : !region->top;
}

/* Regions of the space, each @good and listed once. */
static u32 list_check(const struct dcm_gc_layout *l,
		      const struct virtio_gc_region *list, u32 n,
		      bool (*good)(const struct dcm_gc_layout *l,
				   const struct virtio_gc_region *region))
{
	u64 regions = l->bytes / l->region_bytes;
	u32 status = VIRTIO_GC_OK;
	u8 *seen;

	if (n > regions)
		return VIRTIO_GC_INVALID;
	seen = calloc(regions, 1);
	if (!seen)
		return VIRTIO_GC_LIMIT;
	for (u32 i = 0; !status && i < n; i++) {
		u32 r = le32toh(list[i].region);

		if (r >= regions || seen[r] || !good(l, &list[i]))
			status = VIRTIO_GC_INVALID;
		else
			seen[r] = 1;
	}
	free(seen);
	return status;
}

u32 dcm_gc_start_check(const struct dcm_gc_layout *l, u32 flags,
		       const struct virtio_gc_region *list, u32 n)
{
	const u32 both = VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL;

	if (flags & ~both || flags == both)
		return VIRTIO_GC_INVALID;
	return list_check(l, list, n, start_region_good);
}

u32 dcm_gc_cards_check(const struct dcm_gc_layout *l, u32 shift,
		       const struct virtio_gc_region *list, u32 n)
{
	if (shift < DCM_GC_CARD_SHIFT_MIN || shift > DCM_GC_CARD_SHIFT_MAX ||
	    (l->bytes - 1) >> shift >= U32_MAX)
		return VIRTIO_GC_INVALID;
	return list_check(l, list, n, cards_region_good);
}

void dcm_gc_request_layout(const struct dcm_gc_request *r,
			   struct dcm_gc_layout *l, u64 *window)
{
	const struct virtio_gc_space *le = r->body;

	*window = le64toh(le->window);
	*l = (struct dcm_gc_layout){
		.bytes = le64toh(le->bytes),
		.region_bytes = le64toh(le->region_bytes),
		.address = le64toh(le->address),
		.ref_base = le64toh(le->ref_base),
		.type_mask = le32toh(le->type_mask),
		.type_offset = le16toh(le->type_offset),
		.ref_bytes = le->ref_bytes,
		.ref_shift = le->ref_shift,
		.flags = le->flags,
		.type_bytes = le->type_bytes,
		.type_shift = le->type_shift,
	};
}

static bool is_power(u64 v)
{
	return v && !(v & (v - 1));
}

u32 dcm_gc_layout_check(const struct dcm_gc_layout *l)
{
	if (!is_power(l->region_bytes) || l->region_bytes < DCM_GC_REGION_MIN ||
	    l->region_bytes > DCM_GC_REGION_MAX)
		return VIRTIO_GC_INVALID;
	if (!l->bytes || l->bytes % l->region_bytes ||
	    l->bytes > DCM_GC_SPACE_MAX || l->address % l->region_bytes ||
	    l->address + l->bytes < l->address)
		return VIRTIO_GC_INVALID;
	if ((l->ref_bytes != 4 && l->ref_bytes != 8) || l->ref_shift > 8 ||
	    l->flags & ~VIRTIO_GC_SPACE_OUTSIDE)
		return VIRTIO_GC_INVALID;
	if (!is_power(l->type_bytes) || l->type_bytes > 8 ||
	    l->type_offset % l->type_bytes ||
	    l->type_shift >= 8 * l->type_bytes || !l->type_mask)
		return VIRTIO_GC_INVALID;
	if (l->bytes / l->region_bytes > DCM_GC_REGIONS_MAX)
		return VIRTIO_GC_LIMIT;
	return VIRTIO_GC_OK;
}
