/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORMARK_HPP
#define SHARE_GC_G1_G1DONORMARK_HPP

#include "gc/g1/g1DonorReferences.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "utilities/growableArray.hpp"

class G1CMBitMap;
class G1CollectedHeap;
class G1ConcurrentMark;
class G1HeapRegion;

// -XX:+DonorMark: in a concurrent cycle donors trace what lies below the tops at
// mark start (TAMS).
//
//   roots    what is marked already: by the concurrent start pause, and by the
//            scan of root regions; then the entries of SATB buffers, each of
//            which is marked before it is sent
//   merge    the donors' bitmap and sizes of each region become G1's
//   weak     references whose referents donors have not met are discovered
//
// Then G1's marking goes on as always, and finds only what SATB queues got
// meanwhile.  The trace may begin any time after the pause: what was overwritten
// before is in SATB buffers.
//
// Marks are grey: each object that is marked in a region that is not merged yet
// has to be scanned.  So when donors fail, G1 marks all by itself: its finger is
// at the heap's start, and finds these marks.  A region that is merged is black,
// and its live words are the donors'; the live words of the others are counted by
// G1, at once or in recount().
//
// Runs in the main marker thread, and is in the suspendible thread set whenever
// it looks at the heap.
class G1DonorMark : public DonorTraceClient, public StackObj {
  // How often threads' SATB queues are flushed before the rest is left to Remark.
  static const uint FlushesMax = 2;
  // Completed SATB buffers that are not left until donors are quiet
  static const uint BuffersMax = 64;

  static bool _impossible_said;
  // Cycles in a row in which donors have failed, and those to come in which they
  // are not asked.
  static uint _failures;
  static uint _cycles_to_skip;
  static uint _heap_errors;

  G1CollectedHeap* const _heap;
  G1ConcurrentMark* const _cm;
  G1CMBitMap* const _bitmap;
  G1DonorReferences _references;
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> _regions;
  // Of _regions: those before this one have given their marks as roots.
  int _next;
  int _merged;
  uint _flushes;
  uint64_t _satb_marks;
  uint64_t _live_bytes;
  uint64_t _live_objects;

  G1DonorMark(G1ConcurrentMark* cm);
  bool heap_stay();
  bool has_tams_of(const struct virtio_gc_region& r) const;
  bool regions_take();
  void marks_add(const struct virtio_gc_region& r, DonorTrace* trace);
  bool satb_add(DonorTrace* trace);
  bool merge_region(const struct virtio_gc_region& r, const uint64_t* theirs, const struct virtio_gc_live* live);
  bool merge(DonorTrace* trace);
  bool weak_are_right(DonorTrace* trace);
  bool discover(DonorTrace* trace);
  bool recount();
  void failed(DonorTrace* trace);
  void mark();

public:
  bool heap_enter() override;
  bool heap_yield() override;
  void heap_leave() override;
  bool is_given_up() override;
  bool roots_add(DonorTrace* trace) override;
  bool roots_press() override;
  bool roots_again() override;
  Opaque opaque(uint64_t address) override;
  bool is_kept(const struct virtio_gc_weak& weak) override;

  // To be called when root regions are scanned, before G1 marks.
  static void before_marking(G1ConcurrentMark* cm);
};

#endif // SHARE_GC_G1_G1DONORMARK_HPP
