/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorMerge.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "utilities/population_count.hpp"

// Each mark that is there was a root, and donors have it too.
static bool has_roots(const G1CMBitMap* bitmap, HeapWord* bottom, size_t units, const uint64_t* theirs) {
  for (HeapWord* next = bottom; (next = bitmap->get_next_marked_addr(next, bottom + units)) < bottom + units; next++) {
    const size_t unit = pointer_delta(next, bottom);
    if ((theirs[unit / BitsPerWord] >> unit % BitsPerWord & 1) == 0) {
      return false;
    }
  }
  return true;
}

bool G1DonorMerge::region(G1CMBitMap* bitmap, const struct virtio_gc_region& r, const uint64_t* theirs,
                          const struct virtio_gc_live* live, size_t* words, size_t* objects) {
  G1CollectedHeap* const heap = G1CollectedHeap::heap();
  HeapWord* const bottom = heap->bottom_addr_for_region(r.region);
  const size_t units = r.top / HeapWordSize - pointer_delta(bottom, heap->reserved().start());
  const size_t count = (units + BitsPerWord - 1) / BitsPerWord;
  const bool whole = (r.flags & VIRTIO_GC_REGION_WHOLE) != 0;
  const size_t header = (size_t)oopDesc::header_size();
  size_t live_words = live->bytes / HeapWordSize;
  size_t met = 0;
  uint64_t before = 0;

  for (size_t i = 0; i < count; i++) {
    // An object begins where another's header is.
    if (header > 1 && (theirs[i] & (theirs[i] << 1 | before >> (BitsPerWord - 1))) != 0) {
      return false;
    }
    before = theirs[i];
    met += population_count(theirs[i]);
  }
  if (live->status != VIRTIO_GC_OK || live->objects != met || live->bytes > units * HeapWordSize ||
      (!whole && live_words < met * header) ||
      (met == 0 && live->bytes != 0) ||
      (units % BitsPerWord != 0 && theirs[count - 1] >> units % BitsPerWord != 0) ||
      (whole && met != (theirs[0] & 1)) ||
      !has_roots(bitmap, bottom, units, theirs)) {
    return false;
  }
  if (whole && met != 0) {
    auto add_used = [&] (G1HeapRegion* region) { live_words += region->used() / HeapWordSize; };
    heap->humongous_obj_regions_iterate(heap->region_at(r.region), add_used);
  }
  bitmap->merge(bottom, theirs, count);
  *words = live_words;
  *objects = met;
  return true;
}
