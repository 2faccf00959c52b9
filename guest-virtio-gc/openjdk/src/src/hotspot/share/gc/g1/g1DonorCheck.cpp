/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorCheck.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "logging/log.hpp"
#include "oops/oop.inline.hpp"
#include "utilities/ostream.hpp"
#include "utilities/ticks.hpp"

bool G1DonorCheck::_impossible_said = false;

// Bits, each for a unit of 8 bytes, in a word of a bitmap
static const size_t WordBytes = BitsPerWord * VIRTIO_GC_UNIT_BYTES;

G1DonorCheck::G1DonorCheck() :
    _bitmap(_heap->concurrent_mark()->mark_bitmap()),
    _marks(0),
    _live_bytes(0),
    _differences() {}

// The class of an object that is not marked may be gone.
bool G1DonorCheck::is_told(const G1HeapRegion* humongous) const {
  return _bitmap->is_marked(humongous->bottom()) && !cast_to_oop(humongous->bottom())->is_typeArray();
}

DonorTraceClient::Opaque G1DonorCheck::opaque(uint64_t address) {
  return _differences.is_object(address) ? Scan : Wrong;
}

// G1 has cleared the others.
bool G1DonorCheck::is_kept(const struct virtio_gc_weak& weak) {
  return _differences.is_object(weak.referent);
}

void G1DonorCheck::compare_region(G1HeapRegion* region, const uint64_t* theirs, const struct virtio_gc_live* live) {
  HeapWord* const bottom = region->bottom();
  HeapWord* const top = region->top();
  const bool whole = region->is_humongous();
  uint64_t bytes = 0;
  uint64_t objects = 0;
  size_t word = 0;
  uint64_t ours = 0;

  for (HeapWord* next = bottom; word < G1HeapRegion::GrainBytes / WordBytes; word++, ours = 0) {
    HeapWord* const end = bottom + (word + 1) * BitsPerWord;
    // next is the first mark that is not in a word before this one, or earlier.
    while (next < MIN2(end, top)) {
      next = _bitmap->get_next_marked_addr(next, MIN2(end, top));
      if (next < MIN2(end, top)) {
        ours |= (uint64_t)1 << pointer_delta(next, bottom) % BitsPerWord;
        const uint64_t size = cast_to_oop(next)->size() * HeapWordSize;
        bytes += whole ? 0 : size;
        _live_bytes += size;
        objects++;
        next++;
      }
    }
    _differences.add_unmarked_by_donors(bottom + word * BitsPerWord, ours & ~theirs[word]);
    _differences.add_unmarked_by_g1(bottom + word * BitsPerWord, theirs[word] & ~ours);
  }
  _marks += objects;
  if (live->bytes != bytes || live->objects != objects) {
    stringStream st;
    st.print("Donors have counted " UINT64_FORMAT " bytes in " UINT64_FORMAT " objects, and G1 "
             UINT64_FORMAT " in " UINT64_FORMAT, (uint64_t)live->bytes, (uint64_t)live->objects, bytes, objects);
    _differences.add(st.base(), (uint64_t)bottom);
  }
}

bool G1DonorCheck::compare(DonorTrace* trace) {
  const size_t words = G1HeapRegion::GrainBytes / WordBytes;
  const uint most = (uint)MAX2((size_t)1, VIRTIO_GC_BITMAPS_MAX / (words * BytesPerWord));
  const uint count = _heap->max_num_regions();
  uint64_t* theirs = NEW_C_HEAP_ARRAY(uint64_t, words * most, mtGC);
  struct virtio_gc_live* live = NEW_C_HEAP_ARRAY(struct virtio_gc_live, count, mtGC);
  bool ok = trace->sizes(0, count, live);

  for (uint first = 0; ok && first < count; first += most) {
    const uint some = MIN2(most, count - first);
    ok = trace->bitmaps(first, some, G1HeapRegion::GrainBytes, theirs);
    for (uint i = 0; ok && i < some; i++) {
      G1HeapRegion* region = _heap->region_at_or_null(first + i);
      if (region != nullptr) {
        compare_region(region, theirs + words * i, &live[first + i]);
      }
    }
  }
  FREE_C_HEAP_ARRAY(struct virtio_gc_live, live);
  FREE_C_HEAP_ARRAY(uint64_t, theirs);
  return ok;
}

void G1DonorCheck::check() {
  if (!DonorTrace::is_possible(G1HeapRegion::GrainBytes, "Donors' marks are not checked", &_impossible_said)) {
    return;
  }
  Ticks start = Ticks::now();
  DonorTrace trace(this, DonorTrace::FullCollectionCheck);
  regions_take();
  bool whole = trace.run(_regions.adr_at(0), (uint)_regions.length()) && compare(&trace);
  trace.end(whole, _marks, _live_bytes);
  uint64_t at;
  if (trace.is_heap_error(&at)) {
    _differences.add(trace.failure(), at);
  } else if (!whole) {
    log_info(gc, donor)("Donors' marks are not checked: %s", trace.failure());
  }
  // G1 has cleared references to what it has not marked.
  _differences.add_more(trace.unkept());
  if (whole || _differences.count() > 0) {
    log_info(gc, donor)("Donors' marks checked: " UINT64_FORMAT " objects in %d regions, " UINT64_FORMAT
                        " differ, %u weak; " UINT64_FORMAT " roots in %u turns, %.1fms",
                        _marks, _regions.length(), _differences.count(), (uint)trace.unkept(), trace.roots_sent(), trace.turns(),
                        (Ticks::now() - start).seconds() * 1000.0);
  }
  _differences.judge();
}
