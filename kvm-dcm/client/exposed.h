/* SPDX-License-Identifier: GPL-2.0-or-later */
/* exposed.h - find extents that don't have the slabs they should have */
#ifndef DCM_CLIENT_EXPOSED_H
#define DCM_CLIENT_EXPOSED_H

#include "client_int.h"

bool client_donor_near_any(const struct dcm_client *client, u32 donor,
			   u64 others);
void client_exposed_want(struct dcm_client *client, u64 now);
void client_place_redundancy(struct dcm_client *client,
			     enum dcm_host_redundancy redundancy);
enum client_medium client_extent_lacks(const struct dcm_client *client,
				       u32 extent);
bool client_extent_near(const struct dcm_client *client, u32 extent);
u32 client_extent_memory(const struct dcm_client *client, u32 extent);
u64 client_extent_donors(const struct dcm_client *client, u32 extent);
u64 client_members_donors(const struct dcm_client *client, u32 extent,
			  const struct dcm_client_slab * not );
void client_member_leave(struct dcm_client_slab *s);
void client_surplus_leave(struct dcm_client *client, u32 extent, bool file);
u64 client_donors_file(const struct dcm_client *client);
enum client_medium client_extent_moves(const struct dcm_client *client,
				       u32 extent, u64 now, u64 *to);

#endif /* DCM_CLIENT_EXPOSED_H */
