/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * herd_world.h - VMs with the real placement of client/, on simulated donors
 *
 * Connections, donors and time are simulated. A connection delays messages and
 * keeps their order, so an answer is old when it is read. All is a function of
 * the seed, in one thread.
 */
#ifndef HERD_WORLD_H
#define HERD_WORLD_H

#include "../../kvm-dcm/client/client_int.h"

#define HERD_DONORS 16u
#define HERD_EXTENTS 64u
#define HERD_QUEUE 512u
#define HERD_MS 1000u /* ticks of the world: microseconds */

/* Messages on their way, in order. */
struct herd_way {
	struct dcm_wire_msg msg[HERD_QUEUE];
	u64 due[HERD_QUEUE];
	u32 head, tail;
};

/**
 * struct herd_donor - a donor
 * @one_way: how long a message to or from it takes, microseconds
 * @jitter: and up to so much longer
 * @deaf: the donor reads nothing more, and sends nothing
 * @beat: when its next heartbeat is due
 */
struct herd_donor {
	u64 total;
	u64 used;
	u64 one_way;
	u64 jitter;
	bool deaf;
	u64 beat;
};

/* A VM's connection to one donor. */
struct herd_line {
	struct herd_way out, in;
	bool welcomed;
};

/**
 * struct herd_vm - a VM
 * @has: of each extent: it has a slab
 * @of_extent: of each extent: %NULL, as there are no real slabs
 * @line: to each donor
 * @on: extents on each donor
 * @attached: extents that have a slab
 * @nr_starved: how often an extent was reported to wait
 */
struct herd_vm {
	struct dcm_client client;
	u64 want[1], pending[1], placing[1], starved[1];
	bool has[HERD_EXTENTS];
	struct dcm_client_slab *of_extent[HERD_EXTENTS];
	struct herd_line line[HERD_DONORS];
	u32 on[HERD_DONORS];
	u32 attached;
	u32 nr_starved;
};

/**
 * struct herd_world - all there is
 * @now: microseconds
 * @rng: state of the random numbers
 * @slab_id: of the slab lent last
 */
struct herd_world {
	u64 now;
	u64 rng;
	u32 nr_donors, nr_vms;
	struct herd_donor donor[HERD_DONORS];
	struct herd_vm *vm;
	u64 slab_id;
};

extern struct herd_world herd;

/* A random number below @n. */
u64 herd_random(u64 n);

/* Make a world; its donors are equal, quick and empty. */
void herd_init(u64 seed, u32 nr_donors, u32 nr_vms);
void herd_free(void);

/* Let one step of time pass, in which each donor and each VM has a turn. */
void herd_step(void);
/* Let @us microseconds pass. */
void herd_run(u64 us);

#endif /* HERD_WORLD_H */
