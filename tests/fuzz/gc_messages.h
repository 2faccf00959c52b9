/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_messages.h - messages to a GC worker, of its host and of other workers */
#ifndef FUZZ_GC_MESSAGES_H
#define FUZZ_GC_MESSAGES_H

#include "input.h"

#define SPACES 3u /* that are used, and one that never is there */

/* kinds of gc_message() */
#define GC_MESSAGES 27u

/* A message of kind @what, which the worker handles before this returns. */
void gc_message(struct in *in, u32 what);
/* The worker has ended: a descriptor that it was handling is closed. */
void gc_messages_end(void);

/* Small most of the time: then what it names is there. */
u64 value(struct in *in, u32 usual);

#endif /* FUZZ_GC_MESSAGES_H */
