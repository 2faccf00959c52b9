/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sockets.h - sockets in this process's memory */
#ifndef FUZZ_SOCKETS_H
#define FUZZ_SOCKETS_H

#include <poll.h>
#include <sys/socket.h>

#include "input.h"

/* Messages with descriptors that may be unread at one socket. */
#define SOCKETS_PARCELS 64u

/* As poll() that does not wait, of these sockets alone. */
int sockets_poll(struct pollfd *p, nfds_t nr);

/* How many sockets are open. */
u32 sockets_open(void);

#endif /* FUZZ_SOCKETS_H */
