// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * access.c - accesses to mapped memory by others than its process
 *
 * The kernel on behalf of a process, devices, other processes: every way takes
 * pages that are on a slab at that moment, and what is written by it has to
 * survive the page's leaving. Pages that somebody holds stay while he does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"
#include "../framework/orphan.h"

#define SIZE (8u << 20)
#define PAGES (SIZE / PAGE)
#define PART (64 * PAGE)

static const char *dir;
static struct control control;
static int fd;

/* A new file, each byte of a page the page's number, all on slabs. */
static char *fresh(void)
{
	char *m = control_map(&control, dir, SIZE);
	size_t p;

	fd = control.fd;
	for (p = 0; p < PAGES; p++)
		memset(m + p * PAGE, (int)p & 0xff, PAGE);
	/* The first ones came first and leave first. */
	control_squeeze(&control);
	return m;
}

static void is(const char *m, size_t bytes, size_t page, const char *what)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		if ((unsigned char)m[i] != ((page + i / PAGE) & 0xff))
			fail("%s: byte %zu is %d", what, i, m[i]);
}

static void done(char *m)
{
	control_squeeze(&control);
	is(m, SIZE, 0, "at the end");
	control_unmap(&control, m, SIZE);
}

static bool out(char *m)
{
	unsigned char there[PART / PAGE];
	size_t i;

	if (mincore(m, PART, there))
		fail("mincore: %s", strerror(errno));
	for (i = 0; i < sizeof(there); i++)
		if (there[i])
			return false;
	return true;
}

/* A disk's own transfers into the memory, and out of it. */
static void direct_io(void)
{
	char name[] = "/var/tmp/direct-XXXXXX", *m = fresh(), *copy;
	int file = mkstemp(name), direct = open(name, O_RDWR | O_DIRECT);

	copy = aligned_alloc(PAGE, PART);
	if (file < 0 || direct < 0 || !copy)
		fail("%s: %s", name, strerror(errno));
	unlink(name);
	if (!out(m))
		fail("it is still here");
	if (write(direct, m, PART) != PART)
		fail("O_DIRECT from it: %s", strerror(errno));
	fsync(direct);
	if (pread(direct, copy, PART, 0) != PART)
		fail("pread: %s", strerror(errno));
	is(copy, PART, 0, "written to disk");
	memset(m, 0, PART);
	control_squeeze(&control);
	if (pread(direct, m, PART, 0) != PART)
		fail("O_DIRECT into it: %s", strerror(errno));
	is(m, PART, 0, "read from disk");
	free(copy);
	close(file);
	close(direct);
	done(m);
}

/* Pages in a pipe are held; what a hole takes away stays in the pipe. */
static void pipes(void)
{
	char *m = fresh(), copy[4 * PAGE];
	struct iovec v = { m, sizeof(copy) };
	int p[2];

	if (pipe(p) || vmsplice(p[1], &v, 1, SPLICE_F_GIFT) != sizeof(copy))
		fail("vmsplice: %s", strerror(errno));
	control_squeeze(&control);
	if (read(p[0], copy, PAGE) != PAGE)
		fail("read: %s", strerror(errno));
	is(copy, PAGE, 0, "through a pipe");
	/* Held, and the same page as in the mapping. */
	m[PAGE] = 77;
	if (read(p[0], copy, 1) != 1 || copy[0] != 77)
		fail("the pipe has another page than the mapping");
	m[PAGE] = 1;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole: %s", strerror(errno));
	if (m[2 * PAGE] || m[3 * PAGE])
		fail("a hole under a held page");
	if (read(p[0], copy, 3 * PAGE - 1) != 3 * PAGE - 1)
		fail("read: %s", strerror(errno));
	is(copy + PAGE - 1, 2 * PAGE, 2, "what was held");
	close(p[0]);
	close(p[1]);
	for (p[0] = 0; p[0] < (int)PAGES; p[0]++)
		memset(m + (size_t)p[0] * PAGE, p[0] & 0xff, PAGE);
	done(m);
}

/* The file itself is no stream. */
static void streams(void)
{
	char *m = fresh(), byte;
	int p[2], other = memfd_create("x", 0);
	loff_t at = 0;

	if (pipe(p) || ftruncate(other, PAGE) || write(p[1], "x", 1) != 1)
		fail("files");
	expect(read(fd, &byte, 1), EINVAL, "read");
	expect(write(fd, "x", 1), EINVAL, "write");
	expect(splice(fd, &at, p[1], NULL, PAGE, 0), EINVAL, "splice from it");
	expect(splice(p[0], NULL, fd, &at, 1, 0), EINVAL, "splice to it");
	expect(sendfile(p[1], fd, NULL, PAGE), EINVAL, "sendfile");
	if (copy_file_range(fd, NULL, other, NULL, PAGE, 0) >= 0 ||
	    copy_file_range(other, NULL, fd, NULL, PAGE, 0) >= 0)
		fail("copy_file_range");
	close(other);
	close(p[0]);
	close(p[1]);
	done(m);
}

