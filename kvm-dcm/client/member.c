// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * member.c - add and remove donors, and change redundancy, while the VM runs
 *
 * A donor has a place in @donor, and slabs, endpoints and the pager's tables
 * refer to it by number, so it is never moved or freed. A new donor takes the
 * place it had before, else one that was never used, else a removed donor's.
 *
 *	NONE -> IN -> DRAINED: gets no new slabs, its slabs are moved as if it had
 *	^        '-----'  asked for them; stays connected
 *	'----- LEAVING: the same; once it has no slab: GOODBYE, then NONE
 *
 * A slab can only be moved where there is room; until then it stays where it is
 * and nothing is lost. When a donor goes back from DRAINED or LEAVING to IN, slabs
 * whose move has begun are still moved.
 *
 * Other threads leave a request in @ask and wait until the client thread has
 * done it. The asking thread looks up names: a resolver may take many seconds.
 *
 * Locking: @lock for @ask and its answer; @asking so that there is one request
 * at a time. The rest is the client thread's.
 */
#include <stdlib.h>
#include <time.h>

#include "exposed.h"

#define ASK_S 10

/* ---- any thread ---- */

static int ask_send(struct dcm_client *client, const struct client_ask *what)
{
	struct timespec end;
	int ret = 0;
	u32 seq;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ASK_S;
	pthread_mutex_lock(&client->asking);
	pthread_mutex_lock(&client->lock);
	seq = client->ask.seq + 1;
	client->ask = *what;
	client->ask.seq = seq;
	client_kick(client);
	while (client->ask.op != ASK_NOTHING && !ret)
		ret = -pthread_cond_timedwait(&client->cond, &client->lock,
					      &end);
	if (client->ask.op == ASK_NOTHING)
		ret = client->ask.ret;
	else
		client->ask.op = ASK_NOTHING;
	pthread_mutex_unlock(&client->lock);
	pthread_mutex_unlock(&client->asking);
	return ret;
}

int dcm_client_donor_add(struct dcm_client *client,
			 const struct dcm_host_donor *donor)
{
	struct client_ask what = { .op = ASK_ADD, .donor = *donor };
	struct client_donor *d = calloc(1, sizeof(*d));
	int ret;

	if (!d)
		return -ENOMEM;
	memcpy(d->name, donor->name, sizeof(d->name));
	memcpy(d->address, donor->address, sizeof(d->address));
	ret = client_address_resolve(d);
	what.sa = d->sa;
	what.sa_len = d->sa_len;
	what.local = d->local;
	free(d);
	return ret ? ret : ask_send(client, &what);
}

static int ask_by_name(struct dcm_client *client, enum client_ask_op op,
		     const char *name)
{
	struct client_ask what = { .op = op };

	if (strlen(name) > DCM_NAME_MAX)
		return -ENOENT;
	strcpy(what.donor.name, name);
	return ask_send(client, &what);
}

int dcm_client_donor_drain(struct dcm_client *client, const char *name,
			   bool drain)
{
	return ask_by_name(client, drain ? ASK_DRAIN : ASK_KEEP, name);
}

int dcm_client_donor_remove(struct dcm_client *client, const char *name)
{
	return ask_by_name(client, ASK_REMOVE, name);
}

int dcm_client_redundancy_set(struct dcm_client *client,
			      enum dcm_host_redundancy redundancy)
{
	struct client_ask what = { .op = ASK_REDUNDANCY,
				   .redundancy = redundancy };

	if (redundancy >= DCM_REDUNDANCY_NR)
		return -EINVAL;
	return ask_send(client, &what);
}

/* ---- the client thread ---- */

/* Make the slots of the donor's lanes; for shm their endpoints, too. */
int client_member_slots(struct client_donor *d)
{
	struct dcm_client *client = d->client;
	u32 lane;
	int err;

	if (!d->slot) {
		d->slot = client_zalloc(client->nr_lanes, sizeof(*d->slot));
		if (!d->slot)
			return -ENOMEM;
		for (lane = 0; lane < client->nr_lanes; lane++)
			d->slot[lane].donor = d;
	}
	for (lane = 0; d->local && lane < client->nr_lanes; lane++) {
		struct dcm_endpoint *ep;

		if (d->slot[lane].shm)
			continue;
		ep = dcm_transport_shm.open(NULL, &err);
		if (!ep)
			return err;
		if (client->wrap)
			ep = client->wrap(client->wrap_arg, ep);
		d->slot[lane].shm = ep;
	}
	return 0;
}

static struct client_donor *donor_find(struct dcm_client *client,
				       const char *name)
{
	u32 i;

	for (i = 0; i < client->nr_donors; i++)
		if (client->donor[i].member != MEMBER_NONE &&
		    !strcmp(client->donor[i].name, name))
			return &client->donor[i];
	return NULL;
}

static bool donor_has_slabs(const struct client_donor *d)
{
	const struct dcm_client_slab *s;

	for (s = d->client->slabs; s; s = s->next)
		if (s->donor == d->idx)
			return true;
	return false;
}

static struct client_donor *slot_find(struct dcm_client *client,
				       const struct dcm_host_donor *donor)
{
	struct client_donor *d, *any = NULL;
	u32 i;

	for (i = 0; i < client->nr_donors; i++) {
		d = &client->donor[i];
		if (d->member != MEMBER_NONE || donor_has_slabs(d))
			continue;
		if (!strcmp(d->name, donor->name) &&
		    !strcmp(d->address, donor->address))
			return d;
		any = d;
	}
	return client->nr_donors < DCM_CONFIG_DONORS_MAX ?
		       &client->donor[client->nr_donors] :
		       any;
}

