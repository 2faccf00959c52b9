// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vhost.c - pages of a dcmfs file that only vhost writes
 *
 * vhost-net without a VMM around it, so that nothing else touches the pages. The
 * rings and the buffers of a receive queue are in the file; what this process
 * sends to the tap device is copied into the buffers by vhost's kernel thread.
 * A frame fills its buffer, which is a page, but for the 12 bytes that come
 * before it. This process has no store to a buffer anywhere, and before the
 * first look at one there was no load either.
 *
 * Each round writes all buffers once more, in one of two states: out, so that
 * vhost's own write brings them in; and brought in and mapped by a load, so
 * that nothing but what the processor notes in the page table tells that vhost
 * wrote afterwards. Then all leave, are brought back from the slabs, and are
 * compared. If a write of vhost was lost the page has the round before.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <net/if.h>

#include "dcmfs_test.h"

#define BUFFERS 2048u
#define BATCH 128u /* frames on their way at once: the queue's size */
#define ROUNDS 4u
#define HEADER 12u /* struct virtio_net_hdr_v1 */
#define FRAME (PAGE - HEADER)
#define ETHERNET 14u
#define PROTOCOL 0x88b5 /* for experiments */

/* Pages of the file: the rings, far from the rest; buffers; as many beside. */
#define FIRST 512u
#define PAGES (FIRST + 2u * BUFFERS)

struct queue {
	char *mem;
	struct vring ring;
	uint16_t next; /* index of the next buffer made available */
	int vhost;
	int kick;
	int call;
	int packet; /* sends frames to the tap device */
	struct sockaddr_ll to;
};

static int must(int ret, const char *what)
{
	if (ret < 0)
		fail("%s: %s", what, strerror(errno));
	return ret;
}

/* Fill a frame with the bytes of this page in this round. */
static void fill(char *frame, uint32_t page, uint32_t round)
{
	uint32_t i, w;

	memset(frame, 0xff, 6);
	memset(frame + 6, 2, 6);
	frame[12] = (char)(PROTOCOL >> 8);
	frame[13] = (char)(PROTOCOL & 0xff);
	for (i = ETHERNET; i + sizeof(w) <= FRAME; i += sizeof(w)) {
		w = (page << 8 | round) * 2654435761u ^ i;
		memcpy(frame + i, &w, sizeof(w));
	}
	memset(frame + i, (int)round, FRAME - i);
}

/* A tap device that sends nothing by itself and takes frames of a page. */
static int tap_open(struct queue *q)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI,
			     .ifr_name = "dcm%d" };
	int fd = must(open("/dev/net/tun", O_RDWR | O_NONBLOCK), "tun"), s;
	char path[96];

	must(ioctl(fd, TUNSETIFF, &ifr), "TUNSETIFF");
	snprintf(path, sizeof(path),
		 "/proc/sys/net/ipv6/conf/%.15s/disable_ipv6", ifr.ifr_name);
	s = open(path, O_WRONLY);
	if (s >= 0 && write(s, "1", 1) != 1)
		fail("%s: %s", path, strerror(errno));
	close(s);
	q->packet = must(socket(AF_PACKET, SOCK_RAW, 0), "AF_PACKET");
	ifr.ifr_mtu = FRAME - ETHERNET;
	must(ioctl(q->packet, SIOCSIFMTU, &ifr), "SIOCSIFMTU");
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	must(ioctl(q->packet, SIOCSIFFLAGS, &ifr), "SIOCSIFFLAGS");
	must(ioctl(q->packet, SIOCGIFINDEX, &ifr), "SIOCGIFINDEX");
	q->to.sll_family = AF_PACKET;
	q->to.sll_protocol = htons(PROTOCOL);
	q->to.sll_ifindex = ifr.ifr_ifindex;
	q->to.sll_halen = 6;
	memset(q->to.sll_addr, 0xff, 6);
	return fd;
}

static void queue_open(struct queue *q, char *mem)
{
	uint64_t features = 1ull << VIRTIO_F_VERSION_1 |
			    1ull << VHOST_NET_F_VIRTIO_NET_HDR;
	struct vhost_vring_state num = { .index = 0, .num = BATCH };
	struct vhost_vring_state base = { .index = 0, .num = 0 };
	struct vhost_vring_file file = { .index = 0 };
	struct vhost_vring_addr addr = { .index = 0 };
	struct vhost_memory *table;

	q->mem = mem;
	q->next = 0;
	vring_init(&q->ring, BATCH, mem, PAGE);
	q->vhost = must(open("/dev/vhost-net", O_RDWR), "/dev/vhost-net");
	q->kick = must(eventfd(0, 0), "eventfd");
	q->call = must(eventfd(0, 0), "eventfd");
	must(ioctl(q->vhost, VHOST_SET_OWNER), "VHOST_SET_OWNER");
	must(ioctl(q->vhost, VHOST_SET_FEATURES, &features), "features");
	table = calloc(1, sizeof(*table) + sizeof(table->regions[0]));
	if (!table)
		fail("no memory");
	table->nregions = 1;
	table->regions[0].memory_size = (uint64_t)PAGES * PAGE;
	table->regions[0].userspace_addr = (uintptr_t)mem;
	must(ioctl(q->vhost, VHOST_SET_MEM_TABLE, table), "memory table");
	free(table);
	must(ioctl(q->vhost, VHOST_SET_VRING_NUM, &num), "VRING_NUM");
	must(ioctl(q->vhost, VHOST_SET_VRING_BASE, &base), "VRING_BASE");
	addr.desc_user_addr = (uintptr_t)q->ring.desc;
	addr.avail_user_addr = (uintptr_t)q->ring.avail;
	addr.used_user_addr = (uintptr_t)q->ring.used;
	must(ioctl(q->vhost, VHOST_SET_VRING_ADDR, &addr), "VRING_ADDR");
	file.fd = q->kick;
	must(ioctl(q->vhost, VHOST_SET_VRING_KICK, &file), "VRING_KICK");
	file.fd = q->call;
	must(ioctl(q->vhost, VHOST_SET_VRING_CALL, &file), "VRING_CALL");
	file.fd = tap_open(q);
	must(ioctl(q->vhost, VHOST_NET_SET_BACKEND, &file), "backend");
}

