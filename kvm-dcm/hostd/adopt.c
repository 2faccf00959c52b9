// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * adopt.c - take over from the dcm-hostd that ran before
 *
 * The kernel goes on using a file's slabs and connections when dcm-hostd is
 * killed or restarts itself (SIGHUP). Donors keep a session as long as they get signs
 * of life: the kernel sends a request once a second over its connections, and its queue
 * pairs answer donors that ask them. For a donor on this host there are no such
 * connections; instead the kernel holds the control connection open (DCMFS_IOC_KEEP).
 * All of these end with the file's memory.
 *
 * So the next dcm-hostd must learn the sessions and the slabs. They are not in a file
 * on disk, which could be out of date: the kernel lists the slabs (DCMFS_IOC_SLAB), and
 * keeps a note (DCMFS_IOC_NOTE), written when a session begins, with all that is needed
 * to resume the session.
 *
 * The kernel knows a donor by a number. A donor keeps its number as long as it
 * has a note, wherever it stands in the configuration. If it is no longer configured,
 * its slabs are moved off it (donor.c).
 *
 * Slabs that can't be taken over are lost: hostd_slabs_inherit().
 *
 * Locking: notes are read before there are other threads, and written by the
 * client thread alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "hostd.h"

#define NOTE_MAGIC 0x65746f6e6d6364ull /* "dcmnote" */

/**
 * struct note - a donor and the session with it
 */
struct note {
	u64 magic;
	struct dcm_client_session session;
	struct dcm_host_donor donor;
};

static_assert(sizeof(struct note) <= DCMFS_NOTE_MAX, "a note is too long");

static bool note_read(const struct hostd_file *f, u32 number, struct note *n)
{
	struct dcmfs_note arg = { .donor = number };
	bool ok = !ioctl(f->fd, DCMFS_IOC_NOTE, &arg);

	memcpy(n, arg.bytes, sizeof(*n));
	explicit_bzero(&arg, sizeof(arg));
	n->donor.name[DCM_NAME_MAX] = 0;
	n->donor.address[DCM_ADDRESS_MAX] = 0;
	return ok && n->magic == NOTE_MAGIC && n->session.id;
}

bool hostd_donor_same(const struct dcm_host_donor *a,
		      const struct dcm_host_donor *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->address, b->address);
}

u32 hostd_number_free(const struct hostd_file *f, u64 taken)
{
	u32 i;

	for (i = 0; i < f->nr_donors; i++)
		taken |= 1ull << f->number[i];
	return (u32)__builtin_ctzll(~taken);
}

/**
 * hostd_donors_find() - find a file's donors, their numbers and sessions
 * @h: has the configuration
 * @f: its @donor, @number, @session and @redundancy are filled in
 */
void hostd_donors_find(const struct hostd *h, struct hostd_file *f)
{
	struct hostd_choice choice;
	u64 taken = 0;
	struct note n;
	u32 number, i;

	for (number = 0; number < DCMFS_DONORS_MAX; number++) {
		if (!note_read(f, number, &n))
			continue;
		for (i = 0; i < h->cfg.nr_donors; i++)
			if (hostd_donor_same(&h->cfg.donor[i], &n.donor))
				break;
		if (i == h->cfg.nr_donors)
			dcm_log(DCM_LOG_WARNING,
				"%s: donor %s (%s) is not in the configuration any more; what it lends is moved off it",
				f->path, n.donor.name, n.donor.address);
		f->donor[f->nr_donors] = n.donor;
		f->session[f->nr_donors] = n.session;
		f->number[f->nr_donors++] = number;
		taken |= 1ull << number;
	}
	hostd_choice_read(f, &choice);
	f->redundancy = hostd_choice_redundancy(&choice, h);
	for (i = 0; i < h->cfg.nr_donors; i++) {
		u32 k;

		for (k = 0; k < f->nr_donors; k++)
			if (hostd_donor_same(&f->donor[k], &h->cfg.donor[i]))
				break;
		if (k < f->nr_donors || f->nr_donors == DCMFS_DONORS_MAX ||
		    !hostd_choice_has(&choice, h, i))
			continue;
		number = hostd_number_free(f, taken);
		f->donor[f->nr_donors] = h->cfg.donor[i];
		f->number[f->nr_donors++] = number;
	}
	explicit_bzero(&n, sizeof(n));
}

