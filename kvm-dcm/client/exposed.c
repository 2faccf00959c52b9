// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * exposed.c - find extents that don't have the slabs they should have
 *
 * An extent should have @copies slabs, its *members*. While it has some of them, but
 * not all, it is *exposed*: the death of a donor may take pages that only that donor
 * has. Once a second a look at all extents finds such extents, and placement.c seeks
 * the slabs that they lack; extents that have no slab at all don't wait for these. The
 * look also counts extents whose members may die together, on one host or in one
 * group, for the status.
 *
 * Of the @copies slabs @files should be on donors of files, the others on donors of
 * memory. If no donor of memory has room, a slab of files is taken in place of memory.
 * tier.c decides which of such extents get a slab in memory later; then the file is
 * given back.
 *
 *	    memory  files
 *	      1       0    one copy     lacks: none
 *	      0       1                 lacks memory
 *	      1       1                 the file is too many: given back
 *
 * An extent that has as many slabs as it may have (%DCM_CLIENT_COPIES_MAX), two of
 * them on files because memory had no room, gives one of these back first once memory
 * has room: then it lacks a slab like any other.
 *
 * *Near* donors may die together, as they are on one host or in one group. An extent
 * has members on near donors if no other donor had room. Once one has room that is near
 * none of the others, one member is replaced: the extent gets a slab there, and gives
 * the near one back; if it has no room for one more slab, in the other order.
 *
 * Surplus slabs are given back as if their donors had asked for them: those first that
 * are near others, and of these the newest.
 *
 * Locking: none, only the client thread uses it.
 */
#include "tier.h"

#define APART_MAX 4u /* extents whose near members are being replaced */

/**
 * struct members - an extent's members, by what their donors lend
 * @memory: on donors of memory
 * @files: on donors of files
 * @slabs: all slabs of the extent, those being given back too
 * @unknown: a member's donor has not said yet what it lends
 */
struct members {
	u32 memory;
	u32 files;
	u32 slabs;
	bool unknown;
};

static struct members members_of(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	struct members m = { 0 };

	for (; s; s = s->next_of_extent) {
		const struct dcm_choose_donor *load =
			&client->donor[s->donor].load;

		m.slabs += !s->dead;
		if (!s->member)
			continue;
		if (load->file)
			m.files++;
		else
			m.memory++;
		m.unknown |= !load->known;
	}
	return m;
}

/* The donors that lend files, a bit each. */
u64 client_donors_file(const struct dcm_client *client)
{
	u64 who = 0;
	u32 i;

	for (i = 0; i < client->nr_donors; i++)
		if (client->donor[i].load.file)
			who |= 1ull << i;
	return who;
}

/* How many members an extent has on donors of memory. */
u32 client_extent_memory(const struct dcm_client *client, u32 extent)
{
	return members_of(client, extent).memory;
}

/* How many members an extent should have on donors of memory. */
static u32 memory_due(const struct dcm_client *client)
{
	return client->copies - client->files;
}

static enum client_medium members_lack(const struct dcm_client *client,
				       const struct members *m)
{
	if (m->memory < memory_due(client))
		return m->memory + m->files < client->copies ? MEDIUM_ANY :
							       MEDIUM_MEMORY;
	return m->files < client->files ? MEDIUM_FILE : MEDIUM_NONE;
}

/* The kind of donor on which the extent should get a slab now. */
enum client_medium client_extent_lacks(const struct dcm_client *client,
				       u32 extent)
{
	struct members m = members_of(client, extent);

	return members_lack(client, &m);
}

/* May a donor die together with one of the donors @others, a bit each? */
bool client_donor_near_any(const struct dcm_client *client, u32 donor,
			   u64 others)
{
	for (; others; others &= others - 1)
		if (client_donors_near(&client->donor[donor],
				       &client->donor[__builtin_ctzll(others)]))
			return true;
	return false;
}

/* May two members of an extent die together? */
bool client_extent_near(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 seen = 0;

	for (; s; s = s->next_of_extent) {
		if (!s->member)
			continue;
		if (client_donor_near_any(client, s->donor, seen))
			return true;
		seen |= 1ull << s->donor;
	}
	return false;
}

