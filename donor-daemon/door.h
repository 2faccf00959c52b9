/* SPDX-License-Identifier: GPL-2.0-or-later */
/* door.h - seats for connections without a proven key, and which gives way */
#ifndef DCM_DOOR_H
#define DCM_DOOR_H

#include <sys/socket.h>

#include "../kvm-dcm/proto/wire.h"
#include "list.h"

#define DCM_DOOR_RANKS	64u
#define DCM_DOOR_BUCKETS 256u	/* a power of two */
#define DCM_DOOR_KEPT	16u	/* seats of a source that has sessions */

/* Origin of a connection; addresses that one attacker may own are one. */
struct dcm_origin {
	u8 b[16];
};

struct dcm_door;

/**
 * struct dcm_source - the connections of one origin at one door
 * @node: in the door's table
 * @rank: in door->ranks; empty while it has no seat
 * @seats: oldest first
 * @sessions: live sessions from here: seats are kept for them
 */
struct dcm_source {
	struct dcm_list node;
	struct dcm_list rank;
	struct dcm_list seats;
	struct dcm_door *door;
	struct dcm_origin origin;
	u32 nr_seats;
	u32 sessions;
};

/* Part of a connection. */
struct dcm_seat {
	struct dcm_list node;
	struct dcm_source *source;	/* %NULL: at no door */
};

struct dcm_door {
	struct dcm_list ranks[DCM_DOOR_RANKS + 1];
	struct dcm_list table[DCM_DOOR_BUCKETS];
	u64 salt;
	u32 top;		/* no rank above has a source */
	u32 nr_seats;
	u32 nr_sources;
};

/**
 * dcm_door_init() - set up an empty door
 * @salt: random, so that addresses can't be chosen for one bucket
 */
void dcm_door_init(struct dcm_door *door, u64 salt);

/* Take a seat. -1: no memory. */
int dcm_door_enter(struct dcm_door *door, struct dcm_seat *seat,
		   const struct dcm_origin *origin);

/* Give the seat back. Does nothing if @seat is at no door. */
void dcm_door_leave(struct dcm_seat *seat);

/* The seat that gives way next; %NULL: all are free. */
struct dcm_seat *dcm_door_victim(struct dcm_door *door);

/**
 * dcm_door_keep() - keep seats for @origin, from which a session came in
 *
 * Return: argument for dcm_door_unkeep(); %NULL: no memory, no seats are kept.
 */
struct dcm_source *dcm_door_keep(struct dcm_door *door,
				 const struct dcm_origin *origin);
void dcm_door_unkeep(struct dcm_source *source);

/**
 * dcm_origin_of() - the origin of an address
 * @peer: from accept(): IPv4, IPv6 (its /64 is one origin)
 */
void dcm_origin_of(struct dcm_origin *o, const struct sockaddr_storage *peer);

/* The origin of a user of this machine. */
void dcm_origin_user(struct dcm_origin *o, u32 uid);

#endif /* DCM_DOOR_H */
