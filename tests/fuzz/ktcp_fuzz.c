// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/proto/wire.c tests/fuzz/kernel/ksocket.c tests/fuzz/sockets.c tests/fuzz/stream.c */
/* libs: -Wl,--wrap=socketpair,--wrap=setsockopt,--wrap=send,--wrap=recv,--wrap=sendmsg,--wrap=recvmsg,--wrap=read,--wrap=write,--wrap=shutdown,--wrap=close,--wrap=poll */
/* flags: -Itests/fuzz/kernel */
/*
 * ktcp_fuzz.c - libFuzzer on the kernel's data connection
 *
 * The kernel's tcp.c as it is, on the few of its calls in kernel/kernel.h. What
 * may be said and what has to come of it is stream.c's, as for libdcm's. Each
 * page of an operation's memory is allocated for itself.
 */
#include <linux/net.h>

/* tcp.c's dcmfs.h would be the whole kernel pager; kernel.h has what is used */
#include "../../kvm-dcm/linux/tcp.c"
#include "stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

unsigned long jiffies;
static u32 lane_events;
static struct tcp_endpoint *the;

u64 ktime_get_ns(void)
{
	return jiffies * (1000000000ull / HZ);
}

void dcmfs_lane_event(struct dcmfs_vm *vm, struct dcmfs_lane *lane)
{
	EXPECT(vm == (void *)&jiffies && lane == (void *)&lane_events);
	lane_events++;
}

static struct dcm_endpoint *open_ktcp(int fd, u32 depth, u32 how)
{
	const struct dcmfs_link arg = { .fd = fd, .window = depth };
	struct dcm_endpoint *ep;
	int err;

	(void)how;
	ksocket_how(0);
	ep = dcmfs_tcp_open((void *)&jiffies, (void *)&lane_events, &arg, &err);
	EXPECT(ep && !err);
	the = to_tcp(ep);
	return ep;
}

static void begin(u32 how)
{
	ksocket_how(how);
	ksocket_events(the->sock);
}

static void *memory(u32 bytes)
{
	struct page *first = NULL;

	for (; bytes; bytes -= PAGE_SIZE) {
		struct page *page = malloc(sizeof(*page));

		EXPECT(page);
		page->private = first;
		page->bytes = malloc(PAGE_SIZE);
		EXPECT(page->bytes);
		first = page;
	}
	return first;
}

static void memory_free(void *data, u32 bytes)
{
	struct page *page = data, *next;

	for (; bytes; bytes -= PAGE_SIZE, page = next) {
		next = page->private;
		free(page->bytes);
		free(page);
	}
	EXPECT(!page);
}

static u8 *at(void *data, u32 offset)
{
	struct page *page = data;

	for (; offset; offset -= PAGE_SIZE)
		page = page->private;
	return page->bytes;
}

static void pass(u32 ms)
{
	jiffies += ms * HZ / 1000;
}

static u64 whole(void)
{
	return U64_MAX;
}

static const struct stream_transport transport = {
	.open = open_ktcp,
	.begin = begin,
	.memory = memory,
	.free = memory_free,
	.at = at,
	.pass = pass,
	.whole = whole,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 1024)
		return 0;
	/* soon they begin again */
	jiffies = -10 * HZ;
	stream_run(&transport, data, size);
	return 0;
}
