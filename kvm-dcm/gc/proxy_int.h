/* SPDX-License-Identifier: GPL-2.0-or-later */
/* proxy_int.h - shared by proxy.c and proxy_connect.c; see backend.h */
#ifndef DCM_GC_PROXY_INT_H
#define DCM_GC_PROXY_INT_H

#include <pthread.h>
#include <sys/un.h>

#include "backend.h"
#include "ipc.h"
#include "../proto/gc_layout.h"

/**
 * struct sent - a request that is not answered
 * @lost: no daemon will answer it: there was none, or it is gone
 * @raw: the request, of @bytes, if it may become part of the replay to the next daemon
 */
struct sent {
	struct sent *next;
	u64 id;
	void *token;
	bool mute;
	bool lost;
	u32 command;
	u32 space;
	size_t bytes;
	u64 raw[];
};

/**
 * struct parts - an answer that comes in parts
 * @bytes: buffer with room for the longest answer
 * @n: how many bytes have come; 0: there is no such answer
 * @of: the request that it answers
 */
struct parts {
	u8 *bytes;
	size_t n;
	u64 of;
};

/**
 * struct proxy - a host for which dcm-hostd does the work
 * @file: the window's file
 * @event: an eventfd that wakes the thread
 * @sock: the connection; -1: there is no daemon; changed by the thread, under @sending
 * @available: features that can be offered
 * @agreed: features agreed on with the guest
 * @replayed: features that the newest daemon was sent with the replay; the thread's
 * @sent: unanswered requests, in order
 * @replay: by space: the requests that made it and its types, answered with OK
 * @parts: an answer whose last part has not come; the thread's
 * @moved: the answer to give if the daemon ends now; the thread's
 */
struct proxy {
	struct dcm_gc_host api;
	struct dcm_gc_host_ops ops;
	void *priv;
	char *window;
	size_t bytes;
	int file;
	struct sockaddr_un sa;
	int event;
	pthread_t thread;
	pthread_mutex_t sending;
	pthread_mutex_t lock;
	pthread_cond_t quiet; /* all are answered, or forgotten */
	int sock;
	bool stop;
	bool forget; /* a reset: spaces must be forgotten, here and in the daemon */
	u64 available;
	u64 agreed;
	u64 replayed;
	u64 id;
	struct virtio_gc_config config;
	u64 budget;
	struct sent *sent;
	struct sent *replay[DCM_GC_SPACES_MAX];
	struct parts parts;
	struct parts moved;
	u64 buf[(sizeof(struct dcm_gc_ipc) + DCM_GC_IPC_MAX) / 8 + 1];
};

/*
 * Connect to dcm-hostd and send it the replay: its socket, or -errno with a
 * reason. By the thread, or before it starts.
 */
int gc_proxy_connect(struct proxy *p, char *err, size_t len);

/* Take features, configuration and budget from a WELCOME of the right size. */
void gc_proxy_welcome(struct proxy *p, const struct dcm_gc_ipc *welcome);

#endif /* DCM_GC_PROXY_INT_H */
