/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fail.h - a test program says why it has failed, and ends
 */
#ifndef TESTS_PAGER_FAIL_H
#define TESTS_PAGER_FAIL_H

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Flush output, and end without exit handlers: these may need the part that failed. */
static __attribute__((noreturn, format(printf, 1, 2))) void
fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "FAILED: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	fflush(stdout);
	_exit(1);
}

#endif /* TESTS_PAGER_FAIL_H */
