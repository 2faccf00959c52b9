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

/*
 * May two donors die together: are they on one host, or in one group? Hosts are told
 * apart by address, so a host with several addresses counts as several.
 */
bool client_donors_near(const struct client_donor *a,
			const struct client_donor *b)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&a->sa;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)&b->sa;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)&b->sa;

	if (*a->group && !strcmp(a->group, b->group))
		return true;
	if (a->sa.ss_family != b->sa.ss_family)
		return false;
	switch (a->sa.ss_family) {
	case AF_INET:
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	case AF_INET6:
		return !memcmp(&a6->sin6_addr, &b6->sin6_addr,
			       sizeof(a6->sin6_addr));
	default:
		return true; /* this host */
	}
}
