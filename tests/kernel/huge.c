// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * huge.c - memory that came in spans of 2 MiB, in one page of the host's each
 *
 * The file's budget holds all of it, so a first touch brings in a whole span. Then
 * parts of spans leave, are discarded or are in use by others; every byte must be
 * right, and no frame be kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SPAN (2u << 20)
#define SPAN_PAGES (SPAN / PAGE)
#define SPANS 4u
#define SIZE ((size_t)SPANS * SPAN)
#define PAGES (SPANS * SPAN_PAGES)
#define OWNERS 2u
#define ROUNDS 20u

static const char *dir;
static struct control control;

static uint64_t *word_of(char *m, uint64_t page)
{
	return (uint64_t *)(m + page * PAGE);
}

static void write_all(char *m)
{
	uint64_t p;

	for (p = 0; p < PAGES; p++)
		*word_of(m, p) = p + 1;
}

/* Each page its number, but zero from @zero to @end. */
static void holds(char *m, uint64_t zero, uint64_t end)
{
	uint64_t p;

	for (p = 0; p < PAGES; p++) {
		uint64_t want = p >= zero && p < end ? 0 : p + 1;

		if (*word_of(m, p) != want)
			fail("page %ju holds %#jx", (uintmax_t)p,
			     (uintmax_t)*word_of(m, p));
	}
}

static long minors(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		fail("getrusage: %s", strerror(errno));
	return u.ru_minflt;
}

static void frames_are(uint64_t want, const char *when)
{
	uint64_t there = control_used(&control);

	if (there != want)
		fail("%s: %ju frames, not %ju", when, (uintmax_t)there,
		     (uintmax_t)want);
}

static void punch(uint64_t first, uint64_t pages)
{
	if (fallocate(control.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(first * PAGE), (off_t)(pages * PAGE)))
		fail("a hole of %ju pages: %s", (uintmax_t)pages,
		     strerror(errno));
}

static char *file_of_spans(void)
{
	char *m = control_map(&control, dir, SIZE);

	if ((uintptr_t)m % SPAN)
		fail("mapped at %p, which no huge page fits", (void *)m);
	write_all(m);
	frames_are(PAGES, "written");
	return m;
}

/* It leaves and comes back as it is, and nothing keeps it. */
static void done(char *m, uint64_t zero, uint64_t end)
{
	holds(m, zero, end);
	control_squeeze(&control);
	control_frames(&control, control.info.min_budget_pages + 128);
	holds(m, zero, end);
	control_unmap(&control, m, SIZE);
}

static void one_fault(void)
{
	char *m = control_map(&control, dir, SIZE);
	volatile char *page = m + SPAN + 77 * PAGE;
	long before;
	uint64_t p;

	*page = 1;
	frames_are(SPAN_PAGES, "one byte written");
	before = minors();
	for (p = 0; p < SPAN_PAGES; p++)
		*word_of(m, SPAN_PAGES + p) = SPAN_PAGES + p + 1;
	if (minors() != before)
		fail("%ld faults in a span that is here", minors() - before);
	write_all(m);
	done(m, 0, 0);
}

/* A block leaves: the span is taken apart, and its other pages stay. */
static void apart(void)
{
	char *m = file_of_spans();
	uint64_t budget = control.info.budget_pages;
	uint64_t goal = PAGES - 64;

	if (control_budget(&control, goal))
		fail("budget");
	control_frames(&control, goal + 64);
	if (control_used(&control) < goal - 2 * SPAN_PAGES)
		fail("of %u pages %ju are left", PAGES,
		     (uintmax_t)control_used(&control));
	if (control_budget(&control, budget))
		fail("budget");
	done(m, 0, 0);
}

static void whole_discarded(void)
{
	char *m = file_of_spans();
	long before;

	punch(SPAN_PAGES, SPAN_PAGES);
	frames_are(PAGES - SPAN_PAGES, "a span is discarded");
	before = minors();
	holds(m, SPAN_PAGES, 2 * SPAN_PAGES);
	if (minors() > before + 4)
		fail("%ld faults when a span is touched again",
		     minors() - before);
	frames_are(PAGES, "touched again");
	done(m, SPAN_PAGES, 2 * SPAN_PAGES);
}

static void part_discarded(void)
{
	char *m = file_of_spans();

	punch(SPAN_PAGES + 5, 3);
	frames_are(PAGES - 3, "three pages are discarded");
	holds(m, SPAN_PAGES + 5, SPAN_PAGES + 8);
	*word_of(m, SPAN_PAGES + 5) = SPAN_PAGES + 6;
	*word_of(m, SPAN_PAGES + 6) = SPAN_PAGES + 7;
	*word_of(m, SPAN_PAGES + 7) = SPAN_PAGES + 8;
	/* Of two spans. */
	punch(3 * SPAN_PAGES - 2, 4);
	frames_are(PAGES - 4, "four pages of two spans are discarded");
	done(m, 3 * SPAN_PAGES - 2, 3 * SPAN_PAGES + 2);
}

