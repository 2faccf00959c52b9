/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "compiler/oopMap.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorFull.hpp"
#include "gc/g1/g1DonorMerge.hpp"
#include "gc/g1/g1FullCollector.inline.hpp"
#include "gc/g1/g1FullGCMarker.inline.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/shared/continuationGCSupport.inline.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/gcTraceTime.inline.hpp"
#include "gc/shared/referenceProcessor.hpp"
#include "logging/log.hpp"
#include "oops/objArrayOop.inline.hpp"
#include "oops/oop.inline.hpp"
#include "utilities/ticks.hpp"

bool G1DonorFull::_impossible_said = false;
bool G1DonorFull::_heap_error = false;
G1DonorLate G1DonorFull::_late;

G1DonorFull::G1DonorFull(G1FullCollector* collector) :
    _collector(collector),
    _bitmap(collector->mark_bitmap()),
    _references(collector->scope()->should_clear_soft_refs()),
    _objects(),
    _opaque(),
    _arrays(),
    _fixed(_heap->max_num_regions(), mtGC),
    _moves(nullptr),
    _epoch(0),
    _live_objects(0),
    _live_bytes(0),
    _is_marked(false),
    _is_updated(false) {
  DonorTrace::pause_begin();
}

G1DonorFull::~G1DonorFull() {
  _late.end();
  delete _moves;
  DonorTrace::pause_end();
}

bool G1DonorFull::is_object(uint64_t address) const {
  if (!is_aligned(address, (uint64_t)VIRTIO_GC_UNIT_BYTES) || !_heap->is_in_reserved((void*)address)) {
    return false;
  }
  const G1HeapRegion* hr = _heap->region_at_or_null(_heap->addr_to_region((void*)address));
  return hr != nullptr && !hr->is_free() && (HeapWord*)address < hr->top() &&
         (!hr->is_humongous() || (hr->is_starts_humongous() && (HeapWord*)address == hr->bottom()));
}

DonorTraceClient::Opaque G1DonorFull::opaque(uint64_t address) {
  return is_object(address) ? Scan : Wrong;
}

void G1DonorFull::opaque_found(oop obj) {
  // As marking does: then what is in its frames can be adjusted.
  ContinuationGCSupport::transform_stack_chunk(obj);
  if (obj->is_objArray()) {
    _arrays.append(cast_from_oop<HeapWord*>(obj));
  } else if (!obj->is_typeArray()) {
    _opaque.append(cast_from_oop<HeapWord*>(obj));
  }
}

bool G1DonorFull::is_kept(const struct virtio_gc_weak& weak) {
  return is_object(weak.object) && is_object(weak.referent) &&
         _references.follows(cast_to_oop(weak.object), weak.referent);
}

bool G1DonorFull::merge(DonorTrace* trace) {
  const size_t words = G1HeapRegion::GrainWords / BitsPerWord;
  const uint most = (uint)MAX2((size_t)1, VIRTIO_GC_BITMAPS_MAX / (words * BytesPerWord));
  const uint count = _heap->max_num_regions();
  uint64_t* theirs = NEW_C_HEAP_ARRAY(uint64_t, words * most, mtGC);
  struct virtio_gc_live* live = NEW_C_HEAP_ARRAY(struct virtio_gc_live, count, mtGC);
  bool ok = trace->sizes(0, count, live);
  int next = 0;

  while (ok && next < _regions.length()) {
    const uint first = _regions.at(next).region;
    const uint some = MIN2(most, count - first);
    ok = trace->bitmaps(first, some, G1HeapRegion::GrainBytes, theirs);
    for (; ok && next < _regions.length() && _regions.at(next).region < first + some; next++) {
      const struct virtio_gc_region& r = _regions.at(next);
      size_t live_words;
      size_t objects;
      ok = G1DonorMerge::region(_bitmap, r, theirs + words * (r.region - first), &live[r.region], &live_words, &objects);
      if (!ok) {
        trace->refute("donors' marks of a region are not right, region", r.region);
        break;
      }
      _collector->set_live_words(r.region, live_words);
      _objects.append(objects);
      _live_objects += objects;
      _live_bytes += live_words * HeapWordSize;
    }
  }
  FREE_C_HEAP_ARRAY(struct virtio_gc_live, live);
  FREE_C_HEAP_ARRAY(uint64_t, theirs);
  return ok;
}

