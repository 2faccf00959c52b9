// SPDX-License-Identifier: GPL-2.0-or-later
/* mapping_file.c - what is done to a file under its mappings */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mapping.h"

void synced(void)
{
	char *m = fresh();

	if (msync(m, SIZE, MS_SYNC) || msync(m, SIZE, MS_ASYNC) ||
	    msync(m, SIZE, MS_SYNC | MS_INVALIDATE))
		fail("msync: %s", strerror(errno));
	if (fsync(fd) || fdatasync(fd) || syncfs(fd))
		fail("fsync: %s", strerror(errno));
	done(m);
}

void truncated(void)
{
	char *m = fresh(), *other = map_shared(fd, SIZE);
	uint64_t p;

	control_squeeze(&control);
	if (ftruncate(fd, SIZE / 2))
		fail("ftruncate: %s", strerror(errno));
	if (readable(m + SIZE / 2) || readable(other + SIZE - PAGE))
		fail("a page past the end");
	holds(other, 0, PAGES / 2);
	if (ftruncate(fd, SIZE))
		fail("ftruncate: %s", strerror(errno));
	for (p = PAGES / 2; p < PAGES; p++) {
		if (*word_of(m, p))
			fail("page %ju is back", (uintmax_t)p);
		*word_of(other, p) = p + 1;
	}
	munmap(other, SIZE);
	done(m);
}

void punched(void)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	char *m = fresh(), *other = map_shared(fd, SIZE);
	uint64_t p;

	/* Half of it here, half on slabs. */
	control_squeeze(&control);
	holds(other, 0, PAGES / 4);
	for (p = 1; p < PAGES; p += 3)
		if (fallocate(fd, hole, (off_t)(p * PAGE), PAGE))
			fail("hole: %s", strerror(errno));
	for (p = 0; p < PAGES; p++) {
		if (*word_of(other, p) != (p % 3 == 1 ? 0 : p + 1))
			fail("page %ju holds %ju", (uintmax_t)p,
			     (uintmax_t)*word_of(other, p));
		*word_of(m, p) = p + 1;
	}
	munmap(other, SIZE);
	done(m);
}

/* A name for what was made without one; then two; then none. */
void named(void)
{
	char *m = fresh(), from[64], a[256], b[256];
	struct stat st;

	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	snprintf(a, sizeof(a), "%s/a", dir);
	snprintf(b, sizeof(b), "%s/b", dir);
	if (linkat(AT_FDCWD, from, AT_FDCWD, a, AT_SYMLINK_FOLLOW) ||
	    link(a, b) || stat(b, &st) || st.st_nlink != 2 ||
	    st.st_size != SIZE)
		fail("links: %s", strerror(errno));
	if (unlink(a) || truncate(b, SIZE) || rename(b, a) || unlink(a))
		fail("names: %s", strerror(errno));
	done(m);
}

/* The file is closed, its name gone; the mapping is all there is. */
void last_mapping(void)
{
	char *m = fresh();
	int keep = dup(fd);

	close(fd);
	control.fd = keep;
	control_squeeze(&control);
	fd = keep;
	close(keep);
	holds(m, 0, PAGES);
	munmap(m, SIZE);
	free(control.file);
	free(control.slab);
}
