/* SPDX-License-Identifier: GPL-2.0-or-later */
/* child.h - the donor's side of a GC worker: a process and a socket */
#ifndef DCM_GC_CHILD_H
#define DCM_GC_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "../../kvm-dcm/lib/dcm_context.h"

struct dcm_gc_message;

/**
 * struct dcm_gc_child - a worker
 * @pid: 0: there is none
 * @fd: the socket, non-blocking, for the donor's event loop
 */
struct dcm_gc_child {
	pid_t pid;
	int fd;
};

/**
 * struct dcm_gc_child_how - how to start a worker for one session
 * @path: of dcm-gc-worker
 * @donor: this donor's number among the session's donors
 * @threads: for tracing
 * @memory: bytes that its tables may take; see dcm_gc_child_memory()
 * @slabs: bytes of slabs that it may be sent
 * @group: the cgroup.procs file of a cgroup that it is to join; < 0: none
 */
struct dcm_gc_child_how {
	const char *path;
	u32 donor;
	u32 threads;
	u64 memory;
	u64 slabs;
	int group;
};

/** dcm_gc_child_start() - start a worker; 0 or -errno */
int dcm_gc_child_start(struct dcm_gc_child *c,
		       const struct dcm_gc_child_how *how);

/* Bytes that a worker may need beside its slabs, for spaces of @space_bytes in all. */
u64 dcm_gc_child_memory(u64 space_bytes, u32 threads);

/* Bytes of private memory that the worker uses, without slabs; 0: not known. */
u64 dcm_gc_child_backed(const struct dcm_gc_child *c);

/* Kill it and close the socket; it is still to be reaped. */
void dcm_gc_child_kill(struct dcm_gc_child *c);

/**
 * dcm_gc_child_reap() - has the worker ended? If so, reap it
 * @wait: wait until it has: a SIGKILL does not take long
 * @status: from waitpid(); 0 if there was no worker
 */
bool dcm_gc_child_reap(struct dcm_gc_child *c, bool wait, int *status);

/* Kill it, and wait until it is gone. */
void dcm_gc_child_end(struct dcm_gc_child *c);

/*
 * Send a message, with @fd unless < 0. 0; -EAGAIN: it does not read; -EPIPE: it is
 * gone.
 */
int dcm_gc_child_send(struct dcm_gc_child *c, const struct dcm_gc_message *msg,
		      const void *payload, int fd);

/* Receive a message. Its length; 0: the worker has ended; -EAGAIN, -EPROTO. */
ssize_t dcm_gc_child_receive(struct dcm_gc_child *c, void *buf, size_t room);

#endif /* DCM_GC_CHILD_H */
