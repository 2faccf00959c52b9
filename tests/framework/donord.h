/* SPDX-License-Identifier: GPL-2.0-or-later */
/* donord.h - start a real dcm-donord from a test program */
#ifndef TEST_DONORD_H
#define TEST_DONORD_H

#include <stdbool.h>
#include <sys/types.h>

/**
 * struct donord - a daemon that is ready
 * @pid: the process
 * @tcp: the address it listens on, "tcp:127.0.0.1:PORT"; "" if it has none
 */
struct donord {
	pid_t pid;
	char tcp[64];
};

/**
 * donord_start() - start a daemon and wait until it is ready
 * @d: filled in
 * @binary: path of dcm-donord
 * @args: its options without --ready-fd, %NULL at the end
 * @log: file to append its output to; %NULL: it inherits the caller's output
 *
 * The daemon is killed when the calling thread ends, so that a test that fails leaves nothing
 * behind; it ignores SIGINT, so that the test decides what Ctrl-C ends.
 *
 * Return: false if it was not ready within 30 s; no daemon is left running then.
 */
bool donord_start(struct donord *d, const char *binary, const char *const *args,
		  const char *log);

#endif /* TEST_DONORD_H */
