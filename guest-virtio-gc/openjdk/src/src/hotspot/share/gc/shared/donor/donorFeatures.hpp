/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORFEATURES_HPP
#define SHARE_GC_SHARED_DONOR_DONORFEATURES_HPP

#include "memory/allStatic.hpp"
#include "utilities/globalDefinitions.hpp"

class outputStream;

// The features of the device that holds the heap
class DonorFeatures : AllStatic {
public:
  // It can trace a heap of such regions.  False: why says why not.
  static bool can_trace(size_t region_bytes, outputStream* why);

  static bool can_find_cards();

  // It brings in memory that is said to be read soon.
  static bool can_fetch();

  // The names of those that it has: "TRACE CONCURRENT"
  static void print(outputStream* st);
};

#endif // SHARE_GC_SHARED_DONOR_DONORFEATURES_HPP
