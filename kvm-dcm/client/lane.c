// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lane.c - a lane's I/O: its endpoints and counters
 *
 * The lane's side of data.c. Everything here belongs to one lane: its slot at
 * each donor, its counters at each slab, its masks of donors with operations in
 * flight. Counters are plain stores that other threads read; lanes share
 * nothing, nothing is locked, and no system call is made but the transport's.
 *
 * Order matters: a completion is added to its slab's counters before the slab's
 * in-flight count goes down, because at zero a released slab is freed. A write
 * increments the write count before its first byte can be in the slab, and again
 * when it has ended: dcm_client_write_count().
 */
#include <time.h>

#include "client_int.h"

static inline struct dcm_client_slab *slab_of(const struct dcm_io *io)
{
	return container_of(io->slab, struct dcm_client_slab, ref);
}

static inline void count_add(u64 *p, u64 n)
{
	WRITE_ONCE(*p, *p + n);
}

/* Count a write that begins or ends; @by -1: take it back, it could not be posted. */
static void write_counts_add(struct dcm_client_slab *slab,
			     const struct dcm_io *io, u32 by)
{
	u64 i = io->offset / DCM_CLIENT_COUNTED_BYTES;

	if (io->op != DCM_IO_WRITE || !slab->write_counts ||
	    io->offset > slab->ref.bytes ||
	    io->bytes > slab->ref.bytes - io->offset)
		return;
	for (; i * DCM_CLIENT_COUNTED_BYTES < io->offset + io->bytes; i++)
		__atomic_fetch_add(&slab->write_counts[i], by,
				   __ATOMIC_SEQ_CST);
}

/* The slot's live endpoint; a dead one goes back once nothing is in flight. */
static struct dcm_endpoint *slot_endpoint(struct dcm_client *client, u32 lane,
					  struct client_lane_slot *s)
{
	u64 *broken = &client->lane[lane].broken, bit = 1ull << s->donor->idx;
	struct dcm_endpoint *ep = s->cur;

	if (likely(ep && !ep->ops->dead(ep)))
		return ep;
	if (ep) {
		if (ep->ops->in_flight(ep))
			return NULL; /* its completions must be polled first */
		s->cur = NULL;
		*broken |= bit;
		smp_store_release(&s->spent, ep);
		client_kick(client);
	}
	if (!READ_ONCE(s->next))
		return NULL;
	ep = __atomic_exchange_n(&s->next, NULL, __ATOMIC_ACQUIRE);
	s->cur = ep;
	if (ep) {
		*broken &= ~bit;
		if (client->cb->fenced)
			client->cb->fenced(client->arg, lane, s->donor->idx);
	}
	return ep;
}

struct dcm_endpoint *dcm_client_endpoint(struct dcm_client *client,
					 struct dcm_client_slab *slab, u32 lane)
{
	struct client_lane_slot *s = &client->donor[slab->donor].slot[lane];

	return slab->transport == DCM_WT_SHM ? s->shm :
					       slot_endpoint(client, lane, s);
}

int dcm_client_io_post(struct dcm_client *client, u32 lane, struct dcm_io *io)
{
	struct dcm_client_slab *slab = slab_of(io);
	struct dcm_client_count *c = &slab->lane[lane];
	struct client_lane *l = &client->lane[lane];
	struct dcm_endpoint *ep;
	int ret;

	if (unlikely(smp_load_acquire(&slab->dead)))
		return -ESTALE;
	ep = dcm_client_endpoint(client, slab, lane);
	if (unlikely(!ep))
		return -ENOTCONN;
	count_add(&c->in_flight, 1);
	write_counts_add(slab, io, 1);
	ret = ep->ops->post(ep, io);
	if (unlikely(ret)) {
		write_counts_add(slab, io, (u32)-1);
		smp_store_release(&c->in_flight, c->in_flight - 1);
		return ret;
	}
	if (slab->transport == DCM_WT_SHM)
		l->busy_shm |= 1ull << slab->donor;
	else
		l->busy_tcp |= 1ull << slab->donor;
	return 0;
}

void dcm_client_io_flush(struct dcm_client *client, u32 lane)
{
	u64 busy;

	for (busy = client->lane[lane].busy_tcp; busy; busy &= busy - 1) {
		struct dcm_endpoint *ep =
			client->donor[__builtin_ctzll(busy)].slot[lane].cur;

		ep->ops->flush(ep);
	}
}

static void io_account(struct dcm_client *client, u32 lane,
		       struct client_lane_slot *s, struct dcm_io *io)
{
	struct dcm_client_slab *slab = slab_of(io);
	struct dcm_client_count *c = &slab->lane[lane];

	write_counts_add(slab, io, 1);
	/* an shm slab can still be read when its donor is gone */
	if (unlikely(smp_load_acquire(&slab->dead)) && !io->status)
		io->status = -ESTALE;
	if (likely(!io->status)) {
		if (io->op == DCM_IO_READ) {
			count_add(&c->reads, 1);
			count_add(&s->reads, 1);
		} else {
			count_add(&c->writes, 1);
			count_add(&s->writes, 1);
		}
		count_add(io->kind == DCM_IO_MOVE ? &c->moved : &c->pages,
			  io->bytes / 4096);
	} else if (io->status == -ESTALE) {
		dcm_client_stale(client, slab);
	}
	smp_store_release(&c->in_flight, c->in_flight - 1);
}

