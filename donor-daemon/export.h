/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * export.h - ways to make a slab reachable for its host
 *
 * Each way is a struct dcm_export_ops. tcp: the slab is mapped here and the donor
 * copies. shm: the host gets the memfd, and the donor never maps it. verbs (rdma_pd.c):
 * the slab is registered in the session's protection domain, and the host gets a key. A
 * slab that is a file can be reached through the donor only.
 */
#ifndef DCM_EXPORT_H
#define DCM_EXPORT_H

#include "../kvm-dcm/proto/wire.h"

struct dcm_slab;

/**
 * struct dcm_export_ops - a way to make a slab reachable
 * @transport: enum dcm_wire_transport
 * @name: for status and metrics
 * @pass_fd: MR_INFO carries the memfd
 * @served: data operations of this donor's workers reach it
 * @unseen: the donor does not see all of its operations: the host reports its activity
 * @slow: publish() may take long and runs in a thread of the pool
 * @publish: on the event loop unless @slow; 0, or a negative errno and nothing
 *	is to be revoked
 * @revoke: in a thread of the pool, may take long; on return the memfd's memory
 *	is gone for every holder
 */
struct dcm_export_ops {
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
 * dcm_export_choose() - choose the best way that a host offers
 * @transports: mask of enum dcm_wire_transport
 * @is_unix: it is on this machine
 * @verbs: its session can have a protection domain
 * @file: slabs are files
 *
 * Return: %NULL if the host offers no way that can be used.
 */
const struct dcm_export_ops *dcm_export_choose(u32 transports, bool is_unix,
					       bool verbs, bool file);

/**
 * dcm_export_again() - make a slab that was lent before a restart reachable
 * @slab: its memfd has its size
 * @transport: the way it was lent
 *
 * A host has mapped a slab of shm, and needs nothing. Keys of verbs have ended
 * with the process, so such a slab is served over data connections from now on,
 * which its host can do as well.
 *
 * Return: the way, or %NULL: the slab can't be mapped, or was not lent in this way.
 */
const struct dcm_export_ops *dcm_export_again(struct dcm_slab *slab,
					      u32 transport);

/* Free the memfd's memory, even if other processes hold the memfd. */
void dcm_export_truncate(struct dcm_slab *slab);

extern const struct dcm_export_ops dcm_export_verbs;

#endif /* DCM_EXPORT_H */
