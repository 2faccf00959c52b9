// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ctl_place.c - an extent gets a slab: QUERY_MEM of two, MAP on the better
 *
 * core/place.c decides; this file asks. Lanes only set a bit in @want (and for
 * a move, name the slab to be replaced in @other). The control thread moves
 * bits to @pending, from there a bounded number of jobs takes them:
 *
 *   QUERY: both chosen donors were asked; when both have answered, or one has
 *          and the other's time is over, the better is sent MAP
 *   MAP:   MR_INFO attaches the slab; a refusal excludes the donor and starts
 *          over; a broken connection too
 *
 * With no donor left the extent stays pending, everything waits for a growing
 * back-off, and the owner is told once. A donor that comes up or frees memory
 * ends the wait.
 *
 * A MAP whose answer was lost with a connection may leave a slab with the
 * donor that nobody knows of here; it goes with the session.
 *
 * Invariant: an extent is in at most one of @pending and @placing, and is
 * never attached a second slab unless want_other() named the one it has.
 */
#include "ctl_int.h"

void dcm_ctl_want(struct dcm_ctl *ctl, u32 extent)
{
	u64 bit = 1ull << extent % 64;

	if (extent >= ctl->nr_extents ||
	    READ_ONCE(ctl->want[extent / 64]) & bit)
		return;
	if (!(__atomic_fetch_or(&ctl->want[extent / 64], bit,
				__ATOMIC_SEQ_CST) &
	      bit))
		ctl_kick(ctl);
}

void dcm_ctl_want_other(struct dcm_ctl *ctl, u32 extent,
			struct dcm_ctl_slab *slab)
{
	if (extent >= ctl->nr_extents)
		return;
	__atomic_store_n(&ctl->other[extent], slab, __ATOMIC_RELEASE);
	dcm_ctl_want(ctl, extent);
}

/* Take what lanes asked for. */
void ctl_place_wants(struct dcm_ctl *ctl)
{
	u32 w, n;
	u64 bits;

	for (w = 0; w < (ctl->nr_extents + 63) / 64; w++) {
		if (!READ_ONCE(ctl->want[w]))
			continue;
		bits = __atomic_exchange_n(&ctl->want[w], 0, __ATOMIC_SEQ_CST);
		for (; bits; bits &= bits - 1) {
			struct dcm_ctl_slab *other;

			n = w * 64 + (u32)__builtin_ctzll(bits);
			/* taken: a name left behind must not match later */
			other = __atomic_exchange_n(&ctl->other[n], NULL,
						    __ATOMIC_ACQUIRE);
			if (bit_test(ctl->pending, n) ||
			    bit_test(ctl->placing, n))
				continue;
			/* it has one, and that is not to be replaced */
			if (ctl->cur[n] && ctl->cur[n] != other)
				continue;
			bit_set(ctl->pending, n);
			ctl->nr_pending++;
		}
	}
}

void ctl_place_want_again(struct dcm_ctl *ctl, u32 extent)
{
	bit_clear(ctl->placing, extent);
	if (!bit_test(ctl->pending, extent)) {
		bit_set(ctl->pending, extent);
		ctl->nr_pending++;
	}
}

/* It has its slab. */
void ctl_place_done(struct dcm_ctl *ctl, u32 extent)
{
	bit_clear(ctl->placing, extent);
	bit_clear(ctl->starved, extent);
	ctl->place_backoff_ms = 0;
}

void ctl_place_soon(struct dcm_ctl *ctl, u64 now)
{
	ctl->place_ms = now;
	ctl->place_backoff_ms = 0;
}

static void candidates(struct dcm_ctl *ctl, const struct ctl_job *j, u64 now,
		       bool avoid, struct dcm_place_donor *set)
{
	u32 i;

	for (i = 0; i < ctl->nr_donors; i++) {
		set[i] = ctl->donor[i].place;
		set[i].up = ctl_donor_usable(&ctl->donor[i], now);
		set[i].excluded = (j->tried >> i & 1) ||
				  (avoid && (int)i == j->avoid);
	}
}

/* A MAP that was sent counts as a slab until it is one, or is not. */
static void job_free(struct dcm_ctl *ctl, struct ctl_job *j)
{
	if (j->st == JOB_MAP)
		ctl->donor[j->pick[0]].place.mine--;
	j->st = JOB_FREE;
	j->nr = 0;
}

