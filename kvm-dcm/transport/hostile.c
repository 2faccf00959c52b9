// SPDX-License-Identifier: GPL-2.0-only
/*
 * hostile.c - a transport that misbehaves as much as it may, for tests
 *
 * When an operation is posted it gets a place in a table, and its fate is chosen:
 * refused, done in two pieces, done but reported as failed, delayed, overtaken,
 * swallowed. An operation that is carried out goes to the inner endpoint as a
 * struct dcm_io of the table, so the poster's is never used twice. This does everything
 * that transport.h allows, and nothing else: operations are only reordered as any
 * unordered transport may. Wrong bytes come only from the one donor that lies (FLIP,
 * SWAP, OLD), and the core has to notice them.
 *
 * States of a place: FREE, TODO (a piece waits for room in the inner queue),
 * INNER (a piece is in flight there), HELD (has its result, waits for its
 * time), SILENT, LATE (its bytes are kept). The endpoint dies for good like any
 * other, also when the inner one dies. After a LATE WRITE it takes no more operations,
 * and dies when nothing else is in flight. close() then leaves the inner endpoint to
 * a thread, which does the LATE WRITEs some time later, as a slow network might; unless
 * the donor has ended the connection by then, as it does before it accepts the lane
 * again.
 *
 * Deterministic given the seed and the inner endpoint's order, apart from
 * delays, which are in real time. Locking: none, one lane uses an endpoint; the
 * dials are read and counted atomically.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../lib/clock.h"
#include "hostile.h"

#define PLACES 256u
#define POLL_NS 100000u

enum place_state {
	PLACE_FREE,
	PLACE_TODO,
	PLACE_INNER,
	PLACE_HELD,
	PLACE_SILENT,
	PLACE_LATE,
};

/*
 * A WRITE to be done late, with a copy of its bytes: the poster's may be gone by then.
 */
struct late_write {
	struct dcm_io io;
	struct dcm_slab_ref slab;
	struct late_write *next;
	char data[DCM_IO_BYTES_MAX];
};

/* A thread's job: the inner endpoint, and the late WRITEs to do there. */
struct late_job {
	struct dcm_endpoint *inner;
	struct dcm_hostile *dials;
	struct late_write *list;
	u64 wait_ns;
};

struct place {
	struct dcm_io io;	/* the piece given to the inner endpoint */
	struct dcm_io *orig;
	void *data;		/* of the first piece, on completion */
	u64 due_ns;
	u64 seq;
	u64 at;			/* offset in the slab */
	u32 done;		/* bytes */
	enum place_state state;
	bool reorder;
	bool flip;
	int late;		/* status to report instead of success */
};

struct hostile_endpoint {
	struct dcm_endpoint ep;
	struct dcm_transport_ops ops;
	struct dcm_endpoint *inner;
	struct dcm_hostile *dials;
	u64 rng;
	u64 seq;
	u32 nr;
	struct late_write *late;
	bool dead;
	int timer;
	struct place place[PLACES];
};

static inline struct hostile_endpoint *to_hostile(struct dcm_endpoint *ep)
{
	return container_of(ep, struct hostile_endpoint, ep);
}

static u64 rng_draw(struct hostile_endpoint *h)
{
	h->rng ^= h->rng << 13;
	h->rng ^= h->rng >> 7;
	h->rng ^= h->rng << 17;
	return h->rng;
}

/* Draw whether @kind happens to an operation. @fits: it can happen to this one. */
static bool dial_strikes_if(struct hostile_endpoint *h,
			    enum dcm_hostile_kind kind, bool fits)
{
	u32 ppm = READ_ONCE(h->dials->ppm[kind]);

	/* always draw: one dial must not change the others' random numbers */
	if ((rng_draw(h) >> 11) % 1000000u >= ppm || !fits)
		return false;
	__atomic_fetch_add(&h->dials->count[kind], 1, __ATOMIC_RELAXED);
	return true;
}

static bool dial_strikes(struct hostile_endpoint *h, enum dcm_hostile_kind kind)
{
	return dial_strikes_if(h, kind, true);
}

static void place_hold(struct place *p, int status)
{
	p->orig->status = status;
	p->state = PLACE_HELD;
}

/* Give the next piece to the inner endpoint. */
static void place_feed(struct hostile_endpoint *h, struct place *p)
{
	int ret = h->inner->ops->post(h->inner, &p->io);

	if (!ret)
		p->state = PLACE_INNER;
	else if (ret == -EAGAIN)
		p->state = PLACE_TODO;
	else
		place_hold(p, ret);
}

