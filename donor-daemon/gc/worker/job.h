/* SPDX-License-Identifier: GPL-2.0-or-later */
/* job.h - what the worker's parts share: slabs, spaces, answers, requests */
#ifndef DCM_GC_JOB_H
#define DCM_GC_JOB_H

#include "../../../kvm-dcm/proto/gc_message.h"
#include "../gc.h"
#include "../../../kvm-dcm/proto/gc_request.h"

#define WORKER_BUFFER	(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX)

/* Mapped here; %NULL: there is none of that number. */
struct worker_slab {
	u8 *memory;
	u64 bytes;
};

/* @tags: of its regions, as the host told of writes since PLACE */
struct worker_space {
	struct dcm_gc_space *s;
	struct dcm_gc_peers peers;
	u32 number;
	u32 *tags;
};

/* main.c */
extern u32 worker_donor;	/* our number */
extern u32 worker_threads;	/* of a trace */

/** worker_end() - at once, with whatever threads there are */
_Noreturn void worker_end(int status);

/** worker_say() - a message; the end of the worker if nobody takes it */
void worker_say(const struct dcm_gc_message *msg, const void *payload);

/* hear.c */
extern struct worker_slab worker_slabs[DCM_GC_SLABS_MAX];

/**
 * worker_hear() - do what a message says, or have it done
 * @payload: @bytes of it, aligned to 8
 * @fd: that came with it, taken over; -1: none
 */
void worker_hear(const struct dcm_gc_message *msg, const void *payload,
		 u32 bytes, int fd);

/** worker_answer() - what @to asked */
void worker_answer(const struct dcm_gc_message *to, u32 kind,
		   const void *payload, u32 bytes);

/** worker_done() - an answer that is a status and where it comes from */
void worker_done(const struct dcm_gc_message *to, u32 status, u64 at);

/* job.c */
/* The first thread's; the other's too while it works on one. */
extern struct worker_space worker_spaces[DCM_GC_SPACES_MAX];

/** job_start() - the other thread; 0, or an errno */
int job_start(void);

/**
 * job_request() - do it, or have it done, and answer
 *
 * While one that takes long runs, only what that can stand is done.
 */
void job_request(const struct dcm_gc_message *msg, const void *bytes, u32 len);

/** job_busy() - does the other thread work on a space? */
bool job_busy(void);

/** job_stop() - what runs for this space; others' traces and work go on */
void job_stop(struct worker_space *p, u32 status);

/** job_told() - another donor's answer, for who waits for it */
void job_told(const struct dcm_gc_message *msg, const __le64 *le, u32 n);

#endif /* DCM_GC_JOB_H */
