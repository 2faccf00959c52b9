/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorKeep.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "memory/allocation.hpp"
#include "nmt/memTag.hpp"
#include "runtime/os.hpp"

MarkBitMap* G1DonorKeep::_marks = nullptr;
BitMap::bm_word_t* G1DonorKeep::_words = nullptr;
HeapWord* G1DonorKeep::_start = nullptr;

// Only what is used of it takes memory.
void G1DonorKeep::initialize(MemRegion heap) {
  const size_t bytes = align_up(MarkBitMap::compute_size(heap.byte_size()), os::vm_page_size());
  char* const words = os::reserve_memory(bytes, mtGC);

  if (words == nullptr || !os::commit_memory(words, bytes, false)) {
    vm_exit_during_initialization("No memory for the marks that DonorRebuild keeps");
  }
  // Not a static one: how objects are aligned is known only now.
  _marks = ::new (NEW_C_HEAP_OBJ(MarkBitMap, mtGC)) MarkBitMap();
  _marks->initialize(heap, MemRegion((HeapWord*)words, bytes / HeapWordSize));
  _start = heap.start();
  _words = (BitMap::bm_word_t*)words;
}

void G1DonorKeep::keep(G1HeapRegion* region, HeapWord* parsable_bottom) {
  const G1CMBitMap* bitmap = G1CollectedHeap::heap()->concurrent_mark()->mark_bitmap();

  // Behind the parsable bottom nothing is marked.
  for (HeapWord* at = region->bottom(); at < parsable_bottom; at += BitsPerWord) {
    _words[pointer_delta(at, _start) / BitsPerWord] = bitmap->word(at);
  }
  region->note_marks_are_kept(parsable_bottom);
}
