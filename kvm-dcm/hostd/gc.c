// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc.c - garbage collection on donors, for files of the kernel pager
 *
 * A virtio-gc device (in QEMU, or libvgc in a runtime) connects to a socket and
 * proves that it may write to the file with the window (gc/ipc.h). Its requests
 * are done here, by the same code as in libdcm (gc/queue.c and below), because
 * the keys and the sessions with donors are here. The kernel has the pages:
 * they are settled, held and released by ioctls of the file. The device writes
 * live bitmaps into the window and discards garbage there: this process may not
 * write to the file, and a page that it touched could be lost, or truncated,
 * and kill it.
 *
 * Each connection:
 *
 *	connected -> HELLO -> PROVE -> PROVED -> asked -> the file's -> over, reaped
 *	     '--------- not in 2 s, or refused --------------------------^
 *
 * No device may hold up the main thread, which resumes donors' sessions and
 * restarts the daemon. Descriptors that a device passes with its messages are
 * never taken: the kernel drops them where the message is read, or where the
 * socket is closed, and dropping the last one may take long (a TCP socket that
 * lingers; NFS). So each connection has a thread from accept() to close(): it
 * reads, sends and closes. The main thread only checks the lock that the device
 * has set, and accepts or refuses. If a thread takes long to end, it is
 * interrupted again and again.
 *
 * A file has one such connection at a time. Its cost is bounded: there may be
 * only so many connections that are no file's, and of those a user has a few,
 * so that others get in; the rest are disconnected. Few requests may be
 * unanswered, and no more are read meanwhile. A device that does not read its
 * answers for 5 s is disconnected, and holds up no other file.
 *
 * When the device is gone, held pages are released, and its workers end.
 * Content is not touched: it may be this daemon that restarts.
 *
 * Locking: the main thread's, except struct hostd_gc: @lock guards @in_flight;
 * the GC thread and the connection's send without a lock, as messages are sent
 * whole. @callers_lock guards what a connection's thread and the main thread
 * exchange.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "../gc/backend.h"
#include "../gc/ipc.h"
#include "hostd.h"

#define HELLO_S 2
#define LATE_NS (5000ull * 1000 * 1000)
#define SEND_S 5
#define IN_FLIGHT_MAX 256u
#define SLICE_MS 500u /* of settling, between checks whether to end */
#define UID_MAX 8u /* of HOSTD_CALLERS_MAX, for each user */
#define STACK_BYTES (256u << 10)
#define GROUP "kvm"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/**
 * struct hostd_gc - a connection that is a file's
 * @sock: to the device
 * @ending: the device is gone: leave content alone
 * @in_flight: requests not answered
 */
struct hostd_gc {
	struct hostd_file *f;
	struct hostd_caller *caller;
	int sock;
	struct dcm_gc_host *gc;
	bool ending;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	u32 in_flight;
	u64 buf[(sizeof(struct dcm_gc_ipc) + DCM_GC_IPC_MAX) / 8 + 1];
};

/**
 * enum caller_state - the state of a connection
 * @CALLER_SPEAKS: it names its file; the thread's turn
 * @CALLER_ASKS: may it be the file's? The main thread's turn
 * @CALLER_TOLD: it is the file's, or @why is set; the thread's turn
 * @CALLER_OVER: the thread ends; the main thread's turn
 */
enum caller_state {
	CALLER_SPEAKS,
	CALLER_ASKS,
	CALLER_TOLD,
	CALLER_OVER,
};

/**
 * struct hostd_caller - a connection
 * @sock: -1 once the thread closes it
 * @ended: the main thread's eventfd, to be written
 * @unwanted: its user has too many: it is disconnected
 * @proof: offset in the file that the device has locked
 * @why: why it is refused
 * @g: set once it is a file's
 */
struct hostd_caller {
	struct hostd_caller *next;
	pthread_t thread;
	int sock;
	int ended;
	uid_t uid;
	u64 since_ns;
	bool unwanted;
	enum caller_state state;
	struct dcm_gc_ipc_file file;
	u64 proof;
	char why[256];
	struct hostd_gc *g;
};

