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

enum placement { DEFAULT, SAME, SPIN };

static int uffd;
static enum placement placement;
static char *source;

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

static void *handler_run(void *unused)
{
	(void)unused;
	bench_pin(placement == SAME ? 0 : placement == SPIN ? 1 : -1);
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

int main(int argc, char **argv)
{
	static const char *const names[] = { "default", "same", "spin" };
	size_t pages = argc > 2 ? strtoul(argv[2], NULL, 0) : 16384;
	size_t bytes = pages * PAGE;
	pthread_t thread;

	for (placement = DEFAULT; placement <= SPIN; placement++)
		if (argc > 1 && !strcmp(argv[1], names[placement]))
			break;
	if (placement > SPIN || pages < 100)
		die("usage: raw_uffd default|same|spin [pages >= 100]");

	uint32_t *ns = malloc(pages * sizeof(*ns));
	source = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	char *g = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ns || source == MAP_FAILED || g == MAP_FAILED)
		die("no memory");
	madvise(g, bytes, MADV_NOHUGEPAGE);
	bench_page_fill(source, 1, CONTENT_RANDOM);
	memset(ns, 1, pages * sizeof(*ns));

	uffd = uffd_open();
	struct uffdio_register r = {
		.range = { .start = (uintptr_t)g, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		die("UFFDIO_REGISTER: %s", strerror(errno));
	bench_pin(placement == DEFAULT ? -1 : 0);
	if (pthread_create(&thread, NULL, handler_run, NULL))
		die("no thread");

	/* The first pass fills page tables; the second is measured, in random order. */
	for (size_t i = 0; i < pages; i++)
		*(volatile char *)(g + i * PAGE);
	madvise(g, bytes, MADV_DONTNEED);

	uint64_t seed = 42;
	uint32_t *order = malloc(pages * sizeof(*order));
	if (!order)
		die("no memory");
	for (uint32_t i = 0; i < pages; i++)
		order[i] = i;
	for (size_t i = pages - 1; i > 0; i--) {
		size_t j = bench_rand(&seed) % (i + 1);
		uint32_t t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
	for (size_t i = 0; i < pages; i++) {
		volatile char *p = g + (size_t)order[i] * PAGE;
		uint64_t t = bench_now_ns();

		*p;
		ns[i] = (uint32_t)(bench_now_ns() - t);
	}
	printf("{\"placement\":\"%s\",", names[placement]);
	bench_percentiles_print("ns", ns, pages);
	printf("}\n");
	fflush(stdout);
	_exit(0);	/* the handler sleeps in read() */
}
