/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/g1/g1CardSet.inline.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1CollectionSet.hpp"
#include "gc/g1/g1CollectionSetCandidates.inline.hpp"
#include "gc/g1/g1CollectorState.hpp"
#include "gc/g1/g1DonorKeep.hpp"
#include "gc/g1/g1DonorPrefetch.hpp"
#include "gc/g1/g1HeapRegion.inline.hpp"
#include "gc/g1/g1HeapRegionRemSet.inline.hpp"
#include "gc/g1/g1Policy.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorFeatures.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "logging/log.hpp"
#include "utilities/ticks.hpp"

#include <string.h>

G1DonorPrefetch* G1DonorPrefetch::_instance = nullptr;

// The cards of a remembered set, of old and humongous regions
class G1DonorPrefetchCards {
  G1DonorPrefetch* const _prefetch;
  size_t _first;                  // card of the region

public:
  G1DonorPrefetchCards(G1DonorPrefetch* prefetch) : _prefetch(prefetch), _first(0) {}

  bool start_iterate(uint tag, uint region) {
    const G1HeapRegion* hr = G1CollectedHeap::heap()->region_at_or_null(region);
    _first = (size_t)region << G1HeapRegion::LogCardsPerRegion;
    return hr != nullptr && hr->is_old_or_humongous();
  }

  void do_card(uint card) {
    _prefetch->add_card(_first + card);
  }

  void do_card_range(uint card, uint length) {
    for (uint i = 0; i < length; i++) {
      do_card(card + i);
    }
  }
};

G1DonorPrefetch::G1DonorPrefetch() :
    G1ServiceTask("Donor Prefetch Task"),
    _heap(G1CollectedHeap::heap()),
    _page_words(os::vm_page_size() / HeapWordSize),
    _pages(_heap->reserved().word_size() / _page_words, mtGC),
    _noted(_pages.size(), mtGC),
    _extents(),
    _count(0),
    _is_queued(false) {}

void G1DonorPrefetch::add_page(size_t page) {
  if (!_noted.at(page) && !_pages.at(page)) {
    _pages.set_bit(page);
    _count++;
  }
}

void G1DonorPrefetch::add_card(size_t card) {
  add_page((card << (CardTable::card_shift() - LogHeapWordSize)) / _page_words);
}

// A page with the end of an object only is not found.
void G1DonorPrefetch::add_region(const G1HeapRegion* region) {
  HeapWord* const top = region->top();
  HeapWord* const kept = region->are_marks_kept() ? region->parsable_bottom() : region->bottom();

  for (HeapWord* page = region->bottom(); page < top; page += _page_words) {
    HeapWord* const end = MIN2(page + _page_words, top);
    // Behind what was marked all may be alive.
    if (end > kept || G1DonorKeep::marks()->get_next_marked_addr(page, end) < end) {
      add_page(pointer_delta(page, _heap->reserved().start()) / _page_words);
    }
  }
}

void G1DonorPrefetch::add_group(G1CSetCandidateGroup* group) {
  G1DonorPrefetchCards cards(this);

  for (uint i = 0; i < group->length(); i++) {
    add_region(group->region_at(i));
  }
  G1HeapRegionRemSet::iterate_for_merge(group->card_set(), cards);
}

// In the order of addresses
void G1DonorPrefetch::note_pages() {
  const size_t page_bytes = _page_words * HeapWordSize;
  size_t end;

  for (size_t page = _pages.find_first_set_bit(0);
       page < _pages.size() && _extents.length() < ExtentsMax;
       page = _pages.find_first_set_bit(end)) {
    end = _pages.find_first_clear_bit(page);
    struct virtio_gc_extent extent;
    memset(&extent, 0, sizeof(extent));
    extent.offset = page * page_bytes;
    extent.bytes = (end - page) * page_bytes;
    _extents.append(extent);
  }
  _noted.set_union(_pages);
  _pages.clear_large();
}

void G1DonorPrefetch::note_next_collection() {
  const Ticks start = Ticks::now();
  G1CollectionSetCandidates* const candidates = _heap->collection_set()->candidates();
  const uint least = _heap->policy()->calc_min_old_cset_length(candidates->last_marking_candidates_length());
  const size_t most = DonorSpace::budget() / BudgetShare / (_page_words * HeapWordSize);
  uint regions = 0;
  bool is_least = true;

  _extents.clear();
  _noted.clear_large();
  _count = 0;
  for (G1CSetCandidateGroup* group : candidates->from_marking_groups()) {
    // Those that G1 takes in any case come before what it may take.
    if (is_least && regions >= least) {
      is_least = false;
      note_pages();
    }
    if (!is_least && _count >= most) {
      break;
    }
    add_group(group);
    regions += group->length();
  }
  note_pages();
  log_debug(gc, donor)("The next mixed collection may read %zu KiB of donors' memory in %d ranges, for %u regions; %.3fms",
                       _count * _page_words * HeapWordSize / K, _extents.length(), regions,
                       (Ticks::now() - start).seconds() * 1000.0);
}

void G1DonorPrefetch::after_pause() {
  G1CollectedHeap* const heap = G1CollectedHeap::heap();

  if (!DonorPrefetch || !G1DonorKeep::in_use() || !heap->collector_state()->in_mixed_phase() ||
      !DonorFeatures::can_fetch()) {
    return;
  }
  const bool is_new = _instance == nullptr;
  if (is_new) {
    _instance = new G1DonorPrefetch();
  }
  _instance->note_next_collection();
  // Set in safepoints only, and cleared by a thread that these wait for.
  if (_instance->_is_queued) {
    return;
  }
  _instance->_is_queued = true;
  if (is_new) {
    heap->service_thread()->register_task(_instance);
  } else {
    heap->service_thread()->schedule_task(_instance, 0);
  }
}

void G1DonorPrefetch::send(GrowableArrayView<struct virtio_gc_extent>* extents) {
  const int most = (int)((DonorSpace::request_max() - sizeof(struct virtio_gc_req) - sizeof(struct virtio_gc_hint)) /
                         sizeof(struct virtio_gc_extent));
  struct virtio_gc_hint hint;

  memset(&hint, 0, sizeof(hint));
  hint.what = VIRTIO_GC_HINT_FETCH;
  for (int from = 0; from < extents->length(); from += most) {
    DonorCommand command(VIRTIO_GC_HINT, 0);
    command.set_arg(&hint);
    command.set_entries(extents->adr_at(from), (uint)MIN2(most, extents->length() - from));
    if (!command.run()) {
      stringStream why;
      command.print_failure(&why);
      log_debug(gc, donor)("Memory for the next mixed collection is not brought in: %s", why.base());
      return;
    }
  }
  DonorStatus::prefetched();
}

void G1DonorPrefetch::execute() {
  GrowableArrayCHeap<struct virtio_gc_extent, mtGC> extents;
  {
    SuspendibleThreadSetJoiner in_no_pause;
    extents.swap(&_extents);
    _is_queued = false;
  }
  send(&extents);
}
