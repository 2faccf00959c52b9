// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_donors.c - what donors say to hosts, as an input says
 *
 * A donor answers requests well, by itself or when the input says, or with
 * anything in the answer changed; it also says what nobody has asked for, and
 * sends descriptors of all kinds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_donors.h"

#define SLABS 16u
#define SLAB ((u64)DCM_WIRE_SLAB_MIN)

/**
 * struct donor - what one says when it says what is so
 * @willing: answers by itself
 */
struct donor {
	u64 id;
	bool willing;
	bool draining;
	bool verbs;
	u32 inflight;
	u64 free;
	u64 used;
	u64 slab_bytes;
};

/* Descriptors a donor may send. */
enum {
	FD_SLAB,
	FD_FILLED,
	FD_SMALL,
	FD_UNSEALED,
	FD_SEALED_WRITE,
	FD_READ_ONLY,
	FD_NULL,
	FD_PIPE,
	FD_KINDS
};

static struct donor donors[DONORS];
static int kinds[FD_KINDS];
static u64 next_session, next_slab;
static u64 slabs[SLABS];

/* ---- descriptors ---- */

static int memory(u64 bytes, unsigned int seals)
{
	int fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	EXPECT(fd >= 0 && !ftruncate(fd, (off_t)bytes));
	EXPECT(!fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void kinds_make(void)
{
	const unsigned int seals = F_SEAL_GROW | F_SEAL_SEAL;
	char path[64];
	int pair[2];

	kinds[FD_SLAB] = memory(SLAB, seals);
	kinds[FD_FILLED] = memory(SLAB, seals);
	EXPECT(!posix_fallocate(kinds[FD_FILLED], 0, (off_t)SLAB));
	kinds[FD_SMALL] = memory(SLAB / 2, seals);
	kinds[FD_UNSEALED] = memory(SLAB, 0);
	kinds[FD_SEALED_WRITE] = memory(SLAB, seals | F_SEAL_WRITE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", kinds[FD_SLAB]);
	kinds[FD_READ_ONLY] = open(path, O_RDONLY | O_CLOEXEC);
	kinds[FD_NULL] = open("/dev/null", O_RDWR | O_CLOEXEC);
	EXPECT(!pipe2(pair, O_CLOEXEC));
	kinds[FD_PIPE] = pair[0];
	for (u32 i = 0; i < FD_KINDS; i++)
		EXPECT(kinds[i] >= 0);
}

/* ---- what donors say ---- */

void peer_say(struct peer *p, const void *bytes, size_t n, u32 kind, u32 nr)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FD_KINDS * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)bytes, n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm = &control.align;

	if (p->fd < 0 || !n)
		return;
	if (nr) {
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nr * sizeof(int));
		for (u32 i = 0; i < nr; i++)
			memcpy(CMSG_DATA(cm) + i * sizeof(int),
			       &kinds[(kind + i) % FD_KINDS], sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
	}
	if (sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		EXPECT(errno == EAGAIN || errno == EPIPE ||
		       errno == ECONNRESET || errno == ETOOMANYREFS);
}

/**
 * struct lie - how a message differs from the right one
 * @at: the byte that has another @value; 0: none
 * @cut: how many bytes are sent; 0: all
 * @more: how many bytes of payload are too many
 */
struct lie {
	u32 at;
	u8 value;
	u32 cut;
	u32 more;
	bool twice;
};

static void say(struct peer *p, struct dcm_wire_msg *msg, u32 payload, u32 kind,
		u32 nr, const struct lie *lie)
{
	static u8 buf[DCM_WIRE_MSG_MAX + 4096];
	size_t len;
	int n;

	msg->payload_bytes = payload;
	n = dcm_wire_encode(buf, sizeof(buf), msg);
	if (n < 0)
		return;
	len = (size_t)n;
	memset(buf + len, 0x5a, payload + lie->more);
	len += payload + lie->more;
	if (lie->at)
		buf[lie->at % (u32)n] = lie->value;
	if (lie->cut && lie->cut < len)
		len = lie->cut;
	peer_say(p, buf, len, kind, nr);
	if (lie->twice)
		peer_say(p, buf, len, kind, nr);
}

static void fill_welcome(struct peer *p, const struct ask *a,
			 struct dcm_wire_msg *msg)
{
	const struct donor *d = &donors[p->donor];

	msg->type = DCM_MSG_WELCOME;
	msg->welcome.version = DCM_WIRE_VERSION_MAX;
	msg->welcome.inflight_max = d->inflight;
	msg->welcome.session = a->session ? a->session : ++next_session;
	msg->welcome.slab_bytes = d->slab_bytes;
	msg->welcome.donor_id = d->id;
	if (p->phase == DCM_PHASE_DATA)
		msg->welcome.flags = a->plain ? DCM_WELCOME_PLAIN_DATA : 0;
	else
		msg->welcome.flags = DCM_WELCOME_LIST |
				     (d->verbs ? DCM_WELCOME_VERBS : 0);
	if (!a->session)
		memset(msg->welcome.secret, 7, sizeof(msg->welcome.secret));
}

static void fill_free(const struct donor *d, struct dcm_wire_msg *msg)
{
	msg->type = DCM_MSG_FREE_MEM;
	msg->free_mem.slabs_free = d->free;
	msg->free_mem.slabs_total = d->free + 4;
	msg->free_mem.slab_bytes = d->slab_bytes;
	msg->free_mem.used_bytes = d->used;
	msg->free_mem.flags = d->draining ? DCM_FREE_DRAINING : 0;
}

static void fill_slab(const struct donor *d, const struct ask *a,
		      struct dcm_wire_msg *msg)
{
	msg->type = DCM_MSG_MR_INFO;
	msg->mr_info.slab = ++next_slab;
	msg->mr_info.bytes = d->slab_bytes;
	msg->mr_info.transport = a->transports & DCM_WT_SHM ? DCM_WT_SHM :
				 a->transports & DCM_WT_TCP ? DCM_WT_TCP :
							      DCM_WT_VERBS;
	slabs[next_slab % SLABS] = next_slab;
}

/* Answer a request: do it, or, with a @status, refuse it. */
static void answer_ask(struct peer *p, const struct ask *a, u32 status,
		       const struct lie *lie)
{
	const struct donor *d = &donors[p->donor];
	struct dcm_wire_msg msg = { .tag = a->tag };
	u32 payload = 0, nr = 0;

	switch (a->type) {
	case DCM_MSG_HELLO:
		fill_welcome(p, a, &msg);
		break;
	case DCM_MSG_QUERY_MEM:
		fill_free(d, &msg);
		break;
	case DCM_MSG_MAP:
		fill_slab(d, a, &msg);
		nr = msg.mr_info.transport == DCM_WT_SHM;
		break;
	case DCM_MSG_UNMAP:
		msg.type = DCM_MSG_DONE;
		msg.slab.slab = a->slab;
		break;
	case DCM_MSG_LIST:
		/* one that may be known, or not */
		msg.type = DCM_MSG_SLAB_IS;
		msg.slab_is.slab = a->slab < next_slab ? a->slab + 1 : 0;
		msg.slab_is.flags = msg.slab_is.slab ? a->tag & 1 : 0;
		break;
	case DCM_MSG_ASK_TICKET:
		msg.type = DCM_MSG_TICKET;
		msg.ticket.number = a->tag;
		msg.ticket.port = 1;
		break;
	default: /* READ, WRITE */
		msg.type = a->type == DCM_MSG_READ ? DCM_MSG_DATA :
						     DCM_MSG_WRITTEN;
		msg.io_done.status = status;
		msg.io_done.bytes = status ? 0 : a->bytes;
		payload = a->type == DCM_MSG_READ && !status ? a->bytes : 0;
		status = 0;
	}
	if (status) {
		memset(&msg, 0, sizeof(msg));
		msg.type = DCM_MSG_ERROR;
		msg.tag = a->tag;
		msg.error.status = status;
		nr = 0;
	}
	/* every other slab is one whose pages are there already */
	say(p, &msg, payload, next_slab & 1, nr, lie);
}

static bool ask_take(struct peer *p, struct ask *a)
{
	if (!p->nr_asks)
		return false;
	*a = p->ask[0];
	p->nr_asks--;
	memmove(p->ask, p->ask + 1, p->nr_asks * sizeof(*a));
	return true;
}

void donor_answer_all(struct peer *p)
{
	static const struct lie truth;
	struct ask a;

	if (!p->greeted)
		peer_say(p, "y", 1, 0, 0);
	p->greeted = true;
	while (ask_take(p, &a))
		answer_ask(p, &a, 0, &truth);
}

/* ---- steps ---- */

static u64 some_slab(struct in *in)
{
	const u64 n = some(in, SLABS);

	return n < SLABS ? slabs[n] : n;
}

static void lie_read(struct in *in, struct lie *lie)
{
	const u32 how = byte(in);

	*lie = (struct lie){ .twice = how & 0x10 };
	if (how & 1) {
		lie->at = byte(in);
		lie->value = (u8)byte(in);
	}
	if (how & 2)
		lie->cut = byte(in) * (how & 8 ? 300 : 1);
	if (how & 4)
		lie->more = byte(in) * 16;
}

void donor_answer_step(struct peer *p, struct in *in, bool lies, u32 which)
{
	struct lie lie = { 0 };
	struct ask a;

	if (lies)
		lie_read(in, &lie);
	/* not the oldest: out of order */
	for (u32 i = 0; i < (which >> 1) && p->nr_asks > 1; i++)
		ask_take(p, &a);
	if (ask_take(p, &a))
		answer_ask(p, &a, which & 1 ? (u32)some(in, 14) : 0, &lie);
}

void donor_say_step(struct peer *p, struct in *in, u32 which)
{
	static const u16 types[] = {
		DCM_MSG_HEARTBEAT, DCM_MSG_FREE_MEM, DCM_MSG_CHECK_ACTIVITY,
		DCM_MSG_EVICT,	   DCM_MSG_DONE,     DCM_MSG_MR_INFO,
		DCM_MSG_ERROR,	   DCM_MSG_TICKET,
	};
	struct dcm_wire_msg msg = { .type = types[which] };
	const struct lie truth = { .twice = false };
	u32 nr = 0;

	msg.tag = some(in, 32);
	/* its tag means nothing: some HEARTBEATs are something else */
	if (msg.type == DCM_MSG_HEARTBEAT && msg.tag & 1)
		msg.type = msg.tag & 2 ? DCM_MSG_ABOUT : DCM_MSG_SLAB_IS;
	switch (msg.type) {
	case DCM_MSG_FREE_MEM:
		msg.free_mem.slabs_free = some(in, 4);
		msg.free_mem.slabs_total = some(in, 8);
		msg.free_mem.slab_bytes = some(in, 2) * SLAB;
		msg.free_mem.used_bytes = some(in, 8) * SLAB;
		msg.free_mem.flags = byte(in) &
				     (DCM_FREE_DRAINING | DCM_FREE_FILE);
		break;
	case DCM_MSG_MR_INFO:
		msg.mr_info.slab = some_slab(in);
		msg.mr_info.bytes = (1 + some(in, 1)) * SLAB;
		msg.mr_info.addr = some(in, 2);
		msg.mr_info.rkey = (u32)some(in, 2);
		msg.mr_info.transport = 1u << byte(in) % 3;
		nr = byte(in) % 3;
		break;
	case DCM_MSG_ERROR:
		msg.error.status = (u32)some(in, 14);
		break;
	case DCM_MSG_TICKET:
		msg.ticket.port = (u16)some(in, 4);
		memset(msg.ticket.addr, (int)byte(in), 12);
		break;
	case DCM_MSG_HEARTBEAT:
		break;
	case DCM_MSG_ABOUT:
		msg.about.capacity_bytes = 0 - some(in, 8);
		msg.about.lent_bytes = some(in, 8) << 60;
		msg.about.sessions = (u32)some(in, 8);
		msg.about.flags = byte(in);
		break;
	case DCM_MSG_SLAB_IS:
		msg.slab_is.slab = some_slab(in);
		msg.slab_is.flags = msg.slab_is.slab ? byte(in) & 1 : 0;
		break;
	default:
		msg.slab.slab = some_slab(in);
	}
	say(p, &msg, 0, byte(in), nr, &truth);
}

void donor_fds_step(struct peer *p, struct in *in, u32 which)
{
	struct dcm_wire_msg msg = { .type = DCM_MSG_HEARTBEAT };
	const struct lie truth = { .twice = false };

	say(p, &msg, 0, byte(in), 1 + which % FD_KINDS, &truth);
}

void donor_step(struct in *in, u32 which)
{
	struct donor *d = &donors[which % DONORS];
	const u32 how = byte(in);

	d->willing = how & 1;
	d->draining = (how & 6) == 6;
	d->verbs = how & 8;
	d->free = how >> 4 & 7;
	if (how & 0x80) {
		d->id = some(in, 4);
		d->inflight = (u32)some(in, 300);
		d->used = some(in, 4);
		d->slab_bytes = SLAB * (1 + some(in, 2));
	}
}

/* ---- donors as a whole ---- */

bool donor_willing(u32 donor)
{
	return donors[donor].willing;
}

void donors_willing(bool willing)
{
	for (u32 i = 0; i < DONORS; i++)
		donors[i].willing = willing;
}

void donors_begin(void)
{
	if (!kinds[0])
		kinds_make();
	for (u32 i = 0; i < DONORS; i++)
		donors[i] = (struct donor){ .id = i + 1,
					    .inflight = 16,
					    .free = 4,
					    .slab_bytes = SLAB };
	memset(slabs, 0, sizeof(slabs));
	next_session = 0;
	next_slab = 0;
}
