/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/shared/donor/donorFeatures.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/vgcApi.hpp"
#include "runtime/globals.hpp"
#include "utilities/ostream.hpp"

static const struct {
  uint bit;
  const char* name;
  bool is_for_trace;
} features[] = {
  { VIRTIO_GC_F_TRACE, "TRACE", true },
  { VIRTIO_GC_F_CONCURRENT, "CONCURRENT", true },
  { VIRTIO_GC_F_EVACUATE, "EVACUATE", false },
  { VIRTIO_GC_F_COMPACT, "COMPACT", false },
  { VIRTIO_GC_F_HINTS, "HINTS", false },
  { VIRTIO_GC_F_WHOLE, "WHOLE", true },
  { VIRTIO_GC_F_TAIL, "TAIL", true },
  { VIRTIO_GC_F_REPLACE, "REPLACE", true },
  { VIRTIO_GC_F_RANGES, "RANGES", true },
  { VIRTIO_GC_F_STATE, "STATE", true },
  { VIRTIO_GC_F_ASK, "ASK", true },
  { VIRTIO_GC_F_BITMAPS, "BITMAPS", true },
  { VIRTIO_GC_F_CLEAR, "CLEAR", true },
  { VIRTIO_GC_F_CARDS, "CARDS", false },
  { VIRTIO_GC_F_FETCH, "FETCH", false },
  { VIRTIO_GC_F_BUDGET, "BUDGET", false },
};

static bool has(uint bit) {
  return (DonorSpace::features() >> bit & 1) != 0;
}

bool DonorFeatures::can_trace(size_t region_bytes, outputStream* why) {
  if (!UseCompressedClassPointers) {
    why->print("class pointers are not compressed");
    return false;
  }
  if (MinObjAlignmentInBytes != VIRTIO_GC_UNIT_BYTES) {
    why->print("objects are not aligned to %u bytes", VIRTIO_GC_UNIT_BYTES);
    return false;
  }
  if (!DonorSpace::has_regions_of(region_bytes)) {
    why->print("the device has fewer regions than G1; raise -XX:G1HeapRegionSize");
    return false;
  }
  for (uint i = 0; i < ARRAY_SIZE(features); i++) {
    if (features[i].is_for_trace && !has(features[i].bit)) {
      why->print("the device lacks the feature %s", features[i].name);
      return false;
    }
  }
  return true;
}

bool DonorFeatures::can_find_cards() {
  return has(VIRTIO_GC_F_CARDS);
}

bool DonorFeatures::can_fetch() {
  return has(VIRTIO_GC_F_FETCH);
}

void DonorFeatures::print(outputStream* st) {
  const char* space = "";

  for (uint i = 0; i < ARRAY_SIZE(features); i++) {
    if (has(features[i].bit)) {
      st->print("%s%s", space, features[i].name);
      space = " ";
    }
  }
}
