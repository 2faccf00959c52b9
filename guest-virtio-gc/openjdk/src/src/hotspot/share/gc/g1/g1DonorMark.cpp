/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1BarrierSet.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorCards.hpp"
#include "gc/g1/g1DonorCycleCheck.hpp"
#include "gc/g1/g1DonorMark.hpp"
#include "gc/g1/g1DonorMerge.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/g1/g1ThreadLocalData.hpp"
#include "gc/shared/donor/donorFeatures.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/referenceProcessor.hpp"
#include "gc/shared/satbMarkQueue.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "logging/log.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/handshake.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

bool G1DonorMark::_impossible_said = false;
uint G1DonorMark::_failures = 0;
uint G1DonorMark::_cycles_to_skip = 0;
uint G1DonorMark::_heap_errors = 0;

// More heap errors in a row than this are a bug, and donors are not asked again.
static const uint HeapErrorsMax = 1;

// Mark entries of SATB buffers, and give those to the trace that were not marked.
class G1DonorSATBClosure : public SATBBufferClosure {
  G1ConcurrentMark* const _cm;
  DonorTrace* const _trace;
  uint64_t _marks;

public:
  G1DonorSATBClosure(G1ConcurrentMark* cm, DonorTrace* trace) : _cm(cm), _trace(trace), _marks(0) {}

  void do_buffer(void** buffer, size_t size) override {
    for (size_t i = 0; i < size; i++) {
      oop obj = cast_to_oop(buffer[i]);
      if (!_cm->obj_allocated_since_mark_start(obj) && _cm->mark_bitmap()->par_mark(obj)) {
        _trace->root_add(cast_from_oop<uint64_t>(obj));
        _marks++;
      }
    }
  }

  uint64_t marks() const { return _marks; }
};

class G1DonorFlushSATBClosure : public HandshakeClosure {
public:
  G1DonorFlushSATBClosure() : HandshakeClosure("Flush SATB for donors") {}

  void do_thread(Thread* thread) override {
    G1BarrierSet::satb_mark_queue_set().flush_queue(G1ThreadLocalData::satb_mark_queue(thread));
  }
};

G1DonorMark::G1DonorMark(G1ConcurrentMark* cm) :
    _heap(G1CollectedHeap::heap()),
    _cm(cm),
    _bitmap(cm->mark_bitmap()),
    _references(false /* clears_soft */),
    _regions(),
    _next(0),
    _merged(0),
    _flushes(0),
    _satb_marks(0),
    _live_bytes(0),
    _live_objects(0) {}

// False: the cycle has ended, and the heap is left.
bool G1DonorMark::heap_stay() {
  if (_cm->has_aborted()) {
    heap_leave();
    return false;
  }
  return true;
}

bool G1DonorMark::heap_enter() {
  SuspendibleThreadSet::join();
  return heap_stay();
}

bool G1DonorMark::heap_yield() {
  SuspendibleThreadSet::yield();
  return heap_stay();
}

void G1DonorMark::heap_leave() {
  SuspendibleThreadSet::leave();
}

bool G1DonorMark::is_given_up() {
  return _cm->has_aborted();
}

// False: the region was freed since the trace began.  Only that changes its TAMS.
bool G1DonorMark::has_tams_of(const struct virtio_gc_region& r) const {
  return _cm->top_at_mark_start(r.region) == _heap->reserved().start() + r.top / HeapWordSize;
}

bool G1DonorMark::regions_take() {
  if (!heap_enter()) {
    return false;
  }
  for (uint i = 0; i < _heap->max_num_regions(); i++) {
    G1HeapRegion* region = _heap->region_at_or_null(i);
    if (region == nullptr || region->is_continues_humongous() || _cm->top_at_mark_start(i) == region->bottom()) {
      continue;
    }
    struct virtio_gc_region r;
    memset(&r, 0, sizeof(r));
    r.region = i;
    r.top = (uint64_t)pointer_delta(_cm->top_at_mark_start(i), _heap->reserved().start(), 1);
    // Not all have references, but reading the class of one that is dead would
    // bring in a page for nothing.
    r.flags = region->is_starts_humongous() ? VIRTIO_GC_REGION_WHOLE | VIRTIO_GC_REGION_SAY : 0;
    _regions.append(r);
  }
  heap_leave();
  return true;
}

void G1DonorMark::marks_add(const struct virtio_gc_region& r, DonorTrace* trace) {
  if (!has_tams_of(r)) {
    return;
  }
  HeapWord* const tams = _cm->top_at_mark_start(r.region);
  HeapWord* next = _heap->bottom_addr_for_region(r.region);
  while ((next = _bitmap->get_next_marked_addr(next, tams)) < tams) {
    trace->root_add((uint64_t)next);
    next++;
  }
}

bool G1DonorMark::satb_add(DonorTrace* trace) {
  SATBMarkQueueSet& queues = G1BarrierSet::satb_mark_queue_set();
  G1DonorSATBClosure satb(_cm, trace);
  bool more = true;

  while (more && trace->roots() < DonorTrace::roots_max()) {
    more = queues.apply_closure_to_completed_buffer(&satb);
  }
  _satb_marks += satb.marks();
  return more;
}

