// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ioctls.c - requests that must be refused, while the file is in use
 *
 * First one by one: every request with wrong numbers and sizes, with pointers to
 * nothing, to memory that ends in their middle, to memory of the file itself,
 * on files that are not ours, and by who may not. Then two threads send random
 * ones, each wrong in at least one place (or harmless: a budget, a tunable, a
 * look), while a third uses the memory and checks every byte, and this one is
 * the control plane. In the end the file works and holds what it should, and
 * nothing that was handed in is still held.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
/* Slabs of the control plane have ids from here on: no other id is one. */
#define FIRST_ID (1ull << 50)

static const unsigned int requests[] = {
	DCMFS_IOC_INFO,	  DCMFS_IOC_BUDGET, DCMFS_IOC_TUNE,
	DCMFS_IOC_ATTACH, DCMFS_IOC_DETACH, DCMFS_IOC_LOST,
	DCMFS_IOC_WANTED, DCMFS_IOC_LINK,   DCMFS_IOC_PAIR,
	DCMFS_IOC_SLAB,	  DCMFS_IOC_NOTE,   DCMFS_IOC_ACTIVITY,
	DCMFS_IOC_FREEZE,	  DCMFS_IOC_SYNC, DCMFS_IOC_HINT,
	DCMFS_IOC_WRITE_COUNT,
};
#define NR_REQUESTS (sizeof(requests) / sizeof(requests[0]))

static const char *dir;
static int fd;
static char *mem;
static volatile bool stop;

static void refused(int file, unsigned int cmd, void *arg, int err,
		    const char *what)
{
	char text[96];

	snprintf(text, sizeof(text), "request %#x, %s", cmd, what);
	expect(ioctl(file, cmd, arg), err, text);
}

static bool about_slab(unsigned int cmd)
{
	return cmd == DCMFS_IOC_ATTACH || cmd == DCMFS_IOC_DETACH ||
	       cmd == DCMFS_IOC_LOST;
}

/* The request may look for what is not there, but is well formed. */
static void argument(unsigned int cmd, void *buf)
{
	uint64_t budget = info_of(fd).budget_pages;
	struct dcmfs_tune tune = { .name = "epsilon", .value = 0 };
	struct dcmfs_slab slab = { .fd = -1, .id = 1 };
	struct dcmfs_slab last = { .fd = -1, .id = UINT64_MAX };
	struct dcmfs_link link = { .fd = -1 };
	struct dcmfs_pair pair = { .lane = UINT32_MAX };
	struct dcmfs_range away = { .first = PAGES, .pages = 16 };
	struct dcmfs_range one = { .pages = 1, .flags = DCMFS_HINT_NORMAL };
	struct dcmfs_write_count count = { .pages = 16 };

	memset(buf, 0, _IOC_SIZE(cmd));
	if (cmd == DCMFS_IOC_BUDGET)
		memcpy(buf, &budget, sizeof(budget));
	else if (cmd == DCMFS_IOC_TUNE)
		memcpy(buf, &tune, sizeof(tune));
	else if (about_slab(cmd))
		memcpy(buf, &slab, sizeof(slab));
	else if (cmd == DCMFS_IOC_SLAB)
		memcpy(buf, &last, sizeof(last));
	else if (cmd == DCMFS_IOC_LINK)
		memcpy(buf, &link, sizeof(link));
	else if (cmd == DCMFS_IOC_PAIR)
		memcpy(buf, &pair, sizeof(pair));
	else if (cmd == DCMFS_IOC_SYNC)
		memcpy(buf, &away, sizeof(away));
	else if (cmd == DCMFS_IOC_HINT)
		memcpy(buf, &one, sizeof(one));
	else if (cmd == DCMFS_IOC_WRITE_COUNT)
		memcpy(buf, &count, sizeof(count));
}

/* What a request says to its valid argument; 0: it is done. */
static int answer(unsigned int cmd)
{
	switch (cmd) {
	case DCMFS_IOC_ATTACH:
		return EBADF;
	case DCMFS_IOC_DETACH:
	case DCMFS_IOC_LOST:
	case DCMFS_IOC_WANTED:
	case DCMFS_IOC_SLAB:
		return ENOENT;
	case DCMFS_IOC_PAIR:
	case DCMFS_IOC_SYNC:
		return EINVAL;
	default:
		return 0;
	}
}

static void answers(int file, unsigned int cmd, void *arg, const char *what)
{
	int err = answer(cmd);

	if (err)
		refused(file, cmd, arg, err, what);
	else if (ioctl(file, cmd, arg))
		fail("request %#x, %s: %s", cmd, what, strerror(errno));
}

