// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc.c - connections of virtio-gc devices that are on files of the kernel pager
 *
 * A virtio-gc device (in QEMU, or libvgc in a runtime) connects to a socket and
 * proves that it may write to the file with its window (gc/ipc.h). Then the
 * file is its window, and window.c serves it.
 *
 *	connected -> HELLO -> PROVE -> PROVED -> judged -> serves a file -> over, reaped
 *	     '--------- not in 2 s, or refused -----------------------------^
 *
 * No device may hold up the main thread, which resumes donors' sessions and
 * restarts the daemon. Descriptors that a device passes with its messages are
 * never taken: the kernel closes them, in the thread that reads the message or closes
 * the socket, and closing the last reference may take long (a TCP socket that
 * lingers; NFS). So each connection has a thread from accept() to close(): it
 * reads, sends and closes. The main thread only checks the lock that the device
 * has set, and accepts or refuses. A thread that takes long to end is interrupted by
 * signals, again and again.
 *
 * A file has one such connection at a time. A runtime that connects again just
 * after it closed the former connection waits until that one is over, for
 * LEAVING_NS at most. The number of connections without a file is bounded:
 * HOSTD_CALLERS_MAX in all, UID_MAX of one user, so that others get in. Any more are
 * disconnected.
 *
 * Locking: the main thread's. @callers_lock guards what a connection's thread
 * and the main thread exchange.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../gc/ipc.h"
#include "window.h"

#define HELLO_S 2
#define LATE_NS (5000ull * 1000 * 1000)
#define LEAVING_NS \
	(4000ull * 1000 * 1000) /* a device waits 5 s for an answer */
#define UID_MAX 8u /* of HOSTD_CALLERS_MAX, for each user */
#define STACK_BYTES (256u << 10)
#define GROUP "kvm"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/**
 * enum caller_state - the state of a connection
 * @CALLER_PROVING: it names its file and proves that it may write to it; the thread's
 *	turn
 * @CALLER_ASKING: may it serve the file? The main thread's turn
 * @CALLER_JUDGED: it serves the file, or @why is set; the thread's turn
 * @CALLER_OVER: the thread ends; the main thread's turn
 */
enum caller_state {
	CALLER_PROVING,
	CALLER_ASKING,
	CALLER_JUDGED,
	CALLER_OVER,
};

/**
 * struct hostd_caller - a connection
 * @sock: -1 once the thread closes it
 * @ended: the main thread's eventfd, which the thread writes to
 * @unwanted: its user has too many connections: it is disconnected
 * @knows: DCM_GC_IPC_KNOWS_* of the device
 * @proof: offset in the file that the device must lock
 * @why: why it is refused
 * @owner: the file that it serves; set together with the file's @window
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
	u32 knows;
	u64 proof;
	char why[256];
	struct hostd_file *owner;
	struct hostd_window *window;
};

static pthread_mutex_t callers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callers_judged = PTHREAD_COND_INITIALIZER;

/* ---- a connection's thread ---- */

/* Read one message of @bytes; descriptors passed with it are dropped. */
static bool caller_recv(const struct hostd_caller *c, void *buf, size_t bytes)
{
	/* after EINTR the time is up: do not retry */
	return recv(c->sock, buf, bytes, MSG_TRUNC) == (ssize_t)bytes;
}

/* Receive the file's id, then the news that @proof is locked. False: disconnect. */
static bool caller_prove(struct hostd_caller *c)
{
	struct {
		struct dcm_gc_ipc s;
		struct dcm_gc_ipc_file file;
	} hello;
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_PROVE };

	if (!caller_recv(c, &hello, sizeof(hello)) ||
	    hello.s.kind != DCM_GC_IPC_HELLO)
		return false;
	if (hello.s.value != DCM_GC_IPC_VERSION) {
		snprintf(c->why, sizeof(c->why),
			 "dcm-hostd is of another version than libdcm");
		return true;
	}
	c->file = hello.file;
	c->knows = hello.s.room;
	if (getrandom(&c->proof, sizeof(c->proof), 0) != sizeof(c->proof))
		return false;
	/* at or above 2^62: behind the end of any file */
	c->proof = c->proof >> 2 | 1ull << 62;
	s.value = c->proof;
	return !dcm_gc_ipc_send(c->sock, &s, NULL, 0) &&
	       caller_recv(c, &s, sizeof(s)) && s.kind == DCM_GC_IPC_PROVED;
}

