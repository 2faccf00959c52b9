// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab.c - slabs lent to this VM, from MR_INFO to the last byte given back
 *
 * States: ATTACHED (the pager has it) -> RELEASED (the pager does not have it; it waits
 * for the last operation or the donor) -> UNMAPPING (UNMAP sent, sent again after a
 * resume) -> freed. A slab that the donor asked back by EVICT is given back by DONE
 * instead of UNMAP. A slab that is lost is marked @dead; it is freed without a message
 * to the donor.
 *
 * Any thread may release a slab, call it stale or want another: it sets a note
 * and, the first time, pushes the slab on a stack that the client thread
 * empties. Each lane counts its own operations in flight; after the release no
 * lane starts one, so a sum of zero is final. (infiniswap waits for its
 * dispatch queue by polling every 10 us; here there is no hurry.)
 *
 * Locking: the client thread owns the list and changes it under the lock, as
 * other threads read write counts; notes and counts are atomic.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client_int.h"

u64 client_slab_pages(const struct dcm_client_slab *s)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < s->client->nr_lanes; i++)
		sum += READ_ONCE(s->lane[i].pages);
	return sum;
}

static bool slab_in_flight(const struct dcm_client_slab *s)
{
	u32 i;

	for (i = 0; i < s->client->nr_lanes; i++)
		if (smp_load_acquire(&s->lane[i].in_flight))
			return true;
	return false;
}

/* Does the pager have the slab? After a release there are no more callbacks. */
bool client_slab_held(const struct dcm_client_slab *s)
{
	return s->state == SLAB_ATTACHED &&
	       !(smp_load_acquire(&s->notes) & NOTE_RELEASE);
}

/* How many members an extent has: slabs that are neither lost nor being replaced. */
u32 client_slab_members(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u32 n = 0;

	for (; s; s = s->next_of_extent)
		n += s->member;
	return n;
}

static struct dcm_client_slab *slab_find(struct client_donor *d, u64 id)
{
	struct dcm_client_slab *s;

	for (s = d->client->slabs; s; s = s->next)
		if (s->ref.id == id && s->donor == d->idx &&
		    !smp_load_acquire(&s->dead) &&
		    !smp_load_acquire(&s->disowned))
			return s;
	return NULL;
}

/* Is the donor's slab in use, or waiting to be given back? */
bool client_slab_known(struct client_donor *d, u64 id)
{
	return slab_find(d, id);
}

static void slab_give(struct client_donor *d, u16 type, u64 id, u64 tag,
		      u64 now)
{
	struct dcm_wire_msg msg = {
		.type = type,
		.tag = tag,
		.slab.slab = id,
	};

	client_donor_send(d, &msg, now);
}

/* Give back a slab that came too late or can't be used. */
void client_slab_refuse(struct client_donor *d, u64 id, u64 now)
{
	slab_give(d, DCM_MSG_UNMAP, id, ++d->tag, now);
}

/* Make a slab's record and list it; its extent does not name it yet. */
static struct dcm_client_slab *slab_new(struct client_donor *d, u32 extent,
					const struct dcm_slab_ref *ref,
					u32 transport)
{
	struct dcm_client *client = d->client;
	size_t len = sizeof(struct dcm_client_slab) +
		     client->nr_lanes * sizeof(struct dcm_client_count);
	struct dcm_client_slab *s = aligned_alloc(64, (len + 63) & ~(size_t)63);
	u64 nr_counts = ref->bytes / DCM_CLIENT_COUNTED_BYTES + 1;

	if (!s)
		return NULL;
	memset(s, 0, len);
	/* if lanes do their I/O elsewhere, writes are not seen here */
	s->write_counts = client->links ?
				  NULL :
				  calloc(nr_counts, sizeof(*s->write_counts));
	if (!s->write_counts && !client->links) {
		free(s);
		return NULL;
	}
	s->ref = *ref;
	s->ref.peer = d->idx;
	s->ref.fd = -1;
	s->ref.rank = transport == DCM_WT_SHM ? DCM_RANK_HOST :
		      d->load.file	      ? DCM_RANK_FILE :
						DCM_RANK_MEMORY;
	s->client = client;
	s->donor = d->idx;
	s->extent = extent;
	s->transport = transport;
	s->caps = transport == DCM_WT_SHM   ? dcm_transport_shm.caps :
		  transport == DCM_WT_VERBS ? dcm_transport_verbs.caps :
					      dcm_transport_tcp.caps;
	dcm_activity_init(&s->activity, 0, client_now_ns());
	pthread_mutex_lock(&client->lock);
	s->next = client->slabs;
	client->slabs = s;
	pthread_mutex_unlock(&client->lock);
	s->next_of_extent = client->of_extent[extent];
	client->of_extent[extent] = s;
	d->load.mine++;
	return s;
}

