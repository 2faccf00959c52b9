/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORSTATUS_HPP
#define SHARE_GC_SHARED_DONOR_DONORSTATUS_HPP

#include "gc/shared/donor/donorTrace.hpp"
#include "memory/allStatic.hpp"
#include "utilities/globalDefinitions.hpp"

class Mutex;
class outputStream;

// What donors have done so far, and whether they are asked again, for
// `jcmd PID GC.donors`.  Any thread may tell of something, and any may ask.
class DonorStatus : AllStatic {
public:
  // Donors are not asked any more.
  static const uint Never = UINT_MAX;

private:
  struct Traces {
    uint succeeded;
    uint failed;
    uint given_up;
  };

  // With the lock
  struct State {
    Traces traces[DonorTrace::Purposes];
    uint searches_succeeded;
    uint searches_failed;
    uint compactions_succeeded;
    uint compactions_failed;
    uint cycles_left_out;
    uint cycles_to_leave_out;
    jlong failure_ms;
    uint failure_gc;
    char failure[256];
  };

  static Mutex* _lock;
  static State _state;
  static volatile uint64_t _commands;
  static volatile uint64_t _prefetches;
  static volatile uint64_t _commands_failed;
  static volatile uint64_t _bytes_sent;
  static volatile uint64_t _bytes_received;

  static void failed(uint gc_id, const char* why);
  static void print_traces(outputStream* st, const State& state, DonorTrace::Purpose purpose);
  static void print_full(outputStream* st, const State& state);
  static void print_marking(outputStream* st, const State& state);
  static void print_failure(outputStream* st, const State& state);

public:
  static void initialize();

  static void command_ended(bool ok, size_t sent, size_t received);

  static void trace_succeeded(DonorTrace::Purpose purpose);
  // The collection has ended before the trace.
  static void trace_given_up(DonorTrace::Purpose purpose);
  static void trace_failed(DonorTrace::Purpose purpose, uint gc_id, const char* why);

  // Donors have found the cards of remembered sets, or not.
  static void search_succeeded();
  static void search_failed(uint gc_id, const char* why);

  // They were told what the next mixed collection reads.
  static void prefetched();

  // Donors have moved what a full collection compacts, or not.
  static void compaction_succeeded();
  static void compaction_failed(uint gc_id, const char* why);

  // Donors are not asked in so many concurrent cycles to come.
  static void leave_out(uint cycles);
  // They are not asked in this one, and in so many to come.
  static void left_out(uint cycles);

  static void print(outputStream* st);
};

#endif // SHARE_GC_SHARED_DONOR_DONORSTATUS_HPP