static u32 donor_of(const struct hostd_file *f, u32 number)
{
	u32 i;

	for (i = 0; i < f->nr_donors; i++)
		if (f->number[i] == number && f->session[i].id)
			break;
	return i;
}

/*
 * Should a slab be emptied? Yes if the daemon before this one had begun to empty it, or
 * if the extent has enough newer slabs.
 */
static bool slab_old(const struct hostd_file *f, const struct dcmfs_slab *slab)
{
	u64 first = hostd_slab_number(slab->extent, 0);
	u32 i, later = 0;

	for (i = 0; i < DCMFS_SLABS; i++) {
		struct dcmfs_slab a = { .fd = -1, .id = first + i - 1 };

		later += !ioctl(f->fd, DCMFS_IOC_SLAB, &a) &&
			 a.id == first + i && a.order > slab->order &&
			 !(a.flags & DCMFS_SLAB_CLOSED);
	}
	return slab->flags & DCMFS_SLAB_CLOSED || later >= hostd_file_copies(f);
}

/* struct dcm_client_config.adopt */
void hostd_adopt(void *arg, struct dcm_client *client)
{
	struct hostd_file *f = hostd_file_of(arg);
	struct dcmfs_slab a = { .fd = -1 };
	u32 i, n = 0;

	for (i = 0; i < f->nr_donors; i++)
		if (f->session[i].id)
			dcm_client_adopt_session(client, i, &f->session[i]);
	while (!ioctl(f->fd, DCMFS_IOC_SLAB, &a)) {
		struct dcm_slab_ref ref = {
			.id = a.remote,
			.bytes = f->info.extent_pages * 4096,
			.base = a.base,
			.rkey = a.rkey,
			.rank = a.flags & DCMFS_SLAB_FILE ? DCM_RANK_FILE :
							    DCM_RANK_MEMORY,
		};
		bool old = slab_old(f, &a);
		struct dcm_client_slab *slab = NULL;

		i = donor_of(f, a.donor);
		if (i < f->nr_donors)
			slab = dcm_client_adopt_slab(client, i, a.extent, &ref,
						     !old);
		if (slab && hostd_slab_adopt(f, slab, &a, old))
			n++;
		a = (struct dcmfs_slab){ .fd = -1, .id = a.id };
	}
	if (n)
		dcm_log(DCM_LOG_NOTICE,
			"%s: going on with %u slab%s of the dcm-hostd before this one",
			f->path, n, n == 1 ? "" : "s");
	explicit_bzero(f->session, sizeof(f->session));
}

static void control_keep(const struct hostd_file *f, u32 donor, int fd)
{
	struct dcmfs_keep keep = { .donor = f->number[donor], .fd = fd };

	if (f->fd >= 0 && ioctl(f->fd, DCMFS_IOC_KEEP, &keep))
		dcm_log(DCM_LOG_WARNING,
			"%s: donor %s: the kernel does not hold its connection: %s: what it lends is lost if dcm-hostd is away for longer than 5 s",
			f->path, f->donor[donor].name, strerror(errno));
}

/* struct dcm_client_ops.welcomed */
void hostd_welcomed(void *arg, u32 donor, int fd)
{
	socklen_t len = sizeof(int);
	int domain;

	/* donors on other hosts get signs of life over links */
	if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	    domain == AF_UNIX)
		control_keep(hostd_file_of(arg), donor, fd);
}

/* struct dcm_client_ops.session */
void hostd_session(void *arg, u32 donor, const struct dcm_client_session *s)
{
	struct hostd_file *f = hostd_file_of(arg);
	struct dcmfs_note note = { .donor = f->number[donor], .set = 1 };
	struct note n = { .magic = NOTE_MAGIC, .donor = f->donor[donor] };

	if (s)
		n.session = *s;
	else
		control_keep(f, donor, -1);
	memcpy(note.bytes, &n, sizeof(n));
	if (f->fd >= 0 && ioctl(f->fd, DCMFS_IOC_NOTE, &note))
		dcm_log(DCM_LOG_WARNING,
			"%s: donor %s: the kernel does not keep its session: %s: what it lends is lost if dcm-hostd is killed; restart dcm-hostd",
			f->path, f->donor[donor].name, strerror(errno));
	explicit_bzero(&note, sizeof(note));
	explicit_bzero(&n, sizeof(n));
}
