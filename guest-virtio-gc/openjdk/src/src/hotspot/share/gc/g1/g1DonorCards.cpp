/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CardTable.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1DonorCards.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/g1/g1HeapRegionRemSet.inline.hpp"
#include "gc/g1/g1OopClosures.inline.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/donor/donorTypes.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "logging/log.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/objArrayOop.inline.hpp"
#include "oops/oop.inline.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

uint32_t G1DonorCards::_epoch = 0;
G1DonorLate G1DonorCards::_late;

// The main marker thread has no worker of its own; none runs meanwhile.
static const uint Worker = 0;

void G1DonorCards::note_marked(uint32_t epoch) {
  _late.begin();
  _epoch = epoch;
}

void G1DonorCards::forget() {
  _late.end();
  _epoch = 0;
}

G1DonorCards::G1DonorCards(G1ConcurrentMark* cm) :
    _heap(G1CollectedHeap::heap()),
    _cm(cm),
    _regions(),
    _ranges(),
    _done(_heap->max_num_regions(), mtGC),
    _moved(_heap->max_num_regions(), mtGC),
    _failure(),
    _cards(0),
    _commands(0) {}

bool G1DonorCards::is_done(const G1HeapRegion* region) const {
  return _done.at(region->hrm_index());
}

bool G1DonorCards::fail(const char* why, uint64_t what) {
  _failure.print("%s: " UINT64_FORMAT_X, why, what);
  return false;
}

bool G1DonorCards::run(DonorCommand* command) {
  _commands++;
  if (command->run()) {
    return true;
  }
  command->print_failure(&_failure);
  return false;
}

// False: the cycle has ended, and the heap is left.
bool G1DonorCards::enter() {
  SuspendibleThreadSet::join();
  if (_cm->has_aborted()) {
    SuspendibleThreadSet::leave();
    return fail("the collection has ended, commands", _commands);
  }
  return true;
}

// It still is what it was in Remark.
bool G1DonorCards::is_source(uint region) const {
  G1HeapRegion* hr = _heap->region_at_or_null(region);
  return hr != nullptr && hr->is_old_or_humongous() && _cm->top_at_rebuild_start(hr) != nullptr;
}

// Objects above the trace's tops can be of classes that were loaded since.
bool G1DonorCards::types_add() {
  DonorTypes types;

  if (!enter()) {
    return false;
  }
  const bool taken = types.take(&_failure);
  SuspendibleThreadSet::leave();
  return taken && types.send_new(&_failure);
}

bool G1DonorCards::regions_take() {
  if (!enter()) {
    return false;
  }
  for (uint i = 0; i < _heap->max_num_regions(); i++) {
    G1HeapRegion* hr = _heap->region_at_or_null(i);
    struct virtio_gc_region r;
    if (hr == nullptr || hr->is_free()) {
      continue;
    }
    memset(&r, 0, sizeof(r));
    r.region = i;
    if (hr->rem_set()->is_updating()) {
      r.flags |= VIRTIO_GC_REGION_TARGET;
    }
    // In a region that was not traced donors do not know what lives.
    const bool known = hr->is_old() && !hr->are_marks_kept();
    if (is_source(i) && known && !_moved.at(i)) {
      r.flags |= VIRTIO_GC_REGION_SOURCE;
      r.top = (uint64_t)pointer_delta(_cm->top_at_rebuild_start(hr), _heap->reserved().start(), 1);
      _done.set_bit(i);
    }
    if (r.flags != 0) {
      _regions.append(r);
    }
    if (is_source(i) && hr->is_starts_humongous() && cast_to_oop(hr->bottom())->is_objArray()) {
      bool moved = false;
      _heap->humongous_obj_regions_iterate(hr, [&] (G1HeapRegion* part) { moved |= _moved.at(part->hrm_index()); });
      if (moved) {
        continue;
      }
      objArrayOop array = objArrayOop(cast_to_oop(hr->bottom()));
      struct virtio_gc_refs range;
      range.address = cast_from_oop<uint64_t>(array) + objArrayOopDesc::base_offset_in_bytes();
      range.count = (uint64_t)array->length();
      if (range.count != 0) {
        _ranges.append(range);
      }
      _heap->humongous_obj_regions_iterate(hr, [&] (G1HeapRegion* part) { _done.set_bit(part->hrm_index()); });
    }
  }
  SuspendibleThreadSet::leave();
  return true;
}

// In parts: a command has a deadline.
bool G1DonorCards::clean() {
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> some;

  for (int i = 0; i < _regions.length(); i++) {
    struct virtio_gc_region r = _regions.at(i);
    if ((r.flags & VIRTIO_GC_REGION_SOURCE) != 0) {
      r.flags = 0;
      r.top = 0;
      some.append(r);
    }
    if (some.length() == (int)CleanMax || (i == _regions.length() - 1 && !some.is_empty())) {
      DonorCommand clean(VIRTIO_GC_CLEAN, 0);
      clean.set_entries(some.adr_at(0), some.length());
      if (!run(&clean)) {
        return false;
      }
      some.clear();
    }
  }
  return true;
}

// Scan what lies in a card, because donors could not.
void G1DonorCards::scan_card(G1HeapRegion* from, HeapWord* start) {
  G1RebuildRemSetClosure closure(_heap, Worker);
  HeapWord* const end = MIN2(start + G1CardTable::card_size_in_words(), _cm->top_at_rebuild_start(from));

  if (start < end) {
    from->oops_on_memregion_seq_iterate_careful<false>(MemRegion(start, end), &closure);
  }
}

