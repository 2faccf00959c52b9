/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORMERGE_HPP
#define SHARE_GC_G1_G1DONORMERGE_HPP

#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allStatic.hpp"
#include "utilities/globalDefinitions.hpp"

class G1CMBitMap;

// What donors have found alive in a region becomes G1's marks, if it can be true.
class G1DonorMerge : AllStatic {
public:
  // The bitmap, and what donors have counted, of a region that they have traced.
  // words: what is live, of a humongous object all of its regions
  // False, and nothing is changed: donors say what can't be.
  static bool region(G1CMBitMap* bitmap, const struct virtio_gc_region& r, const uint64_t* theirs,
                     const struct virtio_gc_live* live, size_t* words, size_t* objects);
};

#endif // SHARE_GC_G1_G1DONORMERGE_HPP
