// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mounts.c - mount options: those that are taken, and no others
 *
 * A list of right and wrong ones; what bounds all files together; then random ones, by mount() and by
 * fsconfig(), which knows more kinds of values than a string. Whatever is
 * mounted has to be there, to say what it was mounted with, and to take a file;
 * and to be gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "dcmfs_test.h"

static const struct {
	const char *text;
	int err;
	const char *shown; /* of /proc/mounts */
} list[] = {
	{ "", 0, "share=50,extent=67108864" },
	{ "budget=32M", 0, "budget=33554432,extent=67108864" },
	{ "share=1", 0, "share=1," },
	{ "share=100", 0, "share=100," },
	{ "extent=2M", 0, "extent=2097152," },
	{ "extent=1T", 0, "extent=1099511627776," },
	{ "lanes=1", 0, "lanes=1," },
	{ "lanes=32", 0, "lanes=32," },
	{ "", 0, ",on-loss=pause," },
	{ "on-loss=pause", 0, "on-loss=pause" },
	{ "on-loss=sigbus", 0, "on-loss=sigbus" },
	{ "budget=1G,budget=2M", 0, "budget=2097152," },
	{ "metadata=64M", 0, "metadata=67108864" },
	{ "mode=700,uid=1,gid=2", 0, "share=50" },
	{ "budget=", EINVAL, NULL },
	{ "budget", EINVAL, NULL },
	{ "budget=-1", EINVAL, NULL },
	{ "budget=1X", EINVAL, NULL },
	{ "budget=M", EINVAL, NULL },
	{ "budget=16E", EINVAL, NULL },
	{ "budget=99999999999999999999", EINVAL, NULL },
	{ "share=0", EINVAL, NULL },
	{ "share=101", EINVAL, NULL },
	{ "share=-1", EINVAL, NULL },
	{ "share=4294967297", EINVAL, NULL },
	{ "extent=0", EINVAL, NULL },
	{ "extent=1M", EINVAL, NULL },
	{ "extent=3M", EINVAL, NULL },
	{ "extent=2T", EINVAL, NULL },
	{ "extent=2M2M", EINVAL, NULL },
	{ "metadata=0", EINVAL, NULL },
	{ "metadata=", EINVAL, NULL },
	{ "metadata=1X", EINVAL, NULL },
	{ "lanes=0", EINVAL, NULL },
	{ "lanes=33", EINVAL, NULL },
	{ "on_loss=pause", EINVAL, NULL },
	{ "on-loss=zero", EINVAL, NULL },
	{ "on-loss=", EINVAL, NULL },
	{ "mode=888", EINVAL, NULL },
	{ "uid=-1", EINVAL, NULL },
	{ "nonsense", EINVAL, NULL },
	{ "nonsense=1", EINVAL, NULL },
};

static const char *where;

/* Is it mounted, and how? Its line of /proc/mounts, or an empty one. */
static void mounted(char *line, int size)
{
	FILE *f = fopen("/proc/mounts", "r");
	char want[256];

	if (!f)
		fail("/proc/mounts: %s", strerror(errno));
	snprintf(want, sizeof(want), "fuzz %s dcmfs ", where);
	while (fgets(line, size, f))
		if (!strncmp(line, want, strlen(want)))
			break;
	if (feof(f))
		line[0] = 0;
	fclose(f);
}

