/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * choose.h - choose the donor of an extent's slab
 *
 * The results depend on the arguments only; the random generator's state is one.
 */
#ifndef DCM_CLIENT_CHOOSE_H
#define DCM_CLIENT_CHOOSE_H

#include "../lib/dcm_context.h"

#define DCM_CHOOSE_DONORS_MAX 64u

/**
 * struct dcm_choose_donor - what placement knows about a donor
 * @mine: slabs this VM has there, those being mapped included
 * @slabs_free: slabs it would give this VM, as it last said, minus those asked
 *	for since
 * @slabs_total: slabs it lends in all
 * @slabs_used: slabs it has lent to all hosts, including those asked for since
 * @up: its session is up
 * @draining: it gives no more slabs
 * @file: its slabs are files on a disk
 * @known: the three figures are known; if not they are ignored, and the donor has
 *	to be asked
 * @late: the figures are older than the other donors'
 * @excluded: not to be drawn this time
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
 * use is better; else the one that lends a clearly smaller share of its memory;
 * between about equal ones the one of which this VM uses a smaller share, then @a.
 * For a donor with late figures it is not enough to lend a smaller share: the VM must
 * also use less of it. A donor that is full, down, draining or excluded is never
 * chosen.
 *
 * Return: 0 for @a, 1 for @b, -ENOSPC if neither is possible.
 */
int dcm_choose_better(const struct dcm_choose_donor *a,
		      const struct dcm_choose_donor *b);

/**
 * dcm_choose_high() - does a donor lend more than the average donor?
 * @d: the donors
 * @nr: how many
 * @pick: index of the donor
 *
 * Compares with all usable donors of its medium (memory or files) whose figures are
 * known, taken together.
 *
 * Return: true if the share that it has lent to all hosts, or to this VM, is above
 * theirs; false for a donor that this VM does not use yet.
 */
bool dcm_choose_high(const struct dcm_choose_donor *d, unsigned int nr,
		    unsigned int pick);

/**
 * dcm_choose_key() - a donor's place in the ring of donors (dcm_choose_partners())
 * @name: NUL-terminated
 *
 * Return: a 64-bit hash; that two donors of a VM have the same one is very unlikely.
 */
u64 dcm_choose_key(const char *name);

/**
 * dcm_choose_partners() - donors that may have copies of donor @who's pages
 * @key: of each donor, dcm_choose_key()
 * @ring: donors that can be partners, a bit each
 * @who: one of these donors
 * @scatter: how many partners it has; an odd number counts as the next higher
 *
 * The donors form a ring in the order of their keys. Partners are the next
 * @scatter / 2 donors on both sides. So if a is a partner of b, b is one of a, and
 * a donor that comes or goes changes the partners of its neighbours only.
 *
 * Return: the partners, a bit each; all other donors if there are at most @scatter.
 */
u64 dcm_choose_partners(const u64 *key, u64 ring, unsigned int who,
			unsigned int scatter);

/* Could the donor give a slab, as far as is known? */
bool dcm_choose_usable(const struct dcm_choose_donor *d);

/* xorshift64*: advances @state, which is never 0 afterwards. */
u64 dcm_choose_random(u64 *state);

#endif /* DCM_CLIENT_CHOOSE_H */
