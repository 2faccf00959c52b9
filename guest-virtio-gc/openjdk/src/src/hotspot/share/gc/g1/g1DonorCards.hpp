/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORCARDS_HPP
#define SHARE_GC_G1_G1DONORCARDS_HPP

#include "gc/g1/g1DonorLate.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allocation.hpp"
#include "utilities/bitMap.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/ostream.hpp"

class DonorCommand;
class G1CollectedHeap;
class G1ConcurrentMark;
class G1HeapRegion;

// -XX:+DonorRebuild: after a concurrent cycle that donors have marked, they find the
// cards of old regions with references into the regions whose remembered sets are
// rebuilt, where the old regions lie.
//
//   sources   regions below their tops at rebuild start (TARS)
//   targets   regions whose remembered sets are being updated
//   ranges    the elements of humongous arrays of references
//   late      objects that G1 has marked since donors were asked last: donors do not
//             know that they live, so they are scanned here
//
// What the program stores since Remark is refinement's.  A source that
// has come to another donor meanwhile is left to G1; when anything else fails,
// all are: what donors have said until then is right, and is not needed.
//
// Runs in the main marker thread, and is in the suspendible thread set whenever
// it looks at the heap.
class G1DonorCards : public StackObj {
  // Sources that have moved, and are left out one by one
  static const uint MovedMax = 64;
  // Regions that are written to donors with one command
  static const uint CleanMax = 64;

  static uint32_t _epoch;
  static G1DonorLate _late;

  G1CollectedHeap* const _heap;
  G1ConcurrentMark* const _cm;
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> _regions;
  GrowableArrayCHeap<struct virtio_gc_refs, mtGC> _ranges;
  CHeapBitMap _done;
  CHeapBitMap _moved;
  stringStream _failure;
  uint64_t _cards;
  uint _commands;

  bool fail(const char* why, uint64_t what);
  bool run(DonorCommand* command);
  bool is_source(uint region) const;
  bool enter();
  bool types_add();
  bool regions_take();
  bool clean();
  bool take(DonorCommand* command);
  bool take_card(const struct virtio_gc_card& card);
  void scan_card(G1HeapRegion* from, HeapWord* start);
  bool ask(uint16_t flags, const void* entries, uint count, bool* left, uint* moved);
  bool search(uint* moved);
  bool scan_late();
  bool rebuild();

public:
  G1DonorCards(G1ConcurrentMark* cm);

  // Donors have marked, in a trace of this epoch: what G1 marks from now on is late.
  static void note_marked(uint32_t epoch);
  // They have not, or their marks are of no use any more.
  static void forget();

  static void marked_late(oop obj) { _late.add(obj); }

  // Have donors rebuild what they can.
  void run();

  // This region's references are in remembered sets.
  bool is_done(const G1HeapRegion* region) const;
};

#endif // SHARE_GC_G1_G1DONORCARDS_HPP
