// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * window.c - a virtio-gc device's window: a file of the kernel pager
 *
 * Once a device has proven that it may write to a file (gc.c), its requests are
 * done here, by the same code as in libdcm (gc/queue.c and below), because the
 * keys and the sessions with donors are in this process. The kernel has the
 * pages: they are synced, frozen and thawed by ioctls of the file. Live bitmaps are
 * written into the window, and garbage discarded there, by the device: this process
 * may not write to the file, and touching a page that is lost or truncated would kill
 * it.
 *
 * Limits: few requests may be unanswered; while there are as many, no more are read. A
 * device that does not read its answers for 5 s is disconnected. It holds up no other
 * file.
 *
 * When the device is gone, frozen pages are thawed, and its workers end. The content of
 * pages is not changed, as the cause may be that this daemon restarts.
 *
 * Where the file has copies, the kernel spreads, reverts or keeps the workers' changes
 * (gc/workers_copies.c says when). If this process is killed before that, the kernel
 * reverts them when it closes the file. References whose update was spread before stay
 * updated; so before any reference is updated, the device is told which objects were
 * moved, and where the tables are.
 *
 * Locking: @lock guards @in_flight. The GC thread and the connection's thread
 * send without a lock, as messages are sent whole.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "../gc/ipc.h"
#include "window.h"

#define SEND_S 5
#define IN_FLIGHT_MAX 256u
#define SLICE_MS 500u /* of a sync, between two checks whether to end */
#define BUSY_SLICES 6u /* of which each failed as I/O uses a page: give up */

/**
 * struct hostd_window - a file's window, and the connection of its device
 * @sock: the connection to the device
 * @knows: DCM_GC_IPC_KNOWS_* of the device
 * @ending: the device is gone: leave content alone
 * @in_flight: requests not answered
 */
struct hostd_window {
	struct hostd_file *f;
	int sock;
	u32 knows;
	struct dcm_gc_host *gc;
	bool ending;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	u32 in_flight;
	u64 buf[(sizeof(struct dcm_gc_ipc) + DCM_GC_IPC_MAX) / 8 + 1];
};

struct request {
	struct hostd_window *w;
	u64 token;
};

/* Send a whole message. False: that failed, and the connection was ended. */
static bool msg_send(struct hostd_window *w, const struct dcm_gc_ipc *s,
		     const void *more, size_t bytes)
{
	if (!dcm_gc_ipc_send(w->sock, s, more, bytes))
		return true;
	shutdown(w->sock, SHUT_RDWR);
	return false;
}

/* Send an answer as messages: the last is a @last, those before it are @part. */
static bool answer_send(struct hostd_window *w, const struct request *of,
			u32 part, u32 last, const void *answer, size_t bytes)
{
	struct dcm_gc_ipc s = { .kind = part, .token = of->token };
	const char *rest = answer;

	for (; bytes > DCM_GC_IPC_PIECE; bytes -= DCM_GC_IPC_PIECE) {
		if (!msg_send(w, &s, rest, DCM_GC_IPC_PIECE))
			return false;
		rest += DCM_GC_IPC_PIECE;
	}
	s.kind = last;
	return msg_send(w, &s, rest, bytes);
}

/* ---- pages ---- */

static u64 clock_ms(void)
{
	return hostd_now_ns() / 1000000;
}

static int range_ioctl(const struct hostd_window *w, unsigned long cmd, u64 at,
		       u64 bytes, u32 flags)
{
	struct dcmfs_range r = { .first = at / 4096,
				 .pages = bytes / 4096,
				 .flags = flags };

	return ioctl(w->f->fd, cmd, &r) ? errno : 0;
}

static u32 status_of(int err)
{
	switch (err) {
	case 0:
		return VIRTIO_GC_OK;
	case EIO:
		return VIRTIO_GC_DONOR_LOST;
	case EBUSY:
		return VIRTIO_GC_BUSY;
	case ENOMEM:
		return VIRTIO_GC_LIMIT;
	default:
		return VIRTIO_GC_TIMED_OUT;
	}
}

static u32 window_freeze(void *priv, u64 at, u64 bytes)
{
	return status_of(range_ioctl(priv, DCMFS_IOC_FREEZE, at, bytes, 0));
}

static void window_thaw(void *priv)
{
	range_ioctl(priv, DCMFS_IOC_FREEZE, 0, 0, 0);
}

