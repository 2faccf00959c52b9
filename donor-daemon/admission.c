// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * admission.c - limits connections that have no role yet, fairly by source
 *
 * Every new connection is accepted, and takes one of a limited number of seats.
 * When all seats are taken, another connection is dropped. Many connections of one
 * source must not push out those of others, so the victim is the oldest connection of
 * the source with most seats. A source is an address, a /64 of IPv6, or a user of this
 * machine: one attacker can have any number of connections from it. Of sources with
 * equally many seats, the one that reached that number first is the victim. So against
 * an attacker with as many addresses as there are seats, the number of seats decides
 * how long a new connection has to prove its key.
 *
 * For a source that has sessions, %DCM_ADMISSION_RESERVED of its seats are not counted:
 * so a host that lost its connections gets new ones whatever strangers do. Strangers
 * at the same address as a host gain no more than these seats.
 *
 *	rank = seats, or with sessions the seats above %DCM_ADMISSION_RESERVED
 *
 * Everything except finding a source in its bucket takes constant time: there is a
 * list of sources for each rank; sources of rank %DCM_ADMISSION_RANKS and more share
 * one list, and take turns as victims.
 *
 * Locking: none, all on the event loop. A source exists while it has a seat or
 * a session.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"

void dcm_admission_init(struct dcm_admission *adm, u64 salt)
{
	memset(adm, 0, sizeof(*adm));
	for (u32 i = 0; i <= DCM_ADMISSION_RANKS; i++)
		dcm_list_init(&adm->ranks[i]);
	for (u32 i = 0; i < DCM_ADMISSION_BUCKETS; i++)
		dcm_list_init(&adm->table[i]);
	adm->salt = salt | 1;
}

static struct dcm_list *admission_bucket(struct dcm_admission *adm,
				    const struct dcm_origin *origin)
{
	u64 half[2], h;

	memcpy(half, origin->b, sizeof(half));
	h = (half[0] ^ adm->salt) * 0x9e3779b97f4a7c15ull;
	h = (h ^ h >> 32 ^ half[1]) * (adm->salt * 2 + 1);
	h ^= h >> 29;
	return &adm->table[h % DCM_ADMISSION_BUCKETS];
}

static struct dcm_source *source_get(struct dcm_admission *adm,
				     const struct dcm_origin *origin)
{
	struct dcm_list *bucket = admission_bucket(adm, origin);
	struct dcm_source *s;

	dcm_list_for_each(s, bucket, struct dcm_source, node)
		if (!memcmp(&s->origin, origin, sizeof(*origin)))
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->admission = adm;
	s->origin = *origin;
	dcm_list_init(&s->rank);
	dcm_list_init(&s->seats);
	dcm_list_add_tail(&s->node, bucket);
	adm->nr_sources++;
	return s;
}

/* Requeue a source after its number of seats or sessions has changed. */
static void source_changed(struct dcm_source *s)
{
	struct dcm_admission *adm = s->admission;
	u32 reserved = s->sessions ? DCM_ADMISSION_RESERVED : 0;
	u32 rank = s->nr_seats > reserved ? s->nr_seats - reserved : 0;

	dcm_list_del(&s->rank);
	if (s->nr_seats) {
		if (rank > DCM_ADMISSION_RANKS)
			rank = DCM_ADMISSION_RANKS;
		dcm_list_add_tail(&s->rank, &adm->ranks[rank]);
		if (rank > adm->top)
			adm->top = rank;
	} else if (!s->sessions) {
		dcm_list_del(&s->node);
		adm->nr_sources--;
		free(s);
	}
}

int dcm_admission_enter(struct dcm_admission *adm, struct dcm_seat *seat,
		   const struct dcm_origin *origin)
{
	struct dcm_source *s = source_get(adm, origin);

	if (!s)
		return -ENOMEM;
	seat->source = s;
	dcm_list_add_tail(&seat->node, &s->seats);
	s->nr_seats++;
	adm->nr_seats++;
	source_changed(s);
	return 0;
}

void dcm_admission_leave(struct dcm_seat *seat)
{
	struct dcm_source *s = seat->source;

	if (!s)
		return;
	seat->source = NULL;
	dcm_list_del(&seat->node);
	s->nr_seats--;
	s->admission->nr_seats--;
	source_changed(s);
}

struct dcm_seat *dcm_admission_victim(struct dcm_admission *adm)
{
	const struct dcm_source *s;

	while (adm->top && dcm_list_empty(&adm->ranks[adm->top]))
		adm->top--;
	if (dcm_list_empty(&adm->ranks[adm->top]))
		return NULL;
	s = dcm_list_first(&adm->ranks[adm->top], struct dcm_source, rank);
	return dcm_list_first(&s->seats, struct dcm_seat, node);
}

struct dcm_source *dcm_admission_reserve(struct dcm_admission *adm,
				 const struct dcm_origin *origin)
{
	struct dcm_source *s = source_get(adm, origin);

	if (s) {
		s->sessions++;
		source_changed(s);
	}
	return s;
}

void dcm_admission_unreserve(struct dcm_source *source)
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