/* Until vhost has used everything up to q->next. */
static void wait_used(struct queue *q, struct control *c)
{
	uint64_t until = now_ns() + 120000000000;
	struct pollfd p = { .fd = q->call, .events = POLLIN };
	_Atomic uint16_t *idx = (_Atomic uint16_t *)&q->ring.used->idx;
	uint64_t n;

	while (atomic_load(idx) != q->next) {
		if (now_ns() > until)
			fail("vhost used %u buffers of %u",
			     (unsigned int)atomic_load(idx),
			     (unsigned int)q->next);
		control_serve(c, 0);
		if (poll(&p, 1, 20) == 1 && read(q->call, &n, sizeof(n)) < 0)
			fail("eventfd: %s", strerror(errno));
	}
}

/* Frames into the buffers of the pages @page and up, one each. */
static void receive(struct queue *q, struct control *c, uint32_t page,
		    uint32_t round)
{
	_Atomic uint16_t *idx = (_Atomic uint16_t *)&q->ring.avail->idx;
	uint64_t one = 1;
	char frame[FRAME];
	uint32_t i;

	for (i = 0; i < BATCH; i++) {
		q->ring.desc[i] = (struct vring_desc){
			.addr = (uint64_t)(page + i) * PAGE,
			.len = PAGE,
			.flags = VRING_DESC_F_WRITE,
		};
		q->ring.avail->ring[(uint16_t)(q->next + i) % BATCH] =
			(uint16_t)i;
	}
	q->next = (uint16_t)(q->next + BATCH);
	atomic_store(idx, q->next);
	if (write(q->kick, &one, sizeof(one)) != sizeof(one))
		fail("kick: %s", strerror(errno));
	for (i = 0; i < BATCH; i++) {
		fill(frame, page + i, round);
		if (sendto(q->packet, frame, FRAME, 0, (void *)&q->to,
			   sizeof(q->to)) != FRAME)
			fail("send: %s", strerror(errno));
	}
	wait_used(q, c);
	for (i = 0; i < BATCH; i++)
		if (q->ring.used->ring[i].id != i ||
		    q->ring.used->ring[i].len != PAGE)
			fail("buffer %u was used as %u, %u bytes", i,
			     q->ring.used->ring[i].id,
			     q->ring.used->ring[i].len);
}

/* How many buffers do not hold what vhost wrote in that round. */
static uint32_t wrong(const char *mem, uint32_t round)
{
	uint32_t i, n = 0;
	char frame[FRAME];

	for (i = FIRST; i < FIRST + BUFFERS; i++) {
		fill(frame, i, round);
		n += memcmp(mem + i * PAGE + HEADER, frame, FRAME) != 0;
	}
	return n;
}

static void load_all(const char *mem, uint32_t first)
{
	uint32_t i;

	for (i = first; i < first + BUFFERS; i++)
		(void)*(const volatile char *)(mem + i * PAGE);
}

/* The buffers out: the smallest budget, and what is beside them in. */
static void all_out(struct control *c, const char *mem)
{
	control_squeeze(c);
	load_all(mem, FIRST + BUFFERS);
	control_squeeze(c);
}

/* vhost FILE */
int vhost(int argc, char **argv)
{
	int fd = must(open(argv[2], O_RDWR | O_CREAT, 0600), argv[2]);
	uint32_t round, page, n;
	struct control c;
	struct queue q;
	char *mem;

	(void)argc;
	must(ftruncate(fd, (off_t)PAGES * PAGE), "ftruncate");
	mem = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
		   MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	control_open(&c, fd);
	/* Slabs for all, before anybody waits for one. */
	for (page = 0; page < c.info.extents; page++)
		control_provide(&c, page);
	queue_open(&q, mem);

	for (round = 1; round <= ROUNDS; round++) {
		if (round % 2 == 0)
			load_all(mem, FIRST);
		for (page = FIRST; page < FIRST + BUFFERS; page += BATCH)
			receive(&q, &c, page, round);
		all_out(&c, mem);
		n = wrong(mem, round);
		if (n)
			fail("round %u: %u of %u pages are not as vhost wrote them",
			     round, n, BUFFERS);
		all_out(&c, mem);
	}
	/* A comparison that can't find a difference proves nothing. */
	if (wrong(mem, 1) != BUFFERS)
		fail("pages of the last round pass for those of the first");
	printf("vhost: %u pages right, %u times\n", BUFFERS, ROUNDS);
	return 0;
}
