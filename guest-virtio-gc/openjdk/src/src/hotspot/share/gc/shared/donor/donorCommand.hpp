/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORCOMMAND_HPP
#define SHARE_GC_SHARED_DONOR_DONORCOMMAND_HPP

#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allocation.hpp"
#include "utilities/globalDefinitions.hpp"

class outputStream;

// One command to the donors, and its answer.
//
// The answer is not trusted: an answer has as many entries as it has bytes for,
// and what the entries say is for the caller to check.
class DonorCommand : public StackObj {
  struct vgc_call _call;
  char* _answer;
  int _error;

  const struct virtio_gc_done* done() const { return (const struct virtio_gc_done*)_answer; }
  size_t bytes_sent() const;
  void print_status(outputStream* st) const;

public:
  // room: bytes for the entries of the answer
  DonorCommand(enum virtio_gc_command command, uint32_t epoch, size_t room = 0);
  ~DonorCommand();
  NONCOPYABLE(DonorCommand);

  // What is set has to live until run() returns.
  void set_flags(uint16_t flags) { _call.flags = flags; }
  template <typename T> void set_arg(const T* arg) {
    _call.arg = arg;
    _call.arg_bytes = sizeof(T);
  }
  template <typename T> void set_entries(const T* entries, uint count) {
    _call.entries = entries;
    _call.entry_bytes = sizeof(T);
    _call.count = count;
  }
  void set_tail(const void* tail, size_t bytes) {
    _call.tail = tail;
    _call.tail_bytes = checked_cast<uint32_t>(bytes);
  }

  // Send it, and wait for the answer. True: the status is OK.
  bool run();

  // Of the answer.  There is none if the device failed: then it has no status.
  bool is_answered() const { return _error == 0; }
  bool has_status(enum virtio_gc_status status) const { return is_answered() && done()->status == status; }
  uint64_t value() const { return done()->value; }
  uint64_t at() const { return done()->at; }
  // How many whole entries of T the answer has.
  template <typename T> uint count() const {
    size_t bytes = _call.answer_bytes - sizeof(struct virtio_gc_done);
    return (uint)MIN2((size_t)done()->count, bytes / sizeof(T));
  }
  template <typename T> const T* entries() const { return (const T*)(done() + 1); }

  // Why it failed, for a line of the log: "TRACE_ROOTS: worker lost (donor 1)".
  void print_failure(outputStream* st) const;
};

#endif // SHARE_GC_SHARED_DONOR_DONORCOMMAND_HPP
