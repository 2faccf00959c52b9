/* SPDX-License-Identifier: GPL-2.0-or-later */
/* request.h - requests to one donor that wait for answers: request.c, list.c */
#ifndef DCM_CLIENT_REQUEST_H
#define DCM_CLIENT_REQUEST_H

#include "../lib/dcm_context.h"

struct client_job;
struct client_lane_slot;
struct dcm_client_slab;

/* Kinds of requests to a donor; see request.c. */
enum client_request_kind {
	REQUEST_NONE = 0,
	REQUEST_QUERY = 0x1, /* QUERY_MEM, answered by FREE_MEM */
	REQUEST_MAP = 0x2, /* MAP for a job, answered by MR_INFO */
	REQUEST_TICKET = 0x4, /* ASK_TICKET for a slot, answered by TICKET */
	REQUEST_UNMAP = 0x8, /* UNMAP of a slab, answered by DONE */
	REQUEST_ANY = 0xf,
};

/**
 * struct client_list - a LIST request in flight, and the answers so far
 * @tag: its tag; 0: none is in flight
 * @last: the highest id so far
 * @left: answers that may still come
 * @returned: slabs given back since the resume
 */
struct client_list {
	u64 tag;
	u64 last;
	u32 left;
	u32 returned;
};

/**
 * struct client_request - a request whose answer is waited for
 * @job: %REQUEST_MAP: the extent being placed
 * @slot: %REQUEST_TICKET: the lane that gets the queue pair
 * @slab: %REQUEST_UNMAP: the slab being given back
 */
struct client_request {
	u64 tag;
	enum client_request_kind kind;
	union {
		void *owner;
		struct client_job *job;
		struct client_lane_slot *slot;
		struct dcm_client_slab *slab;
	};
};

#endif /* DCM_CLIENT_REQUEST_H */
