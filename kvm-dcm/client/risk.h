/* SPDX-License-Identifier: GPL-2.0-or-later */
/* risk.h - count the memory that a VM loses if donors die */
#ifndef DCM_CLIENT_RISK_H
#define DCM_CLIENT_RISK_H

#include "client.h"

#define DCM_RISK_SETS 64u

/**
 * struct dcm_risk_set - donors whose joint death takes extents
 * @donors: by the client's numbers, a bit each; two or more
 * @extents: how many are lost if all of them die at once
 */
struct dcm_risk_set {
	u64 donors;
	u32 extents;
};

/**
 * struct dcm_risk - extents by the donors whose death would take them
 * @alone: by donor: extents of which at least a part is lost if only this donor dies
 * @set: extents that are lost only if several donors die, by these donors
 * @nr_sets: sets that are in use
 * @others: extents of sets for which @set had no room
 * @thin: extents of which a slab lacks pages, and that are not being filled
 * @with: all other extents, by how many slabs they have
 * @lag_pages: pages that are not in files yet
 * @lag_alone: by donor: of @lag_pages, those that are lost if only this donor dies and
 *	that @alone does not count
 */
struct dcm_risk {
	u32 alone[DCM_CONFIG_DONORS_MAX];
	struct dcm_risk_set set[DCM_RISK_SETS];
	u32 nr_sets;
	u32 others;
	u32 thin;
	u32 with[DCM_CLIENT_COPIES_MAX + 1];
	u64 lag_pages;
	u64 lag_alone[DCM_CONFIG_DONORS_MAX];
};

/**
 * dcm_risk_add() - count an extent
 * @risk: all zero before the first
 * @donors: the donors that have slabs of it, a bit each; at least one
 * @thin: one of these slabs may lack pages, so any other one may be the only one that
 *	has them: the death of any of @donors counts as a loss
 */
void dcm_risk_add(struct dcm_risk *risk, u64 donors, bool thin);

/**
 * dcm_risk_add_lag() - count pages of an extent that are not in files yet
 * @memory: donors of memory that have slabs of it, a bit each
 * @pages: how many
 */
void dcm_risk_add_lag(struct dcm_risk *risk, u64 memory, u64 pages);

/* How many bytes are lost at most if only @donor dies. @extent: bytes of an extent. */
u64 dcm_risk_alone(const struct dcm_risk *risk, u32 donor, u64 extent);

/* How many extents have fewer than @copies whole slabs, or slabs being filled. */
u32 dcm_risk_exposed(const struct dcm_risk *risk, u32 copies);

/**
 * dcm_risk_names() - the donors of a set as text: "donor1+donor2"
 * @donors: by the client's numbers, a bit each
 * @st: has their names
 * @buf: filled in, NUL-terminated, cut off where it ends
 */
void dcm_risk_names(u64 donors, const struct dcm_client_status *st, char *buf,
		    size_t len);

#endif /* DCM_CLIENT_RISK_H */
