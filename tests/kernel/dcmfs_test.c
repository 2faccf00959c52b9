// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dcmfs_test.c - drives dcmfs from user space, as root
 *
 *	dcmfs_test basics DIR		a file's calls, one by one
 *	dcmfs_test mapping DIR		what can be done with a mapping
 *	dcmfs_test access DIR		accesses by others than the process
 *	dcmfs_test fsx DIR OPERATIONS SEED	one file against a buffer
 *	dcmfs_test ioctls DIR SECONDS SEED	requests that must be refused
 *	dcmfs_test mounts DIR ROUNDS SEED	mount options
 *	dcmfs_test torture FILE MIB SECONDS PROCESSES SEED
 *	dcmfs_test chaos DIR SECONDS SEED
 *	dcmfs_test guest FILE MIB	a guest under KVM, without a VMM
 *	dcmfs_test spans FILE MIB	a guest that fits the budget: huge pages
 *	dcmfs_test huge DIR [storm]	spans of 2 MiB, and what takes them apart
 *	dcmfs_test silent DIR		a guest that waits for a donor is killed
 *	dcmfs_test links DIR		donors at the other end of a socket
 *	dcmfs_test pairs DIR ADDRESS SECONDS SEED	links over RDMA to nobody
 *	dcmfs_test sparse DIR		a file of 1 TiB, little of it used
 *	dcmfs_test vhost FILE		pages that vhost-net writes
 *	dcmfs_test words DIR SECONDS SEED	pages that many write at once
 *	dcmfs_test use FILE MIB PROCESSES SEED STOP
 *					memory under use, until STOP exists
 *	dcmfs_test copies DIR [seal]	extents with two and three slabs; sealed
 *	dcmfs_test spread DIR		what GC workers change, where there are copies
 *	dcmfs_test freeze DIR		pages frozen and synced, as for GC
 *	dcmfs_test budget FILE PAGES	change it
 *	dcmfs_test serve FILE STOP	slabs for a file that others use, until
 *					STOP exists
 *
 * Exit status 0, or 1 and a line that begins with FAILED.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dcmfs_test.h"

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "FAILED: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	_exit(1);
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* xorshift64* */
uint64_t rnd(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * 0x2545f4914f6cdd1dull) >> 16;
}

/* A call that must have failed, and how. */
void expect(long ret, int err, const char *what)
{
	if (ret != -1 || errno != err)
		fail("%s: %ld, %s instead of %s", what, ret,
		     ret == -1 ? strerror(errno) : "success", strerror(err));
}

static __thread sigjmp_buf bus;
static __thread volatile sig_atomic_t bus_expected;

static void on_bus(int sig)
{
	if (!bus_expected)
		fail("signal %d", sig);
	siglongjmp(bus, sig);
}

void catch_bus(void)
{
	signal(SIGBUS, on_bus);
	signal(SIGSEGV, on_bus);
}

/* Does a load get a value, and no signal? */
bool readable(volatile const char *p)
{
	bus_expected = 1;
	if (sigsetjmp(bus, 1)) {
		bus_expected = 0;
		return false;
	}
	(void)*p;
	bus_expected = 0;
	return true;
}

/* Major faults of this process. */
long majors(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		fail("getrusage: %s", strerror(errno));
	return u.ru_majflt;
}

/* A file without a name. */
int file_make(const char *dir, off_t size)
{
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);

	if (fd < 0)
		fail("O_TMPFILE in %s: %s", dir, strerror(errno));
	if (ftruncate(fd, size))
		fail("ftruncate to %jd: %s", (intmax_t)size, strerror(errno));
	return fd;
}

int file_again(int fd)
{
	char name[64];
	int other;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	other = open(name, O_RDONLY | O_CLOEXEC);
	if (other < 0)
		fail("%s: %s", name, strerror(errno));
	return other;
}

void by_killed(int fd, void (*run)(int other))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		run(file_again(fd));
		raise(SIGKILL);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		fail("child: %#x", status);
}

char *map_shared(int fd, size_t size)
{
	char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return m;
}

/* FREEZE, SYNC and their like: an errno. */
int range_ask(int fd, unsigned long cmd, uint64_t first, uint64_t pages,
	  uint32_t flags, uint32_t limit_ms)
{
	struct dcmfs_range r = { .first = first,
				 .pages = pages,
				 .flags = flags,
				 .limit_ms = limit_ms };

	return ioctl(fd, cmd, &r) ? errno : 0;
}

void no_error(int err, const char *what)
{
	if (err)
		fail("%s: %s", what, strerror(err));
}

/* Each in turn, until one fails. */
void run_checks(const struct check *list, size_t nr)
{
	size_t i;

	catch_bus();
	for (i = 0; i < nr; i++) {
		list[i].run();
		printf("%s: right\n", list[i].name);
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "basics"))
		return basics(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "mapping"))
		return mapping(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "freeze"))
		return freeze(argc, argv);
	if ((argc == 3 || (argc == 4 && !strcmp(argv[3], "seal"))) &&
	    !strcmp(argv[1], "copies"))
		return copies(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "spread"))
		return spread(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "access"))
		return access_by_others(argc, argv);
	if ((argc == 3 || (argc == 4 && !strcmp(argv[3], "storm"))) &&
	    !strcmp(argv[1], "huge"))
		return huge(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "spans"))
		return guest_in_spans(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "silent"))
		return silent(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "sparse"))
		return sparse(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "fsx"))
		return fsx(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "ioctls"))
		return ioctls(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "mounts"))
		return mounts(argc, argv);
	if (argc == 7 && !strcmp(argv[1], "torture"))
		return torture(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "chaos"))
		return chaos(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "guest"))
		return guest(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "links"))
		return links(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "vhost"))
		return vhost(argc, argv);
	if (argc == 5 && !strcmp(argv[1], "words"))
		return words(argc, argv);
	if (argc == 6 && !strcmp(argv[1], "pairs"))
		return pairs(argc, argv);
	if (argc == 7 && !strcmp(argv[1], "use"))
		return use(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "budget"))
		return budget(argc, argv);
	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve(argc, argv);
	fprintf(stderr, "usage: see the top of dcmfs_test.c\n");
	return 2;
}