static void peek(pid_t pid, char *m)
{
	long word;
	int status;

	if (ptrace(PTRACE_ATTACH, pid, 0, 0) || waitpid(pid, &status, 0) != pid)
		fail("PTRACE_ATTACH: %s", strerror(errno));
	errno = 0;
	word = ptrace(PTRACE_PEEKDATA, pid, m + 5 * PAGE, 0);
	if (errno || word != 0x0505050505050505l)
		fail("PTRACE_PEEKDATA: %lx, %s", word, strerror(errno));
	if (ptrace(PTRACE_POKEDATA, pid, m + 200 * PAGE, 0x1122334455667788l))
		fail("PTRACE_POKEDATA: %s", strerror(errno));
	if (ptrace(PTRACE_DETACH, pid, 0, 0))
		fail("PTRACE_DETACH: %s", strerror(errno));
}

/* Another process' memory, of which nothing is mapped here. */
static void processes(void)
{
	char *m = fresh(), *copy = malloc(PART), name[64];
	struct iovec here = { copy, PART }, there = { m, PART };
	int status, file;
	pid_t pid = fork_no_orphan();

	if (!pid) {
		for (;;)
			pause();
	}
	munmap(m, SIZE);
	snprintf(name, sizeof(name), "/proc/%d/mem", pid);
	file = open(name, O_RDWR);
	if (process_vm_readv(pid, &here, 1, &there, 1, 0) == PART) {
		is(copy, PART, 0, "process_vm_readv");
		memset(copy, 0xee, PART);
		there.iov_base = m + 300 * PAGE;
		if (process_vm_writev(pid, &here, 1, &there, 1, 0) != PART)
			fail("process_vm_writev: %s", strerror(errno));
	} else if (errno != ENOSYS) {
		fail("process_vm_readv: %s", strerror(errno));
	} else {
		/* A kernel without CONFIG_CROSS_MEMORY_ATTACH. */
		fprintf(stderr, "no process_vm_readv: by %s only\n", name);
		memset(copy, 0xee, PART);
		if (pwrite(file, copy, PART,
			   (off_t)(uintptr_t)m + 300 * PAGE) != PART)
			fail("%s: %s", name, strerror(errno));
	}
	peek(pid, m);
	if (file < 0 ||
	    pwrite(file, "zz", 2, (off_t)(uintptr_t)m + 9 * PAGE) != 2)
		fail("%s: %s", name, strerror(errno));
	close(file);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	m = map_shared(fd, SIZE);
	control_squeeze(&control);
	if (memcmp(m + 300 * PAGE, copy, PART) ||
	    memcmp(m + 9 * PAGE, "zz", 2) ||
	    *(long *)(m + 200 * PAGE) != 0x1122334455667788l)
		fail("what another process wrote is gone");
	memset(m + 9 * PAGE, 9, PAGE);
	memset(m + 200 * PAGE, 200, PAGE);
	for (status = 300; status < 364; status++)
		memset(m + (size_t)status * PAGE, status & 0xff, PAGE);
	free(copy);
	done(m);
}

struct ring {
	int fd;
	char *sq;
	char *cq;
	struct io_uring_sqe *sqe;
	struct io_uring_params p;
};

static void ring_make(struct ring *r)
{
	memset(r, 0, sizeof(*r));
	r->fd = (int)syscall(SYS_io_uring_setup, 4, &r->p);
	if (r->fd < 0)
		fail("io_uring_setup: %s", strerror(errno));
	r->sq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_CQ_RING);
	r->sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		      IORING_OFF_SQES);
	if (r->sq == MAP_FAILED || r->cq == MAP_FAILED || r->sqe == MAP_FAILED)
		fail("a ring: %s", strerror(errno));
}

/* One request, until it is complete; its result. */
static int ring_do(struct ring *r, unsigned int op, int file, void *buf,
		   unsigned int len)
{
	_Atomic uint32_t *tail = (_Atomic uint32_t *)(r->sq + r->p.sq_off.tail);
	_Atomic uint32_t *head = (_Atomic uint32_t *)(r->cq + r->p.cq_off.head);
	uint32_t mask = *(uint32_t *)(r->sq + r->p.sq_off.ring_mask);
	uint32_t i = *tail & mask, at;
	struct io_uring_cqe *cqe;

	r->sqe[i] = (struct io_uring_sqe){ .opcode = (uint8_t)op,
					   .fd = file,
					   .addr = (uintptr_t)buf,
					   .len = len };
	((uint32_t *)(r->sq + r->p.sq_off.array))[i] = i;
	atomic_fetch_add(tail, 1);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) != 1)
		fail("io_uring_enter: %s", strerror(errno));
	at = *head & *(uint32_t *)(r->cq + r->p.cq_off.ring_mask);
	cqe = (struct io_uring_cqe *)(r->cq + r->p.cq_off.cqes) + at;
	atomic_fetch_add(head, 1);
	return cqe->res;
}

