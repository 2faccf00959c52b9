/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_hosts.h - hosts of a donor, as an input says */
#ifndef FUZZ_FAKE_HOSTS_H
#define FUZZ_FAKE_HOSTS_H

#include "donor.h"
#include "input.h"

#define SLAB (2ull << 20)

/* Once, before all else. */
void hosts_start(void);
/* Hosts hear what the donor says, but for those that are deaf. */
void hosts_read(void);
/* All connections are closed. */
void hosts_close(void);
/* Forget all ids that the donor has sent: hosts name them no more. */
void hosts_forget(void);

/* A host that is deaf hears again, and the other way around. */
void host_deaf(u32 which);
/* A connection to one of the donor's listeners, of a tenant or a stranger. */
void host_open(struct dcm_donor *donor, struct in *in);
/* Messages of each kind. */
void host_hello(struct in *in);
void host_control(struct in *in);
void host_data(struct in *in);
void host_gc(struct in *in);
void host_junk(struct in *in);
/* A connection is closed, wholly or one way. */
void host_leave(struct in *in);

#endif /* FUZZ_FAKE_HOSTS_H */
