/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORREFERENCES_HPP
#define SHARE_GC_G1_G1DONORREFERENCES_HPP

#include "gc/shared/referencePolicy.hpp"
#include "memory/allocation.hpp"
#include "oops/oopsHierarchy.hpp"

class ReferenceProcessor;

// Of the Reference objects that donors have met, but whose referents they have not:
// which of them a collector follows, and which it discovers.
class G1DonorReferences : public StackObj {
  LRUMaxHeapPolicy _least_recently_used;
  const bool _clears_soft;
  const jlong _soft_clock;

public:
  G1DonorReferences(bool clears_soft);

  // The collector follows this reference, which has this referent.
  bool follows(oop reference, uint64_t referent);

  // As a marking that meets the reference does: it is discovered, or the result is
  // what has to be marked, or null.
  static oop discover(ReferenceProcessor* processor, oop reference);
};

#endif // SHARE_GC_G1_G1DONORREFERENCES_HPP
