/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/classLoaderData.hpp"
#include "code/nmethod.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1DonorCycleCheck.hpp"
#include "gc/g1/g1DonorDifferences.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "logging/log.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/access.inline.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/instanceKlass.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/mutexLocker.hpp"
#include "utilities/count_trailing_zeros.hpp"
#include "utilities/ostream.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

G1DonorCycleCheck* volatile G1DonorCycleCheck::_current = nullptr;

// What late objects reach, through references and class loaders, as in marking
class G1DonorLateClosure : public OopIterateClosure {
  G1DonorCycleCheck* const _check;
  GrowableArrayCHeap<oop, mtGC> _found;
  uint64_t _marks;

  template <typename T> void do_oop_work(T* p) {
    T o = RawAccess<>::oop_load(p);
    if (!CompressedOops::is_null(o)) {
      found(CompressedOops::decode_not_null(o));
    }
  }

public:
  G1DonorLateClosure(G1DonorCycleCheck* check) : OopIterateClosure(), _check(check), _found(), _marks(0) {}

  ReferenceIterationMode reference_iteration_mode() override { return DO_FIELDS; }
  void do_oop(oop* p) override { do_oop_work(p); }
  void do_oop(narrowOop* p) override { do_oop_work(p); }
  bool do_metadata() override { return true; }
  void do_klass(Klass* k) override { do_cld(k->class_loader_data()); }
  void do_method(Method* m) override {}
  void do_nmethod(nmethod* nm) override { nm->oops_do(this); }
  void do_cld(ClassLoaderData* cld) override {
    if (cld != nullptr && _check->_followed.put(cld, true)) {
      _check->_followed.maybe_grow();
      cld->oops_do(this, ClassLoaderData::_claim_none);
    }
  }

  void found(oop obj) {
    if (_check->mark(obj)) {
      _marks++;
      _found.append(obj);
    }
  }

  void drain() {
    while (!_found.is_empty()) {
      _found.pop()->oop_iterate(this);
    }
  }

  uint64_t marks() const { return _marks; }
};

static size_t region_words() {
  return G1HeapRegion::GrainWords / BitsPerWord;
}

G1DonorCycleCheck::G1DonorCycleCheck(G1ConcurrentMark* cm, DonorTrace* trace) :
    _heap(G1CollectedHeap::heap()),
    _cm(cm),
    _bitmap(cm->mark_bitmap()),
    _roots(trace->roots_sent()),
    _turns(trace->turns()),
    _regions(),
    _unkept(),
    _theirs(NEW_C_HEAP_ARRAY(uint64_t, region_words() * _heap->max_num_regions(), mtGC)),
    _live(NEW_C_HEAP_ARRAY(struct virtio_gc_live, _heap->max_num_regions(), mtGC)),
    _lock(Mutex::nosafepoint, "DonorCycleCheck_lock"),
    _late(),
    _followed(1009, 1000003) {
  for (int i = 0; i < trace->unkept(); i++) {
    _unkept.append(trace->unkept_at(i));
  }
}

G1DonorCycleCheck::~G1DonorCycleCheck() {
  FREE_C_HEAP_ARRAY(struct virtio_gc_live, _live);
  FREE_C_HEAP_ARRAY(uint64_t, _theirs);
}

bool G1DonorCycleCheck::fetch(DonorTrace* trace) {
  const uint most = (uint)MAX2((size_t)1, VIRTIO_GC_BITMAPS_MAX / (region_words() * BytesPerWord));
  const uint count = _heap->max_num_regions();
  bool ok = trace->sizes(0, count, _live);

  for (uint first = 0; ok && first < count; first += most) {
    ok = trace->bitmaps(first, MIN2(most, count - first), G1HeapRegion::GrainBytes, _theirs + region_words() * first);
  }
  return ok;
}

bool G1DonorCycleCheck::begin(G1ConcurrentMark* cm, const struct virtio_gc_region* regions, int count, DonorTrace* trace) {
  G1DonorCycleCheck* check = new G1DonorCycleCheck(cm, trace);

  for (int i = 0; i < count; i++) {
    check->_regions.append(regions[i]);
  }
  if (!check->fetch(trace)) {
    delete check;
    return false;
  }
  uint64_t objects = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    objects += check->_live[regions[i].region].objects;
    bytes += check->_live[regions[i].region].bytes;
  }
  trace->end(true, objects, bytes);
  _current = check;
  return true;
}

void G1DonorCycleCheck::drop() {
  delete _current;
  _current = nullptr;
}