/* A mount with these options takes a file, and can be unmounted. */
static void works(const char *text, const char *shown)
{
	struct statfs st;
	char line[1024];
	int fd;

	mounted(line, sizeof(line));
	if (!line[0] || (shown && !strstr(line, shown)))
		fail("mounted with %s, it says %s", text, line);
	if (statfs(where, &st) || st.f_type != DCMFS_MAGIC)
		fail("statfs with %s", text);
	fd = open(where, O_TMPFILE | O_RDWR, 0600);
	if (strstr(line, " ro,"))
		expect(fd, EROFS, text);
	else if (fd < 0)
		fail("a file with %s: %s", text, strerror(errno));
	else if (ftruncate(fd, 4 << 20))
		fail("the size of a file with %s: %s", text, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (umount(where))
		fail("umount with %s: %s", text, strerror(errno));
}

static void from_list(void)
{
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		int err = mount("fuzz", where, "dcmfs", 0, list[i].text) ?
				  errno :
				  0;

		if (err != list[i].err)
			fail("options %s: %s instead of %s", list[i].text,
			     strerror(err), strerror(list[i].err));
		if (!err)
			works(list[i].text, list[i].shown);
	}
	printf("options: right\n");
}

/* A mount's options can't be changed; a remount with the same options succeeds. */
static void remounts(void)
{
	static const char *const other[] = { "budget=8M", "share=20",
					     "extent=4M", "lanes=3",
					     "on-loss=sigbus", "metadata=8M",
					     "nonsense" };
	char line[1024];
	size_t i;

	if (mount("fuzz", where, "dcmfs", 0, "budget=4M,extent=2M,lanes=2"))
		fail("mount: %s", strerror(errno));
	for (i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		expect(mount("fuzz", where, "dcmfs", MS_REMOUNT, other[i]),
		       EINVAL, other[i]);
	if (mount("fuzz", where, "dcmfs", MS_REMOUNT | MS_RDONLY,
		  "budget=4M,extent=2M,lanes=2,on-loss=pause"))
		fail("remount: %s", strerror(errno));
	mounted(line, sizeof(line));
	if (!strstr(line, " ro,") || !strstr(line, "budget=4194304,"))
		fail("remounted, it says %s", line);
	if (mount("fuzz", where, "dcmfs", MS_REMOUNT, ""))
		fail("remount: %s", strerror(errno));
	works("remount", "budget=4194304,extent=2097152,lanes=2,on-loss=pau");
	printf("remounts: right\n");
}

#define CHUNK (1u << 20) /* what a page of descriptors is for */
#define LARGE (64u << 20)

static void mount_with(uint64_t metadata)
{
	char text[64];

	snprintf(text, sizeof(text), "extent=2M,lanes=1,metadata=%llu",
		 (unsigned long long)metadata);
	if (mount("fuzz", where, "dcmfs", 0, text))
		fail("mount with %s: %s", text, strerror(errno));
}

static int file_here(void)
{
	int fd = open(where, O_TMPFILE | O_RDWR, 0600);

	if (fd < 0)
		fail("a file: %s", strerror(errno));
	return fd;
}

/*
 * Files of a mount together take no more than it may have: a size, or the first use
 * of a page, is refused and changes nothing, and what others give back can be had.
 */
static void metadata(void)
{
	unsigned int n, last = LARGE / CHUNK - 1;
	uint64_t bare;
	struct stat st;
	int a, b;
	char *m;

	mount_with(1 << 30);
	a = file_make(where, LARGE);
	bare = info_of(a).metadata_bytes;
	close(a);
	if (umount(where))
		fail("umount: %s", strerror(errno));

	mount_with(bare + 20 * PAGE);
	a = file_here();
	b = file_here();
	if (ftruncate(a, LARGE))
		fail("the size of the first file: %s", strerror(errno));
	expect(ftruncate(b, LARGE), ENOSPC, "the size of a second file");
	if (fstat(b, &st) || st.st_size)
		fail("a file that was refused has a size");
	m = map_shared(a, LARGE);
	for (n = 0; n < 20; n++)
		m[n * CHUNK] = (char)(n + 1);
	if (readable(m + last * CHUNK) || readable(m + 20 * CHUNK))
		fail("more pages are used than can be described");
	if (info_of(a).metadata_bytes != bare + 20 * PAGE)
		fail("a refused page has taken memory");
	for (n = 0; n < 20; n++)
		if (m[n * CHUNK] != (char)(n + 1))
			fail("what was there is not any more");
	if (fallocate(a, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      16 * CHUNK))
		fail("a hole: %s", strerror(errno));
	m[last * CHUNK] = 1;
	if (m[19 * CHUNK] != 20)
		fail("what was beside the hole is not there any more");
	munmap(m, LARGE);
	close(a);
	if (ftruncate(b, LARGE))
		fail("a size when the other file is gone: %s", strerror(errno));
	close(b);
	if (umount(where))
		fail("umount: %s", strerror(errno));
	printf("metadata: right\n");
}

static const char *const keys[] = { "budget", "share",	 "extent", "lanes",
				    "mode",   "on-loss", "uid",	   "gid",
				    "",	      "ro",	 "rw",	   "budgets" };
static const char *const values[] = {
	"",    "0",	 "1",	   "-1",
	"2M",  "64M",	 "1k",	   "0x200000",
	"07",  "99",	 "4T",	   "1E",
	"%s%", "sigbus", "pause ", "18446744073709551615",
};

#define ANY(rng, list) ((list)[rnd(rng) % (sizeof(list) / sizeof((list)[0]))])

static void any_bytes(uint64_t *rng, char *buf, size_t n)
{
	while (n--)
		*buf++ = (char)(1 + rnd(rng) % 255);
	*buf = 0;
}

static void by_string(uint64_t *rng)
{
	char text[4096] = "", some[300];
	unsigned int n = (unsigned int)(rnd(rng) % 5);

	while (n--) {
		const char *value = ANY(rng, values);

		if (rnd(rng) % 8 == 0) {
			any_bytes(rng, some, rnd(rng) % (sizeof(some) - 1));
			value = some;
		}
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "%s%s%s,", ANY(rng, keys), rnd(rng) % 8 ? "=" : "",
			 value);
	}
	if (!mount("fuzz", where, "dcmfs", 0, text))
		works(text, NULL);
}

