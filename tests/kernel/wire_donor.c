// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * wire_donor.c - a donor's data side, in this process, that can also lie
 *
 * Slabs are memory of this process; a thread for each connection answers READ
 * and WRITE in order, as docs/protocol.md says. It shares no code with the
 * product, so that both would have to be wrong in the same way. There is no
 * HELLO: connections are made, and handed to the kernel, by the same process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dcmfs_test.h"
#include "proto/wire_format.h"
#include "wire_donor.h"

#define SLABS_MAX 4096u

static struct {
	pthread_mutex_t lock;
	int listener;
	struct sockaddr_in addr;
	uint64_t bytes;
	void *slab[SLABS_MAX];
	enum wire_lie lie;
	bool asleep;
	uint64_t served;
} donor = { .lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1 };

static bool get(int fd, void *buf, size_t len)
{
	return recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static bool put(int fd, const void *buf, size_t len, int flags)
{
	const char *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | flags);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static char *slab_at(uint64_t id, uint64_t offset, uint32_t bytes)
{
	if (id >= SLABS_MAX || !donor.slab[id] || offset > donor.bytes ||
	    bytes > donor.bytes - offset)
		return NULL;
	return (char *)donor.slab[id] + offset;
}

struct answer {
	struct dcm_wire_hdr hdr;
	struct dcm_wire_io_done done;
} __attribute__((packed));

/* To a READ of slab 0, by which the kernel is heard of: there is none. */
static bool ping_answer(int fd, uint64_t tag)
{
	struct answer a = { 0 };

	a.hdr.magic = DCM_WIRE_MAGIC;
	a.hdr.type = DCM_MSG_DATA;
	a.hdr.bytes = sizeof(a.done);
	a.hdr.tag = tag;
	a.done.status = DCM_WS_NO_SLAB;
	return put(fd, &a, sizeof(a), 0);
}

/* Change an answer into one that a donor must not send. False: hang up. */
static bool tell_lie(enum wire_lie lie, struct answer *a, uint32_t *payload)
{
	switch (lie) {
	case LIE_TAG:
		a->hdr.tag++;
		break;
	case LIE_TYPE:
		a->hdr.type = a->hdr.type == DCM_MSG_DATA ? DCM_MSG_WRITTEN :
							    DCM_MSG_DATA;
		if (a->hdr.type == DCM_MSG_WRITTEN) {
			a->hdr.bytes = sizeof(a->done);
			*payload = 0;
		}
		break;
	case LIE_LENGTH:
		a->done.bytes += 4096;
		if (*payload) {
			*payload += 4096;
			a->hdr.bytes += 4096;
		}
		break;
	case LIE_HUGE:
		a->hdr.bytes = 0x7fffffff;
		break;
	case LIE_MAGIC:
		a->hdr.magic ^= 0x1111;
		break;
	case LIE_HANGUP:
		return false;
	case LIE_REFUSE:
		a->done.status = DCM_WS_RANGE;
		a->done.bytes = 0;
		*payload = 0;
		a->hdr.bytes = sizeof(a->done);
		break;
	case LIE_NONE:
		break;
	}
	return true;
}

static bool hung_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) == 1;
}

