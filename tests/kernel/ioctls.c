// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ioctls.c - requests that must be refused, while the file is in use
 *
 * First one by one: every request with wrong numbers and sizes, with pointers to
 * nothing, to memory that ends in their middle, to memory of the file itself,
 * on files that are not ours, and by users who may not make it. Then at random, see
 * ioctls_random.c. In the end the file works and has the right content, and the
 * kernel holds no descriptor that was handed in.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ioctls.h"

static const char *dir;
static int fd;
static char *mem;

static void refused(int file, unsigned int cmd, void *arg, int err,
		    const char *what)
{
	char text[96];

	snprintf(text, sizeof(text), "request %#x, %s", cmd, what);
	expect(ioctl(file, cmd, arg), err, text);
}

bool about_slab(unsigned int cmd)
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
	struct dcmfs_fill fill = { .extent = UINT32_MAX };
	struct dcmfs_keep none = { .fd = -1 };

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
	else if (cmd == DCMFS_IOC_SYNC || cmd == DCMFS_IOC_SPREAD ||
		 cmd == DCMFS_IOC_REVERT)
		memcpy(buf, &away, sizeof(away));
	else if (cmd == DCMFS_IOC_HINT)
		memcpy(buf, &one, sizeof(one));
	else if (cmd == DCMFS_IOC_WRITE_COUNT)
		memcpy(buf, &count, sizeof(count));
	else if (cmd == DCMFS_IOC_FILL)
		memcpy(buf, &fill, sizeof(fill));
	else if (cmd == DCMFS_IOC_KEEP)
		memcpy(buf, &none, sizeof(none));
}

/* The error that a request returns for its valid argument; 0: it is done. */
static int answer(unsigned int cmd)
{
	switch (cmd) {
	case DCMFS_IOC_ATTACH:
		return EBADF;
	case DCMFS_IOC_DETACH:
	case DCMFS_IOC_LOST:
	case DCMFS_IOC_WANTED:
	case DCMFS_IOC_SLAB:
	case DCMFS_IOC_FILL:
		return ENOENT;
	case DCMFS_IOC_PAIR:
	case DCMFS_IOC_SYNC:
	case DCMFS_IOC_SEAL: /* no such cipher */
	case DCMFS_IOC_SPREAD:
	case DCMFS_IOC_REVERT:
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
	char buf[4096] = { 0 };
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
		l.late_ms = DCMFS_LIMIT_MAX_MS + (1u << i);
		if (l.late_ms > DCMFS_LIMIT_MAX_MS)
			refused(fd, DCMFS_IOC_LINK, &l, EINVAL,
				"late for ever");
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
	l.window = 0;
	l.late_ms = 1;
	refused(fd, DCMFS_IOC_LINK, &l, EINVAL, "no link that is late");
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
	act.flags = 1;
	refused(fd, DCMFS_IOC_ACTIVITY, &act, EINVAL, "a flag");
}

/* A socket that is kept is kept until another one is, or none. */
static void wrong_keeps(void)
{
	struct dcmfs_keep k = { .fd = -1 };
	int pair[2], other[2], i;
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, other))
		fail("sockets");
	for (i = 0; i < 32; i++) {
		k.donor = DCMFS_DONORS_MAX + (1u << i) - 1;
		refused(fd, DCMFS_IOC_KEEP, &k, EINVAL, "no such donor");
	}
	k.donor = DCMFS_DONORS_MAX - 1;
	k.fd = fd;
	refused(fd, DCMFS_IOC_KEEP, &k, ENOTSOCK, "itself");
	k.fd = 9999;
	refused(fd, DCMFS_IOC_KEEP, &k, EBADF, "no file");
	k.fd = -2;
	refused(fd, DCMFS_IOC_KEEP, &k, EBADF, "-2");
	k.fd = pair[0];
	if (ioctl(fd, DCMFS_IOC_KEEP, &k))
		fail("a socket is not kept: %s", strerror(errno));
	close(pair[0]);
	expect(recv(pair[1], &byte, 1, MSG_DONTWAIT), EAGAIN, "it is kept");
	k.fd = other[0];
	if (ioctl(fd, DCMFS_IOC_KEEP, &k))
		fail("another is not kept: %s", strerror(errno));
	if (recv(pair[1], &byte, 1, 0))
		fail("the first one is still kept");
	k.fd = -1;
	if (ioctl(fd, DCMFS_IOC_KEEP, &k))
		fail("none is not kept: %s", strerror(errno));
	close(other[0]);
	if (recv(other[1], &byte, 1, 0))
		fail("the other one is still kept");
	close(pair[1]);
	close(other[1]);
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
			s.order = 1u << (i - 32);
		else if (i < 96)
			s.rkey = 1u << (i - 64);
		else if (i < 160)
			s.base = 1ull << (i - 96);
		else if (i < 192)
			s.donor = DCMFS_DONORS_MAX + (1u << (i - 160)) - 1;
		else
			s.remote = 1ull << (i - 192);
		/* The donor's id of any slab may be set. */
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
	wrong_keeps();
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
	char name[64], buf[4096];
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
		/* The caller's rights count, not how it opened the file. */
		answers(read_only, requests[k], buf, "open to read");
	}
	close(path);
	close(read_only);
	close(pipes[0]);
	close(pipes[1]);
}

static void not_allowed_here(void)
{
	char buf[4096];
	unsigned int k;

	for (k = 0; k < NR_REQUESTS; k++) {
		argument(requests[k], buf);
		if (requests[k] == DCMFS_IOC_INFO ||
		    requests[k] == DCMFS_IOC_FAULTS ||
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
	ioctls_at_random(&c, dir, mem, seconds, seed);

	control_squeeze(&c);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole: %s", strerror(errno));
	control_frames(&c, begin.frames - begin.reserve);
	end = info_of(fd);
	if (end.direct_pages)
		fail("%ju pages are direct", (uintmax_t)end.direct_pages);
	return 0;
}
