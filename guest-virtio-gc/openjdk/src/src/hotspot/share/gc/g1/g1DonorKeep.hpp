/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORKEEP_HPP
#define SHARE_GC_G1_G1DONORKEEP_HPP

#include "gc/shared/donor/donor_globals.hpp"
#include "gc/shared/markBitMap.hpp"
#include "memory/allStatic.hpp"
#include "memory/memRegion.hpp"

class G1HeapRegion;

// -XX:+DonorRebuild: what lives in an old region is looked up in marks that are kept,
// instead of overwriting what is dead.
//
// G1 needs to walk the objects of old regions, in which classes of dead objects
// may have been unloaded.  So after each marking it scrubs them: it reads every
// object, and writes fillers over dead ones, which brings all of the old generation
// in, and makes it dirty.  Until that is done it walks them by the mark bitmap.
// Here that is never done: a region's marks are copied, and it is walked by the
// copy, until they are replaced by those of the next marking that looks at the
// region, or the region is collected.
//
// Changes are noticed at safepoints only: the marking ends in Remark, and the
// bitmap that was copied is not cleared before Cleanup.
class G1DonorKeep : AllStatic {
  static MarkBitMap* _marks;
  static BitMap::bm_word_t* _words;
  static HeapWord* _start;

public:
  static void initialize(MemRegion heap);

  static bool in_use() { return _words != nullptr; }

  static const MarkBitMap* marks() { return _marks; }

  // Copy the region's marks below this address, which becomes its parsable bottom.
  static void keep(G1HeapRegion* region, HeapWord* parsable_bottom);
};

#endif // SHARE_GC_G1_G1DONORKEEP_HPP
