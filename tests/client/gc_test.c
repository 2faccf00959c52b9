// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_test.c - a host has its donors collect: real donors, real workers
 *
 * tests/gc's runtime fills a heap; it is written to slabs the way a pager does,
 * over tcp or into shm. What the team of workers says is compared with what the
 * runtime's own collector finds. Workers and donors are killed and stopped
 * meanwhile: a status, and the next trace is right.
 */
#include <dirent.h>
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../kvm-dcm/user/gc_team.h"
#include "../gc/mutator.h"
#include "donor.h"
#include "host.h"

#define REGION	(64u << 10)
#define DONORS	3u

static const char *const options[] = {
	"--capacity", "64M",	       "--slab-size", "2M", "--head-room",
	"0",	      "--spare-slabs", "0",	      NULL
};

/* A heap on donors. */
struct world {
	struct host h;
	struct donor donor[DONORS];
	struct mut *m;
	struct dcm_gc_team *team;
	struct dcm_ctl_slab *slab[DONORS];
	u64 at[64];		/* of each region, in its slab */
	u8 *live;
	u8 *bits;		/* live bitmaps, as they came */
	u64 bits_at;
	bool cancel;
	u32 cancel_at;		/* the so-manieth look finds it cancelled */
	u32 beside;		/* requests are about so many spaces behind */
	bool nowhere[64];	/* regions between two places, or on none */
	u64 deadline_ms;
	struct dcm_gc_reply out;
};

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

static bool op_tag(void *arg, u32 space, u32 region,
		   const struct dcm_gc_place_of *place, u32 *tag)
{
	struct world *w = arg;

	assert_int_equal(space, 3);
	(void)region;
	*tag = dcm_ctl_tag(w->h.ctl, place->donor, place->slab, place->offset,
			   w->m->l.region_bytes);
	return true;
}

static bool op_cancelled(void *arg)
{
	struct world *w = arg;

	return w->cancel || (w->cancel_at && !--w->cancel_at);
}

static const struct dcm_gc_team_ops team_ops = {
	.place = op_place,
	.tag = op_tag,
	.bits = op_bits,
	.cancelled = op_cancelled,
};

