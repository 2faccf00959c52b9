// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ticket.c - the right to open one queue pair
 *
 * The RDMA connection manager proves nothing about the peer that asks for a
 * connection. So a session asks for a ticket on its TLS connection: a random
 * number, by which it is found, and a random secret, which is compared in
 * constant time. The ticket crosses the network in clear text when it is shown, but is
 * worthless from then on, as it opens one connection only, its owner's.
 *
 * issued -> shown (used up) | expired | dropped with its session or lane.
 *
 * A wrong secret does not use a ticket up: guessing must not take it from its
 * owner. There are at most as many as lanes of sessions.
 *
 * Locking: none, all on the event loop.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ticket.h"

void dcm_tickets_init(struct dcm_tickets *ts)
{
	memset(ts, 0, sizeof(*ts));
	dcm_list_init(&ts->list);
}

static void ticket_free(struct dcm_tickets *ts, struct dcm_ticket *t)
{
	dcm_list_del(&t->node);
	ts->nr--;
	explicit_bzero(t, sizeof(*t));
	free(t);
}

static struct dcm_ticket *ticket_find(struct dcm_tickets *ts, u64 number)
{
	struct dcm_ticket *t;

	dcm_list_for_each(t, &ts->list, struct dcm_ticket, node) {
		if (t->number == number)
			return t;
	}
	return NULL;
}

const struct dcm_ticket *dcm_ticket_issue(struct dcm_tickets *ts, void *owner,
					  u16 lane, u64 now)
{
	struct dcm_ticket *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	do {
		if (getrandom(&t->number, sizeof(t->number), 0) !=
			    sizeof(t->number) ||
		    getrandom(t->secret, sizeof(t->secret), 0) !=
			    sizeof(t->secret)) {
			free(t);
			return NULL;
		}
	} while (ticket_find(ts, t->number));
	dcm_tickets_drop(ts, owner, lane);
	t->owner = owner;
	t->lane = lane;
	t->deadline = now + DCM_TICKET_MS;
	dcm_list_add_tail(&t->node, &ts->list);
	ts->nr++;
	ts->issued++;
	return t;
}

static bool secret_equal(const u8 *a, const u8 *b)
{
	unsigned int diff = 0;

	for (int i = 0; i < 16; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

bool dcm_ticket_take(struct dcm_tickets *ts, const struct dcm_wire_shown *shown,
		     u64 now, void **owner, u16 *lane)
{
	struct dcm_ticket *t = ticket_find(ts, shown->number);

	if (!t || !secret_equal(t->secret, shown->secret) ||
	    now >= t->deadline) {
		ts->bad++;
		return false;
	}
	*owner = t->owner;
	*lane = t->lane;
	ts->used++;
	ticket_free(ts, t);
	return true;
}

void dcm_tickets_drop(struct dcm_tickets *ts, const void *owner, u16 lane)
{
	struct dcm_ticket *t, *tmp;

	dcm_list_for_each_safe(t, tmp, &ts->list, struct dcm_ticket, node) {
		if (t->owner == owner && (!lane || t->lane == lane))
			ticket_free(ts, t);
	}
}

void dcm_tickets_expire(struct dcm_tickets *ts, u64 now)
{
	struct dcm_ticket *t, *tmp;

	dcm_list_for_each_safe(t, tmp, &ts->list, struct dcm_ticket, node) {
		if (now < t->deadline)
			continue;
		ts->expired++;
		ticket_free(ts, t);
	}
}