struct dcm_client_slab *dcm_client_adopt_slab(struct dcm_client *client,
					      u32 donor, u32 extent,
					      const struct dcm_slab_ref *ref,
					      bool current)
{
	struct client_donor *d = &client->donor[donor];
	u32 transport = d->local	       ? DCM_WT_SHM :
			ref->rkey || ref->base ? DCM_WT_VERBS :
						 DCM_WT_TCP;
	struct dcm_client_slab *s;

	if (extent >= client->nr_extents)
		return NULL;
	s = slab_new(d, extent, ref, transport);
	if (!s)
		return NULL;
	s->populated = s->ref.bytes;
	/* the donor may not have said yet that it lends files; @ref says so */
	if (ref->rank == DCM_RANK_FILE)
		s->ref.rank = DCM_RANK_FILE;
	if (transport == DCM_WT_VERBS)
		d->verbs = VERBS_ON;
	s->member = current;
	return s;
}

static void slab_free(struct dcm_client *client, struct dcm_client_slab *s)
{
	struct dcm_client_slab **p;

	pthread_mutex_lock(&client->lock);
	for (p = &client->slabs; *p != s; p = &(*p)->next)
		;
	*p = s->next;
	if (client->counted_slab == s)
		client->counted_slab = NULL;
	pthread_mutex_unlock(&client->lock);
	for (p = &client->of_extent[s->extent]; *p != s;
	     p = &(*p)->next_of_extent)
		;
	*p = s->next_of_extent;
	if (!s->dead && !s->disowned)
		client->donor[s->donor].load.mine--;
	client_orphan_end(s);
	client_slab_unmap(s);
	free(s->write_counts);
	free(s);
}

/* Find a slab whose write count was asked for. Under the lock. */
static struct dcm_client_slab *slab_counted(struct dcm_client *client,
					    u32 donor, u64 id)
{
	struct dcm_client_slab *s = client->counted_slab;

	if (!s || s->donor != donor || s->ref.id != id ||
	    smp_load_acquire(&s->dead) || smp_load_acquire(&s->disowned))
		s = slab_find(&client->donor[donor], id);
	client->counted_slab = s;
	return s && s->write_counts ? s : NULL;
}

u32 dcm_client_write_count(struct dcm_client *client, u32 donor, u64 slab,
			   u64 offset, u64 bytes)
{
	struct dcm_client_slab *s;
	u32 sum = U32_MAX;

	pthread_mutex_lock(&client->lock);
	s = slab_counted(client, donor, slab);
	if (s && offset <= s->ref.bytes && bytes <= s->ref.bytes - offset) {
		u64 i = offset / DCM_CLIENT_COUNTED_BYTES;

		for (sum = 0; i * DCM_CLIENT_COUNTED_BYTES < offset + bytes;
		     i++)
			sum += smp_load_acquire(&s->write_counts[i]);
	}
	pthread_mutex_unlock(&client->lock);
	return sum;
}

void client_slab_attach(struct client_donor *d, u32 extent,
			const struct dcm_wire_msg *m, int fd, u64 now)
{
	struct dcm_client *client = d->client;
	const struct dcm_slab_ref ref = {
		.id = m->mr_info.slab,
		.bytes = m->mr_info.bytes,
		.base = m->mr_info.addr,
		.rkey = m->mr_info.rkey,
	};
	struct dcm_client_slab *s;

	if (d->member != MEMBER_IN) {
		/* the slab was asked for before the donor began to drain */
		client_slab_refuse(d, m->mr_info.slab, now);
		goto refused;
	}
	if (m->mr_info.bytes != client->extent_bytes ||
	    (m->mr_info.transport == DCM_WT_SHM && !d->local) ||
	    (m->mr_info.transport == DCM_WT_VERBS) != (d->verbs == VERBS_ON) ||
	    m->mr_info.addr > U64_MAX - m->mr_info.bytes ||
	    slab_find(d, m->mr_info.slab)) {
		dcm_conn_fail(&d->conn, "lends a slab that we did not ask for");
		goto refused;
	}
	s = slab_new(d, extent, &ref, m->mr_info.transport);
	if (!s) {
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s): no memory to record a slab of extent %u: the slab is given back",
			d->name, d->address, extent);
		client_slab_refuse(d, m->mr_info.slab, now);
		goto refused;
	}
	if (s->transport == DCM_WT_SHM) {
		if (!client_slab_map(d, s, fd)) {
			slab_free(client, s);
			client_slab_refuse(d, m->mr_info.slab, now);
			goto refused;
		}
	} else {
		d->want_data = true;
	}
	s->member = true;
	client_place_done(client, extent);
	client->cb->attached(client->arg, extent, s);
	return;
