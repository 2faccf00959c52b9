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
#include "gc/g1/g1DonorMoves.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "memory/resourceArea.hpp"
#include "oops/oop.inline.hpp"
#include "utilities/align.hpp"
#include "utilities/bitMap.inline.hpp"
#include "utilities/population_count.hpp"
#include "utilities/quickSort.hpp"

#include <string.h>

// Alignment of tables
static const size_t TableAlignment = 16;

static size_t table_words() {
  return G1HeapRegion::GrainWords / BitsPerWord;
}

static size_t table_bytes(size_t objects) {
  return align_up(table_words() * sizeof(struct virtio_gc_forward) + objects * sizeof(uint32_t), TableAlignment);
}

// Entries of T that a request has room for
template <typename T>
static int request_entries() {
  return (int)((DonorSpace::request_max() - sizeof(struct virtio_gc_req)) / sizeof(T));
}

// Bytes of objects that a command moves or reads, at most, but for those of its first
// entry: it has a deadline.
static const size_t CommandBytes = 32 * M;

// Of the entries from .. to: the end of those that a command takes.
template <typename F>
static int part_end(int from, int to, F bytes_of) {
  size_t bytes = bytes_of(from);
  int end = from + 1;

  while (end < to && bytes < CommandBytes) {
    bytes += bytes_of(end++);
  }
  return end;
}

G1DonorMoves::G1DonorMoves() :
    _heap(G1CollectedHeap::heap()),
    _bitmap(_heap->concurrent_mark()->mark_bitmap()),
    _count(_heap->max_num_regions()),
    _epoch(0),
    _move_of(NEW_C_HEAP_ARRAY(int, _count, mtGC)),
    _ends(NEW_C_HEAP_ARRAY(HeapWord*, _count, mtGC)),
    _candidates(),
    _free(),
    _moves(),
    _move_words(),
    _updates(),
    _arrays(),
    _moved_words(0),
    _targets(0),
    _failure() {
  for (uint i = 0; i < _count; i++) {
    _move_of[i] = -1;
    _ends[i] = nullptr;
  }
}

G1DonorMoves::~G1DonorMoves() {
  FREE_C_HEAP_ARRAY(HeapWord*, _ends);
  FREE_C_HEAP_ARRAY(int, _move_of);
}

// The first failure is the one that is told.
bool G1DonorMoves::fail(const char* why, uint64_t what) {
  if (_failure.is_empty()) {
    _failure.print("%s: " UINT64_FORMAT_X, why, what);
  }
  return false;
}

bool G1DonorMoves::run(DonorCommand* command) {
  if (command->run()) {
    return true;
  }
  if (_failure.is_empty()) {
    command->print_failure(&_failure);
  }
  return false;
}

uint64_t G1DonorMoves::space_offset(uint region) const {
  return (uint64_t)region * G1HeapRegion::GrainBytes;
}

void G1DonorMoves::add_candidate(uint region, size_t live_words, size_t objects) {
  Candidate c = { VIRTIO_GC_NO_DONOR, region, live_words, table_bytes(objects), true };
  _candidates.append(c);
}

void G1DonorMoves::add_free(uint region, bool was_traced) {
  Candidate c = { VIRTIO_GC_NO_DONOR, region, 0, 0, was_traced };
  _free.append(c);
}

void G1DonorMoves::add_update(uint region, HeapWord* top) {
  struct virtio_gc_region r;
  memset(&r, 0, sizeof(r));
  r.region = region;
  r.top = (uint64_t)pointer_delta(top, _heap->reserved().start(), 1);
  _updates.append(r);
}

void G1DonorMoves::add_array(HeapWord* first, size_t count) {
  struct virtio_gc_refs range;
  range.address = (uint64_t)first;
  range.count = count;
  _arrays.append(range);
}

void G1DonorMoves::donors_set(GrowableArrayView<Candidate>* of, const uint32_t* donors) {
  for (int i = 0; i < of->length(); i++) {
    of->at(i).donor = donors[of->at(i).region];
  }
}

