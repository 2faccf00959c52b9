// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_pager.c - a pager that wants extents and uses slabs, as an input says
 *
 * It keeps what it has asked the control plane for, and what it was given: every
 * callback must come as client.h says, an extent gets a slab only if it was asked
 * for, and no second one unless that was; with copies, none on a donor that has one
 * of its others; every operation completes once.
 */
#include <stdlib.h>
#include <string.h>

#include "../../kvm-dcm/client/client_int.h"
#include "fake_pager.h"

#define HELD 48u
#define IOS 24u

/**
 * struct held - a slab the pager has, or its operations still use
 * @left: another one is to take its place
 * @dropped: released: no callback names it any more
 */
struct held {
	struct dcm_client_slab *slab;
	u32 extent;
	u32 in_flight;
	bool evicted;
	bool left;
	bool lost;
	bool dropped;
};

struct op {
	struct dcm_io io;
	struct held *held;
	u32 lane;
	bool shm;
	bool busy;
	u8 *buf;
};

static struct dcm_client *client;
static struct held held[HELD];
static struct held *current[EXTENTS];
/* asked for and not to be forgotten, asked for, asked for besides @current */
static bool wanted[EXTENTS], asked[EXTENTS], other[EXTENTS], starved[EXTENTS];
static bool session_on[DCM_CONFIG_DONORS_MAX];
static struct op ops[IOS];
static bool polling;
static u64 fenced; /* donors, a bit each, while polling */
static bool many; /* extents may have several slabs */

/* ---- callbacks ---- */

static struct held *held_of(const struct dcm_client_slab *slab)
{
	for (u32 i = 0; i < HELD; i++)
		if (held[i].slab == slab && !held[i].dropped)
			return &held[i];
	abort();
}

static void drop(struct held *h)
{
	if (current[h->extent] == h)
		current[h->extent] = NULL;
	h->dropped = true;
	dcm_client_release(client, h->slab);
	if (!h->in_flight)
		h->slab = NULL;
}

/* One donor's death must not take two copies. */
static void apart_check(const struct dcm_client_slab *slab)
{
	for (u32 i = 0; i < HELD; i++)
		EXPECT(!held[i].slab || held[i].extent != slab->extent ||
		       held[i].left || held[i].lost || held[i].dropped ||
		       held[i].slab->donor != slab->donor);
}

static void cb_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	struct held *h = NULL;

	(void)arg;
	EXPECT(extent < EXTENTS && slab->extent == extent);
	EXPECT(slab->ref.bytes == client->extent_bytes);
	EXPECT((slab->transport == DCM_WT_SHM) ==
	     (slab->ref.map && slab->ref.fd >= 0));
	many |= client->uneven;
	if (many)
		apart_check(slab);
	else
		EXPECT(asked[extent] && (!current[extent] || other[extent]));
	wanted[extent] = false;
	asked[extent] = bit_test(client->want, extent);
	other[extent] = false;
	starved[extent] = false;
	for (u32 i = 0; i < HELD; i++) {
		EXPECT(!held[i].slab || held[i].dropped ||
		       held[i].slab != slab);
		if (!held[i].slab)
			h = &held[i];
	}
	if (!h) {
		current[extent] = NULL;
		dcm_client_release(client, slab);
		return;
	}
	*h = (struct held){ .slab = slab, .extent = extent };
	current[extent] = h;
}

static void want_other(struct held *h)
{
	h->left = true;
	/* of one that is not the newest: nothing is done */
	if (!current[h->extent] || current[h->extent] == h)
		wanted[h->extent] = true;
	asked[h->extent] = true;
	if (current[h->extent] == h)
		other[h->extent] = true;
	dcm_client_want_other(client, h->slab);
}

static void cb_evict(void *arg, struct dcm_client_slab *slab)
{
	struct held *h = held_of(slab);

	(void)arg;
	EXPECT(!h->evicted && !h->lost);
	h->evicted = true;
	want_other(h);
}

static void cb_lost(void *arg, struct dcm_client_slab *slab,
		    const struct dcm_host_donor *donor)
{
	struct held *h = held_of(slab);

	(void)arg;
	EXPECT(!h->lost && slab->dead && strlen(donor->name) <= DCM_NAME_MAX &&
	     strlen(donor->address) <= DCM_ADDRESS_MAX);
	h->lost = true;
	if (current[h->extent] == h)
		current[h->extent] = NULL;
}

static void cb_starved(void *arg, u32 extent)
{
	(void)arg;
	EXPECT(extent < EXTENTS && (many || asked[extent]) && !starved[extent]);
	starved[extent] = true;
}

static void cb_session(void *arg, u32 donor, const struct dcm_client_session *s)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX);
	EXPECT(!s || (s->id && !session_on[donor]));
	session_on[donor] = s;
}

static void cb_donor(void *arg, u32 donor, const struct dcm_host_donor *d)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && d->name[0] == 'd');
}

/* All that was posted over the older connection has been polled. */
UNTRACED static void fenced_check(u32 lane, u64 donors)
{
	for (u32 i = 0; i < IOS; i++)
		EXPECT(!ops[i].busy || ops[i].shm || ops[i].lane != lane ||
		     !(donors >> ops[i].held->slab->donor & 1));
}

static void cb_fenced(void *arg, u32 lane, u32 donor)
{
	(void)arg;
	/* what dcm_client_io_poll() is about to return counts as polled */
	if (polling)
		fenced |= 1ull << donor;
	else
		fenced_check(lane, 1ull << donor);
}

static const struct dcm_client_ops callbacks = {
	.attached = cb_attached,
	.evict = cb_evict,
	.lost = cb_lost,
	.starved = cb_starved,
	.session = cb_session,
	.donor = cb_donor,
	.fenced = cb_fenced,
};