static int donor_keep(struct client_donor *d, u64 now)
{
	if (d->member == MEMBER_IN)
		return -EALREADY;
	d->member = MEMBER_IN;
	dcm_log(DCM_LOG_NOTICE, "donor %s (%s): is used again", d->name,
		d->address);
	client_place_soon(d->client, now);
	return 0;
}

static int donor_add(struct dcm_client *client, const struct client_ask *what,
	       u64 now)
{
	struct client_donor *d = donor_find(client, what->donor.name);
	int err;
	u32 i;

	if (d)
		return strcmp(d->address, what->donor.address) ?
			       -EEXIST :
								 donor_keep(d, now);
	for (i = 0; i < client->nr_donors; i++)
		if (client->donor[i].member != MEMBER_NONE &&
		    !strcmp(client->donor[i].address, what->donor.address))
			return -EADDRINUSE;
	d = slot_find(client, &what->donor);
	if (!d)
		return -ENOSPC;
	i = (u32)(d - client->donor);
	d->client = client;
	d->idx = i;
	if (i == client->nr_donors)
		client_donor_init(d);
	d->local = what->local;
	err = client_member_slots(d);
	if (err)
		return err;
	pthread_mutex_lock(&client->lock);
	memcpy(d->name, what->donor.name, sizeof(d->name));
	memcpy(d->address, what->donor.address, sizeof(d->address));
	memcpy(d->group, what->donor.group, sizeof(d->group));
	d->sa = what->sa;
	d->sa_len = what->sa_len;
	pthread_mutex_unlock(&client->lock);
	memset(&d->load, 0, sizeof(d->load));
	memset(&d->say_conn, 0, sizeof(d->say_conn));
	memset(&d->say_refused, 0, sizeof(d->say_refused));
	memset(&d->say_data, 0, sizeof(d->say_data));
	d->was_lost = false;
	d->gone = false;
	d->want_data = false;
	d->verbs = VERBS_OFF;
	d->why[0] = 0;
	d->retry_ms = now;
	d->backoff_ms = 0;
	d->member = MEMBER_IN;
	/* before any other callback uses that number */
	if (client->cb->donor)
		client->cb->donor(client->arg, i, &what->donor);
	if (i == client->nr_donors)
		smp_store_release(&client->nr_donors, i + 1);
	dcm_log(DCM_LOG_NOTICE, "donor %s (%s): added", d->name, d->address);
	return 0;
}

/* Have a slab moved as if its donor had asked for it, unless it has already. */
void client_member_slab_leave(struct dcm_client_slab *s)
{
	if (!client_slab_held(s) || s->dead || s->evicting || s->leaving)
		return;
	s->leaving = true;
	s->client->cb->evict(s->client->arg, s);
}

static int donor_leave(struct dcm_client *client, const struct client_ask *what)
{
	struct client_donor *d = donor_find(client, what->donor.name);
	struct dcm_client_slab *s, *next;

	if (!d)
		return -ENOENT;
	if (d->member == MEMBER_LEAVING ||
	    (what->op == ASK_DRAIN && d->member == MEMBER_DRAINED))
		return -EALREADY;
	d->member = what->op == ASK_DRAIN ? MEMBER_DRAINED : MEMBER_LEAVING;
	dcm_log(DCM_LOG_NOTICE,
		"donor %s (%s): %s: %llu slabs are moved off it", d->name,
		d->address, what->op == ASK_DRAIN ? "told to drain" : "removed",
		(unsigned long long)d->load.mine);
	for (s = client->slabs; s; s = next) {
		next = s->next;
		if (s->donor == d->idx)
			client_member_slab_leave(s);
	}
	return 0;
}

static int redundancy_change(struct dcm_client *client,
			     const struct client_ask *what)
{
	const struct dcm_redundancy *r = &dcm_redundancies[what->redundancy];
	u32 late_ms = client_late_ms(client), i;

	if (client->copies == r->copies && client->files == r->files)
		return -EALREADY;
	client_place_redundancy(client, what->redundancy);
	if (client_late_ms(client) == late_ms)
		return 0;
	/* a connection's time-out is set when it is made: make new ones */
	for (i = 0; i < client->nr_donors; i++)
		if (client->donor[i].slot)
			client_data_kill(&client->donor[i]);
	return 0;
}

/* Handle another thread's request, if there is one. */
void client_member_step(struct dcm_client *client, u64 now)
{
	struct client_donor *d;
	struct client_ask what;
	int ret = -EINVAL;

	pthread_mutex_lock(&client->lock);
	what = client->ask;
	pthread_mutex_unlock(&client->lock);
	switch (what.op) {
	case ASK_NOTHING:
		return;
	case ASK_ADD:
		ret = donor_add(client, &what, now);
		break;
	case ASK_DRAIN:
	case ASK_REMOVE:
		ret = donor_leave(client, &what);
		break;
	case ASK_KEEP:
		d = donor_find(client, what.donor.name);
		ret = d ? donor_keep(d, now) : -ENOENT;
		break;
	case ASK_REDUNDANCY:
		ret = redundancy_change(client, &what);
		break;
	}
	client_status_publish(client);
	pthread_mutex_lock(&client->lock);
	/* if the asking thread gave up, another request may be there by now */
	if (client->ask.seq == what.seq) {
		client->ask.ret = ret;
		client->ask.op = ASK_NOTHING;
	}
	pthread_cond_broadcast(&client->cond);
	pthread_mutex_unlock(&client->lock);
}

/* Remove a leaving donor once it has no slab of the VM. */
void client_member_timers(struct client_donor *d)
{
	if (d->member != MEMBER_LEAVING || d->load.mine || donor_has_slabs(d))
		return;
	client_donor_forget(d);
	d->member = MEMBER_NONE;
	dcm_log(DCM_LOG_NOTICE, "donor %s (%s): removed, nothing of it is used",
		d->name, d->address);
}