static u32 window_sync(void *priv, u64 *at, u64 end, enum dcm_gc_sync how,
		       u64 until_ms)
{
	static const u32 flags[] = {
		[DCM_GC_SYNC_OUT] = 0,
		[DCM_GC_SYNC_KEEP] = DCMFS_SYNC_KEEP,
		[DCM_GC_SYNC_EXACT] = DCMFS_SYNC_KEEP | DCMFS_SYNC_EXACT,
	};
	struct hostd_window *w = priv;
	struct dcmfs_range r = { .first = *at / 4096,
				 .pages = (end - *at) / 4096,
				 .flags = flags[how] };
	u64 now = clock_ms(), first;
	int err = ETIMEDOUT;
	u32 busy = 0;

	/* Each slice goes on where the last one ended. */
	while ((err == ETIMEDOUT || (err == EBUSY && busy < BUSY_SLICES)) &&
	       now < until_ms && !hostd_window_ending(w)) {
		first = r.first;
		r.limit_ms = (u32)min(until_ms - now, (u64)SLICE_MS);
		err = ioctl(w->f->fd, DCMFS_IOC_SYNC, &r) ? errno : 0;
		now = clock_ms();
		busy = r.first == first ? busy + (err == EBUSY) : 0;
	}
	*at = err ? r.first * 4096 : end;
	return status_of(err);
}

static u32 window_spread(void *priv, u64 at, u64 end, u64 until_ms)
{
	struct hostd_window *w = priv;
	struct dcmfs_range r = { .first = at / 4096,
				 .pages = (end - at) / 4096 };
	int err = ETIMEDOUT;
	u64 now = clock_ms();

	while (err == ETIMEDOUT && now < until_ms && !hostd_window_ending(w)) {
		r.limit_ms = (u32)min(until_ms - now, (u64)SLICE_MS);
		err = ioctl(w->f->fd, DCMFS_IOC_SPREAD, &r) ? errno : 0;
		now = clock_ms();
	}
	return status_of(err);
}

static void window_revert(void *priv, u64 at, u64 end, bool keep)
{
	const struct hostd_window *w = priv;
	int err = range_ioctl(w, DCMFS_IOC_REVERT, at, end - at,
			      keep ? DCMFS_REVERT_KEEP : 0);

	if (err)
		dcm_log(DCM_LOG_ERR,
			"%s: a GC worker's changes can't be undone: %s",
			w->f->path, strerror(err));
}

/* dcm_gc_backend_ops.losing; also while slabs of an earlier daemon are not marked. */
static bool window_losing(void *priv)
{
	struct hostd_file *f = ((struct hostd_window *)priv)->f;

	return !smp_load_acquire(&f->inherited) ||
	       dcm_slab_worker_losing(&f->slabs);
}

static void window_hint(void *priv, u64 at, u64 bytes, u32 what)
{
	static const u32 hints[] = {
		[VIRTIO_GC_HINT_DIRECT] = DCMFS_HINT_DIRECT,
		[VIRTIO_GC_HINT_NORMAL] = DCMFS_HINT_NORMAL,
		[VIRTIO_GC_HINT_COLD] = DCMFS_HINT_COLD,
		[VIRTIO_GC_HINT_FETCH] = DCMFS_HINT_FETCH,
	};

	range_ioctl(priv, DCMFS_IOC_HINT, at, bytes, hints[what]);
}

static void window_forget(void *priv, u64 at, u64 bytes)
{
	range_ioctl(priv, DCMFS_IOC_HINT, at, bytes, DCMFS_HINT_FORGET);
}

/* Ask the device to discard a range: it does before it reads the answer. */
static int window_discard(void *priv, u64 at, u64 bytes)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_DISCARD,
				      .token = bytes,
				      .value = at };
	struct hostd_window *w = priv;

	if (!hostd_window_ending(w))
		msg_send(w, &s, NULL, 0);
	return 0;
}

static bool window_place(void *priv, u64 at, struct dcm_gc_place_of *place)
{
	const struct hostd_window *w = priv;
	u64 extent = w->f->info.extent_pages * 4096;

	if (!dcm_slab_worker_where(&w->f->slabs, (u32)(at / extent),
				   &place->donor, &place->slab))
		return false;
	place->offset = at % extent;
	return true;
}

/* Ask the kernel, whose lanes make the writes and count them. */
static bool window_write_count(void *priv, u64 at, u64 bytes,
		       const struct dcm_gc_place_of *place, u32 *count)
{
	const struct hostd_window *w = priv;
	struct dcmfs_write_count arg = { .first = at / 4096,
					 .pages = bytes / 4096 };

	(void)place;
	if (ioctl(w->f->fd, DCMFS_IOC_WRITE_COUNT, &arg))
		return false;
	*count = arg.count;
	return true;
}

static bool window_moved(void *priv, void *token, const void *answer,
			 size_t bytes)
{
	struct hostd_window *w = priv;

	return !(w->knows & DCM_GC_IPC_KNOWS_MOVED) ||
	       answer_send(w, token, DCM_GC_IPC_MOVED, DCM_GC_IPC_MOVED, answer,
			   bytes);
}

static void window_bits(void *priv, u64 at, const void *bits, size_t bytes)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_BITS, .value = at };

	msg_send(priv, &s, bits, bytes);
}

/* Ask the kernel for the budget, which can be changed at any time. */
static u64 window_budget(void *priv)
{
	const struct hostd_window *w = priv;
	struct dcmfs_info info;

	return ioctl(w->f->fd, DCMFS_IOC_INFO, &info) ?
		       0 :
		       info.budget_pages * 4096;
}