refused:
	d->full_until_ms = now + CLIENT_BACKOFF_MAX_MS;
	if (fd >= 0)
		close(fd);
	client_place_want_again(client, extent);
}

/* A slab is lost, and its content with it. */
void client_slab_lost(struct dcm_client *client, struct dcm_client_slab *s)
{
	struct client_donor *d = &client->donor[s->donor];
	struct dcm_host_donor donor;

	/* before the callback: all later operations fail */
	__atomic_store_n(&s->dead, true, __ATOMIC_SEQ_CST);
	if (!s->disowned)
		d->load.mine--;
	client_orphan_end(s);
	client->nr_lost++;
	s->member = false;
	/* its extent may have too few slabs now: look at once */
	client->exposed_ms = 0;
	if (!client_slab_held(s))
		return;
	memcpy(donor.name, d->name, sizeof(donor.name));
	memcpy(donor.address, d->address, sizeof(donor.address));
	client->cb->lost(client->arg, s, &donor);
}

/* The donor took a slab back by force: it said so, or an operation failed. */
static void slab_taken(struct client_donor *d, struct dcm_client_slab *s)
{
	if (s->dead)
		return;
	if (client_slab_held(s))
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s) has taken a slab back: extent %u is lost",
			d->name, d->address, s->extent);
	client_slab_lost(d->client, s);
}

void client_slab_taken(struct client_donor *d, u64 id)
{
	struct dcm_client_slab *s = slab_find(d, id);

	if (s)
		slab_taken(d, s);
}

void client_slab_evict(struct client_donor *d, u64 id, u64 tag, u64 now)
{
	struct dcm_client_slab *s = slab_find(d, id);

	if (!s) {
		/* the slab was already released and given back */
		slab_give(d, DCM_MSG_DONE, id, tag, now);
		return;
	}
	if (s->state == SLAB_UNMAPPING)
		return;
	s->tag = tag;
	/* the donor repeats EVICT after a resume: DONE will answer the new one */
	if (s->evicting)
		return;
	s->evicting = true;
	/* ask whether the donor drains or wants only this slab */
	client_donor_query(d, now);
	if (!client_slab_held(s) || s->leaving)
		return;
	dcm_log(DCM_LOG_INFO, "donor %s (%s) wants extent %u back", d->name,
		d->address, s->extent);
	d->client->cb->evict(d->client->arg, s);
}

void client_slab_activity(struct client_donor *d, u64 id, u64 tag, u64 now)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_ACTIVITY,
		.tag = tag,
		.activity.slab = id,
	};
	struct dcm_client_slab *s = slab_find(d, id);

	/* a slab that is not in use has no activity */
	if (s && s->activity.ewma_milli != U64_MAX)
		msg.activity.ewma_milli = s->activity.ewma_milli;
	else if (s)
		msg.activity.ewma_milli = client_slab_pages(s) * 1000;
	client_donor_send(d, &msg, now);
}

/* UNMAP was answered: the donor has the slab back, or does not know it. */
void client_slab_unmapped(struct dcm_client_slab *s)
{
	slab_free(s->client, s);
}

void client_slabs_resumed(struct client_donor *d)
{
	struct dcm_client_slab *s;

	for (s = d->client->slabs; s; s = s->next)
		if (s->donor == d->idx && s->state == SLAB_UNMAPPING)
			s->state = SLAB_RELEASED;
}

