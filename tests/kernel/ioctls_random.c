// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ioctls_random.c - random requests to a file that is in use
 *
 * Two threads send them, each wrong in at least one place (or harmless: a budget,
 * a tunable, a look), while a third uses the memory and checks every byte, and
 * this one is the control plane.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ioctls.h"

static const char *dir;
static int fd;
static char *mem;
static volatile bool stop;

static uint64_t number(uint64_t *rng)
{
	static const uint64_t edges[] = { 0,	      1,	  PAGES,
					  PAGES + 1,  INT32_MAX,  1ull << 31,
					  UINT32_MAX, 1ull << 32, INT64_MAX,
					  UINT64_MAX };

	switch (rnd(rng) % 3) {
	case 0:
		return edges[rnd(rng) % (sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return rnd(rng) % 16;
	default:
		return rnd(rng) << 16 ^ rnd(rng);
	}
}

/* Any bytes; only what would really take content away is made wrong. */
static void random_request(uint64_t *rng, int *files, unsigned int nr_files)
{
	unsigned int cmd = requests[rnd(rng) % NR_REQUESTS], i;
	union {
		uint64_t word[512];
		struct dcmfs_slab slab;
		struct dcmfs_pair pair;
		struct dcmfs_tune tune;
		struct dcmfs_range range;
		struct dcmfs_write_count count;
	} buf;
	struct dcmfs_range none = { 0 };
	struct dcmfs_slab *s = &buf.slab;
	char *arg = (char *)&buf;
	int err;

	for (i = 0; i < sizeof(buf) / sizeof(buf.word[0]); i++)
		buf.word[i] = number(rng);
	if (rnd(rng) % 8 == 0)
		cmd ^= 1u << rnd(rng) % 32;
	if (about_slab(cmd)) {
		s->extent %= 12;
		s->fd = rnd(rng) % 4 ? files[rnd(rng) % nr_files] : s->fd;
		s->id %= FIRST_ID;
		s->donor |= DCMFS_DONORS_MAX; /* nor a slab out of reach */
		if (rnd(rng) % 2) {
			s->flags = s->donor = 0;
			s->remote = s->base = 0;
			s->rkey = s->order = 0;
		}
	}
	if (cmd == DCMFS_IOC_PAIR)
		buf.pair.late_ms = DCMFS_LIMIT_MAX_MS + 1;
	if (cmd == DCMFS_IOC_FREEZE || cmd == DCMFS_IOC_SYNC ||
	    cmd == DCMFS_IOC_SPREAD || cmd == DCMFS_IOC_REVERT ||
	    cmd == DCMFS_IOC_HINT) {
		struct dcmfs_range *r = &buf.range;

		if (rnd(rng) % 2)
			*r = (struct dcmfs_range){ rnd(rng) % 260 * 16,
						   rnd(rng) % 20 * 16,
						   (uint32_t)rnd(rng) % 2, 0 };
		if (cmd == DCMFS_IOC_HINT && rnd(rng) % 2)
			r->flags = (uint32_t)rnd(rng) % (DCMFS_HINT_FORGET + 2);
		/* Some are right, and then it must not take long. */
		if (cmd == DCMFS_IOC_SYNC || cmd == DCMFS_IOC_SPREAD)
			r->limit_ms = 1 + (uint32_t)rnd(rng) % 20;
		else if (rnd(rng) % 2)
			r->limit_ms = 0;
		if (cmd == DCMFS_IOC_FREEZE && rnd(rng) % 2)
			r->flags = 0;
	}
	if (cmd == DCMFS_IOC_WRITE_COUNT && rnd(rng) % 2)
		buf.count = (struct dcmfs_write_count){ rnd(rng) % 260 * 16,
					      rnd(rng) % 20 * 16,
					      rnd(rng) % 8 == 0, 0 };
	if (cmd == DCMFS_IOC_TUNE && rnd(rng) % 2)
		strcpy(buf.tune.name,
		       rnd(rng) % 2 ? "batch_blocks" : "epsilon");
	if (rnd(rng) % 8 == 0)
		arg = (char *)number(rng);
	else if (rnd(rng) % 8 == 0)
		arg = mem + rnd(rng) % SIZE; /* copied out to: not INFO */
	if (arg >= mem && arg < mem + SIZE && _IOC_DIR(cmd) & _IOC_READ)
		arg = (char *)&buf;
	err = ioctl(fd, cmd, arg) ? errno : 0;
	/* Not for long: the other thread's argument may be there. */
	if (!err && cmd == DCMFS_IOC_FREEZE)
		ioctl(fd, cmd, &none);
	if (!err && about_slab(cmd))
		fail("request %#x was taken", cmd);
}

static void *send_random(void *arg)
{
	uint64_t rng = *(uint64_t *)arg, sent = 0;
	int files[6], pipes[2];
	unsigned int i;

	if (pipe(pipes))
		fail("pipe");
	files[0] = pipes[0];
	files[1] = pipes[1];
	files[2] = memfd_create("x", 0);
	files[3] = open(dir, O_RDONLY | O_DIRECTORY);
	files[4] = fd;
	files[5] = -1;
	for (; !stop; sent++)
		random_request(&rng, files, 6);
	for (i = 0; i < 4; i++)
		close(files[i]);
	*(uint64_t *)arg = sent;
	return NULL;
}

static void *use_memory(void *arg)
{
	uint64_t rng = *(uint64_t *)arg, checked = 0;
	static uint32_t seq[PAGES];
	uint32_t p;

	for (p = 0; p < PAGES; p++)
		*(uint64_t *)(mem + (size_t)p * PAGE) = p;
	while (!stop) {
		volatile uint64_t *w;
		uint32_t n;

		p = (uint32_t)(rnd(&rng) % PAGES);
		for (n = 0; n < 16 && p < PAGES; n++, p++, checked++) {
			w = (uint64_t *)(mem + (size_t)p * PAGE);
			if (*w != ((uint64_t)seq[p] << 32 | p))
				fail("page %u holds %#jx", p, (uintmax_t)*w);
			if (n & 1)
				*w = (uint64_t)++seq[p] << 32 | p;
		}
	}
	for (p = 0; p < PAGES; p++)
		if (*(uint64_t *)(mem + (size_t)p * PAGE) !=
		    ((uint64_t)seq[p] << 32 | p))
			fail("page %u at the end", p);
	*(uint64_t *)arg = checked + PAGES;
	return NULL;
}

void ioctls_at_random(struct control *c, const char *where, char *map,
		      uint64_t seconds, uint64_t seed)
{
	void *(*run[])(void *) = { send_random, send_random, use_memory };
	uint64_t until = now_ns() + seconds * 1000000000u, told[3];
	pthread_t thread[3];
	struct dcmfs_info i;
	unsigned int k;

	dir = where;
	mem = map;
	fd = c->fd;
	for (k = 0; k < 3; k++) {
		told[k] = (seed + k + 1) * 0x9e3779b97f4a7c15ull;
		if (pthread_create(&thread[k], NULL, run[k], &told[k]))
			fail("pthread_create");
	}
	while (now_ns() < until) {
		control_serve(c, 20);
		/* The other threads may have set more than the file's size. */
		if (control_budget(c, PAGES / 2))
			fail("budget");
	}
	stop = true;
	for (k = 0; k < 3; k++) {
		/* It may wait for a slab. */
		while (pthread_tryjoin_np(thread[k], NULL))
			control_serve(c, 20);
	}
	i = info_of(fd);
	if (i.lost_pages)
		fail("%ju pages are lost", (uintmax_t)i.lost_pages);
	printf("random: %ju requests refused, %ju pages right\n",
	       (uintmax_t)(told[0] + told[1]), (uintmax_t)told[2]);
}
