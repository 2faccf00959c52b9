/* SPDX-License-Identifier: GPL-2.0-or-later */
/* admission.h - limits connections that have no role yet, fairly by source */
#ifndef DCM_ADMISSION_H
#define DCM_ADMISSION_H

#include <sys/socket.h>

#include "../kvm-dcm/proto/wire.h"
#include "list.h"

#define DCM_ADMISSION_RANKS	64u
#define DCM_ADMISSION_BUCKETS 256u	/* a power of two */
#define DCM_ADMISSION_RESERVED	16u	/* seats of a source that has sessions */

/* Origin of a connection; addresses that one attacker may own count as one. */
struct dcm_origin {
	u8 b[16];
};

struct dcm_admission;

/**
 * struct dcm_source - the connections of one origin under one limit
 * @node: in @admission's table
 * @rank: in @admission's ranks; empty while it has no seat
 * @seats: oldest first
 * @sessions: live sessions from here: seats are reserved for them
 */
struct dcm_source {
	struct dcm_list node;
	struct dcm_list rank;
	struct dcm_list seats;
	struct dcm_admission *admission;
	struct dcm_origin origin;
	u32 nr_seats;
	u32 sessions;
};

/* Part of a connection. */
struct dcm_seat {
	struct dcm_list node;
	struct dcm_source *source;	/* %NULL: it has no seat */
};

struct dcm_admission {
	struct dcm_list ranks[DCM_ADMISSION_RANKS + 1];
	struct dcm_list table[DCM_ADMISSION_BUCKETS];
	u64 salt;
	u32 top;		/* no rank above this one has a source */
	u32 nr_seats;
	u32 nr_sources;
};

/**
 * dcm_admission_init() - set up a limit without connections
 * @salt: random, so that addresses can't be chosen for one bucket
 */
void dcm_admission_init(struct dcm_admission *adm, u64 salt);

/* Take a seat: 0 or -ENOMEM. */
int dcm_admission_enter(struct dcm_admission *adm, struct dcm_seat *seat,
		   const struct dcm_origin *origin);

/* Give the seat back. Does nothing without one. */
void dcm_admission_leave(struct dcm_seat *seat);

/* The seat of the connection to drop next; %NULL: no seat is taken. */
struct dcm_seat *dcm_admission_victim(struct dcm_admission *adm);

/**
 * dcm_admission_reserve() - reserve seats for @origin, from which a session came in
 *
 * Return: argument for dcm_admission_unreserve(); %NULL: no memory, none is reserved.
 */
struct dcm_source *dcm_admission_reserve(struct dcm_admission *adm,
				 const struct dcm_origin *origin);
void dcm_admission_unreserve(struct dcm_source *source);

/**
 * dcm_origin_of() - the origin of an address
 * @peer: from accept(): IPv4, IPv6 (its /64 is one origin)
 */
void dcm_origin_of(struct dcm_origin *o, const struct sockaddr_storage *peer);

/* The origin of a user of this machine. */
void dcm_origin_user(struct dcm_origin *o, u32 uid);

#endif /* DCM_ADMISSION_H */