static bool answer_one(int fd)
{
	static const char more[65536 + 4096];
	struct dcm_wire_hdr hdr;
	struct dcm_wire_io io;
	struct answer a = { 0 };
	enum wire_lie lie;
	uint32_t payload;
	char *mem;
	bool ok;

	if (!get(fd, &hdr, sizeof(hdr)) || !get(fd, &io, sizeof(io)))
		return false;
	if (hdr.magic != DCM_WIRE_MAGIC || io.reserved ||
	    (hdr.type != DCM_MSG_READ && hdr.type != DCM_MSG_WRITE) ||
	    !io.bytes || io.bytes > DCM_WIRE_PAYLOAD_MAX || io.bytes % PAGE ||
	    io.offset % PAGE ||
	    (hdr.bytes != sizeof(io) &&
	     (hdr.type == DCM_MSG_READ || hdr.bytes != sizeof(io) + io.bytes)))
		fail("the kernel sends nonsense: type %u, %u bytes", hdr.type,
		     hdr.bytes);
	while (__atomic_load_n(&donor.asleep, __ATOMIC_RELAXED))
		usleep(10000);
	if (hdr.type == DCM_MSG_READ && !io.slab)
		return ping_answer(fd, hdr.tag);
	pthread_mutex_lock(&donor.lock);
	mem = slab_at(io.slab, io.offset, io.bytes);
	/* Of a connection that was given up: nobody waits for it any more. */
	if (!mem && hung_up(fd)) {
		pthread_mutex_unlock(&donor.lock);
		return false;
	}
	if (!mem)
		fail("the kernel asks for what is not there: slab %ju, %ju+%u",
		     (uintmax_t)io.slab, (uintmax_t)io.offset, io.bytes);
	lie = donor.lie;
	donor.lie = LIE_NONE;
	donor.served++;
	pthread_mutex_unlock(&donor.lock);
	/* a WRITE without a payload writes zeroes */
	if (hdr.type == DCM_MSG_WRITE && hdr.bytes == sizeof(io))
		memset(mem, 0, io.bytes);
	else if (hdr.type == DCM_MSG_WRITE && !get(fd, mem, io.bytes))
		return false;
	payload = hdr.type == DCM_MSG_READ ? io.bytes : 0;
	a.hdr.magic = DCM_WIRE_MAGIC;
	a.hdr.type = hdr.type == DCM_MSG_READ ? DCM_MSG_DATA : DCM_MSG_WRITTEN;
	a.hdr.bytes = (uint32_t)sizeof(a.done) + payload;
	a.hdr.tag = hdr.tag;
	a.done.bytes = io.bytes;
	ok = tell_lie(lie, &a, &payload) &&
	     put(fd, &a, sizeof(a), payload ? MSG_MORE : 0);
	if (ok && payload)
		ok = put(fd, lie ? more : mem, payload, 0);
	return ok;
}

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;

	while (answer_one(fd))
		;
	close(fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept(donor.listener, NULL, NULL);
		pthread_t t;

		if (fd < 0 ||
		    pthread_create(&t, NULL, serve_one, (void *)(intptr_t)fd))
			fail("donor: %s", strerror(errno));
		pthread_detach(t);
	}
}

void wire_donor_start(uint64_t slab_bytes)
{
	socklen_t len = sizeof(donor.addr);
	pthread_t t;

	donor.bytes = slab_bytes;
	if (donor.listener >= 0)
		return;
	donor.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	donor.addr.sin_family = AF_INET;
	donor.addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (donor.listener < 0 ||
	    bind(donor.listener, (struct sockaddr *)&donor.addr, len) ||
	    getsockname(donor.listener, (struct sockaddr *)&donor.addr, &len) ||
	    listen(donor.listener, 128) ||
	    pthread_create(&t, NULL, accept_all, NULL))
		fail("donor: %s", strerror(errno));
	pthread_detach(t);
}

int wire_donor_connect(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 ||
	    connect(fd, (struct sockaddr *)&donor.addr, sizeof(donor.addr)))
		fail("connect to the donor: %s", strerror(errno));
	return fd;
}

uint64_t wire_donor_slab(void)
{
	void *p = mmap(NULL, donor.bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t i;

	if (p == MAP_FAILED)
		fail("donor: %s", strerror(errno));
	pthread_mutex_lock(&donor.lock);
	for (i = 1; i < SLABS_MAX && donor.slab[i]; i++)
		;
	if (i == SLABS_MAX)
		fail("donor: too many slabs");
	donor.slab[i] = p;
	pthread_mutex_unlock(&donor.lock);
	return i;
}

void wire_donor_drop(uint64_t slab)
{
	pthread_mutex_lock(&donor.lock);
	munmap(donor.slab[slab], donor.bytes);
	donor.slab[slab] = NULL;
	pthread_mutex_unlock(&donor.lock);
}

void wire_donor_lie(enum wire_lie lie)
{
	pthread_mutex_lock(&donor.lock);
	donor.lie = lie;
	pthread_mutex_unlock(&donor.lock);
}

bool wire_donor_lied(void)
{
	bool lied;

	pthread_mutex_lock(&donor.lock);
	lied = donor.lie == LIE_NONE;
	pthread_mutex_unlock(&donor.lock);
	return lied;
}

void wire_donor_sleep(bool asleep)
{
	__atomic_store_n(&donor.asleep, asleep, __ATOMIC_RELAXED);
}
