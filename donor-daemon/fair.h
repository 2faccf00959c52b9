/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fair.h - fair turns: tenants share equally, however much one asks for */
#ifndef DCM_FAIR_H
#define DCM_FAIR_H

#include "../kvm-dcm/proto/wire.h"
#include "list.h"

/**
 * struct dcm_flow - one owner's entries
 * @node: in fair->flows
 * @owner: a tenant; %NULL: the donor itself
 * @waiting: its entries that wait, the next one first
 * @start: the virtual time at which its next turn starts
 * @served: cost of all its turns so far
 * @since: cost charged to others before it began to wait for its next turn
 * @waited: cost charged to others while it waited for its last turn
 * @users: number of entries that have joined
 * @busy: number of turns begun and not ended
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

/* Something that can wait. Zero it, then call dcm_fair_join(). */
struct dcm_fair_entry {
	struct dcm_list node;
	struct dcm_flow *flow;
	bool waits;
};

/**
 * struct dcm_fair - flows that share something
 * @active: flows with entries that wait, by @start
 * @now: the virtual time: the start of the turn given last
 * @spent: cost of all turns so far
 * @changed: @spent when another flow than @last was charged
 * @asked: @spent at the last dcm_fair_ask()
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

/* Let @e wait for turns, which are charged to @owner: 0 or -ENOMEM. */
int dcm_fair_join(struct dcm_fair *fair, struct dcm_fair_entry *e,
		  const void *owner);

/* @e will never wait again; allowed if it has not joined. */
void dcm_fair_leave(struct dcm_fair *fair, struct dcm_fair_entry *e);

/*
 * To be called when the caller looks for entries that want a turn. Entries that the
 * next look finds may have waited since this one; flow->waited counts from here.
 */
static inline void dcm_fair_ask(struct dcm_fair *fair)
{
	fair->asked = fair->spent;
}

/* @e wants a turn, behind others of its flow. No effect if it waits already. */
void dcm_fair_add(struct dcm_fair *fair, struct dcm_fair_entry *e);

/* @e wants no turn any more; no effect if it does not wait. */
void dcm_fair_drop(struct dcm_fair_entry *e);

/**
 * dcm_fair_take() - take the entry whose turn is next
 *
 * It does not wait any more. The caller charges the turn's cost by
 * dcm_fair_charge(), and ends it by dcm_fair_done().
 *
 * Return: %NULL if nothing waits.
 */
struct dcm_fair_entry *dcm_fair_take(struct dcm_fair *fair);

/* Charge a turn of @flow; the unit of @cost must be the same for all. */
void dcm_fair_charge(struct dcm_fair *fair, struct dcm_flow *flow, u64 cost);

/* A turn of @flow has ended; this frees @flow if its entries have left. */
void dcm_fair_done(struct dcm_fair *fair, struct dcm_flow *flow);

/* Was more than one flow charged within the last @span of cost? */
static inline bool dcm_fair_shared(const struct dcm_fair *fair, u64 span)
{
	return fair->spent - fair->changed < span;
}

static inline bool dcm_fair_idle(const struct dcm_fair *fair)
{
	return dcm_list_empty(&fair->active);
}

#endif /* DCM_FAIR_H */