bool G1DonorCards::take_card(const struct virtio_gc_card& card) {
  const size_t words = (size_t)card.card << (CardTable::card_shift() - LogHeapWordSize);

  if (words >= _heap->reserved().word_size()) {
    return fail("donors found a card outside of the heap", card.card);
  }
  HeapWord* const start = _heap->reserved().start() + words;
  if (!is_source(_heap->addr_to_region(start))) {
    return true;
  }
  G1HeapRegion* const from = _heap->heap_region_containing(start);
  if (card.region == VIRTIO_GC_NO_REGION) {
    scan_card(from, start);
    return true;
  }
  if (card.region >= _heap->max_num_regions()) {
    return fail("donors found a reference into no region", card.region);
  }
  G1HeapRegion* const to = _heap->region_at_or_null(card.region);
  if (to == nullptr || to == from || !to->rem_set()->is_updating() ||
      from->rem_set()->cset_group() == to->rem_set()->cset_group()) {
    return true;
  }
  to->rem_set()->add_reference((narrowOop*)start, Worker);
  return true;
}

bool G1DonorCards::take(DonorCommand* command) {
  const uint count = command->count<struct virtio_gc_card>();

  if (!enter()) {
    return false;
  }
  for (uint i = 0; i < count; i++) {
    if (!take_card(command->entries<struct virtio_gc_card>()[i])) {
      SuspendibleThreadSet::leave();
      return false;
    }
  }
  SuspendibleThreadSet::leave();
  _cards += count;
  return true;
}

// moved: a region that is not where it was, or the number of regions
bool G1DonorCards::ask(uint16_t flags, const void* entries, uint count, bool* left, uint* moved) {
  const size_t room = DonorSpace::response_max() - sizeof(struct virtio_gc_done);
  struct virtio_gc_cards cards;

  memset(&cards, 0, sizeof(cards));
  cards.max = (uint32_t)(room / sizeof(struct virtio_gc_card));
  if (flags == VIRTIO_GC_CARDS_BEGIN) {
    cards.shift = (uint8_t)CardTable::card_shift();
  }
  DonorCommand command(VIRTIO_GC_TRACE_CARDS, _epoch, room);
  command.set_flags(flags);
  command.set_arg(&cards);
  if (flags == VIRTIO_GC_RANGES) {
    command.set_entries((const struct virtio_gc_refs*)entries, count);
  } else if (flags != 0) {
    command.set_entries((const struct virtio_gc_region*)entries, count);
  }
  if (!run(&command)) {
    if (command.has_status(VIRTIO_GC_STALE)) {
      *moved = (uint)MIN2(command.at() / G1HeapRegion::GrainBytes, (uint64_t)_heap->max_num_regions());
    }
    return false;
  }
  *left = command.value() != 0;
  return take(&command);
}

bool G1DonorCards::search(uint* moved) {
  const int most = (int)((DonorSpace::request_max() - sizeof(struct virtio_gc_req) - sizeof(struct virtio_gc_cards)) /
                         sizeof(struct virtio_gc_refs));
  bool left = false;

  if (!ask(VIRTIO_GC_CARDS_BEGIN, _regions.adr_at(0), (uint)_regions.length(), &left, moved)) {
    return false;
  }
  for (int i = 0; i < _ranges.length(); i += most) {
    if (!ask(VIRTIO_GC_RANGES, _ranges.adr_at(i), (uint)MIN2(most, _ranges.length() - i), &left, moved)) {
      return false;
    }
  }
  while (left) {
    if (!ask(0, nullptr, 0, &left, moved)) {
      return false;
    }
  }
  return true;
}

bool G1DonorCards::scan_late() {
  G1RebuildRemSetClosure closure(_heap, Worker);
  const uint count = _late.count();

  if (_late.is_full()) {
    return fail("G1 has marked too many objects after donors", count);
  }
  if (!enter()) {
    return false;
  }
  for (uint i = 0; i < count; i++) {
    if (SuspendibleThreadSet::should_yield()) {
      SuspendibleThreadSet::yield();
      if (_cm->has_aborted()) {
        SuspendibleThreadSet::leave();
        return fail("the collection has ended, late objects", i);
      }
    }
    if (is_source(_heap->addr_to_region(_late.at(i)))) {
      cast_to_oop(_late.at(i))->oop_iterate(&closure);
    }
  }
  SuspendibleThreadSet::leave();
  return true;
}

bool G1DonorCards::rebuild() {
  if (!types_add()) {
    return false;
  }
  for (uint tries = 0; tries < MovedMax; tries++) {
    uint moved = _heap->max_num_regions();
    _regions.clear();
    _ranges.clear();
    _done.clear();
    if (!regions_take()) {
      return false;
    }
    if (_regions.is_empty()) {
      return true;
    }
    if (clean() && search(&moved)) {
      return scan_late();
    }
    if (moved == _heap->max_num_regions() || _moved.at(moved)) {
      return false;
    }
    _failure.reset();
    _moved.set_bit(moved);
  }
  return fail("too many regions have moved", MovedMax);
}

void G1DonorCards::run() {
  const Ticks start = Ticks::now();

  if (_epoch == 0) {
    return;
  }
  const bool rebuilt = rebuild();
  const uint late = _late.count();
  forget();
  if (rebuilt) {
    DonorStatus::search_succeeded();
    log_info(gc, donor)("Donors have found " UINT64_FORMAT " cards in %zu regions; %u late objects, %u commands; %.1fms",
                        _cards, _done.count_one_bits(), late, _commands, (Ticks::now() - start).seconds() * 1000.0);
    return;
  }
  _done.clear();
  if (!_cm->has_aborted()) {
    DonorStatus::search_failed(GCId::current_or_undefined(), _failure.base());
    log_info(gc, donor)("G1 rebuilds remembered sets by itself: %s", _failure.base());
  }
}
