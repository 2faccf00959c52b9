// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mutator.c - a runtime for tests
 *
 * Objects have 16 bytes of header, then fields. The type in a header
 * is encoded in one of four ways; all other bytes are noise that an
 * object keeps for life. Allocation bumps a pointer in a region, and jumps to
 * another now and then, so that objects that know each other are apart.
 */
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mutator.h"

static const struct {
	u16 offset;
	u8 bytes, shift;
	u32 mask;
} headers[] = {
	{ 8, 4, 0, 0xffffffff },	/* a class word, as OpenJDK's */
	{ 0, 8, 42, 0x3fffff },		/* in the top bits of a mark word */
	{ 4, 2, 3, 0xff },
	{ 0, 4, 1, 0x7fffffff },
};

u64 mut_rand(struct mut *m)
{
	m->rng ^= m->rng >> 12;
	m->rng ^= m->rng << 25;
	m->rng ^= m->rng >> 27;
	return m->rng * 0x2545f4914f6cdd1dull;
}

u32 mut_below(struct mut *m, u32 n)
{
	return (u32)((mut_rand(m) >> 32) % n);
}

static void *map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert(p != MAP_FAILED);
	return p;
}

static void *zeroed(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	assert(p);
	return p;
}

u64 mut_root(const struct mut *m)
{
	u32 i = 0;

	while (i < m->nr_roots && m->roots[i] == MUT_NULL)
		i++;
	assert(i < m->nr_roots);
	return m->roots[i];
}

struct mut_config mut_config_any(u64 seed, u32 i, bool whole)
{
	u64 r = seed * 0x9e3779b97f4a7c15ull >> 20;
	u32 large = whole ? 2 + (u32)(r >> 24) % 4 : 0;

	return (struct mut_config){
		.seed = seed,
		.regions = 4 + (u32)(r % 5) + large,
		.whole = large,
		.region_bytes = 64 << 10,
		.donors = 1 + i % 3,
		.ref_bytes = i & 4 ? 8 : 4,
		.header = (u32)(r >> 8),
		.shape = (enum mut_shape)((r >> 16) % MUT_SHAPES),
		.objects = 200 + (u32)((r >> 20) % 3000),
		.roots = 1 + (u32)((r >> 10) % 20),
		.array_max = i % 7 ? 400 : 6000,
	};
}

void mut_tops_fit(const struct mut *m, u64 *tops)
{
	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *at = &m->objects[o];
		u64 *top = &tops[at->at / m->l.region_bytes];
		u64 in = at->at % m->l.region_bytes;

		if (in < *top && in + at->bytes > *top && !mut_is_whole(m, at))
			*top = in;
	}
}

struct mut *mut_new(const struct mut_config *c)
{
	struct mut *m = zeroed(1, sizeof(*m));
	u64 bytes = c->regions * c->region_bytes, any;

	m->c = *c;
	m->rng = c->seed * 2 + 1;
	mut_rand(m);
	any = (0x100 + mut_below(m, 64)) * c->region_bytes;
	m->l = (struct dcm_gc_layout){
		.bytes = bytes,
		.region_bytes = c->region_bytes,
		.address = c->address ? c->address : any,
		.ref_bytes = (u8)c->ref_bytes,
		.ref_shift = (u8)(mut_below(m, 2) * 3),
		.type_offset = headers[c->header % 4].offset,
		.type_bytes = headers[c->header % 4].bytes,
		.type_shift = headers[c->header % 4].shift,
		.type_mask = headers[c->header % 4].mask,
	};
	/* object 0 must not be written as a null */
	m->l.ref_base = mut_below(m, 2) ? m->l.address - 4096 : 0;
	if (m->l.address + bytes - m->l.ref_base > (u64)U32_MAX
							   << m->l.ref_shift)
		m->l.ref_base = m->l.address - 4096;
	m->host = map(bytes);
	m->donors = map(bytes);
	m->dirty = zeroed(bytes / MUT_PAGE, 1);
	m->write_count = zeroed(c->regions, sizeof(*m->write_count));
	m->owner = zeroed(c->regions, sizeof(*m->owner));
	m->top = zeroed(c->regions, sizeof(*m->top));
	m->whole = zeroed(c->regions, sizeof(*m->whole));
	for (u32 i = 0; i < c->regions; i++)
		m->owner[i] = i < c->donors || i >= c->regions - c->spare ?
				      i % c->donors :
				      mut_below(m, c->donors);
	m->types = zeroed(16, sizeof(*m->types));
	m->runs = zeroed(128, sizeof(*m->runs));
	mut_types_make(m);
	m->at_unit = map(bytes / 8 * sizeof(*m->at_unit));
	m->objects = map(bytes / 16 * sizeof(*m->objects));
	m->roots = zeroed(c->roots, sizeof(*m->roots));
	return m;
}

