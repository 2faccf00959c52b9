/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_children.h - a donor's GC workers, as an input says */
#ifndef FUZZ_GC_CHILDREN_H
#define FUZZ_GC_CHILDREN_H

#include "input.h"

/* Once, before the donor starts one. */
void gc_children_begin(void);

/* A worker says something, reads or ends. */
void gc_child_step(struct in *in);

#endif /* FUZZ_GC_CHILDREN_H */
