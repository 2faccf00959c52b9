// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_hosts.c - hosts of a donor, as an input says
 *
 * A host is the other end of a connection that the donor has accepted. It says
 * messages of each kind, whole, in parts or as junk, and names sessions and slabs
 * by what the donor has said of them. All that the donor says must be what its
 * own codec takes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "data_fiber.h"
#include "fake_hosts.h"

#define CONNS	 8u
#define SESSIONS 6u
#define SLABS	 8u
#define HEARD	 (1u << 20)

/**
 * struct host - a connection, as the host that opened it sees it
 * @fd: -1: none
 * @deaf: answers are not read
 * @welcome: it has been answered: what it is now is in what the donor says
 * @half: its handshake has two steps, and one is done: a byte is the other
 * @skip: bytes of the handshake to come
 * @got: bytes that are no whole message yet
 */
struct host {
	int fd;
	bool deaf;
	bool welcome;
	bool half;
	u32 skip;
	size_t n;
	u8 *got;
};

struct known {
	u64 id;
	u8 secret[16];
};

static struct host hosts[CONNS];
static struct known sessions[SESSIONS];
static u32 nr_sessions;
static u64 slabs[SLABS];
static u32 nr_slabs;

static void host_close(struct host *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	h->n = 0;
}

static void welcomed(struct host *h, const struct dcm_wire_msg *msg)
{
	static const u8 none[16];

	h->welcome = true;
	if (!memcmp(msg->welcome.secret, none, sizeof(none)))
		return;
	sessions[nr_sessions % SESSIONS].id = msg->welcome.session;
	memcpy(sessions[nr_sessions++ % SESSIONS].secret, msg->welcome.secret,
	       16);
}

/* Decode the whole messages that the donor has sent. */
static void host_heard(struct host *h)
{
	static const enum dcm_wire_phase phases[] = {
		DCM_PHASE_CONTROL,
		DCM_PHASE_DATA,
		DCM_PHASE_GC,
	};
	struct dcm_wire_msg msg;
	size_t bytes, at = 0;

	while (at < h->n) {
		int ret = DCM_WIRE_E_PHASE;

		/* in which role HELLO came the input may have left open */
		for (u32 i = 0; ret == DCM_WIRE_E_PHASE && i < 3; i++)
			ret = dcm_wire_decode(h->got + at, h->n - at,
					      h->welcome ? phases[i] :
							   DCM_PHASE_HELLO,
					      DCM_SIDE_DONOR, &msg, &bytes);
		if (ret == DCM_WIRE_MORE)
			break;
		EXPECT(ret == DCM_WIRE_OK);
		at += bytes;
		if (msg.type == DCM_MSG_WELCOME)
			welcomed(h, &msg);
		if (msg.type == DCM_MSG_MR_INFO)
			slabs[nr_slabs++ % SLABS] = msg.mr_info.slab;
	}
	memmove(h->got, h->got + at, h->n - at);
	h->n -= at;
}

static void host_read(struct host *h)
{
	ssize_t n;

	if (h->fd < 0 || h->deaf)
		return;
	n = recv(h->fd, h->got + h->n, HEARD - h->n, MSG_DONTWAIT);
	if (n <= 0)
		return;
	h->n += (size_t)n;
	if (h->skip) {
		EXPECT(h->got[0] == 's');
		memmove(h->got, h->got + 1, --h->n);
		h->skip = 0;
	}
	host_heard(h);
}

void hosts_start(void)
{
	for (u32 i = 0; i < CONNS; i++) {
		hosts[i].fd = -1;
		hosts[i].got = malloc(HEARD);
		EXPECT(hosts[i].got);
	}
}

void hosts_read(void)
{
	for (u32 i = 0; i < CONNS; i++)
		host_read(&hosts[i]);
}

void hosts_close(void)
{
	for (u32 i = 0; i < CONNS; i++)
		host_close(&hosts[i]);
}

void hosts_forget(void)
{
	nr_sessions = 0;
	nr_slabs = 0;
	memset(sessions, 0, sizeof(sessions));
	memset(slabs, 0, sizeof(slabs));
}

void host_deaf(u32 which)
{
	hosts[which % CONNS].deaf ^= 1;
}

void host_open(struct dcm_donor *donor, struct in *in)
{
	static const struct sockaddr_storage nobody;
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	u8 who = (u8) "aabz"[how & 3];
	u8 record[6] = { 22, 3, 1, 0, 1, who & (how & 0x10 ? 0xdf : 0xff) };
	struct dcm_listener *l = &donor->listeners[how >> 2 & 1];
	int pair[2];

	host_close(h);
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	h->fd = pair[0];
	h->welcome = false;
	h->deaf = how & 0x20;
	h->half = how & 0x10;
	h->skip = h->half;
	dcm_conn_accept(donor, &l->admission, pair[1], how & 4, &nobody);
	EXPECT(l->admission.nr_seats <= donor->cfg.handshakes);
	if (!(how & 8) && send(h->fd, record, 6, MSG_NOSIGNAL) != 6)
		EXPECT(false);
}

