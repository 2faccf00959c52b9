// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tier.c - choose the extents that are on files in place of memory
 *
 * If no donor of memory has room, a slab is taken on files. When such an extent is
 * busy it gets a slab in memory; infiniswap-nsdi17, 4.1, has the same rule for slabs
 * used more than 20 times a second (HotSlab). If memory has no room then, the extent
 * changes places with the one that has been cold longest, at least for @cold_s:
 *
 *	cold extent                     busy extent
 *	memory                          file
 *	memory, file: it is filled      file            one slab more than @copies
 *	file: memory is given back      file            now memory has room for one
 *	file                            memory, file    its new slab is filled
 *	file                            memory
 *
 * No page is on fewer donors meanwhile. No extent goes to files and back, or to memory
 * and back, in less than @cold_s: one that comes to memory starts as not cold, and one
 * that went to files comes back only if it is busy. An extent that is neither cold nor
 * busy stays where it is. Moving an extent does not count as its use. If the busy
 * extent does not get the slab that the cold one gave back (another VM was faster, or
 * its donor is short), no exchange begins for a minute.
 *
 * With redundancy disk and replica:2+disk no extents change places: files have a copy
 * of each page already, and a cold extent must not have both its copies on files. Nor
 * with replica:3, as an extent has no room for one more slab.
 *
 * Locking: none, only the client thread uses it.
 */
#include "tier.h"

#define HOT_MILLI 20000u /* page operations in 1000 s */
#define PART_MS 10000u /* for one slab of an exchange to be found */
#define PAUSE_MS 60000u /* no exchange begins for so long after a failed one */

static void list_add(struct tier_list *l, u32 extent, u64 weight)
{
	u32 i = min(l->nr, TIER_MAX - 1);

	if (l->nr == TIER_MAX && weight <= l->weight[i])
		return;
	for (; i && l->weight[i - 1] < weight; i--) {
		l->weight[i] = l->weight[i - 1];
		l->extent[i] = l->extent[i - 1];
	}
	l->weight[i] = weight;
	l->extent[i] = extent;
	l->nr = min(l->nr + 1, TIER_MAX);
}

/* How busy an extent is, in page operations in 1000 s. */
static u64 extent_activity(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 most = 0;

	for (; s; s = s->next_of_extent)
		most = max(most, s->activity_milli);
	return most;
}

/* For how many seconds all slabs of an extent have been cold. */
static u64 extent_cold_s(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 least = U64_MAX;

	for (; s; s = s->next_of_extent)
		least = min(least, s->activity.cold_s);
	return least;
}

/**
 * client_tier_full() - a look found an extent that lacks a slab in memory but has as
 *	many slabs as it may: give a file back, if memory has room
 */
void client_tier_full(struct dcm_client *client, struct client_tier *t,
		      u32 extent)
{
	if (t->left == TIER_MAX ||
	    !(t->memory & ~client_extent_donors(client, extent)))
		return;
	t->left++;
	client_surplus_leave(client, extent, true);
}

/* A look found an extent that is on files in place of memory. */
void client_tier_lacks(const struct dcm_client *client, struct client_tier *t,
		       u32 extent)
{
	u64 activity = extent_activity(client, extent);

	if (activity >= HOT_MILLI)
		list_add(&t->busy, extent, activity);
}

/* May extents change places? */
static bool exchange_possible(const struct dcm_client *client)
{
	return !client->files && client->copies < DCM_CLIENT_COPIES_MAX;
}

/* A look found an extent that has its slabs in memory, and is not being moved. */
void client_tier_has(const struct dcm_client *client, struct client_tier *t,
		     u32 extent)
{
	u64 cold_s;

	if (!t->files || !exchange_possible(client))
		return;
	cold_s = extent_cold_s(client, extent);
	if (cold_s >= client->cold_s)
		list_add(&t->cold, extent, cold_s);
}

/* ---- exchanges ---- */

static const struct client_exchange *
exchange_of(const struct dcm_client *client, u32 extent)
{
	u32 i;

	for (i = 0; i < client->nr_exchanges; i++)
		if (client->exchange[i].cold == extent ||
		    client->exchange[i].busy == extent)
			return &client->exchange[i];
	return NULL;
}

/* Is an extent part of an exchange now? */
bool client_tier_exchanges(const struct dcm_client *client, u32 extent)
{
	return exchange_of(client, extent);
}

/* The extent's slab on that donor. */
static struct dcm_client_slab *extent_slab(const struct dcm_client *client,
					   u32 extent, u32 donor)
{
	struct dcm_client_slab *s = client->of_extent[extent];

	while (s && (s->donor != donor || s->dead))
		s = s->next_of_extent;
	return s;
}

/*
 * Is a donor far from @others, so that an extent may have a slab there? If the extent
 * has members on near donors already, it gets no worse.
 */
static bool donor_apart(const struct dcm_client *client, u32 extent, u32 donor,
			u64 others)
{
	return client_extent_near(client, extent) ||
	       !client_donor_near_any(client, donor, others);
}

