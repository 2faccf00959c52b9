// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mutator_types.c - the types of a heap: one of each shape there is
 */
#include <assert.h>
#include <endian.h>

#include "mutator.h"

#define HEAD	16u

static struct mut_type *type_new(struct mut *m, u8 kind, u8 flags)
{
	struct mut_type *t = &m->types[m->nr_types];

	/* ids that a sloppy hash would heap up, and id 0 */
	t->le.id = htole32((m->nr_types * 0x20u) & m->l.type_mask);
	if (m->l.type_mask == 0xff)
		t->le.id = htole32(m->nr_types);
	t->le.kind = t->kind = kind;
	t->le.flags = t->flags = flags;
	m->nr_types++;
	return t;
}

static void type_run(struct mut *m, struct mut_type *t, u32 offset, u32 count)
{
	m->runs[m->nr_runs++] =
		(struct virtio_gc_run){ htole32(offset), htole32(count) };
	t->le.runs = htole16((u16)(le16toh(t->le.runs) + 1));
	for (u32 i = 0; i < count; i++) {
		assert(t->nr_slots < MUT_SLOTS_MAX);
		t->slot[t->nr_slots++] = offset + i * m->c.ref_bytes;
	}
}

/* Types in the order of which their runs are laid down. */
void mut_types_make(struct mut *m)
{
	u32 rb = m->c.ref_bytes;
	struct mut_type *t;

	for (u32 i = 0; i < 6; i++) {
		u32 at = HEAD, gaps = mut_below(m, 4);

		t = type_new(m, VIRTIO_GC_FIXED,
			     i == 5 ? VIRTIO_GC_TYPE_OPAQUE : 0);
		for (u32 g = 0; i && g <= gaps; g++) {
			u32 count = 1 + mut_below(m, 4);

			type_run(m, t, at, count);
			at += (count + 1 + mut_below(m, 3)) * rb;
		}
		t->bytes = (at + mut_below(m, 40) + 7) & ~7u;
		t->le.bytes = htole32(t->bytes);
	}
	t = type_new(m, VIRTIO_GC_FIXED, VIRTIO_GC_TYPE_WEAK);
	t->referent = HEAD;
	t->le.referent = htole32(HEAD);
	type_run(m, t, HEAD + rb, 2);
	t->bytes = 48;
	t->le.bytes = htole32(48);
	for (u32 i = 0; i < 2; i++) {
		t = type_new(m, VIRTIO_GC_REFS, 0);
		t->length_offset = 12;
		t->le.length_bytes = 4;
		t->first = HEAD + 8 * i;
		if (i)
			type_run(m, t, HEAD, 1);
		t = type_new(m, VIRTIO_GC_DATA, 0);
		t->length_offset = 12;
		t->le.length_bytes = 4;
		t->first = HEAD + i * 3;
		t->shift = (u8)(i * 3);
	}
	for (u32 i = 0; i < 2; i++) {
		t = type_new(m, VIRTIO_GC_SELF, i ? VIRTIO_GC_TYPE_OPAQUE : 0);
		t->size_offset = HEAD;
		t->le.size_bytes = 4;
		t->shift = 3;
		t->length_offset = HEAD + 4;
		t->le.length_bytes = 2;
		t->first = 32 + rb;
		type_run(m, t, 24, 1);
	}
	/* as a thread's stack in the heap */
	t = type_new(m, VIRTIO_GC_DATA, VIRTIO_GC_TYPE_OPAQUE);
	t->length_offset = 12;
	t->le.length_bytes = 4;
	t->first = HEAD + 8;
	t->shift = 3;
	t->tail = t->le.tail = (u8)(1 + mut_below(m, 2));
	type_run(m, t, HEAD, 1);
	for (u32 i = 0; i < m->nr_types; i++) {
		t = &m->types[i];
		t->le.length_offset = htole32(t->length_offset);
		t->le.size_offset = htole32(t->size_offset);
		t->le.first = htole32(t->first);
		t->le.shift = t->shift;
	}
}
