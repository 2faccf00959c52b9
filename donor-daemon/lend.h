/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lend.h - the ways a slab becomes reachable for the host it is lent to
 *
 * A way is a row: tcp maps the slab here and the donor copies; shm hands the
 * memfd over and the donor never maps it; verbs (domain.c) registers it in the
 * session's protection domain and hands out a key.
 */
#ifndef DCM_LEND_H
#define DCM_LEND_H

#include "../kvm-dcm/proto/wire.h"

struct dcm_slab;

/**
 * struct dcm_lend_ops - a way to lend
 * @transport: enum dcm_wire_transport
 * @name: for status and metrics
 * @pass_fd: MR_INFO carries the memfd
 * @served: data operations of this donor's workers reach it
 * @unseen: most operations are done without us: what the host says is its
 *	activity
 * @slow: publish() runs in a thread of the pool, as it may take long
 * @publish: on the event loop unless @slow; 0, or a negative errno and nothing
 *	is to be revoked
 * @revoke: in a thread of the pool, may take long; the memfd's memory is
 *	gone for every holder of it when this returns
 */
struct dcm_lend_ops {
	u32 transport;
	const char *name;
	bool pass_fd;
	bool served;
	bool unseen;
	bool slow;
	int (*publish)(struct dcm_slab *slab);
	void (*revoke)(struct dcm_slab *slab);
};

/**
 * dcm_lend_choose() - the best of what a host offers
 * @transports: mask of enum dcm_wire_transport
 * @is_unix: it is on this machine
 * @verbs: its session has a protection domain
 *
 * Return: a row, or %NULL.
 */
const struct dcm_lend_ops *dcm_lend_choose(u32 transports, bool is_unix,
					   bool verbs);

/* The memfd's memory goes, whoever still holds it. */
void dcm_lend_truncate(struct dcm_slab *slab);

extern const struct dcm_lend_ops dcm_lend_verbs;

#endif /* DCM_LEND_H */
