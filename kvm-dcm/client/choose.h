/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * choose.h - choose the donor of an extent's slab
 *
 * Pure functions of their arguments, a seeded generator included.
 */
#ifndef DCM_CLIENT_CHOOSE_H
#define DCM_CLIENT_CHOOSE_H

#include "../lib/dcm_context.h"

#define DCM_CHOOSE_DONORS_MAX 64u

/**
 * struct dcm_choose_donor - what placement knows of a donor
 * @mine: slabs this VM has there, those being mapped included
 * @slabs_free: slabs it would give this VM, as it last said, minus those asked
 *	for since
 * @slabs_total: slabs it lends in all
 * @slabs_used: slabs it has lent to all hosts, including those asked for since
 * @up: its session is up
 * @draining: it gives no more slabs
 * @file: its slabs are files on a disk
 * @known: the three figures are known; if not they are ignored, as only a
 *	question can tell
 * @late: the figures are older than the other donors'
 * @excluded: the caller does not want it this time
 */
struct dcm_choose_donor {
	u64 mine;
	u64 slabs_free;
	u64 slabs_total;
	u64 slabs_used;
	bool up;
	bool draining;
	bool file;
	bool known;
	bool late;
	bool excluded;
};

/**
 * dcm_choose_two() - up to two donors to ask
 * @d: the donors
 * @nr: how many, at most %DCM_CHOOSE_DONORS_MAX
 * @rng: generator state, not 0, advanced
 * @pick: filled in
 *
 * Picks uniformly at random, without repetition, from the donors this VM does
 * not use yet; if there are none, from the others. Never picks donors that are
 * down, draining, full or excluded.
 *
 * Return: how many were picked: 0, 1 or 2.
 */
unsigned int dcm_choose_two(const struct dcm_choose_donor *d, unsigned int nr,
			    u64 *rng, unsigned int pick[2]);

/**
 * dcm_choose_better() - which of two donors to map on
 * @a: first
 * @b: second
 *
 * A donor of memory is better than one of files. Else a donor this VM does not
 * use is better; else the one with the smaller share
 * of its memory lent; between equals the one this VM uses less, then @a. A late
 * donor is better only by both measures. A donor that turned out full, down or
 * draining is never chosen.
 *
 * Return: 0 for @a, 1 for @b, -ENOSPC if neither is possible.
 */
int dcm_choose_better(const struct dcm_choose_donor *a,
		      const struct dcm_choose_donor *b);

/**
 * dcm_choose_high() - whether a donor lends much already, compared to others
 * @d: the donors
 * @nr: how many
 * @pick: index of the donor
 *
 * Return: whether, as far as is known, its share lent to all hosts, or to this
 * VM, is above that of all usable donors of its medium together; false for a donor that this
 * VM does not use yet.
 */
bool dcm_choose_high(const struct dcm_choose_donor *d, unsigned int nr,
		    unsigned int pick);

/**
 * dcm_choose_key() - a donor's place among others
 * @name: NUL-terminated
 *
 * Return: a hash; two donors of one VM have the same one by a rare chance only.
 */
u64 dcm_choose_key(const char *name);

/**
 * dcm_choose_partners() - donors that may have copies of donor @who's pages
 * @key: of each donor, dcm_choose_key()
 * @ring: donors that are there, a bit each
 * @who: one of these donors
 * @scatter: how many partners it has; an odd number counts as the next higher
 *
 * In the order of their keys, the last before the first, these are the next
 * @scatter / 2 on both sides: so the partner of a partner is the donor again, and
 * a donor that comes or goes changes the partners of its neighbours only.
 *
 * Return: the partners, a bit each; all others if they are not more than @scatter.
 */
u64 dcm_choose_partners(const u64 *key, u64 ring, unsigned int who,
			unsigned int scatter);

/* Whether it could give a slab, as far as is known. */
bool dcm_choose_usable(const struct dcm_choose_donor *d);

/* xorshift64*: advances @state, which is never 0 afterwards. */
u64 dcm_choose_random(u64 *state);

#endif /* DCM_CLIENT_CHOOSE_H */
