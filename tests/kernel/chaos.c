// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * chaos.c - everything a program can do to dcmfs files, at random, at once
 *
 * Processes share a few files and map, unmap, truncate, punch, fork, read and
 * write through system calls, send ioctls with wrong and nearly right
 * arguments, and die at any moment. No content is checked (torture.c does
 * that): the kernel must not complain, nothing may hang, and all must be gone
 * when the files are.
 *
 * A process that is killed may end only after another one: ftruncate() can't be
 * killed while it waits for the file's lock, and the process that has the lock may
 * punch a hole and wait for a page that never comes. So no process is waited for
 * before all are killed. Each run begins with two such processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"
#include "../framework/orphan.h"

#define FILES 3
#define MAPS 4
#define PAGES 2048u /* of a file */
#define PROCESSES 4

struct mess {
	const char *dir;
	int file[FILES];
	char *map[MAPS];
	size_t bytes[MAPS];
	uint64_t rng;
	uint64_t ops;
};

static sigjmp_buf bus;

static void on_bus(int sig)
{
	siglongjmp(bus, sig);
}

static uint64_t below(struct mess *m, uint64_t n)
{
	return rnd(&m->rng) % n;
}

static int any_file(struct mess *m)
{
	return m->file[below(m, FILES)];
}

/* Numbers that are at an edge more often than not. */
static uint64_t number(struct mess *m)
{
	static const uint64_t edges[] = {
		0,
		1,
		2,
		PAGE - 1,
		PAGE,
		PAGES,
		PAGES * PAGE,
		INT32_MAX,
		UINT32_MAX,
		UINT64_MAX,
	};

	switch (below(m, 3)) {
	case 0:
		return edges[below(m, sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return below(m, 16);
	default:
		return rnd(&m->rng);
	}
}

static void do_map(struct mess *m)
{
	uint64_t slot = below(m, MAPS);
	int prot = below(m, 4) ? PROT_READ | PROT_WRITE : PROT_READ;
	off_t at = (off_t)(below(m, PAGES) * PAGE);
	char *p;

	if (m->map[slot])
		munmap(m->map[slot], m->bytes[slot]);
	m->map[slot] = NULL;
	m->bytes[slot] = (1 + below(m, PAGES)) * PAGE;
	p = mmap(NULL, m->bytes[slot], prot, MAP_SHARED, any_file(m), at);
	if (p != MAP_FAILED)
		m->map[slot] = p;
}

static void do_touch(struct mess *m)
{
	uint64_t slot = below(m, MAPS), n = 1 + below(m, 64);
	volatile char *p = m->map[slot];
	uint64_t at;

	if (!p || sigsetjmp(bus, 1))
		return;
	for (at = below(m, m->bytes[slot]); n-- && at < m->bytes[slot];
	     at += PAGE) {
		(void)p[at];
		if (n & 1)
			p[at] = (char)n;
	}
}

static void do_system_call(struct mess *m)
{
	uint64_t slot = below(m, MAPS);
	char *p = m->map[slot];
	int fd[2];
	struct iovec v;

	if (!p || pipe(fd))
		return;
	v.iov_base = p + below(m, m->bytes[slot]);
	v.iov_len = 1 + below(m, 3 * PAGE);
	if (v.iov_len > m->bytes[slot] - (size_t)((char *)v.iov_base - p))
		v.iov_len = m->bytes[slot] - (size_t)((char *)v.iov_base - p);
	/* Errors are answers too: lost, beyond the end, read only. */
	if (below(m, 2) && vmsplice(fd[1], &v, 1, SPLICE_F_NONBLOCK) < 0)
		m->ops++;
	if (write(fd[1], v.iov_base, v.iov_len > PAGE ? PAGE : v.iov_len) > 0 &&
	    read(fd[0], v.iov_base, v.iov_len) < 0)
		m->ops++;
	close(fd[0]);
	close(fd[1]);
}

static void do_advice(struct mess *m)
{
	static const int advice[] = { MADV_DONTNEED, MADV_REMOVE,
				      MADV_WILLNEED, MADV_COLD,
				      MADV_PAGEOUT,  MADV_DONTFORK,
				      MADV_DOFORK,   MADV_HUGEPAGE };
	uint64_t slot = below(m, MAPS), at, pages;

	if (!m->map[slot])
		return;
	pages = m->bytes[slot] / PAGE;
	at = below(m, pages);
	if (madvise(m->map[slot] + at * PAGE, (1 + below(m, pages - at)) * PAGE,
		    advice[below(m, sizeof(advice) / sizeof(advice[0]))]))
		m->ops++;
	if (mprotect(m->map[slot], m->bytes[slot],
		     below(m, 2) ? PROT_READ : PROT_READ | PROT_WRITE))
		m->ops++;
	if (!below(m, 4) && mlock(m->map[slot], m->bytes[slot]))
		m->ops++;
}

static void do_resize(struct mess *m)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	int fd = any_file(m);

	if (!below(m, 4) && ftruncate(fd, (off_t)(below(m, PAGES + 1) * PAGE)))
		m->ops++;
	if (!below(m, 8) && ftruncate(fd, (off_t)number(m)))
		m->ops++;
	if (ftruncate(fd, PAGES * PAGE))
		m->ops++;
	if (fallocate(fd, hole, (off_t)(below(m, PAGES) * PAGE),
		      (off_t)((1 + below(m, 64)) * PAGE)))
		m->ops++;
	if (fallocate(fd, (int)number(m), (off_t)number(m), (off_t)number(m)))
		m->ops++;
}

static void do_slab(struct mess *m)
{
	static const unsigned long slab[] = { DCMFS_IOC_ATTACH,
					      DCMFS_IOC_DETACH,
					      DCMFS_IOC_LOST };
	struct dcmfs_slab arg = { .extent = (uint32_t)below(m, 6),
				  .id = 1 + below(m, 12),
				  .fd = -1 };
	unsigned long cmd = slab[below(m, 8) ? 0 : 1 + below(m, 2)];
	int fd = -1;

	if (cmd == DCMFS_IOC_ATTACH) {
		fd = memfd_create("slab", MFD_CLOEXEC);
		/* With failures injected there may be none. */
		if (ftruncate(fd, (off_t)((512 + below(m, 2)) * PAGE)))
			m->ops++;
		arg.fd = fd;
	}
	if (!below(m, 4))
		arg.extent = (uint32_t)number(m);
	if (!below(m, 4))
		arg.id = number(m);
	if (!below(m, 8))
		arg.fd = below(m, 2) ? any_file(m) : (int)number(m);
	if (!below(m, 8))
		arg.flags = (uint32_t)number(m);
	/* A move that finds no room may wait for a slab that nobody gives. */
	alarm(1);
	if (ioctl(any_file(m), cmd, &arg))
		m->ops++;
	alarm(0);
	/* A donor takes its memory back. */
	if (fd >= 0 && !below(m, 4) && ftruncate(fd, 0))
		m->ops++;
	if (fd >= 0)
		close(fd);
}

static void do_ioctl(struct mess *m)
{
	uint64_t buf[40], budget = 200 + below(m, PAGES);
	size_t i;

	for (i = 0; i < sizeof(buf) / sizeof(buf[0]); i++)
		buf[i] = number(m);
	if (ioctl(any_file(m), DCMFS_IOC_BUDGET, below(m, 2) ? &budget : buf))
		m->ops++;
	alarm(1);
	if (ioctl(any_file(m),
		  _IOC(below(m, 4), 0xDC, below(m, 14),
				    below(m, 2) ? below(m, 128) : 24),
		  below(m, 8) ? (void *)buf : (void *)number(m)))
		m->ops++;
	alarm(0);
}

/* A child with all our mappings, that may be killed at any point. */
static void do_fork(struct mess *m)
{
	/* It may wait for memory that can't come, and we may be killed. */
	pid_t pid = fork_no_orphan();
	int i;

	if (pid < 0)
		return;
	if (!pid) {
		for (i = 0; i < 20; i++)
			do_touch(m);
		_exit(0);
	}
	usleep((useconds_t)below(m, 5000));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void run(struct mess *m, uint64_t until_ns)
{
	static void (*const ops[])(struct mess *) = {
		do_map,	    do_touch,	    do_touch, do_touch,
		do_touch,   do_system_call, do_advice, do_resize,
		do_slab,    do_slab,	    do_ioctl,  do_fork,
	};
	struct sigaction sa = { .sa_handler = on_alarm };
	int unlucky = open("/proc/self/make-it-fail", O_WRONLY);

	/* For the kernel's fault injection, where there is any. */
	if (unlucky >= 0 && (write(unlucky, "1", 1) != 1 || close(unlucky)))
		fail("make-it-fail: %s", strerror(errno));
	sigaction(SIGALRM, &sa, NULL);
	signal(SIGBUS, on_bus);
	signal(SIGSEGV, on_bus);
	while (now_ns() < until_ns) {
		ops[below(m, sizeof(ops) / sizeof(ops[0]))](m);
		m->ops++;
	}
	_exit(0);
}

static pid_t forked(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	return pid;
}

/* Return when the process sleeps in that system call. */
static void seen_in(pid_t pid, long call)
{
	uint64_t until = now_ns() + 60000000000u;
	char name[64];
	long in = -1;

	snprintf(name, sizeof(name), "/proc/%d/syscall", (int)pid);
	while (in != call) {
		FILE *file = fopen(name, "r");

		if (!file || now_ns() > until)
			fail("a process does not wait in system call %ld",
			     call);
		if (fscanf(file, "%ld", &in) != 1)
			in = -1; /* it runs */
		fclose(file);
		usleep(1000);
	}
}

/*
 * A file with a page that never comes, since its slab is cut off, and three
 * processes: one needs the page; the first has the file's lock and waits for the
 * page; the second waits for the lock, and can't be killed before the first is.
 */
static void entangle(const char *dir, pid_t *child)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct dcmfs_range some = { .pages = 16, .limit_ms = 60000 };
	int fd = file_make(dir, PAGES * PAGE);
	char *map = map_shared(fd, PAGES * PAGE);
	struct control c;

	control_open(&c, fd);
	control_provide(&c, 0);
	memset(map, 1, some.pages * PAGE);
	if (ioctl(fd, DCMFS_IOC_SYNC, &some) || ftruncate(c.file[0], 0))
		fail("sync: %s", strerror(errno));
	child[2] = forked();
	if (!child[2])
		_exit(readable(map));
	while (!info_of(fd).direct_pages)
		usleep(1000); /* the page is not being fetched yet */
	child[0] = forked();
	if (!child[0])
		_exit(!!fallocate(fd, hole, 0, PAGES * PAGE));
	seen_in(child[0], SYS_fallocate);
	child[1] = forked();
	if (!child[1])
		_exit(!!ftruncate(fd, 0));
	seen_in(child[1], SYS_ftruncate);
	munmap(map, PAGES * PAGE);
	close(c.file[0]);
	free(c.file);
	free(c.slab);
	close(fd);
}

/* Reap children that have ended: WNOHANG; or wait for all of them: 0. */
static void reap(pid_t *child, int options)
{
	unsigned int i;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, options)) > 0)
		for (i = 0; i < PROCESSES; i++)
			if (child[i] == pid)
				child[i] = 0;
}

