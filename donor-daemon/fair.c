// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fair.c - fair turns: tenants share equally, however much each of them asks for
 *
 * Whatever waits for a turn (a data connection with requests, a job, a MAP) is an
 * entry of its tenant's flow. Within a flow the order is that of arrival. Among
 * flows it is start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). Time is
 * virtual: a turn starts where the flow's last turn ended, and ends as much later as it
 * cost; the flow with the least start is next. A flow in which nothing was waiting
 * starts where the current turn started: it has no credit for the time before, and
 * waits only for that turn, and for one turn of each other flow that came back
 * likewise. So a tenant gains nothing by many entries or a long backlog.
 *
 *	joined -> waiting (add) -> taken -> [waiting ->] ... -> left
 *
 * The wait of a flow for its turn is measured, too, as the cost that others are
 * charged meanwhile: a clock would also count delays by other programs.
 *
 * A flow is found by searching a list of all flows: there are at most as many as
 * tenants, and a search is needed only when an entry joins.
 *
 * Locking: none; used by one thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "fair.h"

void dcm_fair_init(struct dcm_fair *fair)
{
	dcm_list_init(&fair->flows);
	dcm_list_init(&fair->active);
	fair->now = 0;
	/* far above @changed: dcm_fair_shared() is false at first */
	fair->spent = 1ull << 62;
	fair->changed = 0;
	fair->asked = fair->spent;
	fair->last = NULL;
}

int dcm_fair_join(struct dcm_fair *fair, struct dcm_fair_entry *e,
		  const void *owner)
{
	struct dcm_flow *flow;

	dcm_list_for_each(flow, &fair->flows, struct dcm_flow, node) {
		if (flow->owner == owner)
			goto found;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return -ENOMEM;
	flow->owner = owner;
	flow->start = fair->now;
	dcm_list_init(&flow->active_node);
	dcm_list_init(&flow->waiting);
	dcm_list_add_tail(&flow->node, &fair->flows);
found:
	flow->users++;
	e->flow = flow;
	e->waits = false;
	dcm_list_init(&e->node);
	return 0;
}

/* Insert a flow into the active ones, behind those that start no later. */
static void flow_enqueue(struct dcm_fair *fair, struct dcm_flow *flow)
{
	struct dcm_list *at;

	dcm_list_del(&flow->active_node);
	at = fair->active.prev;
	while (at != &fair->active &&
	       dcm_list_entry(at, struct dcm_flow, active_node)->start >
		       flow->start)
		at = at->prev;
	/* before the one that follows @at */
	dcm_list_add_tail(&flow->active_node, at->next);
}

/* Free it if it has no entries, and none of its turns goes on. */
static void flow_free(struct dcm_fair *fair, struct dcm_flow *flow)
{
	if (flow->users || flow->busy)
		return;
	if (fair->last == flow)
		fair->last = NULL;
	dcm_list_del(&flow->node);
	free(flow);
}

static void entry_dequeue(struct dcm_fair_entry *e)
{
	e->waits = false;
	dcm_list_del(&e->node);
	if (dcm_list_empty(&e->flow->waiting))
		dcm_list_del(&e->flow->active_node);
}

void dcm_fair_drop(struct dcm_fair_entry *e)
{
	if (e->waits)
		entry_dequeue(e);
}

void dcm_fair_leave(struct dcm_fair *fair, struct dcm_fair_entry *e)
{
	struct dcm_flow *flow = e->flow;

	if (!flow)
		return;
	dcm_fair_drop(e);
	e->flow = NULL;
	flow->users--;
	flow_free(fair, flow);
}

void dcm_fair_add(struct dcm_fair *fair, struct dcm_fair_entry *e)
{
	struct dcm_flow *flow = e->flow;

	if (e->waits)
		return;
	e->waits = true;
	dcm_list_add_tail(&e->node, &flow->waiting);
	if (!dcm_list_empty(&flow->active_node))
		return;
	if (flow->start < fair->now)
		flow->start = fair->now;
	/* it may have waited since the last look; don't count its own turns */
	if (fair->asked > flow->served + flow->since)
		flow->since = fair->asked - flow->served;
	flow_enqueue(fair, flow);
}

struct dcm_fair_entry *dcm_fair_take(struct dcm_fair *fair)
{
	struct dcm_fair_entry *e;
	struct dcm_flow *flow;

	if (dcm_fair_idle(fair))
		return NULL;
	flow = dcm_list_first(&fair->active, struct dcm_flow, active_node);
	e = dcm_list_first(&flow->waiting, struct dcm_fair_entry, node);
	entry_dequeue(e);
	if (fair->now < flow->start)
		fair->now = flow->start;
	flow->busy++;
	flow->waited = fair->spent - flow->served - flow->since;
	flow->since += flow->waited;
	return e;
}

void dcm_fair_charge(struct dcm_fair *fair, struct dcm_flow *flow, u64 cost)
{
	flow->start += cost;
	flow->served += cost;
	fair->spent += cost;
	if (fair->last != flow) {
		if (fair->last)
			fair->changed = fair->spent;
		fair->last = flow;
	}
	if (!dcm_list_empty(&flow->active_node))
		flow_enqueue(fair, flow);
}

void dcm_fair_done(struct dcm_fair *fair, struct dcm_flow *flow)
{
	flow->busy--;
	flow_free(fair, flow);
}
