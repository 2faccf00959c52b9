/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/classLoaderData.hpp"
#include "classfile/classLoaderDataGraph.hpp"
#include "code/nmethod.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "gc/shared/donor/donorTypes.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/access.inline.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/objArrayOop.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/os.hpp"
#include "runtime/safepoint.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

uint32_t DonorTrace::_last_epoch = 0;

// Donors that meet nothing more for so long are not waited for.
static const double PatienceSeconds = 30;
// Each turn finds something new, if donors are right.
static const uint TurnsMax = 100000;
// The claim of class loader data that a trace has followed.
static const int Claim = ClassLoaderData::_claim_other;

// References that are roots: of the VM, and of objects that are scanned here.
class DonorRootClosure : public OopIterateClosure {
  DonorTrace* _trace;

  template <typename T> void do_oop_work(T* p) {
    T o = RawAccess<>::oop_load(p);
    if (!CompressedOops::is_null(o)) {
      _trace->root_add(cast_from_oop<uint64_t>(CompressedOops::decode_not_null(o)));
    }
  }

public:
  DonorRootClosure(DonorTrace* trace) : OopIterateClosure(), _trace(trace) {}

  ReferenceIterationMode reference_iteration_mode() override { return DO_FIELDS; }
  void do_oop(oop* p) override { do_oop_work(p); }
  void do_oop(narrowOop* p) override { do_oop_work(p); }
  bool do_metadata() override { return true; }
  void do_klass(Klass* k) override { do_cld(k->class_loader_data()); }
  void do_cld(ClassLoaderData* cld) override { _trace->follow(cld); }
  void do_method(Method* m) override {}
  void do_nmethod(nmethod* nm) override { nm->oops_do(this); }
};

class DonorRootCLDClosure : public CLDClosure {
  DonorRootClosure* _roots;

public:
  DonorRootCLDClosure(DonorRootClosure* roots) : _roots(roots) {}

  void do_cld(ClassLoaderData* cld) override { _roots->do_cld(cld); }
};

// Class loader data that is not followed yet, with the object whose life is its own.
class DonorHoldersClosure : public CLDClosure {
  GrowableArrayCHeap<ClassLoaderData*, mtGC> _clds;
  GrowableArrayCHeap<uint64_t, mtGC> _holders;

public:
  DonorHoldersClosure() : _clds(), _holders() {}

  void do_cld(ClassLoaderData* cld) override {
    oop holder = cld->claimed(Claim) ? nullptr : cld->holder_no_keepalive();
    if (holder != nullptr) {
      _clds.append(cld);
      _holders.append(cast_from_oop<uint64_t>(holder));
    }
  }

  int count() const { return _clds.length(); }
  ClassLoaderData* cld(int i) const { return _clds.at(i); }
  const uint64_t* holders(int i) const { return _holders.adr_at(i); }
};

DonorTrace::DonorTrace(DonorTraceClient* client) :
    _client(client),
    _epoch(++_last_epoch),
    _roots(),
    _ranges(),
    _failure(),
    _failed(false),
    _heap_error(false),
    _heap_error_at(0),
    _roots_sent(0),
    _turns(0),
    _unkept(0) {}

bool DonorTrace::is_possible(outputStream* why) {
  static const struct {
    uint bit;
    const char* name;
  } needed[] = {
    { VIRTIO_GC_F_TRACE, "TRACE" },   { VIRTIO_GC_F_CONCURRENT, "CONCURRENT" },
    { VIRTIO_GC_F_WHOLE, "WHOLE" },   { VIRTIO_GC_F_TAIL, "TAIL" },
    { VIRTIO_GC_F_REPLACE, "REPLACE" }, { VIRTIO_GC_F_RANGES, "RANGES" },
    { VIRTIO_GC_F_STATE, "STATE" },   { VIRTIO_GC_F_ASK, "ASK" },
    { VIRTIO_GC_F_BITMAPS, "BITMAPS" }, { VIRTIO_GC_F_CLEAR, "CLEAR" },
  };
  if (!UseCompressedClassPointers) {
    why->print("class pointers are not compressed");
    return false;
  }
  if (MinObjAlignmentInBytes != VIRTIO_GC_UNIT_BYTES) {
    why->print("objects are not aligned to %u bytes", VIRTIO_GC_UNIT_BYTES);
    return false;
  }
  for (uint i = 0; i < ARRAY_SIZE(needed); i++) {
    if ((DonorSpace::features() >> needed[i].bit & 1) == 0) {
      why->print("the device lacks the feature %s", needed[i].name);
      return false;
    }
  }
  return true;
}

