// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ghost.c - references to objects of other donors: mako-pldi22, 5.2
 *
 * A thread gathers such references, *ghosts*, by donor and sends them when there are
 * enough, or when it has nothing else to do, so none waits while the thread is idle.
 * The receiver takes a message without waiting for anything, so a sender may wait
 * for an acknowledgement without a deadlock of donors. For the end of the trace, a
 * message counts as work from before it is sent until it is acknowledged, and the
 * receiver has counted it as roots before it acknowledges: so it always counts on some
 * donor.
 *
 * Unlike in the paper, a small table of recently sent references saves sending
 * those to popular objects again and again.
 */
#include <stdlib.h>

#include "work.h"

static void ghost_send(struct gc_worker *w, u32 donor)
{
	struct dcm_gc_trace *t = w->trace;
	struct gc_ghosts *g = w->ghosts[donor];

	pthread_mutex_lock(&t->lock);
	while (!gc_stopped(t) && t->unacked[donor] >= GC_UNACKED_MAX)
		pthread_cond_wait(&t->acked, &t->lock);
	if (gc_stopped(t)) {
		pthread_mutex_unlock(&t->lock);
		g->n = 0;
		return;
	}
	t->unacked[donor]++;
	t->unacked_all++;
	t->activity++;
	pthread_mutex_unlock(&t->lock);
	if (!t->peers ||
	    !t->peers->ghosts(t->peers->arg, t->epoch, donor, g->offset, g->n))
		gc_stop(t, VIRTIO_GC_DONOR_LOST, VIRTIO_GC_NONE);
	g->n = 0;
}

void gc_ghost_add(struct gc_worker *w, u32 donor, u64 offset)
{
	u64 *sent = &w->sent[(offset >> 3) * 0x9e3779b97f4a7c15ull >> 54];
	struct gc_ghosts *g = w->ghosts[donor];

	static_assert(GC_SENT == 1u << 10, "the shift above");
	if (*sent == offset + 1)
		return;
	*sent = offset + 1;
	if (!g) {
		g = malloc(sizeof(*g));
		if (!g) {
			gc_stop(w->trace, VIRTIO_GC_LIMIT, VIRTIO_GC_NONE);
			return;
		}
		g->n = 0;
		w->ghosts[donor] = g;
	}
	g->offset[g->n++] = offset;
	if (g->n == DCM_GC_BATCH)
		ghost_send(w, donor);
}

void gc_ghost_flush(struct gc_worker *w)
{
	for (u32 i = 0; i < DCM_WIRE_GC_DONORS; i++)
		if (w->ghosts[i] && w->ghosts[i]->n)
			ghost_send(w, i);
}

void dcm_gc_trace_acked(struct dcm_gc_space *s, u32 epoch, u32 donor)
{
	struct dcm_gc_trace *t;

	pthread_mutex_lock(&s->trace_lock);
	t = s->trace;
	if (t && t->epoch == epoch && donor < DCM_WIRE_GC_DONORS) {
		pthread_mutex_lock(&t->lock);
		/* ignore an acknowledgement without a message */
		if (t->unacked[donor]) {
			t->unacked[donor]--;
			t->unacked_all--;
			t->activity++;
		}
		pthread_cond_broadcast(&t->acked);
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&s->trace_lock);
}
