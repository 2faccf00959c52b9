/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORPREFETCH_HPP
#define SHARE_GC_G1_G1DONORPREFETCH_HPP

#include "gc/g1/g1ServiceThread.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "utilities/bitMap.hpp"
#include "utilities/growableArray.hpp"

class G1CollectedHeap;
class G1CSetCandidateGroup;
class G1HeapRegion;

// -XX:+DonorPrefetch, with DonorRebuild: what a mixed collection reads is brought in
// while the program runs, before the pause.
//
//   pause    at the end of the collection before, the old regions are known that G1
//            takes at the least, and in which order it takes more.  Of these the pages
//            with marked objects are noted, by the marks that are kept; of what their
//            remembered sets name the pages of the cards
//   send     the service thread sends them as HINTs with FETCH, and waits for no page
//
// The device brings in what it has room for, in this order.  What is not there is
// brought in by the pause, as always; so no failure matters.
class G1DonorPrefetch : public G1ServiceTask {
  // More ranges than the device notes
  static const int ExtentsMax = 8192;
  // Of the budget: what hints may bring in at once
  static const uint BudgetShare = 4;

  static G1DonorPrefetch* _instance;

  G1CollectedHeap* const _heap;
  const size_t _page_words;
  CHeapBitMap _pages;             // of the heap, which are not in _extents yet
  CHeapBitMap _noted;             // those that are
  GrowableArrayCHeap<struct virtio_gc_extent, mtGC> _extents;
  size_t _count;                  // of pages in both
  bool _is_queued;

  G1DonorPrefetch();
  void add_page(size_t page);
  void add_region(const G1HeapRegion* region);
  void add_group(G1CSetCandidateGroup* group);
  void note_pages();
  void note_next_collection();
  void send(GrowableArrayView<struct virtio_gc_extent>* extents);

public:
  // A card of a remembered set was found.
  void add_card(size_t card);

  // To be called at the end of each young collection.
  static void after_pause();

  void execute() override;
};

#endif // SHARE_GC_G1_G1DONORPREFETCH_HPP
