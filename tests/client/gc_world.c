// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_world.c - a heap on three donors; see gc_world.h */
#include <dirent.h>
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "gc_world.h"

static bool op_place(void *arg, u32 space, u32 region,
		     struct dcm_gc_place_of *place)
{
	struct world *w = arg;
	u32 d = w->m->owner[region];

	assert_int_equal(space, 3);
	*place = (struct dcm_gc_place_of){
		.donor = w->slab[d]->donor,
		.slab = w->slab[d]->ref.id,
		.offset = w->at[region],
	};
	return !w->nowhere[region];
}

static void op_bits(void *arg, u32 space, u64 at, const void *bits,
		    size_t bytes)
{
	struct world *w = arg;

	assert_int_equal(space, 3);
	assert_true(at >= w->bits_at);
	at -= w->bits_at;
	assert_true(at + bytes <= w->m->l.bytes / 64);
	memcpy(w->bits + at, bits, bytes);
}

static bool op_write_count(void *arg, u32 space, u32 region,
		   const struct dcm_gc_place_of *place, u32 *count)
{
	struct world *w = arg;

	assert_int_equal(space, 3);
	(void)region;
	*count = dcm_client_write_count(w->h.client, place->donor, place->slab,
			      place->offset, w->m->l.region_bytes);
	return true;
}

/* No region has copies: what a worker did is there, or is not known. */
static u32 op_spread(void *arg, u32 space, u32 region, u32 n, u64 until_ms)
{
	const struct world *w = arg;

	assert_int_equal(space, 3);
	assert_true(n && region + n <= w->m->l.bytes / w->m->l.region_bytes);
	assert_true(until_ms);
	return VIRTIO_GC_OK;
}

static void op_revert(void *arg, u32 space, u32 region, u32 n, bool keep)
{
	(void)keep;
	op_spread(arg, space, region, n, 1);
}

static bool op_moved(void *arg, u32 n)
{
	struct world *w = arg;

	w->told = n;
	return !w->deaf;
}

static bool op_cancelled(void *arg)
{
	struct world *w = arg;

	if (w->kill_at && !--w->kill_at)
		w->kill(w);
	return w->cancel || (w->cancel_at && !--w->cancel_at);
}

static const struct dcm_gc_workers_ops workers_ops = {
	.place = op_place,
	.write_count = op_write_count,
	.spread = op_spread,
	.revert = op_revert,
	.moved = op_moved,
	.bits = op_bits,
	.cancelled = op_cancelled,
};

u32 request(struct world *w, u16 command, u16 flags, u32 epoch, u32 count,
	    const void *body, size_t body_bytes, const void *entries,
	    size_t bytes)
{
	const struct dcm_gc_limits limits = {
		.features = ~w->without,
		.spaces_max = DCM_GC_SPACES_MAX,
		.request_max = DCM_WIRE_PAYLOAD_MAX,
		.response_max = DCM_GC_REPLY_MAX,
	};
	static u64 buf[DCM_WIRE_PAYLOAD_MAX / 8];
	struct virtio_gc_req req = {
		.command = htole16(command),
		.flags = htole16(flags),
		.space = htole32(3 + w->beside),
		.epoch = htole32(epoch),
		.count = htole32(count),
	};
	size_t got, len = mut_request_le(buf, sizeof(buf), req, body,
					 body_bytes, entries, bytes);
	struct dcm_gc_request r;

	assert_true(len);
	assert_int_equal(dcm_gc_request_read(buf, len, sizeof(w->out), &limits,
					     &r),
			 0);
	/* again if places are new; nothing has to be synced here */
	for (u32 i = 0; i < 2; i++) {
		dcm_gc_workers_do(w->workers, &r, buf, len,
				  now_ms() + (w->deadline_ms ? w->deadline_ms :
							       20000),
				  &w->out);
		if (w->out.done.status != DCM_GC_WORKERS_MOVING)
			break;
	}
	got = dcm_gc_reply_pack(&w->out, r.answer_entry);
	assert_in_range(got, sizeof(w->out.le), r.answer_bytes);
	return w->out.done.status;
}