bool DonorTrace::run(DonorCommand* command) {
  if (command->run()) {
    return true;
  }
  if (!_failed) {
    command->print_failure(&_failure);
  }
  _failed = true;
  return false;
}

bool DonorTrace::fail(const char* why, uint64_t what) {
  if (!_failed) {
    _failure.print("%s: " UINT64_FORMAT_X, why, what);
  }
  _failed = true;
  return false;
}

void DonorTrace::root_add(uint64_t address) {
  _roots.append(address);
  if (_roots.length() * sizeof(uint64_t) + sizeof(struct virtio_gc_req) + sizeof(uint64_t) > DonorSpace::request_max()) {
    roots_send();
  }
}

// False: it was followed before.
bool DonorTrace::follow(ClassLoaderData* cld) {
  // A class of an archive that is not loaded yet has none.
  if (cld == nullptr || !cld->try_claim(Claim)) {
    return false;
  }
  DonorRootClosure roots(this);
  cld->oops_do(&roots, ClassLoaderData::_claim_none);
  return true;
}

void DonorTrace::scan(oop obj) {
  DonorRootClosure roots(this);
  if (!obj->is_objArray()) {
    obj->oop_iterate(&roots);
    return;
  }
  // Donors read the elements where they are.
  objArrayOop array = objArrayOop(obj);
  roots.do_klass(array->klass());
  if (array->length() > 0) {
    struct virtio_gc_refs range;
    range.address = cast_from_oop<uint64_t>(obj) + objArrayOopDesc::base_offset_in_bytes();
    range.count = (uint64_t)array->length();
    _ranges.append(range);
  }
}

bool DonorTrace::start(const struct virtio_gc_region* regions, uint count) {
  if (!DonorTypes::send(&_failure)) {
    _failed = true;
    return false;
  }
  DonorCommand start(VIRTIO_GC_TRACE_START, _epoch);
  // No reference is overwritten meanwhile, but native code may write into
  // arrays that it has pinned: only with a barrier is that no change.
  start.set_flags(VIRTIO_GC_TRACE_CONCURRENT);
  start.set_entries(regions, count);
  return run(&start);
}

bool DonorTrace::roots_send() {
  if (_failed || _roots.is_empty()) {
    _roots.clear();
    return !_failed;
  }
  DonorCommand roots(VIRTIO_GC_TRACE_ROOTS, _epoch);
  roots.set_entries(_roots.adr_at(0), _roots.length());
  bool ok = run(&roots);
  _roots_sent += _roots.length();
  _roots.clear();
  return ok;
}

bool DonorTrace::ranges_send() {
  if (_failed || _ranges.is_empty()) {
    return !_failed;
  }
  // There are fewer than regions, and a request can name all regions.
  DonorCommand roots(VIRTIO_GC_TRACE_ROOTS, _epoch);
  roots.set_flags(VIRTIO_GC_RANGES);
  roots.set_entries(_ranges.adr_at(0), _ranges.length());
  bool ok = run(&roots);
  _ranges.clear();
  return ok;
}

// Wait until the trace is quiet, or opaque objects wait.
bool DonorTrace::wait(bool* quiet, bool* opaque) {
  uint64_t met = UINT64_MAX;
  Ticks since = Ticks::now();

  for (;;) {
    DonorCommand state(VIRTIO_GC_TRACE_STATE, _epoch);
    if (!run(&state)) {
      return false;
    }
    *quiet = (state.value() & VIRTIO_GC_STATE_QUIET) != 0;
    *opaque = (state.value() & VIRTIO_GC_STATE_MET) != 0;
    if (*quiet || *opaque) {
      return true;
    }
    if (met != state.at()) {
      met = state.at();
      since = Ticks::now();
    } else if ((Ticks::now() - since).seconds() > PatienceSeconds) {
      return fail("donors have stopped to trace, objects met", met);
    }
    os::naked_short_sleep(1);
  }
}

