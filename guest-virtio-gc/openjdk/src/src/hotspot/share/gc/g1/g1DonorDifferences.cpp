/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/javaClasses.inline.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorDifferences.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "logging/log.hpp"
#include "memory/resourceArea.hpp"
#include "oops/oop.inline.hpp"
#include "utilities/count_trailing_zeros.hpp"
#include "utilities/ostream.hpp"

G1DonorDifferences::G1DonorDifferences() :
    _heap(G1CollectedHeap::heap()),
    _bitmap(_heap->concurrent_mark()->mark_bitmap()),
    _count(0) {}

bool G1DonorDifferences::is_object(uint64_t address) const {
  return is_aligned(address, (uint64_t)VIRTIO_GC_UNIT_BYTES) && _heap->is_in_reserved((void*)address) &&
         _bitmap->is_marked((HeapWord*)address);
}

void G1DonorDifferences::describe(uint64_t address, outputStream* st) const {
  st->print(UINT64_FORMAT_X, address);
  if (!_heap->is_in_reserved((void*)address)) {
    st->print(", outside the heap");
    return;
  }
  G1HeapRegion* region = _heap->heap_region_containing((void*)address);
  // The class of an object that is not marked may be gone.
  if (is_object(address)) {
    ResourceMark rm;
    oop obj = cast_to_oop(address);
    st->print(", %s", obj->klass()->external_name());
    if (java_lang_Class::is_instance(obj) && java_lang_Class::as_Klass(obj) != nullptr) {
      st->print(" of %s", java_lang_Class::as_Klass(obj)->external_name());
    }
  }
  st->print(", in region %u (%s)", region->hrm_index(), region->get_type_str());
}

void G1DonorDifferences::add(const char* what, uint64_t address) {
  if (_count++ < LinesMax) {
    stringStream st;
    describe(address, &st);
    log_error(gc, donor)("%s: %s", what, st.base());
  }
}

void G1DonorDifferences::add_unmarked_by_donors(HeapWord* from, uint64_t units) {
  for (; units != 0; units &= units - 1) {
    add("G1 has marked, and donors have not", (uint64_t)(from + count_trailing_zeros(units)));
  }
}

void G1DonorDifferences::add_unmarked_by_g1(HeapWord* from, uint64_t units) {
  for (; units != 0; units &= units - 1) {
    add("Donors have marked, and G1 has not", (uint64_t)(from + count_trailing_zeros(units)));
  }
}

void G1DonorDifferences::judge() const {
  if (DonorCheckFatal && _count > 0) {
    fatal("DonorCheck: donors' marks differ from G1's at " UINT64_FORMAT " objects", _count);
  }
}
