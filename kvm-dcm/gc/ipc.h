/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ipc.h - messages between a virtio-gc device and dcm-hostd
 *
 * Over a UNIX socket that keeps messages apart (SOCK_SEQPACKET), between programs
 * of one version on one host, in its byte order. Each message is a struct
 * dcm_gc_ipc and the bytes that follow it:
 *
 *	device				dcm-hostd
 *	HELLO, naming the file
 *					PROVE, or REFUSED
 *	PROVED
 *					WELCOME or REFUSED
 *	START
 *	REQUEST ...			BITS, DISCARD ..., ANSWER, in any order;
 *					PART ... before an ANSWER that is long
 *					MOVED ... before references are updated
 *	RESET				READY, after all answers
 *					WELCOME: donors have come or gone
 *
 * A process that has a file open for reading and writing may use it as a window, since
 * it can change the content anyway. The device proves that it has by a lock: PROVE
 * names a random byte far behind any file's end, and the device sets a write
 * lock of its open file there (F_OFD_SETLK), which needs a writable descriptor.
 * dcm-hostd sees the lock through a descriptor of its own.
 *
 * No descriptor is passed. Closing a descriptor, and even a query of its type,
 * can block for as long as its maker likes (a FUSE file system, a socket that
 * lingers): dcm-hostd must not hold descriptors from unknown programs.
 */
#ifndef DCM_GC_IPC_H
#define DCM_GC_IPC_H

#include <stddef.h>

#include "../proto/wire_format.h"

#define DCM_GC_IPC_VERSION 2u
#define DCM_GC_IPC_SOCKET "/run/dcm-hostd/gc.sock"
/* a longer request is cut off here, one byte above the largest allowed */
#define DCM_GC_IPC_MAX (DCM_WIRE_PAYLOAD_MAX + 1u)
/* bytes of an answer in one message */
#define DCM_GC_IPC_PIECE DCM_WIRE_PAYLOAD_MAX

enum dcm_gc_ipc_kind {
	DCM_GC_IPC_HELLO = 1, /* @value: version; @room: DCM_GC_IPC_KNOWS_*;
			       * struct dcm_gc_ipc_file */
	DCM_GC_IPC_START, /* @value: features */
	DCM_GC_IPC_REQUEST, /* @token, @room; the request */
	DCM_GC_IPC_RESET,
	DCM_GC_IPC_WELCOME, /* @value: features; @token: budget, in bytes;
			     * struct virtio_gc_config up to its donors */
	DCM_GC_IPC_REFUSED, /* the reason, without a NUL */
	DCM_GC_IPC_ANSWER, /* @token; the answer, its rest, or nothing */
	DCM_GC_IPC_BITS, /* @value: offset in the window; the bytes */
	DCM_GC_IPC_READY,
	DCM_GC_IPC_PROVE, /* @value: lock this byte of the file */
	DCM_GC_IPC_PROVED, /* it is locked, until WELCOME or REFUSED */
	DCM_GC_IPC_DISCARD, /* @value: offset; @token: how many bytes */
	DCM_GC_IPC_PART, /* @token; bytes of an answer: more follow */
	DCM_GC_IPC_MOVED, /* @token; bytes of the answer that counts if no ANSWER
			   * comes, as the daemon has ended */
};

/* HELLO: the device understands PART. An older device does not, and gets none. */
#define DCM_GC_IPC_KNOWS_PART 0x1u
/* HELLO: the device's configuration has a budget, which an older device's lacks. */
#define DCM_GC_IPC_KNOWS_BUDGET 0x2u

/* HELLO: the device understands MOVED. An older device gets none. */
#define DCM_GC_IPC_KNOWS_MOVED 0x4u

/* HELLO: the file's ids as fstat() gives them */
struct dcm_gc_ipc_file {
	__u64 dev;
	__u64 ino;
};

struct dcm_gc_ipc {
	__u32 kind;
	__u32 room;
	__u64 token;
	__u64 value;
};

/**
 * dcm_gc_ipc_send() - send a message
 * @sock: the socket; blocks if the socket does
 * @more: @bytes that follow @s
 *
 * Return: 0, or -errno: nothing was sent.
 */
int dcm_gc_ipc_send(int sock, const struct dcm_gc_ipc *s, const void *more,
		    size_t bytes);

#endif /* DCM_GC_IPC_H */