static void numbers(void)
{
	static const unsigned int dirs[] = { _IOC_NONE, _IOC_READ, _IOC_WRITE,
					     _IOC_READ | _IOC_WRITE };
	char buf[1024] = { 0 };
	unsigned int i, size, d, nr;

	for (nr = 0; nr < 256; nr++)
		for (i = 0; i < NR_REQUESTS; i++)
			for (d = 0; d < 4; d++) {
				unsigned int cmd = _IOC(dirs[d], 0xDC, nr,
							_IOC_SIZE(requests[i]));
				unsigned int j = 0;

				while (j < NR_REQUESTS && requests[j] != cmd)
					j++;
				if (j == NR_REQUESTS)
					refused(fd, cmd, buf, ENOTTY,
						"no such request");
			}
	for (i = 0; i < NR_REQUESTS; i++)
		for (size = 0; size < 512; size++) {
			unsigned int cmd = requests[i];

			if (size == _IOC_SIZE(cmd))
				continue;
			refused(fd,
				_IOC(_IOC_DIR(cmd), 0xDC, _IOC_NR(cmd), size),
				buf, ENOTTY, "wrong size");
		}
}

static void pointers(void)
{
	char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;

	if (page == MAP_FAILED || munmap(page + PAGE, PAGE))
		fail("mmap");
	for (i = 0; i < NR_REQUESTS; i++) {
		unsigned int cmd = requests[i], size = _IOC_SIZE(cmd);
		char *tail = page + PAGE - size;

		refused(fd, cmd, NULL, EFAULT, "NULL");
		refused(fd, cmd, (void *)1, EFAULT, "1");
		refused(fd, cmd, (void *)-4096l, EFAULT, "of the kernel");
		refused(fd, cmd, (void *)(1ull << 63), EFAULT, "no address");
		refused(fd, cmd, page + PAGE, EFAULT, "unmapped");
		refused(fd, cmd, tail + 1, EFAULT, "ends too early");
		refused(fd, cmd, page + PAGE - 1, EFAULT, "one byte");
		argument(cmd, tail);
		answers(fd, cmd, tail, "at the end of what is mapped");
		argument(cmd, page + 1);
		answers(fd, cmd, page + 1, "not aligned");
		argument(cmd, page);
		mprotect(page, PAGE, PROT_READ);
		if (_IOC_DIR(cmd) & _IOC_READ && !answer(cmd))
			refused(fd, cmd, page, EFAULT, "read only");
		else
			answers(fd, cmd, page, "read only");
		mprotect(page, PAGE, PROT_READ | PROT_WRITE);
	}
	munmap(page, PAGE);
}

/* An argument in the file's own memory, which has to be paged in for it. */
static void in_itself(struct control *c)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	char *arg = mem + PAGE - 8;
	unsigned char there[2];
	unsigned int i;

	for (i = 0; i < NR_REQUESTS; i++) {
		if (fallocate(fd, hole, 0, SIZE))
			fail("hole: %s", strerror(errno));
		argument(requests[i], arg);
		memset(mem + SIZE / 2, 1, SIZE / 4);
		control_squeeze(c);
		if (mincore(mem, sizeof(there) * PAGE, there))
			fail("mincore: %s", strerror(errno));
		if (there[0] || (there[1] && _IOC_SIZE(requests[i]) > 8))
			fail("the argument did not leave");
		answers(fd, requests[i], arg, "in the file");
	}
}

static void wrong_links(void)
{
	int tcp = socket(AF_INET, SOCK_STREAM, 0), pipes[2], i;
	struct dcmfs_link good = { .fd = tcp, .window = 1 }, l;
	struct dcmfs_activity act = { .extent = UINT32_MAX };

	if (tcp < 0 || pipe(pipes))
		fail("files");
	refused(fd, DCMFS_IOC_LINK, &good, ENOTCONN, "not connected");
	for (i = 0; i < 32; i++) {
		l = good;
		l.flags = 1u << i;
		refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "a flag");
		l = good;
		l.reserved = 1u << i;
		refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "a flag");
		l = good;
		l.donor = DCMFS_DONORS_MAX + (1u << i) - 1;
		refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "no such donor");
		l = good;
		l.lane = info_of(fd).lanes + (1u << i) - 1;
		refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "no such lane");
	}
	l = good;
	l.window = 0;
	refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "no window");
	l.window = 257;
	refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "a window of 257");
	l.fd = -1;
	refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "no link with a window");
	l = good;
	l.fd = pipes[1];
	refused(fd, DCMFS_IOC_LINK, &l, ENOTSOCK, "a pipe");
	l.fd = fd;
	refused(fd, DCMFS_IOC_LINK, &l, ENOTSOCK, "itself");
	l.fd = 9999;
	refused(fd, DCMFS_IOC_LINK, &l, EBADF, "no file");
	close(pipes[0]);
	close(pipes[1]);
	close(tcp);
	refused(fd, DCMFS_IOC_ACTIVITY, &act, EINVAL, "no such extent");
	act.extent = 0;
	act.reserved = 1;
	refused(fd, DCMFS_IOC_ACTIVITY, &act, EINVAL, "a flag");
}