/* A pipe has a page of the span: it keeps that page as it was. */
static void in_use(void)
{
	char *m = file_of_spans(), got[PAGE];
	struct iovec piece = { m + 9 * PAGE, PAGE };
	int pipes[2];

	if (pipe(pipes) || vmsplice(pipes[1], &piece, 1, 0) != PAGE)
		fail("vmsplice: %s", strerror(errno));
	punch(5, 3);
	holds(m, 5, 8);
	/* A block may then have a frame, and pages of the span after it. */
	punch(16, 1);
	*word_of(m, 16) = 17;
	punch(17, 1);
	*word_of(m, 17) = 18;
	holds(m, 5, 8);
	*word_of(m, 9) = 12345;
	if (read(pipes[0], got, PAGE) != PAGE || *(uint64_t *)got != 12345)
		fail("the pipe has another page");
	*word_of(m, 9) = 10;
	/* All else of it, while nothing uses it any more. */
	punch(5, 3);
	close(pipes[0]);
	close(pipes[1]);
	done(m, 5, 8);
}

/* The last page of a span that could not be taken apart frees it. */
static void in_use_and_gone(void)
{
	char *m = file_of_spans();
	struct iovec piece = { m + 9 * PAGE, PAGE };
	int pipes[2];

	if (pipe(pipes) || vmsplice(pipes[1], &piece, 1, 0) != PAGE)
		fail("vmsplice: %s", strerror(errno));
	punch(5, 3);
	punch(0, 5);
	punch(8, SPAN_PAGES - 8);
	frames_are(PAGES - SPAN_PAGES, "all pages of a span are discarded");
	close(pipes[0]);
	close(pipes[1]);
	done(m, 0, SPAN_PAGES);
}

/* A second mapping that no huge page fits sees the same pages. */
static void unaligned(void)
{
	char *m = file_of_spans(), *other, *place;
	uint64_t p;

	place = mmap(NULL, SIZE + 2 * SPAN, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	other = (char *)(((uintptr_t)place + SPAN - 1) / SPAN * SPAN + PAGE);
	other = mmap(other, SIZE, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_FIXED, control.fd, 0);
	if (other == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	holds(other, 0, 0);
	for (p = 0; p < PAGES; p += 3)
		*word_of(other, p) += 7;
	for (p = 0; p < PAGES; p += 3)
		*word_of(m, p) -= 7;
	holds(other, 0, 0);
	control_squeeze(&control);
	holds(other, 0, 0);
	munmap(place, SIZE + 2 * SPAN);
	done(m, 0, 0);
}

/* The file gets smaller in the middle of a span. */
static void cut(void)
{
	char *m = file_of_spans();

	catch_bus();
	if (ftruncate(control.fd, (off_t)(SIZE - SPAN / 2)))
		fail("ftruncate: %s", strerror(errno));
	if (readable(m + SIZE - SPAN / 2))
		fail("a page beyond the end");
	if (!readable(m + SIZE - SPAN / 2 - 1))
		fail("the last page");
	if (ftruncate(control.fd, (off_t)SIZE))
		fail("ftruncate: %s", strerror(errno));
	done(m, PAGES - SPAN_PAGES / 2, PAGES);
}

/* Of its own spans: written, looked at, and discarded in part or as a whole. */
static void storm_of(char *m, uint32_t first, uint64_t seed)
{
	uint32_t round, span;

	for (round = 1; round <= ROUNDS; round++) {
		for (span = first; span < SPANS; span += OWNERS) {
			uint64_t at = span * SPAN_PAGES, p;
			uint64_t hole = at + rnd(&seed) % SPAN_PAGES;
			uint64_t left = at + SPAN_PAGES - hole;
			uint64_t pages = 1 + rnd(&seed) % left;

			for (p = at; p < at + SPAN_PAGES; p++)
				*word_of(m, p) = p * round;
			if (round % 2)
				punch(hole, pages);
			for (p = at; p < at + SPAN_PAGES; p++) {
				bool zero = round % 2 && p - hole < pages;

				if (*word_of(m, p) != (zero ? 0 : p * round))
					fail("round %u, page %ju: %#jx", round,
					     (uintmax_t)p,
					     (uintmax_t)*word_of(m, p));
			}
			punch(at, SPAN_PAGES);
		}
	}
	_exit(0);
}

/* Spans come, are taken apart and go, while the budget falls and rises. */
static void storm(void)
{
	char *m = control_map(&control, dir, SIZE);
	uint64_t least = control.info.min_budget_pages;
	uint64_t most = control.info.budget_pages, n = 0;
	uint32_t i, running = OWNERS;
	int status;

	for (i = 0; i < OWNERS; i++)
		if (!fork())
			storm_of(m, i, i + 1);
	while (running) {
		if (control_budget(&control, n++ % 8 ? most : least))
			fail("budget");
		control_serve(&control, 10);
		while (waitpid(-1, &status, WNOHANG) > 0) {
			running--;
			if (status)
				fail("a child ended with %#x", status);
		}
	}
	if (control_budget(&control, most))
		fail("budget");
	/* All is discarded; lanes keep some for what comes next. */
	control_frames(&control, control.info.lanes * 16);
	write_all(m);
	done(m, 0, 0);
}

static const struct check checks[] = {
	{ "one fault", one_fault },
	{ "taken apart", apart },
	{ "a whole span discarded", whole_discarded },
	{ "a part discarded", part_discarded },
	{ "a part in use", in_use },
	{ "in use, and gone", in_use_and_gone },
	{ "unaligned", unaligned },
	{ "cut", cut },
	{ "many at once", storm },
};

/* huge DIR [storm] */
int huge(int argc, char **argv)
{
	size_t nr = sizeof(checks) / sizeof(checks[0]);

	dir = argv[2];
	if (argc == 4)
		run_checks(&checks[nr - 1], 1);
	else
		run_checks(checks, nr);
	return 0;
}