static void slab_note(struct dcm_client *client, struct dcm_client_slab *s,
		      int what)
{
	struct dcm_client_slab *head;

	if (__atomic_fetch_or(&s->notes, what | NOTE_QUEUED, __ATOMIC_SEQ_CST) &
	    NOTE_QUEUED)
		return;
	head = READ_ONCE(client->notes);
	do {
		s->next_note = head;
	} while (!__atomic_compare_exchange_n(&client->notes, &head, s, true,
					      __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	client_kick(client);
}

void dcm_client_release(struct dcm_client *client, struct dcm_client_slab *slab)
{
	slab_note(client, slab, NOTE_RELEASE);
}

void dcm_client_want_other(struct dcm_client *client,
			   struct dcm_client_slab *slab)
{
	slab_note(client, slab, NOTE_OTHER);
}

void dcm_client_stale(struct dcm_client *client, struct dcm_client_slab *slab)
{
	slab_note(client, slab, NOTE_STALE);
}

/* Take the slabs with notes, oldest first. */
static struct dcm_client_slab *notes_take(struct dcm_client *client)
{
	struct dcm_client_slab *s, *next, *first = NULL;

	s = __atomic_exchange_n(&client->notes, NULL, __ATOMIC_ACQUIRE);
	for (; s; s = next) {
		next = s->next_note;
		s->next_note = first;
		first = s;
	}
	return first;
}

void client_slabs_notes(struct dcm_client *client, u64 now)
{
	struct dcm_client_slab *s, *next;

	for (s = notes_take(client); s; s = next) {
		int what;

		next = s->next_note;
		/* from here on other threads may push the slab again */
		what = __atomic_fetch_and(&s->notes,
					  ~(NOTE_QUEUED | NOTE_OTHER),
					  __ATOMIC_SEQ_CST);
		if (what & NOTE_STALE && !s->dead) {
			struct client_donor *d = &client->donor[s->donor];

			/* give it back in case the donor still counts it as lent */
			if (d->st == SESSION_UP && !s->disowned)
				client_slab_refuse(d, s->ref.id, now);
			slab_taken(d, s);
		}
		if (what & (NOTE_OTHER | NOTE_RELEASE))
			s->member = false;
		/* only if the extent lacks a slab without this one */
		if (what & NOTE_OTHER &&
		    client_slab_members(client, s->extent) < client->copies)
			client_place_want(client, s->extent);
		if (what & NOTE_RELEASE && s->state == SLAB_ATTACHED)
			s->state = SLAB_RELEASED;
	}
}

/* Continue giving slabs back. True: call again soon. */
bool client_slabs_step(struct dcm_client *client, u64 now)
{
	struct dcm_client_slab *s, *next;
	bool again = false;

	for (s = client->slabs; s; s = next) {
		struct client_donor *d = &client->donor[s->donor];
		u64 tag;

		next = s->next;
		if ((s->dead || s->orphan) && s->state == SLAB_UNMAPPING) {
			client_request_drop(d, s->tag);
			s->state = SLAB_RELEASED;
		}
		if (s->state != SLAB_RELEASED)
			continue;
		if (slab_in_flight(s) ||
		    smp_load_acquire(&s->notes) & NOTE_QUEUED) {
			again = true;
			continue;
		}
		/* if a donor still counts the orphan, LIST finds it (list.c) */
		if (s->dead || s->orphan) {
			slab_free(client, s);
			continue;
		}
		if (d->st != SESSION_UP)
			continue;
		if (s->evicting) {
			slab_give(d, DCM_MSG_DONE, s->ref.id, s->tag, now);
			slab_free(client, s);
			continue;
		}
		tag = client_request_add(d, REQUEST_UNMAP, s);
		if (!tag)
			continue; /* the next answer makes room */
		s->tag = tag;
		slab_give(d, DCM_MSG_UNMAP, s->ref.id, s->tag, now);
		s->state = SLAB_UNMAPPING;
		client_slab_unmap(s);
	}
	return again;
}

void client_slabs_period(struct dcm_client *client, u64 now_ns)
{
	struct dcm_client_slab *s;

	for (s = client->slabs; s; s = s->next) {
		u64 pages = client_slab_pages(s);

		if (s->dead)
			continue;
		/*
		 * A donor that serves its memory is alive, even if its
		 * control connection is silent. With @links @pages counts the
		 * extent's operations: during a move, or with copies, another
		 * donor may have served them.
		 */
		if (pages != s->pages_seen && s->transport != DCM_WT_SHM &&
		    !(client->links &&
		      (client->copies > 1 || s->leaving || s->evicting)))
			client->donor[s->donor].data_ms = now_ns / 1000000u;
		s->pages_seen = pages;
		if (dcm_activity_update(&s->activity, pages, now_ns))
			WRITE_ONCE(s->activity_milli, s->activity.ewma_milli);
	}
}

void client_slabs_free(struct dcm_client *client)
{
	while (client->slabs)
		slab_free(client, client->slabs);
}
