/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fair.h - whose turn it is: tenants share alike, however much one asks for */
#ifndef DCM_FAIR_H
#define DCM_FAIR_H

#include "../kvm-dcm/proto/wire.h"
#include "list.h"

/**
 * struct dcm_flow - what one owner has waiting
 * @node: fair->flows
 * @owner: a tenant; %NULL: the donor itself
 * @waiting: its entries, the first one is next
 * @start: fair->now at which its next turn begins
 * @served: all that it was ever charged
 * @since: what others had been charged when it began to wait for its next turn
 * @waited: what others were charged while it waited for the turn it got last
 * @users: entries that may ever wait here
 * @busy: turns begun and not ended
 */
struct dcm_flow {
	struct dcm_list node;
	struct dcm_list active_node;
	const void *owner;
	struct dcm_list waiting;
	u64 start;
	u64 served;
	u64 since;
	u64 waited;
	u32 users;
	u32 busy;
};

/* A member of what waits. Zero it, then dcm_fair_join(). */
struct dcm_fair_entry {
	struct dcm_list node;
	struct dcm_flow *flow;
	bool waits;
};

/**
 * struct dcm_fair - the flows that share something
 * @active: flows with something waiting, by @start
 * @now: the start of the turn given last
 * @spent: all that was ever charged
 * @changed: @spent when another flow than @last was charged
 * @asked: @spent when dcm_fair_ask() was called last
 */
struct dcm_fair {
	struct dcm_list flows;
	struct dcm_list active;
	u64 now;
	u64 spent;
	u64 changed;
	u64 asked;
	const struct dcm_flow *last;
};

void dcm_fair_init(struct dcm_fair *fair);

/* From here on @e can wait, and counts as @owner's. -1: out of memory. */
int dcm_fair_join(struct dcm_fair *fair, struct dcm_fair_entry *e,
		  const void *owner);

/* It waits no more and never will; also when it has not joined. */
void dcm_fair_leave(struct dcm_fair *fair, struct dcm_fair_entry *e);

/*
 * The caller looks now for entries that want a turn: an entry that the next look
 * finds may have wanted it since this one. Only flow->waited depends on it.
 */
static inline void dcm_fair_ask(struct dcm_fair *fair)
{
	fair->asked = fair->spent;
}

/* @e wants a turn, behind others of its flow. Nothing if it waits already. */
void dcm_fair_add(struct dcm_fair *fair, struct dcm_fair_entry *e);

/* It wants none any more; nothing if it does not wait. */
void dcm_fair_drop(struct dcm_fair_entry *e);

/**
 * dcm_fair_take() - whose turn is next
 *
 * It does not wait any more. The caller tells what the turn cost by
 * dcm_fair_charge(), and that it is over by dcm_fair_done().
 *
 * Return: %NULL if nothing waits.
 */
struct dcm_fair_entry *dcm_fair_take(struct dcm_fair *fair);

/* A turn of @flow costs @cost, in any unit that is the same for all. */
void dcm_fair_charge(struct dcm_fair *fair, struct dcm_flow *flow, u64 cost);

/* A turn of @flow is over; it may be gone now, if its entries have left. */
void dcm_fair_done(struct dcm_fair *fair, struct dcm_flow *flow);

/* Is there more than one flow that has been charged in the last @span? */
static inline bool dcm_fair_shared(const struct dcm_fair *fair, u64 span)
{
	return fair->spent - fair->changed < span;
}

static inline bool dcm_fair_idle(const struct dcm_fair *fair)
{
	return dcm_list_empty(&fair->active);
}

#endif /* DCM_FAIR_H */
