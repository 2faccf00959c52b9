/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lend.h - the ways a slab becomes reachable for the host it is lent to
 *
 * A way is a row: tcp maps the slab here and the donor copies; shm hands the
 * memfd over and the donor never maps it. Verbs is one more row: publish()
 * registers the memory in the session's protection domain and sets
 * slab->addr and slab->rkey, revoke() deregisters it; nothing in pool.c,
 * session.c or control.c changes for it.
 */
#ifndef DCM_LEND_H
#define DCM_LEND_H

#include "../kvm-dcm/core/wire.h"

struct dcm_slab;

/**
 * struct dcm_lend_ops - a way to lend
 * @transport: enum dcm_wire_transport
 * @name: for status and metrics
 * @pass_fd: MR_INFO carries the memfd
 * @served: data operations of this donor's workers reach it
 * @publish: on the event loop, must be quick; 0 or a negative errno
 * @revoke: in a thread of the pool, may take long; the memfd's memory is
 *	gone for every holder of it when this returns
 */
struct dcm_lend_ops {
	u32 transport;
	const char *name;
	bool pass_fd;
	bool served;
	int (*publish)(struct dcm_slab *slab);
	void (*revoke)(struct dcm_slab *slab);
};

/* The best of what a host offers over this kind of socket, or %NULL. */
const struct dcm_lend_ops *dcm_lend_choose(u32 transports, bool is_unix);

#endif /* DCM_LEND_H */
