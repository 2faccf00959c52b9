/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorEvents.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorStatus.hpp"
#include "runtime/os.hpp"
#include "utilities/ostream.hpp"

#include <string.h>

static const char* command_name(uint command) {
  switch (command) {
  case VIRTIO_GC_TYPES_ADD:     return "TYPES_ADD";
  case VIRTIO_GC_TRACE_START:   return "TRACE_START";
  case VIRTIO_GC_TRACE_ROOTS:   return "TRACE_ROOTS";
  case VIRTIO_GC_TRACE_MET:     return "TRACE_MET";
  case VIRTIO_GC_TRACE_FINISH:  return "TRACE_FINISH";
  case VIRTIO_GC_TRACE_RESULTS: return "TRACE_RESULTS";
  case VIRTIO_GC_TRACE_STATE:   return "TRACE_STATE";
  case VIRTIO_GC_TRACE_ASK:     return "TRACE_ASK";
  case VIRTIO_GC_TRACE_BITMAPS: return "TRACE_BITMAPS";
  case VIRTIO_GC_TRACE_CARDS:   return "TRACE_CARDS";
  case VIRTIO_GC_SPACE_DONORS:  return "SPACE_DONORS";
  case VIRTIO_GC_EVACUATE:      return "EVACUATE";
  case VIRTIO_GC_UPDATE:        return "UPDATE";
  case VIRTIO_GC_RELEASE:       return "RELEASE";
  case VIRTIO_GC_CLEAN:         return "CLEAN";
  case VIRTIO_GC_HINT:          return "HINT";
  default:                      return "a command";
  }
}

static const char* status_name(uint status) {
  static const char* const names[] = {
    "done", "stale", "donor lost", "worker lost", "timed out", "cancelled",
    "an object of unknown type", "an object that leaves its region", "a reference to no object",
    "no space", "regions on different donors", "opaque objects wait", "no trace", "busy",
    "a limit is reached", "the request is invalid", "the device lacks it",
  };
  static_assert(ARRAY_SIZE(names) == VIRTIO_GC_STATUSES, "a name for each status");

  return status < VIRTIO_GC_STATUSES ? names[status] : "a status that does not exist";
}

DonorCommand::DonorCommand(enum virtio_gc_command command, uint32_t epoch, size_t room) :
    _call(),
    _answer(NEW_C_HEAP_ARRAY(char, sizeof(struct virtio_gc_done) + room, mtGC)),
    _error(0) {
  memset(_answer, 0, sizeof(struct virtio_gc_done));
  _call.command = (uint16_t)command;
  _call.epoch = epoch;
  _call.answer = _answer;
  _call.answer_room = checked_cast<uint32_t>(sizeof(struct virtio_gc_done) + room);
}

DonorCommand::~DonorCommand() {
  FREE_C_HEAP_ARRAY(char, _answer);
}

size_t DonorCommand::bytes_sent() const {
  return sizeof(struct virtio_gc_req) + _call.arg_bytes + (size_t)_call.count * _call.entry_bytes + _call.tail_bytes;
}

bool DonorCommand::run() {
  EventDonorCommand event;
  _error = DonorSpace::run(&_call);
  DonorStatus::command_ended(has_status(VIRTIO_GC_OK), bytes_sent(), _call.answer_bytes);
  if (event.should_commit()) {
    stringStream status;
    print_status(&status);
    event.name = command_name(_call.command);
    event.answer = status.base();
    event.epoch = _call.epoch;
    event.bytesSent = bytes_sent();
    event.bytesReceived = _call.answer_bytes;
    event.commit();
  }
  return has_status(VIRTIO_GC_OK);
}

void DonorCommand::print_failure(outputStream* st) const {
  st->print("%s: ", command_name(_call.command));
  print_status(st);
}

void DonorCommand::print_status(outputStream* st) const {
  if (!is_answered()) {
    st->print("%s", os::strerror(-_error));
    return;
  }
  st->print("%s", status_name(done()->status));
  if (done()->donor != VIRTIO_GC_NO_DONOR) {
    st->print(" (donor %u)", done()->donor);
  }
}