/* A request as a device would hand it on. */
static u32 request(struct world *w, u16 command, u16 flags, u32 epoch,
		   u32 count, const void *body, size_t body_bytes,
		   const void *entries, size_t bytes)
{
	static const struct dcm_gc_limits limits = {
		.features = 15,
		.spaces_max = DCM_GC_TEAM_SPACES,
		.request_max = DCM_WIRE_PAYLOAD_MAX,
		.response_max = DCM_GC_TEAM_REPLY,
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
	/* again if places are new; nothing has to be settled here */
	for (u32 i = 0; i < 2; i++) {
		got = dcm_gc_team_do(w->team, &r, buf, len,
				     now_ms() + (w->deadline_ms ?
							 w->deadline_ms :
							 20000),
				     &w->out);
		if (le32toh(w->out.done.status) != DCM_GC_TEAM_MOVING)
			break;
	}
	assert_in_range(got, sizeof(w->out.done), r.answer_bytes);
	return le32toh(w->out.done.status);
}

/* Every region as the runtime's write-backs left it, or back from there. */
static void heap_io(struct world *w, enum dcm_io_op op)
{
	for (u32 r = 0; r < w->m->c.regions; r++)
		assert_int_equal(io(&w->h, w->slab[w->m->owner[r]], op,
				    w->at[r], REGION,
				    w->m->donors + (u64)r * REGION),
				 0);
}

static void world_heap(struct world *w, u32 i)
{
	struct mut_config c = {
		.seed = 20261121 + i,
		.regions = 20,
		.spare = 6,
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
	for (u32 o = 0; i % 2 && o < w->m->nr_objects; o++) {
		const struct mut_object *obj = &w->m->objects[o];

		for (u64 s = 0;
		     w->m->types[obj->type].flags & VIRTIO_GC_TYPE_OPAQUE &&
		     s < mut_slots(w->m, obj);
		     s++)
			mut_write(w->m, mut_slot(w->m, obj, s), MUT_NULL);
	}
	mut_clean(w->m);
	heap_io(w, DCM_IO_WRITE);
	w->live = calloc(w->m->nr_objects, 1);
	w->bits = calloc(w->m->l.bytes / 64, 1);
	assert_true(w->live && w->bits);
	mut_trace(w->m, w->live, NULL);
	w->team = dcm_gc_team_new(w->h.ctl, 64u << 20, &team_ops, w);
	assert_non_null(w->team);
}

static void world_heap_free(struct world *w)
{
	dcm_gc_team_free(w->team);
	mut_free(w->m);
	free(w->live);
	free(w->bits);
}

static void world_donors(struct world *w, bool local)
{
	char path[128], address[160];

	memset(w, 0, sizeof(*w));
	for (u32 d = 0; d < DONORS; d++) {
		snprintf(path, sizeof(path), "%s/gc%u.sock", host_dir, d);
		donor_start(&w->donor[d], local ? path : NULL, local ? -1 : 0,
			    host_keys, options);
		snprintf(address, sizeof(address), "unix:%s", path);
		host_donor(&w->h, "d", local ? address : w->donor[d].tcp);
	}
	host_start(&w->h);
	assert_int_equal(dcm_ctl_extent_bytes(w->h.ctl, 10000), SLAB);
	for (u32 d = 0; d < DONORS; d++)
		WAIT(status(&w->h, d).state == DCM_DONOR_UP);
	/* until each has lent one: who owns what is the runtime's to say */
	for (u32 e = 0; e < 32; e++) {
		want(&w->h, e, e + 1);
		WAIT(get(&w->h, &w->h.attached) == e + 1);
		w->slab[w->h.slab[e]->donor] = w->h.slab[e];
	}
	for (u32 d = 0; d < DONORS; d++)
		assert_non_null(w->slab[d]);
}

static void world_donors_end(struct world *w)
{
	host_stop(&w->h);
	for (u32 d = 0; d < DONORS; d++)
		donor_end(&w->donor[d]);
}

static void space_make(struct world *w)
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

static u32 trace_begin(struct world *w, u32 epoch, u16 flags)
{
	const struct mut *m = w->m;
	struct virtio_gc_region list[64] = { 0 };

	for (u32 r = 0; r < m->c.regions; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64((u64)r * REGION + m->top[r]);
	}
	return request(w, VIRTIO_GC_TRACE_START, flags, epoch, m->c.regions,
		       NULL, 0, list, m->c.regions * sizeof(*list));
}

static u32 trace_start(struct world *w, u32 epoch)
{
	return trace_begin(w, epoch, 0);
}

static u32 roots_send(struct world *w, u32 epoch)
{
	const struct mut *m = w->m;
	__le64 roots[64];

	assert_true(m->nr_roots <= 64);
	mut_roots_le(m, roots);
	return request(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch, m->nr_roots, NULL, 0,
		       roots, m->nr_roots * sizeof(*roots));
}

/* Opaque objects that wait; what they refer to is sent. How many there were. */
static u32 opaques_scan(struct world *w, u32 epoch, u32 *status)
{
	struct virtio_gc_met met = { .max = htole32(16) };
	const struct mut *m = w->m;
	__le64 at[16];
	u32 n;

	*status = request(w, VIRTIO_GC_TRACE_MET, VIRTIO_GC_MET_WAIT, epoch, 0,
			  &met, sizeof(met), NULL, 0);
	n = *status ? 0 : le32toh(w->out.done.count);
	assert_true(n <= 16);
	memcpy(at, w->out.entries, n * sizeof(*at));
	for (u32 i = 0; !*status && i < n; i++) {
		u64 unit = (le64toh(at[i]) - m->l.address) / 8;
		const struct mut_object *o = &m->objects[m->at_unit[unit] - 1];
		u64 slots = mut_slots(m, o);
		__le64 roots[256];

		assert_true(slots <= 256);
		mut_slots_le(m, o, roots);
		*status = request(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch,
				  (u32)slots, NULL, 0, roots, slots * 8);
	}
	return n;
}

static u32 trace_finish(struct world *w, u32 epoch)
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

static u32 trace(struct world *w, u32 epoch)
{
	u32 status = trace_start(w, epoch);

	if (!status)
		status = roots_send(w, epoch);
	return status ? status : trace_finish(w, epoch);
}

/* Results and bitmaps, bit by bit against the runtime's own. */
static void results_check(struct world *w, u32 epoch)
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
	assert_int_equal(le32toh(w->out.done.count), m->c.regions);
	for (u32 r = 0; r < m->c.regions; r++) {
		assert_int_equal(le32toh(l[r].region), r);
		assert_int_equal(le32toh(l[r].status), 0);
		objects += le64toh(l[r].objects);
		bytes += le64toh(l[r].bytes);
	}
	for (u32 o = 0; o < m->nr_objects; o++) {
		objects -= w->live[o];
		bytes -= w->live[o] ? m->objects[o].bytes : 0;
	}
	assert_int_equal(objects, 0);
	assert_int_equal(bytes, 0);
	for (u64 u = 0; u < m->l.bytes / 8; u++) {
		u32 o = m->at_unit[u];

		assert_int_equal(w->bits[u / 8] >> u % 8 & 1,
				 o ? w->live[o - 1] : 0);
	}
	/* where the trace's objects are they must not go [VGC-D-35] */
	range.bitmaps = 0;
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
	range.bitmaps = htole64(m->l.bytes - 8);
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 VIRTIO_GC_INVALID);
}

