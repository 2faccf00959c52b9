// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * request.c - the requests to one donor whose answers are waited for
 *
 * An answer, and an ERROR, carry the tag of their request. The table says what was
 * asked with a tag and for which job, slot or slab. Tags count up and are never used
 * again, so a tag that is not in the table belongs to a request that was answered or
 * given up, or, if it is above the newest one, to no request.
 *
 * A place is taken when a request is sent, and free again when it is answered,
 * when its owner gives it up, and when the control connection is lost. The
 * table is small: a search looks at every request.
 *
 * Bounds: QUERY_MEM is sent when none is in flight, MAP once for each of
 * %CLIENT_JOBS jobs, ASK_TICKET once for each lane. An UNMAP waits with its slab
 * when %CLIENT_UNMAPS_MAX requests are in flight, so there is a place for the
 * others in any case.
 *
 * Locking: none, only the client thread uses it.
 */
#include "client_int.h"

static struct client_request *request_find(struct client_donor *d, u64 tag)
{
	u32 i;

	for (i = 0; i < d->nr_requests; i++)
		if (d->request[i].tag == tag)
			return &d->request[i];
	return NULL;
}

/**
 * client_request_add() - wait for the answer to a request that is about to be
 * sent
 * @owner: the job, slot or slab that the answer is for, as @kind says
 *
 * Return: the tag of the request; 0: too many are in flight, only for
 * %REQUEST_UNMAP.
 */
u64 client_request_add(struct client_donor *d, enum client_request_kind kind,
		       void *owner)
{
	u32 limit = kind == REQUEST_UNMAP ? CLIENT_UNMAPS_MAX :
					    CLIENT_REQUESTS_MAX;

	if (d->nr_requests >= limit)
		return 0;
	d->request[d->nr_requests++] = (struct client_request){
		.tag = ++d->tag,
		.kind = kind,
		.owner = owner,
	};
	return d->tag;
}

/**
 * client_request_take() - the request that a message answers
 * @kinds: requests that it can answer, a mask
 *
 * Return: the request, which is no longer in the table; @kind is %REQUEST_NONE
 * if none with this tag and of these kinds is waited for.
 */
struct client_request client_request_take(struct client_donor *d, u64 tag,
					  u32 kinds)
{
	struct client_request *found = request_find(d, tag), request;

	if (!found || !(found->kind & kinds))
		return (struct client_request){ .kind = REQUEST_NONE };
	request = *found;
	*found = d->request[--d->nr_requests];
	return request;
}

/* Forget a request, as its owner no longer waits; does nothing if it was answered. */
void client_request_drop(struct client_donor *d, u64 tag)
{
	client_request_take(d, tag, REQUEST_ANY);
}