/* Of the donors of files with room (@files), those that may take a member's place. */
static u64 member_files(const struct dcm_client *client,
			const struct dcm_client_slab *s, u64 files)
{
	u64 others = client_members_donors(client, s->extent, s), to = 0;
	u64 m = files & ~client_extent_donors(client, s->extent);

	for (; m; m &= m - 1)
		if (donor_apart(client, s->extent, (u32)__builtin_ctzll(m),
				others))
			to |= m & -m;
	return to;
}

/**
 * client_tier_moves() - should a cold extent get a slab on files now, for an exchange?
 * @roomy: donors with room, a bit each
 * @to: out: donors of files that may lend it, a bit each
 *
 * Return: false: no.
 */
bool client_tier_moves(const struct dcm_client *client, u32 extent, u64 roomy,
		       u64 *to)
{
	const struct client_exchange *x = exchange_of(client, extent);
	const struct dcm_client_slab *s;

	if (!x || x->left || x->cold != extent)
		return false;
	s = extent_slab(client, extent, x->from);
	if (!s || !s->member ||
	    client_slab_members(client, extent) != client->copies)
		return false;
	*to = member_files(client, s, roomy & client_donors_file(client));
	return *to;
}

/* Could the busy extent use the slab that the cold extent would give back there? */
static bool donor_suits(const struct dcm_client *client, u32 donor, u32 busy,
			u64 now)
{
	const struct client_donor *d = &client->donor[donor];
	u64 files = client_donors_file(client);
	u64 have = client_extent_donors(client, busy);

	return !(files >> donor & 1) && !(have >> donor & 1) &&
	       client_donor_usable(d, now) && !d->load.draining &&
	       donor_apart(client, busy, donor, have & ~files);
}

static bool exchange_with(struct dcm_client *client,
			  const struct client_tier *t, u32 cold, u32 busy,
			  u64 now)
{
	const struct dcm_client_slab *s = client->of_extent[cold];

	for (; s; s = s->next_of_extent) {
		if (!s->member || s->dead ||
		    !donor_suits(client, s->donor, busy, now) ||
		    !member_files(client, s, t->files))
			continue;
		client->exchange[client->nr_exchanges++] =
			(struct client_exchange){
				.cold = cold,
				.busy = busy,
				.from = s->donor,
				.memory = client_extent_memory(client, busy),
				.since_ms = now
			};
		client->uneven = true;
		client_place_want(client, cold);
		return true;
	}
	return false;
}

/* Find a cold extent that makes room for a busy one. */
static void exchange_begin(struct dcm_client *client,
			   const struct client_tier *t, u32 busy, u64 now)
{
	u32 i;

	if (client->nr_exchanges == CLIENT_EXCHANGES ||
	    now < client->exchange_ms)
		return;
	for (i = 0; i < t->cold.nr; i++)
		if (!exchange_of(client, t->cold.extent[i]) &&
		    exchange_with(client, t, t->cold.extent[i], busy, now))
			return;
}

/*
 * The cold extent's part of an exchange, until its memory is given back. True: the
 * exchange is over.
 */
static bool exchange_leave(struct dcm_client *client, struct client_exchange *x,
			   u64 now)
{
	struct dcm_client_slab *s = extent_slab(client, x->cold, x->from);
	u32 members = client_slab_members(client, x->cold);

	/* give up; a slab on files that it got is surplus then, and given back */
	if (!s || !s->member || members < client->copies || !s->activity.cold_s)
		return true;
	if (members == client->copies) {
		client_place_want(client, x->cold);
		return now - x->since_ms > PART_MS;
	}
	dcm_log(DCM_LOG_INFO,
		"extent %u has not been used for %llu s: it goes to files, and extent %u, which is in use, to donor %s",
		x->cold, (unsigned long long)s->activity.cold_s, x->busy,
		client->donor[x->from].name);
	client_member_leave(s);
	x->left = true;
	return false;
}

/* One step of an exchange. True: it is over. */
static bool exchange_step(struct dcm_client *client, struct client_exchange *x,
			  u64 now)
{
	if (!x->left)
		return exchange_leave(client, x, now);
	if (extent_slab(client, x->cold, x->from)) {
		x->since_ms = now;
		return false;
	}
	if (client_extent_memory(client, x->busy) > x->memory ||
	    client_extent_lacks(client, x->busy) != MEDIUM_MEMORY)
		return true;
	if (now - x->since_ms > PART_MS) {
		client->exchange_ms = now + PAUSE_MS;
		return true;
	}
	client_place_want(client, x->busy);
	return false;
}

/**
 * client_tier_step() - after a look: seek memory for busy extents, go on with exchanges
 * @t: what the look found
 * @exposed: an extent has fewer slabs than it is to have: no exchange begins
 */
void client_tier_step(struct dcm_client *client, const struct client_tier *t,
		      bool exposed, u64 now)
{
	u32 i, n = 0;

	for (i = 0; i < client->nr_exchanges; i++)
		if (!exchange_step(client, &client->exchange[i], now))
			client->exchange[n++] = client->exchange[i];
	client->nr_exchanges = n;
	for (i = 0; i < t->busy.nr; i++) {
		u32 e = t->busy.extent[i];

		if (t->memory & ~client_extent_donors(client, e)) {
			client->uneven = true;
			client_place_want(client, e);
		} else if (!exposed && !exchange_of(client, e)) {
			exchange_begin(client, t, e, now);
		}
	}
}
