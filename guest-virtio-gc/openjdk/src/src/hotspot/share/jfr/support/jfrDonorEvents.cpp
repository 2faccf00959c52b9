/*
 * SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * in the LICENSE file of OpenJDK.
 */

#include "classfile/javaClasses.hpp"
#include "gc/shared/donor/donorEvents.hpp"
#include "gc/shared/donor/donorSpace.hpp"
#include "jfr/jni/jfrJavaCall.hpp"
#include "jfr/jni/jfrJavaSupport.hpp"
#include "jfr/support/jfrDonorEvents.hpp"
#include "logging/log.hpp"
#include "memory/oopFactory.hpp"
#include "memory/resourceArea.hpp"
#include "oops/objArrayOop.inline.hpp"
#include "oops/typeArrayOop.inline.hpp"
#include "runtime/handles.inline.hpp"
#include "runtime/synchronizer.hpp"
#include "utilities/growableArray.hpp"
#include "utilities/ostream.hpp"

#include <string.h>

jfrNativeEventSetting JfrDonorEvents::_settings[JfrDonorEvents::Count];

// A type of fields, in the words of metadata.bin
struct JfrDonorFieldType {
  const char* java;
  bool is_unsigned;
  const char* annotation;
  const char* relation;
};

#define GC_ID "jdk.types.GcId"
static const JfrDonorFieldType GcId   = { "int", true, "", GC_ID };
static const JfrDonorFieldType Text   = { "java.lang.String", false, "", "" };
static const JfrDonorFieldType Flag   = { "boolean", false, "", "" };
static const JfrDonorFieldType Number = { "int", true, "", "" };
static const JfrDonorFieldType Total  = { "long", true, "", "" };
static const JfrDonorFieldType Size   = { "long", true, "jdk.jfr.DataAmount(BYTES)", "" };
static const JfrDonorFieldType Span   = { "long", true, "jdk.jfr.Timespan(TICKS)", "" };

struct JfrDonorField {
  const JfrDonorFieldType* type;
  const char* name;
  const char* label;
  const char* description;
};

#define DONOR_FIELD_DESCRIPTION(type, name, label, description) { &type, #name, label, description },
static const JfrDonorField trace_fields[] = { DONOR_TRACE_FIELDS(DONOR_FIELD_DESCRIPTION) };
static const JfrDonorField command_fields[] = { DONOR_COMMAND_FIELDS(DONOR_FIELD_DESCRIPTION) };
#undef DONOR_FIELD_DESCRIPTION

// Descriptions of types in the format of metadata.bin, which GenerateJfrFiles
// writes and MetadataLoader reads
class JfrDonorMetadata : public StackObj {
  GrowableArray<u1> _bytes;

  void flag(bool value) { _bytes.append(value ? 1 : 0); }

  void integer(jlong value, int bytes) {
    while (bytes-- > 0) {
      _bytes.append((u1)(value >> bytes * BitsPerByte));
    }
  }

  void text(const char* value) {
    const size_t length = strlen(value);
    integer((jlong)length, 2);
    for (size_t i = 0; i < length; i++) {
      _bytes.append((u1)value[i]);
    }
  }

  void field(const JfrDonorField& field) {
    text(field.name);
    text(field.type->java);
    text(field.label);
    text(field.description);
    flag(false); // in the constant pool
    flag(false); // array
    flag(field.type->is_unsigned);
    text(field.type->annotation);
    text("");    // transition
    text(field.type->relation);
    flag(false); // experimental
  }

  // What is the same in all types, behind their fields
  void type(const char* name, const char* label, const char* description, const char* category, bool is_event, jlong id) {
    text(name);
    text(label);
    text(description);
    text(category);
    flag(is_event);  // thread
    flag(false);     // stack trace
    flag(is_event);  // start time
    text("");        // period
    flag(false);     // cutoff
    flag(false);     // throttle
    text("");        // level
    flag(false);     // experimental
    flag(false);     // internal
    integer(id, 8);
    flag(is_event);
    flag(!is_event); // relation
  }

 public:
  void types(int count) { integer(count, 4); }

  void relation(const char* name, jlong id) {
    integer(0, 4);
    type(name, "", "", "", false, id);
  }

  void event(jlong id, const char* name, const char* label, const char* description, const JfrDonorField* fields, int count) {
    integer(count, 4);
    for (int i = 0; i < count; i++) {
      field(fields[i]);
    }
    type(name, label, description, "Java Virtual Machine, GC, Donors", true, id);
  }

  // As a Java array
  Handle array(TRAPS) const {
    typeArrayOop array = oopFactory::new_byteArray(_bytes.length(), CHECK_NH);
    for (int i = 0; i < _bytes.length(); i++) {
      array->byte_at_put(i, (jbyte)_bytes.at(i));
    }
    return Handle(THREAD, array);
  }
};

static Handle describe_events(TRAPS) {
  ResourceMark rm(THREAD);
  JfrDonorMetadata metadata;
  metadata.types(1 + JfrDonorEvents::Count);
  metadata.relation(GC_ID, TYPE_GCID);
  metadata.event(EventDonorTrace::eventId, "jdk.DonorTrace", "Donor Trace",
                 "A trace of the Java heap by the donors that hold it", trace_fields, ARRAY_SIZE(trace_fields));
  metadata.event(EventDonorCommand::eventId, "jdk.DonorCommand", "Donor Command",
                 "A command to the donors that hold the Java heap", command_fields, ARRAY_SIZE(command_fields));
  return metadata.array(THREAD);
}

