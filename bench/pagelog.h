/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pagelog.h - how pages that are touched are written down; trace.h reads it
 *
 * Per record one LEB128 number,
 *   zigzag(page - previous page) << 1 | write
 * A page that is among the last RECENT records is left out: this changes nothing
 * for a replacement policy with room for many times RECENT pages. The list of recent
 * records is emptied every RECENT records, so that a page used all the time shows up
 * again and again.
 *
 * For a Valgrind tool too, so nothing of a C library is in it. For one thread.
 */
#ifndef BENCH_PAGELOG_H
#define BENCH_PAGELOG_H

#define PAGELOG_RECENT 1024
#define PAGELOG_SLOTS \
	(4 * PAGELOG_RECENT) /* two of one slot push each other out */
#define PAGELOG_BUFFER (1 << 20)

/**
 * struct pagelog - what was recorded lately, and what is to be written
 * @recent: by page, page << 1 | written; 0 for nothing
 * @last: the page of the last record
 * @records: how many there are; at @records_max it ends
 * @used: bytes in @buffer
 */
struct pagelog {
	unsigned long recent[PAGELOG_SLOTS];
	unsigned long last;
	long long records, records_max;
	unsigned int used;
	unsigned char buffer[PAGELOG_BUFFER];
};

/* Of the program that records: write the @used bytes of @buffer somewhere. */
static void pagelog_write(struct pagelog *log);

/* Of the program that records: there are @records_max, and all are written. */
static void pagelog_full(struct pagelog *log);

static void pagelog_flush(struct pagelog *log)
{
	pagelog_write(log);
	log->used = 0;
}

static void pagelog_record(struct pagelog *log, unsigned long page, int write)
{
	long delta = (long)(page - log->last);
	unsigned long long v = ((unsigned long long)delta << 1 ^
				(unsigned long long)(delta >> 63))
				       << 1 |
			       (unsigned long long)!!write;
	unsigned int i;

	if (log->records >= log->records_max)
		return;
	if (log->used > PAGELOG_BUFFER - 16)
		pagelog_flush(log);
	do {
		log->buffer[log->used++] =
			(unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	log->last = page;
	if (++log->records % PAGELOG_RECENT == 0)
		for (i = 0; i < PAGELOG_SLOTS; i++)
			log->recent[i] = 0;
	if (log->records == log->records_max) {
		pagelog_flush(log);
		pagelog_full(log);
	}
}

static inline void pagelog_put(struct pagelog *log, unsigned long page,
			       int write)
{
	unsigned long *slot = &log->recent[page % PAGELOG_SLOTS];

	if (*slot >> 1 == page && (!write || *slot & 1))
		return;
	*slot = page << 1 | (unsigned long)!!write;
	pagelog_record(log, page, write);
}

#endif /* BENCH_PAGELOG_H */