static void window_end(void *priv)
{
	(void)priv;
}

static const struct dcm_gc_backend_ops window_ops = {
	.freeze = window_freeze,
	.thaw = window_thaw,
	.sync = window_sync,
	.spread = window_spread,
	.revert = window_revert,
	.losing = window_losing,
	.hint = window_hint,
	.forget = window_forget,
	.discard = window_discard,
	.place = window_place,
	.write_count = window_write_count,
	.moved = window_moved,
	.bits = window_bits,
	.budget = window_budget,
	.end = window_end,
};

/* ---- a connection ---- */

static void request_answered(void *priv, void *token, const void *answer,
			     size_t bytes)
{
	struct hostd_window *w = priv;

	/* only a device that knows PART gets a long answer */
	answer_send(w, token, DCM_GC_IPC_PART, DCM_GC_IPC_ANSWER, answer,
		    bytes);
	free(token);
	pthread_mutex_lock(&w->lock);
	w->in_flight--;
	pthread_cond_signal(&w->answered);
	pthread_mutex_unlock(&w->lock);
}

static void welcome_send(struct hostd_window *w)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_WELCOME,
				      .token = dcm_gc_host_budget(w->gc),
				      .value = dcm_gc_host_features(w->gc) };
	struct virtio_gc_config config;

	dcm_gc_host_config(w->gc, &config);
	msg_send(w, &s, &config, DCM_GC_CONFIG_BYTES);
}

static void config_changed(void *priv)
{
	welcome_send(priv);
}

static const struct dcm_gc_host_ops host_ops = {
	.answered = request_answered,
	.config_changed = config_changed,
};

static bool request_submit(struct hostd_window *w, const struct dcm_gc_ipc *s,
			   const void *bytes, size_t n)
{
	struct request *a = malloc(sizeof(*a));

	if (!a)
		return false;
	*a = (struct request){ w, s->token };
	pthread_mutex_lock(&w->lock);
	while (w->in_flight >= IN_FLIGHT_MAX)
		pthread_cond_wait(&w->answered, &w->lock);
	w->in_flight++;
	pthread_mutex_unlock(&w->lock);
	dcm_gc_host_submit(w->gc, bytes, n, s->room, a);
	return true;
}

/* Handle a message. False: disconnect. */
static bool msg_handle(struct hostd_window *w, size_t n)
{
	const struct dcm_gc_ipc *s = (void *)w->buf;
	const struct dcm_gc_ipc ready = { .kind = DCM_GC_IPC_READY };

	if (n < sizeof(*s) || n == sizeof(w->buf))
		return false;
	switch (s->kind) {
	case DCM_GC_IPC_START:
		dcm_gc_host_start(w->gc, s->value);
		return true;
	case DCM_GC_IPC_REQUEST:
		return request_submit(w, s, s + 1, n - sizeof(*s));
	case DCM_GC_IPC_RESET:
		dcm_gc_host_reset(w->gc);
		msg_send(w, &ready, NULL, 0);
		return true;
	default:
		return false;
	}
}

void hostd_window_run(struct hostd_window *w)
{
	ssize_t n;

	welcome_send(w);
	do {
		n = recv(w->sock, w->buf, sizeof(w->buf), 0);
	} while (n > 0 ? msg_handle(w, (size_t)n) : n < 0 && errno == EINTR);
	hostd_window_end(w);
	shutdown(w->sock, SHUT_RDWR);
	dcm_gc_host_close(w->gc);
}

struct hostd_window *hostd_window_new(struct hostd_file *f, int sock, u32 knows,
				      char *why, size_t len)
{
	struct dcm_gc_backend backend = {
		.ops = &window_ops,
		.client = f->client,
		.donors = f->nr_donors,
		.bytes = f->info.pages * 4096,
		.extent = f->info.extent_pages * 4096,
	};
	struct timeval send = { .tv_sec = SEND_S }, none = { 0 };
	struct hostd_window *w = calloc(1, sizeof(*w));

	snprintf(why, len, "no memory");
	if (!w)
		return NULL;
	/* answers with bitmaps are longer than a message, so they come in parts */
	if (!(knows & DCM_GC_IPC_KNOWS_PART))
		backend.hidden |= 1ull << VIRTIO_GC_F_BITMAPS;
	if (!(knows & DCM_GC_IPC_KNOWS_BUDGET))
		backend.hidden |= 1ull << VIRTIO_GC_F_BUDGET;
	w->f = f;
	w->sock = sock;
	w->knows = knows;
	backend.priv = w;
	w->gc = dcm_gc_host_new(&backend, &host_ops, w, why, len);
	if (!w->gc) {
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->answered, NULL);
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send));
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	return w;
}

void hostd_window_free(struct hostd_window *w)
{
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->answered);
	free(w);
}

void hostd_window_end(struct hostd_window *w)
{
	WRITE_ONCE(w->ending, true);
}

bool hostd_window_ending(const struct hostd_window *w)
{
	return READ_ONCE(w->ending);
}
