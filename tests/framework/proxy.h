/* SPDX-License-Identifier: GPL-2.0-or-later */
/* proxy.h - a TCP proxy whose connections can be cut, for tests */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stdbool.h>
#include <stddef.h>

struct proxy;

/* Start a proxy to @target; @address gets its own address, "tcp:127.0.0.1:PORT". */
struct proxy *proxy_start(const char *target, char *address, size_t len);
/* Cut every connection; with @block, accept none until proxy_open(). */
void proxy_cut(struct proxy *p, bool block);
void proxy_open(struct proxy *p);
#define FROM_HOST 1
#define FROM_DONOR 2
/*
 * Forward nothing from the host, the donor or both (@ways) until proxy_open(), as a cut
 * network does: bytes wait in socket buffers. With @control, only on the oldest
 * connection and on new ones.
 */
void proxy_hush(struct proxy *p, int ways, bool control);
void proxy_stop(struct proxy *p);

#endif /* TEST_PROXY_H */
