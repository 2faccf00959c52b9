// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/proto/wire.c tests/fuzz/sockets.c tests/fuzz/plain_tls.c tests/fuzz/stream.c */
/* libs: -Wl,--wrap=clock_gettime,--wrap=mmap,--wrap=munmap,--wrap=socketpair,--wrap=setsockopt,--wrap=send,--wrap=recv,--wrap=sendmsg,--wrap=recvmsg,--wrap=read,--wrap=write,--wrap=shutdown,--wrap=close,--wrap=poll */
/*
 * tcp_fuzz.c - libFuzzer on libdcm's data connection
 *
 * What may be said and what has to come of it is stream.c's. Memory of operations
 * and the endpoint's own are allocated to the byte. In TLS's place is plain_tls.c.
 */
#include <gnutls/gnutls.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../kvm-dcm/transport/tcp.h"
#include "../../kvm-dcm/proto/wire_format.h"
#include "plain_tls.h"
#include "stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __wrap_munmap(void *at, size_t bytes);

static u64 now_ns;
static bool encrypted;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	(void)id;
	ts->tv_sec = (time_t)(now_ns / 1000000000u);
	ts->tv_nsec = (long)(now_ns % 1000000000u);
	return 0;
}

/* tcp.c maps nothing but its endpoint. */
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o)
{
	EXPECT(!at && prot == (PROT_READ | PROT_WRITE) && fd == -1 && !o);
	EXPECT(flags == (MAP_PRIVATE | MAP_ANONYMOUS));
	return calloc(1, bytes);
}

int __wrap_munmap(void *at, size_t bytes)
{
	(void)bytes;
	free(at);
	return 0;
}

static struct dcm_endpoint *open_tcp(int fd, u32 depth, u32 how)
{
	struct dcm_tcp_args args = {
		.fd = fd,
		.depth = depth,
		.silence_ns = DCM_WIRE_SILENCE_MS * 1000000ull,
	};
	struct dcm_endpoint *ep;
	int err;

	encrypted = how & 1;
	if (encrypted) {
		EXPECT(!gnutls_init(&args.tls, GNUTLS_CLIENT));
		gnutls_transport_set_int(args.tls, fd);
	}
	ep = dcm_transport_tcp.open(&args, &err);
	EXPECT(ep);
	return ep;
}

static void begin(u32 how)
{
	(void)how;
}

static void *memory(u32 bytes)
{
	void *p = malloc(bytes);

	EXPECT(p);
	return p;
}

static void memory_free(void *data, u32 bytes)
{
	(void)bytes;
	free(data);
}

static u8 *at(void *data, u32 offset)
{
	return (u8 *)data + offset;
}

static void pass(u32 ms)
{
	now_ns += ms * 1000000ull;
}

static u64 whole(void)
{
	return encrypted ? plain_tls_whole : U64_MAX;
}

static const struct stream_transport transport = {
	.open = open_tcp,
	.begin = begin,
	.memory = memory,
	.free = memory_free,
	.at = at,
	.pass = pass,
	.whole = whole,
	.looks = true,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 1024)
		return 0;
	now_ns = 1000000000u;
	plain_tls_whole = 0;
	stream_run(&transport, data, size);
	return 0;
}
