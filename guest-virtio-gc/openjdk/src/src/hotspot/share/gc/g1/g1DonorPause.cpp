/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1DonorPause.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/g1/g1RootProcessor.hpp"

#include <string.h>

G1DonorPause::G1DonorPause() : _heap(G1CollectedHeap::heap()), _regions() {}

void G1DonorPause::regions_take() {
  for (uint i = 0; i < _heap->max_num_regions(); i++) {
    const G1HeapRegion* hr = _heap->region_at_or_null(i);
    if (hr == nullptr || hr->is_empty() || hr->is_continues_humongous()) {
      continue;
    }
    struct virtio_gc_region r;
    memset(&r, 0, sizeof(r));
    r.region = i;
    r.top = (uint64_t)pointer_delta(hr->top(), _heap->reserved().start(), 1);
    if (hr->is_humongous()) {
      r.flags = VIRTIO_GC_REGION_WHOLE | (is_told(hr) ? VIRTIO_GC_REGION_SAY : 0);
    }
    _regions.append(r);
  }
}

void G1DonorPause::roots_do(OopClosure* oops, CLDClosure* clds, NMethodClosure* nmethods) {
  G1RootProcessor roots(_heap, 1);

  if (ClassUnloading) {
    roots.process_strong_roots(oops, clds, nmethods);
  } else {
    roots.process_all_roots(oops, clds, nmethods);
  }
}