static void caller_state(struct hostd_caller *c, enum caller_state state)
{
	pthread_mutex_lock(&callers_lock);
	c->state = state;
	eventfd_write(c->ended, 1);
	while (state == CALLER_ASKING && c->state == CALLER_ASKING)
		pthread_cond_wait(&callers_judged, &callers_lock);
	pthread_mutex_unlock(&callers_lock);
}

static void *caller_main(void *arg)
{
	const struct dcm_gc_ipc refused = { .kind = DCM_GC_IPC_REFUSED };
	struct hostd_caller *c = arg;
	bool asks = !c->unwanted && caller_prove(c);
	int sock;

	if (asks && !*c->why)
		caller_state(c, CALLER_ASKING);
	if (c->window)
		hostd_window_run(c->window);
	else if (asks)
		dcm_gc_ipc_send(c->sock, &refused, c->why, strlen(c->why));
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
	struct hostd_caller *c = f->gc;

	if (!c)
		return;
	hostd_window_end(c->window);
	pthread_mutex_lock(&callers_lock);
	if (c->sock >= 0)
		shutdown(c->sock, SHUT_RDWR);
	pthread_mutex_unlock(&callers_lock);
	/* it may be closing descriptors, which takes long: interrupt it */
	pthread_kill(c->thread, SIGALRM);
}

static struct hostd_file *file_find(const struct hostd *h,
				    const struct dcm_gc_ipc_file *which)
{
	struct hostd_file *f;

	for (f = h->files; f; f = f->next)
		if (f->dev == which->dev && f->ino == which->ino)
			return f;
	return NULL;
}

/* Is @f locked at @proof? Then a process that knows @proof has it open for writing. */
static bool file_locked(const struct hostd_file *f, u64 proof)
{
	struct flock l = { .l_type = F_RDLCK,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)proof,
			   .l_len = 1 };

	return !fcntl(f->fd, F_OFD_GETLK, &l) && l.l_type == F_WRLCK &&
	       l.l_start == (off_t)proof && l.l_len == 1;
}

/* Has the device closed the connection? The thread may not have noticed yet. */
static bool caller_left(const struct hostd_caller *c)
{
	struct pollfd p = { .fd = c->sock, .events = POLLRDHUP };

	return c->sock < 0 || poll(&p, 1, 0) > 0;
}

/* Decide whether a connection may serve its file, or leave that for later. */
static void caller_judge(struct hostd *h, struct hostd_caller *c, u64 now)
{
	struct hostd_file *f = file_find(h, &c->file);
	const char *why = NULL;

	if (!f || !file_locked(f, c->proof))
		why = "dcm-hostd does not serve that file, or it is not open to read and write";
	else if (f->gc && caller_left(f->gc) && now - c->since_ns < LEAVING_NS)
		return;
	else if (f->gc)
		why = "there is a virtio-gc device on that file already";
	else if (smp_load_acquire(&f->over))
		why = "that file is gone";
	else if (f->sealed)
		why = "donors collect no garbage of a VM whose pages are sealed: set seal = no";
	else
		c->window = hostd_window_new(f, c->sock, c->knows, c->why,
					 sizeof(c->why));
	if (c->window) {
		f->gc = c;
		c->owner = f;
		h->nr_callers--;
	}
	if (why)
		snprintf(c->why, sizeof(c->why), "%s", why);
	if (!c->window)
		dcm_log(DCM_LOG_DEBUG, "garbage collection refused: %s",
			c->why);
	c->state = CALLER_JUDGED;
}

