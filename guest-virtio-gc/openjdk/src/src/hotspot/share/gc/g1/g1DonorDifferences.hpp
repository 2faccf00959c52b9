/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_G1_G1DONORDIFFERENCES_HPP
#define SHARE_GC_G1_G1DONORDIFFERENCES_HPP

#include "gc/shared/donor/donor_globals.hpp"
#include "memory/allocation.hpp"
#include "utilities/globalDefinitions.hpp"

class G1CMBitMap;
class G1CollectedHeap;
class outputStream;

// What donors' marks and G1's differ in, with -XX:+DonorCheck: a line of the log
// for each of the first, with address and class.  Used in a pause, when G1 has
// marked.
class G1DonorDifferences : public StackObj {
  // Differences that one check says
  static const uint LinesMax = 20;

  G1CollectedHeap* const _heap;
  G1CMBitMap* const _bitmap;
  uint64_t _count;

  void describe(uint64_t address, outputStream* st) const;

public:
  G1DonorDifferences();

  // Whether there is an object that G1 has marked.
  bool is_object(uint64_t address) const;

  void add(const char* what, uint64_t address);
  // Of 64 units from here on: objects that only one side has marked.
  void add_unmarked_by_donors(HeapWord* from, uint64_t units);
  void add_unmarked_by_g1(HeapWord* from, uint64_t units);
  // Differences that have no address
  void add_more(uint64_t count) { _count += count; }
  uint64_t count() const { return _count; }

  // With -XX:+DonorCheckFatal a difference ends the VM.
  void judge() const;
};

#endif // SHARE_GC_G1_G1DONORDIFFERENCES_HPP
