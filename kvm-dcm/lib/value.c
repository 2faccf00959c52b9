// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * value.c - numbers, sizes, times, switches and names in configurations
 *
 * The daemons and libdcm read the same words by these functions; dcmctl's
 * lib/units.py accepts all of them, and fractions such as 1.5G, which dcmctl
 * writes out as a whole number.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <string.h>

#include "value.h"

/*
 * Parse the digits that @s begins with. Returns the rest, or %NULL if there are none.
 */
static const char *digits_parse(const char *s, uint64_t *n)
{
	const char *p;

	*n = 0;
	for (p = s; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(*n, 10, n) ||
		    __builtin_add_overflow(*n, (uint64_t)(*p - '0'), n))
			return NULL;
	return p == s ? NULL : p;
}

int dcm_count_parse(const char *s, uint64_t *n)
{
	s = digits_parse(s, n);
	return s && !*s ? 0 : -EINVAL;
}

int dcm_size_parse(const char *s, uint64_t *bytes)
{
	static const char units[] = "kmgt";
	unsigned int shift = 0;
	const char *unit;

	s = digits_parse(s, bytes);
	if (!s)
		return -EINVAL;
	unit = *s ? strchr(units, *s | 0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned int)(unit - units + 1);
		s++;
		if (!strcmp(s, "iB"))
			s += 2;
	}
	if (*s || *bytes > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes <<= shift;
	return 0;
}

int dcm_time_parse(const char *s, uint64_t *ms)
{
	uint64_t unit;

	s = digits_parse(s, ms);
	if (!s)
		return -EINVAL;
	if (!strcmp(s, "ms"))
		unit = 1;
	else if (!strcmp(s, "s"))
		unit = 1000;
	else if (!strcmp(s, "min"))
		unit = 60000;
	else
		return -EINVAL;
	return __builtin_mul_overflow(*ms, unit, ms) ? -EINVAL : 0;
}

int dcm_bool_parse(const char *s, bool *v)
{
	static const char *const words[] = { "no",    "yes",  "off", "on",
					     "false", "true", "0",   "1" };

	for (unsigned int i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(s, words[i])) {
			*v = i & 1;
			return 0;
		}
	return -EINVAL;
}

bool dcm_name_valid(const char *s)
{
	size_t len = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			       "abcdefghijklmnopqrstuvwxyz0123456789._-");

	return len && len <= DCM_NAME_MAX && !s[len] && s[0] != '.' &&
	       s[0] != '-';
}
