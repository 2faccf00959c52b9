// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data_file.c - READ and WRITE of slabs that are files
 *
 * A disk takes a hundred times as long as memory, and a worker must not wait for
 * it: other connections are served meanwhile. So each worker has an io_uring,
 * whose descriptor is in the worker's epoll, and a request becomes an op with a
 * buffer of its own, from the request until its answer is with the channel:
 *
 *	free -> [WAITS ->] STARTED -> DONE -> free
 *
 * Answers go out in the order of requests: a connection's ops are a list in this
 * order, and only those at its head that are DONE are answered. The disk may do
 * them in any order, so an op that overlaps an earlier one, unless both read,
 * WAITS until that is DONE. A request that is refused is an op that is DONE at
 * once.
 *
 * Limits: a worker has %DATA_FILE_OPS ops, and the ops of a connection carry at most
 * %DATA_FILE_BYTES. A connection at its limit waits for its own ops (@held). If the
 * worker has no op left, no connection gets a turn until one is free; then fair.c
 * chooses the connection. So a tenant that wants less than its share waits for one op
 * of others, not for all that they have asked for. A request is charged by its bytes
 * when it is taken, whatever time the disk needs.
 *
 * If a connection ends while the disk still works for it, it stays on its session's
 * list as *ending* until the disk is done: a WRITE must not reach the disk after one
 * that the host sends over its next connection, so dcm_data_ending() makes that
 * connection wait. An op has a reference to its slab until it is DONE, so UNMAP is
 * answered only after that.
 *
 * When the disk fails, the request is answered with %DCM_WS_IO, and the first
 * failure of each slab is logged. The slab stays its host's: other pages of it
 * may be fine, and the host knows which copies it has.
 *
 * Locking: none; all is one worker's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "data_int.h"
#include "log_limit.h"
#include "ring.h"

#define OP_BYTES DCM_WIRE_PAYLOAD_MAX
#define PAGE_BYTES 4096u

enum op_state {
	OP_WAITS,
	OP_STARTED,
	OP_DONE,
};

/**
 * struct dcm_file_op - one request
 * @node: in d->ops, or in the list of free ops
 * @slab: a reference to the slab, until the op is DONE
 * @moved: bytes that the disk has read or written
 * @status: enum dcm_wire_status, once it is DONE
 * @answered: its answer is in the worker's batch, which still reads @buf
 */
struct dcm_file_op {
	struct dcm_list node;
	struct dcm_data *d;
	struct dcm_slab *slab;
	u8 *buf;
	u64 tag;
	u64 offset;
	u32 bytes;
	u32 moved;
	u32 status;
	enum op_state state;
	bool write;
	bool answered;
};

/**
 * struct dcm_data_file - a worker's ring and ops
 * @unsent: the kernel has not taken all entries of the ring yet
 * @started: number of ops that are in the ring or with the disk
 */
struct dcm_data_file {
	struct dcm_ring *ring;
	u8 *buffers;
	struct dcm_list free;
	bool unsent;
	u32 started;
	struct dcm_file_op op[DATA_FILE_OPS];
};

int dcm_data_file_start(struct dcm_worker *w)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = w };
	struct dcm_data_file *f = calloc(1, sizeof(*f));
	int ret;

	if (!f)
		return -ENOMEM;
	f->buffers = mmap(NULL, (size_t)DATA_FILE_OPS * OP_BYTES,
			  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (f->buffers == MAP_FAILED) {
		ret = -errno;
		goto fail;
	}
	/* a tenant's bytes must not get into a core dump */
	madvise(f->buffers, (size_t)DATA_FILE_OPS * OP_BYTES, MADV_DONTDUMP);
	f->ring = dcm_ring_new(DATA_FILE_OPS, &ret);
	if (!f->ring)
		goto unmap;
	if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, dcm_ring_fd(f->ring), &ev)) {
		ret = -errno;
		dcm_ring_free(f->ring);
		goto unmap;
	}
	dcm_list_init(&f->free);
	for (u32 i = 0; i < DATA_FILE_OPS; i++) {
		f->op[i].buf = f->buffers + (size_t)i * OP_BYTES;
		dcm_list_init(&f->op[i].node);
		dcm_list_add_tail(&f->op[i].node, &f->free);
	}
	w->file = f;
	return 0;
unmap:
	munmap(f->buffers, (size_t)DATA_FILE_OPS * OP_BYTES);
fail:
	free(f);
	return ret;
}