static pthread_mutex_t callers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callers_told = PTHREAD_COND_INITIALIZER;

struct asked {
	struct hostd_gc *g;
	u64 token;
};

/* Send the whole message, or end the connection. */
static void say(struct hostd_gc *g, const struct dcm_gc_ipc *s,
		const void *more, size_t bytes)
{
	if (dcm_gc_ipc(g->sock, s, more, bytes))
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

static u32 home_freeze(void *home, u64 at, u64 bytes)
{
	return status_of(range(home, DCMFS_IOC_HOLD, at, bytes, 0));
}

static void home_thaw(void *home)
{
	range(home, DCMFS_IOC_HOLD, 0, 0, 0);
}

static u32 home_sync(void *home, u64 *at, u64 end, bool keep, u64 until_ms)
{
	struct hostd_gc *g = home;
	struct dcmfs_range r = { .first = *at / 4096,
				 .pages = (end - *at) / 4096,
				 .flags = keep ? DCMFS_SETTLE_KEEP : 0 };
	int err = ETIMEDOUT;
	u64 now;

	/* A slice does not look again at what earlier ones have settled. */
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
	return dcm_slab_worker_losing(&((struct hostd_gc *)home)->f->slabs);
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

/* The device discards, before it reads the answer. */
static int home_discard(void *home, u64 at, u64 bytes)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_DISCARD,
				      .token = bytes,
				      .value = at };
	struct hostd_gc *g = home;

	if (!__atomic_load_n(&g->ending, __ATOMIC_RELAXED))
		say(g, &s, NULL, 0);
	return 0;
}

static bool home_place(void *home, u64 at, struct dcm_gc_place_of *place)
{
	const struct hostd_gc *g = home;
	u64 extent = g->f->info.extent_pages * 4096;

	if (!dcm_slab_worker_where(&g->f->slabs, (u32)(at / extent),
				   &place->donor, &place->slab))
		return false;
	place->offset = at % extent;
	return true;
}

/* Lanes are in the kernel, which counts their writes. */
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
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_BITS, .value = at };

	say(home, &s, bits, bytes);
}

static void home_end(void *home)
{
	(void)home;
}

