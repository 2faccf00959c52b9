/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fake_disk.h - a disk that does what the input says */
#ifndef FUZZ_FAKE_DISK_H
#define FUZZ_FAKE_DISK_H

#include "../../kvm-dcm/lib/dcm_context.h"

/* Some of what is under way ends. */
void disk_turn(void);

/* How: turns until anything ends (bits 0, 1), last first (2), results (3 to 6), a
 * ring that takes nothing (7). 0: all ends at once, and well. */
void disk_set(u32 how);

#endif /* FUZZ_FAKE_DISK_H */