// Which donor each region lies with
bool G1DonorMoves::donors_ask() {
  ResourceMark rm;
  uint32_t* const of_regions = NEW_RESOURCE_ARRAY(uint32_t, _count);
  const uint most = (uint)(DonorSpace::response_max() / sizeof(uint32_t));

  for (uint from = 0; from < _count; from += most) {
    const uint some = MIN2(most, _count - from);
    struct virtio_gc_range range;
    memset(&range, 0, sizeof(range));
    range.first = from;
    range.regions = some;
    DonorCommand donors(VIRTIO_GC_SPACE_DONORS, 0, some * sizeof(uint32_t));
    donors.set_arg(&range);
    if (!run(&donors)) {
      return false;
    }
    if (donors.count<uint32_t>() != some) {
      return fail("donors of too few regions", donors.count<uint32_t>());
    }
    memcpy(of_regions + from, donors.entries<uint32_t>(), some * sizeof(uint32_t));
  }
  donors_set(&_candidates, of_regions);
  donors_set(&_free, of_regions);
  return true;
}

// By donor, the least filled first
int G1DonorMoves::compare(const Candidate& a, const Candidate& b) {
  if (a.donor != b.donor) {
    return a.donor < b.donor ? -1 : 1;
  }
  if (a.live_words != b.live_words) {
    return a.live_words < b.live_words ? -1 : 1;
  }
  return a.region < b.region ? -1 : a.region > b.region;
}

// The candidates from .. to of a donor, and its free regions.  Returns the candidate
// before which to end, to leave the most regions free.
int G1DonorMoves::plan_donor(int from, int to, int free, int free_end, bool make) {
  int best = from;
  int most_gain = 0;
  int next = free;
  int targets = 0;
  uint target = 0;
  size_t target_words = 0;        // left in it
  uint64_t table = 0;
  size_t tables_left = 0;

  for (int i = from; i < to; i++) {
    const Candidate& c = _candidates.at(i);
    const bool needs_target = c.live_words > target_words;
    const bool needs_tables = c.table_bytes > tables_left;
    if ((needs_target ? 1 : 0) + (needs_tables ? 1 : 0) > free_end - next) {
      break;
    }
    if (needs_target) {
      target = _free.at(next++).region;
      target_words = G1HeapRegion::GrainWords;
    }
    if (needs_tables) {
      table = space_offset(_free.at(next++).region);
      tables_left = G1HeapRegion::GrainBytes;
    }
    if (make) {
      struct virtio_gc_move m;
      memset(&m, 0, sizeof(m));
      m.from = c.region;
      m.to = target;
      m.start = space_offset(target) + (G1HeapRegion::GrainWords - target_words) * HeapWordSize;
      m.table = table;
      m.table_bytes = c.table_bytes;
      _moves.append(m);
      _move_words.append(c.live_words);
    }
    target_words -= c.live_words;
    table += c.table_bytes;
    tables_left -= c.table_bytes;
    targets += needs_target ? 1 : 0;
    // Those of tables are free again soon.
    const int gain = i + 1 - from - targets;
    if (gain > most_gain) {
      most_gain = gain;
      best = i + 1;
    }
  }
  return best;
}

void G1DonorMoves::plan() {
  int free = 0;
  int to;

  QuickSort::sort(_candidates.adr_at(0), _candidates.length(), compare);
  QuickSort::sort(_free.adr_at(0), _free.length(), compare);
  for (int from = 0; from < _candidates.length(); from = to) {
    const uint donor = _candidates.at(from).donor;
    for (to = from; to < _candidates.length() && _candidates.at(to).donor == donor;) {
      to++;
    }
    while (free < _free.length() && _free.at(free).donor < donor) {
      free++;
    }
    int free_end = free;
    while (free_end < _free.length() && _free.at(free_end).donor == donor) {
      free_end++;
    }
    if (donor != VIRTIO_GC_NO_DONOR) {
      plan_donor(from, plan_donor(from, to, free, free_end, false), free, free_end, true);
    }
  }
}

// What donors know of these regions is of no use any more.
bool G1DonorMoves::release(GrowableArrayView<struct virtio_gc_region>* regions) {
  const int most = request_entries<struct virtio_gc_region>();

  for (int from = 0; from < regions->length(); from += most) {
    DonorCommand command(VIRTIO_GC_RELEASE, _epoch);
    command.set_entries(regions->adr_at(from), (uint)MIN2(most, regions->length() - from));
    if (!run(&command)) {
      return false;
    }
  }
  return true;
}

