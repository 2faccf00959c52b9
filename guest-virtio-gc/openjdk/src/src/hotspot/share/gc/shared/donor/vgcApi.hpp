/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_VGCAPI_HPP
#define SHARE_GC_SHARED_DONOR_VGCAPI_HPP

#include "memory/allStatic.hpp"
#include "utilities/globalDefinitions.hpp"

#define _Static_assert static_assert
#include "gc/shared/donor/libvgc.h"
#undef _Static_assert

// libvgc, opened at run time: libjvm does not depend on it.  For a device that
// libdcm makes in this process ("dcm:FILE", "dcmfs:FILE") libdcm is opened
// first, and for all, since libvgc's references to it are weak.
class VgcApi : AllStatic {
  static decltype(&::vgc_open)        _open;
  static decltype(&::vgc_close)       _close;
  static decltype(&::vgc_info)        _info;
  static decltype(&::vgc_budget)      _budget;
  static decltype(&::vgc_create_over) _create_over;
  static decltype(&::vgc_do)          _do;

public:
  // False: message says why.
  static bool load(const char* device, char* message, size_t length);

  static struct vgc* open(const char* device, char* message, size_t length) {
    return _open(device, message, length);
  }
  static void close(struct vgc* v) { _close(v); }
  static const struct vgc_info* info(const struct vgc* v) { return _info(v); }
  static uint64_t budget(const struct vgc* v) { return _budget(v); }
  static void* create_over(struct vgc* v, const struct virtio_gc_space* space) {
    return _create_over(v, space);
  }
  static int command(struct vgc* v, struct vgc_call* call) { return _do(v, call); }
};

#endif // SHARE_GC_SHARED_DONOR_VGCAPI_HPP
