/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "cds/aotLinkedClassBulkLoader.hpp"
#include "cds/cdsConfig.hpp"
#include "classfile/classLoaderData.hpp"
#include "classfile/classLoaderDataGraph.hpp"
#include "classfile/javaClasses.hpp"
#include "classfile/vmClasses.hpp"
#include "classfile/vmSymbols.hpp"
#include "gc/shared/donor/donorCommand.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "gc/shared/donor/donorTypes.hpp"
#include "gc/shared/donor/donor_globals.hpp"
#include "memory/iterator.hpp"
#include "memory/resourceArea.hpp"
#include "oops/arrayOop.hpp"
#include "oops/compressedKlass.inline.hpp"
#include "oops/fieldStreams.inline.hpp"
#include "oops/instanceKlass.inline.hpp"
#include "oops/instanceMirrorKlass.hpp"
#include "oops/objArrayOop.hpp"
#include "oops/typeArrayKlass.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/quickSort.hpp"

#include <string.h>

narrowKlass* DonorTypes::_ids = nullptr;
int DonorTypes::_count = 0;

static int field_offset(InstanceKlass* klass, const Symbol* name) {
  for (AllFieldStream fs(klass); !fs.done(); fs.next()) {
    if (fs.name() == name) {
      return fs.offset();
    }
  }
  fatal("%s has no field %s", klass->external_name(), name->as_C_string());
  return 0;
}

// Gathers the types of all classes.
class DonorTypesClosure : public KlassClosure, public CLDClosure {
  // Runs of one class; a class with more is told as OPAQUE.
  static const int RunsMax = 1024;

  DonorTypes* const _to;

  static int run_compare(const struct virtio_gc_run& a, const struct virtio_gc_run& b) {
    return a.offset < b.offset ? -1 : a.offset > b.offset;
  }

  static int runs_of(InstanceKlass* klass, struct virtio_gc_run* runs) {
    const OopMapBlock* map = klass->start_of_nonstatic_oop_maps();
    int count = 0;
    for (uint i = 0; i < klass->nonstatic_oop_map_count(); i++) {
      runs[count].offset = map[i].offset();
      runs[count++].count = map[i].count();
    }
    if (klass->is_reference_instance_klass()) {
      runs[count].offset = java_lang_ref_Reference::discovered_offset();
      runs[count++].count = 1;
    }
    QuickSort::sort(runs, count, run_compare);
    return count;
  }

  void instance(InstanceKlass* klass, struct virtio_gc_type* type) {
    uint32_t bytes = checked_cast<uint32_t>(klass->size_helper() * BytesPerWord);

    type->kind = VIRTIO_GC_FIXED;
    switch (klass->kind()) {
    case Klass::InstanceRefKlassKind:
      type->bytes = bytes;
      type->flags = VIRTIO_GC_TYPE_WEAK;
      type->referent = java_lang_ref_Reference::referent_offset();
      break;
    case Klass::InstanceMirrorKlassKind:
      type->kind = VIRTIO_GC_SELF;
      type->size_offset = field_offset(klass, vmSymbols::oop_size_name());
      type->size_bytes = sizeof(jint);
      type->shift = LogBytesPerWord;
      type->length_offset = field_offset(klass, vmSymbols::static_oop_field_count_name());
      type->length_bytes = sizeof(jint);
      type->first = InstanceMirrorKlass::offset_of_static_fields();
      break;
    case Klass::InstanceStackChunkKlassKind:
      type->kind = VIRTIO_GC_DATA;
      type->flags = VIRTIO_GC_TYPE_OPAQUE;
      type->first = bytes;
      type->length_offset = field_offset(klass, vmSymbols::size_name());
      type->length_bytes = sizeof(jint);
      type->shift = LogBytesPerWord;
      type->tail = (uint8_t)(1 << (LogBitsPerWord - LogBitsPerHeapOop));
      return;
    default:
      type->bytes = bytes;
      break;
    }
    if (klass->nonstatic_oop_map_count() >= (uint)RunsMax) {
      type->flags |= VIRTIO_GC_TYPE_OPAQUE;
    } else if (DonorCheckHide == nullptr || !klass->name()->equals(DonorCheckHide)) {
      struct virtio_gc_run runs[RunsMax];
      type->runs = (uint16_t)runs_of(klass, runs);
      for (uint i = 0; i < type->runs; i++) {
        _to->_runs.append(runs[i]);
      }
    }
  }

  void array(Klass* klass, struct virtio_gc_type* type) {
    type->length_offset = arrayOopDesc::length_offset_in_bytes();
    type->length_bytes = sizeof(jint);
    if (klass->is_objArray_klass()) {
      type->kind = VIRTIO_GC_REFS;
      type->first = objArrayOopDesc::base_offset_in_bytes();
    } else {
      TypeArrayKlass* elements = TypeArrayKlass::cast(klass);
      type->kind = VIRTIO_GC_DATA;
      type->first = arrayOopDesc::base_offset_in_bytes(elements->element_type());
      type->shift = (uint8_t)elements->log2_element_size();
    }
  }

public:
  DonorTypesClosure(DonorTypes* to) : _to(to) {}

