/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORDCMD_HPP
#define SHARE_GC_SHARED_DONOR_DONORDCMD_HPP

#include "gc/shared/donor/donorStatus.hpp"
#include "services/diagnosticFramework.hpp"

class DonorDCmd : public DCmd {
public:
  DonorDCmd(outputStream* output, bool heap) : DCmd(output, heap) {}
  static const char* name() { return "GC.donors"; }
  static const char* description() {
    return "Print the state of the donors that hold the Java heap (-XX:DonorHeap), and what they have traced.";
  }
  static const char* impact() { return "Low"; }
  void execute(DCmdSource source, TRAPS) override { DonorStatus::print(output()); }
};

#endif // SHARE_GC_SHARED_DONOR_DONORDCMD_HPP
