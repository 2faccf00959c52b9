// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mutator_le.c - the heap as requests say it: its space, types, regions, roots
 */
#include <endian.h>
#include <string.h>

#include "mutator.h"

__le64 mut_address_le(const struct mut *m, u64 offset)
{
	return offset == MUT_NULL ? 0 : htole64(m->l.address + offset);
}

void mut_roots_le(const struct mut *m, __le64 *out)
{
	for (u32 i = 0; i < m->nr_roots; i++)
		out[i] = mut_address_le(m, m->roots[i]);
}

void mut_slots_le(const struct mut *m, const struct mut_object *o, __le64 *out)
{
	for (u64 i = 0; i < mut_slots(m, o); i++)
		out[i] = mut_address_le(m, mut_read(m, mut_slot(m, o, i)));
}

size_t mut_request_le(void *buf, size_t room, struct virtio_gc_req head,
		      const void *body, size_t body_bytes, const void *entries,
		      size_t bytes)
{
	u8 *p = buf;

	if (sizeof(head) + body_bytes + bytes > room)
		return 0;
	memcpy(p, &head, sizeof(head));
	if (body_bytes)
		memcpy(p + sizeof(head), body, body_bytes);
	if (bytes)
		memcpy(p + sizeof(head) + body_bytes, entries, bytes);
	return sizeof(head) + body_bytes + bytes;
}

struct virtio_gc_space mut_space_le(const struct mut *m)
{
	return (struct virtio_gc_space){
		.bytes = htole64(m->l.bytes),
		.region_bytes = htole64(m->l.region_bytes),
		.address = htole64(m->l.address),
		.ref_base = htole64(m->l.ref_base),
		.ref_bytes = m->l.ref_bytes,
		.ref_shift = m->l.ref_shift,
		.type_bytes = m->l.type_bytes,
		.type_offset = htole16(m->l.type_offset),
		.type_shift = m->l.type_shift,
		.type_mask = htole32(m->l.type_mask),
	};
}

u32 mut_regions_le(const struct mut *m, struct virtio_gc_region *out)
{
	u32 n = 0;

	for (u32 r = 0; r < m->c.regions; r++) {
		u32 o = m->at_unit[r * m->l.region_bytes / 8], flags = 0;

		if (m->whole[r] == MUT_BEHIND)
			continue;
		if (m->whole[r] == MUT_WHOLE)
			flags = VIRTIO_GC_REGION_WHOLE;
		if (flags && mut_slots(m, &m->objects[o - 1]))
			flags |= VIRTIO_GC_REGION_SAY;
		out[n++] = (struct virtio_gc_region){
			.region = htole32(r),
			.flags = htole32(flags),
			.top = htole64(r * m->l.region_bytes + m->top[r]),
		};
	}
	return n;
}

size_t mut_types_le(const struct mut *m, void *out)
{
	struct virtio_gc_type *t = out;

	for (u32 i = 0; i < m->nr_types; i++)
		t[i] = m->types[i].le;
	memcpy(t + m->nr_types, m->runs, m->nr_runs * sizeof(*m->runs));
	return m->nr_types * sizeof(*t) + m->nr_runs * sizeof(*m->runs);
}