void mut_free(struct mut *m)
{
	u64 bytes = m->l.bytes;

	munmap(m->host, bytes);
	munmap(m->donors, bytes);
	munmap(m->at_unit, bytes / 8 * sizeof(*m->at_unit));
	munmap(m->objects, bytes / 16 * sizeof(*m->objects));
	free(m->dirty);
	free(m->write_count);
	free(m->owner);
	free(m->top);
	free(m->whole);
	free(m->types);
	free(m->runs);
	free(m->roots);
	free(m->satb);
	free(m->usable);
	free(m);
}

static void dirty(struct mut *m, u64 at, u64 bytes)
{
	for (u64 p = at / MUT_PAGE; p <= (at + bytes - 1) / MUT_PAGE; p++)
		m->dirty[p] = 1;
}

/* Room for @bytes in some region: its offset there. */
static bool room(struct mut *m, u64 bytes, u64 *at)
{
	u32 tries = 0, regions = m->c.regions - m->c.spare - m->c.whole;

	if (!mut_below(m, 16))
		m->current = mut_below(m, regions);
	while (m->l.region_bytes - m->top[m->current] < bytes) {
		m->current = (m->current + 1) % regions;
		if (++tries > regions)
			return false;
	}
	*at = m->current * m->l.region_bytes + m->top[m->current];
	m->top[m->current] += bytes;
	return true;
}

static void header_write(struct mut *m, const struct mut_object *o)
{
	u8 *p = m->host + o->at;
	const struct mut_type *t = &m->types[o->type];
	u64 field = 0, mask = (u64)m->l.type_mask << m->l.type_shift;

	memcpy(&field, p + m->l.type_offset, m->l.type_bytes);
	field = le64toh(field);
	field &= ~mask;
	field |= (u64)le32toh(t->le.id) << m->l.type_shift;
	field = htole64(field);
	memcpy(p + m->l.type_offset, &field, m->l.type_bytes);
	if (t->length_offset) {
		u32 n = htole32(o->length);

		memcpy(p + t->length_offset, &n, t->le.length_bytes);
	}
	if (t->size_offset) {
		u32 n = htole32((u32)(o->bytes >> t->shift));

		memcpy(p + t->size_offset, &n, 4);
	}
}

static u32 object_new(struct mut *m, struct mut_object o)
{
	const struct mut_type *t = &m->types[o.type];

	for (u64 i = 0; i < o.bytes; i += 8) {
		u64 noise = mut_rand(m);

		memcpy(m->host + o.at + i, &noise, 8);
	}
	header_write(m, &o);
	m->objects[m->nr_objects] = o;
	m->at_unit[o.at / 8] = ++m->nr_objects;
	for (u64 i = 0; i < mut_slots(m, &o); i++)
		memset(m->host + mut_slot(m, &o, i), 0, m->c.ref_bytes);
	if (t->referent)
		memset(m->host + o.at + t->referent, 0, m->c.ref_bytes);
	dirty(m, o.at, o.bytes);
	if (m->usable)
		m->usable[m->nr_usable++] = m->nr_objects - 1;
	return m->nr_objects - 1;
}

u32 mut_alloc_whole(struct mut *m, bool refs, u32 length)
{
	u32 end = m->c.regions - m->c.spare, first = end - m->c.whole, n;
	const struct mut_type *t = m->types;
	struct mut_object o = { .length = length };
	u64 size = m->l.region_bytes;

	while (t->kind != (refs ? VIRTIO_GC_REFS : VIRTIO_GC_DATA))
		t++;
	o.type = (u32)(t - m->types);
	o.bytes = t->first + (u64)length * (refs ? m->c.ref_bytes : 1);
	o.bytes = (o.bytes + 7) & ~7ull;
	n = (u32)((o.bytes + size - 1) / size);
	while (first < end && m->top[first])
		first++;
	if (n > end - first)
		return U32_MAX;
	o.at = first * size;
	for (u32 i = 0; i < n; i++) {
		m->top[first + i] = i + 1 < n ? size : o.bytes - i * size;
		m->whole[first + i] = i ? MUT_BEHIND : MUT_WHOLE;
	}
	return object_new(m, o);
}