static const struct dcm_gc_backend_ops home_ops = {
	.freeze = home_freeze,
	.thaw = home_thaw,
	.sync = home_sync,
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
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_ANSWER,
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
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_WELCOME,
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

static bool request(struct hostd_gc *g, const struct dcm_gc_ipc *s,
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

/* Handle a message. False: disconnect. */
static bool hear(struct hostd_gc *g, size_t n)
{
	const struct dcm_gc_ipc *s = (void *)g->buf;
	const struct dcm_gc_ipc ready = { .kind = DCM_GC_IPC_READY };

	if (n < sizeof(*s) || n == sizeof(g->buf))
		return false;
	switch (s->kind) {
	case DCM_GC_IPC_START:
		dcm_gc_host_start(g->gc, s->value);
		return true;
	case DCM_GC_IPC_REQUEST:
		return request(g, s, s + 1, n - sizeof(*s));
	case DCM_GC_IPC_RESET:
		dcm_gc_host_reset(g->gc);
		say(g, &ready, NULL, 0);
		return true;
	default:
		return false;
	}
}

/* Serve the device until it, or the file, is gone. */
static void gc_run(struct hostd_gc *g)
{
	ssize_t n;

	welcome(g);
	do {
		n = recv(g->sock, g->buf, sizeof(g->buf), 0);
	} while (n > 0 ? hear(g, (size_t)n) : n < 0 && errno == EINTR);
	__atomic_store_n(&g->ending, true, __ATOMIC_RELAXED);
	shutdown(g->sock, SHUT_RDWR);
	dcm_gc_host_close(g->gc);
}

/* ---- a connection's thread ---- */

/* Read one message of @bytes; descriptors passed with it are dropped. */
static bool caller_hear(const struct hostd_caller *c, void *buf, size_t bytes)
{
	/* after EINTR the time is up: do not retry */
	return recv(c->sock, buf, bytes, MSG_TRUNC) == (ssize_t)bytes;
}

/* Take the file's id and the lock's proof. False: disconnect. */
static bool caller_speaks(struct hostd_caller *c)
{
	struct {
		struct dcm_gc_ipc s;
		struct dcm_gc_ipc_file file;
	} hello;
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_PROVE };

	if (!caller_hear(c, &hello, sizeof(hello)) ||
	    hello.s.kind != DCM_GC_IPC_HELLO)
		return false;
	if (hello.s.value != DCM_GC_IPC_VERSION) {
		snprintf(c->why, sizeof(c->why),
			 "dcm-hostd is of another version than libdcm");
		return true;
	}
	c->file = hello.file;
	if (getrandom(&c->proof, sizeof(c->proof), 0) != sizeof(c->proof))
		return false;
	/* behind the end of any file, with room for one byte */
	c->proof = c->proof >> 2 | 1ull << 62;
	s.value = c->proof;
	return !dcm_gc_ipc(c->sock, &s, NULL, 0) &&
	       caller_hear(c, &s, sizeof(s)) && s.kind == DCM_GC_IPC_PROVED;
}

static void caller_state(struct hostd_caller *c, enum caller_state state)
{
	pthread_mutex_lock(&callers_lock);
	c->state = state;
	eventfd_write(c->ended, 1);
	while (state == CALLER_ASKS && c->state == CALLER_ASKS)
		pthread_cond_wait(&callers_told, &callers_lock);
	pthread_mutex_unlock(&callers_lock);
}

static void *caller_main(void *arg)
{
	const struct dcm_gc_ipc refused = { .kind = DCM_GC_IPC_REFUSED };
	struct hostd_caller *c = arg;
	bool spoken = !c->unwanted && caller_speaks(c);
	int sock;

	if (spoken && !*c->why)
		caller_state(c, CALLER_ASKS);
	if (c->g)
		gc_run(c->g);
	else if (spoken)
		dcm_gc_ipc(c->sock, &refused, c->why, strlen(c->why));
	pthread_mutex_lock(&callers_lock);
	sock = c->sock;
	c->sock = -1;
	pthread_mutex_unlock(&callers_lock);
	close(sock);
	caller_state(c, CALLER_OVER);
	return NULL;
}

/* ---- the main thread ---- */

/* End a file's connection; @f->gc is %NULL when it has ended. */
void hostd_gc_stop(struct hostd_file *f)
{
	struct hostd_gc *g = f->gc;

	if (!g)
		return;
	__atomic_store_n(&g->ending, true, __ATOMIC_RELAXED);
	pthread_mutex_lock(&callers_lock);
	if (g->caller->sock >= 0)
		shutdown(g->caller->sock, SHUT_RDWR);
	pthread_mutex_unlock(&callers_lock);
	/* it may be dropping descriptors, which takes long */
	pthread_kill(g->caller->thread, SIGALRM);
}

static struct hostd_file *file_of(const struct hostd *h,
				  const struct dcm_gc_ipc_file *which)
{
	struct hostd_file *f;

	for (f = h->files; f; f = f->next)
		if (f->dev == which->dev && f->ino == which->ino)
			return f;
	return NULL;
}

/* A process that knows @proof has @f open for writing: it is locked there. */
static bool proven(const struct hostd_file *f, u64 proof)
{
	struct flock l = { .l_type = F_RDLCK,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)proof,
			   .l_len = 1 };

	return !fcntl(f->fd, F_OFD_GETLK, &l) && l.l_type == F_WRLCK &&
	       l.l_start == (off_t)proof && l.l_len == 1;
}

