/* SPDX-License-Identifier: GPL-2.0-or-later */
/* data_fiber.h - a donor's data worker, on a stack of its own */
#ifndef FUZZ_DATA_FIBER_H
#define FUZZ_DATA_FIBER_H

#include "../../kvm-dcm/lib/dcm_context.h"

/* Until it would sleep, or is to stop. */
void data_fiber_run(void);

/*
 * It stops at the @stop_in'th place from now, 0: at none; and @wait turns pass
 * before it goes on.
 */
void data_fiber_set(u32 stop_in, u32 wait);

#endif /* FUZZ_DATA_FIBER_H */
