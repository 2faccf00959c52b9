/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copies.h - a file whose extents have several slabs: copies_world.c
 */
#ifndef COPIES_H
#define COPIES_H

#include "dcmfs_test.h"

#define COPIES_SIZE (16u << 20)
#define COPIES_PAGES (COPIES_SIZE / PAGE)
#define COPIES_EXTENTS 64u

/**
 * struct copies_world - the file
 * @c: its control plane, with the first slab of each extent
 * @mem: its memory
 * @copy: memfd of each extent's slab that was added
 * @id_of: that slab's id
 * @next_id: of the next slab that is added
 */
struct copies_world {
	struct control c;
	char *mem;
	int copy[COPIES_EXTENTS];
	uint64_t id_of[COPIES_EXTENTS];
	uint64_t next_id;
};

extern struct copies_world world;

/* Make it in a directory, and serve it by one slab an extent, in order. */
void copies_open(const char *dir);

/* Write each page's word of this turn; check that all have it, and none is lost. */
uint64_t copies_word(uint64_t page, uint64_t turn);
void copies_write(uint64_t turn);
void copies_check(uint64_t turn);

/* Add a slab to an extent. Fill it: the pages that were copied. */
void copies_add(uint32_t extent);
uint64_t copies_fill(uint32_t extent);

/* The kernel's list of an extent's slabs, by id. Pages that the first and the copy share. */
unsigned int copies_slabs(uint32_t extent, struct dcmfs_slab *list);
uint64_t copies_alike(uint32_t extent);

/* The first slab of one extent, or of each, is lost. */
void copies_lose_one(uint32_t extent);
void copies_lose(void);

#endif /* COPIES_H */