bool G1DonorMoves::move_some(int first, int count) {
  DonorCommand command(VIRTIO_GC_EVACUATE, _epoch, count * sizeof(struct virtio_gc_moved));

  command.set_entries(_moves.adr_at(first), (uint)count);
  if (!run(&command)) {
    return false;
  }
  if (command.count<struct virtio_gc_moved>() != (uint)count) {
    return fail("donors answer another number of moves", command.count<struct virtio_gc_moved>());
  }
  for (int i = 0; i < count; i++) {
    const struct virtio_gc_moved& moved = command.entries<struct virtio_gc_moved>()[i];
    const struct virtio_gc_move& m = _moves.at(first + i);
    if (moved.status != VIRTIO_GC_OK || moved.from != m.from || moved.to != m.to || moved.table != m.table ||
        moved.table_bytes > m.table_bytes ||
        moved.end != m.start + _move_words.at(first + i) * HeapWordSize) {
      return fail("donors have moved a region in another way, region", m.from);
    }
  }
  return true;
}

bool G1DonorMoves::move() {
  const int most = MIN2(request_entries<struct virtio_gc_move>(),
                        (int)(DonorSpace::response_max() / sizeof(struct virtio_gc_moved)));
  int to;

  for (int from = 0; from < _moves.length(); from = to) {
    to = part_end(from, MIN2(from + most, _moves.length()),
                  [&] (int i) { return _move_words.at(i) * HeapWordSize; });
    if (!move_some(from, to - from)) {
      return false;
    }
  }
  return true;
}

// starts: of copies in the region that the move goes to
bool G1DonorMoves::check_table(int i, BitMap* starts) {
  const struct virtio_gc_move& m = _moves.at(i);
  HeapWord* const bottom = _heap->bottom_addr_for_region(m.from);
  const struct virtio_gc_forward* words =
      (const struct virtio_gc_forward*)((char*)_heap->reserved().start() + m.table);
  const uint32_t* places = (const uint32_t*)(words + table_words());
  const size_t first = (m.start - space_offset(m.to)) / HeapWordSize;
  const size_t end = first + _move_words.at(i);
  uint32_t objects = 0;

  for (size_t word = 0; word < table_words(); word++) {
    const uint64_t marks = _bitmap->word(bottom + word * BitsPerWord);
    if (words[word].starts != marks || words[word].before != objects) {
      return fail("donors' table of moves is not right, region", m.from);
    }
    objects += population_count(marks);
  }
  for (uint32_t n = 0; n < objects; n++) {
    const uint32_t place = places[n];
    if (place < first || place >= end || starts->at(place)) {
      return fail("donors have moved two objects to one place, region", m.from);
    }
    starts->set_bit(place);
  }
  if (!starts->at(first)) {
    return fail("donors have moved no object to the first place, region", m.from);
  }
  return true;
}

// Copies are side by side.
void G1DonorMoves::set_block_offsets(uint region, const BitMap& starts) {
  G1HeapRegion* const hr = _heap->region_at(region);
  const size_t end = pointer_delta(_ends[region], hr->bottom());

  for (size_t at = 0; at < end;) {
    const size_t next = starts.find_first_set_bit(at + 1, end);
    hr->update_bot_for_block(hr->bottom() + at, hr->bottom() + next);
    at = next;
  }
}

bool G1DonorMoves::check() {
  CHeapBitMap starts(G1HeapRegion::GrainWords, mtGC);

  for (int i = 0; i < _moves.length(); i++) {
    const struct virtio_gc_move& m = _moves.at(i);
    if (!check_table(i, &starts)) {
      return false;
    }
    _move_of[m.from] = i;
    _ends[m.to] = _heap->reserved().start() + m.start / HeapWordSize + _move_words.at(i);
    _moved_words += _move_words.at(i);
    // Moves to a region are in order.
    if (i + 1 == _moves.length() || _moves.at(i + 1).to != m.to) {
      set_block_offsets(m.to, starts);
      starts.clear();
      _targets++;
    }
  }
  return true;
}

