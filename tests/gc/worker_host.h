/* SPDX-License-Identifier: GPL-2.0-or-later */
/* worker_host.h - a host of dcm-gc-worker, for tests */
#ifndef TEST_WORKER_HOST_H
#define TEST_WORKER_HOST_H

#include "../../donor-daemon/gc/child.h"
#include "../../kvm-dcm/proto/gc_message.h"
#include "mutator.h"

#define REGION	(64ull << 10)
#define BUFFER	(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX)

/* The program that host_start() and worker_start() start. */
extern const char *worker_path;

/* A host with its workers. */
struct host {
	struct mut *m;
	struct dcm_gc_child child[MUT_DONORS_MAX];
	int slab[MUT_DONORS_MAX];
	u32 n;
	u64 tag;
	u64 carried;
	struct dcm_gc_message *got;	/* the answer that was waited for */
	u64 got_tag;
	u32 lost;			/* a bit for each worker that ended */
	bool deaf;			/* messages to other workers are replaced by noise */
	bool opaque_ends;		/* opaque objects refer to nothing */
};

/* The memory of the mutator's donors becomes the slabs of @h's workers. */
void host_start(struct host *h, const struct mut_config *c);
void host_end(struct host *h);
/* Another worker in the place of @d's, which has ended. */
void worker_start(struct host *h, u32 d);
/* Where all regions are. */
void worker_place(struct host *h, u32 d);

/* A message to @d, with a descriptor or -1. */
void host_send(struct host *h, u32 d, const struct dcm_gc_message *msg,
	       const void *payload, int fd);
/* A message to @d and its answer; %NULL: the worker is gone. */
struct dcm_gc_message *host_call(struct host *h, u32 d,
				 struct dcm_gc_message msg,
				 const void *payload);
/* The status in a DCM_GC_DONE. */
u32 done_status(const struct dcm_gc_message *got);
/* A virtio-gc request to @d; its answer, %NULL: the worker is gone. */
struct virtio_gc_done *host_request(struct host *h, u32 d, u16 command,
				    u32 epoch, u32 count, const void *body,
				    size_t body_bytes, const void *entries,
				    size_t bytes);
/* The same; its status. */
u32 host_status(struct host *h, u32 d, u16 command, u32 epoch, u32 count,
		const void *body, size_t body_bytes, const void *entries,
		size_t bytes);

/* A trace by all workers; each returns a status. */
u32 host_trace_start(struct host *h, u32 epoch);
u32 host_poll(struct host *h, u32 d, u32 epoch, struct dcm_gc_flags *f);
u32 host_trace_finish(struct host *h, u32 epoch);
/* The bitmaps that the workers have are those of @live. */
void host_check(struct host *h, u32 epoch, const u8 *live);

#endif /* TEST_WORKER_HOST_H */
