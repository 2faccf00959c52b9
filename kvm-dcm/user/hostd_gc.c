// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostd_gc.c - garbage collection on donors, for files of the kernel pager
 *
 * A virtio-gc device (in QEMU, or libvgc in a runtime) connects to a socket and
 * hands over the file whose memory it is about (gc_say.h). Its requests are done
 * here, by what does them in libdcm too (gc_host.c and all below), as the keys and
 * the sessions with donors are here. Pages are the kernel's: settled, held and let
 * go by ioctls of the file. What has to be written into the window, live
 * bitmaps, is sent to the device, for a page that this process touched could be
 * lost, or cut off, and kill it.
 *
 *	connected -> HELLO, in 2 s -> the file's, a thread -> gone, reaped
 *
 * A file has one such connection at a time. What it may cost is bounded: who
 * does not say HELLO is hung up on, a few at a time; requests that are not
 * answered are few, no more are read meanwhile; who does not read its answers
 * for 5 s is hung up on, and holds up no other file.
 *
 * When the device is gone pages that are held are let go, and its workers end.
 * Content is not touched: it may be this daemon that starts again.
 *
 * Locking: the main thread's, but for what is in struct hostd_gc: @lock guards
 * @in_flight; the GC thread and the connection's send by themselves, as messages
 * are sent whole.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "gc_home.h"
#include "gc_say.h"
#include "hostd.h"

#define HELLO_NS	(2000ull * 1000 * 1000)
#define SEND_S		5
#define IN_FLIGHT_MAX	256u
#define SLICE_MS	500u	/* of settling, before we look whether to end */

/**
 * struct hostd_gc - a connection that is a file's
 * @sock: to the device
 * @file: the file, as the device has it open
 * @ending: nobody is there any more: content is left alone
 * @over: @thread has ended
 * @in_flight: requests not answered
 */
struct hostd_gc {
	struct hostd_file *f;
	int sock;
	int file;
	struct dcm_gc_host *gc;
	pthread_t thread;
	bool ending;
	bool over;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	u32 in_flight;
	u64 buf[(sizeof(struct dcm_gc_say) + DCM_GC_SAY_MAX) / 8 + 1];
};

struct asked {
	struct hostd_gc *g;
	u64 token;
};

/* Whole, or the connection is over. */
static void say(struct hostd_gc *g, const struct dcm_gc_say *s,
		const void *more, size_t bytes)
{
	if (dcm_gc_say(g->sock, s, more, bytes, -1))
		shutdown(g->sock, SHUT_RDWR);
}

/* ---- pages ---- */

static u64 clock_ms(void)
{
	return hostd_now_ns() / 1000000;
}

static int range(const struct hostd_gc *g, unsigned long cmd, u64 at, u64 bytes,
		 u32 flags)
{
	struct dcmfs_range r = { .first = at / 4096,
				 .pages = bytes / 4096,
				 .flags = flags };

	return ioctl(g->f->fd, cmd, &r) ? errno : 0;
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

static u32 home_hold(void *home, u64 at, u64 bytes)
{
	return status_of(range(home, DCMFS_IOC_HOLD, at, bytes, 0));
}

static void home_release(void *home)
{
	range(home, DCMFS_IOC_HOLD, 0, 0, 0);
}

static u32 home_settle(void *home, u64 *at, u64 end, bool keep, u64 until_ms)
{
	struct hostd_gc *g = home;
	struct dcmfs_range r = { .first = *at / 4096,
				 .pages = (end - *at) / 4096,
				 .flags = keep ? DCMFS_SETTLE_KEEP : 0 };
	int err = ETIMEDOUT;
	u64 now;

	/* What a slice has settled the next one does not look at again. */
	while (err == ETIMEDOUT && (now = clock_ms()) < until_ms &&
	       !__atomic_load_n(&g->ending, __ATOMIC_RELAXED)) {
		r.limit_ms = (u32)min(until_ms - now, (u64)SLICE_MS);
		err = ioctl(g->f->fd, DCMFS_IOC_SETTLE, &r) ? errno : 0;
	}
	*at = err ? r.first * 4096 : end;
	return status_of(err);
}

static bool home_losing(void *home)
{
	return hostd_slab_losing(((struct hostd_gc *)home)->f);
}

static void home_hint(void *home, u64 at, u64 bytes, u32 what)
{
	static const u32 hints[] = {
		[VIRTIO_GC_HINT_DIRECT] = DCMFS_HINT_DIRECT,
		[VIRTIO_GC_HINT_NORMAL] = DCMFS_HINT_NORMAL,
		[VIRTIO_GC_HINT_COLD] = DCMFS_HINT_COLD,
	};

	range(home, DCMFS_IOC_HINT, at, bytes, hints[what]);
}

static int home_discard(void *home, u64 at, u64 bytes)
{
	struct hostd_gc *g = home;

	if (__atomic_load_n(&g->ending, __ATOMIC_RELAXED))
		return 0;
	if (fallocate(g->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)at, (off_t)bytes))
		return -errno;
	return 0;
}