/* Workers of a donor: its children. */
static u32 workers(const struct world *w, u32 d, pid_t *pids)
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

static pid_t worker_of(const struct world *w, u32 d)
{
	pid_t pids[8];

	assert_int_equal(workers(w, d, pids), 1);
	return pids[0];
}

static void no_workers(const struct world *w, u32 d)
{
	pid_t pids[8];

	WAIT(!workers(w, d, pids));
}

static void trace_heaps(bool local)
{
	struct world w;

	world_donors(&w, local);
	for (u32 i = 0; i < 8; i++) {
		world_heap(&w, i);
		space_make(&w);
		for (u32 epoch = 1; epoch < 3; epoch++) {
			assert_int_equal(trace(&w, epoch), 0);
			results_check(&w, epoch);
			/* another's epoch, and the same again */
			assert_int_equal(roots_send(&w, epoch + 7),
					 VIRTIO_GC_NO_TRACE);
			assert_int_equal(trace_start(&w, epoch),
					 VIRTIO_GC_INVALID);
		}
		assert_int_equal(request(&w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0,
					 NULL, 0, NULL, 0),
				 0);
		/* the last space: no worker is left */
		for (u32 d = 0; d < DONORS; d++)
			no_workers(&w, d);
		assert_int_equal(trace_start(&w, 9), VIRTIO_GC_INVALID);
		world_heap_free(&w);
	}
	world_donors_end(&w);
}

/* [VGC-D-24] [VGC-D-26] [VGC-D-33] */
static void test_trace_tcp(void **state)
{
	(void)state;
	trace_heaps(false);
}

static void test_trace_shm(void **state)
{
	(void)state;
	trace_heaps(true);
}