bool G1DonorMark::roots_add(DonorTrace* trace) {
  while (_next < _regions.length() && trace->roots() < DonorTrace::roots_max()) {
    marks_add(_regions.at(_next++), trace);
  }
  return _next < _regions.length() || satb_add(trace);
}

bool G1DonorMark::roots_press() {
  return G1BarrierSet::satb_mark_queue_set().completed_buffers_num() > BuffersMax;
}

// Not until there are none: threads may fill queues as fast as they are emptied.
bool G1DonorMark::roots_again() {
  if (_flushes == FlushesMax) {
    return false;
  }
  _flushes++;
  G1DonorFlushSATBClosure flush;
  Handshake::execute(&flush);
  return true;
}

DonorTraceClient::Opaque G1DonorMark::opaque(uint64_t address) {
  if (!is_aligned(address, (uint64_t)VIRTIO_GC_UNIT_BYTES) || !_heap->is_in_reserved((void*)address)) {
    return Wrong;
  }
  const uint region = _heap->addr_to_region((void*)address);
  if ((HeapWord*)address < _cm->top_at_mark_start(region)) {
    return Scan;
  }
  // Humongous arrays without references are freed while a trace runs.
  return (HeapWord*)address == _heap->bottom_addr_for_region(region) ? Gone : Wrong;
}

// Of the references that donors have not followed: those that G1 follows.
bool G1DonorMark::is_kept(const struct virtio_gc_weak& weak) {
  if (opaque(weak.object) != Scan || opaque(weak.referent) != Scan) {
    return false;
  }
  const bool kept = _references.follows(cast_to_oop(weak.object), weak.referent);
  if (kept && DonorCheck) {
    // G1 decides later, and has to keep it too.
    _bitmap->par_mark(cast_to_oop(weak.referent));
  }
  return kept;
}

// False: donors say what can't be.
bool G1DonorMark::merge_region(const struct virtio_gc_region& r, const uint64_t* theirs, const struct virtio_gc_live* live) {
  size_t words;
  size_t objects;

  if (!G1DonorMerge::region(_bitmap, r, theirs, live, &words, &objects)) {
    return false;
  }
  _cm->_region_mark_stats[r.region]._live_words = words;
  // Only the order in which regions are collected depends on it.
  _cm->_region_mark_stats[r.region]._incoming_refs = objects;
  _live_bytes += words * HeapWordSize;
  _live_objects += objects;
  return true;
}

bool G1DonorMark::merge(DonorTrace* trace) {
  const size_t words = G1HeapRegion::GrainWords / BitsPerWord;
  const uint most = (uint)MAX2((size_t)1, VIRTIO_GC_BITMAPS_MAX / (words * BytesPerWord));
  const uint count = _heap->max_num_regions();
  uint64_t* theirs = NEW_C_HEAP_ARRAY(uint64_t, words * most, mtGC);
  struct virtio_gc_live* live = NEW_C_HEAP_ARRAY(struct virtio_gc_live, count, mtGC);
  bool ok = trace->sizes(0, count, live);
  bool flushed = false;

  if (DonorRebuild && DonorFeatures::can_find_cards()) {
    G1DonorCards::note_marked(trace->epoch());
  }
  while (ok && _merged < _regions.length()) {
    const uint first = _regions.at(_merged).region;
    const uint some = MIN2(most, count - first);
    ok = trace->bitmaps(first, some, G1HeapRegion::GrainBytes, theirs) && heap_enter();
    if (!ok) {
      break;
    }
    if (!flushed) {
      // What was counted so far is replaced.
      _cm->flush_all_task_caches();
      flushed = true;
    }
    while (ok && _merged < _regions.length() && _regions.at(_merged).region < first + some) {
      const struct virtio_gc_region& r = _regions.at(_merged);
      if (has_tams_of(r) && !merge_region(r, theirs + words * (r.region - first), &live[r.region])) {
        trace->refute("donors' marks of a region are not right, region", r.region);
        ok = false;
      } else {
        _merged++;
      }
    }
    heap_leave();
  }
  FREE_C_HEAP_ARRAY(struct virtio_gc_live, live);
  FREE_C_HEAP_ARRAY(uint64_t, theirs);
  return ok;
}

// What donors say of references is what they say of objects.  Else the marks that are
// merged are not used up: G1 scans all that is marked.
bool G1DonorMark::weak_are_right(DonorTrace* trace) {
  if (!heap_enter()) {
    return false;
  }
  for (int i = 0; i < trace->unkept(); i++) {
    const uint64_t weak = trace->unkept_at(i);
    const Opaque what = opaque(weak);
    if (what == Wrong || (what == Scan && !_bitmap->is_marked((HeapWord*)weak))) {
      trace->refute("donors have not marked a weak reference that they met", weak);
      heap_leave();
      return false;
    }
  }
  heap_leave();
  return true;
}