  void do_cld(ClassLoaderData* cld) override {
    if (cld->is_alive()) {
      cld->classes_do(this);
    }
  }

  void do_klass(Klass* klass) override {
    // A class is in the graph before it has a layout.  Interfaces and abstract
    // classes have no objects, and may have no narrow pointer.
    if (klass->is_interface() || (klass->is_instance_klass() && klass->is_abstract()) ||
        (klass->is_instance_klass() && !InstanceKlass::cast(klass)->is_loaded())) {
      return;
    }
    struct virtio_gc_type type;
    memset(&type, 0, sizeof(type));
    type.id = CompressedKlassPointers::encode_not_null(klass);
    if (klass->is_instance_klass()) {
      instance(InstanceKlass::cast(klass), &type);
    } else {
      array(klass, &type);
    }
    _to->_types.append(type);
  }
};

bool DonorTypes::take(outputStream* why) {
  if (CDSConfig::is_using_aot_linked_classes() && !AOTLinkedClassBulkLoader::class_preloading_finished()) {
    why->print("classes of the archive are not loaded yet");
    return false;
  }
  ResourceMark rm;
  DonorTypesClosure types(this);
  ClassLoaderDataGraph::cld_do(&types);
  return true;
}

static int id_compare(const narrowKlass& a, const narrowKlass& b) {
  return a < b ? -1 : a > b;
}

void DonorTypes::remember() const {
  _ids = REALLOC_C_HEAP_ARRAY(narrowKlass, _ids, _types.length(), mtGC);
  for (int i = 0; i < _types.length(); i++) {
    _ids[i] = _types.at(i).id;
  }
  QuickSort::sort(_ids, _types.length(), id_compare);
  _count = _types.length();
}

bool DonorTypes::send_as(uint16_t flags, outputStream* why) const {
  const size_t room = DonorSpace::request_max() - sizeof(struct virtio_gc_req) - sizeof(struct virtio_gc_types);
  int type = 0;
  int run = 0;

  while (type < _types.length()) {
    const int first_type = type;
    const int first_run = run;
    size_t bytes = 0;
    // A request has room for each type with the most runs.
    do {
      bytes += sizeof(struct virtio_gc_type) + _types.at(type).runs * sizeof(struct virtio_gc_run);
      run += _types.at(type).runs;
      type++;
    } while (type < _types.length() &&
             bytes + sizeof(struct virtio_gc_type) + _types.at(type).runs * sizeof(struct virtio_gc_run) <= room);
    struct virtio_gc_types head;
    memset(&head, 0, sizeof(head));
    head.runs = run - first_run;
    DonorCommand add(VIRTIO_GC_TYPES_ADD, 0);
    add.set_flags(first_type == 0 ? flags : 0);
    add.set_arg(&head);
    add.set_entries(_types.adr_at(first_type), type - first_type);
    add.set_tail(run == first_run ? nullptr : _runs.adr_at(first_run), head.runs * sizeof(struct virtio_gc_run));
    if (!add.run()) {
      add.print_failure(why);
      return false;
    }
  }
  return true;
}

bool DonorTypes::send(outputStream* why) const {
  _count = 0;
  if (!send_as(VIRTIO_GC_TYPES_REPLACE, why)) {
    return false;
  }
  remember();
  return true;
}

bool DonorTypes::send_new(outputStream* why) const {
  DonorTypes others;
  int run = 0;

  for (int i = 0; i < _types.length(); i++) {
    const struct virtio_gc_type& type = _types.at(i);
    const int end = run + type.runs;
    if (is_known(type.id)) {
      run = end;
      continue;
    }
    others._types.append(type);
    for (; run < end; run++) {
      others._runs.append(_runs.at(run));
    }
  }
  return others.send_as(0, why);
}

bool DonorTypes::is_known(uint64_t id) {
  int low = 0;
  int high = _count;

  while (low < high) {
    int middle = low + (high - low) / 2;
    if (_ids[middle] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < _count && _ids[low] == id;
}

Klass* DonorTypes::klass(uint64_t id) {
  return is_known(id) ? CompressedKlassPointers::decode_not_null((narrowKlass)id) : nullptr;
}

Klass* DonorTypes::klass_at(uint64_t address) {
  oop obj = cast_to_oop(address);
  return klass(UseCompactObjectHeaders ? obj->mark().narrow_klass()
                                       : *obj->field_addr<narrowKlass>(oopDesc::klass_offset_in_bytes()));
}
