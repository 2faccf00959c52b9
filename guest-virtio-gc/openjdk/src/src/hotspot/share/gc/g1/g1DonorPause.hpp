/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORPAUSE_HPP
#define SHARE_GC_G1_G1DONORPAUSE_HPP

#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "utilities/growableArray.hpp"

class G1CollectedHeap;
class G1HeapRegion;

// A trace of the whole heap in a full collection, while nothing else changes it.
class G1DonorPause : public DonorTraceClient {
protected:
  G1CollectedHeap* const _heap;
  // Those that are traced, in the order of the heap
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> _regions;

  G1DonorPause();

  // Whether donors may be asked for the class of this humongous object.
  virtual bool is_told(const G1HeapRegion* humongous) const = 0;
  void regions_take();

public:
  // G1's own roots
  void roots_do(OopClosure* oops, CLDClosure* clds, NMethodClosure* nmethods) override;
};

#endif // SHARE_GC_G1_G1DONORPAUSE_HPP
