// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * choose.c - choose an extent's donor by power of two choices
 *
 * infiniswap-nsdi17, 4.2: split the machines into those this VM has a slab on
 * (M_old) and those it has none on (M_new), ask two of M_new, then if need be
 * of M_old, and take the one that uses the least memory.
 *
 * Differences from the paper:
 *  - "Least memory" is the share of what the donor lends, not bytes. Donors
 *    of different size then fill up at the same pace; between donors of equal
 *    size it is the paper's rule. Between two equally full donors the VM's own
 *    slabs decide, which also limits what is lost with one donor.
 *  - Donors known to be full, draining or down are not drawn at all, so a draw
 *    of two is a choice of two. Figures are up to a second old; the caller asks
 *    both (QUERY_MEM).
 *  - A lone unused donor is taken without comparing it with a used one:
 *    spreading comes first, as in the paper.
 *  - Hosts that place at the same time all see the same donor empty, and each
 *    would fill it. So a small difference between the shares that two donors lend
 *    (an eighth of the share and a sixteenth of the donor) is ignored: then the
 *    VM's own slabs decide, which only this host places. If all hosts spread
 *    their own slabs evenly, the sum is even.
 *  - The paper waits for both answers. A donor that is late is judged by its
 *    last figures: as it may have lent more since, it is taken only if the VM's
 *    own slabs favour it too.
 *  - If even the better of two lends more than the average donor
 *    (dcm_choose_high()), the caller can draw again, a few times.
 *  - Mapping is not delayed until a slab is hot (HotSlab): this host has no disk
 *    to fall back on, so an extent gets a slab with its first write-back.
 *  - A donor may lend files. It is slow however little it has lent, so it is worse
 *    than any donor of memory; the caller draws one only if it must.
 *
 * Partners. If two donors die at the same time, pages that have their copies on just
 * these two are lost. With copies on random donors almost every pair of donors has
 * such pages. So the copies of a donor's pages are on only S other donors, its
 * *partners* (S is the scatter width of copysets). Of n donors, then, only S / (n - 1)
 * of all pairs can lose pages, and when one donor dies its copies are made again from
 * S others.
 *
 * No state, no locks, no allocation.
 */
#include "choose.h"

u64 dcm_choose_random(u64 *state)
{
	u64 x = *state;

	if (!x)
		x = 0x9e3779b97f4a7c15ull;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}

/* 0 to @n - 1. The bias of a 64-bit value modulo a few dozen is negligible. */
static unsigned int rng_below(u64 *rng, unsigned int n)
{
	return (unsigned int)((dcm_choose_random(rng) >> 16) % n);
}

bool dcm_choose_usable(const struct dcm_choose_donor *d)
{
	return d->up && !d->draining && !d->excluded &&
	       (!d->known || d->slabs_free > 0);
}

/* Compare shares a/b and c/d of two wholes: -1, 0, 1. An empty whole is full. */
static int share_cmp(u64 a, u64 b, u64 c, u64 d)
{
	/* donors lend less than 2^31 slabs; a false figure must not overflow */
	while ((a | b | c | d) >> 31) {
		a >>= 1;
		b >>= 1;
		c >>= 1;
		d >>= 1;
	}
	if (!b || !d)
		return !b - !d;
	return a * d < c * b ? -1 : a * d > c * b;
}

/* Limit a donor's figure, which may be false: sums must not overflow. */
static u64 figure_bound(u64 slabs)
{
	return min(slabs, 1ull << 40);
}

unsigned int dcm_choose_two(const struct dcm_choose_donor *d, unsigned int nr,
			    u64 *rng, unsigned int pick[2])
{
	unsigned int set[DCM_CHOOSE_DONORS_MAX];
	unsigned int n = 0, i;
	int used;

	nr = min(nr, DCM_CHOOSE_DONORS_MAX);
	for (used = 0; used <= 1 && !n; used++)
		for (i = 0; i < nr; i++)
			if (dcm_choose_usable(&d[i]) && !!d[i].mine == !!used)
				set[n++] = i;
	if (!n)
		return 0;
	i = rng_below(rng, n);
	pick[0] = set[i];
	if (n == 1)
		return 1;
	set[i] = set[n - 1];
	pick[1] = set[rng_below(rng, n - 1)];
	return 2;
}

