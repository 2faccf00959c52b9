/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * common.h - what the benchmark programs share: clock, placement, random
 * numbers, percentiles, and page contents
 *
 * Every program prints one JSON object on standard output; bench/run reads it.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE 4096u

#define die(...)                                  \
	do {                                      \
		fprintf(stderr, __VA_ARGS__);     \
		fputc('\n', stderr);              \
		exit(1);                          \
	} while (0)

static inline uint64_t bench_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t bench_now_ns(void)
{
	return bench_clock_ns(CLOCK_MONOTONIC);
}

/* xorshift64*: good enough to defeat every prefetcher, cheap enough to ignore */
static inline uint64_t bench_rand(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * 0x2545f4914f6cdd1dull;
}

/* Pin the calling thread, and what it starts later, to one CPU; -1: leave it. */
static inline void bench_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned int)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("cannot pin to CPU %d: give this process a CPU set with it",
		    cpu);
}

static inline int bench_u32_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Print "name":{...} of @n samples in ns; sorts them. "at" is the 0th to the 100th percentile. */
static inline void bench_percentiles_print(const char *name, uint32_t *v,
					   size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += v[i];
	qsort(v, n, sizeof(*v), bench_u32_compare);
	if (!n)
		printf("\"%s\":{\"count\":0}", name);
	if (!n)
		return;
	printf("\"%s\":{\"count\":%zu,\"mean\":%.1f,\"p50\":%u,\"p90\":%u,\"p99\":%u,\"max\":%u",
	       name, n, (double)sum / (double)n, v[n / 2], v[n * 9 / 10],
	       v[n * 99 / 100], v[n - 1]);
	printf(",\"p999\":%u,\"at\":[", v[n * 999 / 1000]);
	for (size_t i = 0; i <= 100; i++)
		printf("%s%u", i ? "," : "", v[(n - 1) * i / 100]);
	printf("]}");
}

enum bench_content {
	CONTENT_MIXED,	/* compresses about 2:1 a page with LZ4 and LZO */
	CONTENT_RANDOM,	/* does not compress */
};

#define PAGE_MARK  3	/* word that says which page it is: checked at every read */
#define PAGE_WRITE 6	/* word that benchmarks write to */

static inline uint64_t bench_page_mark(uint64_t id)
{
	return (id + 1) * 0xd6e8feb86659fd93ull;
}

/*
 * A page as programs have them: records of a pointer into one heap, a small
 * counter, flags, and half of it bytes that repeat nothing.
 */
static inline void bench_page_fill(void *page, uint64_t id,
				   enum bench_content how)
{
	uint64_t *w = page;
	uint64_t s = id * 0x9e3779b97f4a7c15ull + 0x1234567;

	if (how == CONTENT_RANDOM) {
		for (unsigned int i = 0; i < PAGE / 8; i++)
			w[i] = bench_rand(&s);
		w[PAGE_MARK] = bench_page_mark(id);
		return;
	}
	for (unsigned int i = 0; i < PAGE / 8; i += 8) {
		uint64_t r = bench_rand(&s);

		w[i] = 0x00007f3a00000000ull | (r & 0xfffff0);
		w[i + 1] = i / 8;
		w[i + 2] = bench_rand(&s);
		w[i + 3] = bench_rand(&s);
		w[i + 4] = bench_rand(&s) & 0xffffff;
		w[i + 5] = 0;
		w[i + 6] = 0x0000000100000001ull;
		w[i + 7] = bench_rand(&s);
	}
	w[PAGE_MARK] = bench_page_mark(id);
}

#endif /* BENCH_COMMON_H */
