// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * address.c - "tcp:HOST:PORT" and "unix:/path"
 *
 * Names are looked up once, at the start or by the thread that adds a donor: a
 * resolver may take many seconds, and the client thread must send heartbeats. A
 * donor that moves to another address has to be removed and added again, or
 * needs a numeric address that moves with it.
 */
#include <netdb.h>
#include <stdio.h>

#include "client_int.h"

static int unix_resolve(struct client_donor *d, const char *path)
{
	struct sockaddr_un *sun = (struct sockaddr_un *)&d->sa;
	size_t len = strlen(path);

	if (!len || len >= sizeof(sun->sun_path)) {
		dcm_log(DCM_LOG_ERR,
			"donor %s: %s: a socket's path has 1 to 107 bytes",
			d->name, d->address);
		return -EINVAL;
	}
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path, path, len + 1);
	d->sa_len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	d->local = true;
	return 0;
}

int client_address_resolve(struct client_donor *d)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *ai;
	char host[DCM_ADDRESS_MAX + 1];
	const char *colon;
	size_t len;
	int ret;

	if (!strncmp(d->address, "unix:", 5))
		return unix_resolve(d, d->address + 5);
	colon = strrchr(d->address, ':');
	if (strncmp(d->address, "tcp:", 4) || !colon ||
	    colon < d->address + 5 || !colon[1]) {
		dcm_log(DCM_LOG_ERR,
			"donor %s: address '%s' must be tcp:HOST:PORT or unix:/path",
			d->name, d->address);
		return -EINVAL;
	}
	len = (size_t)(colon - d->address) - 4;
	memcpy(host, d->address + 4, len);
	host[len] = 0;
	if (host[0] == '[' && len > 2 && host[len - 1] == ']') {
		host[len - 1] = 0;
		memmove(host, host + 1, len - 1);
	}
	ret = getaddrinfo(host, colon + 1, &hints, &ai);
	if (ret) {
		dcm_log(DCM_LOG_ERR, "donor %s: can't look up %s: %s", d->name,
			d->address, gai_strerror(ret));
		return -EHOSTUNREACH;
	}
	memcpy(&d->sa, ai->ai_addr, ai->ai_addrlen);
	d->sa_len = ai->ai_addrlen;
	freeaddrinfo(ai);
	return 0;
}