/* As much is alive afterwards, in fewer regions, and the roots lead there. */
static void test_compact(void **state)
{
	u64 moves = 0;
	struct world w;

	(void)state;
	world_donors(&w, false);
	for (u32 i = 1; i < 8; i += 2) {
		struct virtio_gc_region list[64] = { 0 };
		struct virtio_gc_moved moved[64];
		struct virtio_gc_area area;
		u64 objects = 0, bytes = 0;
		u32 n, regions;
		__le64 a[64];
		struct mut *m;

		world_heap(&w, i);
		m = w.m;
		/* the last of each donor's spare regions is for tables */
		regions = m->c.regions - DONORS;
		space_make(&w);
		assert_int_equal(trace(&w, 1), 0);
		for (u32 r = 0; r < regions; r++) {
			list[r].region = htole32(r);
			list[r].top = htole64((u64)r * REGION + m->top[r]);
		}
		area.tables = htole64((u64)regions * REGION);
		area.bytes = htole64((u64)DONORS * REGION);
		assert_int_equal(request(&w, VIRTIO_GC_COMPACT, 0, 1, regions,
					 &area, sizeof(area), list,
					 regions * sizeof(*list)),
				 0);
		n = le32toh(w.out.done.count);
		assert_true(n <= 64);
		memcpy(moved, w.out.entries, n * sizeof(*moved));
		moves += n;
		mut_roots_le(m, a);
		assert_int_equal(request(&w, VIRTIO_GC_FORWARD, 0, 1,
					 m->nr_roots, NULL, 0, a,
					 m->nr_roots * 8),
				 0);
		memcpy(a, w.out.entries, m->nr_roots * 8);
		for (u32 k = 0; k < m->nr_roots; k++) {
			assert_int_equal(!a[k], m->roots[k] == MUT_NULL);
			if (a[k])
				m->roots[k] = le64toh(a[k]) - m->l.address;
		}
		for (u32 k = 0; k < n; k++) {
			u32 to = le32toh(moved[k].to);

			assert_int_equal(le32toh(moved[k].status), 0);
			m->top[to] = le64toh(moved[k].end) - (u64)to * REGION;
			m->top[le32toh(moved[k].from)] = 0;
			list[k].region = moved[k].from;
			list[k].top = 0;
		}
		/* the from-regions are no one's any more */
		assert_int_equal(request(&w, VIRTIO_GC_RELEASE, 0, 1, n, NULL,
					 0, list, n * sizeof(*list)),
				 0);
		assert_int_equal(trace_start(&w, 2), 0);
		assert_int_equal(roots_send(&w, 2), 0);
		/* nothing is at an opaque object's old place; none refers on */
		for (u32 status = VIRTIO_GC_MET; status;) {
			struct virtio_gc_met met = { .max = htole32(64) };

			status = request(&w, VIRTIO_GC_TRACE_FINISH, 0, 2, 0,
					 NULL, 0, NULL, 0);
			assert_true(!status || status == VIRTIO_GC_MET);
			if (status)
				assert_int_equal(request(&w,
							 VIRTIO_GC_TRACE_MET, 0,
							 2, 0, &met,
							 sizeof(met), NULL, 0),
						 0);
		}
		for (u32 o = 0; o < m->nr_objects; o++) {
			objects += w.live[o];
			bytes += w.live[o] ? m->objects[o].bytes : 0;
		}
		for (u32 r = 0; r < m->c.regions; r++) {
			struct virtio_gc_range range = {
				.first = htole32(r),
				.regions = htole32(1),
				.bitmaps = htole64(VIRTIO_GC_NONE),
			};
			const struct virtio_gc_live *l = (void *)w.out.entries;

			assert_int_equal(request(&w, VIRTIO_GC_TRACE_RESULTS, 0,
						 2, 0, &range, sizeof(range),
						 NULL, 0),
					 0);
			objects -= le64toh(l->objects);
			bytes -= le64toh(l->bytes);
		}
		assert_int_equal(objects, 0);
		assert_int_equal(bytes, 0);
		world_heap_free(&w);
	}
	assert_true(moves);
	world_donors_end(&w);
}

/* One region on its donor; the same to another's is refused. [VGC-D-37] */
static void test_evacuate(void **state)
{
	struct world w;
	u32 same = 0, other = 0, table = 0, from;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	assert_int_equal(trace(&w, 1), 0);
	for (from = 0; !w.m->top[from]; from++)
		;
	for (u32 r = w.m->c.regions - w.m->c.spare; r < w.m->c.regions; r++) {
		if (w.m->owner[r] != w.m->owner[from])
			other = r;
		else if (!same)
			same = r;
		else
			table = r;
	}
	assert_true(same && other && table);
	for (u32 k = 0; k < 3; k++) {
		struct virtio_gc_move move = {
			.from = htole32(from),
			.to = htole32(k ? same : other),
			.start = htole64((u64)(k ? same : other) * REGION),
			.table = htole64((u64)table * REGION),
			.table_bytes = htole64(REGION),
		};
		const struct virtio_gc_moved *moved = (void *)w.out.entries;
		static const u32 want_status[] = { VIRTIO_GC_CROSS_DONOR, 0,
						   VIRTIO_GC_INVALID };

		request(&w, VIRTIO_GC_EVACUATE, 0, 1, 1, NULL, 0, &move,
			sizeof(move));
		assert_int_equal(le32toh(w.out.done.count), 1);
		assert_int_equal(le32toh(moved->from), from);
		assert_int_equal(le32toh(moved->status), want_status[k]);
		if (!k)
			assert_int_equal(le32toh(w.out.done.status), 0);
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A live object with a reference to another in @region, and which one that is. */
static const struct mut_object *referrer(const struct world *w, u32 region,
					 u64 *slot)
{
	const struct mut *m = w->m;

	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];

		if (!w->live[i] || o->at / REGION == region ||
		    m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE)
			continue;
		for (u64 k = 0; k < mut_slots(m, o); k++) {
			*slot = mut_slot(m, o, k);
			if (mut_read(m, *slot) != MUT_NULL &&
			    mut_read(m, *slot) / REGION == region)
				return o;
		}
	}
	return NULL;
}

