/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * trace.h - a recorded page trace in memory
 *
 * Page numbers are renamed to a dense space that keeps what lies together
 * together: every 2 MiB piece of address space that is touched gets the next
 * 512 numbers, in address order. Blocks of up to 64 KiB mean the same there
 * as in the program's own addresses.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdint.h>

#define TRACE_WRITE  0x80000000u
#define TRACE_PAGE(r) ((r) & ~TRACE_WRITE)

/**
 * struct trace - what a program touched, in order
 * @record: page number, and TRACE_WRITE
 * @nr_records: how many
 * @nr_pages: size of the page space, some of it never touched
 * @footprint: pages touched
 */
struct trace {
	uint32_t *record;
	uint32_t nr_records;
	uint32_t nr_pages;
	uint32_t footprint;
};

/* Exits with one line when the file is no trace. */
struct trace trace_load(const char *path);

#endif /* BENCH_TRACE_H */