static void by_fsconfig(uint64_t *rng)
{
	static const unsigned int kinds[] = {
		FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING,	    FSCONFIG_SET_BINARY,
		FSCONFIG_SET_PATH, FSCONFIG_SET_PATH_EMPTY, FSCONFIG_SET_FD,
	};
	int context = (int)syscall(SYS_fsopen, "dcmfs", FSOPEN_CLOEXEC), root;
	unsigned int n = (unsigned int)(rnd(rng) % 6);

	if (context < 0)
		fail("fsopen: %s", strerror(errno));
	while (n--) {
		unsigned int kind = ANY(rng, kinds);
		const char *value = ANY(rng, values);
		char some[257];
		int aux = 0;

		any_bytes(rng, some, 256);
		if (kind == FSCONFIG_SET_FLAG)
			value = NULL;
		if (kind == FSCONFIG_SET_BINARY) {
			value = some;
			aux = (int)(rnd(rng) % 256);
		}
		if (kind == FSCONFIG_SET_FD) {
			value = NULL;
			aux = context;
		}
		if (kind == FSCONFIG_SET_PATH ||
		    kind == FSCONFIG_SET_PATH_EMPTY)
			aux = AT_FDCWD;
		if (syscall(SYS_fsconfig, context, kind, ANY(rng, keys), value,
			    aux))
			continue; /* refused: the context goes on */
	}
	syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "source", "fuzz",
		0);
	if (!syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL,
		     0)) {
		root = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
		if (root < 0)
			fail("fsmount: %s", strerror(errno));
		close(root);
	}
	close(context);
}

/* mounts DIR ROUNDS SEED */
int mounts(int argc, char **argv)
{
	uint64_t rounds = strtoull(argv[3], NULL, 0), i;
	uint64_t rng = strtoull(argv[4], NULL, 0) * 2 + 1;

	(void)argc;
	where = argv[2];
	from_list();
	remounts();
	catch_bus();
	metadata();
	for (i = 0; i < rounds; i++) {
		by_string(&rng);
		by_fsconfig(&rng);
	}
	printf("at random: right\n");
	return 0;
}
