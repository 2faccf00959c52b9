/* SPDX-License-Identifier: GPL-2.0-or-later */
/* host.h - a host of donors as a pager would be one, for tests */
#ifndef TEST_HOST_H
#define TEST_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "../../kvm-dcm/proto/wire_format.h"
#include "../../kvm-dcm/client/client.h"
#include "../../kvm-dcm/lib/log.h"

#define PAGE 4096u
#define SLAB (2u << 20)
#define EXTENTS 64u
#define WAIT_S 30

/* Where sockets, keys and logs go; the tenant's keys, right and wrong. */
extern char host_dir[];
extern char host_keys[128], host_bad_keys[128];

/**
 * struct host - the state that a pager would keep
 * @slab: newest slab of each extent
 * @old: the one before, if want_other() brought another
 * @other: answer EVICT with want_other()
 * @log: libdcm's log
 */
struct host {
	struct dcm_client *client;
	pthread_mutex_t lock;
	struct dcm_client_slab *slab[EXTENTS];
	struct dcm_client_slab *old[EXTENTS];
	struct dcm_client_slab *leaving[EXTENTS]; /* asked back last */
	unsigned int attached;
	unsigned int evicts;
	unsigned int losts;
	unsigned int
		lost_late; /* of them, with no look for other slabs to come next */
	unsigned int lost_of[EXTENTS];
	char lost_name[EXTENTS][64];
	unsigned int starved;
	bool other; /* answer EVICT with want_other */
	int log;
	struct dcm_host_donor donors[8];
	unsigned int nr_donors;
};

void host_donor(struct host *h, const char *name, const char *address);
/* Donors, tenant, key, lanes and size are filled in. */
void host_start_cfg(struct host *h, struct dcm_client_config cfg);
void host_start(struct host *h);
/* The same; all donors are up, and the first extents have all their slabs. */
void host_start_redundant(struct host *h, enum dcm_host_redundancy redundancy,
			  u32 extents);
void host_stop(struct host *h);

/* How many lines of the log have @what in them. */
unsigned int logged(struct host *h, const char *what);

/* One of the counters, as of now. */
unsigned int get(struct host *h, const unsigned int *v);

struct dcm_client_donor_status status(struct host *h, u32 donor);

/* An extent's newest slab, as of now: the client may attach another one at any time. */
struct dcm_client_slab *slab_of(struct host *h, u32 extent);

/* Take a slab, or NULL, out of one of the host's tables; the caller releases it. */
struct dcm_client_slab *taken(struct host *h, struct dcm_client_slab **at);

/* Give back the slabs of @nr extents that have another one in their place: how many. */
unsigned int moved_release(struct host *h, u32 nr);

/* Of the first @nr extents, how many are on this donor and not lost. */
unsigned int on_donor(struct host *h, u32 nr, u32 donor);

/* Want extents [@from, @to), again and again, as lanes do. */
void want(struct host *h, u32 from, u32 to);

/* One operation to its end. -ENOTCONN is tried again for a while. */
int io(struct host *h, struct dcm_client_slab *s, enum dcm_io_op op, u64 off,
       u32 bytes, void *buf);

/* Move what a slab has to another one, as a pager does. */
void slab_copy(struct host *h, struct dcm_client_slab *to,
	       struct dcm_client_slab *from);

/* A page's content: extent, number and version in every word. */
void fill(u64 *p, u32 extent, u32 page, u64 version);
void write_extent(struct host *h, u32 e, u64 version);
void check_slab(struct host *h, struct dcm_client_slab *s, u32 e, u64 version);

u64 now_ms(void);

/*
 * These tests, with host_dir and the key files, which go when all have passed.
 * @some: "1/4": every fourth, from the second on; else a pattern of names; or
 * %NULL. Returns the exit status.
 */
int host_run(const char *group, const struct CMUnitTest *tests, size_t nr,
	     const char *some);

/* Until @cond, or the test fails. */
#define WAIT(cond)                                                     \
	do {                                                           \
		u64 end_ = now_ms() + WAIT_S * 1000;                   \
		while (!(cond)) {                                      \
			if (now_ms() > end_)                           \
				fail_msg("waited in vain: %s", #cond); \
			usleep(5000);                                  \
		}                                                      \
	} while (0)

#endif /* TEST_HOST_H */
