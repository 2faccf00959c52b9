/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/classLoaderDataGraph.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorEvents.hpp"
#include "gc/shared/donor/donorFeatures.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/donor/donorTraceClosures.inline.hpp"
#include "gc/shared/donor/donorTypes.hpp"
#include "gc/shared/gcId.hpp"
#include "logging/log.hpp"
#include "memory/resourceArea.hpp"
#include "oops/objArrayOop.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/mutexLocker.hpp"
#include "runtime/os.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

Mutex* DonorTrace::_lock = nullptr;
uint32_t DonorTrace::_last_epoch = 0;
bool DonorTrace::_is_left = false;
bool DonorTrace::_is_in_pause = false;

// Donors that meet nothing more for so long are not waited for.
static const double PatienceSeconds = 30;
// Each turn finds something new, if donors are right.
static const uint TurnsMax = 100000;

DonorTrace::DonorTrace(DonorTraceClient* client, Purpose purpose) :
    _client(client),
    _purpose(purpose),
    _epoch(0),
    _roots(),
    _ranges(),
    _unkept(),
    _followed(1009, 1000003),
    _failure(),
    _failed(false),
    _given_up(false),
    _heap_error(false),
    _heap_error_at(0),
    _regions(0),
    _roots_sent(0),
    _turns(0),
    _begun(),
    _prepared(),
    _traced() {}

void DonorTrace::initialize() {
  _lock = new Mutex(Mutex::nosafepoint, "DonorTrace_lock");
}

void DonorTrace::set_is_in_pause(bool is_in_pause) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _is_in_pause = is_in_pause;
}

bool DonorTrace::is_possible(size_t region_bytes, const char* follows, bool* said) {
  stringStream why;

  if (DonorFeatures::can_trace(region_bytes, &why)) {
    return true;
  }
  if (!*said) {
    log_info(gc, donor)("%s: %s", follows, why.base());
    *said = true;
  }
  return false;
}

bool DonorTrace::run(DonorCommand* command) {
  return command->run() || run_failed(command);
}

