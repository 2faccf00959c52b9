/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.h - a test program reads a figure of its pager's status
 */
#ifndef TESTS_PAGER_STATUS_H
#define TESTS_PAGER_STATUS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libdcm.h"
#include "fail.h"

static uint64_t status_number(struct dcm_pager *p, const char *key)
{
	char *s = dcm_pager_status(p), *at, find[64];
	uint64_t v;

	snprintf(find, sizeof(find), "\"%s\":", key);
	at = s ? strstr(s, find) : NULL;
	if (!at)
		fail("status has no %s", key);
	v = strtoull(at + strlen(find), NULL, 10);
	free(s);
	return v;
}

#endif /* TESTS_PAGER_STATUS_H */
