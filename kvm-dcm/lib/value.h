/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * value.h - numbers, sizes, times, switches and names in configurations
 *
 * Every function takes the whole string: white space around it, a sign, or a
 * number that does not fit is an error.
 */
#ifndef DCM_VALUE_H
#define DCM_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#define DCM_NAME_MAX 63u

/* "17". 0 or -EINVAL, as for the next three. */
int dcm_count_parse(const char *s, uint64_t *n);

/* Bytes: "4096", "64K", "1G", "1GiB"; K, M, G, T in either case, powers of 1024 */
int dcm_size_parse(const char *s, uint64_t *bytes);

/* Milliseconds: "500ms", "60s", "2min" */
int dcm_time_parse(const char *s, uint64_t *ms);

/* yes, true, on, 1; no, false, off, 0 */
int dcm_bool_parse(const char *s, bool *v);

/* A name of a VM, a donor or a group; it is also a file's name. */
#define DCM_NAME_RULE "1 to 63 letters, digits, . _ -, and no . or - first"
bool dcm_name_valid(const char *s);

#endif /* DCM_VALUE_H */
