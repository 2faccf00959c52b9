// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_slabs.c - slabs that a GC worker maps, between pages nobody may touch
 *
 * So an object that leaves its slab is seen. A slab that is not mapped any more
 * is seen as well: its memory is kept for the next input, but poisoned.
 */
#include <endian.h>
#include <sanitizer/asan_interface.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gc_slabs.h"

#define GUARD (64u << 10)
#define MAPS  4u
#define LOOK  1024u

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __wrap_munmap(void *at, size_t bytes);

const u64 slab_bytes[SLABS] = { 4 * REGION, 2 * REGION, REGION };
static int slab_fd[SLABS];
static u8 *slab_memory[SLABS];
static u64 fresh[4 * REGION / 8]; /* what is in slabs at first */
static bool written; /* slabs may be */

/**
 * struct map - a slab between two guards
 * @memory: NULL: not made yet
 */
static struct map {
	u8 *memory;
	bool used;
} maps[SLABS][MAPS];

static int mapping; /* the slab that is shown; -1: another size of it */

static void *map_make(size_t bytes, int prot, int flags, int fd, off_t o)
{
	u8 *p = __real_mmap(NULL, bytes + 2 * GUARD, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return p;
	return __real_mmap(p + GUARD, bytes, prot, flags | MAP_FIXED, fd, o);
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o)
{
	struct map *m;

	if (fd < 0 || at)
		return __real_mmap(at, bytes, prot, flags, fd, o);
	EXPECT(prot == (PROT_READ | PROT_WRITE) && flags == MAP_SHARED && !o);
	if (mapping < 0)
		return map_make(bytes, prot, flags, fd, o);
	EXPECT(bytes == slab_bytes[mapping]);
	for (m = maps[mapping]; m->used;)
		if (++m == maps[mapping] + MAPS)
			return map_make(bytes, prot, flags, fd, o);
	if (!m->memory)
		m->memory = map_make(bytes, prot, flags, fd, o);
	EXPECT((void *)m->memory != MAP_FAILED);
	ASAN_UNPOISON_MEMORY_REGION(m->memory, bytes);
	m->used = true;
	return m->memory;
}

void slab_unmap(u8 *memory, size_t bytes)
{
	for (u32 i = 0; i < SLABS; i++)
		for (struct map *m = maps[i]; m < maps[i] + MAPS; m++) {
			if (m->memory != memory)
				continue;
			EXPECT(m->used && bytes == slab_bytes[i]);
			ASAN_POISON_MEMORY_REGION(memory, bytes);
			m->used = false;
			return;
		}
	__real_munmap(memory - GUARD, bytes + 2 * GUARD);
}

/* A worker keeps its slabs as long as it lives. */
int __wrap_munmap(void *at, size_t bytes)
{
	for (u32 i = 0; i < SLABS * MAPS; i++)
		EXPECT(!at || maps[i / MAPS][i % MAPS].memory != at);
	return __real_munmap(at, bytes);
}

int slab_show(u32 which, u64 bytes, bool fd)
{
	mapping = bytes == slab_bytes[which] ? (int)which : -1;
	return fd ? dup(slab_fd[which]) : -1;
}

void slabs_changed(void)
{
	written = true;
}

void slab_write(u32 which, u64 at, const void *bytes, size_t n)
{
	written = true;
	memcpy(slab_memory[which] + at, bytes, n);
}

/* Nodes that refer on, some to other regions; some are opaque. */
static void heap_make(void)
{
	for (u64 o = 0; o < 4 * REGION / 16; o++) {
		const u64 next = o % 64 == 63 ? o * 16 + REGION : o * 16 + 16;

		fresh[2 * o] = htole64(o % 128 == 5 ? 5 : 1);
		fresh[2 * o + 1] = htole64(
			o % 128 == 127 ? 0 : ADDRESS + next % (4 * REGION));
	}
}

void slabs_fill(void)
{
	static u32 inputs;

	for (u32 i = 0; i < SLABS; i++) {
		if (written)
			memcpy(slab_memory[i], fresh, slab_bytes[i]);
		else if (!(inputs % LOOK))
			/* if nothing was to write to them, nothing has */
			EXPECT(!memcmp(slab_memory[i], fresh, slab_bytes[i]));
	}
	written = false;
	inputs++;
}

void slabs_start(void)
{
	for (u32 i = 0; i < SLABS; i++) {
		slab_fd[i] = memfd_create("slab", MFD_CLOEXEC);
		EXPECT(slab_fd[i] >= 0 &&
		     !ftruncate(slab_fd[i], (off_t)slab_bytes[i]));
		slab_memory[i] = __real_mmap(NULL, slab_bytes[i],
					     PROT_READ | PROT_WRITE, MAP_SHARED,
					     slab_fd[i], 0);
		EXPECT(slab_memory[i] != MAP_FAILED);
	}
	heap_make();
	written = true;
}
