// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * orphan.c - slabs of shm that outlive their donor
 *
 * An shm slab is memory of this host: its memfd is open and mapped here. When the
 * donor's process dies nobody truncates it, so its bytes stay, and reads and
 * writes of it go on. Such a slab is an *orphan*. It is moved to other donors as
 * if it were asked back, a few at a time; while no other donor has room it stays
 * in use. So the death of a donor on this host loses nothing.
 *
 *	lent -- donor gone --> orphan -- session resumed --> lent
 *	  |                      |
 *	  '-- session over --> orphan, disowned -- moved --> freed
 *	          '-- cut --> lost
 *
 * A donor that systemd starts again may have kept its sessions, so the session
 * is kept here until the donor says that it is over. Then the slab is *disowned*: no
 * donor counts it, and its id may be another slab's.
 *
 * A slab whose memfd was truncated (cut) is lost, not an orphan: its donor took it by
 * force. A slab that was adopted has no descriptor here (dcm_client_adopt_slab()): the
 * pager, which can reach it, calls dcm_client_stale() when it finds it cut.
 *
 * Locking: none, only the client thread uses it. @orphan and @disowned are read
 * by other threads.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "client_int.h"

/* Are all bytes of a slab in memory of this host? */
static bool slab_whole(const struct dcm_client_slab *s)
{
	struct stat st;

	if (s->transport != DCM_WT_SHM)
		return false;
	return s->ref.fd < 0 ||
	       (!fstat(s->ref.fd, &st) && (u64)st.st_size >= s->ref.bytes);
}

static void orphan_set(struct dcm_client_slab *s, bool orphan)
{
	struct client_donor *d = &s->client->donor[s->donor];

	if (s->orphan == orphan)
		return;
	WRITE_ONCE(s->orphan, orphan);
	d->orphans = orphan ? d->orphans + 1 : d->orphans - 1;
}

/* Count a slab as an orphan no more: it is lost, or its record is about to be freed. */
void client_orphan_end(struct dcm_client_slab *s)
{
	orphan_set(s, false);
}

/* The donor has ended: make its slab an orphan. False: its bytes are not here. */
static bool orphan_make(struct dcm_client_slab *s)
{
	if (!slab_whole(s))
		return false;
	orphan_set(s, true);
	return true;
}

/* The session in which an orphan was lent is over: disown the orphan. */
static void orphan_disown(struct dcm_client_slab *s)
{
	struct client_donor *d = &s->client->donor[s->donor];

	if (s->disowned)
		return;
	d->load.mine--;
	/* before the donor's next session, in which a slab may have the same id */
	smp_store_release(&s->disowned, true);
}

/* The donor has come back and resumed the session: its orphans are lent again. */
void client_orphans_resumed(struct client_donor *d)
{
	struct dcm_client_slab *s;

	for (s = d->client->slabs; s; s = s->next)
		if (s->donor == d->idx && !s->disowned)
			orphan_set(s, false);
}

static u64 room_beside(const struct client_donor *d, bool orphans, u64 now)
{
	const struct dcm_client *client = d->client;
	u64 room = 0;
	u32 i;

	for (i = 0; i < client->nr_donors; i++) {
		const struct client_donor *o = &client->donor[i];

		/* beside orphans, a new donor at @d's address counts like any other */
		if ((o != d || orphans) && client_donor_usable(o, now))
			room += o->load.slabs_free;
	}
	return room;
}

/*
 * Move slabs off a donor that can't be asked but whose memory can be used
 * (dcm-tc18, 3.5): only its orphans if @orphans, else all slabs, as its control
 * connection is silent. Moves a few at a time, so that little was moved in vain if
 * the donor answers after all, and only as many as other donors have room for.
 */
