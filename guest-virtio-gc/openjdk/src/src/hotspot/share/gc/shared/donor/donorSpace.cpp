/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "gc/shared/gcArguments.hpp"
#include "gc/shared/gc_globals.hpp"
#include "logging/log.hpp"
#include "memory/allocation.hpp"
#include "oops/compressedOops.hpp"
#include "runtime/atomic.hpp"
#include "runtime/globals.hpp"
#include "runtime/globals_extension.hpp"
#include "runtime/java.hpp"
#include "runtime/os.hpp"
#include "utilities/align.hpp"
#include "utilities/defaultStream.hpp"
#include "utilities/ostream.hpp"
#include "utilities/powerOfTwo.hpp"
#include "utilities/quickSort.hpp"
#include "utilities/ticks.hpp"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct vgc* DonorSpace::_device = nullptr;
size_t DonorSpace::_unit = 0;
size_t DonorSpace::_region_bytes = 0;
char* DonorSpace::_base = nullptr;
size_t DonorSpace::_bytes = 0;
size_t DonorSpace::_budget = 0;
struct virtio_gc_extent* DonorSpace::_garbage = nullptr;
uint DonorSpace::_garbage_max = 0;
volatile uint DonorSpace::_garbage_count = 0;

void DonorSpace::fail(const char* format, ...) {
  va_list ap;
  va_start(ap, format);
  jio_fprintf(defaultStream::error_stream(), "Error: -XX:DonorHeap=%s: ", DonorHeap);
  jio_vfprintf(defaultStream::error_stream(), format, ap);
  jio_fprintf(defaultStream::error_stream(), "\n");
  va_end(ap);
  if (_device != nullptr) {
    VgcApi::close(_device);
  }
  vm_direct_exit(1);
  ShouldNotReachHere();
}