static void endpoint_fail(struct hostile_endpoint *h)
{
	unsigned int i;

	h->dead = true;
	/* wait until the inner endpoint is done: it uses the poster's memory */
	while (h->inner->ops->in_flight(h->inner)) {
		struct dcm_io *list;

		if (!h->inner->ops->poll(h->inner, &list, PLACES))
			break;
	}
	for (i = 0; i < PLACES; i++) {
		struct place *p = &h->place[i];

		if (p->state == PLACE_FREE)
			continue;
		if (p->state != PLACE_HELD)
			place_hold(p, -ENOTCONN);
		p->due_ns = 0;
		p->reorder = false;
	}
}

/* Keep a WRITE's bytes. It may be done after the endpoint is closed. */
static void place_keep(struct hostile_endpoint *h, struct place *p)
{
	struct late_write *w = malloc(sizeof(*w));

	if (!w)
		abort();
	w->io = *p->orig; /* all of it, not a piece */
	w->slab = *w->io.slab;
	memcpy(w->data, w->io.data, w->io.bytes);
	w->io.slab = &w->slab;
	w->io.data = w->data;
	w->next = h->late;
	h->late = w;
	p->state = PLACE_LATE;
}

/* Choose an offset in the slab where @io->bytes of other pages are. */
static u64 other_offset(struct hostile_endpoint *h, const struct dcm_io *io)
{
	u64 places = (io->slab->bytes - io->bytes) / 4096 + 1;
	u64 at = rng_draw(h) % places * 4096;

	return at != io->offset ? at : at ? at - 4096 : (places > 1) * 4096;
}

/* Change an operation as a lying donor would. */
static void place_lie(struct hostile_endpoint *h, struct place *p)
{
	bool lies = p->io.slab->peer == READ_ONCE(h->dials->liar);
	bool copied = lies && !(h->inner->ops->caps & DCM_TR_DIRECT);
	bool reads = p->io.op == DCM_IO_READ;

	p->flip = dial_strikes_if(h, DCM_HOSTILE_FLIP, copied && reads);
	if (dial_strikes_if(h, DCM_HOSTILE_SWAP, copied && reads))
		p->at = p->io.offset = other_offset(h, &p->io);
	if (dial_strikes_if(h, DCM_HOSTILE_OLD, lies && !reads))
		place_hold(p, 0);
}

static int hostile_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct hostile_endpoint *h = to_hostile(ep);
	struct place *p = NULL;
	unsigned int i;
	u64 delay;

	if (h->dead)
		return -ENOTCONN;
	if (io->bytes > io->slab->bytes ||
	    io->offset > io->slab->bytes - io->bytes || !io->bytes)
		return -ERANGE;
	if (h->nr == PLACES || h->late || dial_strikes(h, DCM_HOSTILE_AGAIN))
		return -EAGAIN;
	for (i = 0; i < PLACES && !p; i++)
		if (h->place[i].state == PLACE_FREE)
			p = &h->place[i];
	*p = (struct place){
		.io = *io, .orig = io, .seq = h->seq++, .at = io->offset
	};
	io->posted_ns = dcm_clock_ns();
	h->nr++;
	__atomic_fetch_add(&h->dials->ops, 1, __ATOMIC_RELAXED);
	p->reorder = dial_strikes(h, DCM_HOSTILE_REORDER);
	if (dial_strikes(h, DCM_HOSTILE_DELAY)) {
		delay = READ_ONCE(h->dials->delay_ns);
		if (delay)
			p->due_ns = io->posted_ns + rng_draw(h) % delay;
	}
	if (dial_strikes(h, DCM_HOSTILE_EIO_LATE))
		p->late = -EIO;
	if (dial_strikes(h, DCM_HOSTILE_SPLIT) && io->bytes >= 2 * 4096)
		p->io.bytes =
			(u32)(rng_draw(h) % (io->bytes / 4096 - 1) + 1) * 4096;
	place_lie(h, p);
	if (p->state == PLACE_HELD)
		; /* answered */
	else if (dial_strikes_if(h, DCM_HOSTILE_LATE,
				 io->op == DCM_IO_WRITE && h->inner->ops->kill))
		place_keep(h, p);
	else if (dial_strikes(h, DCM_HOSTILE_SILENCE))
		p->state = PLACE_SILENT;
	else if (dial_strikes(h, DCM_HOSTILE_EIO))
		place_hold(p, -EIO);
	else if (dial_strikes(h, DCM_HOSTILE_ESTALE))
		place_hold(p, -ESTALE);
	else
		place_feed(h, p);
	if (dial_strikes(h, DCM_HOSTILE_DIE))
		endpoint_fail(h);
	return 0;
}

