// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pairs.c - links over RDMA that come to nothing
 *
 * Requests with wrong fields are refused one by one. Then threads begin links at
 * random, to an address of this machine where nobody listens, to nobody's address,
 * to what is none; they look at what stands for them, close that at once or later,
 * and put others in their place, while memory is paged (its slabs are of this
 * host) and every byte of it checked. No link comes up, each that was begun
 * says that it has ended, and in the end the file works and nothing is left.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
#define THREADS 3
#define OPEN_MAX 16

static int fd;
static char *mem;
static uint32_t lanes;
static struct in_addr here;
static volatile bool stop;

/**
 * struct beginner - a thread that begins links
 * @rng: what it does next
 * @begun: links
 * @ended: of those, how many have said that they are over
 * @refused: requests
 */
struct beginner {
	uint64_t rng;
	uint64_t begun;
	uint64_t ended;
	uint64_t refused;
};

static struct dcmfs_pair to(uint32_t v4)
{
	struct dcmfs_pair p = { .port = 7997,
				.addr = { [10] = 255, [11] = 255 } };

	memcpy(&p.addr[12], &v4, sizeof(v4));
	return p;
}

static void refused(struct dcmfs_pair p, const char *what)
{
	int before = dup(fd), after;

	close(before);
	expect(ioctl(fd, DCMFS_IOC_PAIR, &p), EINVAL, what);
	after = dup(fd);
	if (after != before)
		fail("%s: a descriptor is left", what);
	close(after);
}

static void fields(void)
{
	const struct dcmfs_pair good = to(here.s_addr);
	struct dcmfs_pair p;
	unsigned int i;

	for (i = 0; i < 32; i++) {
		p = good;
		p.late_ms = DCMFS_LIMIT_MAX_MS + (1u << i);
		if (p.late_ms > DCMFS_LIMIT_MAX_MS)
			refused(p, "late for ever");
		p = good;
		p.fd = (int)(1u << i);
		refused(p, "a descriptor");
		p = good;
		p.lane = lanes + (1u << i) - 1;
		refused(p, "no such lane");
		p = good;
		p.donor = DCMFS_DONORS_MAX + (1u << i) - 1;
		refused(p, "no such donor");
		if (i >= 16)
			continue;
		p = good;
		p.flags = (uint16_t)(1u << i);
		refused(p, "a flag");
	}
}

static void address(uint64_t *rng, struct dcmfs_pair *p)
{
	unsigned int i;

	switch (rnd(rng) % 4) {
	case 0: /* nobody listens */
		break;
	case 1: /* nobody is there */
		p->addr[15] ^= (uint8_t)(1 + rnd(rng) % 255);
		break;
	default:
		for (i = rnd(rng) % 2 ? 12 : 0; i < 16; i++)
			p->addr[i] = (uint8_t)rnd(rng);
		p->scope = rnd(rng) % 2 ? 0 : (uint32_t)rnd(rng);
	}
	if (rnd(rng) % 4 == 0)
		p->port = (uint16_t)rnd(rng);
}

static void look(struct beginner *b, int *link, int ms)
{
	struct pollfd p = { .fd = *link, .events = POLLIN | POLLOUT };

	if (poll(&p, 1, ms) < 0)
		fail("poll: %s", strerror(errno));
	if (p.revents & ~(POLLHUP | POLLRDHUP))
		fail("a link to nobody says %#x", p.revents);
	if (!p.revents)
		return;
	b->ended++;
	close(*link);
	*link = -1;
}

/* One that stands where another has to ends that one. */
static void begin(struct beginner *b, int *link)
{
	struct dcmfs_pair p = to(here.s_addr);
	unsigned int i;

	address(&b->rng, &p);
	p.lane = (uint32_t)(rnd(&b->rng) % lanes);
	p.donor = (uint32_t)(rnd(&b->rng) % 3);
	for (i = 0; i < sizeof(p.shown); i++)
		p.shown[i] = (uint8_t)rnd(&b->rng);
	if (ioctl(fd, DCMFS_IOC_PAIR, &p)) {
		if (errno == ENOTTY || errno == EFAULT || errno == EPERM)
			fail("a link: %s", strerror(errno));
		b->refused++;
		return;
	}
	if (fcntl(p.fd, F_GETFD) != FD_CLOEXEC)
		fail("descriptor %d is not what was promised", p.fd);
	b->begun++;
	*link = p.fd;
}