/*
 * A region with objects that is between two places is neither traced without
 * nor updated without: that would be OK, and its objects dead or wrong. One that
 * was empty and nowhere is updated once it is somewhere. [VGC-D-51]
 */
static void test_region_between_places(void **state)
{
	struct virtio_gc_region list[1] = { 0 };
	struct virtio_gc_move move = { 0 };
	u32 from, fresh = 0, to = 0, table = 0;
	const struct mut_object *o;
	struct world w;
	__le64 address;
	u64 slot, now;
	u8 *field;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	for (from = 0; !w.m->top[from] || !referrer(&w, from, &slot); from++)
		;
	w.nowhere[from] = true;
	assert_int_equal(trace_start(&w, 1), DCM_GC_TEAM_MOVING);
	assert_int_not_equal(roots_send(&w, 1), 0);
	w.nowhere[from] = false;

	for (u32 r = w.m->c.regions - w.m->c.spare; r < w.m->c.regions; r++) {
		if (w.m->owner[r] != w.m->owner[from])
			fresh = r;
		else if (!to)
			to = r;
		else
			table = r;
	}
	assert_true(fresh && to && table);
	w.nowhere[fresh] = true;
	assert_int_equal(trace_start(&w, 2), 0);
	assert_int_equal(roots_send(&w, 2), 0);
	/* too early, which does the trace no harm */
	w.nowhere[fresh] = false;
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 VIRTIO_GC_BUSY);
	w.nowhere[fresh] = true;
	assert_int_equal(trace_finish(&w, 2), 0);
	move.from = htole32(from);
	move.to = htole32(to);
	move.start = htole64((u64)to * REGION);
	move.table = htole64((u64)table * REGION);
	move.table_bytes = htole64(REGION);
	assert_int_equal(request(&w, VIRTIO_GC_EVACUATE, 0, 2, 1, NULL, 0,
				 &move, sizeof(move)),
			 0);
	heap_io(&w, DCM_IO_READ);

	/* the program made a copy there meanwhile */
	o = referrer(&w, from, &slot);
	field = w.m->donors + (u64)fresh * REGION;
	memcpy(field, w.m->donors + o->at, o->bytes);
	field += slot - o->at;
	heap_io(&w, DCM_IO_WRITE);
	list[0].region = htole32(fresh);
	list[0].top = htole64((u64)fresh * REGION + o->bytes);
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 VIRTIO_GC_WORKER_LOST);
	w.nowhere[fresh] = false;
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 0);
	address = mut_address_le(w.m, mut_read(w.m, slot));
	assert_int_equal(request(&w, VIRTIO_GC_FORWARD, 0, 2, 1, NULL, 0,
				 &address, sizeof(address)),
			 0);
	memcpy(&address, w.out.entries, sizeof(address));
	now = le64toh(address) - w.m->l.address;
	assert_int_equal(now / REGION, to);
	heap_io(&w, DCM_IO_READ);
	now = htole64(mut_ref(w.m, now));
	assert_memory_equal(field, &now, w.m->l.ref_bytes);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A heap traced once, and a second trace that has its roots. */
static void world_tracing(struct world *w)
{
	world_donors(w, false);
	world_heap(w, 2);
	space_make(w);
	assert_int_equal(trace(w, 1), 0);
	assert_int_equal(trace_start(w, 2), 0);
	assert_int_equal(roots_send(w, 2), 0);
}

/* Killed at any moment: a status, then the next trace is right. [VGC-D-12]
 * [VGC-D-13]
 */
static void test_worker_killed(void **state)
{
	struct world w;
	u32 noticed = 0, epoch = 1;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 2);
	space_make(&w);
	assert_int_equal(trace(&w, epoch++), 0);
	for (u32 k = 0; k < 9; k++) {
		u32 victim = k % DONORS, status;

		/* before, while roots go out, while it is finished */
		if (k / 3 == 0)
			kill(worker_of(&w, victim), SIGKILL);
		status = trace_start(&w, epoch);
		if (!status && k / 3 == 1)
			kill(worker_of(&w, victim), SIGKILL);
		if (!status)
			status = roots_send(&w, epoch);
		if (!status && k / 3 == 2)
			kill(worker_of(&w, victim), SIGKILL);
		if (!status)
			status = trace_finish(&w, epoch);
		if (status) {
			assert_int_equal(status, VIRTIO_GC_WORKER_LOST);
			assert_int_equal(le32toh(w.out.done.donor), victim);
			status = roots_send(&w, epoch);
			assert_true(status == VIRTIO_GC_WORKER_LOST ||
				    status == VIRTIO_GC_NO_TRACE);
			noticed++;
		}
		epoch++;
		assert_int_equal(trace(&w, epoch), 0);
		results_check(&w, epoch++);
	}
	assert_true(noticed >= 3);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* One that hears nothing: the deadline holds, it is killed, others go on. */
