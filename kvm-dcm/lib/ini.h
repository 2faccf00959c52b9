/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ini.h - configuration files: the lines of all daemons and of libdcm */
#ifndef DCM_INI_H
#define DCM_INI_H

#include <stddef.h>

#include "file.h"

#define DCM_INI_LINE_MAX 190u

/**
 * typedef dcm_ini_fn - take one setting
 * @arg: the caller's
 * @section: the section's name, without [ ]; "" before the first
 * @key: what stands before '=', not empty
 * @value: what stands behind, without white space around it; may be ""
 * @err: %DCM_ERR_MAX bytes for what is wrong, without the line's number
 *
 * Return: 0, or -EINVAL with @err, which ends the reading.
 */
typedef int (*dcm_ini_fn)(void *arg, const char *section, const char *key,
			  const char *value, char *err);

/**
 * dcm_ini_parse() - read the text of a configuration
 * @text: needs no NUL at the end
 * @len: its bytes
 * @fn: called for each setting, in the file's order
 * @arg: passed to @fn
 * @err: %DCM_ERR_MAX bytes: "line N: what is wrong", of the first wrong line
 *
 * Return: 0 or -EINVAL.
 */
int dcm_ini_parse(const char *text, size_t len, dcm_ini_fn fn, void *arg,
		  char *err);

#endif /* DCM_INI_H */