// Take all that the trace has met of a kind, in as many answers as that needs. The
// flags are for the first.
template <typename Entry, typename Take>
bool DonorTrace::met_take(uint32_t what, uint16_t flags, Take take) {
  struct virtio_gc_met head;
  uint64_t left;

  memset(&head, 0, sizeof(head));
  head.what = what;
  head.max = (uint32_t)(DonorSpace::response_max() / sizeof(Entry));
  do {
    DonorCommand met(VIRTIO_GC_TRACE_MET, _epoch, head.max * sizeof(Entry));
    met.set_arg(&head);
    met.set_flags(flags);
    if (!run(&met)) {
      return false;
    }
    for (uint i = 0; i < met.count<Entry>(); i++) {
      if (!take(met.entries<Entry>()[i])) {
        return false;
      }
    }
    left = met.value();
    flags = 0;
  } while (left != 0);
  return true;
}

bool DonorTrace::opaque_take() {
  return met_take<uint64_t>(VIRTIO_GC_MET_OPAQUE, 0, [&](uint64_t address) {
    if (!_client->is_object(address)) {
      return fail("donors met what is no object", address);
    }
    scan(cast_to_oop(address));
    return true;
  });
}

// Objects of a class keep its loader alive.
bool DonorTrace::types_take() {
  return met_take<uint64_t>(VIRTIO_GC_MET_TYPES, 0, [&](uint64_t id) {
    Klass* klass = DonorTypes::klass(id);
    if (klass == nullptr) {
      return fail("donors met an object of a type that they do not have", id);
    }
    follow(klass->class_loader_data());
    return true;
  });
}

// So does the loader itself, or the mirror of a hidden class.
bool DonorTrace::holders_ask() {
  const int most = (int)((DonorSpace::request_max() - sizeof(struct virtio_gc_req)) / sizeof(uint64_t));
  DonorHoldersClosure left;

  ClassLoaderDataGraph::cld_do(&left);
  for (int from = 0; from < left.count(); from += most) {
    int count = MIN2(most, left.count() - from);
    DonorCommand ask(VIRTIO_GC_TRACE_ASK, _epoch, (count + 7) / 8);
    ask.set_entries(left.holders(from), count);
    if (!run(&ask)) {
      return false;
    }
    uint bytes = ask.count<uint8_t>();
    for (int i = 0; i < count; i++) {
      if ((uint)i / 8 < bytes && (ask.entries<uint8_t>()[i / 8] >> i % 8 & 1) != 0) {
        follow(left.cld(from + i));
      }
    }
  }
  return true;
}

bool DonorTrace::weak_take() {
  _unkept = 0;
  return met_take<struct virtio_gc_weak>(VIRTIO_GC_MET_CLEAR, VIRTIO_GC_MET_AGAIN, [&](const struct virtio_gc_weak& weak) {
    if (_client->is_kept(weak.referent)) {
      root_add(weak.referent);
    } else {
      _unkept++;
    }
    return true;
  });
}

bool DonorTrace::settle() {
  for (;;) {
    bool quiet, opaque;

    if (++_turns > TurnsMax) {
      return fail("donors find no end, turns", _turns);
    }
    if (!roots_send() || !ranges_send() || !wait(&quiet, &opaque) || (opaque && !opaque_take())) {
      return false;
    }
    if (!quiet || !_roots.is_empty() || !_ranges.is_empty()) {
      continue;
    }
    const uint64_t sent = _roots_sent;
    if (!types_take() || !holders_ask() || !weak_take()) {
      return false;
    }
    if (!_failed && _roots.is_empty() && _ranges.is_empty() && sent == _roots_sent) {
      return true;
    }
  }
}