static struct hostd_gc *gc_new(struct hostd_file *f, struct hostd_caller *c)
{
	struct dcm_gc_backend home = {
		.ops = &home_ops,
		.client = f->client,
		.donors = f->nr_donors,
		.bytes = f->info.pages * 4096,
		.extent = f->info.extent_pages * 4096,
	};
	struct timeval send = { .tv_sec = SEND_S }, none = { 0 };
	struct hostd_gc *g = calloc(1, sizeof(*g));

	snprintf(c->why, sizeof(c->why), "no memory");
	home.priv = g;
	if (g)
		g->gc = dcm_gc_host_new(&home, &host_ops, g, c->why,
					sizeof(c->why));
	if (!g || !g->gc) {
		free(g);
		return NULL;
	}
	g->f = f;
	g->caller = c;
	g->sock = c->sock;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->answered, NULL);
	setsockopt(c->sock, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send));
	setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	return g;
}

/* Decide whether a connection becomes a file's. */
static void caller_judge(struct hostd *h, struct hostd_caller *c)
{
	struct hostd_file *f = file_of(h, &c->file);
	const char *why = NULL;

	if (!f || !proven(f, c->proof))
		why = "dcm-hostd does not serve that file, or it is not open to read and write";
	else if (f->gc)
		why = "there is a virtio-gc device on that file already";
	else if (__atomic_load_n(&f->over, __ATOMIC_ACQUIRE))
		why = "that file is gone";
	else
		f->gc = c->g = gc_new(f, c);
	h->nr_callers -= !!c->g;
	if (why)
		snprintf(c->why, sizeof(c->why), "%s", why);
	if (!c->g)
		dcm_log(DCM_LOG_DEBUG, "garbage collection refused: %s",
			c->why);
	c->state = CALLER_TOLD;
}

static void caller_free(struct hostd_caller *c)
{
	pthread_join(c->thread, NULL);
	if (c->g) {
		c->g->f->gc = NULL;
		pthread_mutex_destroy(&c->g->lock);
		pthread_cond_destroy(&c->g->answered);
		free(c->g);
	}
	free(c);
}

/* It is to end, but is still busy: perhaps it drops descriptors. */
static bool caller_late(const struct hostd_caller *c, u64 now)
{
	if (c->g)
		return __atomic_load_n(&c->g->ending, __ATOMIC_RELAXED);
	return now - c->since_ns > LATE_NS;
}

/** hostd_gc_waits() - must hostd_gc_heard() be called even without events? */
bool hostd_gc_waits(const struct hostd *h)
{
	const struct hostd_caller *c;

	for (c = h->callers; c; c = c->next)
		if (!c->g || caller_late(c, 0))
			return true;
	return false;
}

/* Answer the connections that ask; free those that are over. */
void hostd_gc_reap(struct hostd *h)
{
	struct hostd_caller **p = &h->callers, *c, *over = NULL;
	u64 now = hostd_now_ns();

	pthread_mutex_lock(&callers_lock);
	while ((c = *p)) {
		if (c->state == CALLER_ASKS)
			caller_judge(h, c);
		if (c->state == CALLER_OVER) {
			*p = c->next;
			c->next = over;
			over = c;
			continue;
		}
		if (caller_late(c, now))
			pthread_kill(c->thread, SIGALRM);
		p = &c->next;
	}
	pthread_cond_broadcast(&callers_told);
	pthread_mutex_unlock(&callers_lock);
	while (over) {
		c = over;
		over = c->next;
		h->nr_callers -= !c->g;
		caller_free(c);
	}
}

/* Connections of user @uid that are no file's. */
static u32 callers_count(const struct hostd *h, uid_t uid)
{
	const struct hostd_caller *c;
	u32 n = 0;

	for (c = h->callers; c; c = c->next)
		n += !c->g && c->uid == uid && !c->unwanted;
	return n;
}