static void test_worker_stopped(void **state)
{
	struct world w;
	u64 before;
	pid_t pid;

	(void)state;
	world_tracing(&w);
	pid = worker_of(&w, 1);
	kill(pid, SIGSTOP);
	w.deadline_ms = 300;
	before = now_ms();
	assert_int_equal(trace_finish(&w, 2), VIRTIO_GC_TIMED_OUT);
	assert_true(now_ms() - before >= 300);
	assert_int_equal(le32toh(w.out.done.donor), 1);
	WAIT(kill(pid, 0));
	w.deadline_ms = 0;
	assert_int_equal(trace(&w, 3), 0);
	results_check(&w, 3);
	/* and the runtime can call it off */
	assert_int_equal(trace_start(&w, 4), 0);
	kill(worker_of(&w, 0), SIGSTOP);
	w.cancel = true;
	assert_int_equal(roots_send(&w, 4), VIRTIO_GC_CANCELLED);
	w.cancel = false;
	assert_int_equal(trace(&w, 5), 0);
	results_check(&w, 5);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* Types of another space, called off after @looks; is it over before that? */
static bool types_cancelled(struct world *w, u32 looks)
{
	struct virtio_gc_space space = mut_space_le(w->m);
	struct virtio_gc_types types = { .runs = htole32(w->m->nr_runs) };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n = mut_types_le(w->m, bytes);
	u32 status;

	w->beside = 1;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_CREATE, 0, 0, 0, &space,
				 sizeof(space), NULL, 0),
			 0);
	w->cancel_at = looks;
	status = request(w, VIRTIO_GC_TYPES_ADD, 0, 0, w->m->nr_types, &types,
			 sizeof(types), bytes, n);
	w->cancel_at = 0;
	assert_true(!status || status == VIRTIO_GC_CANCELLED);
	/* it can't be called off that a space goes */
	w->cancel = true;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0, NULL, 0,
				 NULL, 0),
			 0);
	w->cancel = false;
	w->beside = 0;
	return !status;
}

