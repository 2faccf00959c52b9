/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORLATE_HPP
#define SHARE_GC_G1_G1DONORLATE_HPP

#include "memory/allocation.hpp"
#include "oops/oopsHierarchy.hpp"
#include "utilities/globalDefinitions.hpp"

// Objects that G1 has marked after donors have marked: donors do not know that
// they live.
//
// Any thread may add, and none reads meanwhile.
class G1DonorLate {
  // With more it is full, and does not have them all.
  static const uint Max = 256 * K;

  HeapWord** _objects;
  volatile uint _count;
  bool _is_on;

  void note(oop obj);

public:
  G1DonorLate() : _objects(nullptr), _count(0), _is_on(false) {}

  // Donors have marked: what is marked from now on is late.
  void begin();
  // Nothing is late any more.
  void end() { _is_on = false; }

  void add(oop obj) {
    if (_is_on) {
      note(obj);
    }
  }

  bool is_on() const { return _is_on; }
  bool is_full() const { return _count >= Max; }
  uint count() const { return MIN2(_count, Max); }
  HeapWord* at(uint i) const { return _objects[i]; }
};

#endif // SHARE_GC_G1_G1DONORLATE_HPP