bool DonorTrace::run_failed(DonorCommand* command) {
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

bool DonorTrace::give_up() {
  _given_up = true;
  return fail("the collection has ended, turns", _turns);
}

bool DonorTrace::enter() {
  return _client->heap_enter() || give_up();
}

// False: it was followed before.
bool DonorTrace::follow(ClassLoaderData* cld) {
  // A class of an archive that is not loaded yet has none.
  if (cld == nullptr || !_followed.put(cld, true)) {
    return false;
  }
  _followed.maybe_grow();
  DonorRootClosure roots(this);
  cld->oops_do(&roots, ClassLoaderData::_claim_none);
  return true;
}

void DonorTrace::scan(oop obj) {
  ResourceMark rm;
  DonorRootClosure roots(this);
  if (obj->is_typeArray()) {
    return;
  }
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
  DonorTypes types;

  if (!enter()) {
    return false;
  }
  bool taken = types.take(&_failure);
  _client->heap_leave();
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  if (_is_in_pause && _purpose != FullCollection) {
    return give_up();
  }
  // Types cannot be replaced while a trace runs.
  if (_is_left) {
    abandon();
  }
  if (!taken || !types.send(&_failure)) {
    _failed = true;
    return false;
  }
  _epoch = ++_last_epoch;
  _is_left = true;
  DonorCommand start(VIRTIO_GC_TRACE_START, _epoch);
  // In a pause no reference is overwritten, but native code may write into
  // arrays that it has pinned: only with a barrier is that no change.
  start.set_flags(VIRTIO_GC_TRACE_CONCURRENT);
  start.set_entries(regions, count);
  return run(&start);
}

bool DonorTrace::strong_roots() {
  if (!enter()) {
    return false;
  }
  DonorRootClosure roots(this);
  DonorRootCLDClosure clds(&roots);
  NMethodToOopClosure nmethods(&roots, !NMethodToOopClosure::FixRelocations);
  _client->roots_do(&roots, &clds, &nmethods);
  _client->heap_leave();
  return roots_send();
}

bool DonorTrace::more_roots() {
  bool more = true;

  while (more) {
    if (!enter()) {
      return false;
    }
    more = _client->roots_add(this);
    _client->heap_leave();
    if (!roots_send()) {
      return false;
    }
  }
  return true;
}

int DonorTrace::roots_max() {
  return (int)((DonorSpace::request_max() - sizeof(struct virtio_gc_req)) / sizeof(uint64_t));
}

bool DonorTrace::roots_send() {
  for (int from = 0; !_failed && from < _roots.length(); from += roots_max()) {
    const int some = MIN2(roots_max(), _roots.length() - from);
    DonorCommand roots(VIRTIO_GC_TRACE_ROOTS, _epoch);
    roots.set_entries(_roots.adr_at(from), some);
    run(&roots);
    _roots_sent += some;
  }
  _roots.clear();
  return !_failed;
}

bool DonorTrace::ranges_send() {
  if (_failed || _ranges.is_empty()) {
    return !_failed;
  }
  // There are fewer than regions, and a request can name all regions.
  DonorCommand roots(VIRTIO_GC_TRACE_ROOTS, _epoch);
  roots.set_flags(VIRTIO_GC_RANGES);
  roots.set_entries(_ranges.adr_at(0), _ranges.length());
  // Stale: memory of an array has come to another donor since the trace began.
  // The trace goes on without these ranges (VGC-D-60).
  bool ok = roots.run() || (roots.has_status(VIRTIO_GC_STALE) ? ranges_read() : run_failed(&roots));
  _ranges.clear();
  return ok;
}

// Read the elements here, and send them as roots.  As with donors' own reads, what
// is overwritten meanwhile the barrier has noted.
bool DonorTrace::ranges_read() {
  DonorRootClosure roots(this);

  log_debug(gc, donor)("Donors' memory of large arrays has moved: %d are read here", _ranges.length());
  for (int i = 0; i < _ranges.length(); i++) {
    const struct virtio_gc_refs range = _ranges.at(i);
    for (uint64_t next = 0; next < range.count;) {
      if (!enter()) {
        return false;
      }
      for (const uint64_t end = MIN2((uint64_t)range.count, next + (uint64_t)roots_max()); next < end; next++) {
        const uint64_t at = range.address + next * heapOopSize;
        if (UseCompressedOops) {
          roots.do_oop((narrowOop*)at);
        } else {
          roots.do_oop((oop*)at);
        }
      }
      _client->heap_leave();
      if (!roots_send()) {
        return false;
      }
    }
  }
  return true;
}

// Wait until the trace is quiet, opaque objects wait, or, with roots, the client
// has many roots.
bool DonorTrace::wait(bool roots, bool* quiet, bool* opaque) {
  uint64_t met = UINT64_MAX;
  Ticks since = Ticks::now();

  for (;;) {
    if (_client->is_given_up()) {
      return give_up();
    }
    DonorCommand state(VIRTIO_GC_TRACE_STATE, _epoch);
    if (!run(&state)) {
      return false;
    }
    *quiet = (state.value() & VIRTIO_GC_STATE_QUIET) != 0;
    *opaque = (state.value() & VIRTIO_GC_STATE_MET) != 0;
    if (*quiet || *opaque || (roots && _client->roots_press())) {
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
// flags are for the first.  Each entry is taken while the heap is entered.
template <typename Entry, typename Take>
bool DonorTrace::met_take(uint32_t what, uint16_t flags, Take take) {
  struct virtio_gc_met head;
  uint64_t taken = 0;
  uint64_t left;
  Ticks since = Ticks::now();

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
    if (met.count<Entry>() > 0 && !enter()) {
      return false;
    }
    for (uint i = 0; i < met.count<Entry>(); i++) {
      if (i > 0 && !_client->heap_yield()) {
        return give_up();
      }
      if (!take(met.entries<Entry>()[i])) {
        _client->heap_leave();
        return false;
      }
    }
    if (met.count<Entry>() > 0) {
      _client->heap_leave();
    }
    left = met.value();
    flags = 0;
    taken += met.count<Entry>();
    if (met.count<Entry>() > 0) {
      since = Ticks::now();
    }
    // Donors look for weak objects in parts of the heap, in which there may be none.
    const double patience = what == VIRTIO_GC_MET_CLEAR ? PatienceSeconds : 0;
    if (left != 0 && (taken > DonorSpace::objects_max() ||
                      (met.count<Entry>() == 0 && (Ticks::now() - since).seconds() >= patience))) {
      return fail("donors find no end of what they have met", taken);
    }
  } while (left != 0);
  return true;
}

bool DonorTrace::opaque_take() {
  return met_take<uint64_t>(VIRTIO_GC_MET_OPAQUE, 0, [&](uint64_t address) {
    switch (_client->opaque(address)) {
    case DonorTraceClient::Scan:
      if (DonorTypes::klass_at(address) == nullptr) {
        return fail("donors met what is no object", address);
      }
      _client->opaque_found(cast_to_oop(address));
      scan(cast_to_oop(address));
      return true;
    case DonorTraceClient::Gone:
      return true;
    default:
      return fail("donors met what is no object", address);
    }
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
  auto is_followed = [&](ClassLoaderData* cld) { return _followed.contains(cld); };
  DonorHoldersClosure<decltype(is_followed)> left(is_followed);

  if (!enter()) {
    return false;
  }
  ClassLoaderDataGraph::cld_do(&left);
  _client->heap_leave();
  for (int from = 0; from < left.count(); from += roots_max()) {
    const int count = MIN2(roots_max(), left.count() - from);
    DonorCommand ask(VIRTIO_GC_TRACE_ASK, _epoch, (count + 7) / 8);
    ask.set_entries(left.holders(from), count);
    if (!run(&ask) || !enter()) {
      return false;
    }
    uint bytes = ask.count<uint8_t>();
    for (int i = 0; i < count; i++) {
      if ((uint)i / 8 < bytes && (ask.entries<uint8_t>()[i / 8] >> i % 8 & 1) != 0) {
        follow(left.cld(from + i));
      }
    }
    _client->heap_leave();
  }
  return true;
}

bool DonorTrace::weak_take() {
  _unkept.clear();
  return met_take<struct virtio_gc_weak>(VIRTIO_GC_MET_CLEAR, VIRTIO_GC_MET_AGAIN, [&](const struct virtio_gc_weak& weak) {
    if (_client->opaque(weak.object) == DonorTraceClient::Scan) {
      Klass* klass = DonorTypes::klass_at(weak.object);
      if (klass == nullptr || !klass->is_reference_instance_klass()) {
        return fail("donors met a weak reference that is none", weak.object);
      }
    }
    if (_client->is_kept(weak)) {
      root_add(weak.referent);
    } else {
      _unkept.append(weak.object);
    }
    return true;
  });
}

bool DonorTrace::settle() {
  bool more = true;

  for (;;) {
    bool quiet, opaque;

    if (++_turns > TurnsMax) {
      return fail("donors find no end, turns", _turns);
    }
    if ((more && !more_roots()) || !roots_send() || !ranges_send() ||
        !wait(more, &quiet, &opaque) || (opaque && !opaque_take())) {
      return false;
    }
    if (!quiet || has_roots()) {
      continue;
    }
    if (!types_take() || !holders_ask()) {
      return false;
    }
    if (has_roots()) {
      continue;
    }
    if (more) {
      more = _client->roots_again();
      if (more) {
        continue;
      }
    }
    if (!weak_take()) {
      return false;
    }
    if (!has_roots()) {
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

// A new trace ends the one before.
void DonorTrace::abandon() {
  const uint32_t epoch = ++_last_epoch;
  _is_left = true;
  DonorCommand start(VIRTIO_GC_TRACE_START, epoch);
  start.set_flags(VIRTIO_GC_TRACE_CONCURRENT);
  if (start.run()) {
    DonorCommand finish(VIRTIO_GC_TRACE_FINISH, epoch);
    _is_left = !finish.run();
  }
}

bool DonorTrace::run(const struct virtio_gc_region* regions, uint count) {
  bool finished = false;

  _regions = count;
  _begun = Ticks::now();
  const bool started = start(regions, count);
  _prepared = Ticks::now();
  if (started) {
    // A trace that has failed is finished to know why.
    bool settled = strong_roots();
    do {
      settled = settled && settle();
    } while (!_given_up && finish(&finished) && !finished && settled);
  }
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  if (_epoch == _last_epoch) {
    if (finished) {
      _is_left = false;
    } else {
      abandon();
    }
  }
  _traced = Ticks::now();
  return finished && !_failed;
}

const char* DonorTrace::name(Purpose purpose) {
  switch (purpose) {
  case ConcurrentMark:      return "Concurrent Mark";
  case ConcurrentMarkCheck: return "Concurrent Mark Check";
  case FullCollection:      return "Full Collection";
  default:                  return "Full Collection Check";
  }
}

void DonorTrace::end(bool success, uint64_t objects, uint64_t bytes) {
  if (_traced.value() == 0) {
    return;
  }
  if (!success && !_failed) {
    give_up();
  }
  if (success) {
    DonorStatus::trace_succeeded(_purpose);
  } else if (_given_up) {
    DonorStatus::trace_given_up(_purpose);
  } else {
    DonorStatus::trace_failed(_purpose, GCId::current_or_undefined(), failure());
  }
  EventDonorTrace event(UNTIMED);
  if (!event.should_commit()) {
    return;
  }
  const Ticks now = Ticks::now();
  event.set_starttime(_begun);
  event.set_endtime(now);
  event.gcId = GCId::current_or_undefined();
  event.epoch = _epoch;
  event.purpose = name(_purpose);
  event.succeeded = success;
  event.failure = success ? nullptr : failure();
  event.turns = _turns;
  event.rootsSent = _roots_sent;
  event.regions = _regions;
  event.liveObjects = objects;
  event.liveBytes = bytes;
  event.prepareTime = _prepared - _begun;
  event.traceTime = _traced - _prepared;
  event.resultTime = now - _traced;
  event.commit();
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
