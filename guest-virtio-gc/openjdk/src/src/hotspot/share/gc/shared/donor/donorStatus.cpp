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
#include "gc/shared/donor/donorStatus.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "gc/shared/gcArguments.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/gc_globals.hpp"
#include "jvm_io.h"
#include "runtime/atomic.hpp"
#include "runtime/mutexLocker.hpp"
#include "runtime/os.hpp"
#include "utilities/ostream.hpp"

Mutex* DonorStatus::_lock = nullptr;
DonorStatus::State DonorStatus::_state;
volatile uint64_t DonorStatus::_commands = 0;
volatile uint64_t DonorStatus::_prefetches = 0;
volatile uint64_t DonorStatus::_commands_failed = 0;
volatile uint64_t DonorStatus::_bytes_sent = 0;
volatile uint64_t DonorStatus::_bytes_received = 0;

void DonorStatus::initialize() {
  _lock = new Mutex(Mutex::nosafepoint, "DonorStatus_lock");
}

void DonorStatus::command_ended(bool ok, size_t sent, size_t received) {
  Atomic::add(&_commands, (uint64_t)1);
  Atomic::add(&_commands_failed, (uint64_t)(ok ? 0 : 1));
  Atomic::add(&_bytes_sent, (uint64_t)sent);
  Atomic::add(&_bytes_received, (uint64_t)received);
}

void DonorStatus::trace_succeeded(DonorTrace::Purpose purpose) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.traces[purpose].succeeded++;
}

void DonorStatus::trace_given_up(DonorTrace::Purpose purpose) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.traces[purpose].given_up++;
}

// With the lock
void DonorStatus::failed(uint gc_id, const char* why) {
  _state.failure_ms = os::javaTimeMillis();
  _state.failure_gc = gc_id;
  jio_snprintf(_state.failure, sizeof(_state.failure), "%s", why);
}

void DonorStatus::trace_failed(DonorTrace::Purpose purpose, uint gc_id, const char* why) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.traces[purpose].failed++;
  failed(gc_id, why);
}

void DonorStatus::search_succeeded() {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.searches_succeeded++;
}

void DonorStatus::search_failed(uint gc_id, const char* why) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.searches_failed++;
  failed(gc_id, why);
}

void DonorStatus::prefetched() {
  Atomic::inc(&_prefetches);
}

void DonorStatus::compaction_succeeded() {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.compactions_succeeded++;
}

void DonorStatus::compaction_failed(uint gc_id, const char* why) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.compactions_failed++;
  failed(gc_id, why);
}

void DonorStatus::leave_out(uint cycles) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.cycles_to_leave_out = cycles;
}

void DonorStatus::left_out(uint cycles) {
  MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
  _state.cycles_left_out++;
  _state.cycles_to_leave_out = cycles;
}

void DonorStatus::print_traces(outputStream* st, const State& state, DonorTrace::Purpose purpose) {
  const Traces& traces = state.traces[purpose];
  st->print_cr("Traces for %s: %u succeeded, %u failed, %u ended with the collection",
               DonorTrace::name(purpose), traces.succeeded, traces.failed, traces.given_up);
}

void DonorStatus::print_marking(outputStream* st, const State& state) {
  stringStream why;

  if (!DonorMark) {
    st->print_cr("Concurrent marking: not by donors (DonorMark is off)");
    return;
  }
  // Of G1 it is the size of regions.
  if (!DonorFeatures::can_trace(SpaceAlignment, &why)) {
    st->print_cr("Concurrent marking: by G1: %s", why.base());
  } else if (state.cycles_to_leave_out == Never) {
    st->print_cr("Concurrent marking: by G1: donors cannot read the heap");
  } else if (DonorCheck) {
    st->print_cr("Concurrent marking: by G1, and by donors to compare (DonorCheck is on)");
  } else {
    st->print_cr("Concurrent marking: by donors");
  }
  print_traces(st, state, DonorCheck ? DonorTrace::ConcurrentMarkCheck : DonorTrace::ConcurrentMark);
  if (DonorRebuild) {
    st->print_cr("Searches for cards: %u succeeded, %u failed", state.searches_succeeded, state.searches_failed);
  }
  st->print_cr("Cycles in which donors were not asked: %u", state.cycles_left_out);
  if (state.cycles_to_leave_out == Never) {
    st->print_cr("Donors are asked again: not any more");
  } else if (state.cycles_to_leave_out > 0) {
    st->print_cr("Donors are asked again: after %u more", state.cycles_to_leave_out);
  } else {
    st->print_cr("Donors are asked again: in the next cycle");
  }
}

void DonorStatus::print_full(outputStream* st, const State& state) {
  if (DonorCheck) {
    print_traces(st, state, DonorTrace::FullCollectionCheck);
  } else if (DonorCompact) {
    print_traces(st, state, DonorTrace::FullCollection);
    st->print_cr("Full collections that donors have compacted: %u; in %u they have failed",
                 state.compactions_succeeded, state.compactions_failed);
  }
}

void DonorStatus::print_failure(outputStream* st, const State& state) {
  char when[os::iso8601_timestamp_size];

  if (state.failure_ms == 0) {
    st->print_cr("Last failure: none");
    return;
  }
  st->print("Last failure: ");
  if (state.failure_gc != GCId::undefined()) {
    st->print("GC(%u), ", state.failure_gc);
  }
  st->print_cr("%s, %.1f s ago: %s", os::iso8601_time(state.failure_ms, when, sizeof(when)),
               (double)(os::javaTimeMillis() - state.failure_ms) / MILLIUNITS, state.failure);
}

void DonorStatus::print(outputStream* st) {
  State state;

  if (!DonorSpace::in_use()) {
    st->print_cr("The heap is not on donors (DonorHeap is not set)");
    return;
  }
  {
    MutexLocker x(_lock, Mutex::_no_safepoint_check_flag);
    state = _state;
  }
  DonorSpace::print(st);
  st->print("Features: ");
  DonorFeatures::print(st);
  st->cr();
  print_marking(st, state);
  if (DonorRebuild && DonorPrefetch) {
    st->print_cr("Mixed collections whose memory was asked for before: " UINT64_FORMAT, Atomic::load(&_prefetches));
  }
  print_full(st, state);
  print_failure(st, state);
  st->print_cr("Commands: " UINT64_FORMAT ", of which " UINT64_FORMAT " failed; " UINT64_FORMAT " bytes sent, "
               UINT64_FORMAT " received", Atomic::load(&_commands), Atomic::load(&_commands_failed),
               Atomic::load(&_bytes_sent), Atomic::load(&_bytes_received));
}
