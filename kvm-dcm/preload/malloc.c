// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * malloc.c - malloc() and its family: the program's allocator or libdcm's
 *
 * The calling thread decides where memory comes from: libdcm's threads, and the
 * program's while they are inside libdcm, get libdcm's heap (heap.c), all
 * others the next allocator in the preload order. The address alone decides
 * where it is freed. Until the constructor has run, and for dlsym() itself, all
 * memory is from libdcm's heap.
 *
 * A thread of libdcm never calls the program's allocator, whose memory may be
 * paged: if it is to free such memory it does nothing (the program hands libdcm
 * nothing to free, so no case is known).
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "shim.h"

static struct {
	bool ready;
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void (*free)(void *);
	int (*posix_memalign)(void **, size_t, size_t);
	size_t (*usable)(void *);
} next;

/* Called by the constructor: from now on the program uses its own. */
void dcm_malloc_ready(void)
{
	next.malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	next.calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	next.realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	next.free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	next.posix_memalign =
		(int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT,
							"posix_memalign");
	next.usable = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
	smp_store_release(&next.ready, next.malloc && next.calloc &&
					       next.realloc && next.free &&
					       next.posix_memalign &&
					       next.usable);
}

static inline bool heap_is_own(void)
{
	return dcm_thread_inside || !smp_load_acquire(&next.ready);
}

DCM_EXPORT void *malloc(size_t n)
{
	return heap_is_own() ? dcm_heap_alloc(n, 16) : next.malloc(n);
}

DCM_EXPORT void free(void *p)
{
	if (!p)
		return;
	if (dcm_heap_owns(p)) {
		int saved = errno;

		dcm_heap_free(p);
		errno = saved;
	} else if (!heap_is_own()) {
		next.free(p);
	}
}

DCM_EXPORT void *calloc(size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (!heap_is_own())
		return next.calloc(n, size);
	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	p = dcm_heap_alloc(bytes, 16);
	return p ? memset(p, 0, bytes) : NULL;
}

DCM_EXPORT void *realloc(void *p, size_t n)
{
	bool mine = p && dcm_heap_owns(p);
	size_t had;
	void *q;

	if (!mine && !heap_is_own())
		return next.realloc(p, n);
	if (p && !n) {
		free(p);
		return NULL;
	}
	had = !p	  ? 0 :
	      mine	  ? dcm_heap_size(p) :
	      next.usable ? next.usable(p) :
			    0;
	if (mine && heap_is_own() && n <= had && n >= had / 2)
		return p;
	q = malloc(n);
	if (q && p) {
		memcpy(q, p, had < n ? had : n);
		free(p);
	}
	return q;
}

DCM_EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}

DCM_EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
	void *p;

	if (!heap_is_own())
		return next.posix_memalign(out, align, n);
	if (align < sizeof(void *) || (align & (align - 1)))
		return EINVAL;
	p = dcm_heap_alloc(n, align);
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

DCM_EXPORT void *memalign(size_t align, size_t n)
{
	void *p = NULL;
	int err;

	/* memalign() takes what posix_memalign() does not. */
	if (align < sizeof(void *))
		align = sizeof(void *);
	while (align & (align - 1))
		align += align & -align;
	err = posix_memalign(&p, align, n);
	if (err)
		errno = err;
	return err ? NULL : p;
}

DCM_EXPORT void *aligned_alloc(size_t align, size_t n)
{
	if (!align || (align & (align - 1))) {
		errno = EINVAL;
		return NULL;
	}
	return memalign(align, n);
}

DCM_EXPORT void *valloc(size_t n)
{
	return memalign((size_t)getpagesize(), n);
}

DCM_EXPORT void *pvalloc(size_t n)
{
	size_t page = (size_t)getpagesize();

	return memalign(page, (n + page - 1) & ~(page - 1));
}

DCM_EXPORT size_t malloc_usable_size(void *p)
{
	if (!p)
		return 0;
	if (dcm_heap_owns(p))
		return dcm_heap_size(p);
	return next.usable ? next.usable(p) : 0;
}
