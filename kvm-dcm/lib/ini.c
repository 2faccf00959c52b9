// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ini.c - configuration files: the lines of all daemons and of libdcm
 *
 *	[section]	; a comment
 *	key = value	; a comment, if white space stands before the ;
 *	; a comment	# and this one
 *
 * A line is one of these or empty; there are no quotes, escapes or continuation lines.
 * Lines that other readers of INI files understand differently are refused: a line that
 * begins with white space (some continue the value of the line above), a line of more
 * than 190 bytes (some cut it), and bytes that are not text. A typing error must not
 * silently become another configuration. dcmctl reads the same files by Python's
 * configparser, restricted to the same lines.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ini.h"

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Strip white space from both ends of [@s, @end), and put a NUL behind. */
static char *text_strip(char *s, char *end)
{
	while (s < end && is_blank(*s))
		s++;
	while (end > s && is_blank(end[-1]))
		end--;
	*end = 0;
	return s;
}

/* Cut a comment that stands behind something else. */
static void comment_cut(char *line)
{
	for (char *p = line; *p; p++)
		if (*p == ';' && (p == line || is_blank(p[-1]))) {
			*p = 0;
			return;
		}
}

static const char *section_read(char *line, char *section)
{
	char *end = strchr(line, ']');

	if (!end || *text_strip(end + 1, end + 1 + strlen(end + 1)))
		return "neither [section] nor key = value";
	*end = 0;
	strcpy(section, line + 1);
	return NULL;
}

/* Check a line's length and bytes before it is parsed. Returns what is wrong. */
static const char *line_check(const char *line, size_t len)
{
	if (len > DCM_INI_LINE_MAX)
		return "longer than 190 bytes";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < ' ' && !is_blank(line[i]))
			return "has a byte that is not text";
	return NULL;
}

int dcm_ini_parse(const char *text, size_t len, dcm_ini_fn fn, void *arg,
		  char *err)
{
	char section[DCM_INI_LINE_MAX + 1] = "", line[DCM_INI_LINE_MAX + 1];
	char said[DCM_ERR_MAX];
	const char *end = text + len, *eol, *why = NULL;
	unsigned int nr = 0;

	err[0] = 0;
	for (; text < end; text = eol + 1) {
		char *eq, *key;
		size_t n;

		nr++;
		eol = memchr(text, '\n', (size_t)(end - text));
		if (!eol)
			eol = end;
		n = (size_t)(eol - text);
		why = line_check(text, n);
		if (why)
			break;
		memcpy(line, text, n);
		line[n] = 0;
		if (line[strspn(line, " \t\r")] == '#')
			continue;
		comment_cut(line);
		if (!line[strspn(line, " \t\r")])
			continue;
		if (is_blank(*line)) {
			why = "begins with white space";
			break;
		}
		if (*line == '[') {
			why = section_read(line, section);
			if (why)
				break;
			continue;
		}
		eq = strchr(line, '=');
		if (!eq || eq == line) {
			why = "neither [section] nor key = value";
			break;
		}
		key = text_strip(line, eq);
		if (fn(arg, section, key,
		       text_strip(eq + 1, eq + 1 + strlen(eq + 1)), said)) {
			why = said;
			break;
		}
	}
	if (!why)
		return 0;
	snprintf(err, DCM_ERR_MAX, "line %u: %.300s", nr, why);
	return -EINVAL;
}