static void *begin_links(void *arg)
{
	struct beginner *b = arg;
	int link[OPEN_MAX], i;

	for (i = 0; i < OPEN_MAX; i++)
		link[i] = -1;
	while (!stop) {
		struct dcmfs_link none = { .fd = -1 };

		i = (int)(rnd(&b->rng) % OPEN_MAX);
		if (link[i] < 0) {
			begin(b, &link[i]);
			continue;
		}
		switch (rnd(&b->rng) % 8) {
		case 0: /* what it stands for goes on */
			close(link[i]);
			link[i] = -1;
			break;
		case 1:
			none.lane = (uint32_t)(rnd(&b->rng) % lanes);
			none.donor = (uint32_t)(rnd(&b->rng) % 3);
			if (ioctl(fd, DCMFS_IOC_LINK, &none))
				fail("no link: %s", strerror(errno));
			break;
		default:
			look(b, &link[i], (int)(rnd(&b->rng) % 20));
		}
	}
	/* All of them come to an end by themselves. */
	for (i = 0; i < OPEN_MAX; i++)
		while (link[i] >= 0)
			look(b, &link[i], 1000);
	return NULL;
}

static void *use_memory(void *arg)
{
	static uint32_t seq[PAGES];
	uint64_t rng = *(uint64_t *)arg, checked = 0;

	while (!stop || checked < PAGES) {
		uint32_t p = (uint32_t)(rnd(&rng) % PAGES);
		volatile uint64_t *w = (uint64_t *)(mem + (size_t)p * PAGE);

		if (*w != (seq[p] ? (uint64_t)seq[p] << 32 | p : 0))
			fail("page %u holds %#jx", p, (uintmax_t)*w);
		*w = (uint64_t)++seq[p] << 32 | p;
		checked++;
	}
	*(uint64_t *)arg = checked;
	return NULL;
}

static void join(struct control *c, pthread_t thread)
{
	while (pthread_tryjoin_np(thread, NULL))
		control_serve(c, 20);
}

/* pairs DIR ADDRESS SECONDS SEED */
int pairs(int argc, char **argv)
{
	uint64_t until = strtoull(argv[4], NULL, 0) * 1000000000u;
	uint64_t seed = strtoull(argv[5], NULL, 0), used = seed + 99;
	struct beginner b[THREADS] = { 0 }, sum = { 0 };
	pthread_t thread[THREADS], user;
	struct control c;
	unsigned int i;

	(void)argc;
	if (inet_pton(AF_INET, argv[3], &here) != 1)
		fail("%s is no address", argv[3]);
	fd = file_make(argv[2], SIZE);
	mem = map_shared(fd, SIZE);
	control_open(&c, fd);
	lanes = c.info.lanes;
	if (control_budget(&c, PAGES / 2))
		fail("budget");
	fields();
	printf("fields: right\n");
	if (pthread_create(&user, NULL, use_memory, &used))
		fail("pthread_create");
	for (i = 0; i < THREADS; i++) {
		b[i].rng = (seed + i + 1) * 0x9e3779b97f4a7c15ull;
		if (pthread_create(&thread[i], NULL, begin_links, &b[i]))
			fail("pthread_create");
	}
	for (until += now_ns(); now_ns() < until;)
		control_serve(&c, 20);
	stop = true;
	join(&c, user);
	for (i = 0; i < THREADS; i++) {
		join(&c, thread[i]);
		sum.begun += b[i].begun;
		sum.ended += b[i].ended;
		sum.refused += b[i].refused;
	}
	if (info_of(fd).lost_pages)
		fail("pages were lost");
	printf("pairs: %ju begun, %ju seen to end, %ju refused, %ju pages right\n",
	       (uintmax_t)sum.begun, (uintmax_t)sum.ended,
	       (uintmax_t)sum.refused, (uintmax_t)used);
	return 0;
}
