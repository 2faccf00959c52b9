/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/javaClasses.inline.hpp"
#include "gc/g1/g1DonorReferences.hpp"
#include "gc/shared/referenceProcessor.hpp"
#include "oops/instanceKlass.hpp"
#include "oops/oop.inline.hpp"

G1DonorReferences::G1DonorReferences(bool clears_soft) :
    _least_recently_used(),
    _clears_soft(clears_soft),
    _soft_clock(java_lang_ref_SoftReference::clock()) {
  _least_recently_used.setup();
}

bool G1DonorReferences::follows(oop reference, uint64_t referent) {
  if (cast_from_oop<uint64_t>(java_lang_ref_Reference::unknown_referent_no_keepalive(reference)) != referent) {
    return false;
  }
  switch (InstanceKlass::cast(reference->klass())->reference_type()) {
  case REF_SOFT:
    return !_clears_soft && !_least_recently_used.should_clear_reference(reference, _soft_clock);
  case REF_FINAL:
    return java_lang_ref_Reference::next(reference) != nullptr;
  default:
    return false;
  }
}

oop G1DonorReferences::discover(ReferenceProcessor* processor, oop reference) {
  if (processor->discover_reference(reference, InstanceKlass::cast(reference->klass())->reference_type())) {
    return nullptr;
  }
  return java_lang_ref_Reference::unknown_referent_no_keepalive(reference);
}
