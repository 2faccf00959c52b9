/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONOR_GLOBALS_HPP
#define SHARE_GC_SHARED_DONOR_DONOR_GLOBALS_HPP

#include "runtime/globals_shared.hpp"

#define DONOR_FLAGS(develop,                                                \
                    develop_pd,                                             \
                    product,                                                \
                    product_pd,                                             \
                    range,                                                  \
                    constraint)                                             \
                                                                            \
  product(uint, DonorYoungPercent, 50,                                      \
          "The most that the young generation takes of the memory in which "\
          "the host keeps parts of the heap; 0: as much as without donors") \
          range(0, 100)                                                     \
                                                                            \
  product(bool, DonorMark, false,                                           \
          "Let donors trace the old generation in concurrent cycles of "    \
          "G1, which marks itself where they fail")                         \
                                                                            \
  product(bool, DonorRebuild, false,                                        \
          "Keep the marks of old regions of G1, instead of reading them to "\
          "overwrite dead objects; with DonorMark let donors find what "    \
          "remembered sets are rebuilt from")                               \
                                                                            \
  product(bool, DonorPrefetch, true,                                        \
          "With DonorRebuild, have memory that the next mixed collection "  \
          "of G1 reads brought in before its pause")                        \
                                                                            \
  product(bool, DonorCompact, false,                                        \
          "Let donors mark and compact the heap in full collections of G1, "\
          "which does so itself where they fail; turns DonorRebuild on")    \
                                                                            \
  product(bool, DonorCheck, false, DIAGNOSTIC,                              \
          "In each full collection of G1 let donors trace the heap too, "   \
          "and compare their marks with G1's; with DonorMark do so in "     \
          "concurrent cycles too, in which G1 then marks by itself")        \
                                                                            \
  product(bool, DonorCheckFatal, false, DIAGNOSTIC,                         \
          "End the VM when DonorCheck finds a difference")                  \
                                                                            \
  product(ccstr, DonorCheckHide, nullptr, DIAGNOSTIC,                       \
          "Do not tell donors of the references in objects of this class "  \
          "(as in java/util/HashMap$Node), so that DonorCheck has a "       \
          "difference to find")                                             \

// end of DONOR_FLAGS

DECLARE_FLAGS(DONOR_FLAGS)

#endif // SHARE_GC_SHARED_DONOR_DONOR_GLOBALS_HPP