/* What one space's requests end in, at any moment, ends no other space's trace. */
static void test_others_traces_stay(void **state)
{
	struct world w;
	pid_t pid[DONORS];
	u32 looks = 0;

	(void)state;
	world_tracing(&w);
	for (u32 d = 0; d < DONORS; d++)
		pid[d] = worker_of(&w, d);
	while (!types_cancelled(&w, ++looks))
		assert_true(looks < 200);
	assert_true(looks > 1);
	assert_int_equal(trace_finish(&w, 2), 0);
	results_check(&w, 2);
	for (u32 d = 0; d < DONORS; d++)
		assert_int_equal(worker_of(&w, d), pid[d]);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A donor that is gone with what was there; workers of the others end in order. */
static void test_donor_killed(void **state)
{
	struct world w;
	u32 status;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 2);
	space_make(&w);
	assert_int_equal(trace(&w, 1), 0);
	assert_int_equal(trace_start(&w, 2), 0);
	donor_signal(&w.donor[1], SIGKILL);
	status = roots_send(&w, 2);
	if (!status)
		status = trace_finish(&w, 2);
	assert_true(status == VIRTIO_GC_WORKER_LOST ||
		    status == VIRTIO_GC_DONOR_LOST);
	assert_int_equal(le32toh(w.out.done.donor), 1);
	WAIT(get(&w.h, &w.h.losts));
	assert_int_equal(trace_start(&w, 3), VIRTIO_GC_DONOR_LOST);
	assert_int_equal(le32toh(w.out.done.donor), 1);
	dcm_gc_team_reset(w.team);
	no_workers(&w, 0);
	no_workers(&w, 2);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A heap that is none. */
static void test_bad_heap(void **state)
{
	struct world w;
	u32 status;

	(void)state;
	world_donors(&w, true);
	world_heap(&w, 2);
	space_make(&w);
	for (u64 i = 0; i < w.m->l.bytes; i++)
		w.m->donors[i] = (u8)mut_rand(w.m);
	heap_io(&w, DCM_IO_WRITE);
	for (u32 epoch = 1; epoch < 6; epoch++) {
		struct virtio_gc_range range = {
			.regions = htole32(1),
			.bitmaps = htole64(VIRTIO_GC_NONE),
		};
		const struct virtio_gc_live *live = (void *)w.out.entries;

		status = trace(&w, epoch);
		assert_true(status == VIRTIO_GC_BAD_TYPE ||
			    status == VIRTIO_GC_BAD_OBJECT ||
			    status == VIRTIO_GC_BAD_REFERENCE);
		assert_true(le64toh(w.out.done.at) != VIRTIO_GC_NONE);
		/* no results [VGC-D-29] */
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_RESULTS, 0, epoch,
					 0, &range, sizeof(range), NULL, 0),
				 0);
		assert_int_equal(le32toh(live->status), VIRTIO_GC_BUSY);
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

/* No reference leaves its region; some objects are roots instead. */
static void regions_cut(struct world *w)
{
	struct mut *m = w->m;
	u64 *roots = calloc(64, sizeof(*roots));

	assert_non_null(roots);
	memcpy(roots, m->roots, m->nr_roots * sizeof(*roots));
	free(m->roots);
	m->roots = roots;
	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *from = &m->objects[o];

		for (u64 s = 0; s < mut_slots(m, from); s++) {
			u64 slot = mut_slot(m, from, s);
			u64 to = mut_read(m, slot);

			if (to == MUT_NULL || to / REGION == from->at / REGION)
				continue;
			mut_write(m, slot, MUT_NULL);
			if (o % 7 == 0 && m->nr_roots < 64)
				roots[m->nr_roots++] = to;
		}
	}
	mut_clean(m);
	heap_io(w, DCM_IO_WRITE);
	memset(w->live, 0, m->nr_objects);
	mut_trace(m, w->live, NULL);
}

/* A page of region @r is written back: as it is, or changed beyond reading. */
static void page_write(struct world *w, u32 r, bool noise)
{
	static u8 page[PAGE];

	memcpy(page, w->m->donors + (u64)r * REGION, PAGE);
	for (u32 i = 0; noise && i < PAGE; i++)
		page[i] = (u8)(mut_rand(w->m) | 1);
	assert_int_equal(io(&w->h, w->slab[w->m->owner[r]], DCM_IO_WRITE,
			    w->at[r], PAGE, page),
			 0);
}

/* Each region's result: @stale has none, the others the runtime's own. */
static void regions_check(struct world *w, u32 epoch, u32 stale)
{
	struct virtio_gc_range range = {
		.regions = htole32(w->m->c.regions),
		.bitmaps = htole64(VIRTIO_GC_NONE),
	};
	const struct virtio_gc_live *l = (void *)w->out.entries;
	u64 objects[64] = { 0 };

	for (u32 o = 0; o < w->m->nr_objects; o++)
		objects[w->m->objects[o].at / REGION] += w->live[o];
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 0);
	for (u32 r = 0; r < w->m->c.regions; r++) {
		assert_int_equal(le32toh(l[r].status),
				 r == stale ? VIRTIO_GC_STALE : VIRTIO_GC_OK);
		if (r != stale)
			assert_int_equal(le64toh(l[r].objects), objects[r]);
	}
}

/* What has no result can't be moved. */
static void move_refused(struct world *w, u32 epoch, u32 from, u32 status)
{
	struct virtio_gc_move move = { .from = htole32(from) };
	const struct virtio_gc_moved *moved = (void *)w->out.entries;
	u32 spare = w->m->c.regions - w->m->c.spare, n = 0, to[2];

	for (u32 r = spare; n < 2 && r < w->m->c.regions; r++)
		if (w->m->owner[r] == w->m->owner[from])
			to[n++] = r;
	assert_int_equal(n, 2);
	move.to = htole32(to[0]);
	move.start = htole64((u64)to[0] * REGION);
	move.table = htole64((u64)to[1] * REGION);
	move.table_bytes = htole64(REGION);
	request(w, VIRTIO_GC_EVACUATE, 0, epoch, 1, NULL, 0, &move,
		sizeof(move));
	assert_int_equal(le32toh(w->out.done.count), 1);
	assert_int_equal(le32toh(moved->status), status);
}