/* chaos DIR SECONDS SEED */
int chaos(int argc, char **argv)
{
	struct mess m = { .dir = argv[2],
			  .rng = strtoull(argv[4], NULL, 0) * 2 + 1 };
	pid_t child[PROCESSES] = { 0 };
	unsigned int i, started = 0;
	uint64_t until;

	(void)argc;
	/* A child's child that outlives it has the files, too. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		fail("subreaper: %s", strerror(errno));
	for (i = 0; i < FILES; i++) {
		m.file[i] = open(m.dir, O_TMPFILE | O_RDWR, 0600);
		if (m.file[i] < 0 || ftruncate(m.file[i], PAGES * PAGE))
			fail("%s: %s", m.dir, strerror(errno));
	}
	entangle(m.dir, child);
	until = now_ns() + strtoull(argv[3], NULL, 0) * 1000000000u;
	while (now_ns() < until) {
		/* The second of the two before the first, see entangle(). */
		i = started < PROCESSES ? PROCESSES - 1 - started :
					  (unsigned int)below(&m, PROCESSES);
		if (child[i])
			kill(child[i], SIGKILL);
		reap(child, WNOHANG);
		m.rng++;
		child[i] = forked();
		if (!child[i])
			run(&m, until);
		started++;
		usleep(100000 + (useconds_t)below(&m, 200000));
	}
	/* Whoever waits for memory that can't come does so until killed. */
	for (i = 0; i < PROCESSES; i++)
		if (child[i])
			kill(child[i], SIGKILL);
	reap(child, 0);
	printf("chaos: %u processes\n", started);
	return 0;
}
