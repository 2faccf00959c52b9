/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * io.h - one one-sided operation on a slab
 *
 * The core names the slab, the offset and the memory, and hands the operation to
 * its lane (struct dcm_ops, io_post). A transport, of user space or the kernel,
 * carries it out.
 */
#ifndef DCM_IO_H
#define DCM_IO_H

#include "../lib/dcm_context.h"

/* most bytes of one operation: a block */
#define DCM_IO_BYTES_MAX 65536u

enum dcm_io_op {
	DCM_IO_READ,
	DCM_IO_WRITE,
};

#define DCM_PEERS_MAX 64u

/* dcm_slab_ref.rank */
#define DCM_RANK_HOST 0u /* memory of this host */
#define DCM_RANK_MEMORY 1u /* memory of another host */
#define DCM_RANK_FILE 2u /* a file on a donor's disk */
#define DCM_RANKS 3u

/* The purpose of an operation, and with it the structure that is its owner. */
enum dcm_io_kind {
	DCM_IO_FETCH, /* struct dcm_fetch */
	DCM_IO_WRITE_BACK, /* struct dcm_wb */
	DCM_IO_MOVE, /* struct dcm_move_op: from one slab to another */
};

/**
 * struct dcm_slab_ref - one slab as a lane's endpoint sees it
 * @id: the donor's name for the slab, opaque
 * @bytes: its length; every access is checked against it before it is posted
 * @peer: the client's number of the donor that has it, below %DCM_PEERS_MAX
 * @rank: how far away it is, below %DCM_RANKS: reads prefer the nearest
 * @base: verbs: remote virtual address of byte 0; otherwise 0
 * @rkey: verbs: remote key; otherwise 0
 * @fd: shm: a memfd owned by the client, otherwise -1
 * @map: shm: where @fd is mapped (read-only) in this process, else %NULL
 *
 * Owned by the client, which frees it after the last operation on it.
 */
struct dcm_slab_ref {
	u64 id;
	u64 bytes;
	u64 base;
	u32 rkey;
	u32 peer;
	int fd;
	u8 rank;
	void *map;
};

/**
 * struct dcm_io - one one-sided operation
 * @slab: target; must outlive the operation
 * @offset: byte offset in the slab, a multiple of 4096
 * @bytes: length, a multiple of 4096, at most 64 KiB
 * @op: %DCM_IO_READ or %DCM_IO_WRITE
 * @zero: WRITE: all of @data is zero; a transport may send just that
 * @data: WRITE: the source, stable until completion. READ: before post() the
 *	destination; on completion where the bytes are. That may be in the slab
 *	itself, if the transport has %DCM_TR_DIRECT
 * @status: 0 or a negative errno, valid on completion: -EIO the donor refused,
 *	-ESTALE the slab is not ours any more, -ENOTCONN the connection broke.
 *	If a WRITE failed, any part of it may have been done. After -ENOTCONN the
 *	rest may still be done later (doubt.c), after another error it never is
 * @posted_ns: when it was posted, for latency counters; the core sets it, and a
 *	transport sets it again if it sends later than post()
 * @next: next of the completion list; the transport's while in flight
 * @owner: the poster's structure; no transport touches it
 * @kind: the poster's, too; tells the type of @owner
 * @slot: the poster's, too; which of the extent's slots @slab is in
 */
struct dcm_io {
	struct dcm_slab_ref *slab;
	u64 offset;
	u32 bytes;
	enum dcm_io_op op;
	bool zero;
	u8 slot;
	void *data;
	int status;
	u64 posted_ns;
	struct dcm_io *next;
	void *owner;
	enum dcm_io_kind kind;
};

/* Is the length valid, and the whole range inside the slab? */
static inline bool dcm_io_fits(const struct dcm_io *io)
{
	return io->bytes && io->bytes <= DCM_IO_BYTES_MAX &&
	       io->bytes <= io->slab->bytes &&
	       io->offset <= io->slab->bytes - io->bytes;
}

#endif /* DCM_IO_H */
