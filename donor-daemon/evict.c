// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * evict.c - get memory back: batch eviction, deadlines
 *
 * infiniswap-nsdi17, 5.2: for E slabs too many, E+E' are chosen at random and
 * their hosts asked how active they are; the E least active go. E' is "extra"
 * percent of E, at least one. Differences:
 *  - for slabs that the donor serves itself (tcp) it uses its own count of
 *    operations, which a host can't exaggerate. For slabs of shm and verbs, whose
 *    operations the donor does not see, it trusts the host; if a host does not
 *    answer in time its last figure counts, at first zero;
 *  - hosts that have been silent for a while (session.c) are asked for slabs
 *    first, and only they if they have enough: they may be dead, and live
 *    hosts should not move memory for them. They get as long to answer as
 *    others;
 *  - a slab asked back has a deadline. After it the donor takes the slab, sends
 *    the host a DONE of its own (tag 0) and logs it: a host that does not
 *    answer must not keep the donor's machine short of memory.
 *
 * Spare slabs were dropped before (dcm_pool_balance()). A slab being evicted is
 * not counted as excess again. EVICT waits for room in the connection; if that
 * is lost, all are sent again when the session is resumed.
 *
 * Locking: none, all on the event loop.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "donor.h"
#include "log_limit.h"

void dcm_evict_pump(struct dcm_session *s, bool again)
{
	struct dcm_donor *donor = s->donor;
	struct dcm_wire_msg msg = { .type = DCM_MSG_EVICT };
	struct dcm_slab *slab, *tmp;

	dcm_list_for_each(slab, &s->slabs, struct dcm_slab, session_node)
		if (again)
			slab->evict_sent = false;
	dcm_list_for_each_safe(slab, tmp, &s->slabs, struct dcm_slab,
			       session_node) {
		if (slab->state != DCM_SLAB_EVICTING || slab->evict_sent)
			continue;
		if (!dcm_conn_has_room(s->conn))
			return;
		slab->evict_sent = true;
		msg.tag = ++donor->evict.next_tag;
		msg.slab.slab = slab->id;
		if (dcm_conn_send(s->conn, &msg))
			return;
	}
}

void dcm_evict_slab(struct dcm_donor *donor, struct dcm_slab *slab,
		    u64 deadline)
{
	if (slab->state != DCM_SLAB_MAPPED)
		return;
	donor->pool.nr_mapped--;
	donor->pool.nr_evicting++;
	donor->stats.evict_asked++;
	slab->state = DCM_SLAB_EVICTING;
	slab->evict_deadline = deadline;
	slab->evict_sent = false;
}

static void evict_pump_sessions(struct dcm_donor *donor)
{
	struct dcm_session *s, *tmp;

	dcm_list_for_each_safe(s, tmp, &donor->sessions, struct dcm_session,
			       node)
		if (s->conn)
			dcm_evict_pump(s, false);
}

static u64 slab_activity(const struct dcm_slab *slab)
{
	return slab->export->unseen ? slab->said_milli : slab->ewma_milli;
}

