/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tenant.h - tenants: keys, quotas and what is used of them */
#ifndef DCM_TENANT_H
#define DCM_TENANT_H

#include "../kvm-dcm/proto/wire.h"
#include "config.h"
#include "list.h"

/**
 * struct dcm_tenant - the owner of one key
 * @gone: not in the key file any more; freed with its last user
 * @users: connections and sessions that refer to it
 * @quota_bytes: most slab bytes it may hold
 * @quota_connections: most authenticated connections it may hold
 * @quota_workers: most GC workers
 * @patience_ms: how long the memory of a silent host is kept
 * @bytes: charged: its slabs, those that a MAP waits for, and what its GC
 *	workers may take
 * @gc_bytes: how many of these bytes are for GC workers
 * @workers: GC workers, and connections for one
 * @dying: how many of these are killed but not reaped
 * @data_turns: turns at data threads
 * @data_cost: cost of these turns (data.c)
 * @data_turn_max: cost of the most expensive turn
 * @data_wait_max: most that turns of other tenants cost while it waited for one
 *
 * Used by the event loop, without a lock; data_* by data threads: __atomic.
 */
struct dcm_tenant {
	struct dcm_list node;
	char name[DCM_WIRE_TENANT_MAX + 1];
	u8 key[DCM_WIRE_KEY_MAX];
	size_t key_bytes;
	bool gone;
	unsigned int users;
	u64 quota_bytes;
	u32 quota_connections;
	u32 quota_workers;
	u32 patience_ms;
	u64 bytes;
	u64 gc_bytes;
	u32 connections;
	u32 sessions;
	u32 workers;
	u32 dying;
	u64 refusals;
	u64 data_turns;
	u64 data_cost;
	u64 data_turn_max;
	u64 data_wait_max;
};

struct dcm_tenants {
	struct dcm_list list;
};

void dcm_tenants_init(struct dcm_tenants *ts);
void dcm_tenants_free(struct dcm_tenants *ts);

/**
 * dcm_tenants_load() - update @ts from the key file
 * @ts: keeps tenants that are in both; those not in the file become gone
 * @path: a key file (lib/keyfile.h)
 *
 * Return: 0, or a negative errno with one line in @err and @ts unchanged.
 */
int dcm_tenants_load(struct dcm_tenants *ts, const char *path, char *err,
		     size_t err_len);

/* As dcm_tenants_load(), from text in memory. */
int dcm_tenants_parse(struct dcm_tenants *ts, const char *name,
		      const char *text, size_t len, char *err, size_t err_len);

/* Set each tenant's quota from @cfg. */
void dcm_tenants_quota(struct dcm_tenants *ts, const struct dcm_config *cfg,
		       u64 total);

/* Finds only tenants that have a key now. */
struct dcm_tenant *dcm_tenant_find(struct dcm_tenants *ts, const void *name,
				   size_t len);

void dcm_tenant_get(struct dcm_tenant *t);
void dcm_tenant_put(struct dcm_tenant *t);

#endif /* DCM_TENANT_H */
