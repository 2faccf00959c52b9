// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * proxy.c - a TCP proxy whose connections can be cut, for tests
 *
 * A line is a connection to the proxy with the proxy's own connection to the target.
 * A thread copies the bytes of all lines in both directions. A child of a program that
 * forks must close the descriptors that it inherits, or lines that the proxy closes
 * stay open.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy.h"

#define LINES 64

struct proxy {
	pthread_t thread;
	pthread_mutex_t lock;
	struct sockaddr_in target;
	int listen;
	bool block;
	bool stop;
	int nr;
	int fd[LINES][2];
	int hush;		/* of new lines */
	int hushed[LINES];	/* FROM_HOST, FROM_DONOR */
};

static void line_end(struct proxy *p, int i)
{
	close(p->fd[i][0]);
	close(p->fd[i][1]);
	p->nr--;
	p->fd[i][0] = p->fd[p->nr][0];
	p->fd[i][1] = p->fd[p->nr][1];
	p->hushed[i] = p->hushed[p->nr];
}

static void line_new(struct proxy *p)
{
	int a = accept4(p->listen, NULL, NULL, SOCK_CLOEXEC), b;

	if (a < 0)
		return;
	b = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->block || p->nr == LINES ||
	    connect(b, (struct sockaddr *)&p->target, sizeof(p->target))) {
		close(a);
		close(b);
		return;
	}
	p->fd[p->nr][0] = a;
	p->hushed[p->nr] = p->hush;
	p->fd[p->nr++][1] = b;
}

/* Copy bytes; return false if the line has ended. */
static bool copy(int from, int to)
{
	char buf[65536];
	ssize_t n = recv(from, buf, sizeof(buf), 0), off = 0, w;

	if (n <= 0)
		return false;
	while (off < n) {
		w = send(to, buf + off, (size_t)(n - off), MSG_NOSIGNAL);
		if (w <= 0)
			return false;
		off += w;
	}
	return true;
}

static void *proxy_main(void *arg)
{
	struct proxy *p = arg;
	struct pollfd pf[1 + 2 * LINES];

	for (;;) {
		int i, n, nr;

		pthread_mutex_lock(&p->lock);
		if (p->stop) {
			pthread_mutex_unlock(&p->lock);
			return NULL;
		}
		nr = p->nr;
		pf[0] = (struct pollfd){ .fd = p->listen, .events = POLLIN };
		for (i = 0; i < nr; i++) {
			int *fd = p->fd[i], hush = p->hushed[i];

			pf[1 + 2 * i] =
				(struct pollfd){ .fd = hush & FROM_HOST ? -1 :
									  fd[0],
						 .events = POLLIN };
			pf[2 + 2 * i] = (struct pollfd){
				.fd = hush & FROM_DONOR ? -1 : fd[1],
				.events = POLLIN
			};
		}
		n = poll(pf, (nfds_t)(1 + 2 * nr), 2);
		for (i = nr - 1; n > 0 && i >= 0; i--)
			if ((pf[1 + 2 * i].revents &&
			     !copy(p->fd[i][0], p->fd[i][1])) ||
			    (pf[2 + 2 * i].revents &&
			     !copy(p->fd[i][1], p->fd[i][0])))
				line_end(p, i);
		if (n > 0 && pf[0].revents)
			line_new(p);
		pthread_mutex_unlock(&p->lock);
		usleep(100);
	}
}

struct proxy *proxy_start(const char *target, char *address, size_t len)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct proxy *p = calloc(1, sizeof(*p));
	socklen_t sl = sizeof(sin);
	char host[16];
	uint16_t port;

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->target = sin;
	if (sscanf(target, "tcp:%15[0-9.]:%hu", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &p->target.sin_addr) != 1)
		(fprintf(stderr, "proxy: no address: %s\n", target), exit(99));
	p->target.sin_port = htons(port);
	p->listen = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_mutex_init(&p->lock, NULL);
	if (bind(p->listen, (struct sockaddr *)&sin, sizeof(sin)) ||
	    listen(p->listen, 64) ||
	    getsockname(p->listen, (struct sockaddr *)&sin, &sl))
		(perror("proxy"), exit(99));
	snprintf(address, len, "tcp:127.0.0.1:%d", ntohs(sin.sin_port));
	pthread_create(&p->thread, NULL, proxy_main, p);
	return p;
}

void proxy_cut(struct proxy *p, bool block)
{
	pthread_mutex_lock(&p->lock);
	p->block = block;
	while (p->nr)
		line_end(p, 0);
	pthread_mutex_unlock(&p->lock);
}

void proxy_open(struct proxy *p)
{
	pthread_mutex_lock(&p->lock);
	p->block = false;
	p->hush = 0;
	memset(p->hushed, 0, sizeof(p->hushed));
	pthread_mutex_unlock(&p->lock);
}

void proxy_hush(struct proxy *p, int ways, bool control)
{
	int i;

	pthread_mutex_lock(&p->lock);
	p->hush = ways;
	for (i = 0; i < (control ? 1 : p->nr); i++)
		p->hushed[i] = ways;
	pthread_mutex_unlock(&p->lock);
}

void proxy_stop(struct proxy *p)
{
	proxy_cut(p, true);
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	close(p->listen);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