static bool home_place(void *home, u64 at, struct dcm_gc_place_of *place)
{
	const struct hostd_gc *g = home;
	u64 extent = g->f->info.extent_pages * 4096;

	if (!hostd_slab_where(g->f, (u32)(at / extent), &place->donor,
			      &place->slab))
		return false;
	place->offset = at % extent;
	return true;
}

/* Lanes are the kernel's, and so is what they have written. */
static bool home_tag(void *home, u64 at, u64 bytes,
		     const struct dcm_gc_place_of *place, u32 *tag)
{
	const struct hostd_gc *g = home;
	struct dcmfs_tag t = { .first = at / 4096, .pages = bytes / 4096 };

	(void)place;
	if (ioctl(g->f->fd, DCMFS_IOC_TAG, &t))
		return false;
	*tag = t.tag;
	return true;
}

static void home_bits(void *home, u64 at, const void *bits, size_t bytes)
{
	const struct dcm_gc_say s = { .kind = DCM_GC_SAY_BITS, .value = at };

	say(home, &s, bits, bytes);
}

static void home_end(void *home)
{
	(void)home;
}

static const struct dcm_gc_home_ops home_ops = {
	.hold = home_hold,
	.release = home_release,
	.settle = home_settle,
	.losing = home_losing,
	.hint = home_hint,
	.discard = home_discard,
	.place = home_place,
	.tag = home_tag,
	.bits = home_bits,
	.end = home_end,
};

/* ---- a connection ---- */

static void cb_answered(void *priv, void *token, const void *answer,
			size_t bytes)
{
	struct hostd_gc *g = priv;
	struct asked *a = token;
	const struct dcm_gc_say s = { .kind = DCM_GC_SAY_ANSWER,
				      .token = a->token };

	say(g, &s, answer, bytes);
	free(a);
	pthread_mutex_lock(&g->lock);
	g->in_flight--;
	pthread_cond_signal(&g->answered);
	pthread_mutex_unlock(&g->lock);
}

static void welcome(struct hostd_gc *g)
{
	const struct dcm_gc_say s = { .kind = DCM_GC_SAY_WELCOME,
				      .value = dcm_gc_host_features(g->gc) };
	struct virtio_gc_config config;

	dcm_gc_host_config(g->gc, &config);
	say(g, &s, &config, sizeof(config));
}

static void cb_donors_changed(void *priv)
{
	welcome(priv);
}

static const struct dcm_gc_host_ops host_ops = {
	.answered = cb_answered,
	.donors_changed = cb_donors_changed,
};

static bool request(struct hostd_gc *g, const struct dcm_gc_say *s,
		    const void *bytes, size_t n)
{
	struct asked *a = malloc(sizeof(*a));

	if (!a)
		return false;
	*a = (struct asked){ g, s->token };
	pthread_mutex_lock(&g->lock);
	while (g->in_flight >= IN_FLIGHT_MAX)
		pthread_cond_wait(&g->answered, &g->lock);
	g->in_flight++;
	pthread_mutex_unlock(&g->lock);
	dcm_gc_host_submit(g->gc, bytes, n, s->room, a);
	return true;
}

/* False: hang up. */
static bool hear(struct hostd_gc *g, size_t n)
{
	const struct dcm_gc_say *s = (void *)g->buf;
	const struct dcm_gc_say ready = { .kind = DCM_GC_SAY_READY };

	if (n < sizeof(*s) || n == sizeof(g->buf))
		return false;
	switch (s->kind) {
	case DCM_GC_SAY_START:
		dcm_gc_host_start(g->gc, s->value);
		return true;
	case DCM_GC_SAY_REQUEST:
		return request(g, s, s + 1, n - sizeof(*s));
	case DCM_GC_SAY_RESET:
		dcm_gc_host_reset(g->gc);
		say(g, &ready, NULL, 0);
		return true;
	default:
		return false;
	}
}

static void *gc_main(void *arg)
{
	struct hostd_gc *g = arg;
	ssize_t n;

	while ((n = recv(g->sock, g->buf, sizeof(g->buf), 0)) > 0)
		if (!hear(g, (size_t)n))
			break;
	__atomic_store_n(&g->ending, true, __ATOMIC_RELAXED);
	shutdown(g->sock, SHUT_RDWR);
	dcm_gc_host_close(g->gc);
	__atomic_store_n(&g->over, true, __ATOMIC_RELEASE);
	eventfd_write(g->f->ended, 1);
	return NULL;
}

/* ---- the main thread ---- */

static void gc_free(struct hostd_gc *g)
{
	close(g->sock);
	close(g->file);
	pthread_mutex_destroy(&g->lock);
	pthread_cond_destroy(&g->answered);
	free(g);
}

/** hostd_gc_stop() - a file is not collected any more */
void hostd_gc_stop(struct hostd_file *f)
{
	if (!f->gc)
		return;
	__atomic_store_n(&f->gc->ending, true, __ATOMIC_RELAXED);
	shutdown(f->gc->sock, SHUT_RDWR);
	pthread_join(f->gc->thread, NULL);
	gc_free(f->gc);
	f->gc = NULL;
}