#define JFR "jdk/jfr/internal/"

// Call a method of two arguments or fewer: of this object, or without one a static
// method.  What it returns is an object, or nothing.
static Handle call(Handle receiver, const char* klass, const char* name, const char* signature, Handle first, Handle second, TRAPS) {
  JavaValue result(strchr(signature, ')')[1] == 'V' ? T_VOID : T_OBJECT);
  JfrJavaArguments args(&result, klass, name, signature, CHECK_NH);
  if (first.not_null()) {
    args.push_oop(first);
  }
  if (second.not_null()) {
    args.push_oop(second);
  }
  if (receiver.is_null()) {
    JfrJavaSupport::call_static(&args, CHECK_NH);
  } else {
    args.set_receiver(receiver);
    JfrJavaSupport::call_virtual(&args, CHECK_NH);
  }
  return result.get_type() == T_OBJECT ? Handle(THREAD, result.get_oop()) : Handle();
}

static Handle create(const char* klass, const char* signature, Handle argument, TRAPS) {
  JavaValue result(T_OBJECT);
  JfrJavaArguments args(&result, klass, "<init>", signature, CHECK_NH);
  args.push_oop(argument);
  JfrJavaSupport::new_object(&args, CHECK_NH);
  return Handle(THREAD, result.get_oop());
}

// List<Type>, with all types that the descriptions refer to
static Handle types_from(Handle bytes, TRAPS) {
  Handle stream = create("java/io/ByteArrayInputStream", "([B)V", bytes, CHECK_NH);
  Handle data = create("java/io/DataInputStream", "(Ljava/io/InputStream;)V", stream, CHECK_NH);
  Handle loader = create(JFR "MetadataLoader", "(Ljava/io/DataInputStream;)V", data, CHECK_NH);
  JavaValue result(T_OBJECT);
  JfrJavaArguments args(&result, JFR "MetadataLoader", "buildTypes", "()Ljava/util/List;", CHECK_NH);
  args.set_receiver(loader);
  JfrJavaSupport::call_special(&args, CHECK_NH);
  return Handle(THREAD, result.get_oop());
}

static void map_put(Handle repository, const char* field, Handle key, Handle value, TRAPS) {
  JavaValue map(T_OBJECT);
  JfrJavaArguments args(&map, JFR "MetadataRepository", field, "Ljava/util/Map;", CHECK);
  args.set_receiver(repository);
  JfrJavaSupport::get_field(&args, CHECK);
  call(Handle(THREAD, map.get_oop()), "java/util/HashMap", "put",
       "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;", key, value, CHECK);
}

// What MetadataRepository does with each event of metadata.bin
static void add_event(Handle repository, Handle type, TRAPS) {
  JavaValue nothing(T_VOID);
  JfrJavaArguments period(&nothing, JFR "PlatformEventType", "setHasPeriod", "(Z)V", CHECK);
  period.set_receiver(type);
  period.push_int(JNI_FALSE);
  JfrJavaSupport::call_virtual(&period, CHECK);
  call(Handle(), JFR "TypeLibrary", "addType", "(L" JFR "Type;)V", type, Handle(), CHECK);
  Handle name = call(type, JFR "Type", "getName", "()Ljava/lang/String;", Handle(), Handle(), CHECK);
  Handle access = call(Handle(), JFR "PrivateAccess", "getInstance", "()L" JFR "PrivateAccess;", Handle(), Handle(), CHECK);
  Handle event = call(access, JFR "PrivateAccess", "newEventType", "(L" JFR "PlatformEventType;)Ljdk/jfr/EventType;",
                      type, Handle(), CHECK);
  map_put(repository, "nativeEventTypes", name, event, CHECK);
  Handle control = create(JFR "EventControl", "(L" JFR "PlatformEventType;)V", type, CHECK);
  map_put(repository, "nativeControls", name, control, CHECK);
}

static void add_events(TRAPS) {
  Handle repository = call(Handle(), JFR "MetadataRepository", "getInstance", "()L" JFR "MetadataRepository;",
                           Handle(), Handle(), CHECK);
  Handle bytes = describe_events(CHECK);
  Handle list = types_from(bytes, CHECK);
  Handle types = call(list, "java/util/ArrayList", "toArray", "()[Ljava/lang/Object;", Handle(), Handle(), CHECK);
  // As the methods of the repository that read and change it
  ObjectLocker lock(repository, THREAD);
  for (int i = 0; i < objArrayOop(types())->length(); i++) {
    Handle type(THREAD, objArrayOop(types())->obj_at(i));
    if (type->klass()->name()->equals(JFR "PlatformEventType")) {
      add_event(repository, type, CHECK);
    }
  }
  call(repository, JFR "MetadataRepository", "setStaleMetadata", "()V", Handle(), Handle(), CHECK);
}

void JfrDonorEvents::define(TRAPS) {
  static bool defined = false;

  if (!DonorSpace::in_use() || defined) {
    return;
  }
  defined = true;
  HandleMark hm(THREAD);
  add_events(THREAD);
  if (HAS_PENDING_EXCEPTION) {
    ResourceMark rm(THREAD);
    stringStream why;
    java_lang_Throwable::print(PENDING_EXCEPTION, &why);
    CLEAR_PENDING_EXCEPTION;
    log_warning(jfr)("jdk.DonorTrace and jdk.DonorCommand are not known to this JDK: %s", why.base());
  }
}

#undef JFR
#undef GC_ID
