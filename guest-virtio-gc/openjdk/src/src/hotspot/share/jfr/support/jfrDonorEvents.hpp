/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_JFR_SUPPORT_JFRDONOREVENTS_HPP
#define SHARE_JFR_SUPPORT_JFRDONOREVENTS_HPP

#include "jfrfiles/jfrEventControl.hpp"
#include "jfrfiles/jfrTypes.hpp"
#include "memory/allStatic.hpp"
#include "utilities/exceptions.hpp"

// What JFR has to know of the events of gc/shared/donor/donorEvents.hpp.
//
// metadata.xml cannot declare them.  It numbers all events, and then all types,
// twice: in libjvm, and in the file metadata.bin of the JDK's module jdk.jfr.
// With more events in one of the two each recording would be unreadable, and this
// libjvm is used with a JDK that somebody else has built.  So these events have
// the numbers between the last type and the first class, and JFR's Java code gets
// their description, in the format of metadata.bin, when JFR is created.
//
// Without -XX:DonorHeap JFR does not know them.
class JfrDonorEvents : AllStatic {
 public:
  // Behind the number of void.class
  static const int First = LAST_TYPE_ID + 2;
  static const int Count = 2;
  static const int Last = First + Count - 1;

  static bool has(jlong id) { return id >= First && id <= Last; }
  static jfrNativeEventSetting& setting(jlong id) { return _settings[id - First]; }

  // To be called when JFR has been created, before anything is recorded.  If the
  // JDK is not as expected, a warning says so, and JFR goes on without the events.
  static void define(TRAPS);

 private:
  static jfrNativeEventSetting _settings[Count];
};

#endif // SHARE_JFR_SUPPORT_JFRDONOREVENTS_HPP