void client_donor_relieve(struct client_donor *d, bool orphans, u64 now)
{
	u64 most = min((u64)CLIENT_LEAVE_MAX, room_beside(d, orphans, now));
	struct dcm_client_slab *s;
	u64 leaving = 0;

	if (!most)
		return;
	for (s = d->client->slabs; s; s = s->next)
		leaving += s->donor == d->idx && !s->dead && s->leaving &&
			   s->state == SLAB_ATTACHED;
	for (s = d->client->slabs; s && leaving < most; s = s->next) {
		if (s->donor != d->idx || s->dead || s->leaving ||
		    s->evicting || s->state != SLAB_ATTACHED ||
		    (orphans && !s->orphan))
			continue;
		client_member_slab_leave(s);
		leaving++;
	}
}

/* List the extents that lose a donor's slab, in order. Returns their number. */
static u64 lost_list(struct client_donor *d, char *text, size_t room)
{
	struct dcm_client *client = d->client;
	struct dcm_client_slab *s;
	size_t len = 0;
	u64 n = 0;
	u32 e;

	for (s = client->slabs; s; s = s->next)
		if (s->donor == d->idx && !s->dead && !s->orphan &&
		    client_slab_held(s))
			bit_set(client->scratch, s->extent);
	text[0] = 0;
	for (e = 0; e < client->nr_extents; e++) {
		if (!bit_test(client->scratch, e))
			continue;
		bit_clear(client->scratch, e);
		if (len + 16 < room)
			len += (size_t)snprintf(text + len, room - len, "%s%u",
						n ? ", " : "", e);
		n++;
	}
	if (len + 16 >= room)
		snprintf(text + len, room - len, ", ...");
	return n;
}

/* Declare a donor's slabs lost, except those whose bytes are here. */
static void slabs_cut(struct client_donor *d)
{
	struct dcm_client_slab *s, *next;

	/* callbacks don't free slabs: client_slabs_step() does */
	for (s = d->client->slabs; s; s = next) {
		next = s->next;
		if (s->donor == d->idx && !s->dead && !s->orphan)
			client_slab_lost(d->client, s);
	}
}

/* The session with @d is over: lose its slabs, and disown its orphans. */
void client_slabs_lost(struct client_donor *d, const char *why)
{
	struct dcm_client_slab *s;
	u64 n, orphans = 0;
	char list[700];

	for (s = d->client->slabs; s; s = s->next) {
		if (s->donor != d->idx || s->dead || s->disowned ||
		    !orphan_make(s))
			continue;
		orphans += client_slab_held(s);
		orphan_disown(s);
	}
	n = lost_list(d, list, sizeof(list));
	if (orphans)
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s) is lost: %s; %llu slabs of it are mapped here, and nothing of them is lost: they are moved to other donors, and stay in use until one has room",
			d->name, d->address, why, (unsigned long long)orphans);
	if (n)
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s) is lost: %s; with it %llu slab%s: extent%s %s",
			d->name, d->address, why, (unsigned long long)n,
			n > 1 ? "s" : "", n > 1 ? "s" : "", list);
	else if (d->load.draining)
		dcm_log(DCM_LOG_NOTICE, "donor %s (%s) is gone, drained",
			d->name, d->address);
	else if (!orphans)
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s) is lost: %s; it held nothing of ours",
			d->name, d->address, why);
	slabs_cut(d);
}

/* Nothing listens at the donor's address: lose its slabs, but keep orphans' session. */
void client_donor_gone(struct client_donor *d, const char *why)
{
	struct dcm_client_slab *s;
	u64 n = 0;

	if (d->gone)
		return;
	for (s = d->client->slabs; s; s = s->next)
		if (s->donor == d->idx && !s->dead && orphan_make(s))
			n += client_slab_held(s);
	if (!n) {
		client_donor_lost(d, why);
		return;
	}
	d->gone = true;
	slabs_cut(d);
	dcm_log(DCM_LOG_WARNING,
		"donor %s (%s): %s; %llu slabs of it are mapped here, and nothing is lost: they are moved to other donors, and stay in use until one has room",
		d->name, d->address, why, (unsigned long long)n);
}
