// SPDX-License-Identifier: GPL-2.0-or-later
/* mesh.c - donors in one process; see mesh.h */
#include <assert.h>
#include <endian.h>
#include <pthread.h>
#include <stdlib.h>

#include "mesh.h"

struct message {
	struct message *next;
	u32 from;
	u32 to;
	u32 n;		/* 0: acknowledges one */
	u64 offset[DCM_GC_BATCH];
};

struct end {
	struct mesh *mesh;
	u32 donor;
	struct dcm_gc_space *space;
	struct dcm_gc_peers peers;
};

struct mesh {
	struct mut *m;
	u64 rng;
	struct end end[MUT_DONORS_MAX];
	u32 epoch;
	u32 flags;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t there;
	struct message *queue;
	u32 queued;
	u64 messages;
	bool stop;
	u64 opaques;
	u8 *opaque_seen;
};

static u64 rand_of(struct mesh *x)
{
	x->rng = x->rng * 6364136223846793005ull + 1442695040888963407ull;
	return x->rng >> 33;
}

static void post(struct mesh *x, u32 from, u32 to, const u64 *offsets, u32 n)
{
	struct message *msg = malloc(sizeof(*msg));

	assert(msg);
	msg->from = from;
	msg->to = to;
	msg->n = n;
	if (n)
		memcpy(msg->offset, offsets, n * sizeof(*offsets));
	pthread_mutex_lock(&x->lock);
	msg->next = x->queue;
	x->queue = msg;
	x->queued++;
	x->messages++;
	pthread_cond_signal(&x->there);
	pthread_mutex_unlock(&x->lock);
}

/* One of the queue, any one. */
static struct message *take(struct mesh *x)
{
	struct message **at = &x->queue, *msg;

	for (u64 i = rand_of(x) % x->queued; i; i--)
		at = &(*at)->next;
	msg = *at;
	*at = msg->next;
	x->queued--;
	return msg;
}

static void *pump(void *arg)
{
	struct mesh *x = arg;
	struct message *msg;
	u32 epoch;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		while (!x->queue && !x->stop)
			pthread_cond_wait(&x->there, &x->lock);
		if (!x->queue)
			break;
		msg = take(x);
		epoch = x->epoch;
		pthread_mutex_unlock(&x->lock);
		if (msg->n) {
			dcm_gc_trace_ghosts(x->end[msg->to].space, epoch,
					    msg->offset, msg->n);
			post(x, msg->to, msg->from, NULL, 0);
		} else {
			dcm_gc_trace_acked(x->end[msg->to].space, epoch,
					   msg->from);
		}
		free(msg);
		pthread_mutex_lock(&x->lock);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

static bool ghosts(void *arg, u32 epoch, u32 donor, const u64 *offsets, u32 n)
{
	struct end *e = arg;

	(void)epoch;
	post(e->mesh, e->donor, donor, offsets, n);
	return true;
}

static bool forward(void *arg, u32 donor, u64 *offsets, u32 n)
{
	struct end *e = arg;

	dcm_gc_forward(e->mesh->end[donor].space, offsets, n);
	return true;
}

struct mesh *mesh_new(struct mut *m, u64 seed)
{
	struct mesh *x = calloc(1, sizeof(*x));
	size_t bytes = 16 * sizeof(struct virtio_gc_type) +
		       128 * sizeof(struct virtio_gc_run);
	void *types = malloc(bytes);
	u32 status;

	assert(x && types);
	x->m = m;
	x->rng = seed;
	bytes = mut_types_le(m, types);
	for (u32 d = 0; d < m->c.donors; d++) {
		struct end *e = &x->end[d];

		e->mesh = x;
		e->donor = d;
		e->peers = (struct dcm_gc_peers){ ghosts, forward, e };
		e->space = dcm_gc_space_new(&m->l, d, &status);
		assert(e->space && !status);
		status = dcm_gc_types_add(e->space, 0, types, bytes,
					  m->nr_types, m->nr_runs);
		assert(!status);
		for (u32 r = 0; r < m->c.regions; r++) {
			bool mine = m->owner[r] == d;

			status = dcm_gc_space_place(
				e->space, r, m->owner[r],
				mine ? m->donors + r * m->l.region_bytes : NULL,
				mine ? &m->write_count[r] : NULL);
			assert(!status);
		}
	}
	free(types);
	x->opaque_seen = calloc(m->l.bytes / 8, 1);
	assert(x->opaque_seen);
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->there, NULL);
	if (pthread_create(&x->thread, NULL, pump, x))
		abort();
	return x;
}

void mesh_free(struct mesh *x)
{
	/* engines' threads send no more once their traces have ended */
	for (u32 d = 0; d < x->m->c.donors; d++) {
		dcm_gc_trace_cancel(x->end[d].space, VIRTIO_GC_CANCELLED);
		dcm_gc_trace_finish(x->end[d].space, x->epoch);
	}
	pthread_mutex_lock(&x->lock);
	x->stop = true;
	pthread_cond_signal(&x->there);
	pthread_mutex_unlock(&x->lock);
	pthread_join(x->thread, NULL);
	for (u32 d = 0; d < x->m->c.donors; d++)
		dcm_gc_space_free(x->end[d].space);
	pthread_mutex_destroy(&x->lock);
	pthread_cond_destroy(&x->there);
	free(x->opaque_seen);
	free(x);
}

struct dcm_gc_space *mesh_space(struct mesh *x, u32 donor)
{
	return x->end[donor].space;
}

