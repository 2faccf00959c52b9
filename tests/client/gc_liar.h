/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_liar.h - what gc_liar.c and who starts it agree on */
#ifndef TEST_GC_LIAR_H
#define TEST_GC_LIAR_H

#define GC_LIES	5u

#endif /* TEST_GC_LIAR_H */
