// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * links.c - donors at the other end of a socket: what they say, and don't say
 *
 * One process is the control plane and the donor (wire_donor.c), its children
 * use the memory. Each check has a name that is printed when it passed.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"
#include "wire_donor.h"

#define SIZE (16u << 20)

/**
 * struct bed - a file of which half is at the donor
 */
struct bed {
	struct control c;
	char *mem;
};

static const char *dir;

static void write_all(char *m)
{
	size_t i;

	for (i = 0; i < SIZE; i += PAGE) {
		*(size_t *)(m + i) = i + 1;
		*(size_t *)(m + i + PAGE - sizeof(size_t)) = ~i;
	}
}

static void check_all(char *m)
{
	size_t i;

	for (i = 0; i < SIZE; i += PAGE)
		if (*(size_t *)(m + i) != i + 1 ||
		    *(size_t *)(m + i + PAGE - sizeof(size_t)) != ~i)
			fail("page %zu holds %zu", i / PAGE,
			     *(size_t *)(m + i));
}

static void read_first(char *m)
{
	*(volatile char *)m;
}

static pid_t child(struct bed *b, void (*run)(char *m))
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (!pid) {
		run(b->mem);
		_exit(0);
	}
	return pid;
}

static bool ended(pid_t pid)
{
	int status;

	if (!waitpid(pid, &status, WNOHANG))
		return false;
	if (status)
		fail("a child ended with %#x", status);
	return true;
}

static void run(struct bed *b, void (*what)(char *m))
{
	pid_t pid = child(b, what);

	while (!ended(pid))
		control_serve(&b->c, 5);
}

static void bed_open(struct bed *b)
{
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);

	if (fd < 0 || ftruncate(fd, SIZE))
		fail("O_TMPFILE in %s: %s", dir, strerror(errno));
	b->mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b->mem == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	control_open(&b->c, fd);
	if (control_budget(&b->c, SIZE / PAGE / 2))
		fail("budget");
	run(b, write_all);
}

static void bed_close(struct bed *b)
{
	uint32_t i;

	munmap(b->mem, SIZE);
	close(b->c.fd);
	for (i = 0; i < b->c.info.lanes; i++)
		close(b->c.link[i]);
	for (i = 0; i < b->c.info.extents; i++)
		if (b->c.slab[i])
			wire_donor_drop((uint64_t)b->c.file[i]);
	free(b->c.link);
	free(b->c.slab);
	free(b->c.file);
}

static void there_and_back(void)
{
	struct bed b;
	uint32_t e;

	bed_open(&b);
	run(&b, check_all);
	for (e = 0; e < b.c.info.extents; e++)
		control_move(&b.c, e);
	run(&b, check_all);
	b.c.info = info_of(b.c.fd);
	if (b.c.info.direct_pages > b.c.info.budget_pages ||
	    b.c.info.lost_pages)
		fail("%ju pages direct of %ju, %ju lost",
		     (uintmax_t)b.c.info.direct_pages,
		     (uintmax_t)b.c.info.budget_pages,
		     (uintmax_t)b.c.info.lost_pages);
	bed_close(&b);
}

/* Each lie ends the connection; what was asked is asked again over another. */
static void lies(void)
{
	static const enum wire_lie lie[] = { LIE_TAG,	LIE_TYPE,  LIE_LENGTH,
					     LIE_HUGE,	LIE_MAGIC, LIE_HANGUP,
					     LIE_REFUSE };
	struct bed b;
	size_t i;

	bed_open(&b);
	for (i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
		pid_t pid = child(&b, check_all);
		unsigned int mended = 0, want = lie[i] != LIE_REFUSE;

		wire_donor_lie(lie[i]);
		while (!ended(pid)) {
			mended += control_mend(&b.c);
			control_serve(&b.c, 1);
		}
		mended += control_mend(&b.c);
		/* The last thing that was asked may have been answered so. */
		for (unsigned int ms = 0; mended < want && ms < 5000; ms++) {
			usleep(1000);
			mended += control_mend(&b.c);
		}
		if (!wire_donor_lied())
			fail("lie %zu was not told", i);
		if (mended < want || (!want && mended))
			fail("lie %zu: %u connections ended", i, mended);
	}
	if (info_of(b.c.fd).lost_pages)
		fail("pages lost");
	bed_close(&b);
}

/* No link: a process that needs the donor waits and can be killed; others go on. */
static void cut(void)
{
	struct bed b;
	uint32_t i;
	pid_t pid;
	int status;

	bed_open(&b);
	read_first(b.mem);
	for (i = 0; i < b.c.info.lanes; i++) {
		control_link(&b.c, i, -1);
		close(b.c.link[i]);
		b.c.link[i] = -1;
	}
	pid = child(&b, check_all);
	usleep(500000);
	if (waitpid(pid, &status, WNOHANG))
		fail("memory was read without its donor");
	read_first(b.mem);
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || status != SIGKILL)
		fail("the process that waits for a donor ended with %#x",
		     status);
	run(&b, check_all);
	bed_close(&b);
}

