/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * classic.h - the policies LRU-3 is measured by, at a fixed 4 KiB
 *
 * They see every access, which no pager does: exact LRU order, exact reference
 * bits. LRU-3 sees faults only. A miss is a page that was there before and has
 * to come back; the first touch of a page is nobody's miss.
 */
#ifndef BENCH_CLASSIC_H
#define BENCH_CLASSIC_H

#include "trace.h"

/* Misses on @t with room for @frames pages. */
uint64_t lru_misses(const struct trace *t, uint32_t frames);
uint64_t clock_misses(const struct trace *t, uint32_t frames);
uint64_t s3fifo_misses(const struct trace *t, uint32_t frames);
uint64_t arc_misses(const struct trace *t, uint32_t frames);
/* Belady's optimum: evicts what is used again last. The limit. */
uint64_t opt_misses(const struct trace *t, uint32_t frames);

#endif /* BENCH_CLASSIC_H */