/* Sort slabs in the order in which they should be evicted. */
static int slab_compare(const void *a, const void *b)
{
	const struct dcm_slab *l = *(struct dcm_slab *const *)a;
	const struct dcm_slab *r = *(struct dcm_slab *const *)b;
	u64 x = slab_activity(l);
	u64 y = slab_activity(r);

	if (l->session->silent != r->session->silent)
		return l->session->silent ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Move slabs of silent hosts to the front; returns how many. */
static u32 slabs_silent_first(struct dcm_slab **v, u32 nr)
{
	u32 n = 0;

	for (u32 i = 0; i < nr; i++) {
		struct dcm_slab *slab = v[i];

		if (!slab->session->silent)
			continue;
		v[i] = v[n];
		v[n++] = slab;
	}
	return n;
}

/* Make an array of all lent slabs, or with @candidates of those marked @candidate. */
static struct dcm_slab **slabs_list(struct dcm_pool *pool, bool candidates,
				  u32 *nr)
{
	struct dcm_slab **v = malloc((pool->nr_mapped + 1u) * sizeof(*v));
	struct dcm_slab *slab;

	*nr = 0;
	if (!v)
		return NULL;
	dcm_list_for_each(slab, &pool->slabs, struct dcm_slab, node)
		if (slab->state == DCM_SLAB_MAPPED && slab->session &&
		    (!candidates || slab->candidate) && *nr < pool->nr_mapped)
			v[(*nr)++] = slab;
	return v;
}

static u32 random_number(u32 n)
{
	u32 v = 0;

	if (getrandom(&v, sizeof(v), 0) != sizeof(v))
		return 0;
	return (u32)(((u64)v * n) >> 32);
}

static void evict_ask(struct dcm_donor *donor, u32 wanted)
{
	struct dcm_evict *e = &donor->evict;
	struct dcm_wire_msg msg = { .type = DCM_MSG_CHECK_ACTIVITY };
	u32 nr, silent, extra = 0;
	struct dcm_slab **v = slabs_list(&donor->pool, false, &nr);

	if (!v)
		return;
	silent = slabs_silent_first(v, nr);
	if (wanted > silent && donor->cfg.evict_extra)
		extra = max((u32)((u64)(wanted - silent) *
				  donor->cfg.evict_extra / 100),
			    1u);
	e->asking = true;
	e->candidates = 0;
	e->unanswered = 0;
	e->deadline = dcm_now(donor) + donor->cfg.activity_ms;
	donor->stats.evict_rounds++;
	for (u32 i = 0; i < nr; i++)
		v[i]->candidate = false;
	for (u32 i = 0; i < nr && i < wanted + extra; i++) {
		u32 j = i + random_number((i < silent ? silent : nr) - i);
		struct dcm_slab *slab = v[j];

		v[j] = v[i];
		v[i] = slab;
		slab->candidate = true;
		slab->answered = true;
		e->candidates++;
		/* don't ask if all will be evicted, nor a silent host */
		if (nr <= wanted || slab->session->silent ||
		    !dcm_conn_has_room(slab->session->conn))
			continue;
		slab->answered = false;
		e->unanswered++;
	}
	for (u32 i = 0; i < e->candidates; i++) {
		if (v[i]->answered)
			continue;
		/* a send may close the connection; the slab keeps its session */
		if (!v[i]->session->conn)
			continue;
		msg.tag = ++e->next_tag;
		msg.slab.slab = v[i]->id;
		dcm_conn_send(v[i]->session->conn, &msg);
	}
	free(v);
}

static void evict_choose(struct dcm_donor *donor)
{
	struct dcm_evict *e = &donor->evict;
	u32 wanted = dcm_pool_excess_slabs(&donor->pool);
	u64 deadline = dcm_now(donor) + donor->cfg.evict_ms;
	struct dcm_slab **v;
	u32 nr, silent = 0;

	e->asking = false;
	v = slabs_list(&donor->pool, true, &nr);
	if (!v)
		return;
	qsort(v, nr, sizeof(*v), slab_compare);
	if (wanted > nr)
		wanted = nr;
	for (u32 i = 0; i < nr; i++)
		v[i]->candidate = false;
	for (u32 i = 0; i < wanted; i++)
		silent += v[i]->session->silent;
	if (wanted)
		dcm_notice("asking %u of %u slabs back, %u of them of silent hosts: only %llu MiB may be lent now",
			   wanted, donor->pool.nr_mapped, silent,
			   (unsigned long long)(donor->pool.allowed >> 20));
	for (u32 i = 0; i < wanted; i++)
		dcm_evict_slab(donor, v[i], deadline);
	free(v);
	evict_pump_sessions(donor);
}

void dcm_evict_answer(struct dcm_donor *donor, struct dcm_slab *slab,
		      u64 ewma_milli)
{
	struct dcm_evict *e = &donor->evict;

	slab->said_milli = ewma_milli;
	if (!e->asking || !slab->candidate || slab->answered)
		return;
	slab->answered = true;
	if (!--e->unanswered)
		evict_choose(donor);
}

/* Ask tenants without a key for all their slabs; when draining, all tenants. */
static void evict_tenants_gone(struct dcm_donor *donor)
{
	struct dcm_slab *slab;
	bool any = false;

	dcm_list_for_each(slab, &donor->pool.slabs, struct dcm_slab, node) {
		/* a slab that is just being registered is asked for next time */
		if (slab->state != DCM_SLAB_MAPPED || !slab->session ||
		    (!donor->draining && !slab->tenant->gone))
			continue;
		dcm_evict_slab(donor, slab,
			       donor->draining ?
				       donor->drain_deadline :
				       dcm_now(donor) + donor->cfg.evict_ms);
		any = true;
	}
	if (any)
		evict_pump_sessions(donor);
}

static void evict_force(struct dcm_donor *donor, struct dcm_slab *slab)
{
	struct dcm_session *s = slab->session;
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_DONE,
		.slab.slab = slab->id,
	};

	donor->stats.evict_forced++;
	dcm_warn("slab %llu (cookie %llu) of %s, session %llx: not given back in time; revoked, its host loses these pages",
		 (unsigned long long)slab->id, (unsigned long long)slab->cookie,
		 slab->tenant->name, (unsigned long long)s->id);
	s->nr_slabs--;
	dcm_pool_release(&donor->pool, slab);
	if (s->conn)
		dcm_conn_send(s->conn, &msg);
}

void dcm_evict_proceed(struct dcm_donor *donor)
{
	u64 now = dcm_now(donor);
	struct dcm_slab *slab, *tmp;

	evict_tenants_gone(donor);
	if (donor->evict.asking && now >= donor->evict.deadline)
		evict_choose(donor);
	if (!donor->pool.nr_evicting || donor->draining)
		return;
	/* sending may end sessions, but never frees a slab at once */
	dcm_list_for_each_safe(slab, tmp, &donor->pool.slabs, struct dcm_slab,
			       node)
		if (slab->state == DCM_SLAB_EVICTING &&
		    now >= slab->evict_deadline)
			evict_force(donor, slab);
	evict_pump_sessions(donor);
}

void dcm_evict_start(struct dcm_donor *donor)
{
	u32 excess = dcm_pool_excess_slabs(&donor->pool);

	if (excess && !donor->evict.asking)
		evict_ask(donor, excess);
	if (donor->evict.asking && !donor->evict.unanswered)
		evict_choose(donor);
}
