// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * door.c - seats for connections without a proven key, and which gives way
 *
 * Every new connection is accepted, and has a seat until it proves a key. When
 * all seats of a door are taken another connection gives way. A crowd must not
 * push out the few others, so the one that has waited longest of the source
 * with most seats gives way. A source is an address, a /64 of IPv6, or a user
 * of this machine: what one attacker has many connections of. Sources with
 * equally many seats give way in the order in which they came to that number,
 * oldest first: against a crowd of as many addresses, the seats are the time in
 * which a newcomer must prove its key.
 *
 * A source that has sessions counts %DCM_DOOR_KEPT seats less than it has: a host
 * that lost its connections gets them again whatever strangers do, and a crowd at
 * a host's own address pushes out no other source because of that.
 *
 *	rank = seats, or with sessions the seats above DCM_DOOR_KEPT
 *
 * Everything but finding a source in its bucket takes constant time: there is a
 * list of sources for each rank; those of %DCM_DOOR_RANKS and more share one,
 * and take turns.
 *
 * Locking: none, all on the event loop. A source exists while it has a seat or
 * a session.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

void dcm_door_init(struct dcm_door *door, u64 salt)
{
	memset(door, 0, sizeof(*door));
	for (u32 i = 0; i <= DCM_DOOR_RANKS; i++)
		dcm_list_init(&door->ranks[i]);
	for (u32 i = 0; i < DCM_DOOR_BUCKETS; i++)
		dcm_list_init(&door->table[i]);
	door->salt = salt | 1;
}

static struct dcm_list *door_bucket(struct dcm_door *door,
				    const struct dcm_origin *origin)
{
	u64 half[2], h;

	memcpy(half, origin->b, sizeof(half));
	h = (half[0] ^ door->salt) * 0x9e3779b97f4a7c15ull;
	h = (h ^ h >> 32 ^ half[1]) * (door->salt * 2 + 1);
	h ^= h >> 29;
	return &door->table[h % DCM_DOOR_BUCKETS];
}

static struct dcm_source *source_get(struct dcm_door *door,
				     const struct dcm_origin *origin)
{
	struct dcm_list *bucket = door_bucket(door, origin);
	struct dcm_source *s;

	dcm_list_for_each(s, bucket, struct dcm_source, node)
		if (!memcmp(&s->origin, origin, sizeof(*origin)))
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->door = door;
	s->origin = *origin;
	dcm_list_init(&s->rank);
	dcm_list_init(&s->seats);
	dcm_list_add_tail(&s->node, bucket);
	door->nr_sources++;
	return s;
}

/* Requeue a source after its number of seats or sessions has changed. */
static void source_changed(struct dcm_source *s)
{
	struct dcm_door *door = s->door;
	u32 kept = s->sessions ? DCM_DOOR_KEPT : 0;
	u32 rank = s->nr_seats > kept ? s->nr_seats - kept : 0;

	dcm_list_del(&s->rank);
	if (s->nr_seats) {
		if (rank > DCM_DOOR_RANKS)
			rank = DCM_DOOR_RANKS;
		dcm_list_add_tail(&s->rank, &door->ranks[rank]);
		if (rank > door->top)
			door->top = rank;
	} else if (!s->sessions) {
		dcm_list_del(&s->node);
		door->nr_sources--;
		free(s);
	}
}

int dcm_door_enter(struct dcm_door *door, struct dcm_seat *seat,
		   const struct dcm_origin *origin)
{
	struct dcm_source *s = source_get(door, origin);

	if (!s)
		return -1;
	seat->source = s;
	dcm_list_add_tail(&seat->node, &s->seats);
	s->nr_seats++;
	door->nr_seats++;
	source_changed(s);
	return 0;
}

void dcm_door_leave(struct dcm_seat *seat)
{
	struct dcm_source *s = seat->source;

	if (!s)
		return;
	seat->source = NULL;
	dcm_list_del(&seat->node);
	s->nr_seats--;
	s->door->nr_seats--;
	source_changed(s);
}

struct dcm_seat *dcm_door_victim(struct dcm_door *door)
{
	const struct dcm_source *s;

	while (door->top && dcm_list_empty(&door->ranks[door->top]))
		door->top--;
	if (dcm_list_empty(&door->ranks[door->top]))
		return NULL;
	s = dcm_list_first(&door->ranks[door->top], struct dcm_source, rank);
	return dcm_list_first(&s->seats, struct dcm_seat, node);
}

struct dcm_source *dcm_door_keep(struct dcm_door *door,
				 const struct dcm_origin *origin)
{
	struct dcm_source *s = source_get(door, origin);

	if (s) {
		s->sessions++;
		source_changed(s);
	}
	return s;
}

void dcm_door_unkeep(struct dcm_source *source)
{
	if (!source)
		return;
	source->sessions--;
	source_changed(source);
}

void dcm_origin_of(struct dcm_origin *o, const struct sockaddr_storage *peer)
{
	const struct sockaddr_in *in4 = (const void *)peer;
	const struct sockaddr_in6 *in6 = (const void *)peer;

	memset(o, 0, sizeof(*o));
	if (peer->ss_family == AF_INET6 &&
	    !IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(o->b, &in6->sin6_addr, 8);
		return;
	}
	o->b[10] = 0xff;
	o->b[11] = 0xff;
	if (peer->ss_family == AF_INET)
		memcpy(o->b + 12, &in4->sin_addr, 4);
	else if (peer->ss_family == AF_INET6)
		memcpy(o->b + 12, in6->sin6_addr.s6_addr + 12, 4);
}

void dcm_origin_user(struct dcm_origin *o, u32 uid)
{
	memset(o, 0, sizeof(*o));
	o->b[8] = 'u';
	memcpy(o->b + 12, &uid, sizeof(uid));
}
