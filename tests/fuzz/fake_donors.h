/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_donors.h - what donors say to hosts, as an input says */
#ifndef FUZZ_FAKE_DONORS_H
#define FUZZ_FAKE_DONORS_H

#include "../../kvm-dcm/proto/wire.h"
#include "input.h"

#define DONORS 6u
#define ASKS 8u
#define HEARD (2 * DCM_WIRE_MSG_MAX)

/* A request of a host's; @session is HELLO's. */
struct ask {
	u16 type;
	u64 tag;
	u64 slab;
	u64 session;
	u32 bytes;
	u32 transports;
	bool plain;
};

/**
 * struct peer - a connection's other end
 * @host: the host's end, a number only; -1: it is another's by now
 * @donor: to which one
 * @phase: of what the host says
 * @greeted: the handshake's byte was said
 * @deaf: what the host says is not read
 * @got: bytes that are no whole message yet
 */
struct peer {
	int fd;
	int host;
	u32 donor;
	bool connected;
	bool greeted;
	bool deaf;
	enum dcm_wire_phase phase;
	size_t n;
	u32 nr_asks;
	struct ask ask[ASKS];
	u8 got[HEARD];
};

/* Donors are good and silent, and have lent nothing. */
void donors_begin(void);
/* All donors answer by themselves, or none. */
void donors_willing(bool willing);
bool donor_willing(u32 donor);

/* Whole, or what of it there is room for, with @nr descriptors from @kind on. */
void peer_say(struct peer *p, const void *bytes, size_t n, u32 kind, u32 nr);
/* The handshake, and well what was asked. */
void donor_answer_all(struct peer *p);

/* A request is answered, @which has three bits. */
void donor_answer_step(struct peer *p, struct in *in, bool lies, u32 which);
/* A message that nobody asked for. */
void donor_say_step(struct peer *p, struct in *in, u32 which);
/* With a beat: descriptors that nobody asked for. */
void donor_fds_step(struct peer *p, struct in *in, u32 which);
/* Change the state of a donor, which its later answers report. */
void donor_step(struct in *in, u32 which);

#endif /* FUZZ_FAKE_DONORS_H */
