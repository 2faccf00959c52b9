/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#ifndef SHARE_GC_SHARED_DONOR_DONORTRACE_HPP
#define SHARE_GC_SHARED_DONOR_DONORTRACE_HPP

#include "gc/shared/donor/vgcApi.hpp"
#include "memory/allocation.hpp"
#include "oops/oopsHierarchy.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/ostream.hpp"

class CLDClosure;
class ClassLoaderData;
class DonorCommand;
class NMethodClosure;
class OopClosure;

// What a trace asks the collector that it is for.
class DonorTraceClient {
public:
  // Apply the closures to all strong roots.
  virtual void roots_do(OopClosure* oops, CLDClosure* clds, NMethodClosure* nmethods) = 0;

  // Whether there is an object of the trace at this address, which a donor says
  // that it has met.
  virtual bool is_object(uint64_t address) = 0;

  // The referent of a weak object was met by no other way so far.  True: it is
  // kept, and is a root.
  virtual bool is_kept(uint64_t referent) = 0;
};

// A trace of the heap by donors, while the VM is at a safepoint:
//
//   start, roots
//   settle   as long as that gives new roots: opaque objects that were met are
//            scanned here; class loaders are followed that are met themselves,
//            or of whose classes an object is met; referents that the
//            collector keeps are roots
//   finish   then bitmaps and sizes can be asked for
//
// Nothing is written into the heap.  After a failure, of which failure() is one
// line, the trace is of no use, and the heap is as it was.
class DonorTrace : public StackObj {
  friend class DonorRootClosure;
  friend class DonorHoldersClosure;

  static uint32_t _last_epoch;

  DonorTraceClient* const _client;
  const uint32_t _epoch;
  GrowableArrayCHeap<uint64_t, mtGC> _roots;
  GrowableArrayCHeap<struct virtio_gc_refs, mtGC> _ranges;
  stringStream _failure;
  bool _failed;
  bool _heap_error;
  uint64_t _heap_error_at;
  // Counts for the log
  uint64_t _roots_sent;
  uint _turns;
  uint _unkept;

  bool run(DonorCommand* command);
  bool fail(const char* why, uint64_t what);
  void root_add(uint64_t address);
  bool follow(ClassLoaderData* cld);
  void scan(oop obj);

  bool start(const struct virtio_gc_region* regions, uint count);
  bool roots_send();
  bool ranges_send();
  bool wait(bool* quiet, bool* opaque);
  template <typename Entry, typename Take>
  bool met_take(uint32_t what, uint16_t flags, Take take);
  bool opaque_take();
  bool types_take();
  bool holders_ask();
  bool weak_take();
  bool settle();
  bool finish(bool* finished);
  void abandon();

public:
  DonorTrace(DonorTraceClient* client);
  NONCOPYABLE(DonorTrace);

  // The device has all features that a trace needs; why: which it lacks.
  static bool is_possible(outputStream* why);

  // True: donors have met all that the roots reach in these regions.
  bool run(const struct virtio_gc_region* regions, uint count);

  // Weak objects whose referents were not met and not kept
  uint unkept() const { return _unkept; }
  uint64_t roots_sent() const { return _roots_sent; }
  uint turns() const { return _turns; }

  // Of a whole trace: the bitmaps of regions first .. first + count, one after
  // the other.
  bool bitmaps(uint first, uint count, size_t region_bytes, uint64_t* words);
  // The sizes of what is live in them
  bool sizes(uint first, uint count, struct virtio_gc_live* live);

  const char* failure() { return _failure.base(); }
  // The failure is that donors say that the heap is not what its types say; at:
  // the address of the object, or the value of the reference
  bool is_heap_error(uint64_t* at) const {
    *at = _heap_error_at;
    return _heap_error;
  }
};

#endif // SHARE_GC_SHARED_DONOR_DONORTRACE_HPP