// As G1's marking does with references that it meets.
bool G1DonorMark::discover(DonorTrace* trace) {
  ReferenceProcessor* rp = _heap->ref_processor_cm();
  ReferenceProcessorMTDiscoveryMutator only_this_thread(rp, false);

  if (!heap_enter()) {
    return false;
  }
  for (int i = 0; i < trace->unkept(); i++) {
    if (!heap_yield()) {
      return false;
    }
    if (opaque(trace->unkept_at(i)) != Scan) {
      continue;
    }
    oop referent = G1DonorReferences::discover(rp, cast_to_oop(trace->unkept_at(i)));
    if (referent != nullptr) {
      _cm->task(0)->make_reference_grey(referent);
    }
  }
  heap_leave();
  return true;
}

// Count the live words of regions that are not merged, in which there are marks
// that were not counted.
bool G1DonorMark::recount() {
  if (!heap_enter()) {
    return false;
  }
  _cm->flush_all_task_caches();
  for (int i = _merged; i < _regions.length(); i++) {
    const struct virtio_gc_region& r = _regions.at(i);
    size_t words = 0;
    HeapWord* next = _heap->bottom_addr_for_region(r.region);
    while (has_tams_of(r) &&
           (next = _bitmap->get_next_marked_addr(next, _cm->top_at_mark_start(r.region))) < _cm->top_at_mark_start(r.region)) {
      words += cast_to_oop(next)->size();
      next++;
      if (!heap_yield()) {
        return false;
      }
    }
    if (has_tams_of(r)) {
      _cm->set_live_bytes(r.region, words * HeapWordSize);
    }
  }
  heap_leave();
  return true;
}

void G1DonorMark::failed(DonorTrace* trace) {
  uint64_t at;

  trace->end(false, 0, 0);
  G1DonorCards::forget();
  if (_cm->has_aborted()) {
    log_debug(gc, donor)("Donors' marks are not needed: the concurrent cycle has ended");
    return;
  }
  _failures++;
  _cycles_to_skip = (1u << MIN2(_failures - 1, 6u)) - 1;
  DonorStatus::leave_out(_cycles_to_skip);
  log_info(gc, donor)("G1 marks by itself: %s", trace->failure());
  if (!trace->is_heap_error(&at)) {
    _heap_errors = 0;
    return;
  }
  _heap_errors++;
  if (_heap_errors > HeapErrorsMax) {
    DonorStatus::leave_out(DonorStatus::Never);
  }
  log_warning(gc, donor)("Donors cannot read the heap: %s, at " UINT64_FORMAT_X "%s", trace->failure(), at,
                         _heap_errors > HeapErrorsMax ? "; they are not asked again" : "");
  if (DonorCheckFatal) {
    fatal("DonorMark: donors cannot read the heap: %s, at " UINT64_FORMAT_X, trace->failure(), at);
  }
}

void G1DonorMark::mark() {
  Ticks start = Ticks::now();
  DonorTrace trace(this, DonorCheck ? DonorTrace::ConcurrentMarkCheck : DonorTrace::ConcurrentMark);

  if (regions_take() && trace.run(_regions.adr_at(0), (uint)_regions.length())) {
    Ticks traced = Ticks::now();
    if (DonorCheck) {
      if (G1DonorCycleCheck::begin(_cm, _regions.adr_at(0), _regions.length(), &trace)) {
        _failures = 0;
        _heap_errors = 0;
        recount();
        return;
      }
    } else if (merge(&trace) && weak_are_right(&trace)) {
      // All is marked but what SATB queues get meanwhile.
      _cm->_finger = _cm->_heap.end();
      const bool discovered = discover(&trace);
      trace.end(discovered, _live_objects, _live_bytes);
      if (discovered) {
        _failures = 0;
        _heap_errors = 0;
        log_info(gc, donor)("Donors have marked " UINT64_FORMAT " objects, %zu MiB, in %d regions; " UINT64_FORMAT
                            " roots in %u turns, " UINT64_FORMAT " SATB, %d weak; %.1fms, of which %.1fms to merge",
                            _live_objects, (size_t)(_live_bytes / M), _regions.length(), trace.roots_sent(),
                            trace.turns(), _satb_marks, trace.unkept(),
                            (Ticks::now() - start).seconds() * 1000.0, (Ticks::now() - traced).seconds() * 1000.0);
      }
      return;
    }
  }
  failed(&trace);
  if (_satb_marks > 0 || DonorCheck) {
    recount();
  }
}

void G1DonorMark::before_marking(G1ConcurrentMark* cm) {
  G1DonorCards::forget();
  G1DonorCycleCheck::drop();
  if (_heap_errors > HeapErrorsMax ||
      !DonorTrace::is_possible(G1HeapRegion::GrainBytes, "G1 marks by itself", &_impossible_said)) {
    return;
  }
  if (_cycles_to_skip > 0) {
    log_info(gc, donor)("G1 marks by itself: donors have failed in %u cycles, and are asked again after %u more",
                        _failures, _cycles_to_skip);
    _cycles_to_skip--;
    DonorStatus::left_out(_cycles_to_skip);
    return;
  }
  G1DonorMark donors(cm);
  donors.mark();
}
