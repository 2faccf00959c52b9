// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.c - the client's status
 *
 * The client thread copies its figures every tenth of a second; readers take
 * the copy. The lock is held only for copying, so neither a slow reader nor a
 * busy client thread makes the other wait.
 */
#include "client_int.h"

static void donor_status(struct client_donor *d,
			 struct dcm_client_donor_status *st)
{
	u32 lane, n = 0;
	u64 rtt = 0;

	st->number = d->idx;
	memcpy(st->name, d->name, sizeof(st->name));
	memcpy(st->address, d->address, sizeof(st->address));
	memcpy(st->why, d->why, sizeof(st->why));
	st->transport = d->local	     ? "shm" :
			d->verbs == VERBS_ON ? "verbs" :
					       "tcp";
	st->file = d->load.file;
	st->leaving = d->member == MEMBER_LEAVING;
	if (d->member != MEMBER_IN)
		st->state = DCM_DONOR_DRAINING;
	else if (d->gone)
		st->state = DCM_DONOR_LOST;
	else if (d->silent)
		st->state = DCM_DONOR_SILENT;
	else if (d->load.draining)
		st->state = DCM_DONOR_DRAINING;
	else if (d->st == SESSION_UP)
		st->state = DCM_DONOR_UP;
	else
		st->state = d->was_lost ? DCM_DONOR_LOST : DCM_DONOR_CONNECTING;
	st->silent_ms = d->session ? client_now_ms() - d->heard_ms : 0;
	st->patience_ms = d->client->patience_ms;
	st->slabs = 0;
	st->orphans = 0;
	st->orphans_waiting = 0;
	st->reads = 0;
	st->writes = 0;
	st->slabs_free = d->load.known ? d->load.slabs_free : 0;
	st->slabs_total = d->load.known ? d->load.slabs_total : 0;
	st->slabs_used = d->load.known ? d->others + d->load.mine : 0;
	st->told = d->told;
	st->capacity_bytes = d->about.capacity_bytes;
	st->lent_bytes = d->about.lent_bytes;
	st->head_room_bytes = d->about.head_room_bytes;
	st->sessions = d->about.sessions;
	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		struct client_lane_slot *s = &d->slot[lane];
		u64 ns = READ_ONCE(s->rtt_ns);

		st->reads += READ_ONCE(s->reads);
		st->writes += READ_ONCE(s->writes);
		if (ns) {
			rtt += ns;
			n++;
		}
	}
	st->rtt_ns = n ? rtt / n : d->rtt_ns;
}

void client_status_publish(struct dcm_client *client)
{
	struct dcm_client_status *st = &client->status;
	struct dcm_client_slab *s;
	u32 i, n = 0;

	pthread_mutex_lock(&client->lock);
	st->wanted = client->nr_pending;
	for (i = 0; i < CLIENT_JOBS; i++)
		st->wanted += client->job[i].st != JOB_FREE;
	st->evicting = 0;
	st->slabs = 0;
	st->lost = client->nr_lost;
	st->near = client->nr_near;
	for (i = 0; i < client->nr_donors; i++)
		donor_status(&client->donor[i], &st->donor[i]);
	for (s = client->slabs; s; s = s->next) {
		if (s->dead)
			continue;
		st->slabs++;
		st->evicting += s->evicting && s->state == SLAB_ATTACHED;
		st->donor[s->donor].slabs++;
		if (!s->orphan || !client_slab_held(s))
			continue;
		st->donor[s->donor].orphans++;
		st->donor[s->donor].orphans_waiting += !s->leaving &&
						       !s->evicting;
	}
	for (i = 0; i < client->nr_donors; i++)
		st->donor[i].bytes = st->donor[i].slabs * client->extent_bytes;
	/* indexed by number so far; now leave out donors that are gone */
	for (i = 0; i < client->nr_donors; i++)
		if (client->donor[i].member != MEMBER_NONE)
			st->donor[n++] = st->donor[i];
	st->nr_donors = n;
	pthread_mutex_unlock(&client->lock);
}

void dcm_client_status(struct dcm_client *client, struct dcm_client_status *st)
{
	pthread_mutex_lock(&client->lock);
	*st = client->status;
	pthread_mutex_unlock(&client->lock);
}

const char *dcm_client_donor_state_name(enum dcm_client_donor_state state)
{
	static const char *const names[] = {
		[DCM_DONOR_CONNECTING] = "connecting",
		[DCM_DONOR_UP] = "up",
		[DCM_DONOR_LOST] = "lost",
		[DCM_DONOR_DRAINING] = "draining",
		[DCM_DONOR_SILENT] = "silent",
	};

	return (unsigned int)state < ARRAY_SIZE(names) ? names[state] : "?";
}