static void hostile_flush(struct dcm_endpoint *ep)
{
	struct hostile_endpoint *h = to_hostile(ep);

	if (!h->dead)
		h->inner->ops->flush(h->inner);
}

/* The inner endpoint has completed a piece. */
static void piece_done(struct hostile_endpoint *h, struct place *p)
{
	struct dcm_io *orig = p->orig;

	if (p->io.status) {
		place_hold(p, p->io.status);
		return;
	}
	if (!p->done)
		p->data = p->io.data;
	p->done += p->io.bytes;
	if (p->done < orig->bytes) {
		p->io.offset = p->at + p->done;
		p->io.bytes = orig->bytes - p->done;
		p->io.data = (char *)orig->data + p->done;
		place_feed(h, p);
		return;
	}
	/*
	 * the first piece's address is the operation's, even if data stays in the slab
	 */
	if (orig->op == DCM_IO_READ)
		orig->data = p->data;
	if (p->flip)
		((u8 *)p->data)[rng_draw(h) % orig->bytes] ^=
			(u8)(1u << rng_draw(h) % 8);
	place_hold(p, p->late);
}

/* Are only LATE WRITEs left, so that the endpoint can die now? */
static bool only_late(const struct hostile_endpoint *h)
{
	unsigned int i;

	for (i = 0; i < PLACES; i++)
		if (h->place[i].state == PLACE_TODO ||
		    h->place[i].state == PLACE_INNER)
			return false;
	return h->late;
}

static void endpoint_pump(struct hostile_endpoint *h)
{
	struct dcm_io *list, *io;
	unsigned int i;

	do {
		for (i = 0; i < PLACES; i++)
			if (h->place[i].state == PLACE_TODO)
				place_feed(h, &h->place[i]);
		h->inner->ops->flush(h->inner);
		i = 0;
		if (h->inner->ops->poll(h->inner, &list, PLACES))
			for (; list; list = io, i++) {
				io = list->next;
				piece_done(h, container_of(list, struct place,
							   io));
			}
	} while (i);
	if (h->inner->ops->dead(h->inner) || only_late(h))
		endpoint_fail(h);
}

/* Is there a later operation that could overtake this one? */
static bool has_follower(struct hostile_endpoint *h, const struct place *p,
			 u64 now)
{
	unsigned int i;

	for (i = 0; i < PLACES; i++)
		if (h->place[i].state == PLACE_HELD && &h->place[i] != p &&
		    h->place[i].seq > p->seq && h->place[i].due_ns <= now)
			return true;
	return false;
}

static int hostile_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct hostile_endpoint *h = to_hostile(ep);
	struct dcm_io **tail = done;
	u64 now;
	int n;

	*done = NULL;
	if (!h->dead)
		endpoint_pump(h);
	now = dcm_clock_ns();
	for (n = 0; n < max; n++) {
		struct place *best = NULL;
		unsigned int i;

		for (i = 0; i < PLACES; i++) {
			struct place *p = &h->place[i];

			if (p->state != PLACE_HELD || p->due_ns > now)
				continue;
			if (p->reorder && has_follower(h, p, now))
				continue;
			if (!best || p->seq < best->seq)
				best = p;
		}
		if (!best)
			break;
		best->orig->next = NULL;
		*tail = best->orig;
		tail = &best->orig->next;
		best->state = PLACE_FREE;
		h->nr--;
	}
	return n;
}

static int hostile_wait_fd(struct dcm_endpoint *ep, short *events)
{
	struct hostile_endpoint *h = to_hostile(ep);
	struct itimerspec it = { 0 };
	u64 now = dcm_clock_ns(), due = now + POLL_NS;
	unsigned int i;

	for (i = 0; i < PLACES; i++)
		if (h->place[i].state == PLACE_HELD)
			due = min(due, max(h->place[i].due_ns, now + 1));
	it.it_value.tv_sec = (time_t)(due / 1000000000u);
	it.it_value.tv_nsec = (long)(due % 1000000000u);
	timerfd_settime(h->timer, TFD_TIMER_ABSTIME, &it, NULL);
	*events = POLLIN;
	return h->timer;
}