/* ---- lanes ---- */

static void post(u32 lane, u32 how, struct held *h)
{
	struct op *op = NULL;

	for (u32 i = 0; i < IOS; i++)
		if (!ops[i].busy)
			op = &ops[i];
	if (!op || !h->slab || h->dropped)
		return;
	*op = (struct op){ .held = h, .lane = lane };
	op->shm = h->slab->transport == DCM_WT_SHM;
	op->io.slab = &h->slab->ref;
	op->io.op = how & 1 ? DCM_IO_WRITE : DCM_IO_READ;
	op->io.bytes = (1 + (how >> 1) % 16) * 4096;
	op->io.offset = (u64)(how >> 5) * 65536;
	op->io.status = 1;
	op->buf = calloc(1, op->io.bytes);
	op->io.data = op->buf;
	EXPECT(op->buf);
	op->busy = !dcm_client_io_post(client, lane, &op->io);
	if (op->busy)
		h->in_flight++;
	else
		free(op->buf);
}

static void lane_poll(u32 lane, int max)
{
	struct dcm_io *io, *next;
	int n, seen = 0;

	dcm_client_io_flush(client, lane);
	polling = true;
	n = dcm_client_io_poll(client, lane, &io, max);
	polling = false;
	for (; io; io = next) {
		struct op *op = container_of(io, struct op, io);

		next = io->next;
		seen++;
		EXPECT(op->busy && op->lane == lane && io->status <= 0);
		op->busy = false;
		free(op->buf);
		if (!--op->held->in_flight && op->held->dropped)
			op->held->slab = NULL;
	}
	EXPECT(seen == n && n <= max);
	fenced_check(lane, fenced);
	fenced = 0;
}

void pager_lane_step(struct in *in)
{
	const u32 how = byte(in), lane = how % LANES;
	struct pollfd fds[DCM_CLIENT_FDS_MAX];

	if (client->links) {
		dcm_client_lane_look(client, lane);
		return;
	}
	for (u32 i = 0; i < (how >> 1 & 3); i++) {
		const u32 what = byte(in);

		post(lane, what, &held[byte(in) % HELD]);
	}
	/* of the newest as well: those there are */
	for (u32 i = 0; how & 0x20 && i < HELD; i++)
		if (held[i].slab && !held[i].dropped)
			post(lane, how >> 3, &held[i]);
	lane_poll(lane, 1 + (int)(how >> 6) * 7);
	EXPECT(dcm_client_io_fds(client, lane, fds, DCM_CLIENT_FDS_MAX) >= 0);
	if (!dcm_client_io_in_flight(client, lane))
		for (u32 i = 0; i < IOS; i++)
			EXPECT(!ops[i].busy || ops[i].lane != lane);
}

/* ---- steps ---- */

void pager_want(u32 how)
{
	const u32 extent = how % EXTENTS;

	if (!current[extent])
		wanted[extent] = true;
	asked[extent] = true;
	dcm_client_want(client, extent);
}

void pager_slab_step(struct in *in)
{
	const u32 how = byte(in);
	struct held *h = &held[byte(in) % HELD];

	/* one that is there, as few are */
	for (u32 i = 0; i < HELD && (!h->slab || h->dropped); i++)
		h = &held[i];
	if (!h->slab || h->dropped)
		return;
	if (how & 1)
		want_other(h);
	if (how & 2)
		dcm_client_stale(client, h->slab);
	if (how & 4)
		drop(h);
	else
		dcm_client_write_count(client, h->slab->donor, h->slab->ref.id,
			       how << 14, how << 12);
}

/* ---- what has to be so at any time ---- */

/* The pager has asked, and the control thread has not read that yet. */
UNTRACED static bool other_noted(u32 extent)
{
	for (struct dcm_client_slab *s = client->slabs; s; s = s->next)
		if (s->extent == extent && READ_ONCE(s->notes) & NOTE_OTHER)
			return true;
	return false;
}

UNTRACED void pager_check(void)
{
	const struct dcm_client_slab *s;

	for (u32 i = 0; i < HELD; i++) {
		if (!held[i].slab)
			continue;
		for (s = client->slabs; s && s != held[i].slab; s = s->next)
			;
		EXPECT(s && s->extent == held[i].extent);
	}
	/* what was asked for is not forgotten; copies are sought without */
	for (u32 i = 0; !many && i < EXTENTS; i++)
		EXPECT(!wanted[i] || bit_test(client->want, i) ||
		     bit_test(client->pending, i) ||
		     bit_test(client->placing, i) || current[i] ||
		     other_noted(i));
}

/* ---- a pager's life ---- */

struct dcm_client *pager_start(const struct dcm_client_config *cfg)
{
	memset(held, 0, sizeof(held));
	memset(current, 0, sizeof(current));
	memset(wanted, 0, sizeof(wanted));
	memset(asked, 0, sizeof(asked));
	memset(other, 0, sizeof(other));
	memset(starved, 0, sizeof(starved));
	memset(session_on, 0, sizeof(session_on));
	memset(ops, 0, sizeof(ops));
	many = cfg->redundancy != DCM_REDUNDANCY_NONE;
	EXPECT(!dcm_client_start(cfg, &callbacks, NULL, &client));
	return client;
}

void pager_many(void)
{
	many = true;
}

void pager_release(void)
{
	for (u32 i = 0; i < HELD; i++)
		if (held[i].slab && !held[i].dropped)
			drop(&held[i]);
	for (u32 lane = 0; lane < LANES; lane++) {
		if (client->links)
			dcm_client_lane_look(client, lane);
		else
			lane_poll(lane, IOS);
	}
}

bool pager_idle(void)
{
	for (u32 i = 0; i < IOS; i++)
		if (ops[i].busy)
			return false;
	return true;
}
