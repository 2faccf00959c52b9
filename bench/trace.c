// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * trace.c - read what pagetrace wrote; see trace.h
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "trace.h"

#define SPAN_SHIFT 9	/* a span: 2 MiB of pages */

static int u64_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t span_find(const uint64_t *span, uint32_t n, uint64_t key)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (span[mid] < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct trace trace_load(const char *path)
{
	struct trace t = { 0 };
	struct stat st;
	uint64_t page = 0, last_span = UINT64_MAX, *at, *span;
	uint32_t nr_spans = 0, spans_max = 1u << 16, i = 0, index = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) || !st.st_size)
		die("trace: %s: %s", path, errno ? strerror(errno) : "empty");
	const uint8_t *in =
		mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	const uint8_t *end = in + st.st_size;
	if (in == MAP_FAILED)
		die("trace: %s: %s", path, strerror(errno));
	close(fd);

	for (const uint8_t *p = in; p < end; p++)
		t.nr_records += !(*p & 0x80);
	at = malloc(t.nr_records * sizeof(*at));
	t.record = malloc(t.nr_records * sizeof(*t.record));
	span = malloc(spans_max * sizeof(*span));
	if (!at || !t.record || !span)
		die("trace: no memory");
	for (const uint8_t *p = in; p < end && i < t.nr_records;) {
		uint64_t v = 0;
		unsigned int shift = 0;

		do {
			if (p >= end || shift > 63)
				die("trace: %s is damaged: delete it", path);
			v |= (uint64_t)(*p & 0x7f) << shift;
			shift += 7;
		} while (*p++ & 0x80);
		page += (v >> 2) ^ -((v >> 1) & 1);
		at[i] = page;
		t.record[i++] = v & 1 ? TRACE_WRITE : 0;
		if (page >> SPAN_SHIFT == last_span)
			continue;
		last_span = page >> SPAN_SHIFT;
		uint32_t c = span_find(span, nr_spans, last_span);
		if (c < nr_spans && span[c] == last_span)
			continue;
		if (nr_spans == spans_max)
			die("trace: %s touches too much address space", path);
		span[nr_spans++] = last_span;
		qsort(span, nr_spans, sizeof(*span), u64_compare);
	}
	t.nr_pages = nr_spans << SPAN_SHIFT;
	uint8_t *seen = calloc(t.nr_pages, 1);
	if (!seen)
		die("trace: no memory");
	last_span = UINT64_MAX;
	for (i = 0; i < t.nr_records; i++) {
		if (at[i] >> SPAN_SHIFT != last_span) {
			last_span = at[i] >> SPAN_SHIFT;
			index = span_find(span, nr_spans, last_span);
		}
		uint32_t n = index << SPAN_SHIFT |
			     (uint32_t)(at[i] & ((1u << SPAN_SHIFT) - 1));
		t.record[i] |= n;
		t.footprint += !seen[n];
		seen[n] = 1;
	}
	munmap((void *)in, (size_t)st.st_size);
	free(seen);
	free(span);
	free(at);
	return t;
}
