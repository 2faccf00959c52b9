/* SPDX-License-Identifier: GPL-2.0-or-later */
/* vgc_check.h - what the parts of vgc_check share: calls of /dev/vgcN */
#ifndef VGC_CHECK_H
#define VGC_CHECK_H

#include <errno.h>
#include <stdint.h>

#include "vgc.h"
#include "../framework/expect.h"

#define REGION	(64ul << 10)
#define BYTES	(4ul << 20)
#define ADDRESS	0x200000000000ul

#define FAILS(call, why) EXPECT((call) < 0 && errno == (why))

/* A request that any space may send. */
struct cancel {
	struct virtio_gc_req r;
	struct virtio_gc_cancel c;
};

int dev_open(void);
/* A space as CREATE wants it, and CREATE itself. */
struct vgc_create space(uint64_t bytes);
int create(int fd, uint64_t bytes);
char *map(int fd, uint64_t bytes);
struct cancel cancel(void);
int submit(int fd, const void *request, uint32_t bytes, void *answer,
	   uint32_t room, uint64_t cookie);
/* Until there is an answer: take it. */
struct vgc_reap reap(int fd);

/* vgc_wrong.c: every wrong call by itself */
void wrong(void);

/* vgc_fuzz.c: invalid requests from several threads, @each from every thread */
void fuzz(unsigned int seed, unsigned long each);

#endif /* VGC_CHECK_H */
