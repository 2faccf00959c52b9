// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * raw_uffd.c - RAW: a bare userfaultfd round trip in one process
 *
 * One thread touches pages of registered anonymous memory, one thread takes
 * each fault and answers with UFFDIO_COPY of 4 KiB from memory that is there.
 * Nothing else: no eviction, no state, no donor. The floor for any pager in
 * user space on this machine, and so the unit the others are measured in.
 *
 * What it costs is mostly where the two threads run, so that is chosen:
 *   default  nothing pinned, handler sleeps in poll()
 *   same     both on one CPU, handler sleeps in read()
 *   spin     one CPU each, handler never sleeps
 *
 * With several threads each has a handler, and the faults of all in a second are
 * printed, the best that a pager can do for them:
 *   apart    each has memory and a userfaultfd of its own
 *   striped  the same, but each thread touches the memory of all
 *   shared   all memory is of one userfaultfd, which all handlers read
 * With "same" each thread and its handler have a CPU of their own.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

#define THREADS_MAX 16u

enum placement { DEFAULT, SAME, SPIN };
enum sharing { APART, STRIPED, SHARED };

/* A thread that touches pages, and its handler. */
struct pair {
	pthread_t handler, toucher;
	unsigned int id;
	int uffd;
	char *memory;
	uint32_t *order, *ns; /* of each page */
	uint64_t start, end;
};

static enum placement placement;
static enum sharing sharing;
static unsigned int threads = 1;
static char *source;
static size_t pages = 16384;
static pthread_barrier_t barrier;
static struct pair pairs[THREADS_MAX];

static int uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int flags = O_CLOEXEC | (placement == SAME ? 0 : O_NONBLOCK);
	int fd = (int)syscall(SYS_userfaultfd, flags);

	if (fd < 0)
		die("userfaultfd: %s: run as root, or set vm.unprivileged_userfaultfd=1",
		    strerror(errno));
	if (ioctl(fd, UFFDIO_API, &api))
		die("UFFDIO_API: %s", strerror(errno));
	return fd;
}

static void *handler_run(void *arg)
{
	const struct pair *pair = arg;
	int uffd = pair->uffd;

	bench_pin(placement == SAME ? (int)pair->id :
		  placement == SPIN ? 1 :
				      -1);
	for (;;) {
		struct uffd_msg m;

		if (read(uffd, &m, sizeof(m)) != sizeof(m)) {
			struct pollfd p = { .fd = uffd, .events = POLLIN };

			if (placement == DEFAULT)
				poll(&p, 1, -1);
			else
				pthread_testcancel();
			continue;
		}
		struct uffdio_copy c = {
			.dst = m.arg.pagefault.address & ~(uint64_t)(PAGE - 1),
			.src = (uintptr_t)source,
			.len = PAGE,
		};
		if (ioctl(uffd, UFFDIO_COPY, &c))
			die("UFFDIO_COPY: %s", strerror(errno));
	}
	return NULL;
}

static void *memory_get(size_t bytes)
{
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		die("no memory");
	return m;
}

static void pair_make(struct pair *pair, int uffd)
{
	size_t bytes = pages * PAGE;
	uint64_t seed = 42 + pair->id;

	pair->uffd = uffd;
	pair->memory = memory_get(bytes);
	pair->order = memory_get(pages * sizeof(*pair->order));
	pair->ns = memory_get(pages * sizeof(*pair->ns));
	madvise(pair->memory, bytes, MADV_NOHUGEPAGE);
	memset(pair->ns, 1, pages * sizeof(*pair->ns));
	for (uint32_t i = 0; i < pages; i++)
		pair->order[i] = i;
	for (size_t i = pages - 1; i > 0; i--) {
		size_t j = bench_rand(&seed) % (i + 1);
		uint32_t t = pair->order[i];

		pair->order[i] = pair->order[j];
		pair->order[j] = t;
	}

	struct uffdio_register r = {
		.range = { .start = (uintptr_t)pair->memory, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		die("UFFDIO_REGISTER: %s", strerror(errno));
	if (pthread_create(&pair->handler, NULL, handler_run, pair))
		die("can't start a thread");
}

/* The memory that a thread touches a page of: no page is touched by two. */
static char *memory_of(const struct pair *pair, size_t page)
{
	return sharing == STRIPED ? pairs[(pair->id + page) % threads].memory :
				    pair->memory;
}

static void *toucher_run(void *arg)
{
	struct pair *pair = arg;

	bench_pin(placement == DEFAULT ? -1 : (int)pair->id);
	/* The first pass fills page tables; the second is measured, in random order. */
	for (size_t i = 0; i < pages; i++)
		*(volatile char *)(pair->memory + i * PAGE);
	madvise(pair->memory, pages * PAGE, MADV_DONTNEED);
	pthread_barrier_wait(&barrier);
	pair->start = bench_now_ns();
	for (size_t i = 0; i < pages; i++) {
		size_t page = pair->order[i];
		volatile char *p = memory_of(pair, page) + page * PAGE;
		uint64_t t = bench_now_ns();

		*p;
		pair->ns[i] = (uint32_t)(bench_now_ns() - t);
	}
	pair->end = bench_now_ns();
	return NULL;
}

/* Which of the names; their number if none. */
static unsigned int choice(const char *name, const char *const *names,
			   unsigned int nr)
{
	unsigned int i = 0;

	while (i < nr && strcmp(name, names[i]))
		i++;
	return i;
}

int main(int argc, char **argv)
{
	static const char *const placements[] = { "default", "same", "spin" };
	static const char *const sharings[] = { "apart", "striped", "shared" };
	double per_s = 0;
	int uffd = -1;

	placement = argc > 1 ? choice(argv[1], placements, 3) : 3;
	if (argc > 2)
		pages = strtoul(argv[2], NULL, 0);
	if (argc > 4) {
		threads = (unsigned int)strtoul(argv[3], NULL, 0);
		sharing = choice(argv[4], sharings, 3);
	}
	if (placement > SPIN || pages < 100 || sharing > SHARED || !threads ||
	    threads > (placement == SPIN ? 1 : THREADS_MAX))
		die("usage: raw_uffd default|same|spin [PAGES >= 100 [THREADS apart|striped|shared]]; spin: one thread");

	source = memory_get(PAGE);
	bench_page_fill(source, 1, CONTENT_RANDOM);
	if (pthread_barrier_init(&barrier, NULL, threads))
		die("no barrier");
	for (unsigned int i = 0; i < threads; i++) {
		if (!i || sharing != SHARED)
			uffd = uffd_open();
		pairs[i].id = i;
		pair_make(&pairs[i], uffd);
	}
	for (unsigned int i = 0; i < threads; i++)
		if (pthread_create(&pairs[i].toucher, NULL, toucher_run,
				   &pairs[i]))
			die("can't start a thread");
	for (unsigned int i = 0; i < threads; i++) {
		const struct pair *pair = &pairs[i];

		pthread_join(pair->toucher, NULL);
		per_s +=
			(double)pages * 1e9 / (double)(pair->end - pair->start);
	}
	printf("{\"placement\":\"%s\",\"threads\":%u,\"sharing\":\"%s\",\"faults_per_s\":%.0f,",
	       placements[placement], threads, sharings[sharing], per_s);
	bench_percentiles_print("ns", pairs[0].ns, pages);
	printf("}\n");
	fflush(stdout);
	_exit(0); /* the handlers sleep in read() */
}
