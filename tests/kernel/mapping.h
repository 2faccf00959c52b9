/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mapping.h - what the checks of a mapping share
 *
 * Each has a file of its own, with a pattern in it that has to be right at its
 * end.
 */
#ifndef DCMFS_MAPPING_H
#define DCMFS_MAPPING_H

#include "dcmfs_test.h"

#define SIZE (8u << 20)
#define PAGES (SIZE / PAGE)

/* Of the check that runs. */
extern const char *dir;
extern struct control control;
extern int fd;

uint64_t *word_of(char *m, uint64_t page);
/* A new file with its number in every page; its slabs are there. */
char *fresh(void);
void holds(char *m, uint64_t first, uint64_t end);
/* As it was; it leaves and comes back; and nothing keeps it. */
void done(char *m);

/* mapping_file.c */
void synced(void);
void truncated(void);
void punched(void);
void named(void);
void last_mapping(void);

#endif /* DCMFS_MAPPING_H */