bool mut_is_whole(const struct mut *m, const struct mut_object *o)
{
	return m->whole[o->at / m->l.region_bytes] != MUT_PARTS;
}

u32 mut_alloc(struct mut *m, u32 type, u32 length)
{
	u32 n = type == U32_MAX ? mut_below(m, m->nr_types) : type;
	const struct mut_type *t = &m->types[n];
	struct mut_object o = { .type = n, .length = length };

	if (t->kind == VIRTIO_GC_FIXED) {
		o.length = 0;
		o.bytes = t->bytes;
	} else if (t->kind == VIRTIO_GC_DATA) {
		o.bytes = t->first + ((u64)length << t->shift);
		o.bytes = (o.bytes + 7) & ~7ull;
		for (u32 bits = 0; bits < length * t->tail; bits += 64)
			o.bytes += 8;
	} else {
		o.bytes = t->first + (u64)length * m->c.ref_bytes;
		if (t->kind == VIRTIO_GC_SELF)
			o.bytes += 8 * mut_below(m, 4);
	}
	o.bytes = (o.bytes + 7) & ~7ull;
	return room(m, o.bytes, &o.at) ? object_new(m, o) : U32_MAX;
}

u64 mut_slots(const struct mut *m, const struct mut_object *o)
{
	const struct mut_type *t = &m->types[o->type];

	return t->nr_slots + (t->kind == VIRTIO_GC_DATA ? 0 : o->length);
}

u64 mut_slot(const struct mut *m, const struct mut_object *o, u64 i)
{
	const struct mut_type *t = &m->types[o->type];

	return o->at + (i < t->nr_slots ?
				t->slot[i] :
				t->first + (i - t->nr_slots) * m->c.ref_bytes);
}

u64 mut_ref(const struct mut *m, u64 offset)
{
	return offset == MUT_NULL ? 0 :
				    (m->l.address + offset - m->l.ref_base) >>
					    m->l.ref_shift;
}

u64 mut_read(const struct mut *m, u64 slot)
{
	u64 r = 0;

	memcpy(&r, m->host + slot, m->c.ref_bytes);
	r = le64toh(r);
	return r ? m->l.ref_base + (r << m->l.ref_shift) - m->l.address :
		   MUT_NULL;
}

void mut_write(struct mut *m, u64 slot, u64 offset)
{
	u64 old = mut_read(m, slot), r = htole64(mut_ref(m, offset));

	if (m->satb && old != MUT_NULL) {
		assert(m->nr_satb < m->satb_max);
		m->satb[m->nr_satb++] = htole64(m->l.address + old);
	}
	memcpy(m->host + slot, &r, m->c.ref_bytes);
	dirty(m, slot, m->c.ref_bytes);
}

void mut_clear(struct mut *m, const struct mut_object *o)
{
	for (u64 s = 0; s < mut_slots(m, o); s++)
		mut_write(m, mut_slot(m, o, s), MUT_NULL);
}

void mut_opaque_clear(struct mut *m)
{
	for (u32 i = 0; i < m->nr_objects; i++)
		if (m->types[m->objects[i].type].flags & VIRTIO_GC_TYPE_OPAQUE)
			mut_clear(m, &m->objects[i]);
}

/* Some object the program knows, or null. */
static u64 any(struct mut *m)
{
	u32 n = m->usable ? m->nr_usable : m->nr_objects, i;

	if (!n || !mut_below(m, 8))
		return MUT_NULL;
	i = mut_below(m, n);
	return m->objects[m->usable ? m->usable[i] : i].at;
}

static u64 target(struct mut *m, u32 object, u64 slot)
{
	u32 n = m->nr_objects;

	switch (m->c.shape) {
	case MUT_LIST:
		return slot || object + 1 == n ? MUT_NULL :
						 m->objects[object + 1].at;
	case MUT_TREE:
		return object * 2ull + slot + 1 < n && slot < 2 ?
			       m->objects[object * 2 + slot + 1].at :
			       MUT_NULL;
	case MUT_HUBS:
		return m->objects[mut_below(m, mut_below(m, 3) ? 1 + n / 64 : n)]
			.at;
	default:
		return mut_below(m, 2) ? any(m) : MUT_NULL;
	}
}

/* Objects of one and of two regions, of less than one and of nearly all. */
static void wholes_fill(struct mut *m, bool chain)
{
	for (;;) {
		bool refs = chain || mut_below(m, 2);
		u32 n = mut_below(m, (u32)m->l.region_bytes * 2) + 1;

		if (mut_alloc_whole(m, refs,
				    refs ? n / m->c.ref_bytes + 2 : n) ==
		    U32_MAX)
			break;
	}
}

