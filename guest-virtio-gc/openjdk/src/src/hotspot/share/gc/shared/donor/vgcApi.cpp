/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "gc/shared/donor/vgcApi.hpp"
#include "runtime/os.hpp"

#include <dlfcn.h>
#include <string.h>

decltype(&::vgc_open)        VgcApi::_open        = nullptr;
decltype(&::vgc_close)       VgcApi::_close       = nullptr;
decltype(&::vgc_info)        VgcApi::_info        = nullptr;
decltype(&::vgc_budget)      VgcApi::_budget      = nullptr;
decltype(&::vgc_create_over) VgcApi::_create_over = nullptr;
decltype(&::vgc_do)          VgcApi::_do          = nullptr;

template <typename F>
static bool lookup(void* library, const char* name, F* function, char* message, size_t length) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function == nullptr) {
    os::snprintf(message, length, "libvgc.so.0 has no %s(): it is older than this JVM", name);
  }
  return *function != nullptr;
}

bool VgcApi::load(const char* device, char* message, size_t length) {
  bool in_process = strncmp(device, "dcm:", 4) == 0 || strncmp(device, "dcmfs:", 6) == 0;
  if (in_process && dlopen("libdcm.so.0", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    os::snprintf(message, length, "libdcm cannot be loaded: %s", dlerror());
    return false;
  }
  void* library = dlopen("libvgc.so.0", RTLD_NOW);
  if (library == nullptr) {
    os::snprintf(message, length, "libvgc cannot be loaded: %s", dlerror());
    return false;
  }
  return lookup(library, "vgc_open", &_open, message, length) &&
         lookup(library, "vgc_close", &_close, message, length) &&
         lookup(library, "vgc_info", &_info, message, length) &&
         lookup(library, "vgc_budget", &_budget, message, length) &&
         lookup(library, "vgc_create_over", &_create_over, message, length) &&
         lookup(library, "vgc_do", &_do, message, length);
}
