/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_liar.h - shared by gc_liar.c and the tests that start it */
#ifndef TEST_GC_LIAR_H
#define TEST_GC_LIAR_H

#define GC_LIES	5u

#endif /* TEST_GC_LIAR_H */
