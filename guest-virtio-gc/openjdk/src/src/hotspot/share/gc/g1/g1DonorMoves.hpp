/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORMOVES_HPP
#define SHARE_GC_G1_G1DONORMOVES_HPP

#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allocation.hpp"
#include "oops/oopsHierarchy.hpp"
#include "utilities/bitMap.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/ostream.hpp"

class DonorCommand;
class G1CMBitMap;
class G1CollectedHeap;

// Regions whose live objects donors move into free regions, in a full collection
// that donors have marked.
//
//   plan     each donor's least filled regions go to its free ones, as many as
//            leave the most regions free; the tables that tell where an object is
//            now take free regions too
//   move     donors copy.  Nothing of the heap has changed, so moves can be forgotten
//   check    each table has the objects that are marked, and no others, at places
//            of their own, side by side: a donor may lie.  Block offsets of the
//            copies follow from it
//   update   donors make references to what was moved refer to the copies
//
// Then moved_to() tells where an object is, for roots, and for all of the heap if
// update() has failed: it may have done a part, and is right as far as it came.
//
// COMPACT (the device's own) would choose by itself, and update before anybody has
// looked at its tables.  That leaves nothing to fall back to.
class G1DonorMoves : public CHeapObj<mtGC> {
  struct Candidate {
    uint donor;
    uint region;
    size_t live_words;
    size_t table_bytes;
    bool was_traced;
  };

  G1CollectedHeap* const _heap;
  G1CMBitMap* const _bitmap;
  const uint _count;
  uint32_t _epoch;
  int* _move_of;                // of regions that were moved: index in _moves, else -1
  HeapWord** _ends;             // of regions that were moved to: the end of objects, else null
  // Of these donors are known when they are asked.
  GrowableArrayCHeap<Candidate, mtGC> _candidates;
  GrowableArrayCHeap<Candidate, mtGC> _free;
  GrowableArrayCHeap<struct virtio_gc_move, mtGC> _moves;
  GrowableArrayCHeap<size_t, mtGC> _move_words;
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> _updates;
  GrowableArrayCHeap<struct virtio_gc_refs, mtGC> _arrays;
  size_t _moved_words;
  uint _targets;
  stringStream _failure;

  bool fail(const char* why, uint64_t what);
  bool run(DonorCommand* command);
  bool donors_ask();
  uint64_t space_offset(uint region) const;
  static int compare(const Candidate& a, const Candidate& b);
  static void donors_set(GrowableArrayView<Candidate>* of, const uint32_t* donors);
  bool make_moves();
  int plan_donor(int from, int to, int free, int free_end, bool make);
  void plan();
  bool release(GrowableArrayView<struct virtio_gc_region>* regions);
  bool move_some(int first, int count);
  bool move();
  bool check_table(int i, BitMap* starts);
  void set_block_offsets(uint region, const BitMap& starts);
  bool check();
  void updates_choose();
  bool update_regions();
  bool update_arrays();

public:
  G1DonorMoves();
  ~G1DonorMoves();
  NONCOPYABLE(G1DonorMoves);

  // What may be moved: so many objects in a region.
  void add_candidate(uint region, size_t live_words, size_t objects);
  // It has no live objects, and is freed unless it gets some.  was_traced: it had
  // some when donors began to trace.
  void add_free(uint region, bool was_traced);
  // What may refer to what moves: a region with its top, candidates too, and the
  // elements of an array.
  void add_update(uint region, HeapWord* top);
  void add_array(HeapWord* first, size_t count);

  // Plan, move, check: false, and all is as before.
  bool make(uint32_t epoch);
  // False: references are not all updated.
  bool update();
  // The regions that were moved are free now.
  void end();

  const char* failure() { return _failure.base(); }
  int count() const { return _moves.length(); }
  uint targets() const { return _targets; }
  size_t moved_words() const { return _moved_words; }

  bool is_from(uint region) const { return _move_of[region] >= 0; }
  // The end of copies in a region, or null
  HeapWord* end_of(uint region) const { return _ends[region]; }
  // Where this object is now
  oop moved_to(oop obj) const;
};

#endif // SHARE_GC_G1_G1DONORMOVES_HPP