/* Those whose device is gone. */
void hostd_gc_reap(struct hostd *h)
{
	struct hostd_file *f;

	for (f = h->files; f; f = f->next)
		if (f->gc && __atomic_load_n(&f->gc->over, __ATOMIC_ACQUIRE))
			hostd_gc_stop(f);
}

static void refuse(int sock, const char *why)
{
	const struct dcm_gc_say s = { .kind = DCM_GC_SAY_REFUSED };

	/* It has not been sent anything: there is room, or it is gone. It does not block. */
	if (dcm_gc_say(sock, &s, why, strlen(why), -1))
		dcm_log(DCM_LOG_DEBUG, "garbage collection refused: %s", why);
	close(sock);
}

static struct hostd_file *file_of(const struct hostd *h, int fd)
{
	struct hostd_file *f;
	struct stat st;

	if (fstat(fd, &st) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return NULL;
	for (f = h->files; f; f = f->next)
		if (f->dev == st.st_dev && f->ino == st.st_ino)
			return f;
	return NULL;
}

/* Takes @sock and @file over. */
static void gc_start(struct hostd_file *f, int sock, int file)
{
	struct dcm_gc_home home = {
		.ops = &home_ops,
		.ctl = f->ctl,
		.donors = f->nr_donors,
		.bytes = f->info.pages * 4096,
		.extent = f->info.extent_pages * 4096,
	};
	struct timeval limit = { .tv_sec = SEND_S };
	struct hostd_gc *g = calloc(1, sizeof(*g));
	char err[256] = "no memory";

	home.priv = g;
	if (g)
		g->gc = dcm_gc_host_new(&home, &host_ops, g, err, sizeof(err));
	if (!g || !g->gc) {
		refuse(sock, err);
		close(file);
		free(g);
		return;
	}
	g->f = f;
	g->sock = sock;
	g->file = file;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->answered, NULL);
	fcntl(sock, F_SETFL, 0); /* blocking from here on */
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	welcome(g);
	if (pthread_create(&g->thread, NULL, gc_main, g)) {
		dcm_log(DCM_LOG_ERR, "%s: no thread for garbage collection",
			f->path);
		g->ending = true;
		dcm_gc_host_close(g->gc);
		gc_free(g);
		return;
	}
	pthread_setname_np(g->thread, "dcm-gc");
	f->gc = g;
}

/* What a new connection says first, with one descriptor. */
static void hello(struct hostd *h, int sock)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct dcm_gc_say s = { 0 };
	struct iovec iov = { &s, sizeof(s) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
	struct hostd_file *f;
	int fd = -1;

	/* More than one does not fit, and is closed by the kernel. */
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	f = fd < 0 ? NULL : file_of(h, fd);
	if (n != sizeof(s) || s.kind != DCM_GC_SAY_HELLO || fd < 0 ||
	    m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		close(sock);
	} else if (s.value != DCM_GC_SAY_VERSION) {
		refuse(sock, "dcm-hostd is of another version than libdcm");
	} else if (!f) {
		refuse(sock,
		       "dcm-hostd does not serve that file, or it is not open to read and write");
	} else if (f->gc) {
		refuse(sock,
		       "there is a virtio-gc device on that file already");
	} else {
		gc_start(f, sock, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
}

/* The descriptors to poll for, @p of them; how many. */
u32 hostd_gc_poll(const struct hostd *h, struct pollfd *p)
{
	u32 n = 0, i;

	if (h->gc < 0)
		return 0;
	p[n++] = (struct pollfd){ .fd = h->nr_hello < HOSTD_HELLO_MAX ? h->gc :
									-1,
				  .events = POLLIN };
	for (i = 0; i < h->nr_hello; i++)
		p[n++] = (struct pollfd){ .fd = h->hello[i].sock,
					  .events = POLLIN };
	return n;
}

/* What poll() said of them. */
void hostd_gc_heard(struct hostd *h, const struct pollfd *p, u32 n)
{
	u32 i, kept = 0;
	u64 now = hostd_now_ns();
	int sock;

	for (i = 0; n && i < h->nr_hello; i++) {
		if (i + 1 < n && p[i + 1].revents)
			hello(h, h->hello[i].sock);
		else if (now - h->hello[i].since_ns > HELLO_NS)
			close(h->hello[i].sock);
		else
			h->hello[kept++] = h->hello[i];
	}
	h->nr_hello = kept;
	if (!n || !p[0].revents || kept == HOSTD_HELLO_MAX)
		return;
	sock = accept4(h->gc, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock >= 0)
		h->hello[h->nr_hello++] = (struct hostd_hello){ sock, now };
}

/** hostd_gc_start() - listen: anybody may, who has a file open */
void hostd_gc_start(struct hostd *h, const char *path)
{
	h->gc = hostd_listen(path, SOCK_SEQPACKET, 0666, HOSTD_HELLO_MAX);
	if (h->gc < 0)
		dcm_log(DCM_LOG_WARNING,
			"%s: %s: no virtio-gc device can be on a file", path,
			strerror(errno));
}

void hostd_gc_end(struct hostd *h, const char *path)
{
	while (h->nr_hello)
		close(h->hello[--h->nr_hello].sock);
	hostd_unlisten(&h->gc, path);
}
