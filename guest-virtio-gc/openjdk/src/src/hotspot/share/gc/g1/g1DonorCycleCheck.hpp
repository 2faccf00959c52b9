/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORCYCLECHECK_HPP
#define SHARE_GC_G1_G1DONORCYCLECHECK_HPP

#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "oops/oopsHierarchy.hpp"
#include "runtime/mutex.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/resizeableResourceHash.hpp"

class ClassLoaderData;
class G1CMBitMap;
class G1CollectedHeap;
class G1ConcurrentMark;
class G1DonorDifferences;

// -XX:+DonorMark with -XX:+DonorCheck: G1 marks by itself in the same cycle, and
// donors' marks are not used, but compared with its own in the Remark pause.
//
// Both mark what was reachable in the concurrent start pause, so each object that
// donors have marked is one that G1 has marked: what donors are given as a root
// is marked by G1 first.  What G1 has marked and donors have not must be reachable
// from what SATB queues have got since donors were asked last ("late"), or by a
// soft reference that G1 follows and donors do not, as time has gone on.
//
// One lives from the end of a trace to the pause, or, where a full collection ends
// the cycle, to the next cycle.
class G1DonorCycleCheck : public CHeapObj<mtGC> {
  friend class G1DonorLateClosure;

  static G1DonorCycleCheck* volatile _current;

  G1CollectedHeap* const _heap;
  G1ConcurrentMark* const _cm;
  G1CMBitMap* const _bitmap;
  const uint64_t _roots;
  const uint _turns;
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> _regions;
  GrowableArrayCHeap<uint64_t, mtGC> _unkept;
  // Of all regions.  What is explained is added to the marks.
  uint64_t* const _theirs;
  struct virtio_gc_live* const _live;
  // Late objects, in any order; with the lock, as G1's workers find them.
  Mutex _lock;
  GrowableArrayCHeap<uint64_t, mtGC> _late;

  typedef ResizeableResourceHashtable<ClassLoaderData*, bool, AnyObj::C_HEAP, mtGC> Followed;
  Followed _followed;

  G1DonorCycleCheck(G1ConcurrentMark* cm, DonorTrace* trace);
  ~G1DonorCycleCheck();

  bool fetch(DonorTrace* trace);
  bool is_traced(const struct virtio_gc_region& r) const;
  bool mark(oop obj);
  void late_add(oop obj);
  void compare_region(const struct virtio_gc_region& r, G1DonorDifferences* differences, uint64_t* objects);
  uint64_t explain();
  void compare();

public:
  // Take donors' marks of a whole trace of these regions, and end the trace; all that
  // SATB queues get from now on is late.  False: donors do not give them.
  static bool begin(G1ConcurrentMark* cm, const struct virtio_gc_region* regions, int count, DonorTrace* trace);

  // To be called for each entry of an SATB buffer that G1 marks.
  static void satb_entry(oop obj) {
    if (_current != nullptr) {
      _current->late_add(obj);
    }
  }

  // To be called when marking is finished, before references are processed.
  static void end() {
    if (_current != nullptr) {
      _current->compare();
      drop();
    }
  }

  static void drop();
};

#endif // SHARE_GC_G1_G1DONORCYCLECHECK_HPP
