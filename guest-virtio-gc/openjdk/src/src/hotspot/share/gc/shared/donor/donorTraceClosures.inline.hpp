/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORTRACECLOSURES_INLINE_HPP
#define SHARE_GC_SHARED_DONOR_DONORTRACECLOSURES_INLINE_HPP

// What a trace visits in the guest's own memory: roots, and class loader data.

#include "classfile/classLoaderData.hpp"
#include "code/nmethod.hpp"
#include "gc/shared/donor/donorTrace.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/access.inline.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/method.hpp"
#include "utilities/growableArray.hpp"

// References that are roots: of the VM, and of objects that are scanned here.
class DonorRootClosure : public OopIterateClosure {
  DonorTrace* _trace;

  template <typename T> void do_oop_work(T* p) {
    T o = RawAccess<MO_RELAXED>::oop_load(p);
    if (!CompressedOops::is_null(o)) {
      _trace->root_add(cast_from_oop<uint64_t>(CompressedOops::decode_not_null(o)));
    }
  }

public:
  DonorRootClosure(DonorTrace* trace) : OopIterateClosure(), _trace(trace) {}

  ReferenceIterationMode reference_iteration_mode() override { return DO_FIELDS; }
  void do_oop(oop* p) override { do_oop_work(p); }
  void do_oop(narrowOop* p) override { do_oop_work(p); }
  bool do_metadata() override { return true; }
  void do_klass(Klass* k) override { do_cld(k->class_loader_data()); }
  void do_cld(ClassLoaderData* cld) override { _trace->follow(cld); }
  // Of frames in stack chunks, which keep code and methods, as in marking
  void do_method(Method* m) override { m->record_gc_epoch(); }
  void do_nmethod(nmethod* nm) override { nm->follow_nmethod(this); }
};

class DonorRootCLDClosure : public CLDClosure {
  DonorRootClosure* _roots;

public:
  DonorRootCLDClosure(DonorRootClosure* roots) : _roots(roots) {}

  void do_cld(ClassLoaderData* cld) override { _roots->do_cld(cld); }
};

// Class loader data that is not followed yet, with the object whose life is its own.
template <typename IsFollowed>
class DonorHoldersClosure : public CLDClosure {
  IsFollowed _is_followed;
  GrowableArrayCHeap<ClassLoaderData*, mtGC> _clds;
  GrowableArrayCHeap<uint64_t, mtGC> _holders;

public:
  DonorHoldersClosure(IsFollowed is_followed) : _is_followed(is_followed), _clds(), _holders() {}

  void do_cld(ClassLoaderData* cld) override {
    oop holder = _is_followed(cld) ? nullptr : cld->holder_no_keepalive();
    if (holder != nullptr) {
      _clds.append(cld);
      _holders.append(cast_from_oop<uint64_t>(holder));
    }
  }

  int count() const { return _clds.length(); }
  ClassLoaderData* cld(int i) const { return _clds.at(i); }
  const uint64_t* holders(int i) const { return _holders.adr_at(i); }
};

#endif // SHARE_GC_SHARED_DONOR_DONORTRACECLOSURES_INLINE_HPP
