/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fibers.h - threads that take turns, as an input says */
#ifndef FUZZ_FIBERS_H
#define FUZZ_FIBERS_H

#include "../../kvm-dcm/lib/dcm_context.h"

/*
 * All threads but the first one run until they wait, or (@places not 0) until so
 * many calls for mutexes were made: there the one that runs stops.
 */
void fibers_run(u32 places);

/* The caller is the first thread. */
bool fibers_first(void);

/* How many fibers were created and not joined. */
u32 fibers_there(void);

#endif /* FUZZ_FIBERS_H */