/*
 * Does @a lend a clearly smaller share than @b: by more than an eighth of @a's share
 * and 1/16 of the whole? Other hosts that place slabs now soon even out a smaller
 * difference.
 */
static bool lent_clearly_less(const struct dcm_choose_donor *a,
		    const struct dcm_choose_donor *b)
{
	u64 total = figure_bound(a->slabs_total);

	return share_cmp(18 * (figure_bound(a->slabs_used) + 1) + total,
			 16 * total, figure_bound(b->slabs_used),
			 figure_bound(b->slabs_total)) < 0;
}

int dcm_choose_better(const struct dcm_choose_donor *a,
		      const struct dcm_choose_donor *b)
{
	bool ok_a = dcm_choose_usable(a), ok_b = dcm_choose_usable(b);
	int own;

	if (!ok_a || !ok_b)
		return ok_a ? 0 : ok_b ? 1 : -ENOSPC;
	if (a->file != b->file)
		return a->file;
	if (!a->mine != !b->mine)
		return !!a->mine;
	/* a late donor's figures are old: by now it has likely lent more */
	if (lent_clearly_less(a, b) && (!a->late || b->late))
		return 0;
	if (lent_clearly_less(b, a) && (!b->late || a->late))
		return 1;
	own = share_cmp(a->mine, a->slabs_total, b->mine, b->slabs_total);
	if (!own)
		own = share_cmp(a->slabs_used, a->slabs_total, b->slabs_used,
				b->slabs_total);
	return own > 0;
}

u64 dcm_choose_key(const char *name)
{
	u64 x = 0xcbf29ce484222325ull;

	for (; *name; name++)
		x = (x ^ (u8)*name) * 0x100000001b3ull;
	/* mix, so that names that differ only in their last letter get far apart */
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

/* The donor next to @who in the ring of @ring's donors by key, forward or @back. */
static unsigned int ring_next(const u64 *key, u64 ring, unsigned int who,
			      bool back)
{
	unsigned int next = who, i;
	u64 best = ~0ull;

	for (; ring; ring &= ring - 1) {
		u64 far;

		i = (unsigned int)__builtin_ctzll(ring);
		if (i == who)
			continue;
		/* the distance along the ring, modulo 2^64 */
		far = back ? key[who] - key[i] : key[i] - key[who];
		if (next == who || far < best) {
			best = far;
			next = i;
		}
	}
	return next;
}

u64 dcm_choose_partners(const u64 *key, u64 ring, unsigned int who,
			unsigned int scatter)
{
	unsigned int n, up = who, down = who;
	u64 me = 1ull << who, partners = 0;

	if ((unsigned int)__builtin_popcountll(ring & ~me) <= scatter)
		return ring & ~me;
	for (n = 0; n < scatter; n += 2) {
		up = ring_next(key, ring, up, false);
		down = ring_next(key, ring, down, true);
		partners |= 1ull << up | 1ull << down;
	}
	return partners & ~me;
}

bool dcm_choose_high(const struct dcm_choose_donor *d, unsigned int nr,
		    unsigned int pick)
{
	const struct dcm_choose_donor *p = &d[pick];
	u64 used = 0, own = 0, total = 0;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (!dcm_choose_usable(&d[i]) || !d[i].known ||
		    d[i].file != p->file)
			continue;
		used += figure_bound(d[i].slabs_used) + 1;
		own += d[i].mine + 1;
		total += figure_bound(d[i].slabs_total);
	}
	if (!p->mine)
		return false;
	return share_cmp(figure_bound(p->slabs_used) + 1,
			 figure_bound(p->slabs_total), used, total) > 0 ||
	       share_cmp(p->mine + 1, figure_bound(p->slabs_total), own,
			 total) > 0;
}
