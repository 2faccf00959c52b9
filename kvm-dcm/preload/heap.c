// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap.c - libdcm's own heap, which is never paged
 *
 * The program's allocator may use paged memory; a fault thread that touched it
 * would wait for itself. So all that libdcm and its libraries allocate comes
 * from one range of addresses of their own. A comparison of addresses tells
 * which heap a pointer is from, in any thread and at any time: memory allocated
 * before the shim is set up is from here too.
 *
 * Size classes, four to an octave, with a free list each; a 16-byte header
 * holds the class and the distance to the start of the allocation. Large free
 * allocations give their memory back. Simple, because little is allocated:
 * GnuTLS sessions, JSON of a status request, and what constructors of the
 * program's libraries allocate before the shim's.
 *
 * Locking: one spinlock; fork() is made with it held.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/dcm_context.h"
#include "shim.h"

#define HEAP_BYTES	(16ull << 30)
#define HEAP_SMALLEST	(1ull << 30)
#define CLASSES		128u
#define TRIM_BYTES	(128u << 10)
#define MAGIC		0x6d636468u

struct header {
	u32 magic;
	u32 class;
	u64 back;	/* from here to the allocation's own header */
};

struct allocation {
	struct header h;
	struct allocation *next;	/* while free */
};

static struct {
	spinlock_t lock;
	char *base;
	char *end;
	char *fresh;
	struct allocation *free[CLASSES];
} heap;

/* 32, 40, 48, 56, 64, 80, ...: bytes of a class, header included */
static u64 class_bytes(u32 class)
{
	u64 step = 8ull << (class / 4);

	return (4 + class % 4) * step;
}

static u32 class_of(u64 bytes)
{
	u32 oct, class;

	if (bytes <= 32)
		return 0;
	oct = (u32)ilog2(bytes - 1);
	class = (oct - 5) * 4;
	while (class_bytes(class) < bytes)
		class ++;
	return class;
}

static bool heap_map(void)
{
	u64 bytes;
	long p;

	for (bytes = HEAP_BYTES; bytes >= HEAP_SMALLEST; bytes /= 2) {
		p = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != -1) {
			heap.base = (char *)p;
			heap.fresh = heap.base;
			smp_store_release(&heap.end, heap.base + bytes);
			return true;
		}
	}
	return false;
}

static struct allocation *allocation_get(u32 class)
{
	u64 bytes = (class_bytes(class) + 15) & ~15ull;
	struct allocation *a = NULL;

	spin_lock(&heap.lock);
	if (heap.free[class]) {
		a = heap.free[class];
		heap.free[class] = a->next;
	} else if ((heap.base || heap_map()) &&
		   (u64)(heap.end - heap.fresh) >= bytes) {
		a = (struct allocation *)heap.fresh;
		heap.fresh += bytes;
	}
	spin_unlock(&heap.lock);
	return a;
}

/** dcm_heap_alloc() - allocate, not zeroed; on failure %NULL and ENOMEM */
void *dcm_heap_alloc(size_t bytes, size_t align)
{
	u64 extra = align > 16 ? align : 0;
	struct header *h;
	struct allocation *a;
	u64 at;
	u32 class;

	if (bytes > HEAP_BYTES / 4 || extra > HEAP_BYTES / 4)
		goto no;
	class = class_of(bytes + extra + sizeof(struct header));
	a = class < CLASSES ? allocation_get(class) : NULL;
	if (!a)
		goto no;
	a->h = (struct header){ MAGIC, class, 0 };
	if (!extra)
		return &a->h + 1;
	at = ((u64)(&a->h + 1) + extra - 1) & ~(extra - 1);
	h = (struct header *)at - 1;
	if (h != &a->h)
		*h = (struct header){ MAGIC, class, (u64)h - (u64)&a->h };
	return (void *)at;
no:
	errno = ENOMEM;
	return NULL;
}

static struct allocation *allocation_of(const void *p)
{
	const struct header *h = (const struct header *)p - 1;

	if (h->magic != MAGIC)
		__builtin_trap();
	return (struct allocation *)((char *)(u64)h - h->back);
}

size_t dcm_heap_size(const void *p)
{
	const struct header *h = (const struct header *)p - 1;
	struct allocation *a = allocation_of(p);

	return class_bytes(h->class) - sizeof(*h) - ((u64)h - (u64)&a->h);
}

void dcm_heap_free(void *p)
{
	struct allocation *a = allocation_of(p);
	u32 class = a->h.class;
	u64 bytes = class_bytes(class), from, to;

	((struct header *)p - 1)->magic = 0;
	a->h.magic = 0;
	if (bytes >= TRIM_BYTES) {
		from = ((u64)(a + 1) + 4095) & ~4095ull;
		to = ((u64)a + bytes) & ~4095ull;
		syscall(SYS_madvise, from, to - from, MADV_DONTNEED);
	}
	spin_lock(&heap.lock);
	a->next = heap.free[class];
	heap.free[class] = a;
	spin_unlock(&heap.lock);
}

bool dcm_heap_owns(const void *p)
{
	char *end = smp_load_acquire(&heap.end);

	return (const char *)p < end && (const char *)p >= heap.base;
}

void dcm_heap_lock(void)
{
	spin_lock(&heap.lock);
}

void dcm_heap_unlock(void)
{
	spin_unlock(&heap.lock);
}