void mut_fill(struct mut *m)
{
	bool chain = m->c.shape == MUT_LIST || m->c.shape == MUT_TREE;

	for (u32 i = 0; i < m->c.objects; i++) {
		/* every object of a chain has references, or the chain would end */
		u32 type = chain ? 1 + mut_below(m, 4) : U32_MAX;

		if (mut_alloc(m, type,
			      mut_below(m, 20) ?
				      mut_below(m, 8) :
				      mut_below(m, m->c.array_max)) == U32_MAX)
			break;
	}
	wholes_fill(m, chain);
	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];
		bool sparse = !chain && mut_is_whole(m, o);
		u32 referent = m->types[o->type].referent;

		for (u64 s = 0; s < mut_slots(m, o); s++)
			if (!sparse || !mut_below(m, 128))
				mut_write(m, mut_slot(m, o, s),
					  target(m, i, s));
		if (referent)
			mut_write(m, o->at + referent, any(m));
	}
	for (m->nr_roots = 0; m->nr_roots < m->c.roots; m->nr_roots++)
		m->roots[m->nr_roots] =
			chain && !m->nr_roots ? m->objects[0].at : any(m);
}

void mut_evict(struct mut *m, u64 page)
{
	u64 *from = (u64 *)(m->host + page * MUT_PAGE);
	u64 *to = (u64 *)(m->donors + page * MUT_PAGE);
	u32 *count = &m->write_count[page * MUT_PAGE / m->l.region_bytes];

	if (!m->dirty[page])
		return;
	__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	for (u32 i = 0; i < MUT_PAGE / 8; i++)
		WRITE_ONCE(to[i], from[i]);
	__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	m->dirty[page] = 0;
}

void mut_clean(struct mut *m)
{
	for (u64 p = 0; p < m->l.bytes / MUT_PAGE; p++)
		mut_evict(m, p);
}

void mut_invalidate(struct mut *m)
{
	memcpy(m->host, m->donors, m->l.bytes);
	memset(m->dirty, 0, m->l.bytes / MUT_PAGE);
}

void mut_run(struct mut *m, const u8 *live)
{
	m->usable = zeroed(m->l.bytes / 16, sizeof(*m->usable));
	for (u32 i = 0; i < m->nr_objects; i++)
		if (live[i])
			m->usable[m->nr_usable++] = i;
}

void mut_step(struct mut *m, bool allocate)
{
	u64 pages = m->l.bytes / MUT_PAGE;

	for (u32 i = 0; i < 16 && m->nr_usable; i++) {
		const struct mut_object *o =
			&m->objects[m->usable[mut_below(m, m->nr_usable)]];
		u64 slots = mut_slots(m, o);
		u64 to = any(m);

		if (allocate && !mut_below(m, 4)) {
			u32 n = mut_alloc(m, U32_MAX, mut_below(m, 8));

			to = n == U32_MAX ? to : m->objects[n].at;
		}
		if (slots)
			mut_write(m, mut_slot(m, o, mut_rand(m) % slots), to);
		if (!mut_below(m, 8))
			m->roots[mut_below(m, m->nr_roots)] = any(m);
	}
	for (u32 i = 0; i < 4; i++)
		mut_evict(m, mut_rand(m) % pages);
}

void mut_trace(const struct mut *m, u8 *live, const u64 *tops)
{
	u32 *queue = zeroed(m->nr_objects, sizeof(*queue)), n = 0;

	memset(live, 0, m->nr_objects);
	for (u32 i = 0; i < m->nr_roots + n; i++) {
		const struct mut_object *o = NULL;
		u64 slots = 1;

		if (i >= m->nr_roots) {
			o = &m->objects[queue[i - m->nr_roots]];
			slots = mut_slots(m, o);
		}
		for (u64 s = 0; s < slots; s++) {
			u64 at = o ? mut_read(m, mut_slot(m, o, s)) :
				     m->roots[i];
			u32 to;

			if (at == MUT_NULL ||
			    (tops && at % m->l.region_bytes >=
					     tops[at / m->l.region_bytes]))
				continue;
			to = m->at_unit[at / 8] - 1;
			assert(to < m->nr_objects);
			if (live[to])
				continue;
			live[to] = 1;
			queue[n++] = to;
		}
	}
	free(queue);
}
