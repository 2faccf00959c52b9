/* SPDX-License-Identifier: GPL-2.0-or-later */
/* queue_int.h - shared by queue.c and command.c; see backend.h */
#ifndef DCM_GC_QUEUE_INT_H
#define DCM_GC_QUEUE_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "../lib/clock.h"
#include "../lib/dcm_context.h"
#include "backend.h"
#include "space.h"

/**
 * struct job - a request in the queue
 * @status: %VIRTIO_GC_OK, or why it is refused already
 * @counted: it is counted in @live of its space
 * @answered: it was answered; only a reset can cancel the work that remains
 * @r: @request, read; points into it
 * @request: a copy of @bytes
 */
struct job {
	struct job *next;
	void *token;
	u64 expires_ms;
	u32 status;
	u32 space;
	bool counted;
	bool answered;
	bool cancelled;
	bool mute; /* no room for an answer */
	struct dcm_gc_request r;
	size_t bytes;
	u64 request[];
};

struct gc_queue {
	struct dcm_gc_host api;
	struct dcm_gc_backend backend;
	struct dcm_gc_host_ops ops;
	void *priv;
	struct dcm_gc_host_spaces spaces;
	struct dcm_gc_workers *workers; /* %NULL: there are no donors */
	struct dcm_gc_reply *reply;
	int event; /* an eventfd that wakes the thread */

	pthread_mutex_t lock;
	pthread_cond_t wake; /* for the thread: there is work, or stop */
	pthread_cond_t idle; /* for reset: nothing waits, nothing runs */
	pthread_t thread;
	bool stop;
	bool resetting;
	bool forget; /* for the thread: reset the workers */
	struct job *first;
	struct job **last;
	struct job *running;
	u64 features;
	u64 budget; /* the budget at the last config_changed() */
	u32 live[DCM_GC_SPACES_MAX];
};

/* command.c */
/* Callbacks of the workers; their argument is the host. */
extern const struct dcm_gc_workers_ops gc_command_workers_ops;

/**
 * gc_command_run() - carry out a request
 * @gc: the queue; its @reply is filled in with the answer, except for its status
 * @j: the request
 *
 * Return: its status.
 */
u32 gc_command_run(struct gc_queue *gc, const struct job *j);

/* Is there more to do for a request after it was answered with OK? */
bool gc_command_goes_on(const struct dcm_gc_request *r);

/* Do that remaining work; changes gc->reply. */
void gc_command_go_on(struct gc_queue *gc, const struct job *j);

#endif /* DCM_GC_QUEUE_INT_H */