void heap_io(struct world *w, enum dcm_io_op op)
{
	for (u32 r = 0; r < w->m->c.regions; r++)
		assert_int_equal(io(&w->h, w->slab[w->m->owner[r]], op,
				    w->at[r], REGION,
				    w->m->donors + (u64)r * REGION),
				 0);
}

void world_heap(struct world *w, u32 i)
{
	struct mut_config c = {
		.seed = 20261121 + i,
		.regions = 20,
		.spare = 6,
		.whole = i == 6 ? 5 : 0,
		.region_bytes = REGION,
		.donors = DONORS,
		.ref_bytes = i & 1 ? 8 : 4,
		.header = i,
		.shape = (enum mut_shape)(i % MUT_SHAPES),
		.objects = 3000,
		.roots = 12,
		.array_max = 200,
	};
	u64 next[DONORS] = { 0 };

	w->m = mut_new(&c);
	for (u32 r = 0; r < c.regions; r++) {
		w->at[r] = next[w->m->owner[r]];
		next[w->m->owner[r]] += REGION;
	}
	mut_fill(w->m);
	/* an opaque object's references are its own business */
	if (i % 2)
		mut_opaque_clear(w->m);
	mut_clean(w->m);
	heap_io(w, DCM_IO_WRITE);
	w->live = calloc(w->m->nr_objects, 1);
	w->bits = calloc(w->m->l.bytes / 64, 1);
	assert_true(w->live && w->bits);
	mut_trace(w->m, w->live, NULL);
	w->workers =
		dcm_gc_workers_new(w->h.client, 64u << 20, &workers_ops, w);
	assert_non_null(w->workers);
}

void world_heap_free(struct world *w)
{
	dcm_gc_workers_free(w->workers);
	mut_free(w->m);
	free(w->live);
	free(w->bits);
}

void world_donors_of(struct world *w, bool local, const char *const *opts)
{
	char path[128], address[160];

	memset(w, 0, sizeof(*w));
	for (u32 d = 0; d < DONORS; d++) {
		snprintf(path, sizeof(path), "%s/gc%u.sock", host_dir, d);
		donor_start(&w->donor[d], local ? path : NULL, local ? -1 : 0,
			    host_keys, opts);
		snprintf(address, sizeof(address), "unix:%s", path);
		host_donor(&w->h, "d", local ? address : w->donor[d].tcp);
	}
	host_start(&w->h);
	assert_int_equal(dcm_client_extent_bytes(w->h.client, 10000), SLAB);
	for (u32 d = 0; d < DONORS; d++)
		WAIT(status(&w->h, d).state == DCM_DONOR_UP);
	/* until each donor has lent a slab: the test decides which donor gets which region */
	for (u32 e = 0; e < 32; e++) {
		want(&w->h, e, e + 1);
		WAIT(get(&w->h, &w->h.attached) == e + 1);
		w->slab[w->h.slab[e]->donor] = w->h.slab[e];
	}
	for (u32 d = 0; d < DONORS; d++)
		assert_non_null(w->slab[d]);
}

void world_donors(struct world *w, bool local)
{
	world_donors_of(w, local, donor_small);
}

void world_donors_end(struct world *w)
{
	host_stop(&w->h);
	for (u32 d = 0; d < DONORS; d++)
		donor_end(&w->donor[d]);
}

void space_make(struct world *w)
{
	const struct mut *m = w->m;
	struct virtio_gc_space space = mut_space_le(m);
	struct virtio_gc_types types = { .runs = htole32(m->nr_runs) };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n = mut_types_le(m, bytes);

	assert_int_equal(request(w, VIRTIO_GC_SPACE_CREATE, 0, 0, 0, &space,
				 sizeof(space), NULL, 0),
			 0);
	assert_int_equal(request(w, VIRTIO_GC_TYPES_ADD, 0, 0, m->nr_types,
				 &types, sizeof(types), bytes, n),
			 0);
	/* twice the same: nothing is added */
	assert_int_equal(request(w, VIRTIO_GC_TYPES_ADD, 0, 0, m->nr_types,
				 &types, sizeof(types), bytes, n),
			 VIRTIO_GC_INVALID);
}

