/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_no_donors.h - gc_host.c without donors: it does what needs none */
#ifndef TEST_GC_NO_DONORS_H
#define TEST_GC_NO_DONORS_H

#include <stdlib.h>

#include "../../kvm-dcm/user/gc_pages.h"
#include "../../kvm-dcm/user/gc_team.h"

struct dcm_ctl *dcm_gc_pages_ctl(struct dcm_pager *p)
{
	(void)p;
	return NULL;
}

uint64_t dcm_gc_pages_most(struct dcm_pager *p, uint64_t *extent)
{
	(void)p;
	*extent = 2u << 20;
	return 5u << 20;
}

void dcm_gc_pages_hint(struct dcm_pager *p, uint64_t va, uint64_t bytes,
		       uint32_t what)
{
	(void)p;
	(void)va;
	(void)bytes;
	(void)what;
}

void dcm_gc_pages_hold(struct dcm_pager *p, uint64_t va, uint64_t bytes)
{
	(void)p;
	(void)va;
	(void)bytes;
}

void dcm_gc_pages_release(struct dcm_pager *p)
{
	(void)p;
}

uint32_t dcm_gc_pages_settle(struct dcm_pager *p, uint64_t va, uint64_t bytes,
			     bool keep, uint64_t until_ms)
{
	(void)p;
	(void)va;
	(void)bytes;
	(void)keep;
	(void)until_ms;
	return VIRTIO_GC_OK;
}

bool dcm_gc_pages_place(struct dcm_pager *p, uint64_t va,
			struct dcm_gc_place_of *place)
{
	(void)p;
	(void)va;
	(void)place;
	return false;
}

struct dcm_gc_team *dcm_gc_team_new(struct dcm_ctl *ctl, u64 bytes,
				    const struct dcm_gc_team_ops *team_ops,
				    void *arg)
{
	(void)ctl;
	(void)bytes;
	(void)team_ops;
	(void)arg;
	return NULL;
}

void dcm_gc_team_free(struct dcm_gc_team *t)
{
	(void)t;
}

size_t dcm_gc_team_do(struct dcm_gc_team *t, const struct dcm_gc_request *r,
		      const void *raw, size_t bytes, u64 expires_ms,
		      struct dcm_gc_reply *out)
{
	(void)t;
	(void)r;
	(void)raw;
	(void)bytes;
	(void)expires_ms;
	(void)out;
	abort();
}

bool dcm_gc_team_idle(struct dcm_gc_team *t, int wake)
{
	(void)t;
	(void)wake;
	return false;
}

void dcm_gc_team_reset(struct dcm_gc_team *t)
{
	(void)t;
}

#endif /* TEST_GC_NO_DONORS_H */