/* Pick donors and ask them. False: there is none. */
static bool job_query(struct dcm_ctl *ctl, struct ctl_job *j, u64 now)
{
	struct dcm_place_donor set[DCM_PLACE_DONORS_MAX];
	unsigned int i;

	candidates(ctl, j, now, true, set);
	j->nr = dcm_place_choose(set, ctl->nr_donors, &ctl->rng, j->pick);
	if (!j->nr && j->avoid >= 0) {
		candidates(ctl, j, now, false, set);
		j->nr = dcm_place_choose(set, ctl->nr_donors, &ctl->rng,
					 j->pick);
	}
	if (!j->nr)
		return false;
	j->st = JOB_QUERY;
	j->deadline_ms = now + CTL_QUERY_MS;
	for (i = 0; i < j->nr; i++) {
		j->answered[i] = false;
		j->tag[i] = ctl_donor_query(&ctl->donor[j->pick[i]], now);
	}
	return true;
}

/* Nobody can give this one a slab now. */
static void job_starved(struct dcm_ctl *ctl, struct ctl_job *j, u64 now)
{
	u32 extent = j->extent, waiting, i;

	job_free(ctl, j);
	ctl_place_want_again(ctl, extent);
	ctl->place_backoff_ms =
		min(max(ctl->place_backoff_ms * 2, CTL_BACKOFF_MIN_MS),
				    CTL_BACKOFF_MAX_MS);
	ctl->place_ms = now + ctl->place_backoff_ms;
	/* nobody has had the time to answer */
	if (!ctl->was_up && now - ctl->start_ms < CTL_GRACE_MS)
		return;
	waiting = ctl->nr_pending;
	for (i = 0; i < CTL_JOBS; i++)
		waiting += ctl->job[i].st != JOB_FREE;
	if (dcm_log_allow(&ctl->say_starved, now, CTL_SAY_MS))
		dcm_log(DCM_LOG_WARNING,
			"no donor can lend a slab: extents that wait: %u; trying on. Add a donor, or memory to one",
			waiting);
	if (!bit_test(ctl->starved, extent)) {
		bit_set(ctl->starved, extent);
		ctl->cb->starved(ctl->arg, extent);
	}
}

/* All that will be heard has been: decide. */
static void job_decide(struct dcm_ctl *ctl, struct ctl_job *j, u64 now)
{
	struct dcm_place_donor set[DCM_PLACE_DONORS_MAX];
	struct dcm_wire_msg msg = { .type = DCM_MSG_MAP };
	struct dcm_place_donor *a, *b;
	struct ctl_donor *d;
	unsigned int i;
	int w;

	for (i = 0; i < j->nr; i++)
		if (!j->answered[i])
			j->tried |= 1ull << j->pick[i];
	candidates(ctl, j, now, false, set);
	a = &set[j->pick[0]];
	b = &set[j->pick[j->nr - 1]];
	w = dcm_place_better(a, b);
	if (w < 0) {
		for (i = 0; i < j->nr; i++)
			j->tried |= 1ull << j->pick[i];
		if (!job_query(ctl, j, now))
			job_starved(ctl, j, now);
		return;
	}
	j->pick[0] = j->pick[w ? j->nr - 1 : 0];
	j->nr = 1;
	d = &ctl->donor[j->pick[0]];
	j->st = JOB_MAP;
	j->deadline_ms = now + CTL_MAP_MS;
	j->tag[0] = ++d->tag;
	msg.tag = j->tag[0];
	msg.map.slab_bytes = ctl->extent_bytes;
	msg.map.cookie = j->extent;
	msg.map.transports = d->local		       ? DCM_WT_SHM | DCM_WT_TCP :
			     d->verbs == VERBS_ON ? DCM_WT_VERBS :
						    DCM_WT_TCP;
	/* so that the next job does not count on the same slab */
	if (d->place.slabs_free)
		d->place.slabs_free--;
	d->place.slabs_used++;
	d->place.mine++;
	ctl_donor_send(d, &msg, now);
}

/* The donor said no, or can't be asked any more. */
static void job_again(struct dcm_ctl *ctl, struct ctl_job *j, u64 now)
{
	job_free(ctl, j);
	if (!job_query(ctl, j, now))
		job_starved(ctl, j, now);
}

static struct ctl_job *job_find(struct ctl_donor *d, u64 tag,
				enum ctl_job_state st)
{
	unsigned int i;

	for (i = 0; i < CTL_JOBS; i++) {
		struct ctl_job *j = &d->ctl->job[i];

		if (j->st == st && j->pick[0] == d->idx && j->tag[0] == tag)
			return j;
	}
	return NULL;
}

