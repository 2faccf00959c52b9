// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * two.c - two real donors, and a host that has both, for tests
 */
#include <stdio.h>

#include "two.h"

void two_start_cfg(struct two *t, bool local, u32 patience_ms)
{
	char path[128], addr[160];
	int i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", host_dir, 'a' + i);
		donor_start(&t->d[i], local ? path : NULL, local ? -1 : 0,
			    host_keys, donor_small);
		snprintf(addr, sizeof(addr), "unix:%s", path);
		host_donor(&t->h, i ? "b" : "a", local ? addr : t->d[i].tcp);
	}
	host_start_cfg(&t->h, (struct dcm_client_config){
				      .extent = SLAB,
				      .data_encryption = true,
				      .patience_ms = patience_ms });
	WAIT(status(&t->h, 0).state == DCM_DONOR_UP &&
	     status(&t->h, 1).state == DCM_DONOR_UP);
}

void two_start(struct two *t, bool local)
{
	two_start_cfg(t, local, 0);
}

void two_fill(struct two *t, u32 nr)
{
	u32 e;

	want(&t->h, 0, nr);
	WAIT(get(&t->h, &t->h.attached) == nr);
	for (e = 0; e < nr; e++)
		write_extent(&t->h, e, 1);
}

void two_end(struct two *t)
{
	host_stop(&t->h);
	donor_end(&t->d[0]);
	donor_end(&t->d[1]);
}

void two_move(struct two *t, u32 from, u32 to)
{
	static u8 buf[65536];
	u32 e, off;

	for (e = 0; e < 4; e++) {
		struct dcm_client_slab *old = t->h.old[e], *new = t->h.slab[e];

		if (!old)
			continue;
		assert_int_equal(old->donor, from);
		assert_int_equal(new->donor, to);
		for (off = 0; off < SLAB; off += sizeof(buf)) {
			assert_int_equal(io(&t->h, old, DCM_IO_READ, off,
					    sizeof(buf), buf),
					 0);
			assert_int_equal(io(&t->h, new, DCM_IO_WRITE, off,
					    sizeof(buf), buf),
					 0);
		}
		t->h.old[e] = NULL;
		dcm_client_release(t->h.client, old);
		check_slab(&t->h, new, e, 1);
	}
}
