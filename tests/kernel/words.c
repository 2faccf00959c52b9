// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * words.c - pages that many write at once
 *
 * As xfstests' holetest, with paging: every page has a word of each writer's, and
 * all writers begin at the first page at the same time, where nothing is yet. Then
 * they write their words in pages at random, and each looks first whether its last
 * one is still there. Half are threads of one process, the others processes with
 * mappings of their own, and one of each lets system calls write. A page
 * that leaves takes what all of them wrote with it, or one finds an old word.
 * Meanwhile this process is the control plane: budgets, moves. In the end all is
 * compared once more by it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define PAGES 4096u
#define SIZE ((size_t)PAGES * PAGE)
#define THREADS 3u
#define WRITERS (2 * THREADS)

/**
 * struct book - what is in the memory, for all to see
 * @until_ns: how long they go on
 * @ready: writers that are
 * @written: words, by each
 * @seq: of the word that each writer wrote last to each page
 */
struct book {
	uint64_t until_ns;
	unsigned int ready;
	uint64_t written[WRITERS];
	uint32_t seq[WRITERS][PAGES];
};

struct writer {
	struct book *book;
	char *mem;
	unsigned int nr;
	int file; /* to read words from, or -1 */
	uint64_t rng;
};

static uint64_t word(unsigned int nr, uint32_t page, uint32_t seq)
{
	return seq ? (uint64_t)seq << 32 | nr << 24 | page : 0;
}

static uint64_t *place(char *mem, unsigned int nr, uint32_t page)
{
	return (uint64_t *)(mem + (size_t)page * PAGE) +
	       nr * (PAGE / 8 / WRITERS);
}

static void check(const struct book *b, char *mem, unsigned int nr,
		  uint32_t page)
{
	uint64_t is = *(volatile uint64_t *)place(mem, nr, page);
	uint64_t should = word(nr, page, b->seq[nr][page]);

	if (is != should)
		fail("page %u: writer %u's word is %#jx, not %#jx", page, nr,
		     (uintmax_t)is, (uintmax_t)should);
}

static void write_word(struct writer *w, uint32_t page)
{
	uint64_t *to = place(w->mem, w->nr, page), next;

	check(w->book, w->mem, w->nr, page);
	next = word(w->nr, page, ++w->book->seq[w->nr][page]);
	if (w->file < 0)
		*(volatile uint64_t *)to = next;
	else if (pwrite(w->file, &next, 8, 0) != 8 ||
		 pread(w->file, to, 8, 0) != 8)
		fail("read() into page %u: %s", page, strerror(errno));
	w->book->written[w->nr]++;
}

static void *write_words(void *arg)
{
	struct writer *w = arg;
	struct book *b = w->book;
	uint32_t page, n;

	w->rng = (w->rng + w->nr + 1) * 0x9e3779b97f4a7c15ull;
	w->file = w->nr % THREADS ? -1 : memfd_create("word", MFD_CLOEXEC);
	__atomic_fetch_add(&b->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&b->ready, __ATOMIC_SEQ_CST) < WRITERS)
		sched_yield();
	for (page = 0; page < PAGES; page++)
		write_word(w, page);
	while (now_ns() < __atomic_load_n(&b->until_ns, __ATOMIC_SEQ_CST)) {
		page = (uint32_t)(rnd(&w->rng) % PAGES);
		for (n = 0; n < 8 && page < PAGES; n++, page++)
			write_word(w, page);
	}
	if (w->file >= 0)
		close(w->file);
	return NULL;
}

static void threads(struct writer *w)
{
	struct writer each[THREADS];
	pthread_t thread[THREADS];
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		each[i] = *w;
		each[i].nr = i;
		if (pthread_create(&thread[i], NULL, write_words, &each[i]))
			fail("pthread_create");
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* Number 0 has threads, each other is one writer. */
static void start(struct writer w, int fd, unsigned int process)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid)
		return;
	w.mem = map_shared(fd, SIZE);
	if (process) {
		w.nr = THREADS + process - 1;
		write_words(&w);
	} else {
		threads(&w);
	}
	_exit(0);
}

/* The control plane, until all writers have ended. */
static void disturb(struct control *c, uint64_t rng)
{
	uint64_t budget = c->info.budget_pages;
	unsigned int round = 0, left = THREADS + 1;
	int status;

	while (left) {
		control_serve(c, 20);
		round++;
		if (round % 16 == 5)
			control_move(c,
				     (uint32_t)(rnd(&rng) % c->info.extents));
		if (round % 16 == 8 || round % 16 == 0)
			control_budget(c, round % 16 ?
						  c->info.min_budget_pages :
						       budget);
		while (waitpid(-1, &status, WNOHANG) > 0) {
			if (status)
				fail("a writer ended with %#x", status);
			left--;
		}
	}
}

/* words DIR SECONDS SEED */
int words(int argc, char **argv)
{
	int fd = file_make(argv[2], SIZE);
	struct writer w = { .mem = map_shared(fd, SIZE),
			    .rng = strtoull(argv[4], NULL, 0) };
	unsigned int nr, i;
	uint64_t sum = 0;
	struct control c;
	uint32_t page;

	(void)argc;
	w.book = mmap(NULL, sizeof(*w.book), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w.book == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	control_open(&c, fd);
	if (control_budget(&c, PAGES / 3))
		fail("budget");
	c.info = info_of(fd);
	w.book->until_ns = now_ns() + strtoull(argv[3], NULL, 0) * 1000000000u;
	for (i = 0; i <= THREADS; i++)
		start(w, fd, i);
	disturb(&c, w.rng * 2 + 1);
	control_squeeze(&c);
	for (nr = 0; nr < WRITERS; nr++) {
		for (page = 0; page < PAGES; page++)
			check(w.book, w.mem, nr, page);
		sum += w.book->written[nr];
	}
	if (info_of(fd).lost_pages)
		fail("pages were lost");
	munmap(w.mem, SIZE);
	close(fd);
	printf("words: %ju written by %u, all there\n", (uintmax_t)sum,
	       WRITERS);
	return 0;
}
