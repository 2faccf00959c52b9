// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * arena.c - malloc() for a program whose heap is to be paged by either pager
 *
 * Preloaded. The heap is ARENA_MIB of anonymous memory, or of the file ARENA:
 * the same addresses within it in the same order either way, so that what
 * differs between two runs is the pager. Swap may not take what the program has
 * beside the heap, as dcmfs does not: else more of the heap stays in memory.
 * Sizes are rounded up to a quarter of a power of two, what is freed goes to a
 * list of its size; one lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLASSES 256u
#define HEAD 16u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *base, *top, *end;
static void *list[CLASSES];

static void die(const char *why)
{
	if (write(2, why, strlen(why)) < 0)
		_exit(3);
	_exit(2);
}

static void start(void)
{
	const char *file = getenv("ARENA"), *mib = getenv("ARENA_MIB");
	size_t size = (size_t)(mib ? atoi(mib) : 64) << 20;
	int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;

	if (file && fd < 0)
		die("arena: ARENA can't be opened\n");
	base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (base == MAP_FAILED)
		die("arena: no memory\n");
	if (!file && (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) ||
		      munlock(base, size)))
		die("arena: the rest can't be locked\n");
	top = base;
	end = base + size;
}

static void after_fork(void)
{
	/* A file's pages would be shared with the parent. */
	if (getenv("ARENA"))
		die("arena: the program forks\n");
}

static __attribute__((constructor)) void watch(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

/* Class of a size, which becomes the largest of that class. */
static unsigned int class_of(size_t *size)
{
	size_t n = *size < 16 ? 16 : *size, step;
	unsigned int bits = 63 - (unsigned int)__builtin_clzl(n - 1);

	step = (size_t)1 << (bits > 5 ? bits - 2 : 4);
	n = (n + step - 1) & ~(step - 1);
	*size = n;
	bits = 63 - (unsigned int)__builtin_clzl(n);
	return bits * 4 + (unsigned int)(n >> (bits - 2) & 3);
}

/* Before each piece is its size. */
static void *take(size_t size, size_t align)
{
	unsigned int c;
	void *p = NULL;

	if (size > SIZE_MAX / 4)
		goto none;
	c = class_of(&size);
	pthread_mutex_lock(&lock);
	if (!base)
		start();
	if (align <= HEAD && list[c]) {
		p = list[c];
		memcpy(&list[c], p, sizeof(p));
	} else {
		char *at = top + HEAD;

		at += -(uintptr_t)at & (align - 1);
		if (at <= end && (size_t)(end - at) >= size) {
			p = at;
			top = at + size;
			((size_t *)p)[-1] = size;
		}
	}
	pthread_mutex_unlock(&lock);
	if (p)
		return p;
none:
	errno = ENOMEM;
	return NULL;
}

void *malloc(size_t size)
{
	return take(size, HEAD);
}

void free(void *p)
{
	size_t size;
	unsigned int c;

	if (!p)
		return;
	size = ((size_t *)p)[-1];
	c = class_of(&size);
	pthread_mutex_lock(&lock);
	memcpy(p, &list[c], sizeof(p));
	list[c] = p;
	pthread_mutex_unlock(&lock);
}

void *calloc(size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes))
		bytes = SIZE_MAX;
	p = take(bytes, HEAD);
	return p ? memset(p, 0, bytes) : NULL;
}

void *realloc(void *old, size_t size)
{
	size_t had = old ? ((size_t *)old)[-1] : 0;
	void *p;

	if (old && size <= had)
		return old;
	p = take(size, HEAD);
	if (!p)
		return NULL;
	if (old)
		memcpy(p, old, had);
	free(old);
	return p;
}

int posix_memalign(void **out, size_t align, size_t size)
{
	*out = take(size, align < HEAD ? HEAD : align);
	return *out ? 0 : ENOMEM;
}

void *aligned_alloc(size_t align, size_t size)
{
	return take(size, align < HEAD ? HEAD : align);
}

void *memalign(size_t align, size_t size)
{
	return take(size, align < HEAD ? HEAD : align);
}

size_t malloc_usable_size(void *p)
{
	return p ? ((size_t *)p)[-1] : 0;
}
