// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * restart.c - slabs and sessions that outlive the process
 *
 * systemd keeps descriptors for a service (FDSTORE in sd_notify(3),
 * FileDescriptorStoreMax= in the unit) and passes them to its next process. The donor
 * stores there the memfd of each lent slab, and one with the records of sessions and
 * slabs (keep.c). So a donor that is killed, crashes, or is replaced by a newer one
 * costs its hosts only a pause: sessions are resumed by their secrets, mappings of
 * shm stay valid, data connections are made again.
 *
 * Steps are in such an order that the process may be killed after any of them:
 *
 *	lent:	 the memfd is stored, its record written, the host told
 *	freed:	 the record is cleared, the memfd truncated, then removed
 *
 * At the start, a memfd without a record was not lent, or is no longer lent: it is
 * truncated. A record without its memfd is dropped: that slab is lost, and its host is
 * told NO_SLAB.
 *
 * The stored descriptors are trusted as little as bytes from the network: records are
 * checked by keep.c, and a memfd must have the size and the seals of such a slab. If
 * the records are damaged the donor starts without any of them. A session is restored
 * only if its tenant still has the same key.
 *
 * Not restored: GC workers, whose hosts trace again (systemd, and the kernel at
 * their parent's death, kill them before the next process starts); keys of verbs
 * (dcm_export_again()); spare slabs; EVICTs, sent again if needed.
 *
 * When SIGTERM ends the donor all sessions end, so nothing is left in the store.
 *
 * Locking: none, all on the event loop. A message to the store waits for a tenth of
 * a second at most; a slab that it does not take is lent, but not kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kvm-dcm/lib/notify.h"
#include "../kvm-dcm/lib/value.h"
#include "donor.h"
#include "keep.h"
#include "log_limit.h"
#include "restart.h"

#define FIRST_FD   3 /* SD_LISTEN_FDS_START */
#define STATE_NAME "dcm-state"
#define SLAB_NAME  "dcm-slab-"

/*
 * The memfd of a slab, from the store; @fd: -1 once a slab owns it. Each donor_id has
 * its own numbering of slabs, so the name of a memfd has both.
 */
struct stored {
	u64 donor;
	u64 id;
	int fd;
};

struct store {
	struct stored *slab; /* sorted */
	u32 nr;
	int state;
};

static void slab_forget(u64 donor, u64 id)
{
	dcm_notify_fd(-1, "FDSTOREREMOVE=1\nFDNAME=" SLAB_NAME "%016llx-%llu",
		      (unsigned long long)donor, (unsigned long long)id);
}

static void stored_free(struct stored *s)
{
	if (s->fd < 0)
		return;
	/* a host may have it mapped */
	if (ftruncate(s->fd, 0))
		dcm_warn("slab %llu can't be truncated: its memory stays until every holder closes it",
			 (unsigned long long)s->id);
	close(s->fd);
	s->fd = -1;
	slab_forget(s->donor, s->id);
}

/* ---- what systemd has passed ---- */

/* Parse a number; 0: it is none, or more than @most. */
static u64 number_of(const char *text, u64 most)
{
	u64 n;

	return !text || dcm_count_parse(text, &n) || n > most ? 0 : n;
}

/* Is it the name of a slab's memfd? Then fill in @s's ids. */
static bool slab_name(const char *name, struct stored *s)
{
	unsigned long long donor;
	int end = 0;

	if (sscanf(name, SLAB_NAME "%16llx-%n", &donor, &end) != 1 || !end)
		return false;
	s->donor = donor;
	s->id = number_of(name + end, U64_MAX);
	return s->id;
}

static void store_take(struct store *st, const char *name, int fd)
{
	struct stored s = { .fd = fd };

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (slab_name(name, &s))
		st->slab[st->nr++] = s;
	else if (!strcmp(name, STATE_NAME) && st->state < 0)
		st->state = fd;
	else
		close(fd);
}

static int stored_compare(const void *a, const void *b)
{
	const struct stored *l = a, *r = b;

	if (l->donor != r->donor)
		return l->donor < r->donor ? -1 : 1;
	return l->id < r->id ? -1 : l->id > r->id;
}

/* Take the descriptors that are meant for this process, as sd_listen_fds(3). */
static void store_read(struct store *st)
{
	u64 pid = number_of(getenv("LISTEN_PID"), INT32_MAX);
	u64 nr = number_of(getenv("LISTEN_FDS"), 1u << 20);
	char *names = getenv("LISTEN_FDNAMES");

	names = strdup(names ? names : "");
	if (pid == (u64)getpid() && nr && names)
		st->slab = calloc(nr, sizeof(*st->slab));
	if (st->slab) {
		char *next = names;

		for (u64 i = 0; i < nr; i++) {
			const char *name = strsep(&next, ":");

			store_take(st, name ? name : "", FIRST_FD + (int)i);
		}
		qsort(st->slab, st->nr, sizeof(*st->slab), stored_compare);
	}
	free(names);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
}

/* ---- a donor that goes on ---- */

/* The print of a tenant's key: a hash, which records have in place of the key. */
static u64 key_print(const struct dcm_donor *donor, const struct dcm_tenant *t)
{
	u8 text[sizeof(u64) + DCM_WIRE_KEY_MAX], digest[32] = { 0 };
	u64 print = 0;

	memcpy(text, &donor->donor_id, sizeof(u64));
	memcpy(text + sizeof(u64), t->key, t->key_bytes);
	if (!gnutls_hash_fast(GNUTLS_DIG_SHA256, text,
			      sizeof(u64) + t->key_bytes, digest))
		memcpy(&print, digest, sizeof(print));
	explicit_bzero(text, sizeof(text));
	return print;
}

static void sessions_restore(struct dcm_donor *donor)
{
	struct dcm_keep *k = donor->keep;
	struct dcm_keep_session r;
	struct dcm_session *s;
	struct dcm_tenant *t;
	u32 ended = 0;
	u64 print;

	for (u32 n = 1; n <= dcm_keep_shape(k)->nr_sessions; n++) {
		if (!dcm_keep_session_get(k, n, &r, &print))
			continue;
		t = dcm_tenant_find(&donor->tenants, r.tenant,
				    strnlen(r.tenant, DCM_WIRE_TENANT_MAX));
		s = NULL;
		if (t && print && print == key_print(donor, t))
			s = dcm_session_restore(donor, t, r.id, r.secret);
		if (!s) {
			dcm_keep_session_drop(k, n);
			ended++;
			continue;
		}
		s->keep = n;
		donor->stats.sessions_restored++;
	}
	explicit_bzero(&r, sizeof(r));
	if (ended)
		dcm_notice("%u sessions from before the restart have ended: their tenants' keys were changed or removed",
			   ended);
}

/* Lend a stored slab again to its session. False: the slab is lost. */
static bool slab_restore(struct dcm_donor *donor, struct stored *from,
			 const struct dcm_keep_slab *r, struct dcm_session *s)
{
	struct dcm_pool *pool = &donor->pool;
	const struct dcm_export_ops *export;
	struct dcm_slab *slab;
	struct stat st;

	if (fstat(from->fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size != (off_t)pool->slab_bytes ||
	    dcm_slab_id(r->serial) != r->id)
		return false;
	slab = dcm_slab_adopt(pool, r->serial, from->fd);
	if (!slab)
		return false;
	from->fd = -1;
	slab->stored = true;
	slab->backed = slab->bytes;
	dcm_list_add_tail(&slab->node, &pool->slabs);
	pool->nr_spare++;
	export = dcm_export_again(slab, r->transport);
	if (!export) {
		dcm_export_truncate(slab);
		dcm_pool_release(pool, slab);
		return false;
	}
	pool->nr_spare--;
	pool->nr_mapped++;
	slab->state = DCM_SLAB_MAPPED;
	slab->restored = true;
	slab->cookie = r->cookie;
	slab->tenant = s->tenant;
	dcm_tenant_get(slab->tenant);
	slab->tenant->bytes += slab->bytes;
	dcm_slab_lend(slab, s, export);
	dcm_list_add_tail(&slab->session_node, &s->slabs);
	s->nr_slabs++;
	s->no_verbs |= r->transport == DCM_WT_VERBS;
	return true;
}

static void slabs_restore(struct dcm_donor *donor, struct store *st)
{
	struct dcm_keep *k = donor->keep;
	struct dcm_keep_slab r;
	struct dcm_session *s;
	struct stored *from;
	struct dcm_slab *slab;
	u32 lost = 0;

	for (u32 n = 1; n <= dcm_keep_shape(k)->nr_slabs; n++) {
		struct stored key = { .donor = donor->donor_id };

		if (!dcm_keep_slab_get(k, n, &r))
			continue;
		s = dcm_session_find(donor, r.session, NULL, NULL);
		key.id = r.id;
		from = bsearch(&key, st->slab, st->nr, sizeof(key),
			       stored_compare);
		if (s && from && from->fd >= 0 &&
		    slab_restore(donor, from, &r, s)) {
			slab = dcm_slab_find(&donor->pool, r.id, s);
			slab->keep = n;
			donor->stats.slabs_restored++;
			continue;
		}
		/* if its session has ended, the slab is freed, but not lost */
		lost += s != NULL;
		dcm_keep_slab_drop(k, n);
	}
	if (lost)
		dcm_err("%u slabs from before the restart are lost: systemd has not kept their memory (FileDescriptorStoreMax=), or their hosts have truncated it",
			lost);
}

/*
 * Take over the records from before the restart as @donor->keep. False: can't be used.
 */
static bool state_adopt(struct dcm_donor *donor, struct store *st)
{
	const struct dcm_keep_shape *shape;
	const char *why;

	if (st->state < 0)
		return false;
	donor->keep = dcm_keep_adopt(st->state, &why);
	if (donor->keep) {
		shape = dcm_keep_shape(donor->keep);
		if (shape->slab_bytes == donor->pool.slab_bytes &&
		    shape->huge_bytes == donor->pool.huge_bytes) {
			donor->donor_id = shape->donor_id;
			donor->pool.serial = dcm_keep_serial(donor->keep);
			return true;
		}
		why = "slab-size or hugepages has changed";
		dcm_keep_free(donor->keep);
		donor->keep = NULL;
	}
	dcm_err("the state from before the restart can't be used: %s; starting without it, and %u slabs are lost",
		why, st->nr);
	return false;
}

static void state_new(struct dcm_donor *donor)
{
	const struct dcm_pool *pool = &donor->pool;
	struct dcm_keep_shape shape = {
		.donor_id = donor->donor_id,
		.slab_bytes = pool->slab_bytes,
		.huge_bytes = pool->huge_bytes,
		.nr_sessions = donor->cfg.sessions,
		/* the capacity may be raised later, but not beyond this */
		.nr_slabs = (u32)min(pool->total / pool->slab_bytes + 1,
				     (u64)U32_MAX),
	};
	int error;

	/* remove an older state: it was for another process, or can't be used */
	dcm_notify_fd(-1, "FDSTOREREMOVE=1\nFDNAME=" STATE_NAME);
	donor->keep = dcm_keep_new(&shape, &error);
	if (donor->keep)
		error = dcm_notify_fd(dcm_keep_fd(donor->keep),
				      "FDSTORE=1\nFDPOLL=0\nFDNAME=" STATE_NAME);
	if (!error)
		return;
	dcm_warn("slabs will not outlive a restart of this donor: %s",
		 strerror(-error));
	dcm_keep_free(donor->keep);
	donor->keep = NULL;
}

void dcm_restart_begin(struct dcm_donor *donor)
{
	struct store st = { .state = -1 };

	if (!getenv("NOTIFY_SOCKET"))
		return;
	store_read(&st);
	if (state_adopt(donor, &st)) {
		sessions_restore(donor);
		slabs_restore(donor, &st);
		dcm_notice("going on after a restart: %llu sessions, %llu slabs (%llu MiB)",
			   (unsigned long long)donor->stats.sessions_restored,
			   (unsigned long long)donor->stats.slabs_restored,
			   (unsigned long long)(donor->stats.slabs_restored *
							donor->pool.slab_bytes >>
						20));
	}
	for (u32 i = 0; i < st.nr; i++)
		stored_free(&st.slab[i]);
	free(st.slab);
	if (!donor->keep)
		state_new(donor);
	/* sample anew: restored slabs were counted as memory that others use */
	donor->pool.room_known = false;
	dcm_pool_sample(&donor->pool, true);
}

/* ---- while it runs ---- */

void dcm_restart_session(struct dcm_session *s)
{
	struct dcm_keep_session r = { .id = s->id };

	if (!s->donor->keep)
		return;
	memcpy(r.secret, s->secret, sizeof(r.secret));
	strcpy(r.tenant, s->tenant->name);
	s->keep = dcm_keep_session_add(s->donor->keep, &r,
				       key_print(s->donor, s->tenant));
	explicit_bzero(&r, sizeof(r));
	if (!s->keep)
		dcm_log_limited(
			DCM_LOG_WARNING,
				"session %llx of %s will not outlive a restart of this donor: there is room for %u",
				(unsigned long long)s->id, s->tenant->name,
				dcm_keep_shape(s->donor->keep)->nr_sessions);
}

void dcm_restart_session_end(struct dcm_session *s)
{
	if (s->keep)
		dcm_keep_session_drop(s->donor->keep, s->keep);
	s->keep = 0;
}

void dcm_restart_slab(struct dcm_slab *slab)
{
	const struct dcm_session *s = slab->session;
	struct dcm_keep_slab r = {
		.id = slab->id,
		.serial = slab->serial,
		.session = s->id,
		.cookie = slab->cookie,
		.transport = slab->export->transport,
	};
	int ret;

	if (!s->keep)
		return;
	ret = dcm_notify_fd(slab->fd,
			    "FDSTORE=1\nFDPOLL=0\nFDNAME=" SLAB_NAME
			    "%016llx-%llu",
			    (unsigned long long)s->donor->donor_id,
			    (unsigned long long)slab->id);
	if (!ret) {
		slab->stored = true;
		slab->keep = dcm_keep_slab_add(s->donor->keep, &r);
		ret = slab->keep ? 0 : -ENOSPC;
	}
	if (!ret)
		return;
	dcm_log_limited(DCM_LOG_WARNING,
			"slab %llu will not outlive a restart of this donor: %s",
			(unsigned long long)slab->id, strerror(-ret));
}

void dcm_restart_slab_end(struct dcm_slab *slab)
{
	if (slab->keep)
		dcm_keep_slab_drop(slab->session->donor->keep, slab->keep);
	slab->keep = 0;
}

void dcm_restart_slab_freed(const struct dcm_donor *donor,
			    const struct dcm_slab *slab)
{
	if (slab->stored)
		slab_forget(donor->donor_id, slab->id);
}

void dcm_restart_keys(struct dcm_donor *donor)
{
	const struct dcm_session *s;

	dcm_list_for_each(s, &donor->sessions, struct dcm_session, node)
		if (s->keep)
			dcm_keep_session_print(donor->keep, s->keep,
					       key_print(donor, s->tenant));
}

void dcm_restart_end(struct dcm_donor *donor)
{
	if (!donor->keep)
		return;
	dcm_notify_fd(-1, "FDSTOREREMOVE=1\nFDNAME=" STATE_NAME);
	dcm_keep_free(donor->keep);
	donor->keep = NULL;
}
