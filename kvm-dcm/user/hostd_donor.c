// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostd_donor.c - donors that come and go
 *
 * Which donors there are is said by the configuration alone. SIGUSR1 has it read
 * again, and each file's control plane does what is different: one that is new is
 * used, one that shall drain or is not there any more is left (ctl_member.c). What
 * else has changed in the file waits for the next start or SIGHUP. A configuration
 * that is wrong is told, and nothing changes.
 *
 * A file that comes later, or was another daemon's, is brought to the same state.
 *
 * A file may have a choice of them: names, one a line, in HOSTD_CHOICES/NAME.donors
 * when it is NAME. The others are to it as if they were not configured. Whoever
 * makes the file writes that before (libvirt's hook), and may change it later.
 *
 * Locking: the main thread's, but hostd_donor_added(), which is a control thread's
 * before anything is said of that donor by its number.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hostd.h"

#define CHOICE_MAX (DCM_CONFIG_DONORS_MAX * (DCM_NAME_MAX + 1))

/**
 * hostd_donor_chosen() - may a file use a donor of that name?
 * @f: the file
 * @name: NULL: any at all; false then says that it has a choice
 *
 * What can't be read has been chosen by nobody: rather no donor than another.
 */
bool hostd_donor_chosen(const struct hostd_file *f, const char *name)
{
	char path[HOSTD_PATH_MAX], text[CHOICE_MAX + 1], *line, *rest = text;
	const char *base = strrchr(f->path, '/');
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), HOSTD_CHOICES "/%s.donors",
		 base ? base + 1 : f->path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR;
	if (name)
		n = read(fd, text, CHOICE_MAX);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	while (name && (line = strsep(&rest, "\n")))
		if (*line && !strcmp(line, name))
			return true;
	return false;
}

static bool configured(const struct hostd *h, const struct dcm_host_donor *d)
{
	u32 i;

	for (i = 0; i < h->cfg.nr_donors; i++)
		if (hostd_donor_same(&h->cfg.donor[i], d))
			return true;
	return false;
}

static void used(const struct dcm_ctl_status *st, u32 i,
		 struct dcm_host_donor *d)
{
	memcpy(d->name, st->donor[i].name, sizeof(d->name));
	memcpy(d->address, st->donor[i].address, sizeof(d->address));
}

static bool known(const struct dcm_ctl_status *st,
		  const struct dcm_host_donor *d)
{
	struct dcm_host_donor other;
	u32 i;

	for (i = 0; i < st->nr_donors; i++) {
		used(st, i, &other);
		if (hostd_donor_same(&other, d))
			return true;
	}
	return false;
}

static void say(const struct hostd_file *f, const struct dcm_host_donor *d,
		int err)
{
	if (!err || err == -EALREADY)
		return;
	dcm_log(DCM_LOG_ERR, "%s: donor %s (%s): %s", f->path, d->name,
		d->address,
		err == -EEXIST || err == -EADDRINUSE ?
			"its name or its address is another donor's, which is still being left: once more later (SIGUSR1)" :
			strerror(-err));
}

/**
 * hostd_donors_apply() - have a file use the donors of the configuration
 * @h: with its configuration
 * @f: its control plane runs
 */
void hostd_donors_apply(const struct hostd *h, struct hostd_file *f)
{
	struct dcm_ctl_status *st = calloc(1, sizeof(*st));
	struct dcm_host_donor d;
	u32 i;

	if (!st)
		return;
	dcm_ctl_status(f->ctl, st);
	for (i = 0; i < st->nr_donors; i++) {
		used(st, i, &d);
		if (!configured(h, &d) || !hostd_donor_chosen(f, d.name))
			say(f, &d, dcm_ctl_donor_remove(f->ctl, d.name));
	}
	for (i = 0; i < h->cfg.nr_donors; i++) {
		d = h->cfg.donor[i];
		if (!hostd_donor_chosen(f, d.name))
			continue;
		/* looked up only if it is new: that may take long */
		if (!known(st, &d))
			say(f, &d, dcm_ctl_donor_add(f->ctl, &d));
		say(f, &d,
		    dcm_ctl_donor_drain(f->ctl, d.name,
					       h->cfg.drained >> i & 1));
	}
	free(st);
}

/* struct dcm_ctl_ops.donor */
void hostd_donor_added(void *arg, u32 donor, const struct dcm_host_donor *d)
{
	struct hostd_file *f = arg;

	f->donor[donor] = *d;
	if (donor < f->nr_donors)
		return;
	f->number[donor] = hostd_number_free(f, 0);
	f->nr_donors = donor + 1;
}

/**
 * hostd_donors_read() - read again which donors there are
 * @h: its files are served by them from now on
 * @config: path of the configuration
 */
void hostd_donors_read(struct hostd *h, const char *config)
{
	struct dcm_host_config *cfg = malloc(sizeof(*cfg));
	char err[DCM_ERR_MAX];
	struct hostd_file *f;

	if (!cfg)
		return;
	if (dcm_hostd_config_load(config, cfg, err)) {
		dcm_log(DCM_LOG_ERR, "SIGUSR1: %s: going on as before", err);
		free(cfg);
		return;
	}
	memcpy(h->cfg.donor, cfg->donor, sizeof(cfg->donor));
	h->cfg.nr_donors = cfg->nr_donors;
	h->cfg.drained = cfg->drained;
	free(cfg);
	dcm_log(DCM_LOG_NOTICE, "SIGUSR1: %u donor%s", h->cfg.nr_donors,
		h->cfg.nr_donors == 1 ? "" : "s");
	for (f = h->files; f; f = f->next)
		hostd_donors_apply(h, f);
}
