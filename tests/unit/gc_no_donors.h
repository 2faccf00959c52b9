/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_no_donors.h - gc/queue.c without donors: stubs of the workers */
#ifndef TEST_GC_NO_DONORS_H
#define TEST_GC_NO_DONORS_H

#include <stdlib.h>

#include "../../kvm-dcm/gc/backend.h"

/* The window is plain memory; there is one at a time. */
static char *window_base;

static int window_discard(void *priv, u64 at, u64 bytes)
{
	return dcm_pager_discard(priv, window_base + at, bytes);
}

static void window_hint(void *priv, u64 at, u64 bytes, u32 what)
{
	(void)priv;
	(void)at;
	(void)bytes;
	(void)what;
}

static void window_forget(void *priv, u64 at, u64 bytes)
{
	(void)priv;
	(void)at;
	(void)bytes;
}

static u64 budget_bytes;

static u64 window_budget(void *priv)
{
	(void)priv;
	return __atomic_load_n(&budget_bytes, __ATOMIC_SEQ_CST);
}

static void window_end(void *priv)
{
	(void)priv;
}

/* Without donors no more is called. */
static const struct dcm_gc_backend_ops window_ops = {
	.discard = window_discard,
	.hint = window_hint,
	.forget = window_forget,
	.budget = window_budget,
	.end = window_end,
};

struct dcm_gc_host *dcm_gc_host_open(struct dcm_pager *p, void *window,
				     size_t bytes,
				     const struct dcm_gc_host_ops *host_ops,
				     void *priv, char *err, size_t len)
{
	const struct dcm_gc_backend backend = {
		.ops = &window_ops,
		.priv = p,
		.donors = dcm_pager_donors(p),
		.bytes = bytes,
		.extent = dcm_pager_extent(p, window),
	};
	struct dcm_gc_host *gc =
		dcm_gc_host_new(&backend, host_ops, priv, err, len);

	if (gc)
		window_base = window;
	return gc;
}

u32 dcm_client_donors(const struct dcm_client *client)
{
	(void)client;
	abort();
}

struct dcm_gc_workers *
dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
		   const struct dcm_gc_workers_ops *workers_ops, void *arg)
{
	(void)client;
	(void)bytes;
	(void)workers_ops;
	(void)arg;
	return NULL;
}

void dcm_gc_workers_free(struct dcm_gc_workers *t)
{
	(void)t;
}

void dcm_gc_workers_do(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
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

bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r)
{
	(void)t;
	(void)r;
	abort();
}

bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake)
{
	(void)t;
	(void)wake;
	return false;
}

void dcm_gc_workers_reset(struct dcm_gc_workers *t)
{
	(void)t;
}

#endif /* TEST_GC_NO_DONORS_H */