// What would bring all of the heap in, or cannot be done to the space.  Set
// even if it is off: a collector turns on what has its default.
#define DONOR_FLAG_OFF(flag)                                          \
  do {                                                                \
    if (flag && FLAG_IS_CMDLINE(flag)) {                              \
      warning(#flag " is turned off: the heap is on donors");         \
    }                                                                 \
    FLAG_SET_ERGO(flag, false);                                       \
  } while (0)

#define DONOR_FLAG_OF_G1(flag)                                        \
  do {                                                                \
    if (flag && (DonorHeap == nullptr || !UseG1GC)) {                 \
      warning(#flag " is turned off: it needs -XX:DonorHeap and G1"); \
      FLAG_SET_ERGO(flag, false);                                     \
    }                                                                 \
  } while (0)

void DonorSpace::initialize() {
  char message[512];

  DONOR_FLAG_OF_G1(DonorCheck);
  DONOR_FLAG_OF_G1(DonorMark);
  DONOR_FLAG_OF_G1(DonorRebuild);
  DONOR_FLAG_OF_G1(DonorCompact);
  if (DonorCompact) {
    FLAG_SET_ERGO(DonorRebuild, true);
  }
  if (DonorHeap == nullptr) {
    return;
  }
  if (!UseG1GC && !UseParallelGC && !UseSerialGC && !UseShenandoahGC) {
    fail("only G1, Parallel, Serial and Shenandoah can have their heap on donors");
  }
  if (AllocateHeapAt != nullptr) {
    fail("the heap cannot lie in a file of -XX:AllocateHeapAt too");
  }
  DONOR_FLAG_OFF(UseLargePages);
  DONOR_FLAG_OFF(UseTransparentHugePages);
  DONOR_FLAG_OFF(UseNUMA);
  DONOR_FLAG_OFF(AlwaysPreTouch);
  DONOR_FLAG_OFF(UseStringDeduplication);

  const char* device = DonorHeap;
  if (strcmp(device, "env") == 0) {
    device = ::getenv("VGC_DEVICE");
    if (device == nullptr) {
      fail("VGC_DEVICE is not in the environment");
    }
  }
  if (device[0] == '\0') {
    fail("no device is named; /dev/vgc0 is one in a guest");
  }
  if (!VgcApi::load(device, message, sizeof(message))) {
    fail("%s", message);
  }
  struct vgc* opened = VgcApi::open(device, message, sizeof(message));
  if (opened == nullptr) {
    fail("%s", message);
  }
  _device = opened;
  size_t unit = VgcApi::info(_device)->region_bytes_max;
  if (!is_power_of_2(unit) || unit < os::vm_page_size()) {
    fail("the device's largest region is %zu bytes, which is no power of two of pages", unit);
  }
  _unit = unit;
  _budget = VgcApi::budget(_device);
  young_fit();
}

// Serial and Parallel have young generations of a size that is fixed when the heap is
// reserved.  G1 asks again in each collection.  Shenandoah has none.
void DonorSpace::young_fit() {
  if (!(UseSerialGC || UseParallelGC) || FLAG_IS_CMDLINE(NewSize) || FLAG_IS_CMDLINE(MaxNewSize) ||
      FLAG_IS_CMDLINE(NewRatio)) {
    return;
  }
  // As they come from NewRatio
  const size_t plain = MaxHeapSize / (NewRatio + 1);
  const size_t fitting = young_bytes(plain);
  if (fitting < plain) {
    FLAG_SET_ERGO(MaxNewSize, MAX2(fitting, (size_t)M));
    FLAG_SET_ERGO(NewSize, MIN2(NewSize, MaxNewSize));
  }
}

void DonorSpace::budget_update() {
  if (!in_use()) {
    return;
  }
  const size_t budget = VgcApi::budget(_device);
  if (budget != _budget) {
    log_info(gc, donor)("The host keeps %zu MiB of the heap, before %zu", budget / M, _budget / M);
    _budget = budget;
  }
}

size_t DonorSpace::young_bytes(size_t bytes) {
  return _budget == 0 || DonorYoungPercent == 0 ? bytes : MIN2(bytes, _budget * DonorYoungPercent / 100);
}

size_t DonorSpace::region_bytes(size_t bytes, size_t alignment) {
  const struct vgc_info* info = VgcApi::info(_device);
  size_t least = round_up_power_of_2(bytes / info->regions_max + 1);

  // Donors can trace the heap if G1's regions are the space's.
  size_t collector = UseG1GC ? SpaceAlignment : alignment;

  _region_bytes = MAX3(collector, least, (size_t)info->region_bytes_min);
  if (_region_bytes > _unit) {
    fail("a heap of %zu MiB has regions of %zu MiB, and the device takes %zu MiB at most; lower -Xmx",
         bytes / M, _region_bytes / M, _unit / M);
  }
  return MAX2(alignment, _region_bytes);
}

ReservedHeapSpace DonorSpace::attach(const ReservedHeapSpace& heap, size_t bytes) {
  assert(is_aligned(heap.size(), _unit), "reserved in units");
  size_t window = VgcApi::info(_device)->window_bytes;

  if (heap.size() > window) {
    fail("a heap of %zu MiB does not fit in the device's window of %zu MiB; lower -Xmx",
         heap.size() / M, window / M);
  }
  struct virtio_gc_space space;
  memset(&space, 0, sizeof(space));
  space.address = (uint64_t)heap.base();
  space.bytes = heap.size();
  space.region_bytes = _region_bytes;
  space.ref_bytes = UseCompressedOops ? 4 : 8;
  space.ref_shift = UseCompressedOops ? CompressedOops::shift() : 0;
  space.ref_base = UseCompressedOops ? (uint64_t)CompressedOops::base() : 0;
  space.type_bytes = UseCompactObjectHeaders ? 8 : 4;
  space.type_offset = UseCompactObjectHeaders ? 0 : 8;
  space.type_shift = UseCompactObjectHeaders ? 42 : 0;
  space.type_mask = UseCompactObjectHeaders ? 0x3fffff : 0xffffffff;
  if (VgcApi::create_over(_device, &space) == nullptr) {
    const char* why = errno == ENOSPC ? "no room in the device's window: lower -Xmx, or end another JVM on it"
                                      : os::strerror(errno);
    fail("the device refuses a heap of %zu MiB: %s", heap.size() / M, why);
  }
  _base = heap.base();
  _bytes = heap.size();
  // As many as fit into a request.
  _garbage_max = (VgcApi::info(_device)->request_max - sizeof(struct virtio_gc_req) - sizeof(struct virtio_gc_hint)) /
                 sizeof(struct virtio_gc_extent);
  _garbage = NEW_C_HEAP_ARRAY(struct virtio_gc_extent, _garbage_max, mtGC);
  DonorTrace::initialize();
  DonorStatus::initialize();
  log_info(gc, donor)("Heap on donors: %s, %zu MiB, %u donors", DonorHeap, _bytes / M,
                      VgcApi::info(_device)->donors);
  if (_budget != 0) {
    log_info(gc, donor)("The host keeps %zu MiB of the heap", _budget / M);
  }
  ReservedSpace all(heap.base(), heap.size(), heap.alignment(), os::vm_page_size(),
                    false /* executable */, true /* special */);
  return ReservedHeapSpace(all.first_part(bytes), heap.noaccess_prefix());
}

void DonorSpace::print(outputStream* st) {
  const struct vgc_info* info = VgcApi::info(_device);

  st->print_cr("Heap on donors: %s, %u donors at the start", DonorHeap, info->donors);
  st->print_cr("Window: %zu MiB, of which the heap takes %zu MiB", (size_t)info->window_bytes / M, _bytes / M);
  if (_budget != 0) {
    st->print_cr("Kept by the host: %zu MiB at most", _budget / M);
  }
  st->print_cr("Regions: %zu of %zu KiB, from " INTPTR_FORMAT, _bytes / _region_bytes, _region_bytes / K, p2i(_base));
}

uint64_t DonorSpace::features() {
  return VgcApi::info(_device)->features;
}

size_t DonorSpace::request_max() {
  return VgcApi::info(_device)->request_max;
}

size_t DonorSpace::response_max() {
  return VgcApi::info(_device)->response_max - sizeof(struct virtio_gc_done);
}

int DonorSpace::run(struct vgc_call* call) {
  return VgcApi::command(_device, call);
}

void DonorSpace::discard_extents(struct virtio_gc_extent* extents, uint count) {
  struct virtio_gc_hint hint;
  memset(&hint, 0, sizeof(hint));
  hint.what = VIRTIO_GC_HINT_DISCARD;
  DonorCommand discard(VIRTIO_GC_HINT, 0);
  discard.set_arg(&hint);
  discard.set_entries(extents, count);
  Ticks start = Ticks::now();
  // Without the hint garbage is written back, and nothing is wrong.  A device
  // that answers with a failure has not begun, and does not do it later.
  if (!discard.run()) {
    stringStream why;
    discard.print_failure(&why);
    log_debug(gc, donor)("Discard of %u ranges failed: %s", count, why.base());
  } else {
    log_trace(gc, donor)("Discard of %u ranges, %.3fms", count, (Ticks::now() - start).seconds() * 1000.0);
  }
}

bool DonorSpace::extent_of(const void* from, const void* to, struct virtio_gc_extent* extent) {
  char* first = align_up((char*)from, os::vm_page_size());
  char* last = align_down((char*)to, os::vm_page_size());

  assert(first >= _base && last <= _base + _bytes, "in the space");
  if (first >= last) {
    return false;
  }
  extent->offset = (uint64_t)(first - _base);
  extent->bytes = (uint64_t)(last - first);
  return true;
}

void DonorSpace::discard(const void* from, const void* to) {
  struct virtio_gc_extent extent;

  if (in_use() && extent_of(from, to, &extent)) {
    discard_extents(&extent, 1);
  }
}

void DonorSpace::garbage_add(const void* from, const void* to) {
  struct virtio_gc_extent extent;

  if (!in_use() || !extent_of(from, to, &extent)) {
    return;
  }
  uint i = Atomic::fetch_then_add(&_garbage_count, 1u);
  if (i < _garbage_max) {
    _garbage[i] = extent;
  } else {
    discard_extents(&extent, 1);
  }
}

static int extent_compare(const struct virtio_gc_extent& a, const struct virtio_gc_extent& b) {
  return a.offset < b.offset ? -1 : a.offset > b.offset;
}

void DonorSpace::garbage_discard() {
  uint count = MIN2(Atomic::load(&_garbage_count), _garbage_max);
  uint last = 0;

  if (count == 0) {
    return;
  }
  QuickSort::sort(_garbage, count, extent_compare);
  for (uint i = 1; i < count; i++) {
    if (_garbage[last].offset + _garbage[last].bytes == _garbage[i].offset) {
      _garbage[last].bytes += _garbage[i].bytes;
    } else {
      _garbage[++last] = _garbage[i];
    }
  }
  discard_extents(_garbage, last + 1);
  Atomic::store(&_garbage_count, 0u);
}