/* Whole, or what of it there is room for: the rest is not said. */
static void host_send(struct host *h, const void *bytes, size_t n)
{
	if (h->fd >= 0 &&
	    send(h->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		EXPECT(errno == EAGAIN || errno == EPIPE ||
		       errno == ECONNRESET);
}

static void host_say(struct host *h, struct dcm_wire_msg *msg,
		     const void *payload, u32 bytes, u32 cut)
{
	static u8 buf[DCM_WIRE_MSG_MAX];
	int n;

	msg->payload_bytes = bytes;
	n = dcm_wire_encode(buf, sizeof(buf), msg);
	if (n < 0)
		return;
	if (bytes)
		memcpy(buf + n, payload, bytes);
	n += (int)bytes;
	if (cut && cut < (u32)n)
		n = (int)cut;
	host_send(h, buf, (size_t)n);
}

void host_hello(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_HELLO,
		.tag = 1,
		.hello = {
			.version_min = (how & 0x30) == 0x30 ? 2 : 1,
			.version_max = (how & 0x30) == 0x30 ? 3 : 1,
			.role = (u8)(1 + (how & 3) % 3),
			.flags = how >> 6,
		},
	};
	const u32 which = byte(in);

	if (h->half)
		host_send(h, "f", 1);
	h->half = false;
	if (msg.hello.role == DCM_ROLE_DATA)
		msg.hello.lane = (u16)(which >> 4);
	if (msg.hello.role != DCM_ROLE_CONTROL || how & 4) {
		msg.hello.session = sessions[which % SESSIONS].id;
		memcpy(msg.hello.secret, sessions[which % SESSIONS].secret, 16);
		msg.hello.secret[3] ^= how >> 3 & 1;
	}
	host_say(h, &msg, NULL, 0, byte(in));
}

static u64 slab_of(struct in *in)
{
	const u64 n = some(in, SLABS);

	return n < SLABS ? slabs[n] : n;
}

void host_control(struct in *in)
{
	static const u16 types[] = {
		DCM_MSG_HEARTBEAT, DCM_MSG_GOODBYE,    DCM_MSG_QUERY_MEM,
		DCM_MSG_MAP,	   DCM_MSG_MAP,	       DCM_MSG_UNMAP,
		DCM_MSG_ACTIVITY,  DCM_MSG_ASK_TICKET, DCM_MSG_DONE,
		DCM_MSG_LIST,
	};
	struct host *h = &hosts[byte(in) % CONNS];
	struct dcm_wire_msg msg = { .type = types[byte(in) % ARRAY_SIZE(types)],
				    .tag = byte(in) };

	switch (msg.type) {
	case DCM_MSG_MAP:
		msg.map.slab_bytes = byte(in) == 0xff ? SLAB / 2 : SLAB;
		msg.map.transports = 1 + byte(in) % 7;
		break;
	case DCM_MSG_ACTIVITY:
		msg.activity.slab = slab_of(in);
		msg.activity.ewma_milli = some(in, 100);
		break;
	case DCM_MSG_ASK_TICKET:
		msg.ask_ticket.lane = (u16)some(in, 4);
		break;
	case DCM_MSG_LIST:
		msg.list.after = byte(in) & 1 ? slab_of(in) : 0;
		break;
	default:
		msg.slab.slab = slab_of(in);
	}
	host_say(h, &msg, NULL, 0, 0);
}

void host_data(struct in *in)
{
	static const u8 page[DCM_WIRE_PAYLOAD_MAX];
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	const u32 bytes = (u32)(1 + some(in, 3)) * 4096 % (80u << 10);
	struct dcm_wire_msg msg = {
		.type = how & 1 ? DCM_MSG_WRITE : DCM_MSG_READ,
		.tag = 5,
		.io = { .slab = slab_of(in),
			.offset = some(in, 3) * 4096 + (how & 2),
			.bytes = bytes },
	};
	host_say(h, &msg, page, how & 1 && bytes <= sizeof(page) ? bytes : 0,
		 how & 4 ? byte(in) * 40 : 0);
	/* its thread has its turn, or not yet */
	if (how & 8)
		data_fiber_run();
}

void host_gc(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	u8 payload[64];
	const u32 n = byte(in) % sizeof(payload);
	struct dcm_wire_msg msg = { .type = DCM_MSG_GC, .tag = byte(in) };

	memset(payload, (int)how, sizeof(payload));
	if (how % 4 == 0) {
		msg.type = DCM_MSG_GC_OPEN;
		msg.gc_open.bytes = some(in, 64) << 20;
		msg.gc_open.donor = (u32)some(in, 64);
	} else if (how % 4 == 1) {
		msg.type = DCM_MSG_GC_SLAB;
		msg.gc_slab.slab = slab_of(in);
		msg.gc_slab.number = (u32)some(in, 4);
	} else {
		msg.gc.kind = (u32)some(in, DCM_GC_KINDS);
		msg.gc.space = (u32)some(in, 4);
		msg.gc.donor = (u32)some(in, 4);
	}
	host_say(h, &msg, payload, msg.type == DCM_MSG_GC ? n : 0,
		 how & 0x40 ? byte(in) : 0);
	/* many, so that a worker that does not read is full */
	for (u32 i = 0; how & 0x80 && i < 64; i++)
		host_say(h, &msg, payload,
			 msg.type == DCM_MSG_GC ? sizeof(payload) : 0, 0);
}

void host_junk(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	u8 buf[64];
	const u32 n = byte(in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (u8)byte(in);
	host_send(h, buf, n);
}

void host_leave(struct in *in)
{
	const u32 how = byte(in);
	struct host *h = &hosts[how % CONNS];

	if (h->fd < 0)
		return;
	if (how & 0x80)
		shutdown(h->fd, how & 0x40 ? SHUT_WR : SHUT_RDWR);
	else
		host_close(h);
}
