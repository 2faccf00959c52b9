/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * risk_json.h - a VM's risk, for both pagers' status
 *
 * In a header, as the client itself is linked without jansson.
 */
#ifndef DCM_CLIENT_RISK_JSON_H
#define DCM_CLIENT_RISK_JSON_H

#include <jansson.h>

#include "risk.h"

/* The sets of @risk as JSON, with names and bytes. @extent: bytes of an extent. */
static inline json_t *dcm_risk_together(const struct dcm_risk *risk,
					const struct dcm_client_status *st,
					u64 extent)
{
	char names[DCM_CLIENT_COPIES_MAX * (DCM_NAME_MAX + 1) + 1];
	json_t *a = json_array();
	u32 i;

	for (i = 0; i < risk->nr_sets; i++) {
		dcm_risk_names(risk->set[i].donors, st, names, sizeof(names));
		json_array_append_new(a,
				      json_pack("{s:s,s:I}", "donors", names,
						"bytes",
						(json_int_t)(risk->set[i]
								     .extents *
						  extent)));
	}
	return a;
}

#endif /* DCM_CLIENT_RISK_JSON_H */