static void fields(struct control *c)
{
	int file = memfd_create("slab", MFD_CLOEXEC);
	struct dcmfs_slab good = { .fd = file, .id = 1 }, s;
	unsigned int i;

	if (file < 0 || ftruncate(file, (off_t)(c->info.extent_pages * PAGE)))
		fail("memfd");
	for (i = 0; i < 256; i++) {
		s = good;
		if (i < 32)
			s.flags = 1u << i;
		else if (i < 64)
			s.reserved = 1u << (i - 32);
		else if (i < 96)
			s.rkey = 1u << (i - 64);
		else if (i < 160)
			s.base = 1ull << (i - 96);
		else if (i < 192)
			s.donor = DCMFS_DONORS_MAX + (1u << (i - 160)) - 1;
		else
			s.remote = 1ull << (i - 192);
		/* What its donor calls it may be told of any slab. */
		if (!s.remote)
			refused(fd, DCMFS_IOC_ATTACH, &s, EINVAL, "a flag");
		s.fd = -1;
		refused(fd, DCMFS_IOC_DETACH, &s, EINVAL, "a flag");
		refused(fd, DCMFS_IOC_LOST, &s, EINVAL, "a flag");
	}
	s = good;
	refused(fd, DCMFS_IOC_DETACH, &s, EINVAL, "a file");
	refused(fd, DCMFS_IOC_LOST, &s, EINVAL, "a file");
	for (i = 0; i < 32; i++) {
		s = good;
		s.extent = (uint32_t)c->info.extents + (1u << i) - 1;
		refused(fd, DCMFS_IOC_ATTACH, &s, EINVAL, "no such extent");
		s.fd = -1;
		refused(fd, DCMFS_IOC_DETACH, &s, ENOENT, "no such extent");
		refused(fd, DCMFS_IOC_LOST, &s, ENOENT, "no such extent");
	}
	close(file);
	wrong_links();
}

/* For ATTACH: files that are no slabs. Whoever gets one must close it. */
static void wrong_slabs(struct control *c)
{
	int pipes[2], pair[2], small = memfd_create("small", 0), i;
	off_t whole = (off_t)(c->info.extent_pages * PAGE);
	char path[64];
	struct {
		int fd;
		int err;
		const char *what;
	} list[] = {
		{ fd, EINVAL, "itself" },
		{ open(dir, O_RDONLY | O_DIRECTORY), EINVAL, "a directory" },
		{ open("/dev/zero", O_RDWR), EINVAL, "/dev/zero" },
		{ open("/proc/self/stat", O_RDONLY), EINVAL, "procfs" },
		{ small, EINVAL, "a slab that is too small" },
		{ -1, EINVAL, "a slab open to read" },
		{ -1, EINVAL, "a slab open to write" },
		{ -1, EBADF, "a slab open as a path" },
		{ 9999, EBADF, "no file" },
		{ -1, EBADF, "-1" },
		{ INT32_MIN, EBADF, "INT_MIN" },
		{ -1, EINVAL, "a pipe" },
		{ -1, EINVAL, "a socket" },
	};
	struct dcmfs_slab s = { .id = 1 };
	size_t n = sizeof(list) / sizeof(list[0]), k;
	char byte;

	if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    ftruncate(small, whole))
		fail("files");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", small);
	list[5].fd = open(path, O_RDONLY);
	list[6].fd = open(path, O_WRONLY);
	list[7].fd = open(path, O_PATH);
	if (ftruncate(small, whole - 1))
		fail("ftruncate");
	list[n - 2].fd = pipes[1];
	list[n - 1].fd = pair[1];
	for (i = 0; i < 50; i++)
		for (k = 0; k < n; k++) {
			s.fd = list[k].fd;
			refused(fd, DCMFS_IOC_ATTACH, &s, list[k].err,
				list[k].what);
		}
	for (k = 1; k < n; k++)
		if (list[k].fd > 2 && list[k].fd != 9999)
			close(list[k].fd);
	/* The other ends see nobody any more: all references are gone. */
	if (read(pipes[0], &byte, 1) || read(pair[0], &byte, 1))
		fail("a file that was refused is still held");
	close(pipes[0]);
	close(pair[0]);
}

