// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.c - what a VM's status says of its copies, told to the controller
 */
#include "torture.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void tell(uint64_t *v, uint64_t value)
{
	__atomic_store_n(v, value, __ATOMIC_RELAXED);
}

static uint64_t number_of(const json_t *o, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* "d0": 0 */
static unsigned int donor_of(const char *name)
{
	unsigned int i = (unsigned int)atoi(name + 1);

	return i < DONORS_MAX ? i : 0;
}

static void tell_together(struct vm_shared *s, const json_t *together)
{
	uint64_t found[DONORS_MAX][DONORS_MAX] = { 0 };
	const json_t *one;
	unsigned int i, k;
	size_t at;

	json_array_foreach(together, at, one)
	{
		const char *names =
			json_string_value(json_object_get(one, "donors"));
		const char *second = strchr(names, '+');

		if (second && !strchr(second + 1, '+'))
			found[donor_of(names)][donor_of(second + 1)] =
				number_of(one, "bytes");
	}
	for (i = 0; i < DONORS_MAX; i++)
		for (k = i + 1; k < DONORS_MAX; k++)
			tell(&s->together[i][k], found[i][k] + found[k][i]);
}

bool status_tell(struct vm_shared *s, const char *text)
{
	json_t *o = json_loads(text, 0, NULL);
	const json_t *one, *extents;
	uint32_t up = 0;
	size_t at;

	if (!o)
		return false;
	json_array_foreach(json_object_get(o, "donors"), at, one) if (
		!strcmp(json_string_value(json_object_get(one, "state")), "up"))
		up |=
		1u << donor_of(json_string_value(json_object_get(one, "name")));
	extents = json_object_get(o, "extents");
	tell_together(s, json_object_get(o, "together"));
	tell(&s->lost_pages, number_of(o, "lost_pages"));
	tell(&s->up, up);
	tell(&s->whole, number_of(extents, "mapped") &&
				!number_of(o, "exposed_bytes") &&
				!number_of(o, "filling"));
	tell(&s->told_ms, (uint64_t)(now_s() * 1000));
	json_decref(o);
	return true;
}
