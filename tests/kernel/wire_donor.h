/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * wire_donor.h - a donor's data side, in this process
 */
#ifndef WIRE_DONOR_H
#define WIRE_DONOR_H

#include <stdbool.h>
#include <stdint.h>

/* What the donor sends instead of the next answer, once. */
enum wire_lie {
	LIE_NONE,
	LIE_TAG,
	LIE_TYPE,
	LIE_LENGTH,
	LIE_HUGE,
	LIE_MAGIC,
	LIE_HANGUP,
	LIE_REFUSE, /* no lie, but no data either */
};

void wire_donor_start(uint64_t slab_bytes);
int wire_donor_connect(void);
uint64_t wire_donor_slab(void); /* its name */
void wire_donor_drop(uint64_t slab);
void wire_donor_lie(enum wire_lie lie);
bool wire_donor_lied(void);
void wire_donor_sleep(bool asleep);

#endif /* WIRE_DONOR_H */