void dcm_data_file_stop(struct dcm_worker *w)
{
	struct dcm_data_file *f = w->file;

	if (!f)
		return;
	w->file = NULL;
	dcm_ring_free(f->ring);
	munmap(f->buffers, (size_t)DATA_FILE_OPS * OP_BYTES);
	free(f);
}

bool dcm_data_file_full(const struct dcm_worker *w)
{
	return w->file && dcm_list_empty(&w->file->free);
}

bool dcm_data_file_unsent(const struct dcm_worker *w)
{
	return w->file && w->file->unsent;
}

void dcm_data_file_submit(struct dcm_worker *w)
{
	struct dcm_data_file *f = w->file;
	int ret;

	if (!f->unsent)
		return;
	ret = dcm_ring_submit(f->ring);
	f->unsent = ret < 0;
	if (ret < 0 && ret != -EINTR)
		dcm_log_limited(
			DCM_LOG_WARNING,
				"data worker: io_uring does not take requests: %s; trying again",
				strerror(-ret));
}

static void op_start(struct dcm_data_file *f, struct dcm_file_op *op)
{
	dcm_ring_add(f->ring, op->write, op->slab->fd, op->buf + op->moved,
		     op->bytes - op->moved, op->offset + op->moved, op);
	op->state = OP_STARTED;
	f->unsent = true;
}

/* Must an earlier op of the connection be DONE before @op starts? */
static bool op_blocked(const struct dcm_file_op *op)
{
	const struct dcm_file_op *o;

	dcm_list_for_each(o, &op->d->ops, const struct dcm_file_op, node) {
		if (o == op)
			return false;
		if (o->state != OP_DONE && o->slab == op->slab &&
		    (o->write || op->write) &&
		    o->offset < op->offset + op->bytes &&
		    op->offset < o->offset + o->bytes)
			return true;
	}
	return false;
}

static void op_begin(struct dcm_data_file *f, struct dcm_file_op *op)
{
	if (op_blocked(op)) {
		op->state = OP_WAITS;
		op->d->waiting++;
		return;
	}
	f->started++;
	op->d->started++;
	op_start(f, op);
}

/* The bytes that an op counts against its connection's limit, also if it is refused. */
static u64 op_held(const struct dcm_file_op *op)
{
	return op->bytes > PAGE_BYTES ? op->bytes : PAGE_BYTES;
}

/*
 * An op is DONE: drop its reference to the slab. Its buffer is used until it is sent.
 */
static void op_done(struct dcm_file_op *op, u32 status)
{
	op->state = OP_DONE;
	op->status = status;
	if (op->slab)
		dcm_slab_put(op->slab);
	op->slab = NULL;
}

static void op_free(struct dcm_data_file *f, struct dcm_file_op *op)
{
	op->d->op_bytes -= op_held(op);
	dcm_list_del(&op->node);
	dcm_list_add_tail(&op->node, &f->free);
}

bool dcm_data_file_held(const struct dcm_data *d)
{
	return d->op_bytes >= DATA_FILE_BYTES;
}

void dcm_data_file_request(struct dcm_worker *w, struct dcm_data *d,
			   const struct dcm_wire_msg *req,
			   struct dcm_slab *slab, u32 status, const u8 *payload)
{
	struct dcm_data_file *f = w->file;
	struct dcm_file_op *op =
		dcm_list_first(&f->free, struct dcm_file_op, node);

	op->d = d;
	op->slab = slab;
	op->tag = req->tag;
	op->write = req->type == DCM_MSG_WRITE;
	op->offset = req->io.offset;
	op->bytes = status ? 0 : req->io.bytes;
	op->moved = 0;
	op->answered = false;
	dcm_list_del(&op->node);
	dcm_list_add_tail(&op->node, &d->ops);
	d->op_bytes += op_held(op);
	if (status) {
		op_done(op, status);
		return;
	}
	if (op->write && payload)
		memcpy(op->buf, payload, op->bytes);
	else if (op->write)
		memset(op->buf, 0, op->bytes);
	op_begin(f, op);
}