// False: the region was freed since.
bool G1DonorCycleCheck::is_traced(const struct virtio_gc_region& r) const {
  return _cm->top_at_mark_start(r.region) == _heap->reserved().start() + r.top / HeapWordSize;
}

// Add an object that G1 has marked to what donors have.  False: they have it.
bool G1DonorCycleCheck::mark(oop obj) {
  if (_cm->obj_allocated_since_mark_start(obj) || !_bitmap->is_marked(obj)) {
    return false;
  }
  const size_t unit = pointer_delta(cast_from_oop<HeapWord*>(obj), _heap->reserved().start());
  const uint64_t bit = (uint64_t)1 << unit % BitsPerWord;
  const bool marks = (_theirs[unit / BitsPerWord] & bit) == 0;
  _theirs[unit / BitsPerWord] |= bit;
  return marks;
}

void G1DonorCycleCheck::late_add(oop obj) {
  if (!_cm->obj_allocated_since_mark_start(obj)) {
    MutexLocker x(&_lock, Mutex::_no_safepoint_check_flag);
    _late.append(cast_from_oop<uint64_t>(obj));
  }
}

// Before anything is explained: donors' marks are G1's, and their sizes are right.
void G1DonorCycleCheck::compare_region(const struct virtio_gc_region& r, G1DonorDifferences* differences, uint64_t* objects) {
  HeapWord* const bottom = _heap->bottom_addr_for_region(r.region);
  const struct virtio_gc_live* live = &_live[r.region];
  const uint64_t* theirs = _theirs + region_words() * r.region;
  uint64_t count = 0;
  uint64_t bytes = 0;

  for (size_t i = 0; i < region_words(); i++) {
    HeapWord* const from = bottom + i * BitsPerWord;
    const uint64_t ours = _bitmap->word(from);
    differences->add_unmarked_by_g1(from, theirs[i] & ~ours);
    for (uint64_t units = theirs[i] & ours; units != 0; units &= units - 1) {
      count++;
      if ((r.flags & VIRTIO_GC_REGION_WHOLE) == 0) {
        bytes += cast_to_oop(from + count_trailing_zeros(units))->size() * HeapWordSize;
      }
    }
  }
  *objects += count;
  if (live->bytes != bytes || live->objects != count) {
    stringStream st;
    st.print("Donors have counted " UINT64_FORMAT " bytes in " UINT64_FORMAT " objects, where there are "
             UINT64_FORMAT " in " UINT64_FORMAT, (uint64_t)live->bytes, (uint64_t)live->objects, bytes, count);
    differences->add(st.base(), (uint64_t)bottom);
  }
}

// Mark what is reached from late objects: how many.
uint64_t G1DonorCycleCheck::explain() {
  G1DonorLateClosure late(this);

  for (int i = 0; i < _late.length(); i++) {
    late.found(cast_to_oop(_late.at(i)));
    late.drain();
  }
  for (int i = 0; i < _unkept.length(); i++) {
    oop obj = cast_to_oop(_unkept.at(i));
    if (!_cm->obj_allocated_since_mark_start(obj) && _bitmap->is_marked(obj) && InstanceKlass::cast(obj->klass())->reference_type() == REF_SOFT) {
      obj->oop_iterate(&late);
      late.drain();
    }
  }
  return late.marks();
}

void G1DonorCycleCheck::compare() {
  Ticks start = Ticks::now();
  G1DonorDifferences differences;
  uint64_t objects = 0;

  for (int i = 0; i < _regions.length(); i++) {
    if (is_traced(_regions.at(i))) {
      compare_region(_regions.at(i), &differences, &objects);
    }
  }
  const uint64_t late = explain();
  for (int i = 0; i < _regions.length(); i++) {
    const struct virtio_gc_region& r = _regions.at(i);
    HeapWord* const bottom = _heap->bottom_addr_for_region(r.region);
    for (size_t word = 0; is_traced(r) && word < region_words(); word++) {
      HeapWord* const from = bottom + word * BitsPerWord;
      differences.add_unmarked_by_donors(from, _bitmap->word(from) & ~_theirs[region_words() * r.region + word]);
    }
  }
  log_info(gc, donor)("Donors' marks of a concurrent cycle checked: " UINT64_FORMAT " objects in %d regions, "
                      UINT64_FORMAT " differ, " UINT64_FORMAT " late; " UINT64_FORMAT " roots in %u turns, %.1fms",
                      objects, _regions.length(), differences.count(), late, _roots, _turns,
                      (Ticks::now() - start).seconds() * 1000.0);
  differences.judge();
}
