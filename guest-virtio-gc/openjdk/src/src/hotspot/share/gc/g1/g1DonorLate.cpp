/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1DonorLate.hpp"
#include "memory/allocation.inline.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/atomic.hpp"

void G1DonorLate::begin() {
  if (_objects == nullptr) {
    _objects = NEW_C_HEAP_ARRAY(HeapWord*, Max, mtGC);
  }
  _count = 0;
  _is_on = true;
}

void G1DonorLate::note(oop obj) {
  if (_count >= Max) {
    return;
  }
  const uint at = Atomic::fetch_then_add(&_count, 1u);
  if (at < Max) {
    _objects[at] = cast_from_oop<HeapWord*>(obj);
  }
}