// G1 marks as if nothing had been.
void G1DonorFull::unmerge() {
  for (int i = 0; i < _objects.length(); i++) {
    G1HeapRegion* hr = _heap->region_at(_regions.at(i).region);
    _bitmap->clear_range(MemRegion(hr->bottom(), hr->end()));
    _collector->set_live_words(hr->hrm_index(), 0);
  }
}

// What donors say of references is what they say of objects.
bool G1DonorFull::weak_are_right(DonorTrace* trace) {
  for (int i = 0; i < trace->unkept(); i++) {
    if (!is_object(trace->unkept_at(i)) || !_bitmap->is_marked((HeapWord*)trace->unkept_at(i))) {
      trace->refute("donors have not marked a weak reference that they met", trace->unkept_at(i));
      return false;
    }
  }
  return true;
}

void G1DonorFull::discover(DonorTrace* trace) {
  ReferenceProcessor* rp = _collector->reference_processor();
  ReferenceProcessorMTDiscoveryMutator only_this_thread(rp, false);

  for (int i = 0; i < trace->unkept(); i++) {
    oop referent = G1DonorReferences::discover(rp, cast_to_oop(trace->unkept_at(i)));
    if (referent != nullptr) {
      _collector->marker(0)->mark_and_push(&referent);
    }
  }
}

void G1DonorFull::failed(DonorTrace* trace) {
  uint64_t at;

  unmerge();
  trace->end(false, 0, 0);
  log_info(gc, donor)("G1 marks by itself: %s", trace->failure());
  if (trace->is_heap_error(&at)) {
    _heap_error = true;
    log_warning(gc, donor)("Donors cannot read the heap: %s, at " UINT64_FORMAT_X "; they are not asked again in full collections",
                           trace->failure(), at);
  }
}

void G1DonorFull::mark() {
  if (_heap_error ||
      !DonorTrace::is_possible(G1HeapRegion::GrainBytes, "G1 marks by itself in full collections", &_impossible_said)) {
    return;
  }
#if COMPILER2_OR_JVMCI
  // Roots are walked again by G1, which notes derived pointers then.
  DerivedPointerTableDeactivate none_noted;
#endif
  GCTraceTime(Info, gc, phases) info("Phase 1: Mark by donors", _collector->scope()->timer());
  const Ticks start = Ticks::now();
  DonorTrace trace(this, DonorTrace::FullCollection);
  regions_take();
  if (!trace.run(_regions.adr_at(0), (uint)_regions.length()) || !merge(&trace) || !weak_are_right(&trace)) {
    failed(&trace);
    return;
  }
  _epoch = trace.epoch();
  _late.begin();
  _is_marked = true;
  discover(&trace);
  trace.end(true, _live_objects, _live_bytes);
  log_info(gc, donor)("Donors have marked " UINT64_FORMAT " objects, %zu MiB, in %d regions; " UINT64_FORMAT
                      " roots in %u turns, %d weak; %.1fms",
                      _live_objects, (size_t)(_live_bytes / M), _regions.length(), trace.roots_sent(), trace.turns(),
                      trace.unkept(), (Ticks::now() - start).seconds() * 1000.0);
}

void G1DonorFull::fix(HeapWord* obj) {
  _fixed.set_bit(_heap->addr_to_region(obj));
}

// Regions of objects that donors do not know to be alive, or do not read, stay.
void G1DonorFull::fixed_take() {
  for (uint i = 0; i < _late.count(); i++) {
    fix(_late.at(i));
  }
  for (int i = 0; i < _opaque.length(); i++) {
    fix(_opaque.at(i));
  }
}

// Of a region that is not humongous
bool G1DonorFull::is_dead(const G1HeapRegion* hr) const {
  return !hr->is_free() && !hr->has_pinned_objects() && _collector->live_words(hr->hrm_index()) == 0;
}

