/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_links.h - links: a pager that moves data by itself */
#ifndef FUZZ_FAKE_LINKS_H
#define FUZZ_FAKE_LINKS_H

#include "../../kvm-dcm/client/client.h"

extern const struct dcm_client_links fake_links;

/*
 * Bits: data connections are refused, pairs are refused, pairs are up, pairs are
 * dead.
 */
void links_set(u32 to);

/* The number of pairs. */
u32 links_paired(void);

#endif /* FUZZ_FAKE_LINKS_H */
