/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORFULL_HPP
#define SHARE_GC_G1_G1DONORFULL_HPP

#include "gc/g1/g1DonorLate.hpp"
#include "gc/g1/g1DonorMoves.hpp"
#include "gc/g1/g1DonorPause.hpp"
#include "gc/g1/g1DonorReferences.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "utilities/bitMap.hpp"
#include "utilities/growableArray.hpp"

class G1CMBitMap;
class G1FullCollector;
class G1HeapRegion;

// -XX:+DonorCompact: in a full collection donors trace the heap from the same roots
// as G1, and then move the objects of sparse regions, where they lie.
//
//   mark      before G1's marking: donors' bitmaps and sizes become G1's.  G1's
//             marking then finds its roots marked; what it and the processing of
//             references mark besides is late
//   move      instead of G1's phases 2 to 4.  What donors have not marked, cannot
//             read or may not move stays where it is, with the region that it is in
//   adjust    G1's task adjusts roots, by the moves' tables.  Late and opaque objects
//             are adjusted here; regions are only if donors could not
//   complete  regions that were moved are free, and so are those without live objects
//
// A failure before the moves are checked leaves all to G1, which goes on with the
// marks if they are merged.  A maximal compaction, after which the program may be
// out of memory, is always G1's.
//
// Runs in the VM thread, in the pause.
class G1DonorFull : public G1DonorPause, public CHeapObj<mtGC> {
  static bool _impossible_said;
  static bool _heap_error;
  static G1DonorLate _late;

  G1FullCollector* const _collector;
  G1CMBitMap* const _bitmap;
  G1DonorReferences _references;
  GrowableArrayCHeap<size_t, mtGC> _objects;      // marked, of _regions
  // Objects that donors do not read
  GrowableArrayCHeap<HeapWord*, mtGC> _opaque;
  GrowableArrayCHeap<HeapWord*, mtGC> _arrays;
  CHeapBitMap _fixed;
  G1DonorMoves* _moves;
  uint32_t _epoch;
  uint64_t _live_objects;
  uint64_t _live_bytes;
  bool _is_marked;
  bool _is_updated;

  bool is_object(uint64_t address) const;
  // No class is unloaded yet.
  bool is_told(const G1HeapRegion*) const override { return true; }
  bool merge(DonorTrace* trace);
  void unmerge();
  bool weak_are_right(DonorTrace* trace);
  void discover(DonorTrace* trace);
  void failed(DonorTrace* trace);
  void fix(HeapWord* obj);
  void fixed_take();
  void moves_take();
  bool is_dead(const G1HeapRegion* hr) const;

public:
  G1DonorFull(G1FullCollector* collector);
  ~G1DonorFull();
  NONCOPYABLE(G1DonorFull);

  static bool is_wanted() { return DonorCompact && !DonorCheck; }
  static void marked_late(oop obj) { _late.add(obj); }

  Opaque opaque(uint64_t address) override;
  void opaque_found(oop obj) override;
  bool is_kept(const struct virtio_gc_weak& weak) override;

  void mark();
  // True: donors have moved what there is to move, and adjusting is next.
  bool move();
  void adjust();
  void complete();

  // Not null: objects were moved, or none had to be.
  const G1DonorMoves* moves() const { return _moves; }
  // Donors have updated the references in all regions.
  bool is_updated() const { return _is_updated; }
  // The region has dead objects, and is not scrubbed: its marks are kept.
  bool keeps_marks(const G1HeapRegion* hr) const;
};

#endif // SHARE_GC_G1_G1DONORFULL_HPP
