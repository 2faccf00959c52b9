/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * json_memory.h - memory of Jansson's, of which nothing may be left
 *
 * Trees that the program under test builds are in memory that is used again when all
 * of it was freed; ASan watches it. Trees that the fuzzer reads are in other memory,
 * which is given back all at once.
 *
 * A program that links this wraps json_dumps().
 */
#ifndef FUZZ_JSON_MEMORY_H
#define FUZZ_JSON_MEMORY_H

#include <stdbool.h>

/* Once, before Jansson is used. */
void json_memory_start(void);
/* The fuzzer reads from here on; and the program is back. */
void json_memory_read(void);
void json_memory_back(void);
/* Was all of the program's freed? */
bool json_memory_is_free(void);

#endif /* FUZZ_JSON_MEMORY_H */
