/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fake_net.h - the ways to donors, as an input says
 *
 * What a host connects to is a socket pair, whose other end is an input's. The
 * clock is an input's too.
 */
#ifndef FUZZ_FAKE_NET_H
#define FUZZ_FAKE_NET_H

#include "input.h"

/* kinds of net_step() */
#define NET_STEPS 9u

/* Nothing is connected, donors are good and silent. */
void net_begin(void);
/* A step: @kind is below %NET_STEPS, @which three bits more. */
void net_step(struct in *in, u32 kind, u32 which);
/* Hear what hosts say; donors that answer by themselves do. */
void net_turn(void);
/* Time passes. */
void net_pass(u32 ms);
/* Donors go away, and nobody can connect any more. */
void net_end(void);
/* Hosts have closed all: no descriptor may be left. */
void net_left(void);

#endif /* FUZZ_FAKE_NET_H */