static int poll_endpoint(struct dcm_client *client, u32 lane, u32 donor,
			 struct dcm_endpoint *ep, struct dcm_io ***tail,
			 int max)
{
	struct client_lane_slot *s = &client->donor[donor].slot[lane];
	struct dcm_io *io;
	u64 rtt;
	int n;

	n = ep->ops->poll(ep, *tail, max);
	if (!n)
		return 0;
	for (io = **tail; io; io = io->next) {
		io_account(client, lane, s, io);
		if (!io->next && ep == s->cur && !io->status) {
			/* one clock reading for the batch, for its newest operation */
			rtt = client_now_ns() - io->posted_ns;
			WRITE_ONCE(s->rtt_ns,
				   s->rtt_ns ?
					   s->rtt_ns - s->rtt_ns / 8 + rtt / 8 :
					   rtt);
		}
		*tail = &io->next;
	}
	return n;
}

int dcm_client_io_poll(struct dcm_client *client, u32 lane,
		       struct dcm_io **done, int max)
{
	struct client_lane *l = &client->lane[lane];
	struct dcm_io **tail = done;
	u64 busy;
	int n = 0;

	*done = NULL;
	for (busy = l->busy_shm; busy && n < max; busy &= busy - 1) {
		u32 donor = (u32)__builtin_ctzll(busy);
		struct dcm_endpoint *ep = client->donor[donor].slot[lane].shm;

		n += poll_endpoint(client, lane, donor, ep, &tail, max - n);
		if (!ep->ops->in_flight(ep))
			l->busy_shm &= ~(1ull << donor);
	}
	for (busy = l->busy_tcp; busy && n < max; busy &= busy - 1) {
		u32 donor = (u32)__builtin_ctzll(busy);
		struct dcm_endpoint *ep = client->donor[donor].slot[lane].cur;

		n += poll_endpoint(client, lane, donor, ep, &tail, max - n);
		if (!ep->ops->in_flight(ep)) {
			l->busy_tcp &= ~(1ull << donor);
			/* if it is dead, give it back now, not at the next post */
			slot_endpoint(client, lane,
				      &client->donor[donor].slot[lane]);
		}
	}
	/* take over new connections even if nothing is in flight */
	for (busy = l->broken; unlikely(busy); busy &= busy - 1)
		slot_endpoint(client, lane,
			      &client->donor[__builtin_ctzll(busy)].slot[lane]);
	return n;
}

int dcm_client_io_fds(struct dcm_client *client, u32 lane, struct pollfd *fds,
		      int max)
{
	struct client_lane *l = &client->lane[lane];
	u64 busy;
	int n = 0;

	for (busy = l->busy_shm; busy && n < max; busy &= busy - 1) {
		struct dcm_endpoint *ep =
			client->donor[__builtin_ctzll(busy)].slot[lane].shm;
		short events;
		int fd = ep->ops->wait_fd(ep, &events);

		if (fd < 0)
			return 0;
		fds[n++] = (struct pollfd){ .fd = fd, .events = events };
	}
	for (busy = l->busy_tcp; busy && n < max; busy &= busy - 1) {
		struct dcm_endpoint *ep =
			client->donor[__builtin_ctzll(busy)].slot[lane].cur;
		short events;

		if (ep->ops->dead(ep))
			return 0;
		fds[n].fd = ep->ops->wait_fd(ep, &events);
		if (fds[n].fd < 0)
			return 0;
		fds[n].events = events;
		fds[n++].revents = 0;
	}
	return n;
}

u32 dcm_client_io_in_flight(struct dcm_client *client, u32 lane)
{
	struct client_lane *l = &client->lane[lane];
	u32 sum = 0;
	u64 busy;

	for (busy = l->busy_shm; busy; busy &= busy - 1) {
		struct dcm_endpoint *ep =
			client->donor[__builtin_ctzll(busy)].slot[lane].shm;

		sum += ep->ops->in_flight(ep);
	}
	for (busy = l->busy_tcp; busy; busy &= busy - 1) {
		struct dcm_endpoint *ep =
			client->donor[__builtin_ctzll(busy)].slot[lane].cur;

		sum += ep->ops->in_flight(ep);
	}
	return sum;
}

void dcm_client_lane_look(struct dcm_client *client, u32 lane)
{
	u32 i, nr = dcm_client_donors(client);

	for (i = 0; i < nr; i++) {
		struct client_lane_slot *s = &client->donor[i].slot[lane];

		/* The new one may be dead already. */
		slot_endpoint(client, lane, s);
		slot_endpoint(client, lane, s);
	}
}

void dcm_client_count(struct dcm_client_slab *slab, u64 pages)
{
	WRITE_ONCE(slab->lane[0].pages, pages);
}
