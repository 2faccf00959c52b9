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
#include "utilities/resizeableResourceHash.hpp"
#include "utilities/ticks.hpp"

class CLDClosure;
class ClassLoaderData;
class DonorCommand;
class DonorTrace;
class Mutex;
class NMethodClosure;
class OopClosure;

// What a trace asks the collector that it is for.
class DonorTraceClient {
public:
  // From heap_enter() to heap_leave() no object moves, and no class is unloaded.
  // A command is never waited for meanwhile.  heap_yield(), in between, lets a
  // pause in.  False, and the heap is not entered: the trace is to be given up.
  virtual bool heap_enter() { return true; }
  virtual bool heap_yield() { return true; }
  virtual void heap_leave() {}
  virtual bool is_given_up() { return false; }

  // Apply the closures to strong roots, once.
  virtual void roots_do(OopClosure* oops, CLDClosure* clds, NMethodClosure* nmethods) {}

  // Add roots to the trace, at most as many as a pause can wait for.  True: there
  // are more.
  virtual bool roots_add(DonorTrace* trace) { return false; }
  // There are so many roots that the trace should take them before it is quiet.
  virtual bool roots_press() { return false; }
  // The trace has found all that it has roots for.  True: look for more once
  // again; else no more are taken.
  virtual bool roots_again() { return false; }

  enum Opaque {
    Scan,    // an object of the trace
    Gone,    // it was one, and there is none any more
    Wrong    // there never was one
  };
  // What is at this address, at which donors have met an opaque object?
  virtual Opaque opaque(uint64_t address) = 0;

  // This opaque object was met, and is scanned next.
  virtual void opaque_found(oop obj) {}

  // The referent was met by no other way so far.  True: it is kept, and is a root.
  virtual bool is_kept(const struct virtio_gc_weak& weak) = 0;
};

// A trace of the heap by donors:
//
//   start    donors get the types of all classes, the regions, the roots
//   settle   as long as that gives new roots: opaque objects that were met are
//            scanned here; class loaders are followed that are met themselves,
//            or of whose classes an object is met; referents that the
//            collector keeps are roots
//   finish   then bitmaps and sizes can be asked for
//
// The program may run meanwhile if its barrier notes each reference that it
// overwrites, which is a root then (VGC-G-6).  Nothing is written into the heap.
// After a failure, of which failure() is one line, the trace is of no use, and
// the heap is as it was.
//
// Donors do one trace of a space at a time.  Starting one, which ends the one
// before, is under a lock: a collection in a pause can start one while a
// concurrent one has not noticed yet that it was given up.  From pause_begin() to
// pause_end() only a full collection can.
class DonorTrace : public StackObj {
  friend class DonorRootClosure;

public:
  // What the marks are for
  enum Purpose { ConcurrentMark, ConcurrentMarkCheck, FullCollection, FullCollectionCheck, Purposes };
  static const char* name(Purpose purpose);

private:

  static Mutex* _lock;
  static uint32_t _last_epoch;
  // The last trace was not finished.
  static bool _is_left;
  static bool _is_in_pause;

  typedef ResizeableResourceHashtable<ClassLoaderData*, bool, AnyObj::C_HEAP, mtGC> Followed;

  DonorTraceClient* const _client;
  const Purpose _purpose;
  uint32_t _epoch;
  GrowableArrayCHeap<uint64_t, mtGC> _roots;
  GrowableArrayCHeap<struct virtio_gc_refs, mtGC> _ranges;
  GrowableArrayCHeap<uint64_t, mtGC> _unkept;
  Followed _followed;
  stringStream _failure;
  bool _failed;
  bool _given_up;
  bool _heap_error;
  uint64_t _heap_error_at;
  // For the log, and an event: the times are 0 until they have come.
  uint _regions;
  uint64_t _roots_sent;
  uint _turns;
  Ticks _begun;
  Ticks _prepared;
  Ticks _traced;

  static void set_is_in_pause(bool is_in_pause);
  bool run(DonorCommand* command);
  bool run_failed(DonorCommand* command);
  bool fail(const char* why, uint64_t what);
  bool give_up();
  bool enter();
  bool follow(ClassLoaderData* cld);
  void scan(oop obj);
  bool has_roots() const { return !_roots.is_empty() || !_ranges.is_empty(); }

  bool start(const struct virtio_gc_region* regions, uint count);
  bool strong_roots();
  bool more_roots();
  bool roots_send();
  bool ranges_send();
  bool ranges_read();
  bool wait(bool roots, bool* quiet, bool* opaque);
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
  DonorTrace(DonorTraceClient* client, Purpose purpose);
  NONCOPYABLE(DonorTrace);

  static void initialize();

  static void pause_begin() { set_is_in_pause(true); }
  static void pause_end() { set_is_in_pause(false); }

  // The device can trace a heap of such regions.  Else the log says what follows
  // from that, and why, if this is not said yet.
  static bool is_possible(size_t region_bytes, const char* follows, bool* said);

  // True: donors have met all that the roots reach in these regions.
  bool run(const struct virtio_gc_region* regions, uint count);

  // For the client, when it is asked for roots.
  void root_add(uint64_t address) { _roots.append(address); }
  int roots() const { return _roots.length(); }
  static int roots_max();

  // Weak objects whose referents were not met and not kept
  int unkept() const { return _unkept.length(); }
  uint64_t unkept_at(int i) const { return _unkept.at(i); }
  uint32_t epoch() const { return _epoch; }
  uint64_t roots_sent() const { return _roots_sent; }
  uint turns() const { return _turns; }

  // Of a whole trace: the bitmaps of regions first .. first + count, one after
  // the other.
  bool bitmaps(uint first, uint count, size_t region_bytes, uint64_t* words);
  // The sizes of what is live in them
  bool sizes(uint first, uint count, struct virtio_gc_live* live);
  // The client has found that these are not right.
  void refute(const char* why, uint64_t what) { fail(why, what); }

  // To be called when the client has used the marks, or cannot.  The collection
  // may have ended meanwhile, which is a failure, too.  Of a trace that has not run
  // it does nothing.
  void end(bool success, uint64_t objects, uint64_t bytes);

  const char* failure() { return _failure.base(); }
  bool is_given_up() const { return _given_up; }
  // The failure is that donors say that the heap is not what its types say; at:
  // the address of the object, or the value of the reference
  bool is_heap_error(uint64_t* at) const {
    *at = _heap_error_at;
    return _heap_error;
  }
};

#endif // SHARE_GC_SHARED_DONOR_DONORTRACE_HPP