/* The donors of an extent's members except the member @not, a bit each. */
u64 client_members_donors(const struct dcm_client *client, u32 extent,
			  const struct dcm_client_slab * not )
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 who = 0;

	for (; s; s = s->next_of_extent)
		if (s->member && s != not )
			who |= 1ull << s->donor;
	return who;
}

/* May this member die together with another one? */
static bool member_near(const struct dcm_client *client,
			const struct dcm_client_slab *s)
{
	return client_donor_near_any(client, s->donor,
				     client_members_donors(client, s->extent,
							   s));
}

void client_member_leave(struct dcm_client_slab *s)
{
	s->member = false;
	client_member_slab_leave(s);
}

/* Give back a member on memory, or on a @file: the newest near one, else the newest. */
void client_surplus_leave(struct dcm_client *client, u32 extent, bool file)
{
	struct dcm_client_slab *s = client->of_extent[extent], *go = NULL;

	for (; s; s = s->next_of_extent) {
		if (!s->member || s->dead ||
		    client->donor[s->donor].load.file != file)
			continue;
		if (!go)
			go = s;
		if (member_near(client, s)) {
			go = s;
			break;
		}
	}
	if (go)
		client_member_leave(go);
}

/* Donors with more than 1/16 free: they won't soon ask slabs back. A bit each. */
static u64 donors_roomy(const struct dcm_client *client, u64 now)
{
	u64 who = 0;
	u32 i;

	for (i = 0; i < client->nr_donors; i++) {
		const struct client_donor *d = &client->donor[i];
		const struct dcm_choose_donor *load = &d->load;

		if (client_donor_usable(d, now) && load->known &&
		    !load->draining &&
		    load->slabs_free > load->slabs_total / 16)
			who |= 1ull << i;
	}
	return who;
}

/* Donors that have a slab of the extent, a bit each. */
u64 client_extent_donors(const struct dcm_client *client, u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 who = 0;

	for (; s; s = s->next_of_extent)
		if (!s->dead)
			who |= 1ull << s->donor;
	return who;
}

/*
 * Find a member that is near another one and can be replaced. @to: out: donors with
 * room that may take its place, a bit each.
 */
static struct dcm_client_slab *extent_apart(const struct dcm_client *client,
					    u32 extent, u64 roomy, u64 *to)
{
	struct dcm_client_slab *s = client->of_extent[extent];
	u64 files = client_donors_file(client);

	for (; s; s = s->next_of_extent) {
		u64 others = client_members_donors(client, extent, s), m;

		if (!s->member || s->dead ||
		    !client_donor_near_any(client, s->donor, others))
			continue;
		*to = 0;
		m = roomy & ~client_extent_donors(client, extent);
		m &= client->donor[s->donor].load.file ? files : ~files;
		for (; m; m &= m - 1) {
			u32 i = (u32)__builtin_ctzll(m);

			if (!client_donor_near_any(client, i, others))
				*to |= 1ull << i;
		}
		if (*to)
			return s;
	}
	return NULL;
}

/**
 * client_extent_moves() - should an extent that lacks no slab get a better one?
 * @client: the client
 * @extent: the extent
 * @now: the time
 * @to: out: donors that may lend it, a bit each
 *
 * Return: what these donors lend; %MEDIUM_NONE: no, its members are as good as they
 * can be.
 */
enum client_medium client_extent_moves(const struct dcm_client *client,
				       u32 extent, u64 now, u64 *to)
{
	u64 roomy = donors_roomy(client, now);
	const struct dcm_client_slab *s;

	if (client_tier_moves(client, extent, roomy, to))
		return MEDIUM_FILE;
	s = extent_apart(client, extent, roomy, to);
	if (!s)
		return MEDIUM_NONE;
	return client->donor[s->donor].load.file ? MEDIUM_FILE : MEDIUM_MEMORY;
}

/**
 * struct apart - extents with a member to be replaced, as it is near another
 * @roomy: donors with room, a bit each
 * @moving: how many extents have more slabs than @copies, and so are being moved
 * @nr: how many are in @extent
 */