bool G1DonorMoves::make_moves() {
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> dead;

  for (int i = 0; i < _free.length(); i++) {
    if (_free.at(i).was_traced) {
      struct virtio_gc_region r;
      memset(&r, 0, sizeof(r));
      r.region = _free.at(i).region;
      dead.append(r);
    }
  }
  return release(&dead) && move() && check();
}

bool G1DonorMoves::make(uint32_t epoch) {
  _epoch = epoch;
  if (!donors_ask()) {
    return false;
  }
  plan();
  if (_moves.is_empty() || make_moves()) {
    return true;
  }
  end();
  return false;
}

// Not what was moved, but the copies
void G1DonorMoves::updates_choose() {
  int kept = 0;

  for (int i = 0; i < _updates.length(); i++) {
    if (!is_from(_updates.at(i).region)) {
      _updates.at_put(kept++, _updates.at(i));
    }
  }
  _updates.trunc_to(kept);
  for (uint i = 0; i < _count; i++) {
    if (_ends[i] != nullptr) {
      add_update(i, _ends[i]);
    }
  }
}

bool G1DonorMoves::update_regions() {
  const int most = request_entries<struct virtio_gc_region>();
  int to;

  for (int from = 0; from < _updates.length(); from = to) {
    to = part_end(from, MIN2(from + most, _updates.length()),
                  [&] (int i) { return _updates.at(i).top - space_offset(_updates.at(i).region); });
    DonorCommand command(VIRTIO_GC_UPDATE, _epoch);
    command.set_entries(_updates.adr_at(from), (uint)(to - from));
    if (!run(&command)) {
      return false;
    }
  }
  return true;
}

bool G1DonorMoves::update_arrays() {
  const int most = request_entries<struct virtio_gc_refs>();
  int to;

  for (int from = 0; from < _arrays.length(); from = to) {
    to = part_end(from, MIN2(from + most, _arrays.length()),
                  [&] (int i) { return _arrays.at(i).count * heapOopSize; });
    DonorCommand command(VIRTIO_GC_UPDATE, _epoch);
    command.set_flags(VIRTIO_GC_RANGES);
    command.set_entries(_arrays.adr_at(from), (uint)(to - from));
    if (!run(&command)) {
      return false;
    }
  }
  return true;
}

bool G1DonorMoves::update() {
  if (_moves.is_empty()) {
    return true;
  }
  updates_choose();
  return update_regions() && update_arrays();
}

// If donors fail here they have forgotten the moves, with the trace.
void G1DonorMoves::end() {
  GrowableArrayCHeap<struct virtio_gc_region, mtGC> from;

  for (int i = 0; i < _moves.length(); i++) {
    struct virtio_gc_region r;
    memset(&r, 0, sizeof(r));
    r.region = _moves.at(i).from;
    from.append(r);
  }
  release(&from);
}

oop G1DonorMoves::moved_to(oop obj) const {
  const uint region = _heap->addr_to_region(obj);
  const int i = _move_of[region];

  if (i < 0 || !_bitmap->is_marked(obj)) {
    return obj;
  }
  const struct virtio_gc_move& m = _moves.at(i);
  const size_t unit = pointer_delta(cast_from_oop<HeapWord*>(obj), _heap->bottom_addr_for_region(region));
  const struct virtio_gc_forward* words =
      (const struct virtio_gc_forward*)((char*)_heap->reserved().start() + m.table);
  const uint64_t below = words[unit / BitsPerWord].starts & (((uint64_t)1 << unit % BitsPerWord) - 1);
  const size_t n = words[unit / BitsPerWord].before + population_count(below);
  const size_t place = n < G1HeapRegion::GrainWords ? ((const uint32_t*)(words + table_words()))[n] : SIZE_MAX;
  const size_t first = (m.start - space_offset(m.to)) / HeapWordSize;
  // It was checked, but donors have the memory.
  guarantee(place >= first && place - first < _move_words.at(i),
            "donors have changed the table of moved region %u", region);
  return cast_to_oop(_heap->bottom_addr_for_region(m.to) + place);
}
