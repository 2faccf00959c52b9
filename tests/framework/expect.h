/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expect.h - assertions for test programs without cmocka
 *
 *	EXPECT(!close(fd));
 *	EXPECT(n == 5, "%d regions", n);
 *
 * If the condition is false, one line on standard error names the place, the
 * condition and errno, and abort() ends the program, so that a fuzzer keeps its input.
 */
#ifndef TEST_EXPECT_H
#define TEST_EXPECT_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(cond, ...)         \
	((cond) ? (void)0 :       \
		  expect_failed(__FILE__, __LINE__, #cond, " " __VA_ARGS__))

static inline __attribute__((noreturn, format(printf, 4, 5))) void
expect_failed(const char *file, int line, const char *cond, const char *fmt,
	      ...)
{
	int err = errno;
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "FAILED %s:%d: not true: %s (errno: %s)", file, line,
		cond, strerror(err));
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

#endif /* TEST_EXPECT_H */
