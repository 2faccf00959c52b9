// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * json_memory.c - memory of Jansson's, of which nothing may be left; see
 * json_memory.h
 *
 * Before each block of a tree lies its size, which nobody else may touch, nor
 * anything that was freed or never given out.
 */
#include <jansson.h>
#include <sanitizer/asan_interface.h>
#include <string.h>

#include "input.h"
#include "json_memory.h"

#define BEFORE 16u
#define TREES (8u << 20)
#define READER (4u << 20)

char *__real_json_dumps(const json_t *o, size_t flags);
char *__wrap_json_dumps(const json_t *o, size_t flags);

/* ---- trees ---- */

static u8 trees[TREES] __attribute__((aligned(16)));
static size_t trees_used;
static u32 trees_blocks;

__attribute__((no_sanitize("coverage", "address"))) static size_t *
size_before(void *p)
{
	return (size_t *)((u8 *)p - BEFORE);
}

__attribute__((no_sanitize("coverage", "address"))) static void *
tree_malloc(size_t n)
{
	u8 *p = trees + trees_used + BEFORE;

	EXPECT(n && n <= TREES / 2);
	trees_used += BEFORE + ((n + 15) & ~15ul);
	EXPECT(trees_used <= TREES);
	trees_blocks++;
	*size_before(p) = n;
	ASAN_UNPOISON_MEMORY_REGION(p, n);
	return p;
}

__attribute__((no_sanitize("coverage", "address"))) static void
tree_free(void *p)
{
	if (!p)
		return;
	EXPECT(trees_blocks && *size_before(p));
	ASAN_POISON_MEMORY_REGION(p, *size_before(p));
	*size_before(p) = 0;
	if (!--trees_blocks)
		trees_used = 0;
}

/* The caller frees it with free(). */
char *__wrap_json_dumps(const json_t *o, size_t flags)
{
	char *text = __real_json_dumps(o, flags), *copy = NULL;

	if (text)
		copy = strdup(text);
	tree_free(text);
	return copy;
}

/* ---- the reader ---- */

static u8 reader[READER] __attribute__((aligned(16)));
static size_t reader_used;

static void *reader_malloc(size_t n)
{
	u8 *p = reader + reader_used;

	n = (n + 15) & ~15ul;
	EXPECT(n <= READER - reader_used);
	reader_used += n;
	return p;
}

static void reader_free(void *p)
{
	(void)p;
}

UNTRACED void json_memory_start(void)
{
	ASAN_POISON_MEMORY_REGION(trees, sizeof(trees));
	json_memory_back();
}

UNTRACED void json_memory_read(void)
{
	json_set_alloc_funcs(reader_malloc, reader_free);
	reader_used = 0;
}

UNTRACED void json_memory_back(void)
{
	json_set_alloc_funcs(tree_malloc, tree_free);
}

UNTRACED bool json_memory_is_free(void)
{
	return !trees_blocks;
}
