// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * exposed.c - extents that have fewer slabs than they are to have, or more
 *
 * While an extent has some of its @copies slabs, but not all, it is *exposed*: a
 * donor's death may take what only that donor has. Once a second such extents
 * are found, and placement.c seeks what they lack; no other extent waits for
 * that. The look also finds extents whose members may die together, on one host
 * or in one group, for the status. When @copies is reduced, the slabs that an
 * extent got last are given back, as if their donors had asked for them.
 *
 * Locking: none, only the client thread uses it.
 */
#include "client_int.h"

/* May a donor die together with one of @others, a bit each? */
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
static bool extent_near(const struct dcm_client *client, u32 extent)
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

/* Give back the slabs of an extent that are too many, the newest first. */
static void surplus_leave(struct dcm_client *client, u32 extent, u32 members)
{
	struct dcm_client_slab *s = client->of_extent[extent];

	for (; s && members > client->copies; s = s->next_of_extent) {
		if (!s->member || s->dead)
			continue;
		s->member = false;
		members--;
		client_member_slab_leave(s);
	}
}

/*
 * Have slabs sought for extents that have some, but fewer than they are to
 * have: a donor was lost, or no other donor had a slab, or there are to be more
 * now.
 */
void client_exposed_want(struct dcm_client *client, u64 now)
{
	u32 e, n, near = 0;

	if ((client->copies == 1 && !client->uneven) ||
	    now < client->exposed_ms)
		return;
	client->exposed_ms = now + CLIENT_EXPOSED_MS;
	for (e = 0; e < client->nr_extents; e++) {
		n = client_slab_members(client, e);
		near += n > 1 && extent_near(client, e);
		if (n && n < client->copies)
			client_place_want(client, e);
		else if (n > client->copies)
			surplus_leave(client, e, n);
	}
	client->nr_near = near;
}

/* Each extent is to have so many slabs from now on. */
void client_place_copies(struct dcm_client *client, u32 copies)
{
	client->copies = copies;
	/* for good: a slab that was asked for before may still come */
	client->uneven = true;
	client->exposed_ms = 0;
	client->place_backoff_ms = 0;
}
