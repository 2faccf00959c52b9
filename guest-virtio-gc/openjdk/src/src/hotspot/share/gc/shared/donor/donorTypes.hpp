/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORTYPES_HPP
#define SHARE_GC_SHARED_DONOR_DONORTYPES_HPP

#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allocation.hpp"
#include "oops/compressedKlass.hpp"
#include "utilities/globalDefinitions.hpp"
#include "utilities/growableArray.hpp"

class Klass;
class outputStream;

// The layouts of all classes, as donors need them to trace objects.
//
//   class                  type
//   instances              FIXED, a run for each block of the oop map
//   java.lang.ref.*        the same, WEAK: donors do not follow the referent.
//                          They do follow `discovered`, which is not in the oop
//                          map: a reference that was processed has the rest of
//                          the pending list there
//   java.lang.Class        SELF: the object says how large it is, and how many
//                          references its static fields are
//   stack chunks           OPAQUE: the VM knows where their references are. Size
//                          as DATA with a TAIL, the bitmap behind the stack
//   arrays                 REFS, DATA
//
// A type's number is the narrow class pointer.  Numbers are used again after
// class unloading, so all types are replaced before each trace.  A class that is
// loaded later has no object that a trace has to look at.
class DonorTypes : public StackObj {
  // The numbers of the types that donors have, ascending.
  static narrowKlass* _ids;
  static int _count;

  GrowableArrayCHeap<struct virtio_gc_type, mtGC> _types;
  GrowableArrayCHeap<struct virtio_gc_run, mtGC> _runs;

  static bool is_known(uint64_t id);
  bool send_as(uint16_t flags, outputStream* why) const;
  void remember() const;

  friend class DonorTypesClosure;

public:
  DonorTypes() : _types(), _runs() {}
  NONCOPYABLE(DonorTypes);

  // Take the layouts of all classes.  No class may be unloaded meanwhile; one
  // that is being loaded may be missed.  False: why says why not.
  bool take(outputStream* why);

  // Replace the types on donors by what was taken.  No trace may run.
  bool send(outputStream* why) const;

  // Add those of what was taken that donors do not have.  Of a number that they have
  // the class can be another now: no object of that is met in what was traced.
  bool send_new(outputStream* why) const;

  // The class of a type that donors have; null: they do not have this type.
  static Klass* klass(uint64_t id);
  // The class of what is at this address of the heap, below a top, without
  // trusting that it is an object.  Null: it is none.
  static Klass* klass_at(uint64_t address);
};

#endif // SHARE_GC_SHARED_DONOR_DONORTYPES_HPP