void G1DonorFull::moves_take() {
  const size_t threshold = _collector->scope()->region_compaction_threshold();
  int next = 0;

  for (uint i = 0; i < _heap->max_num_regions(); i++) {
    G1HeapRegion* hr = _heap->region_at_or_null(i);
    const bool was_traced = next < _regions.length() && _regions.at(next).region == i;
    const size_t objects = was_traced ? _objects.at(next) : 0;
    next += was_traced ? 1 : 0;
    if (hr == nullptr || hr->is_humongous()) {
      continue;
    }
    if (hr->is_empty() || is_dead(hr)) {
      _moves->add_free(i, was_traced);
      continue;
    }
    const size_t live = _collector->live_words(i);
    if (objects != 0 && live <= threshold && !_fixed.at(i) && !hr->has_pinned_objects()) {
      _moves->add_candidate(i, live, objects);
    }
    _moves->add_update(i, hr->top());
  }
  for (int i = 0; i < _arrays.length(); i++) {
    objArrayOop array = objArrayOop(cast_to_oop(_arrays.at(i)));
    if (array->length() > 0) {
      _moves->add_array((HeapWord*)((char*)_arrays.at(i) + objArrayOopDesc::base_offset_in_bytes()),
                        (size_t)array->length());
    }
  }
}

bool G1DonorFull::move() {
  _late.end();
  if (!_is_marked) {
    return false;
  }
  if (_collector->scope()->do_maximal_compaction()) {
    log_info(gc, donor)("G1 compacts by itself: as much as is possible");
    return false;
  }
  if (_late.is_full()) {
    log_info(gc, donor)("G1 compacts by itself: it has marked too many objects after donors");
    return false;
  }
  GCTraceTime(Info, gc, phases) info("Phase 2: Move by donors", _collector->scope()->timer());
  const Ticks start = Ticks::now();
  _moves = new G1DonorMoves();
  fixed_take();
  moves_take();
  if (!_moves->make(_epoch)) {
    DonorStatus::compaction_failed(GCId::current_or_undefined(), _moves->failure());
    log_info(gc, donor)("G1 compacts by itself: %s", _moves->failure());
    delete _moves;
    _moves = nullptr;
    return false;
  }
  const Ticks moved = Ticks::now();
  _is_updated = _moves->update();
  if (!_is_updated) {
    log_info(gc, donor)("G1 updates references by itself: %s", _moves->failure());
  }
  DonorStatus::compaction_succeeded();
  log_info(gc, donor)("Donors have moved %zu KiB of %d regions to %u; %u late and %d opaque objects; %.1fms, of which %.1fms to move",
                      _moves->moved_words() * HeapWordSize / K, _moves->count(), _moves->targets(), _late.count(),
                      _opaque.length(), (Ticks::now() - start).seconds() * 1000.0, (moved - start).seconds() * 1000.0);
  return true;
}

// Where donors have updated all others.
void G1DonorFull::adjust() {
  G1AdjustClosure adjust(_collector);

  for (uint i = 0; i < _late.count(); i++) {
    cast_to_oop(_late.at(i))->oop_iterate(&adjust);
  }
  for (int i = 0; i < _opaque.length(); i++) {
    cast_to_oop(_opaque.at(i))->oop_iterate(&adjust);
  }
}

bool G1DonorFull::keeps_marks(const G1HeapRegion* hr) const {
  return _collector->live_words(hr->hrm_index()) * HeapWordSize < hr->used();
}

void G1DonorFull::complete() {
  for (uint i = 0; i < _heap->max_num_regions(); i++) {
    G1HeapRegion* hr = _heap->region_at_or_null(i);
    if (hr == nullptr) {
      continue;
    }
    if (hr->is_humongous()) {
      const G1HeapRegion* const first = hr->humongous_start_region();
      if (!first->has_pinned_objects() && !_bitmap->is_marked(first->bottom())) {
        _heap->free_humongous_region(hr, nullptr);
        _collector->set_free(i);
      }
    } else if (_moves->end_of(i) != nullptr) {
      // A dead region may be one that was moved to.
      hr->reset_compacted_after_full_gc(_moves->end_of(i));
    } else if (_moves->is_from(i) || is_dead(hr)) {
      hr->reset_compacted_after_full_gc(hr->bottom());
    } else if (!_collector->is_free(i) && !_collector->is_skip_compacting(i)) {
      _collector->update_from_compacting_to_skip_compacting(i);
    }
  }
  _moves->end();
}
