/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * transport.h - the interface of all transports to a donor's slabs
 *
 * Operations are one-sided: the initiator names a slab, an offset and a length;
 * the donor's CPU sleeps (verbs), copies (tcp), or takes no part (shm: the slab
 * is mapped). The interface fits a verbs queue pair: post() is ibv_post_send()
 * without the doorbell, flush() the doorbell, poll() the completion queue, and
 * @rkey and @base of a slab are what the donor handed out.
 *
 * An endpoint belongs to one lane (one fault thread or one vCPU) and is called
 * by that lane only: no function takes a lock of another lane. Other threads
 * call only .open and .close, never beside another function of the same
 * endpoint, and .kill.
 *
 * Ordering: operations on one endpoint may complete in any order unless
 * %DCM_TR_ORDERED is set. The core never has two operations in flight on one
 * page whose bytes it uses, so it needs no order. (dcm-tc18, 3.3 relies on the order
 * of an RC queue pair.)
 */
#ifndef DCM_TRANSPORT_H
#define DCM_TRANSPORT_H

#include "../core/io.h"

/* Properties of a transport, dcm_transport_ops.caps. */
#define DCM_TR_ORDERED 0x1 /* completes in posting order */
#define DCM_TR_DIRECT 0x2 /* READ leaves the data where it is: io->data */
#define DCM_TR_INLINE 0x4 /* post() completes at once: never sleep for it */

/**
 * struct dcm_done - operations completed and not polled, in order
 * @first: the oldest
 * @tail: the pointer to set to the next one
 * @nr: how many
 */
struct dcm_done {
	struct dcm_io *first;
	struct dcm_io **tail;
	u32 nr;
};

static inline void dcm_done_init(struct dcm_done *d)
{
	d->first = NULL;
	d->tail = &d->first;
	d->nr = 0;
}

static inline void dcm_done_add(struct dcm_done *d, struct dcm_io *io,
				int status)
{
	io->status = status;
	io->next = NULL;
	*d->tail = io;
	d->tail = &io->next;
	d->nr++;
}

/* Take up to @max of them as a list, for dcm_transport_ops.poll. */
static inline int dcm_done_take(struct dcm_done *d, struct dcm_io **done,
				int max)
{
	struct dcm_io **end = done;
	int n;

	*done = d->first;
	for (n = 0; n < max && *end; n++)
		end = &(*end)->next;
	d->first = *end;
	*end = NULL;
	if (!d->first)
		d->tail = &d->first;
	d->nr -= (u32)n;
	return n;
}

struct dcm_endpoint;
struct module;

/**
 * struct dcm_transport_ops - a transport
 * @name: "shm", "tcp", "verbs", "hostile"
 * @owner: in the kernel: the module to hold while there is an endpoint, or
 *	%NULL
 * @caps: DCM_TR_*
 * @open: make an endpoint; @arg is the transport's own parameters (see its
 *	header). May sleep. On failure %NULL and a negative errno in *@err.
 * @close: end an endpoint. Operations still in flight, which a last poll() has not
 *	completed with -ENOTCONN, are forgotten: nothing touches them or their memory
 *	afterwards. May sleep.
 * @post: start @io. 0, or -EAGAIN when the queue is full (poll and try
 *	again), -ENOTCONN when the endpoint is dead, -ERANGE outside the slab.
 *	On an error @io was not taken. Never sleeps, never allocates.
 * @flush: send all that was posted so far. Never sleeps.
 * @poll: take up to @max completions into the list at *@done; returns how
 *	many. A dead endpoint completes everything with -ENOTCONN. Never
 *	sleeps.
 * @wait_fd: a descriptor to poll() while operations are in flight, with the
 *	events (POLLIN, POLLOUT) in *@events; -1 when there is nothing to
 *	wait for. User space only; the kernel pager waits differently.
 * @in_flight: operations posted and not yet polled
 * @dead: true once the endpoint can't complete anything any more; it stays
 *	so, and the client closes it and may open another
 * @ready: true once the donor has accepted it; %NULL: from the start
 * @kill: make it die soon: the owner's next poll() finds it dead and completes
 *	operations in flight, without waiting for the peer or for completions (at
 *	most for an adapter to release memory); from then on post() fails. User
 *	space: any thread, while it is not being closed. %NULL where no
 *	connection can end (shm)
 * @ping: send a request that changes nothing, as a sign of life; does nothing if
 *	operations are in flight. Never sleeps. %NULL where a request is no sign of
 *	life (verbs), and in user space
 * @why: why it died, for the thread that closes it: a static text, "" while it
 *	lives; %NULL where @kill is
 */
struct dcm_transport_ops {
	const char *name;
	struct module *owner;
	u32 caps;
	struct dcm_endpoint *(*open)(const void *arg, int *err);
	void (*close)(struct dcm_endpoint *ep);
	int (*post)(struct dcm_endpoint *ep, struct dcm_io *io);
	void (*flush)(struct dcm_endpoint *ep);
	int (*poll)(struct dcm_endpoint *ep, struct dcm_io **done, int max);
	int (*wait_fd)(struct dcm_endpoint *ep, short *events);
	u32 (*in_flight)(struct dcm_endpoint *ep);
	bool (*dead)(struct dcm_endpoint *ep);
	bool (*ready)(struct dcm_endpoint *ep);
	void (*kill)(struct dcm_endpoint *ep);
	void (*ping)(struct dcm_endpoint *ep);
	const char *(*why)(struct dcm_endpoint *ep);
};

/**
 * struct dcm_endpoint - first member of every transport's endpoint
 * @ops: its table
 */
struct dcm_endpoint {
	const struct dcm_transport_ops *ops;
};

extern const struct dcm_transport_ops dcm_transport_shm;
extern const struct dcm_transport_ops dcm_transport_tcp;
extern const struct dcm_transport_ops dcm_transport_hostile;
/* dcm_transport_verbs is in verbs.h: it needs libibverbs */

#endif /* DCM_TRANSPORT_H */