struct apart {
	u64 roomy;
	u32 moving;
	u32 nr;
	u32 extent[APART_MAX];
};

static void apart_add(struct apart *a, const struct dcm_client *client,
		      u32 extent, const struct members *m)
{
	u64 to;

	a->moving += m->slabs > client->copies;
	if (m->slabs == client->copies && !m->unknown && a->nr < APART_MAX &&
	    members_lack(client, m) == MEDIUM_NONE &&
	    extent_apart(client, extent, a->roomy, &to))
		a->extent[a->nr++] = extent;
}

/* Replace members that may die together, of at most APART_MAX extents at a time. */
static void apart_want(struct dcm_client *client, const struct apart *a)
{
	u32 i;
	u64 to;

	for (i = 0; i < a->nr && a->moving + i < APART_MAX; i++) {
		u32 e = a->extent[i];

		client->uneven = true;
		if (client->copies < DCM_CLIENT_COPIES_MAX)
			client_place_want(client, e);
		else
			client_member_leave(
				extent_apart(client, e, a->roomy, &to));
	}
}

/* An extent has enough slabs: give back surplus ones, and seek better ones. */
static void extent_even(struct dcm_client *client, u32 extent,
			const struct members *m, struct client_tier *tier)
{
	enum client_medium lack = members_lack(client, m);
	bool full = m->slabs == DCM_CLIENT_COPIES_MAX;

	/* what the donor lends decides: wait until it is known */
	if (m->unknown || client_tier_exchanges(client, extent))
		return;
	if (m->memory > memory_due(client) && (lack != MEDIUM_FILE || full))
		client_surplus_leave(client, extent, false);
	else if (m->files > client->files && lack != MEDIUM_MEMORY)
		client_surplus_leave(client, extent, true);
	else if (full && lack == MEDIUM_MEMORY)
		client_tier_full(client, tier, extent);
	else if (full)
		return;
	else if (lack == MEDIUM_FILE)
		client_place_want(client, extent);
	else if (lack == MEDIUM_MEMORY)
		client_tier_lacks(client, tier, extent);
	else if (m->slabs == client->copies)
		client_tier_has(client, tier, extent);
}

static bool looks_needed(const struct dcm_client *client)
{
	return client->copies > 1 || client->uneven ||
	       client_donors_file(client);
}

/*
 * Once a second, look at all extents that have slabs. Seek slabs for those that have
 * too few: a donor was lost, no other donor had room, or the number was raised. Also
 * replace slabs that are on the wrong donors.
 */
void client_exposed_want(struct dcm_client *client, u64 now)
{
	struct apart apart = { .roomy = donors_roomy(client, now) };
	struct client_tier tier = { 0 };
	bool exposed = false;
	u32 e, near = 0;

	if (now < client->exposed_ms)
		return;
	client->exposed_ms = now + CLIENT_EXPOSED_MS;
	if (!looks_needed(client))
		return;
	tier.memory = apart.roomy & ~client_donors_file(client);
	tier.files = apart.roomy & client_donors_file(client);
	for (e = 0; e < client->nr_extents; e++) {
		struct members m = members_of(client, e);
		u32 n = m.memory + m.files;

		if (n > 1 && client_extent_near(client, e)) {
			near++;
			apart_add(&apart, client, e, &m);
		} else {
			apart.moving += m.slabs > client->copies;
		}
		exposed |= n && n < client->copies;
		if (n && n < client->copies)
			client_place_want(client, e);
		else if (n)
			extent_even(client, e, &m, &tier);
	}
	client->nr_near = near;
	/* while extents lack copies, replace no near members */
	if (!exposed)
		apart_want(client, &apart);
	client_tier_step(client, &tier, exposed, now);
}

/* Set which slabs each extent should have from now on. */
void client_place_redundancy(struct dcm_client *client,
			     enum dcm_host_redundancy redundancy)
{
	client->copies = dcm_redundancies[redundancy].copies;
	client->files = dcm_redundancies[redundancy].files;
	/* stays set: a slab that was asked for before may still come */
	client->uneven = true;
	client->nr_exchanges = 0;
	client->exposed_ms = 0;
	client->place_backoff_ms = 0;
}
