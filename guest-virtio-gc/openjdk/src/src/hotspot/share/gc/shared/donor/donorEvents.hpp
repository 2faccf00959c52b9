/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONOREVENTS_HPP
#define SHARE_GC_SHARED_DONOR_DONOREVENTS_HPP

#include "jfr/jfrEvents.hpp"
#include "utilities/ticks.hpp"

// Events of JFR about what donors do.  Their fields are in the order in which they
// are written; how JFR learns of them, and why they are not in metadata.xml, is in
// jfr/support/jfrDonorEvents.hpp.
//
// field(type, name, label, description)

#define DONOR_TRACE_FIELDS(field)                                              \
  field(GcId, gcId, "GC Identifier", "")                                       \
  field(Number, epoch, "Epoch", "Commands of the trace have the same")         \
  field(Text, purpose, "Purpose",                                              \
        "Concurrent Mark, Full Collection: the marks are for the collector; Concurrent Mark Check, Full Collection Check: " \
        "they are compared with the collector's own")                          \
  field(Flag, succeeded, "Succeeded",                                          \
        "Donors have met all that is reachable, and the collector has taken their answers") \
  field(Text, failure, "Failure", "Why the trace has not succeeded")           \
  field(Number, turns, "Turns", "How often donors had found all, or waited, and got more roots") \
  field(Total, rootsSent, "Roots Sent", "")                                    \
  field(Number, regions, "Regions", "Regions that were traced")                \
  field(Total, liveObjects, "Live Objects", "Objects that donors have marked") \
  field(Size, liveBytes, "Live Bytes",                                         \
        "Bytes of these objects; of a concurrent mark check without humongous ones") \
  field(Span, prepareTime, "Prepare Time", "Time to send types and regions")   \
  field(Span, traceTime, "Trace Time", "Time from the first root until donors had met all") \
  field(Span, resultTime, "Result Time", "Time to take marks and sizes, and to use or compare them")

#define DONOR_COMMAND_FIELDS(field)                                            \
  field(Text, name, "Name", "")                                                \
  field(Text, answer, "Answer", "The status that donors have answered: done, or why they have failed") \
  field(Number, epoch, "Epoch", "The trace of which the command is a part, or 0") \
  field(Size, bytesSent, "Bytes Sent", "")                                     \
  field(Size, bytesReceived, "Bytes Received", "")

// The types of fields
class DonorEvent {
 protected:
  typedef unsigned    GcId;
  typedef const char* Text;
  typedef bool        Flag;
  typedef unsigned    Number;
  typedef u8          Total;
  typedef u8          Size;
  typedef Tickspan    Span;
};

#define DONOR_EVENT_MEMBER(type, name, label, description) type name{};
#define DONOR_EVENT_WRITE(type, name, label, description) w.write(name);

// As those that are generated from metadata.xml
#define DONOR_EVENT(event, index, FIELDS)                                      \
class Event##event : public JfrEvent<Event##event>, private DonorEvent {       \
 public:                                                                       \
  static const bool hasThread = true;                                          \
  static const bool hasStackTrace = false;                                     \
  static const bool isInstant = false;                                         \
  static const bool hasCutoff = false;                                         \
  static const bool hasThrottle = false;                                       \
  static const bool isRequestable = false;                                     \
  JFR_ONLY(static const JfrEventId eventId = (JfrEventId)(JfrDonorEvents::First + index);) \
                                                                               \
  FIELDS(DONOR_EVENT_MEMBER)                                                   \
                                                                               \
  Event##event(EventStartTime timing = TIMED) JFR_ONLY(: JfrEvent<Event##event>(timing)) {} \
                                                                               \
  template <typename Writer> void writeData(Writer& w) {                       \
    FIELDS(DONOR_EVENT_WRITE)                                                  \
  }                                                                            \
  DEBUG_ONLY(void verify() const {})                                           \
                                                                               \
  using JfrEvent<Event##event>::commit;                                        \
};

DONOR_EVENT(DonorTrace, 0, DONOR_TRACE_FIELDS)
DONOR_EVENT(DonorCommand, 1, DONOR_COMMAND_FIELDS)

#undef DONOR_EVENT
#undef DONOR_EVENT_MEMBER
#undef DONOR_EVENT_WRITE

#endif // SHARE_GC_SHARED_DONOR_DONOREVENTS_HPP