static void caller_new(struct hostd *h, int sock)
{
	struct hostd_caller *c = calloc(1, sizeof(*c));
	struct timeval limit = { .tv_sec = HELLO_S };
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(who);
	pthread_attr_t attr;
	int err = ENOMEM;

	if (c) {
		getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len);
		setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit,
			   sizeof(limit));
		setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit,
			   sizeof(limit));
		*c = (struct hostd_caller){
			.sock = sock,
			.ended = h->ended,
			.uid = who.uid,
			.since_ns = hostd_now_ns(),
			.unwanted = callers_count(h, who.uid) >= UID_MAX,
		};
		if (c->unwanted &&
		    dcm_log_allow(&h->crowded, c->since_ns / 1000000, 60000))
			dcm_log(DCM_LOG_WARNING,
				"user %u connects to the socket for virtio-gc devices more than %u times at once; hung up",
				(unsigned int)who.uid, UID_MAX);
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, STACK_BYTES);
		err = pthread_create(&c->thread, &attr, caller_main, c);
		pthread_attr_destroy(&attr);
	}
	if (err) {
		/* not closed: that could take long, and block this thread */
		dcm_log(DCM_LOG_ERR,
			"no thread for a virtio-gc device (%s): its connection stays open, unheard",
			strerror(err));
		free(c);
		return;
	}
	pthread_setname_np(c->thread, "dcm-gc");
	c->next = h->callers;
	h->callers = c;
	h->nr_callers++;
}

/* Fill in the descriptors to poll for; returns their number. */
u32 hostd_gc_poll(const struct hostd *h, struct pollfd *p)
{
	if (h->gc < 0)
		return 0;
	*p = (struct pollfd){ .fd = h->nr_callers < HOSTD_CALLERS_MAX ? h->gc :
									-1,
			      .events = POLLIN };
	return 1;
}

/* Handle what poll() has returned for them. */
void hostd_gc_heard(struct hostd *h, const struct pollfd *p, u32 n)
{
	int sock;

	hostd_gc_reap(h);
	if (!n || !p->revents)
		return;
	sock = accept4(h->gc, NULL, NULL, SOCK_CLOEXEC);
	if (sock >= 0)
		caller_new(h, sock);
}

/* The socket is for root and GROUP; without that group, for root alone. */
static void group_set(const char *path)
{
	const struct group *g = getgrnam(GROUP);

	if (g && !chown(path, (uid_t)-1, g->gr_gid) && !chmod(path, 0660))
		return;
	dcm_log(DCM_LOG_WARNING,
		"%s: only root's virtio-gc devices can connect: group " GROUP
		": %s",
		path, g ? strerror(errno) : "there is none");
}

/** hostd_gc_start() - listen for devices that can write to a file */
void hostd_gc_start(struct hostd *h, const char *path)
{
	const int no = 0;

	h->gc = hostd_listen(path, SOCK_SEQPACKET, 0600, HOSTD_CALLERS_MAX);
	if (h->gc < 0) {
		dcm_log(DCM_LOG_WARNING,
			"%s: %s: no virtio-gc device can be on a file", path,
			strerror(errno));
		return;
	}
	/* newer kernels can forbid passing descriptors */
	setsockopt(h->gc, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
	group_set(path);
}

/* Take no more connections, and end the others, in 5 s at most. */
void hostd_gc_end(struct hostd *h, const char *path)
{
	u64 until = hostd_now_ns() + LATE_NS;
	struct hostd_caller *c;

	hostd_unlisten(&h->gc, path);
	do {
		hostd_gc_reap(h);
		pthread_mutex_lock(&callers_lock);
		for (c = h->callers; c; c = c->next) {
			if (c->g)
				__atomic_store_n(&c->g->ending, true,
						 __ATOMIC_RELAXED);
			if (c->sock >= 0)
				shutdown(c->sock, SHUT_RDWR);
			pthread_kill(c->thread, SIGALRM);
		}
		pthread_mutex_unlock(&callers_lock);
		if (h->callers)
			usleep(10000);
	} while (h->callers && hostd_now_ns() < until);
}
