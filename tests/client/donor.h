/* SPDX-License-Identifier: GPL-2.0-or-later */
/* donor.h - real donors, for tests */
#ifndef TEST_DONOR_H
#define TEST_DONOR_H

#include <stdbool.h>
#include <sys/types.h>

/* 64 MiB in slabs of 2 MiB, all to lend; for an array that ends with NULL. */
#define DONOR_SMALL                                                   \
	"--capacity", "64M", "--slab-size", "2M", "--head-room", "0", \
		"--spare-slabs", "0"
extern const char *const donor_small[];

/**
 * struct donor - a dcm-donord that runs
 * @tcp: "tcp:ADDRESS:PORT", "" without
 * @sock: path of its UNIX socket, "" without
 */
struct donor {
	pid_t pid;
	char tcp[64];
	char sock[108];
};

/**
 * donor_start() - start $DONORD with a fresh port
 * @d: filled in
 * @unix_path: also (or only, with @port < 0) listen there; %NULL: not
 * @port: TCP port, 0: any, -1: none
 * @keys: key file
 * @opts: more options, %NULL at the end
 *
 * Ends the program when the donor does not start.
 */
void donor_start(struct donor *d, const char *unix_path, int port,
		 const char *keys, const char *const *opts);

/* Send a signal. SIGKILL also waits for the end. */
void donor_signal(struct donor *d, int sig);

/* Wait for the donor's end; its exit status, or 128 + signal. */
int donor_wait(struct donor *d);

/* Kill the donor if it runs. */
void donor_end(struct donor *d);

#endif /* TEST_DONOR_H */