u32 trace_begin(struct world *w, u32 epoch, u16 flags)
{
	const struct mut *m = w->m;
	struct virtio_gc_region list[64];
	u32 n = mut_regions_le(m, list);

	return request(w, VIRTIO_GC_TRACE_START, flags, epoch, n, NULL, 0, list,
		       n * sizeof(*list));
}

u32 trace_start(struct world *w, u32 epoch)
{
	return trace_begin(w, epoch, 0);
}

u32 roots_send(struct world *w, u32 epoch)
{
	const struct mut *m = w->m;
	__le64 roots[64];

	assert_true(m->nr_roots <= 64);
	mut_roots_le(m, roots);
	return request(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch, m->nr_roots, NULL, 0,
		       roots, m->nr_roots * sizeof(*roots));
}

/* Read the opaque objects that wait and send their references; their number. */
static u32 opaques_scan(struct world *w, u32 epoch, u32 *status)
{
	struct virtio_gc_met met = { .max = htole32(16) };
	const struct mut *m = w->m;
	__le64 at[16];
	u32 n;

	*status = request(w, VIRTIO_GC_TRACE_MET, VIRTIO_GC_MET_WAIT, epoch, 0,
			  &met, sizeof(met), NULL, 0);
	n = *status ? 0 : w->out.done.count;
	assert_true(n <= 16);
	memcpy(at, w->out.entries, n * sizeof(*at));
	for (u32 i = 0; !*status && i < n; i++) {
		u64 unit = (le64toh(at[i]) - m->l.address) / 8;
		const struct mut_object *o = &m->objects[m->at_unit[unit] - 1];
		u64 slots = mut_slots(m, o);
		__le64 *roots = calloc(slots + 1, sizeof(*roots));

		assert_non_null(roots);
		if (mut_is_whole(m, o) && slots) {
			const struct virtio_gc_refs refs = {
				mut_address_le(m, mut_slot(m, o, 0)),
				htole64(slots),
			};

			free(roots);
			*status = request(w, VIRTIO_GC_TRACE_ROOTS,
					  VIRTIO_GC_RANGES, epoch, 1, NULL, 0,
					  &refs, sizeof(refs));
			continue;
		}
		mut_slots_le(m, o, roots);
		for (u64 s = 0, k; !*status && s < slots; s += k) {
			k = min(slots - s, 4096ul);
			*status = request(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch,
					  (u32)k, NULL, 0, roots + s, k * 8);
		}
		free(roots);
	}
	return n;
}

u32 trace_finish(struct world *w, u32 epoch)
{
	u32 status;

	for (;;) {
		status = request(w, VIRTIO_GC_TRACE_FINISH, 0, epoch, 0, NULL,
				 0, NULL, 0);
		if (status != VIRTIO_GC_MET)
			return status;
		opaques_scan(w, epoch, &status);
		if (status)
			return status;
	}
}

u32 trace(struct world *w, u32 epoch)
{
	u32 status = trace_start(w, epoch);

	if (!status)
		status = roots_send(w, epoch);
	return status ? status : trace_finish(w, epoch);
}

void world_tracing(struct world *w)
{
	world_donors(w, false);
	world_heap(w, 2);
	space_make(w);
	assert_int_equal(trace(w, 1), 0);
	assert_int_equal(trace_start(w, 2), 0);
	assert_int_equal(roots_send(w, 2), 0);
}

