// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * choice.c - the donors, the redundancy and the sealing of one file
 *
 * A file uses all donors of the configuration, unless HOSTD_CHOICES/NAME.donors
 * exists for a file called NAME. Each of its lines names a donor, or a group of
 * donors as @GROUP; a line * stands for all donors. libvirt's hook writes it before
 * it makes the file, and may change it later. Groups are looked up whenever the donors
 * change: a donor that joins a group later is used. Lines "redundancy = VALUE" and
 * "seal = yes" or "seal = no" are used in place of the configuration's.
 *
 * Locking: none, the main thread's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hostd.h"

static bool is_line(const char *text, const char *mark, const char *name)
{
	size_t before = strlen(mark), len = strlen(name), n;
	const char *line;

	for (line = text; *line; line += n + !!line[n]) {
		n = strcspn(line, "\n");
		if (n == before + len && !strncmp(line, mark, before) &&
		    !strncmp(line + before, name, len))
			return true;
	}
	return false;
}

/**
 * hostd_choice_read() - read the choice for a file
 * @f: the file
 * @c: filled in
 *
 * If it can't be read the file gets no donor, rather than a wrong one.
 */
void hostd_choice_read(const struct hostd_file *f, struct hostd_choice *c)
{
	const char *base = strrchr(f->path, '/');
	char path[HOSTD_PATH_MAX];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), HOSTD_CHOICES "/%s.donors",
		 base ? base + 1 : f->path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	c->any = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
	if (fd >= 0) {
		n = read(fd, c->text, sizeof(c->text) - 1);
		close(fd);
	}
	c->text[n < 0 ? 0 : n] = 0;
	c->any |= is_line(c->text, "", "*");
}

/**
 * hostd_choice_redundancy() - the redundancy of a file: its own, or the configuration's
 * @c: the file's choice
 * @h: has the configuration
 */
enum dcm_host_redundancy hostd_choice_redundancy(const struct hostd_choice *c,
						 const struct hostd *h)
{
	enum dcm_host_redundancy i;

	for (i = 0; i < DCM_REDUNDANCY_NR; i++)
		if (is_line(c->text, "redundancy = ", dcm_redundancies[i].name))
			return i;
	return h->cfg.redundancy;
}

/**
 * hostd_choice_seal() - should the pages of a new file be sealed?
 * @c: the file's choice
 * @h: has the configuration
 */
bool hostd_choice_seal(const struct hostd_choice *c, const struct hostd *h)
{
	if (is_line(c->text, "seal = ", "yes"))
		return true;
	return h->cfg.seal && !is_line(c->text, "seal = ", "no");
}

/**
 * hostd_choice_has() - may a file use a donor?
 * @c: the file's choice
 * @h: has the configuration
 * @donor: index in the configuration
 */
bool hostd_choice_has(const struct hostd_choice *c, const struct hostd *h,
		      u32 donor)
{
	const char *group = h->cfg.donor[donor].group;

	return c->any || is_line(c->text, "", h->cfg.donor[donor].name) ||
	       (*group && is_line(c->text, "@", group));
}
