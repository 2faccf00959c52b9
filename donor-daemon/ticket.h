/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ticket.h - the right to open one queue pair, sent over TLS, shown in clear */
#ifndef DCM_TICKET_H
#define DCM_TICKET_H

#include "../kvm-dcm/proto/wire.h"
#include "list.h"

#define DCM_TICKET_MS	5000u	/* to be shown within */
#define DCM_TICKET_LANES 256u	/* lanes a session may have queue pairs for */

/**
 * struct dcm_ticket - a ticket that was not shown yet
 * @number: names it; random
 * @secret: proves it
 * @owner: the session, opaque here
 * @lane: the host's number for the connection, from 1
 * @deadline: loop time in ms
 */
struct dcm_ticket {
	struct dcm_list node;
	u64 number;
	u8 secret[16];
	void *owner;
	u16 lane;
	u64 deadline;
};

/* All tickets of a donor. */
struct dcm_tickets {
	struct dcm_list list;
	u32 nr;
	u64 issued;
	u64 used;
	u64 expired;
	u64 bad;	/* shown, and not valid */
};

void dcm_tickets_init(struct dcm_tickets *ts);

/**
 * dcm_ticket_issue() - issue a ticket; an older one for @owner's @lane is void
 *
 * Return: the ticket, valid until the next call of any function here; %NULL: no
 * memory or no randomness.
 */
const struct dcm_ticket *dcm_ticket_issue(struct dcm_tickets *ts, void *owner,
					  u16 lane, u64 now);

/**
 * dcm_ticket_take() - use up a ticket that was shown
 * @shown: number and secret that were shown
 * @owner: out: its owner
 * @lane: out: the lane it is for
 *
 * Return: true once; false for a wrong secret, an unknown number, too late.
 */
bool dcm_ticket_take(struct dcm_tickets *ts, const struct dcm_wire_shown *shown,
		     u64 now, void **owner, u16 *lane);

/* Drop tickets of @owner; @lane 0: of all lanes. */
void dcm_tickets_drop(struct dcm_tickets *ts, const void *owner, u16 lane);

/* Drop tickets that are too old. */
void dcm_tickets_expire(struct dcm_tickets *ts, u64 now);

#endif /* DCM_TICKET_H */