void results_check(struct world *w, u32 epoch)
{
	const struct mut *m = w->m;
	u32 last = m->c.regions - 1;
	struct virtio_gc_range range = {
		.regions = htole32(m->c.regions),
		.bitmaps = htole64((u64)last * REGION),
	};
	const struct virtio_gc_live *l = (void *)w->out.entries;
	u64 objects = 0, bytes = 0;

	/* a spare region: nothing of the trace is there */
	w->bits_at = (u64)last * REGION;
	memset(w->bits, 0xa5, m->l.bytes / 64);
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 0);
	assert_int_equal(w->out.done.count, m->c.regions);
	for (u32 r = 0; r < m->c.regions; r++) {
		assert_int_equal(le32toh(l[r].region), r);
		assert_int_equal(le32toh(l[r].status), 0);
		objects += le64toh(l[r].objects);
		bytes += le64toh(l[r].bytes);
	}
	for (u32 o = 0; o < m->nr_objects; o++) {
		objects -= w->live[o];
		/* one that no worker reads counts without bytes [VGC-D-54] */
		if (w->live[o] && !mut_is_whole(m, &m->objects[o]))
			bytes -= m->objects[o].bytes;
	}
	assert_int_equal(objects, 0);
	assert_int_equal(bytes, 0);
	for (u64 u = 0; u < m->l.bytes / 8; u++) {
		u32 o = m->at_unit[u];

		assert_int_equal(w->bits[u / 8] >> u % 8 & 1,
				 o ? w->live[o - 1] : 0);
	}
	/* the same in the answer */
	range.bitmaps = htole64(REGION / 64);
	assert_int_equal(request(w, VIRTIO_GC_TRACE_BITMAPS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 0);
	/* [VGC-D-65] */
	assert_int_equal(w->out.done.count, m->c.regions * (REGION / 64));
	assert_memory_equal(w->out.entries, w->bits, w->out.done.count);
	range.first = htole32(1);
	assert_int_equal(request(w, VIRTIO_GC_TRACE_BITMAPS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
	range.first = 0;
	range.bitmaps = htole64(REGION / 64 - 8);
	/* [VGC-D-65] */
	assert_int_equal(request(w, VIRTIO_GC_TRACE_BITMAPS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
	/* bitmaps must not go where the trace's objects are [VGC-D-35] */
	range.bitmaps = 0;
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
	range.bitmaps = htole64(m->l.bytes - 8);
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
}

u32 workers(const struct world *w, u32 d, pid_t *pids)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	u32 n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir))) {
		char path[300], text[512] = "", *p;
		int ppid = 0;
		char state = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ?
			    fopen(path, "re") :
			    NULL;
		if (!f)
			continue;
		p = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
		fclose(f);
		if (!p || sscanf(p + 1, " %c %d", &state, &ppid) != 2 ||
		    ppid != w->donor[d].pid || state == 'Z')
			continue;
		if (n < 8)
			pids[n++] = (pid_t)atoi(e->d_name);
	}
	closedir(dir);
	return n;
}

pid_t worker_of(const struct world *w, u32 d)
{
	pid_t pids[8];

	assert_int_equal(workers(w, d, pids), 1);
	return pids[0];
}

void no_workers(const struct world *w, u32 d)
{
	pid_t pids[8];

	WAIT(!workers(w, d, pids));
}

void spares_choose(const struct world *w, u32 from, u32 *same, u32 *table,
		   u32 *other)
{
	const struct mut *m = w->m;

	*same = *table = *other = 0;
	for (u32 r = m->c.regions - m->c.spare; r < m->c.regions; r++) {
		if (m->owner[r] != m->owner[from])
			*other = r;
		else if (!*same)
			*same = r;
		else
			*table = r;
	}
	assert_true(*same && *other && *table);
}

struct virtio_gc_move move_of(u32 from, u32 to, u32 table)
{
	return (struct virtio_gc_move){
		.from = htole32(from),
		.to = htole32(to),
		.start = htole64((u64)to * REGION),
		.table = htole64((u64)table * REGION),
		.table_bytes = htole64(REGION),
	};
}
