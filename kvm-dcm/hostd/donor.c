// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - add and remove donors
 *
 * Only the configuration says which donors there are. On SIGUSR1 it is read
 * again, and each file's client applies the differences: a new donor is used; slabs are
 * moved off a donor that should drain or is no longer configured (client/member.c).
 * Other changes in the configuration take effect at the next start or SIGHUP. An error
 * in it is logged, and nothing changes.
 *
 * The same is done for a dcmfs file that is found later, or taken over from another
 * daemon.
 *
 * For a file, donors that it may not use (choice.c) count as not configured.
 *
 * Locking: the main thread's, but hostd_donor_added(), which a client thread
 * calls before any other callback has that donor's number.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hostd.h"

/* The donor's index in the configuration; if not there, the number of donors. */
static u32 donor_configured(const struct hostd *h,
			    const struct dcm_host_donor *d)
{
	u32 i;

	for (i = 0; i < h->cfg.nr_donors; i++)
		if (hostd_donor_same(&h->cfg.donor[i], d))
			break;
	return i;
}

static void status_donor(const struct dcm_client_status *st, u32 i,
		 struct dcm_host_donor *d)
{
	memcpy(d->name, st->donor[i].name, sizeof(d->name));
	memcpy(d->address, st->donor[i].address, sizeof(d->address));
}

static bool donor_known(const struct dcm_client_status *st,
		  const struct dcm_host_donor *d)
{
	struct dcm_host_donor other;
	u32 i;

	for (i = 0; i < st->nr_donors; i++) {
		status_donor(st, i, &other);
		if (hostd_donor_same(&other, d))
			return true;
	}
	return false;
}

static void donor_log(const struct hostd_file *f,
		      const struct dcm_host_donor *d, int err)
{
	if (!err || err == -EALREADY)
		return;
	dcm_log(DCM_LOG_ERR, "%s: donor %s (%s): %s", f->path, d->name,
		d->address,
		err == -EEXIST || err == -EADDRINUSE ?
			"another donor with its name or its address is still being removed: send SIGUSR1 again later" :
			strerror(-err));
}

/* Apply the redundancy of the file's choice to its client. */
static void redundancy_apply(const struct hostd *h, struct hostd_file *f,
			     enum dcm_host_redundancy redundancy)
{
	enum dcm_host_redundancy was = f->redundancy;
	int err;

	if (redundancy == was)
		return;
	err = dcm_client_redundancy_set(f->client, redundancy);
	if (err && err != -EALREADY) {
		dcm_log(DCM_LOG_ERR, "%s: redundancy stays %s: %s", f->path,
			dcm_redundancies[was].name, strerror(-err));
		return;
	}
	f->redundancy = redundancy;
	WRITE_ONCE(f->slabs.lag_most,
		   dcm_redundancy_lag(redundancy, h->cfg.disk_lag));
	dcm_log(DCM_LOG_NOTICE, "%s: redundancy is %s now, it was %s", f->path,
		dcm_redundancies[redundancy].name, dcm_redundancies[was].name);
}

/**
 * hostd_donors_apply() - make a file's client use the donors of the configuration
 * @h: has the configuration
 * @f: its client runs
 */
void hostd_donors_apply(const struct hostd *h, struct hostd_file *f)
{
	struct dcm_client_status *st = calloc(1, sizeof(*st));
	struct hostd_choice choice;
	struct dcm_host_donor d;
	u32 i, k;

	if (!st)
		return;
	hostd_choice_read(f, &choice);
	redundancy_apply(h, f, hostd_choice_redundancy(&choice, h));
	dcm_client_status(f->client, st);
	for (i = 0; i < st->nr_donors; i++) {
		status_donor(st, i, &d);
		k = donor_configured(h, &d);
		if (k == h->cfg.nr_donors || !hostd_choice_has(&choice, h, k))
			donor_log(f, &d,
				  dcm_client_donor_remove(f->client, d.name));
	}
	for (i = 0; i < h->cfg.nr_donors; i++) {
		d = h->cfg.donor[i];
		if (!hostd_choice_has(&choice, h, i))
			continue;
		/* only new donors: looking up a host's name may be slow */
		if (!donor_known(st, &d))
			donor_log(f, &d, dcm_client_donor_add(f->client, &d));
		donor_log(f, &d,
		    dcm_client_donor_drain(f->client, d.name,
					   h->cfg.drained >> i & 1));
	}
	free(st);
}

/* struct dcm_client_ops.donor */
void hostd_donor_added(void *arg, u32 donor, const struct dcm_host_donor *d)
{
	struct hostd_file *f = hostd_file_of(arg);

	f->donor[donor] = *d;
	if (donor < f->nr_donors)
		return;
	f->number[donor] = hostd_number_free(f, 0);
	f->nr_donors = donor + 1;
}

/**
 * hostd_donors_read() - read the donors of the configuration again
 * @h: its files use them from now on
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
