// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sandbox_test.c - the abilities of a GC worker that a tenant has taken over
 *
 * Each case is a process with a worker's descriptors (a socket, a slab, the three
 * standard ones), enters the sandbox, and does one thing. A call
 * that workers don't need ends the process by SIGSYS, or fails. Built without
 * sanitizers, which need calls that the sandbox refuses.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../donor-daemon/gc/worker/sandbox.h"

#define MEMORY	(32ull << 20)
#define ADDRESS (256ull << 20)
#define SLAB	(2ull << 20)

/* Exit statuses of a case beside those of sanitizers and signals. */
enum { DONE = 40, FAILED, NO_SANDBOX };

static int sock;
static int slab;
static pid_t parent;

static int mapped(size_t bytes, int prot, int flags, int fd)
{
	return mmap(NULL, bytes, prot, flags, fd, 0) == MAP_FAILED;
}

/* ---- allowed calls ---- */

static int says(void)
{
	char a[] = "he", b[] = "llo";
	struct iovec v[2] = { { a, 2 }, { b, 3 } };

	return writev(sock, v, 2) != 5;
}

static int hears(void)
{
	char buf[16];
	struct iovec v = { buf, sizeof(buf) };
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };

	return recvmsg(sock, &h, 0) != 5;
}

static int maps_slab(void)
{
	char *p;

	if (lseek(slab, 0, SEEK_END) != (off_t)SLAB)
		return 1;
	p = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, slab, 0);
	if (p == MAP_FAILED)
		return 1;
	p[4096] = 1;
	return munmap(p, SLAB);
}

static int has_memory(void)
{
	char *p = malloc(MEMORY / 2);

	if (p)
		memset(p, 1, MEMORY / 2);
	free(p);
	return !p;
}

static void *thread_main(void *arg)
{
	return arg;
}

static int has_threads(void)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	return pthread_create(&t, &attr, thread_main, NULL) ||
	       pthread_join(t, NULL);
}

/* ---- calls that fail ---- */

static int maps_too_much(void)
{
	return mapped(MEMORY, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static int maps_slabs_without_end(void)
{
	for (uint64_t n = 0; n <= 2 * ADDRESS; n += SLAB)
		if (mapped(SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, slab))
			return 1;
	return 0;
}

static int advises(void)
{
	return madvise(NULL, 4096, MADV_HWPOISON) && errno == EINVAL;
}

/* ---- calls that kill the worker ---- */

static int kills_its_donor(void)
{
	return kill(parent, 0);
}

static int traces_its_donor(void)
{
	return ptrace(PTRACE_ATTACH, parent, 0, 0) != 0;
}

static int reads_its_donor(void)
{
	char a[8], b[8];
	struct iovec l = { a, 8 }, r = { b, 8 };

	return process_vm_readv(parent, &l, 1, &r, 1, 0) < 0;
}

static int opens(void)
{
	return open("/proc/self/status", O_RDONLY) < 0;
}

static int looks(void)
{
	struct stat st;

	return stat("/etc/passwd", &st);
}

static int looks_at(void)
{
	struct stat st;

	return fstat(slab, &st);
}

static int makes_a_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) < 0;
}

static int makes_memory(void)
{
	return (int)syscall(SYS_memfd_create, "more", 0) < 0;
}

static int cuts_its_slab(void)
{
	return ftruncate(slab, 0);
}

static int fills_the_log(void)
{
	return write(2, "x\n", 2) != 2;
}

static int fills_the_log_otherwise(void)
{
	char c = 'x';
	struct iovec v = { &c, 1 };

	return writev(2, &v, 1) != 1;
}

static int passes_descriptors(void)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char c = 'x';
	struct iovec v = { &c, 1 };
	struct msghdr h = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.align), &slab, sizeof(int));
	return sendmsg(sock, &h, 0) != 1;
}

static int hears_others(void)
{
	char buf[16];
	struct iovec v = { buf, sizeof(buf) };
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };

	return recvmsg(2, &h, MSG_DONTWAIT) < 0;
}

static int shares_memory(void)
{
	return mapped(4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1);
}

static int grows_down(void)
{
	return mapped(4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1);
}

static int takes_huge_pages(void)
{
	return mapped(2 << 20, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
}

static int locks_memory(void)
{
	return mapped(4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1);
}

static int maps_anywhere(void)
{
	return mmap((void *)0x10000000000, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

static int maps_code(void)
{
	return mapped(4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1);
}

static int forks(void)
{
	return fork() < 0;
}

static int runs(void)
{
	char *none[] = { NULL };

	return execve("/bin/true", none, none);
}

static int hurries(void)
{
	return setpriority(PRIO_PROCESS, 0, 0);
}

struct row {
	const char *name;
	int (*what)(void);
};
#define ROW(f)        \
	{             \
#f, f \
	}

static const struct row good[] = {
	ROW(says),	ROW(hears),	  ROW(maps_slab),
	ROW(has_memory), ROW(has_threads),
};

static const struct row failing[] = {
	ROW(maps_too_much),
	ROW(maps_slabs_without_end),
	ROW(advises),
};

static const struct row ending[] = {
	ROW(kills_its_donor),
	ROW(traces_its_donor),
	ROW(reads_its_donor),
	ROW(opens),
	ROW(looks),
	ROW(looks_at),
	ROW(makes_a_socket),
	ROW(makes_memory),
	ROW(cuts_its_slab),
	ROW(fills_the_log),
	ROW(fills_the_log_otherwise),
	ROW(passes_descriptors),
	ROW(hears_others),
	ROW(shares_memory),
	ROW(grows_down),
	ROW(takes_huge_pages),
	ROW(locks_memory),
	ROW(maps_anywhere),
	ROW(maps_code),
	ROW(forks),
	ROW(runs),
	ROW(hurries),
};

/* waitpid()'s status of a process that runs @what() in the sandbox. */
static int inside(int (*what)(void))
{
	int pair[2], status;
	const char *why;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	assert_int_equal(send(pair[0], "hello", 5, 0), 5);
	parent = getpid();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		sock = pair[1];
		slab = (int)syscall(SYS_memfd_create, "slab", 0);
		if (slab < 0 || ftruncate(slab, (off_t)SLAB) ||
		    dcm_gc_sandbox(sock, MEMORY, ADDRESS, &why))
			_exit(NO_SANDBOX);
		syscall(SYS_exit_group, what() ? FAILED : DONE);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(pair[0]);
	close(pair[1]);
	return status;
}

static void test_what_workers_do(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		int status = inside(good[i].what);

		if (!WIFEXITED(status) || WEXITSTATUS(status) != DONE)
			fail_msg("%s: status %#x", good[i].name, status);
	}
}

static void test_what_fails(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(failing) / sizeof(*failing); i++) {
		int status = inside(failing[i].what);

		if (!WIFEXITED(status) || WEXITSTATUS(status) != FAILED)
			fail_msg("%s: status %#x", failing[i].name, status);
	}
}

static void test_what_ends_it(void **state)
{
	int missed = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(ending) / sizeof(*ending); i++) {
		int status = inside(ending[i].what);

		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
			continue;
		print_error("%s: status %#x\n", ending[i].name, status);
		missed++;
	}
	assert_int_equal(missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_workers_do),
		cmocka_unit_test(test_what_fails),
		cmocka_unit_test(test_what_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