bool dcm_data_file_next(struct dcm_data *d, struct dcm_wire_msg *ans,
			const u8 **bytes)
{
	struct dcm_file_op *op;

	dcm_list_for_each(op, &d->ops, struct dcm_file_op, node) {
		if (op->state != OP_DONE)
			return false;
		if (op->answered)
			continue;
		op->answered = true;
		*ans = (struct dcm_wire_msg){
			.type = op->write ? DCM_MSG_WRITTEN : DCM_MSG_DATA,
			.tag = op->tag,
			.io_done.status = op->status,
		};
		*bytes = NULL;
		if (op->status)
			return true;
		ans->io_done.bytes = op->bytes;
		if (!op->write) {
			ans->payload_bytes = op->bytes;
			*bytes = op->buf;
		}
		return true;
	}
	return false;
}

void dcm_data_file_sent(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_file_op *op, *tmp;

	dcm_list_for_each_safe(op, tmp, &d->ops, struct dcm_file_op, node) {
		if (!op->answered)
			break;
		op_free(w->file, op);
	}
}

bool dcm_data_file_drop(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_file_op *op, *tmp;

	dcm_list_for_each_safe(op, tmp, &d->ops, struct dcm_file_op, node) {
		if (op->state == OP_STARTED)
			continue;
		if (op->state == OP_WAITS)
			d->waiting--;
		op_done(op, DCM_WS_OK);
		op_free(w->file, op);
	}
	if (!d->started)
		return false;
	if (d->ending)
		return true;
	d->ending = true;
	dcm_data_leave(w, d);
	shutdown(d->chan->fd, SHUT_RDWR);
	return true;
}

/* The disk has answered @op with @res: bytes, or -errno. True: @op is DONE now. */
static bool op_moved(struct dcm_worker *w, struct dcm_file_op *op, int res)
{
	struct dcm_slab *slab = op->slab;

	if (res > 0 && (u32)res < op->bytes - op->moved &&
	    !(res % PAGE_BYTES)) {
		op->moved += (u32)res;
		op_start(w->file, op);
		return false;
	}
	if (res == -EINTR || res == -EAGAIN) {
		op_start(w->file, op);
		return false;
	}
	if (res > 0 && (u32)res == op->bytes - op->moved) {
		op_done(op, DCM_WS_OK);
		return true;
	}
	__atomic_fetch_add(&w->count.disk_errors, 1, __ATOMIC_RELAXED);
	if (!__atomic_exchange_n(&slab->failed, true, __ATOMIC_RELAXED))
		dcm_err("%s: slab %llu can't be %s at %llu: %s; its host is told so",
			slab->pool->path, (unsigned long long)slab->id,
			op->write ? "written" : "read",
			(unsigned long long)(op->offset + op->moved),
			res < 0 ? strerror(-res) : "the file ends there");
	op_done(op, DCM_WS_IO);
	return true;
}

/* Start the ops of @d that no longer have to wait for earlier ones. */
static void ops_resume(struct dcm_data_file *f, struct dcm_data *d)
{
	struct dcm_file_op *op;

	if (!d->waiting)
		return;
	dcm_list_for_each(op, &d->ops, struct dcm_file_op, node) {
		if (op->state != OP_WAITS)
			continue;
		d->waiting--;
		op_begin(f, op);
	}
}

/* Ops of @d are DONE: send answers, start waiting ops, and give it another turn. */
static void data_go_on(struct dcm_worker *w, struct dcm_data *d)
{
	if (d->ending) {
		dcm_data_close(d);
		return;
	}
	ops_resume(w->file, d);
	dcm_data_answer(w, d);
	if (d->held && !dcm_data_file_held(d)) {
		d->held = false;
		dcm_fair_add(&w->fair, &d->turn);
	}
}

void dcm_data_file_reap(struct dcm_worker *w)
{
	struct dcm_data_file *f = w->file;
	struct dcm_data *d, *tmp;
	struct dcm_file_op *op;
	struct dcm_list heard;
	int res;

	dcm_list_init(&heard);
	while ((op = dcm_ring_next(f->ring, &res))) {
		d = op->d;
		if (!op_moved(w, op, res))
			continue;
		f->started--;
		d->started--;
		if (dcm_list_empty(&d->heard_node))
			dcm_list_add_tail(&d->heard_node, &heard);
	}
	dcm_list_for_each_safe(d, tmp, &heard, struct dcm_data, heard_node) {
		dcm_list_del(&d->heard_node);
		data_go_on(w, d);
	}
	dcm_data_file_submit(w);
}

void dcm_data_file_finish(struct dcm_worker *w)
{
	while (w->file && w->file->started) {
		dcm_data_file_submit(w);
		dcm_ring_wait(w->file->ring);
		dcm_data_file_reap(w);
	}
}
