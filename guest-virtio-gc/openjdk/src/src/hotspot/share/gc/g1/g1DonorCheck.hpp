/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORCHECK_HPP
#define SHARE_GC_G1_G1DONORCHECK_HPP

#include "gc/g1/g1DonorDifferences.hpp"
#include "gc/g1/g1DonorPause.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "utilities/growableArray.hpp"

class G1CMBitMap;
class G1HeapRegion;

// -XX:+DonorCheck: when a full collection has marked what is alive, donors trace
// the heap from the same roots, and find the same objects, or there is a bug.
//
// Marking is over then, references are processed, and classes that nothing
// refers to are unloaded; no object has moved, and no header is changed.  Each
// difference is logged with the object's class and address; what donors cannot
// do is one line of the log, and the collection goes on.
class G1DonorCheck : public G1DonorPause, public StackObj {
  static bool _impossible_said;

  G1CMBitMap* const _bitmap;
  uint64_t _marks;
  uint64_t _live_bytes;
  G1DonorDifferences _differences;

  G1DonorCheck();
  bool is_told(const G1HeapRegion* humongous) const override;
  void compare_region(G1HeapRegion* region, const uint64_t* theirs, const struct virtio_gc_live* live);
  bool compare(DonorTrace* trace);
  void check();

public:
  Opaque opaque(uint64_t address) override;
  bool is_kept(const struct virtio_gc_weak& weak) override;

  static void after_full_marking() {
    if (DonorCheck) {
      G1DonorCheck check;
      check.check();
    }
  }
};

#endif // SHARE_GC_G1_G1DONORCHECK_HPP