void ctl_place_free_mem(struct ctl_donor *d, u64 tag, u64 now)
{
	unsigned int i, k;

	for (i = 0; i < CTL_JOBS; i++) {
		struct ctl_job *j = &d->ctl->job[i];
		bool all = true;

		if (j->st != JOB_QUERY)
			continue;
		for (k = 0; k < j->nr; k++) {
			if (j->pick[k] == d->idx && j->tag[k] == tag)
				j->answered[k] = true;
			all = all && j->answered[k];
		}
		if (all)
			job_decide(d->ctl, j, now);
	}
}

bool ctl_place_mr_info(struct ctl_donor *d, u64 tag, u32 *extent, u64 now)
{
	struct ctl_job *j = job_find(d, tag, JOB_MAP);

	(void)now;
	if (!j)
		return false;
	*extent = j->extent;
	job_free(d->ctl, j);
	return true;
}

bool ctl_place_error(struct ctl_donor *d, u64 tag, u32 status, u64 now)
{
	struct ctl_job *j = job_find(d, tag, JOB_MAP);

	if (!j)
		return false;
	if (status == DCM_WS_TRANSPORT && d->verbs == VERBS_ON &&
	    d->ctl->transport != DCM_TRANSPORT_VERBS) {
		ctl_verbs_lost(d, now);
		job_again(d->ctl, j, now);
		return true;
	}
	j->tried |= 1ull << d->idx;
	if (status == DCM_WS_DRAINING)
		d->place.draining = true;
	else
		d->full_until_ms = now + DCM_WIRE_HEARTBEAT_MS;
	if (status != DCM_WS_NO_MEMORY && status != DCM_WS_DRAINING &&
	    dcm_log_allow(&d->say_refused, now, CTL_SAY_MS))
		dcm_log(DCM_LOG_WARNING, "donor %s (%s) lends no more: %s",
			d->name, d->address, dcm_wire_status_text(status));
	job_again(d->ctl, j, now);
	return true;
}

void ctl_place_down(struct ctl_donor *d, u64 now)
{
	unsigned int i, k;

	for (i = 0; i < CTL_JOBS; i++) {
		struct ctl_job *j = &d->ctl->job[i];

		for (k = 0; k < j->nr; k++)
			if (j->st != JOB_FREE && j->pick[k] == d->idx) {
				job_again(d->ctl, j, now);
				break;
			}
	}
}

static void job_start(struct dcm_ctl *ctl, struct ctl_job *j, u32 extent,
		      u64 now)
{
	struct dcm_ctl_slab *other = ctl->cur[extent];

	bit_clear(ctl->pending, extent);
	ctl->nr_pending--;
	bit_set(ctl->placing, extent);
	*j = (struct ctl_job){ .extent = extent, .avoid = -1 };
	if (other)
		j->avoid = (int)other->donor;
	if (!job_query(ctl, j, now))
		job_starved(ctl, j, now);
}

static struct ctl_job *job_new(struct dcm_ctl *ctl)
{
	unsigned int i;

	for (i = 0; i < CTL_JOBS; i++)
		if (ctl->job[i].st == JOB_FREE)
			return &ctl->job[i];
	return NULL;
}

/* There is an extent to place and a job for it. */
bool ctl_place_ready(struct dcm_ctl *ctl)
{
	return ctl->nr_pending && job_new(ctl);
}

void ctl_place_step(struct dcm_ctl *ctl, u64 now)
{
	struct ctl_job *j;
	u32 i, n;

	for (i = 0; i < CTL_JOBS; i++) {
		j = &ctl->job[i];
		if (j->st == JOB_FREE || now < j->deadline_ms)
			continue;
		if (j->st == JOB_QUERY) {
			job_decide(ctl, j, now);
		} else {
			j->tried |= 1ull << j->pick[0];
			job_again(ctl, j, now);
		}
	}
	for (i = 0; i < ctl->nr_extents && ctl->nr_pending; i++) {
		if (now < ctl->place_ms)
			return;
		n = (ctl->cursor + i) % ctl->nr_extents;
		if (!bit_test(ctl->pending, n))
			continue;
		j = job_new(ctl);
		if (!j) {
			ctl->cursor = n;
			return;
		}
		job_start(ctl, j, n, now);
		/* the rest waits behind it: it will be the first next time */
		if (now < ctl->place_ms) {
			ctl->cursor = (n + 1) % ctl->nr_extents;
			return;
		}
	}
}
