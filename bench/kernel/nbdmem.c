// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * nbdmem.c - a network block device whose server has it in memory
 *
 *	nbdmem DEVICE MIB
 *
 * Server and client in one, with a TCP connection over loopback between: what
 * nbd-server and nbd-client do once they have agreed. The server takes one
 * request after the other. "ready" when the device is there; runs until it is
 * ended by a signal.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/nbd.h>

static int must(int ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "nbdmem: %s: %s\n", what, strerror(errno));
		exit(1);
	}
	return ret;
}

/* All of it; false: the other end is gone. */
static int whole(int fd, void *buf, size_t n, int out)
{
	char *p = buf;

	while (n) {
		ssize_t got = out ? write(fd, p, n) : read(fd, p, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return 0;
		p += got;
		n -= (size_t)got;
	}
	return 1;
}

static void serve(int fd, char *mem, uint64_t size)
{
	struct nbd_request q;
	struct {
		struct nbd_reply head;
		char data[];
	} __attribute__((packed)) *reply = malloc(sizeof(*reply) + (32u << 20));

	while (reply && whole(fd, &q, sizeof(q), 0)) {
		uint64_t from = be64toh(q.from);
		uint32_t len = be32toh(q.len), type = be32toh(q.type) & 0xffff;

		if (type == NBD_CMD_DISC)
			break;
		reply->head.magic = htobe32(NBD_REPLY_MAGIC);
		memcpy(reply->head.handle, q.handle, sizeof(q.handle));
		reply->head.error = 0;
		if (len > 32u << 20 || from > size || len > size - from)
			break; /* not what our own kernel asks for */
		if (type == NBD_CMD_WRITE && !whole(fd, mem + from, len, 0))
			break;
		if (type == NBD_CMD_READ)
			memcpy(reply->data, mem + from, len);
		if (!whole(fd, reply,
			   sizeof(*reply) + (type == NBD_CMD_READ ? len : 0),
			   1))
			break;
	}
	_exit(0);
}

static int connection(int *other)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = must(socket(AF_INET, SOCK_STREAM, 0), "socket"), fd, one = 1;

	must(bind(l, (struct sockaddr *)&a, sizeof(a)), "bind");
	must(listen(l, 1), "listen");
	must(getsockname(l, (struct sockaddr *)&a, &len), "getsockname");
	fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	must(connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
	*other = must(accept(l, NULL, NULL), "accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(*other, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(l);
	return fd;
}

static int nbd;

static void on_term(int signum)
{
	(void)signum;
	ioctl(nbd, NBD_DISCONNECT);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_term };
	uint64_t size;
	int fd, other;
	char *mem;
	pid_t pid;

	if (argc != 3) {
		fprintf(stderr, "usage: nbdmem DEVICE MIB\n");
		return 2;
	}
	size = strtoull(argv[2], NULL, 0) << 20;
	nbd = must(open(argv[1], O_RDWR), argv[1]);
	fd = connection(&other);
	pid = must(fork(), "fork");
	if (!pid) {
		close(fd);
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (mem == MAP_FAILED)
			must(-1, "mmap");
		serve(other, mem, size);
	}
	close(other);
	must(ioctl(nbd, NBD_SET_BLKSIZE, 4096ul), "NBD_SET_BLKSIZE");
	must(ioctl(nbd, NBD_SET_SIZE_BLOCKS, (unsigned long)(size / 4096)),
	     "NBD_SET_SIZE_BLOCKS");
	must(ioctl(nbd, NBD_SET_SOCK, fd), "NBD_SET_SOCK");
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	printf("ready\n");
	fflush(stdout);
	ioctl(nbd, NBD_DO_IT);
	ioctl(nbd, NBD_CLEAR_SOCK);
	close(fd);
	wait(NULL);
	return 0;
}
