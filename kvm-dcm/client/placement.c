// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * placement.c - find a slab for an extent: QUERY_MEM to two donors, MAP to one
 *
 * choose.c decides; this file asks. Other threads only set a bit in @want, or, to have
 * a slab replaced, leave a note at it. The client thread moves the bits to
 * @pending, from where a bounded number of jobs takes them:
 *
 *   QUERY: both drawn donors were asked; when both have answered, or have had
 *          %CLIENT_WAIT_MS to, the better one is sent MAP. If only one was drawn
 *          it is not asked
 *   MAP:   MR_INFO attaches the slab; a refusal excludes the donor and starts
 *          over; so does a broken connection, or a donor that falls silent
 *
 * Many jobs decide on one answer, so the VM's own slabs are counted here and
 * never taken from an answer, which does not include MAPs sent after the question. An
 * answer is used for the number of slabs that other VMs have there (@others). Other
 * hosts may place at the same time, because of the same dead donor. So @others is taken
 * from a donor's first answer in %CLIENT_BURST_MS and then kept; else a donor whose
 * answers come late would look fuller than one whose answers come early. A job whose
 * two donors were unused when it drew them, but were used by other jobs since, draws
 * again.
 *
 * At the start nothing is placed before all donors have sent their figures or have
 * failed, or %CLIENT_FIRST_MS are over: else the first donor would get everything.
 *
 * If no donor can give a slab, the extent stays pending, ops->starved() is called once,
 * and all extents without a slab wait, longer each time. A donor that comes up or frees
 * memory ends the wait.
 *
 * An extent should have @copies slabs, each on another donor: its members
 * (exposed.c). Donors near another member, on the same host or in the same group, are
 * taken only if there are no others: they may die together (a rack's power). Less
 * important, the copies of one donor's pages should be on only @scatter other donors
 * (choose.c). @files of the slabs should be on donors of files. These are taken in
 * place of memory only if no donor of memory has room: the VM is slow then, but goes
 * on.
 *
 * A MAP whose answer was lost with a connection may leave the donor with a slab
 * that is unknown here; list.c gives it back after the next resume.
 *
 * Invariant: an extent is in at most one of @pending and @placing, and has at
 * most @copies members unless @uneven, no two of them on one donor.
 */
#include "exposed.h"

void dcm_client_want(struct dcm_client *client, u32 extent)
{
	u64 bit = 1ull << extent % 64;

	if (extent >= client->nr_extents ||
	    READ_ONCE(client->want[extent / 64]) & bit)
		return;
	if (!(__atomic_fetch_or(&client->want[extent / 64], bit,
				__ATOMIC_SEQ_CST) &
	      bit))
		client_kick(client);
}

/* Seek a slab for the extent, unless one is sought already. */
void client_place_want(struct dcm_client *client, u32 extent)
{
	if (bit_test(client->pending, extent) ||
	    bit_test(client->placing, extent))
		return;
	bit_set(client->pending, extent);
	client->nr_pending++;
}

/* Take over the extents in @want, for which other threads want slabs. */
void client_place_wants(struct dcm_client *client)
{
	u32 w, n;
	u64 bits;

	for (w = 0; w < (client->nr_extents + 63) / 64; w++) {
		if (!READ_ONCE(client->want[w]))
			continue;
		bits = __atomic_exchange_n(&client->want[w], 0,
					   __ATOMIC_SEQ_CST);
		for (; bits; bits &= bits - 1) {
			n = w * 64 + (u32)__builtin_ctzll(bits);
			if (client_slab_members(client, n) < client->copies)
				client_place_want(client, n);
		}
	}
}

void client_place_want_again(struct dcm_client *client, u32 extent)
{
	bit_clear(client->placing, extent);
	client_place_want(client, extent);
}

/* The extent has got its slab. */
void client_place_done(struct dcm_client *client, u32 extent)
{
	bit_clear(client->placing, extent);
	bit_clear(client->starved, extent);
	client->place_backoff_ms = 0;
	if (client_slab_members(client, extent) < client->copies)
		client_place_want(client, extent);
}

void client_place_soon(struct dcm_client *client, u64 now)
{
	client->place_ms = now;
	client->place_backoff_ms = 0;
}

/*
 * If half of the jobs have waited long for an answer to MAP, the donors that they wait
 * for, a bit each. These are not drawn while there are others: else all jobs would
 * end up waiting for them.
 */
static u64 donors_slow(const struct dcm_client *client, u64 now)
{
	u64 who = 0;
	u32 i, n = 0;

	for (i = 0; i < CLIENT_JOBS; i++) {
		const struct client_job *j = &client->job[i];

		if (j->st == JOB_MAP && now - j->since_ms > CLIENT_WAIT_MS) {
			who |= 1ull << j->pick[0];
			n++;
		}
	}
	return n >= CLIENT_JOBS / 2 ? who : 0;
}

static void candidates_fill(struct dcm_client *client, u64 not, u64 now,
		       struct dcm_choose_donor *set)
{
	u32 i;

	for (i = 0; i < client->nr_donors; i++) {
		struct client_donor *d = &client->donor[i];

		set[i] = d->load;
		set[i].up = client_donor_usable(d, now);
		set[i].slabs_used = d->others + set[i].mine;
		set[i].excluded = not >> i & 1;
	}
}

/* End a job. If its MAP was not answered, no longer count the slab as the VM's. */
static void job_free(struct dcm_client *client, struct client_job *j)
{
	if (j->st == JOB_MAP) {
		client->donor[j->pick[0]].load.mine--;
		client_request_drop(&client->donor[j->pick[0]], j->tag[0]);
	}
	j->st = JOB_FREE;
	j->nr = 0;
}

/* Draw up to two donors, none of @never; drop wishes until one is left. False: none. */
static bool job_draw_of(struct dcm_client *client, struct client_job *j,
			u64 never, u64 now)
{
	const u64 soft[3] = { j->avoid | donors_slow(client, now), j->avoid,
			      0 };
	const u64 hard[4] = { j->near | j->strange, j->near, j->strange, 0 };
	struct dcm_choose_donor set[DCM_CHOOSE_DONORS_MAX];
	u64 not, last = ~0ull;
	unsigned int i;

	for (i = 0; i < 12; i++) {
		not = j->tried | never | hard[i / 3] | soft[i % 3];
		if (not == last)
			continue;
		last = not ;
		candidates_fill(client, not, now, set);
		j->nr = dcm_choose_two(set, client->nr_donors, &client->rng,
				       j->pick);
		if (j->nr)
			return true;
	}
	return false;
}

/* Draw up to two donors of the kind that the extent lacks. */
static bool job_draw(struct dcm_client *client, struct client_job *j, u64 now)
{
	u64 files = client_donors_file(client);

	if (j->medium == MEDIUM_FILE)
		return job_draw_of(client, j, j->never | ~files, now);
	return job_draw_of(client, j, j->never | files, now) ||
	       (files && j->medium == MEDIUM_ANY &&
		job_draw_of(client, j, j->never, now));
}

/* Ask the donors that were drawn. False: there is nothing to wait for. */
static bool job_ask(struct dcm_client *client, struct client_job *j, u64 now)
{
	unsigned int i;
	bool wait = false;

	j->st = JOB_QUERY;
	j->since_ms = now;
	j->deadline_ms = now + CLIENT_WAIT_MS;
	if (now - client->burst_ms > CLIENT_BURST_MS)
		client->burst_ms = now;
	j->unused = !client->donor[j->pick[0]].load.mine;
	/* with a single donor there is nothing to compare, if its figures are known */
	if (j->nr == 1 && client->donor[j->pick[0]].load.known)
		return false;
	for (i = 0; i < j->nr; i++) {
		struct client_donor *d = &client->donor[j->pick[i]];

		j->tag[i] = client_donor_query(d, now);
		/* its answer to another job's question is late: don't wait as well */
		j->asked[i] = now - d->query_ms > CLIENT_WAIT_MS ? ASKED_LATE :
								ASKED_WAIT;
		wait = wait || j->asked[i] == ASKED_WAIT;
	}
	return wait;
}

/* No donor can give this extent a slab now. */
static void job_starved(struct dcm_client *client, struct client_job *j,
			u64 now)
{
	u32 extent = j->extent, waiting, i;

	job_free(client, j);
	/* it has a slab, so its pages can leave this host: don't make others wait */
	if (client_slab_members(client, extent)) {
		bit_clear(client->placing, extent);
		if (j->medium != MEDIUM_MEMORY &&
		    client_slab_members(client, extent) < client->copies &&
		    dcm_log_allow(&client->say_exposed, now, CLIENT_SAY_MS))
			dcm_log(DCM_LOG_WARNING,
				"extent %u has %u of %u copies, perhaps others too: no other donor %scan lend a slab; what one donor has is lost if that donor dies; add a donor, or increase a donor's capacity",
				extent, client_slab_members(client, extent),
				client->copies,
				j->medium == MEDIUM_FILE ?
					"of files (medium = file) " :
					"");
		return;
	}
	client_place_want_again(client, extent);
	client->place_backoff_ms =
		min(max(client->place_backoff_ms * 2, CLIENT_BACKOFF_MIN_MS),
		    CLIENT_BACKOFF_MAX_MS);
	client->place_ms = now + client->place_backoff_ms;
	/* just started: donors have had no time to answer yet */
	if (!client->was_up && now - client->start_ms < CLIENT_GRACE_MS)
		return;
	waiting = client->nr_pending;
	for (i = 0; i < CLIENT_JOBS; i++)
		waiting += client->job[i].st != JOB_FREE;
	if (dcm_log_allow(&client->say_starved, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_WARNING,
			"no donor can lend a slab: %u extents are waiting for one; retrying. Add a donor, or increase a donor's capacity",
			waiting);
	if (!bit_test(client->starved, extent)) {
		bit_set(client->starved, extent);
		client->cb->starved(client->arg, extent);
	}
}

static void job_map(struct dcm_client *client, struct client_job *j,
		    unsigned int donor, u64 now)
{
	struct dcm_wire_msg msg = { .type = DCM_MSG_MAP };
	struct client_donor *d = &client->donor[donor];

	j->pick[0] = donor;
	j->nr = 1;
	j->st = JOB_MAP;
	j->since_ms = now;
	j->deadline_ms = now + CLIENT_MAP_MS;
	j->tag[0] = client_request_add(d, REQUEST_MAP, j);
	msg.tag = j->tag[0];
	msg.map.slab_bytes = client->extent_bytes;
	msg.map.cookie = j->extent;
	msg.map.transports = d->local		  ? DCM_WT_SHM | DCM_WT_TCP :
			     d->verbs == VERBS_ON ? DCM_WT_VERBS :
						    DCM_WT_TCP;
	/* so that the next job does not count on the same slab */
	if (d->load.slabs_free)
		d->load.slabs_free--;
	d->load.mine++;
	client_donor_send(d, &msg, now);
}

/* No more answers will come: send MAP, or return false to draw again. */
static bool job_decide(struct dcm_client *client, struct client_job *j, u64 now)
{
	struct dcm_choose_donor set[DCM_CHOOSE_DONORS_MAX], *a, *b;
	unsigned int i;
	int w;

	for (i = 0; i < j->nr; i++)
		if (!client->donor[j->pick[i]].load.known)
			j->tried |= 1ull << j->pick[i];
	candidates_fill(client, j->tried | j->never, now, set);
	for (i = 0; i < j->nr; i++)
		set[j->pick[i]].late = j->asked[i] != ASKED_ANSWERED;
	a = &set[j->pick[0]];
	b = &set[j->pick[j->nr - 1]];
	/* other jobs have used the same unused donors meanwhile */
	if (j->unused && a->mine && b->mine)
		return false;
	w = dcm_choose_better(a, b);
	if (w >= 0) {
		w = (int)j->pick[w ? j->nr - 1 : 0];
		if (j->redraws < CLIENT_REDRAWS &&
		    dcm_choose_high(set, client->nr_donors, (unsigned int)w)) {
			j->redraws++;
			return false;
		}
		job_map(client, j, (unsigned int)w, now);
		return true;
	}
	for (i = 0; i < j->nr; i++)
		j->tried |= 1ull << j->pick[i];
	return false;
}

/*
 * Draw, ask, decide; again if that brought nothing. This ends: each failed decision
 * excludes donors (@tried), uses up a redraw, or finds that other jobs have used the
 * unused donors meanwhile, which are fewer then.
 */
static void job_go(struct dcm_client *client, struct client_job *j, u64 now)
{
	do {
		if (!job_draw(client, j, now)) {
			job_starved(client, j, now);
			return;
		}
	} while (!job_ask(client, j, now) && !job_decide(client, j, now));
}

/* Start a job over: the donor refused, or can't be asked any more. */
static void job_again(struct dcm_client *client, struct client_job *j, u64 now)
{
	job_free(client, j);
	job_go(client, j, now);
}

/*
 * Take over the figures of a donor's answer. They include the slabs of MAPs that were
 * sent before the question, but not of those sent after it (@since).
 */
static void figures_take(struct client_donor *d, const struct dcm_wire_msg *m,
		    u64 now)
{
	struct dcm_client *client = d->client;
	struct dcm_choose_donor *p = &d->load;
	u64 since = 0, used = 0, ours;
	unsigned int i;

	for (i = 0; i < CLIENT_JOBS; i++) {
		struct client_job *j = &client->job[i];

		since += j->st == JOB_MAP && j->pick[0] == d->idx &&
			 j->tag[0] > m->tag;
	}
	if (m->free_mem.slab_bytes)
		used = m->free_mem.used_bytes / m->free_mem.slab_bytes;
	ours = p->mine - min(p->mine, since);
	p->known = true;
	p->slabs_total = m->free_mem.slabs_total;
	p->slabs_free =
		m->free_mem.slabs_free - min(m->free_mem.slabs_free, since);
	if (d->others_ms < client->burst_ms ||
	    now - client->burst_ms > CLIENT_BURST_MS) {
		d->others = used - min(used, ours);
		d->others_ms = now;
	}
}

void client_place_free_mem(struct client_donor *d, const struct dcm_wire_msg *m,
			   u64 now)
{
	unsigned int i, k;

	figures_take(d, m, now);
	for (i = 0; i < CLIENT_JOBS; i++) {
		struct client_job *j = &d->client->job[i];
		bool wait = false;

		if (j->st != JOB_QUERY)
			continue;
		for (k = 0; k < j->nr; k++) {
			if (j->pick[k] == d->idx && j->tag[k] == m->tag)
				j->asked[k] = ASKED_ANSWERED;
			wait = wait || j->asked[k] == ASKED_WAIT;
		}
		if (!wait && !job_decide(d->client, j, now))
			job_go(d->client, j, now);
	}
}

bool client_place_mr_info(struct client_donor *d, u64 tag, u32 *extent, u64 now)
{
	struct client_request r = client_request_take(d, tag, REQUEST_MAP);
	struct client_job *j;
	unsigned int i;

	if (!r.kind)
		return false;
	*extent = r.job->extent;
	job_free(d->client, r.job);
	/* a donor handles MAPs one after the other: start the time of the next */
	for (i = 0; i < CLIENT_JOBS; i++) {
		j = &d->client->job[i];
		if (j->st == JOB_MAP && j->pick[0] == d->idx)
			j->deadline_ms = now + CLIENT_MAP_MS;
	}
	return true;
}

void client_place_refused(struct client_donor *d, struct client_job *j,
			  u32 status, u64 now)
{
	if (status == DCM_WS_TRANSPORT && d->verbs == VERBS_ON &&
	    d->client->transport != DCM_TRANSPORT_VERBS) {
		client_verbs_lost(d, now);
		job_again(d->client, j, now);
		return;
	}
	j->tried |= 1ull << d->idx;
	if (status == DCM_WS_DRAINING)
		d->load.draining = true;
	else
		d->full_until_ms = now + DCM_WIRE_HEARTBEAT_MS;
	if (status != DCM_WS_NO_MEMORY && status != DCM_WS_DRAINING &&
	    dcm_log_allow(&d->say_refused, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_WARNING, "donor %s (%s) lends no more: %s",
			d->name, d->address, dcm_wire_status_text(status));
	job_again(d->client, j, now);
}

void client_place_down(struct client_donor *d, u64 now)
{
	unsigned int i, k;

	for (i = 0; i < CLIENT_JOBS; i++) {
		struct client_job *j = &d->client->job[i];

		for (k = 0; k < j->nr; k++)
			if (j->st != JOB_FREE && j->pick[k] == d->idx) {
				job_again(d->client, j, now);
				break;
			}
	}
}

/* Donors of memory that are not partners of all the donors @members of an extent. */
static u64 donors_strange(const struct dcm_client *client, u64 members)
{
	u64 key[DCM_CONFIG_DONORS_MAX], ring = 0, partners;
	u64 files = client_donors_file(client);
	u32 i;

	members &= ~files;
	if (!client->scatter || !members)
		return 0;
	for (i = 0; i < client->nr_donors; i++) {
		const struct client_donor *d = &client->donor[i];

		key[i] = dcm_choose_key(d->name);
		if (d->member == MEMBER_IN && !(files >> i & 1))
			ring |= 1ull << i;
	}
	partners = ring;
	for (; members; members &= members - 1) {
		i = (u32)__builtin_ctzll(members);
		partners &= dcm_choose_partners(key, ring | 1ull << i, i,
						client->scatter);
	}
	return ring & ~partners;
}

static void job_start(struct dcm_client *client, struct client_job *j,
		      u32 extent, u64 now)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	enum client_medium medium = client_extent_lacks(client, extent);
	u64 members = 0, to = ~0ull;
	u32 i;

	bit_clear(client->pending, extent);
	client->nr_pending--;
	if (medium == MEDIUM_NONE)
		medium = client_extent_moves(client, extent, now, &to);
	if (medium == MEDIUM_NONE)
		return; /* it has got its slab meanwhile */
	bit_set(client->placing, extent);
	*j = (struct client_job){ .extent = extent,
				  .medium = medium,
				  .never = ~to };
	for (; s; s = s->next_of_extent)
		if (s->orphan)
			continue; /* its donor has ended: a new one there is another */
		else if (s->member)
			members |= 1ull << s->donor;
		else if (!s->dead)
			j->avoid |= 1ull << s->donor;
	j->never |= members;
	for (i = 0; members && i < client->nr_donors; i++)
		if (client_donor_near_any(client, i, members))
			j->near |= 1ull << i;
	j->strange = donors_strange(client, members);
	job_go(client, j, now);
}

static struct client_job *job_new(struct dcm_client *client)
{
	unsigned int i;

	for (i = 0; i < CLIENT_JOBS; i++)
		if (client->job[i].st == JOB_FREE)
			return &client->job[i];
	return NULL;
}

/* Is an extent pending, and a job free for it? */
bool client_place_ready(struct dcm_client *client)
{
	return client->nr_pending && job_new(client);
}

/* Is a job's time over, or its donor silent? */
static bool job_overdue(const struct dcm_client *client,
			const struct client_job *j, u64 now)
{
	const struct client_donor *d = &client->donor[j->pick[0]];

	return now >= j->deadline_ms ||
	       (j->st == JOB_MAP && now - d->heard_ms > CLIENT_SILENT_MS);
}

/*
 * At the start the first donor to be connected must not get all extents wanted
 * by then: wait a little for donors that may be up soon.
 */
static bool donors_awaited(const struct dcm_client *client, u64 now)
{
	u32 i;

	if (now - client->start_ms >= CLIENT_FIRST_MS)
		return false;
	for (i = 0; i < client->nr_donors; i++) {
		const struct client_donor *d = &client->donor[i];

		if (d->member == MEMBER_IN &&
		    (d->st == SESSION_UP ? !d->load.known : !d->backoff_ms))
			return true;
	}
	return false;
}

void client_place_step(struct dcm_client *client, u64 now)
{
	struct client_job *j;
	u32 i, n;

	for (i = 0; i < CLIENT_JOBS; i++) {
		j = &client->job[i];
		if (j->st == JOB_FREE || !job_overdue(client, j, now))
			continue;
		if (j->st == JOB_QUERY) {
			if (!job_decide(client, j, now))
				job_go(client, j, now);
		} else {
			j->tried |= 1ull << j->pick[0];
			job_again(client, j, now);
		}
	}
	client_exposed_want(client, now);
	if (client->nr_pending && donors_awaited(client, now))
		client->place_ms =
			max(client->place_ms, now + CLIENT_FIRST_STEP_MS);
	for (i = 0; i < client->nr_extents && client->nr_pending; i++) {
		if (now < client->place_ms)
			return;
		n = (client->cursor + i) % client->nr_extents;
		if (!bit_test(client->pending, n))
			continue;
		j = job_new(client);
		if (!j) {
			client->cursor = n;
			return;
		}
		job_start(client, j, n, now);
		/* nobody has room: go on with the next extent after the wait */
		if (now < client->place_ms) {
			client->cursor = (n + 1) % client->nr_extents;
			return;
		}
	}
}
