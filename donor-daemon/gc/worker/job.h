/* SPDX-License-Identifier: GPL-2.0-or-later */
/* job.h - shared by the worker's files: slabs, spaces, answers, requests */
#ifndef DCM_GC_JOB_H
#define DCM_GC_JOB_H

#include "../../../kvm-dcm/proto/gc_message.h"
#include "../gc.h"
#include "../../../kvm-dcm/proto/gc_reply.h"
#include "../../../kvm-dcm/proto/gc_request.h"

#define WORKER_BUFFER	(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX)

/* A mapped slab; %NULL: there is none with that number. */
struct worker_slab {
	u8 *memory;
	u64 bytes;
};

/* @write_counts: by region: write counts that the host has reported since PLACE */
struct worker_space {
	struct dcm_gc_space *s;
	struct dcm_gc_peers peers;
	u32 number;
	u32 *write_counts;
};

/* main.c */
extern u32 worker_donor;	/* this donor's number */
extern u32 worker_threads;	/* of a trace */

/** worker_end() - exit at once, with all threads */
_Noreturn void worker_end(int status);

/** worker_send() - send a message; exits if the donor takes none */
void worker_send(const struct dcm_gc_message *msg, const void *payload);

/* message.c */
extern struct worker_slab worker_slabs[DCM_GC_SLABS_MAX];

/**
 * worker_handle() - handle a message, or pass it to the other thread
 * @payload: @bytes of it, aligned to 8
 * @fd: descriptor that came with it, owned by this function; -1: none
 */
void worker_handle(const struct dcm_gc_message *msg, const void *payload,
		 u32 bytes, int fd);

/** worker_answer() - answer the message @to */
void worker_answer(const struct dcm_gc_message *to, u32 kind,
		   const void *payload, u32 bytes);

/** worker_done() - answer with a status and the place it concerns */
void worker_done(const struct dcm_gc_message *to, u32 status, u64 at);

/* job.c */
/* The spaces; used by the first thread, and one by the second while it works on it. */
extern struct worker_space worker_spaces[DCM_GC_SPACES_MAX];

/** job_start() - start the other thread; 0, or an errno */
int job_start(void);

/**
 * job_request() - carry out a request, or pass it on, and answer
 *
 * While the second thread works on one, only requests that are allowed beside it are
 * done; others are refused with BUSY.
 */
void job_request(const struct dcm_gc_message *msg, const void *bytes, u32 len);

/** job_busy() - does the second thread work on a space? */
bool job_busy(void);

/** job_stop() - stop work on this space; that on other spaces goes on */
void job_stop(struct worker_space *p, u32 status);

/** job_answered() - another donor's answer to the other thread's question */
void job_answered(const struct dcm_gc_message *msg, const __le64 *le, u32 n);

#endif /* DCM_GC_JOB_H */