const struct dcm_gc_peers *mesh_peers(struct mesh *x, u32 donor)
{
	return &x->end[donor].peers;
}

u64 mesh_opaques(const struct mesh *x)
{
	return x->opaques;
}

u64 mesh_messages(const struct mesh *x)
{
	return x->messages;
}

u32 mesh_start(struct mesh *x, u32 epoch, u32 flags, u32 threads,
	       const struct virtio_gc_region *regions, u32 n)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.flags = flags,
		.threads = threads,
		.regions = regions,
		.nr_regions = n,
	};

	pthread_mutex_lock(&x->lock);
	x->epoch = epoch;
	pthread_mutex_unlock(&x->lock);
	x->flags = flags;
	memset(x->opaque_seen, 0, x->m->l.bytes / 8);
	x->opaques = 0;
	for (u32 d = 0; d < x->m->c.donors; d++) {
		u32 status;

		how.peers = &x->end[d].peers;
		status = dcm_gc_trace_start(x->end[d].space, &how);
		if (status)
			return status;
	}
	return VIRTIO_GC_OK;
}

u32 mesh_roots(struct mesh *x, u32 epoch, const __le64 *addresses, u32 n)
{
	/* an engine skips roots of other donors' regions, so all roots go to all */
	for (u32 d = 0; d < x->m->c.donors; d++) {
		u32 status =
			dcm_gc_trace_roots(x->end[d].space, epoch, addresses, n)
				     .status;

		if (status)
			return status;
	}
	return VIRTIO_GC_OK;
}

u32 mesh_roots_all(struct mesh *x, u32 epoch)
{
	const struct mut *m = x->m;
	__le64 *a = malloc((m->nr_roots + 1) * sizeof(*a));
	u32 status;

	assert(a);
	mut_roots_le(m, a);
	status = mesh_roots(x, epoch, a, m->nr_roots);
	free(a);
	return status;
}

/* The references of a large object: donors read them. False: they can't. */
static bool whole_scan(struct mesh *x, u32 epoch, const struct mut_object *o)
{
	const struct mut *m = x->m;
	u64 n = mut_slots(m, o);
	struct virtio_gc_refs refs[2];

	if (!mut_is_whole(m, o) || x->flags & VIRTIO_GC_TRACE_LOCAL)
		return false;
	/* they are all side by side: in two parts, for a change */
	assert(n > 1 && mut_slot(m, o, n - 1) - mut_slot(m, o, 0) ==
				(n - 1) * m->c.ref_bytes);
	refs[0].address = mut_address_le(m, mut_slot(m, o, 0));
	refs[0].count = htole64(n / 2);
	refs[1].address = mut_address_le(m, mut_slot(m, o, n / 2));
	refs[1].count = htole64(n - n / 2);
	for (u32 d = 0; d < m->c.donors; d++) {
		u32 status =
			dcm_gc_trace_ranges(x->end[d].space, epoch, refs, 2)
				     .status;

		assert(!status);
	}
	return true;
}

/* The references of an opaque object, by the host's copy. */
static void opaque_scan(struct mesh *x, u32 epoch, u64 at)
{
	const struct mut *m = x->m;
	const struct mut_object *o = &m->objects[m->at_unit[at / 8] - 1];
	u64 n = mut_slots(m, o);
	__le64 *a = malloc((n + 1) * sizeof(*a));

	assert(a && !x->opaque_seen[at / 8]);
	x->opaque_seen[at / 8] = 1;
	x->opaques++;
	if (whole_scan(x, epoch, o)) {
		free(a);
		return;
	}
	mut_slots_le(m, o, a);
	n = mesh_roots(x, epoch, a, (u32)n);
	assert(!n);
	free(a);
}

static void opaques_take(struct mesh *x, u32 epoch)
{
	for (u32 d = 0; d < x->m->c.donors; d++) {
		__le64 got[7];
		u64 left = 1;
		u32 n;

		while (left) {
			u32 status = dcm_gc_trace_met(x->end[d].space, epoch,
						      VIRTIO_GC_MET_OPAQUE, got,
						      7, &n, &left);

			assert(!status);
			for (u32 i = 0; i < n; i++)
				opaque_scan(x, epoch,
					    le64toh(got[i]) - x->m->l.address);
		}
	}
}

u32 mesh_finish(struct mesh *x, u32 epoch, bool scan)
{
	struct dcm_gc_flags flags[MUT_DONORS_MAX];
	struct dcm_gc_quiet quiet = { 0 };
	u32 status = VIRTIO_GC_OK, n = x->m->c.donors, turn = 0;

	for (;;) {
		bool opaque = false;

		for (u32 d = 0; d < n; d++) {
			status = dcm_gc_trace_poll(x->end[d].space, epoch,
						   &flags[d]);
			if (!status)
				status = flags[d].result.status;
			opaque |= flags[d].opaque;
			if (status)
				break;
		}
		if (status)
			break;
		if (opaque && !scan)
			return VIRTIO_GC_MET;
		if (opaque) {
			opaques_take(x, epoch);
			quiet.rounds = 0;
		} else if (dcm_gc_quiet_round(&quiet, flags, n)) {
			break;
		} else {
			dcm_gc_trace_wait(x->end[turn++ % n].space, 200000);
		}
	}
	for (u32 d = 0; d < n; d++) {
		struct dcm_gc_result result;

		if (status)
			dcm_gc_trace_cancel(x->end[d].space, status);
		result = dcm_gc_trace_finish(x->end[d].space, epoch);
		if (result.status && !status)
			status = result.status;
	}
	return status;
}
