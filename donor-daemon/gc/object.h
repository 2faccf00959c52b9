/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * object.h - read objects of an untrusted heap
 *
 * Every field is read once, and its value is checked before it is used, as the
 * bytes may change between two reads. gc_object_read() returns an object's size
 * and where its references are; all of that lies between its start and the
 * limit it was given.
 */
#ifndef DCM_GC_OBJECT_H
#define DCM_GC_OBJECT_H

#include "space.h"

/*
 * Read a field. It is aligned: types are checked, and objects start at multiples of 8.
 */
static inline u64 gc_field(const u8 *p, u32 bytes)
{
	switch (bytes) {
	case 1:
		return READ_ONCE(*p);
	case 2:
		return le16toh(READ_ONCE(*(const u16 *)p));
	case 4:
		return le32toh(READ_ONCE(*(const u32 *)p));
	default:
		return le64toh(READ_ONCE(*(const u64 *)p));
	}
}

/**
 * struct gc_object - an object that was read
 * @bytes: its size, rounded up
 * @refs: number of references from @type->first on
 */
struct gc_object {
	const struct gc_type *type;
	u64 bytes;
	u64 refs;
};

/**
 * gc_object_read() - read an object's size and references
 * @p: its start
 * @limit: bytes from there that may be read
 *
 * Return: %VIRTIO_GC_OK, %VIRTIO_GC_BAD_TYPE or %VIRTIO_GC_BAD_OBJECT.
 */
static __always_inline u32 gc_object_read(const struct dcm_gc_space *s,
					  const u8 *p, u64 limit,
					  struct gc_object *o)
{
	const struct dcm_gc_layout *l = &s->l;
	const struct gc_type *t;
	u64 n = 0;

	if (unlikely(limit < (u64)l->type_offset + l->type_bytes))
		return VIRTIO_GC_BAD_OBJECT;
	t = gc_type_find(&s->types,
			 (u32)(gc_field(p + l->type_offset, l->type_bytes) >>
				  l->type_shift) &
				    l->type_mask);
	if (unlikely(!t))
		return VIRTIO_GC_BAD_TYPE;
	o->type = t;
	if (unlikely(limit < t->head))
		return VIRTIO_GC_BAD_OBJECT;
	if (t->kind == VIRTIO_GC_FIXED) {
		o->bytes = t->bytes;
		o->refs = 0;
		return VIRTIO_GC_OK;
	}
	if (t->length_bytes)
		n = gc_field(p + t->length_offset, t->length_bytes);
	if (t->kind == VIRTIO_GC_DATA) {
		o->refs = 0;
		if (unlikely(n > (limit - t->first) >> t->shift))
			return VIRTIO_GC_BAD_OBJECT;
		o->bytes = (t->first + (n << t->shift) + 7) & ~7ull;
		o->bytes += (n * t->tail + 63) / 64 * 8;
		return o->bytes > limit ? VIRTIO_GC_BAD_OBJECT : VIRTIO_GC_OK;
	}
	o->refs = n;
	if (t->kind == VIRTIO_GC_SELF) {
		u64 size = gc_field(p + t->size_offset, t->size_bytes);

		if (unlikely(size > limit >> t->shift))
			return VIRTIO_GC_BAD_OBJECT;
		o->bytes = ((size << t->shift) + 7) & ~7ull;
		if (unlikely(o->bytes > limit || o->bytes < t->head ||
			     o->bytes < l->type_offset + l->type_bytes))
			return VIRTIO_GC_BAD_OBJECT;
		if (n && (o->bytes < t->first ||
			  n > (o->bytes - t->first) / l->ref_bytes))
			return VIRTIO_GC_BAD_OBJECT;
		return VIRTIO_GC_OK;
	}
	if (unlikely(n > (limit - t->first) / l->ref_bytes))
		return VIRTIO_GC_BAD_OBJECT;
	o->bytes = (t->first + n * l->ref_bytes + 7) & ~7ull;
	return o->bytes > limit ? VIRTIO_GC_BAD_OBJECT : VIRTIO_GC_OK;
}

enum gc_ref {
	GC_REF_NONE,	/* null, or outside if the space allows that */
	GC_REF_HERE,	/* in the space, at a unit */
	GC_REF_BAD,
};

/* Decode reference @r into a space offset. */
static inline enum gc_ref gc_ref_decode(const struct dcm_gc_layout *l, u64 r,
					u64 *offset)
{
	u64 address;

	if (!r)
		return GC_REF_NONE;
	address = l->ref_base + (r << l->ref_shift);
	*offset = address - l->address;
	if (unlikely(*offset >= l->bytes))
		return l->flags & VIRTIO_GC_SPACE_OUTSIDE ? GC_REF_NONE :
							    GC_REF_BAD;
	return likely(!(*offset & 7)) ? GC_REF_HERE : GC_REF_BAD;
}

/* The reference for @offset; 0 if there is none. */
static inline u64 gc_ref_encode(const struct dcm_gc_layout *l, u64 offset)
{
	u64 r = (l->address + offset - l->ref_base) >> l->ref_shift;

	if ((r << l->ref_shift) + l->ref_base != l->address + offset ||
	    (l->ref_bytes == 4 && r > U32_MAX))
		return 0;
	return r;
}

static inline u64 gc_ref_load(const u8 *p, u32 ref_bytes)
{
	return gc_field(p, ref_bytes);
}

static inline void gc_ref_store(u8 *p, u32 ref_bytes, u64 r)
{
	if (ref_bytes == 4)
		WRITE_ONCE(*(u32 *)p, htole32((u32)r));
	else
		WRITE_ONCE(*(u64 *)p, htole64(r));
}

#endif /* DCM_GC_OBJECT_H */