bool DonorTrace::finish(bool* finished) {
  DonorCommand finish(VIRTIO_GC_TRACE_FINISH, _epoch);
  *finished = finish.run();
  if (*finished || (!_failed && finish.has_status(VIRTIO_GC_MET))) {
    return true;
  }
  // Why the trace itself has failed says more than that a command about it has.
  if (finish.is_answered() && !finish.has_status(VIRTIO_GC_OK) && !finish.has_status(VIRTIO_GC_MET) &&
      !finish.has_status(VIRTIO_GC_NO_TRACE)) {
    _failure.reset();
    _failed = false;
  }
  if (finish.has_status(VIRTIO_GC_BAD_TYPE) || finish.has_status(VIRTIO_GC_BAD_OBJECT) ||
      finish.has_status(VIRTIO_GC_BAD_REFERENCE)) {
    _heap_error = true;
    _heap_error_at = finish.at();
  }
  if (!_failed) {
    finish.print_failure(&_failure);
  }
  _failed = true;
  return false;
}

// Types cannot be replaced while a trace runs, and a new trace ends it.
void DonorTrace::abandon() {
  const uint32_t epoch = ++_last_epoch;
  DonorCommand start(VIRTIO_GC_TRACE_START, epoch);
  start.set_flags(VIRTIO_GC_TRACE_CONCURRENT);
  if (start.run()) {
    DonorCommand finish(VIRTIO_GC_TRACE_FINISH, epoch);
    finish.run();
  }
}

bool DonorTrace::run(const struct virtio_gc_region* regions, uint count) {
  bool finished = false;

  assert(SafepointSynchronize::is_at_safepoint(), "the heap stays as it is");
  ClassLoaderDataGraph::clear_claimed_marks(Claim);
  if (start(regions, count)) {
    DonorRootClosure roots(this);
    DonorRootCLDClosure clds(&roots);
    NMethodToOopClosure nmethods(&roots, !NMethodToOopClosure::FixRelocations);
    _client->roots_do(&roots, &clds, &nmethods);
    // A trace that has failed is finished to know why.
    bool settled;
    do {
      settled = settle();
    } while (finish(&finished) && !finished && settled);
  }
  ClassLoaderDataGraph::clear_claimed_marks(Claim);
  if (!finished) {
    abandon();
  }
  return finished && !_failed;
}

bool DonorTrace::bitmaps(uint first, uint count, size_t region_bytes, uint64_t* words) {
  const size_t bytes = region_bytes / (VIRTIO_GC_UNIT_BYTES * BitsPerByte);
  struct virtio_gc_range range;

  memset(&range, 0, sizeof(range));
  range.first = first;
  range.regions = count;
  range.bitmaps = bytes;
  DonorCommand bitmaps(VIRTIO_GC_TRACE_BITMAPS, _epoch, bytes * count);
  bitmaps.set_arg(&range);
  if (!run(&bitmaps)) {
    return false;
  }
  if (bitmaps.count<uint8_t>() != bytes * count) {
    return fail("bitmaps are too short, bytes", bitmaps.count<uint8_t>());
  }
  memcpy(words, bitmaps.entries<uint8_t>(), bytes * count);
  return true;
}

bool DonorTrace::sizes(uint first, uint count, struct virtio_gc_live* live) {
  const uint most = (uint)(DonorSpace::response_max() / sizeof(struct virtio_gc_live));

  for (uint from = 0; from < count; from += most) {
    const uint some = MIN2(most, count - from);
    struct virtio_gc_range range;
    memset(&range, 0, sizeof(range));
    range.first = first + from;
    range.regions = some;
    range.bitmaps = VIRTIO_GC_NONE;
    DonorCommand results(VIRTIO_GC_TRACE_RESULTS, _epoch, some * sizeof(struct virtio_gc_live));
    results.set_arg(&range);
    if (!run(&results)) {
      return false;
    }
    if (results.count<struct virtio_gc_live>() != some) {
      return fail("results of too few regions", results.count<struct virtio_gc_live>());
    }
    memcpy(live + from, results.entries<struct virtio_gc_live>(), some * sizeof(struct virtio_gc_live));
  }
  return true;
}
