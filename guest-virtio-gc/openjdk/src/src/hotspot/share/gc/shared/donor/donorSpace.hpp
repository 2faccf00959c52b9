/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORSPACE_HPP
#define SHARE_GC_SHARED_DONOR_DONORSPACE_HPP

#include "memory/allStatic.hpp"
#include "memory/reservedSpace.hpp"
#include "utilities/globalDefinitions.hpp"

class outputStream;
struct vgc;
struct vgc_call;
struct virtio_gc_extent;

// The Java heap as a space of a virtio-gc device (-XX:DonorHeap): its memory is
// paged to donors.  Three steps while the VM starts, in this order:
//
//   initialize()  flags are checked, the device is opened; its limits are known
//   unit(), region_bytes()  the heap is reserved in multiples of this, at a
//                 multiple of that, otherwise as without donors
//   attach()      the reserved range becomes the space
//
// Each failure of these says one line and ends the VM: a heap that is larger
// than the memory has no other place.  Afterwards nothing here fails.
class DonorSpace : AllStatic {
  static struct vgc* _device;
  static size_t _unit;
  static size_t _region_bytes;
  static char* _base;
  static size_t _bytes;
  static size_t _budget;
  static struct virtio_gc_extent* _garbage;
  static uint _garbage_max;
  static volatile uint _garbage_count;

  static bool extent_of(const void* from, const void* to, struct virtio_gc_extent* extent);
  static void discard_extents(struct virtio_gc_extent* extents, uint count);
  static void young_fit();
  [[noreturn]] static void fail(const char* format, ...) ATTRIBUTE_PRINTF(1, 2);

public:
  static bool in_use() { return _device != nullptr; }

  static void initialize();

  static size_t unit() { return _unit; }

  // The size of the space's regions, to which the heap is aligned: at least the
  // collector's alignment.
  static size_t region_bytes(size_t bytes, size_t alignment);

  // To be called once CompressedOops knows the heap.  Returns the first bytes
  // of the heap, as memory that no collector commits or uncommits.
  static ReservedHeapSpace attach(const ReservedHeapSpace& heap, size_t bytes);

  // Device, window and regions, a line each
  static void print(outputStream* st);

  // Of the device: its features, and the bytes of a request, and of entries in
  // an answer.
  static uint64_t features();
  static size_t request_max();
  static size_t response_max();

  // Whether the space's regions have this size.
  static bool has_regions_of(size_t bytes) { return _region_bytes == bytes; }

  // More objects than this it has no room for.
  static uint64_t objects_max() { return _bytes / HeapWordSize; }

  // Run a command, and wait for its answer.  0, or a negative errno: there is
  // no answer.
  static int run(struct vgc_call* call);

  // Bytes that the host keeps of the heap in its own memory, at most, as it was at the
  // last budget_update(); 0: not known.
  static size_t budget() { return _budget; }
  static void budget_update();

  // How much of so many bytes the young generation should have, so that the host keeps it.
  static size_t young_bytes(size_t bytes);

  // What is between these addresses is garbage, which need not be kept for the
  // heap to be right.  It may be used again when this returns.
  static void discard(const void* from, const void* to);

  // The same for many ranges that are not used before garbage_discard(): any
  // thread may add, then one discards all of them with few commands.
  static void garbage_add(const void* from, const void* to);
  static void garbage_discard();
};

#endif // SHARE_GC_SHARED_DONOR_DONORSPACE_HPP