/* Requests on what is no dcmfs file, or not open as one. */
static void wrong_files(void)
{
	int pipes[2], path, read_only, i;
	char name[64], buf[1024];
	unsigned int k;

	if (pipe(pipes))
		fail("pipe");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	path = open(name, O_PATH);
	read_only = open(name, O_RDONLY);
	if (path < 0 || read_only < 0)
		fail("%s: %s", name, strerror(errno));
	for (k = 0; k < NR_REQUESTS; k++) {
		int other[] = { memfd_create("x", 0), open("/", O_RDONLY),
				open(dir, O_RDONLY | O_DIRECTORY),
				dup(pipes[0]),
				socket(AF_UNIX, SOCK_STREAM, 0) };

		argument(requests[k], buf);
		for (i = 0; i < 5; i++) {
			refused(other[i], requests[k], buf, ENOTTY,
				"not our file");
			close(other[i]);
		}
		refused(path, requests[k], buf, EBADF, "O_PATH");
		refused(-1, requests[k], buf, EBADF, "no file");
		/* What counts is who asks. */
		answers(read_only, requests[k], buf, "open to read");
	}
	close(path);
	close(read_only);
	close(pipes[0]);
	close(pipes[1]);
}

static void not_allowed_here(void)
{
	char buf[1024];
	unsigned int k;

	for (k = 0; k < NR_REQUESTS; k++) {
		argument(requests[k], buf);
		if (requests[k] == DCMFS_IOC_INFO ||
		    requests[k] == DCMFS_IOC_ACTIVITY) {
			answers(fd, requests[k], buf, "by anybody");
			continue;
		}
		refused(fd, requests[k], buf, EPERM, "not allowed");
		/* May not, before anything is looked at. */
		refused(fd, requests[k], NULL, EPERM, "not allowed");
	}
}

static void by_child(bool name_space)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		/* All capabilities there, none here. */
		if (name_space ? unshare(CLONE_NEWUSER) :
				 setresuid(1000, 1000, 1000))
			fail("%s", strerror(errno));
		not_allowed_here();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail("child: %#x", status);
}

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
		uint64_t word[128];
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
			s->rkey = s->reserved = 0;
		}
	}
	if (cmd == DCMFS_IOC_PAIR)
		buf.pair.reserved |= 1;
	if (cmd == DCMFS_IOC_FREEZE || cmd == DCMFS_IOC_SYNC ||
	    cmd == DCMFS_IOC_HINT) {
		struct dcmfs_range *r = &buf.range;

		if (rnd(rng) % 2)
			*r = (struct dcmfs_range){ rnd(rng) % 260 * 16,
						   rnd(rng) % 20 * 16,
						   (uint32_t)rnd(rng) % 2, 0 };
		/* Some are right, and then it must not take long. */
		if (cmd == DCMFS_IOC_SYNC)
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

static void at_random(struct control *c, uint64_t seconds, uint64_t seed)
{
	void *(*run[])(void *) = { send_random, send_random, use_memory };
	uint64_t until = now_ns() + seconds * 1000000000u, told[3];
	pthread_t thread[3];
	struct dcmfs_info i;
	unsigned int k;

	for (k = 0; k < 3; k++) {
		told[k] = (seed + k + 1) * 0x9e3779b97f4a7c15ull;
		if (pthread_create(&thread[k], NULL, run[k], &told[k]))
			fail("pthread_create");
	}
	while (now_ns() < until) {
		control_serve(c, 20);
		/* What the others set may be more than all. */
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

/* ioctls DIR SECONDS SEED */
int ioctls(int argc, char **argv)
{
	uint64_t seconds = strtoull(argv[3], NULL, 0);
	uint64_t seed = strtoull(argv[4], NULL, 0);
	struct dcmfs_info begin, end;
	struct control c;

	(void)argc;
	dir = argv[2];
	fd = file_make(dir, SIZE);
	mem = map_shared(fd, SIZE);
	control_open(&c, fd);
	c.next_id = FIRST_ID;
	if (control_budget(&c, PAGES / 2))
		fail("budget");
	control_in_order(&c);
	begin = info_of(fd);

	numbers();
	printf("numbers and sizes: right\n");
	pointers();
	printf("pointers: right\n");
	fields(&c);
	printf("fields: right\n");
	wrong_slabs(&c);
	printf("files that are no slabs: right\n");
	wrong_files();
	printf("files that are not ours: right\n");
	by_child(false);
	by_child(true);
	printf("permission: right\n");
	in_itself(&c);
	printf("arguments in the file: right\n");
	at_random(&c, seconds, seed);

	control_squeeze(&c);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole: %s", strerror(errno));
	end = info_of(fd);
	if (end.frames != begin.frames || end.direct_pages)
		fail("%ju frames held, %ju in the beginning; %ju direct",
		     (uintmax_t)end.frames, (uintmax_t)begin.frames,
		     (uintmax_t)end.direct_pages);
	return 0;
}
