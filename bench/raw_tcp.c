// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * raw_tcp.c - a bare round trip over TCP on loopback: 32 bytes out, 4 KiB back
 *
 * No TLS, no protocol, TCP_NODELAY, blocking sockets. It is the least time that a
 * page fetch from a tcp donor adds to a fault. Placements as in raw_uffd.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define REQUEST 32u

static const char *placement;

/* Receive exactly @n bytes; with @spin without ever sleeping. */
static void socket_receive(int fd, char *buf, size_t n, bool spin)
{
	while (n) {
		ssize_t r = recv(fd, buf, n, spin ? MSG_DONTWAIT : 0);

		if (r < 0 && errno == EAGAIN && spin)
			continue;
		if (r <= 0)
			_exit(0);	/* the other end is through */
		buf += r;
		n -= (size_t)r;
	}
}

static void socket_send(int fd, const char *buf, size_t n)
{
	while (n) {
		ssize_t r = send(fd, buf, n, MSG_NOSIGNAL);

		if (r <= 0)
			_exit(0);
		buf += r;
		n -= (size_t)r;
	}
}

static bool spinning(void)
{
	return !strcmp(placement, "spin");
}

static void server_run(int fd)
{
	static char page[PAGE];
	char request[REQUEST];

	bench_pin(!strcmp(placement, "same") ? 0 : spinning() ? 1 : -1);
	bench_page_fill(page, 1, CONTENT_RANDOM);
	for (;;) {
		socket_receive(fd, request, sizeof(request), spinning());
		socket_send(fd, page, sizeof(page));
	}
}

int main(int argc, char **argv)
{
	size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 20000;
	struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(a);
	int one = 1;

	placement = argc > 1 ? argv[1] : "";
	if ((strcmp(placement, "default") && strcmp(placement, "same") &&
	     !spinning()) ||
	    rounds < 100)
		die("usage: raw_tcp default|same|spin [rounds >= 100]");

	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len))
		die("cannot listen on loopback: %s", strerror(errno));
	int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c < 0 || connect(c, (struct sockaddr *)&a, sizeof(a)))
		die("cannot connect on loopback: %s", strerror(errno));
	int s = accept(l, NULL, NULL);
	if (s < 0)
		die("accept: %s", strerror(errno));
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

	pid_t pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		close(c);
		server_run(s);
	}
	close(s);
	bench_pin(!strcmp(placement, "default") ? -1 : 0);

	uint32_t *ns = malloc(rounds * sizeof(*ns));
	static char page[PAGE], request[REQUEST];
	if (!ns)
		die("no memory");
	for (size_t i = 0; i < rounds + 200; i++) {
		uint64_t t = bench_now_ns();

		socket_send(c, request, sizeof(request));
		socket_receive(c, page, sizeof(page), spinning());
		if (i >= 200)	/* the connection has warmed up */
			ns[i - 200] = (uint32_t)(bench_now_ns() - t);
	}
	printf("{\"placement\":\"%s\",", placement);
	bench_percentiles_print("ns", ns, rounds);
	printf("}\n");
	close(c);	/* ends the server */
	return 0;
}