static u32 hostile_in_flight(struct dcm_endpoint *ep)
{
	return to_hostile(ep)->nr;
}

static bool hostile_dead(struct dcm_endpoint *ep)
{
	return to_hostile(ep)->dead;
}

static struct dcm_endpoint *hostile_open(const void *arg, int *err)
{
	const struct dcm_hostile_args *a = arg;
	struct hostile_endpoint *h;

	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (h == MAP_FAILED) {
		*err = -ENOMEM;
		return NULL;
	}
	h->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (h->timer < 0) {
		*err = -errno;
		munmap(h, sizeof(*h));
		return NULL;
	}
	h->ops = dcm_transport_hostile;
	h->ops.caps = a->inner->ops->caps & ~(DCM_TR_ORDERED | DCM_TR_INLINE);
	h->ep.ops = &h->ops;
	h->inner = a->inner;
	h->dials = a->dials;
	h->rng = a->seed ? a->seed : 1;
	*err = 0;
	return &h->ep;
}

static void late_free(struct late_write *w)
{
	struct late_write *next;

	for (; w; w = next) {
		next = w->next;
		free(w);
	}
}

/* Do one late WRITE, until it or the connection has ended. */
static void late_do(struct late_job *job, struct late_write *w)
{
	struct dcm_endpoint *inner = job->inner;
	struct pollfd p = { 0 };
	struct dcm_io *done = NULL;

	if (inner->ops->post(inner, &w->io))
		return;
	inner->ops->flush(inner);
	while (!inner->ops->poll(inner, &done, 1)) {
		p.fd = inner->ops->wait_fd(inner, &p.events);
		poll(&p, 1, 10);
	}
	if (!done->status)
		__atomic_fetch_add(&job->dials->late_done, 1, __ATOMIC_RELAXED);
}

static void *late_main(void *arg)
{
	struct late_job *job = arg;
	struct timespec ts = { .tv_sec = (time_t)(job->wait_ns / 1000000000u),
			       .tv_nsec = (long)(job->wait_ns % 1000000000u) };

	nanosleep(&ts, NULL);
	for (struct late_write *w = job->list; w; w = w->next)
		late_do(job, w);
	job->inner->ops->close(job->inner);
	late_free(job->list);
	free(job);
	return NULL;
}

/* Leave the inner endpoint to a thread. False: there are no late WRITEs to do. */
static bool late_begin(struct hostile_endpoint *h)
{
	u64 most = READ_ONCE(h->dials->late_ns);
	struct late_job *job;
	pthread_t thread;

	/* not if operations in flight there still use their posters' memory */
	if (!h->late || h->inner->ops->dead(h->inner) ||
	    h->inner->ops->in_flight(h->inner))
		return false;
	job = malloc(sizeof(*job));
	if (!job)
		abort();
	*job = (struct late_job){ .inner = h->inner,
				  .dials = h->dials,
				  .list = h->late,
				  .wait_ns = most ? rng_draw(h) % most : 0 };
	if (pthread_create(&thread, NULL, late_main, job))
		abort();
	pthread_detach(thread);
	return true;
}

static void hostile_close(struct dcm_endpoint *ep)
{
	struct hostile_endpoint *h = to_hostile(ep);

	if (!late_begin(h)) {
		h->inner->ops->close(h->inner);
		late_free(h->late);
	}
	close(h->timer);
	munmap(h, sizeof(*h));
}

const char *dcm_hostile_kind_name(enum dcm_hostile_kind kind)
{
	static const char *const names[] = {
#define X(id, text) [DCM_HOSTILE_##id] = #id,
		DCM_HOSTILE_KINDS(X)
#undef X
	};

	return (unsigned int)kind < ARRAY_SIZE(names) ? names[kind] : "?";
}

const struct dcm_transport_ops dcm_transport_hostile = {
	.name = "hostile",
	.caps = 0,
	.open = hostile_open,
	.close = hostile_close,
	.post = hostile_post,
	.flush = hostile_flush,
	.poll = hostile_poll,
	.wait_fd = hostile_wait_fd,
	.in_flight = hostile_in_flight,
	.dead = hostile_dead,
};
