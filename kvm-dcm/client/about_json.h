/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * about_json.h - the figures that a donor gives about itself, for both pagers' status
 *
 * In a header, as the client itself is linked without jansson.
 */
#ifndef DCM_CLIENT_ABOUT_JSON_H
#define DCM_CLIENT_ABOUT_JSON_H

#include <jansson.h>

#include "client.h"

/* A donor's figure as JSON, at most INT64_MAX: the donor may have sent any 64 bits. */
static inline json_t *dcm_about_figure(u64 v)
{
	return json_integer((json_int_t)min(v, (u64)INT64_MAX));
}

/* Add a donor's figures to @o, if it has sent any (older donors send none). */
static inline void dcm_about_put(json_t *o,
				 const struct dcm_client_donor_status *d)
{
	if (!d->told)
		return;
	json_object_set_new(o, "capacity_bytes",
			    dcm_about_figure(d->capacity_bytes));
	json_object_set_new(o, "lent_bytes", dcm_about_figure(d->lent_bytes));
	json_object_set_new(o, "head_room_bytes",
			    dcm_about_figure(d->head_room_bytes));
	json_object_set_new(o, "sessions", dcm_about_figure(d->sessions));
}

#endif /* DCM_CLIENT_ABOUT_JSON_H */