static void caller_free(struct hostd_caller *c)
{
	pthread_join(c->thread, NULL);
	if (c->window) {
		c->owner->gc = NULL;
		hostd_window_free(c->window);
	}
	free(c);
}

/* Should the thread have ended by now? Perhaps it is closing descriptors. */
static bool caller_late(const struct hostd_caller *c, u64 now)
{
	if (c->window)
		return hostd_window_ending(c->window);
	return now - c->since_ns > LATE_NS;
}

/** hostd_gc_waits() - must hostd_gc_handle() be called even without events? */
bool hostd_gc_waits(const struct hostd *h)
{
	const struct hostd_caller *c;

	for (c = h->callers; c; c = c->next)
		if (!c->window || caller_late(c, 0))
			return true;
	return false;
}

/* Free the connections that are over, then judge those that ask. */
void hostd_gc_reap(struct hostd *h)
{
	struct hostd_caller **p = &h->callers, *c, *over = NULL;
	u64 now = hostd_now_ns();

	pthread_mutex_lock(&callers_lock);
	while ((c = *p)) {
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
	pthread_mutex_unlock(&callers_lock);
	while (over) {
		c = over;
		over = c->next;
		h->nr_callers -= !c->window;
		caller_free(c);
	}
	/* after the loop above: files whose connections are over can have others */
	pthread_mutex_lock(&callers_lock);
	for (c = h->callers; c; c = c->next)
		if (c->state == CALLER_ASKING)
			caller_judge(h, c, now);
	pthread_cond_broadcast(&callers_judged);
	pthread_mutex_unlock(&callers_lock);
}

/* How many connections of user @uid have no file. */
static u32 callers_count(const struct hostd *h, uid_t uid)
{
	const struct hostd_caller *c;
	u32 n = 0;

	for (c = h->callers; c; c = c->next)
		n += !c->window && c->uid == uid && !c->unwanted;
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
				"user %u connects to the socket for virtio-gc devices more than %u times at once: this connection was closed",
				(unsigned int)who.uid, UID_MAX);
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, STACK_BYTES);
		err = pthread_create(&c->thread, &attr, caller_main, c);
		pthread_attr_destroy(&attr);
	}
	if (err) {
		/* don't close it: that could take long, and block the main thread */
		dcm_log(DCM_LOG_ERR,
			"no thread for a virtio-gc device (%s): its connection stays open, unserved",
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

/* Handle the events that poll() has returned for hostd_gc_poll()'s descriptors. */
void hostd_gc_handle(struct hostd *h, const struct pollfd *p, u32 n)
{
	int sock;

	hostd_gc_reap(h);
	if (!n || !p->revents)
		return;
	sock = accept4(h->gc, NULL, NULL, SOCK_CLOEXEC);
	if (sock >= 0)
		caller_new(h, sock);
}

/* Let GROUP use the socket, beside root; if there is no such group, only root can. */
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
			"%s: %s: virtio-gc devices can't connect; mend that and restart dcm-hostd",
			path, strerror(-h->gc));
		return;
	}
	/* newer kernels can forbid passing descriptors */
	setsockopt(h->gc, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
	group_set(path);
}

/* Stop listening, and end all connections; takes 5 s at most. */
void hostd_gc_end(struct hostd *h, const char *path)
{
	u64 until = hostd_now_ns() + LATE_NS;
	struct hostd_caller *c;

	hostd_unlisten(&h->gc, path);
	do {
		hostd_gc_reap(h);
		pthread_mutex_lock(&callers_lock);
		for (c = h->callers; c; c = c->next) {
			if (c->window)
				hostd_window_end(c->window);
			if (c->sock >= 0)
				shutdown(c->sock, SHUT_RDWR);
			pthread_kill(c->thread, SIGALRM);
		}
		pthread_mutex_unlock(&callers_lock);
		if (h->callers)
			usleep(10000);
	} while (h->callers && hostd_now_ns() < until);
}
