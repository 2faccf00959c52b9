// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * api.c - libdcm_gc.h: calls the functions of the host's kind
 *
 * A host works on pages of this process's pager, or lets dcm-hostd work on pages of the
 * kernel pager. The device sees no difference once the host is open.
 *
 * Locking: none. The program's signals are blocked inside.
 */
#include "backend.h"
#include "../lib/thread.h"

void dcm_gc_host_close(struct dcm_gc_host *gc)
{
	sigset_t old;

	if (!gc)
		return;
	dcm_thread_enter(&old);
	gc->kind->close(gc);
	dcm_thread_leave(&old);
}

uint64_t dcm_gc_host_features(const struct dcm_gc_host *gc)
{
	return gc->kind->features((struct dcm_gc_host *)gc);
}

void dcm_gc_host_config(struct dcm_gc_host *gc, struct virtio_gc_config *c)
{
	gc->kind->config(gc, c);
}

uint64_t dcm_gc_host_budget(struct dcm_gc_host *gc)
{
	return gc->kind->budget(gc);
}

void dcm_gc_host_start(struct dcm_gc_host *gc, uint64_t features)
{
	sigset_t old;

	dcm_thread_enter(&old);
	gc->kind->start(gc, features & gc->kind->features(gc));
	dcm_thread_leave(&old);
}

void dcm_gc_host_submit(struct dcm_gc_host *gc, const void *request,
			size_t bytes, size_t room, void *token)
{
	sigset_t old;

	dcm_thread_enter(&old);
	gc->kind->submit(gc, request, bytes, room, token);
	dcm_thread_leave(&old);
}

void dcm_gc_host_reset(struct dcm_gc_host *gc)
{
	sigset_t old;

	dcm_thread_enter(&old);
	gc->kind->reset(gc);
	dcm_thread_leave(&old);
}