/*
 * A region that is written to after its trace began is stale, the others are
 * not; without LOCAL the whole trace is, and what such a write makes of objects
 * is no bug of the runtime's. With the barrier nothing is. [VGC-D-24]
 * [VGC-D-25] [VGC-D-37]
 */
static void stale_heaps(bool local)
{
	struct world w;

	world_donors(&w, local);
	for (u32 i = 1; i < 6; i += 2) {
		u32 epoch = 1, victim, spare;

		world_heap(&w, i);
		regions_cut(&w);
		space_make(&w);
		spare = w.m->c.regions - w.m->c.spare;
		for (victim = i; !w.m->top[victim]; victim++)
			;
		assert_true(victim < spare);

		/* before it began, and where nothing is traced */
		page_write(&w, victim, false);
		assert_int_equal(trace_begin(&w, epoch, VIRTIO_GC_TRACE_LOCAL),
				 0);
		page_write(&w, spare, false);
		heap_io(&w, DCM_IO_READ);
		assert_int_equal(roots_send(&w, epoch), 0);
		assert_int_equal(trace_finish(&w, epoch), 0);
		regions_check(&w, epoch++, U32_MAX);

		/* while it is under way, early and late */
		for (u32 k = 0; k < 2; k++) {
			assert_int_equal(trace_begin(&w, epoch,
						     VIRTIO_GC_TRACE_LOCAL),
					 0);
			if (!k)
				page_write(&w, victim, false);
			assert_int_equal(roots_send(&w, epoch), 0);
			if (k)
				page_write(&w, victim, false);
			assert_int_equal(trace_finish(&w, epoch), 0);
			/* what is written now is after it */
			page_write(&w, (victim + 1) % spare, false);
			regions_check(&w, epoch, victim);
			move_refused(&w, epoch, victim, VIRTIO_GC_STALE);
			epoch++;
		}

		/* all of it, and none */
		assert_int_equal(trace_start(&w, epoch), 0);
		page_write(&w, victim, false);
		assert_int_equal(roots_send(&w, epoch), 0);
		assert_int_equal(trace_finish(&w, epoch), VIRTIO_GC_STALE);
		move_refused(&w, epoch, victim, VIRTIO_GC_BUSY);
		epoch++;
		assert_int_equal(trace_begin(&w, epoch,
					     VIRTIO_GC_TRACE_CONCURRENT),
				 0);
		page_write(&w, victim, false);
		assert_int_equal(roots_send(&w, epoch), 0);
		assert_int_equal(trace_finish(&w, epoch), 0);
		regions_check(&w, epoch++, U32_MAX);

		/* what was traced is no heap any more: not the runtime's fault */
		victim = (u32)(mut_root(w.m) / REGION);
		for (u32 k = 0; k < 2; k++) {
			assert_int_equal(trace_begin(&w, epoch,
						     k ? VIRTIO_GC_TRACE_LOCAL :
							 0),
					 0);
			for (u32 page = 0; page < REGION / PAGE; page++) {
				w.at[victim] += page * PAGE;
				page_write(&w, victim, true);
				w.at[victim] -= page * PAGE;
			}
			assert_int_equal(roots_send(&w, epoch), 0);
			assert_int_equal(trace_finish(&w, epoch),
					 VIRTIO_GC_STALE);
			epoch++;
			heap_io(&w, DCM_IO_WRITE);
		}
		/* and the next one is right */
		assert_int_equal(trace(&w, epoch), 0);
		results_check(&w, epoch);
		assert_int_equal(request(&w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0,
					 NULL, 0, NULL, 0),
				 0);
		world_heap_free(&w);
	}
	world_donors_end(&w);
}

static void test_stale_tcp(void **state)
{
	(void)state;
	stale_heaps(false);
}

static void test_stale_shm(void **state)
{
	(void)state;
	stale_heaps(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trace_tcp),
		cmocka_unit_test(test_trace_shm),
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_evacuate),
		cmocka_unit_test(test_region_between_places),
		cmocka_unit_test(test_worker_killed),
		cmocka_unit_test(test_worker_stopped),
		cmocka_unit_test(test_others_traces_stay),
		cmocka_unit_test(test_donor_killed),
		cmocka_unit_test(test_bad_heap),
		cmocka_unit_test(test_stale_tcp),
		cmocka_unit_test(test_stale_shm),
	};

	return host_run("gc", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