static void count_majors(char *m)
{
	long n = majors();

	check_all(m);
	n = majors() - n;
	/* Half was here; the rest came in blocks of 64 KiB at most. */
	if (n < (long)(SIZE / PAGE / 2 / 16) || n > (long)(SIZE / PAGE))
		fail("%ld major faults for %u pages", n, SIZE / PAGE);
}

/* Tried again for that, or not: one each; none is brought in ahead. */
static void major_faults(void)
{
	struct bed b;

	bed_open(&b);
	control_tune(&b.c, "stream", 0);
	run(&b, count_majors);
	bed_close(&b);
}

/* It says nothing: given up after a while, and well again later. */
static void silence(void)
{
	unsigned int mended = 0;
	struct bed b;
	pid_t pid;

	bed_open(&b);
	wire_donor_sleep(true);
	pid = child(&b, check_all);
	while (!mended)
		mended = control_mend(&b.c);
	if (ended(pid))
		fail("memory was read without its donor");
	wire_donor_sleep(false);
	while (!ended(pid))
		control_serve(&b.c, 5);
	bed_close(&b);
}

/* All goes while a READ is under way. */
static void dropped(void)
{
	struct bed b;
	int status;
	pid_t pid;

	bed_open(&b);
	wire_donor_sleep(true);
	pid = child(&b, check_all);
	usleep(300000);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	bed_close(&b);
	wire_donor_sleep(false);
}

static int link_errno(struct control *c, struct dcmfs_link l)
{
	return ioctl(c->fd, DCMFS_IOC_LINK, &l) ? errno : 0;
}

static void must_be(const char *what, int err, int want)
{
	if (err != want)
		fail("%s: errno %d (%s) instead of %d", what, err,
		     strerror(err), want);
}

static void requests(void)
{
	struct dcmfs_link l = { .donor = 5, .lane = 0, .window = 8 };
	int udp = socket(AF_INET, SOCK_DGRAM, 0), pair[2];
	int tcp = socket(AF_INET, SOCK_STREAM, 0);
	struct dcmfs_link bad;
	struct dcmfs_slab s = { .extent = 0,
				.fd = -1,
				.id = 1u << 20,
				.flags = DCMFS_SLAB_REMOTE,
				.donor = DCMFS_DONORS_MAX };
	struct bed b;

	bed_open(&b);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		fail("socketpair");
	l.fd = 9999;
	must_be("no descriptor", link_errno(&b.c, l), EBADF);
	l.fd = b.c.fd;
	must_be("no socket", link_errno(&b.c, l), ENOTSOCK);
	l.fd = udp;
	must_be("udp", link_errno(&b.c, l), EINVAL);
	l.fd = pair[0];
	must_be("unix", link_errno(&b.c, l), EINVAL);
	l.fd = tcp;
	must_be("not connected", link_errno(&b.c, l), ENOTCONN);
	close(tcp);
	tcp = l.fd = wire_donor_connect();
	bad = l;
	bad.window = 0;
	must_be("no window", link_errno(&b.c, bad), EINVAL);
	bad.window = 257;
	must_be("window", link_errno(&b.c, bad), EINVAL);
	bad = l;
	bad.lane = b.c.info.lanes;
	must_be("lane", link_errno(&b.c, bad), EINVAL);
	bad = l;
	bad.donor = DCMFS_DONORS_MAX;
	must_be("donor", link_errno(&b.c, bad), EINVAL);
	bad = l;
	bad.flags = 1;
	must_be("flags", link_errno(&b.c, bad), EINVAL);
	bad = l;
	bad.late_ms = DCMFS_LIMIT_MAX_MS + 1;
	must_be("late", link_errno(&b.c, bad), EINVAL);
	must_be("a good one", link_errno(&b.c, l), 0);
	must_be("the same again", link_errno(&b.c, l), EBUSY);
	l.fd = -1;
	l.window = 0;
	must_be("none", link_errno(&b.c, l), 0);
	must_be("none again", link_errno(&b.c, l), 0);
	close(tcp);
	if (!ioctl(b.c.fd, DCMFS_IOC_ATTACH, &s) || errno != EINVAL)
		fail("a slab of donor %u", s.donor);
	s.donor = 1;
	s.fd = pair[0];
	if (!ioctl(b.c.fd, DCMFS_IOC_ATTACH, &s) || errno != EINVAL)
		fail("a remote slab with a descriptor");
	s.fd = -1;
	s.flags |= 2;
	if (!ioctl(b.c.fd, DCMFS_IOC_ATTACH, &s) || errno != EINVAL)
		fail("unknown flags");
	close(pair[0]);
	close(pair[1]);
	close(udp);
	bed_close(&b);
}

/* links DIR */
int links(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "there and back", there_and_back },
		{ "lies", lies },
		{ "cut", cut },
		{ "silence", silence },
		{ "dropped", dropped },
		{ "major faults", major_faults },
		{ "requests", requests },
	};
	size_t i;

	(void)argc;
	dir = argv[2];
	setenv("DCMFS_TEST_TCP", "1", 1);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		tests[i].run();
		printf("passed: %s\n", tests[i].name);
	}
	return 0;
}