/* Pinned for long: direct until it is let go, and the same memory throughout. */
static void fixed_buffers(void)
{
	char *m = fresh(), *copy = malloc(PART);
	struct iovec v = { m, PART };
	int file = memfd_create("x", 0);
	struct ring r;

	ring_make(&r);
	if (syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_BUFFERS, &v,
		    1))
		fail("IORING_REGISTER_BUFFERS: %s", strerror(errno));
	control_squeeze(&control);
	if (ring_do(&r, IORING_OP_WRITE_FIXED, file, m, PART) != PART)
		fail("IORING_OP_WRITE_FIXED");
	if (pread(file, copy, PART, 0) != PART)
		fail("pread");
	is(copy, PART, 0, "a fixed buffer");
	memset(copy, 0x5a, PART);
	if (pwrite(file, copy, PART, 0) != PART)
		fail("pwrite");
	if (ring_do(&r, IORING_OP_READ_FIXED, file, m, PART) != PART)
		fail("IORING_OP_READ_FIXED");
	if (memcmp(m, copy, PART))
		fail("what was read into pinned pages is not in the mapping");
	if (syscall(SYS_io_uring_register, r.fd, IORING_UNREGISTER_BUFFERS,
		    NULL, 0))
		fail("IORING_UNREGISTER_BUFFERS: %s", strerror(errno));
	munmap(r.sq, PAGE);
	munmap(r.cq, PAGE);
	munmap(r.sqe, PAGE);
	close(r.fd);
	control_squeeze(&control);
	if (memcmp(m, copy, PART))
		fail("what was pinned did not survive");
	for (file = 0; file < 64; file++)
		memset(m + (size_t)file * PAGE, file, PAGE);
	free(copy);
	done(m);
}

/* One futex, by two mappings, while its page comes and goes. */
static void futexes(void)
{
	char *m = fresh(), *other;
	uint32_t *here = (uint32_t *)(m + 700 * PAGE), *there;
	int status, i;
	pid_t pid;

	*here = 0;
	other = map_shared(fd, SIZE);
	there = (uint32_t *)(other + 700 * PAGE);
	pid = fork();
	if (!pid) {
		while (!*(volatile uint32_t *)there)
			if (syscall(SYS_futex, there, FUTEX_WAIT, 0, NULL, NULL,
				    0) &&
			    errno != EAGAIN)
				fail("FUTEX_WAIT: %s", strerror(errno));
		_exit(0);
	}
	for (i = 0; i < 5; i++)
		control_squeeze(&control);
	/* It sleeps, or will see the value. */
	*here = 1;
	control_squeeze(&control);
	if (syscall(SYS_futex, here, FUTEX_WAKE, 1, NULL, NULL, 0) < 0)
		fail("FUTEX_WAKE: %s", strerror(errno));
	if (waitpid(pid, &status, 0) != pid || status)
		fail("child: %#x", status);
	munmap(other, SIZE);
	memset(m + 700 * PAGE, 700 & 0xff, PAGE);
	done(m);
}

/* A system call gets an error, not a signal, for what is past the end. */
static void past_the_end(void)
{
	char *m = fresh();
	int file = memfd_create("x", 0);

	if (ftruncate(fd, SIZE / 2) || pwrite(file, m, PAGE, 0) != PAGE)
		fail("files: %s", strerror(errno));
	expect(write(file, m + SIZE / 2, 1), EFAULT, "write past the end");
	expect(pread(file, m + SIZE / 2, 1, 0), EFAULT, "read past the end");
	if (write(file, m + SIZE / 2 - 10, 20) != 10)
		fail("a write across the end");
	if (ftruncate(fd, SIZE))
		fail("ftruncate: %s", strerror(errno));
	close(file);
	for (file = PAGES / 2; file < (int)PAGES; file++)
		memset(m + (size_t)file * PAGE, file & 0xff, PAGE);
	done(m);
}

static const struct check list[] = {
	{ "O_DIRECT", direct_io },
	{ "vmsplice", pipes },
	{ "no stream", streams },
	{ "other processes and ptrace", processes },
	{ "io_uring", fixed_buffers },
	{ "futex", futexes },
	{ "past the end", past_the_end },
};

/* access DIR */
int access_by_others(int argc, char **argv)
{
	(void)argc;
	dir = argv[2];
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}
