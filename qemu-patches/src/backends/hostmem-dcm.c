/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * QEMU host memory backend on libdcm: guest RAM, part of it on donors
 *
 * The backend maps anonymous memory the way QEMU does and puts it under a
 * libdcm pager, which serves its page faults by userfaultfd and holds at most
 * its budget of it in this host.  Everything that would need all of it here
 * at once, or that changes the mapping behind the pager's back, is refused:
 *
 *  - share=on, prealloc=on, merge=on, mem-lock: the memory is private, and
 *    more than the host can be asked to hold;
 *  - devices that pin guest memory (VFIO): pages come and go, which is said
 *    with ram_block_discard_require();
 *  - migration and snapshots, in both directions: a blocker for outgoing
 *    ones, no start with -incoming, which covers postcopy.
 *
 * Discards (balloon, free page reporting, virtio-mem) are forwarded to the
 * pager, which gives the donors' memory back as well.
 *
 * A pager lives longer than its object: memory may be accessed in RCU critical
 * sections until the grace period after the RAMBlock is gone.  At exit every
 * pager is closed when the VM was stopped before, as by then nothing accesses
 * RAM, so that donors have their memory back at once; else they miss the
 * session.  That includes pagers whose object is gone and whose grace period is
 * not over: the RCU thread would close them while exit() takes down the
 * libraries they use.
 *
 * Locking: the BQL, which objects, RCU callbacks and exit notifiers run under.
 */

#include "qemu/osdep.h"
#include "system/hostmem-dcm.h"
#include "system/runstate.h"
#include "system/system.h"
#include "exec/memory.h"
#include "exec/ramblock.h"
#include "migration/blocker.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qemu/madvise.h"
#include "qemu/module.h"
#include "qemu/rcu.h"
#include "qom/object_interfaces.h"

#include <libdcm.h>

OBJECT_DECLARE_SIMPLE_TYPE(HostMemoryBackendDcm, MEMORY_BACKEND_DCM)

/* The state that outlives the object; pager is NULL while the process ends. */
typedef struct DcmMemory {
    struct rcu_head rcu;
    QLIST_ENTRY(DcmMemory) next;
    struct dcm_pager *pager;
    void *host;
    size_t size;
} DcmMemory;

static QLIST_HEAD(, DcmMemory) dcm_memories =
    QLIST_HEAD_INITIALIZER(dcm_memories);

struct HostMemoryBackendDcm {
    HostMemoryBackend parent_obj;

    char *config;
    uint64_t budget;
    DcmMemory *memory;
    Error *migration_blocker;
    bool discard_required;
};

static void dcm_memory_exit(Notifier *n, void *data)
{
    DcmMemory *m;

    if (runstate_is_running()) {
        return;
    }
    QLIST_FOREACH(m, &dcm_memories, next) {
        dcm_pager_close(m->pager);
        m->pager = NULL;
    }
}

static Notifier dcm_memories_exit = { .notify = dcm_memory_exit };

static DcmMemory *dcm_memory_new(void)
{
    DcmMemory *m = g_new0(DcmMemory, 1);

    QLIST_INSERT_HEAD(&dcm_memories, m, next);
    return m;
}

static void dcm_memory_free(DcmMemory *m)
{
    QLIST_REMOVE(m, next);
    /* Adopted memory stays mapped when its pager goes. */
    dcm_pager_close(m->pager);
    if (m->host) {
        qemu_anon_ram_free(m->host, m->size);
    }
    g_free(m);
}

static int dcm_backend_discard(RAMBlock *rb, ram_addr_t start, size_t length)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(rb->mr->owner);

    return dcm_pager_discard(d->memory->pager, rb->host + start, length);
}

/* Refuse properties and machine options that this backend can't honour. */
static bool dcm_backend_check(HostMemoryBackendDcm *d, Error **errp)
{
    HostMemoryBackend *backend = MEMORY_BACKEND(d);
    const char *no = NULL;

    if (!d->config) {
        error_setg(errp,
                   "config= is missing: the file that names donors, key "
                   "and budget (see libdcm.ini(5))");
        return false;
    }
    if (!backend->size) {
        error_setg(errp, "can't create backend with size 0");
        return false;
    }
    if (!QEMU_IS_ALIGNED(backend->size, qemu_real_host_page_size())) {
        error_setg(errp,
                   "size must be a multiple of the host's page size");
        return false;
    }
    if (backend->share) {
        no = "share=on: this memory is private to QEMU";
    } else if (backend->prealloc) {
        no = "prealloc=on: not all of this memory is in this host";
    } else if (backend->merge) {
        no = "merge=on: KSM can't merge memory under userfaultfd";
    } else if (backend->guest_memfd) {
        no = "a confidential guest: its memory can't be paged";
    } else if (should_mlock(mlock_state)) {
        no = "-overcommit mem-lock=on: not all of this memory is in this host";
    } else if (runstate_check(RUN_STATE_INMIGRATE)) {
        no = "-incoming: a VM can't be migrated into paged memory";
    }
    if (no) {
        error_setg(errp, "%s does not work with %s",
                   TYPE_MEMORY_BACKEND_DCM, no);
        return false;
    }
    return true;
}

/* Before anything is mapped: what is not allowed beside this memory. */
static bool dcm_backend_block(HostMemoryBackendDcm *d, Error **errp)
{
    g_autofree char *id = host_memory_backend_get_name(MEMORY_BACKEND(d));
    int ret;

    ret = ram_block_discard_require(true);
    if (ret) {
        error_setg_errno(errp, -ret,
                         "RAM is pinned, maybe by an assigned "
                         "device: it can't be paged");
        return false;
    }
    d->discard_required = true;

    error_setg(&d->migration_blocker,
               "memory '%s' is on donors: a VM can't "
               "be migrated or saved with it",
               id);
    return migrate_add_blocker(&d->migration_blocker, errp) >= 0;
}

static bool dcm_backend_memory_alloc(HostMemoryBackend *backend, Error **errp)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(backend);
    g_autofree char *name = NULL;
    char err[256];
    uint64_t align;
    DcmMemory *m;
    int ret;

    if (!dcm_backend_check(d, errp) || !dcm_backend_block(d, errp)) {
        return false;
    }

    /* Everything made from here on is freed with the object, error or not. */
    m = d->memory = dcm_memory_new();
    m->pager = dcm_pager_open_sized(d->config, backend->size, d->budget,
                                    err, sizeof(err));
    if (!m->pager) {
        error_setg(errp, "%s", err);
        return false;
    }
    m->size = backend->size;
    m->host = qemu_anon_ram_alloc(m->size, &align, false, true);
    if (!m->host) {
        error_setg_errno(errp, errno, "can't map %zu MiB of RAM",
                         m->size >> 20);
        return false;
    }

    name = host_memory_backend_get_name(backend);
    memory_region_init_ram_ptr(&backend->mr, OBJECT(backend), name,
                               backend->size, m->host);
    backend->mr.align = align;
    backend->mr.ram_block->discard = dcm_backend_discard;

    /* Last: it takes back MADV_HUGEPAGE, which every RAMBlock gets. */
    ret = dcm_pager_adopt(m->pager, m->host, m->size);
    if (ret) {
        error_setg_errno(errp, -ret, "memory can't be paged");
        return false;
    }
    return true;
}

struct dcm_pager *host_memory_backend_dcm_pager(HostMemoryBackend *backend)
{
    Object *o = object_dynamic_cast(OBJECT(backend), TYPE_MEMORY_BACKEND_DCM);

    return o ? MEMORY_BACKEND_DCM(o)->memory->pager : NULL;
}

static char *dcm_backend_get_config(Object *o, Error **errp)
{
    return g_strdup(MEMORY_BACKEND_DCM(o)->config);
}

static void dcm_backend_set_config(Object *o, const char *value, Error **errp)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(o);

    if (d->memory) {
        error_setg(errp, "cannot change property value");
        return;
    }
    g_free(d->config);
    d->config = g_strdup(value);
}

static void dcm_backend_get_budget(Object *o, Visitor *v, const char *name,
                                   void *opaque, Error **errp)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(o);
    uint64_t value = d->memory && d->memory->pager ?
                         dcm_pager_budget(d->memory->pager) :
                         d->budget;

    visit_type_size(v, name, &value, errp);
}

static void dcm_backend_set_budget(Object *o, Visitor *v, const char *name,
                                   void *opaque, Error **errp)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(o);
    uint64_t value;
    int ret;

    if (!visit_type_size(v, name, &value, errp)) {
        return;
    }
    if (!d->memory || !d->memory->pager) {
        d->budget = value;
        return;
    }
    ret = dcm_pager_set_budget(d->memory->pager, value);
    if (ret) {
        error_setg_errno(errp, -ret,
                         "budget must be at least %" PRIu64 " KiB",
                         dcm_pager_min_budget(d->memory->pager) >> 10);
    }
}

static char *dcm_backend_get_status(Object *o, Error **errp)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(o);
    char *status, *copy;

    if (!d->memory || !d->memory->pager) {
        return g_strdup("");
    }
    status = dcm_pager_status(d->memory->pager);
    if (!status) {
        error_setg(errp, "no memory");
        return NULL;
    }
    copy = g_strdup(status);
    free(status);
    return copy;
}

static void dcm_backend_instance_init(Object *obj)
{
    /* The machine's default, which is meant for RAM that can be merged. */
    MEMORY_BACKEND(obj)->merge = false;
}

static void dcm_backend_instance_finalize(Object *obj)
{
    HostMemoryBackendDcm *d = MEMORY_BACKEND_DCM(obj);

    migrate_del_blocker(&d->migration_blocker);
    if (d->discard_required) {
        ram_block_discard_require(false);
    }
    if (d->memory) {
        call_rcu(d->memory, dcm_memory_free, rcu);
    }
    g_free(d->config);
}

static void dcm_backend_class_init(ObjectClass *oc, void *data)
{
    HostMemoryBackendClass *bc = MEMORY_BACKEND_CLASS(oc);

    bc->alloc = dcm_backend_memory_alloc;
    qemu_add_exit_notifier(&dcm_memories_exit);

    object_class_property_add_str(oc, "config", dcm_backend_get_config,
                                  dcm_backend_set_config);
    object_class_property_set_description(
        oc, "config",
        "Configuration file of the pager: donors, key, budget");
    object_class_property_add(oc, "budget", "size", dcm_backend_get_budget,
                              dcm_backend_set_budget, NULL, NULL);
    object_class_property_set_description(
        oc, "budget",
        "Most memory held in this host, instead of the file's; can be changed");
    object_class_property_add_str(oc, "status", dcm_backend_get_status,
                                  NULL);
    object_class_property_set_description(oc, "status",
        "All that the pager counts, as JSON");
}

static const TypeInfo dcm_backend_info = {
    .name = TYPE_MEMORY_BACKEND_DCM,
    .parent = TYPE_MEMORY_BACKEND,
    .instance_size = sizeof(HostMemoryBackendDcm),
    .instance_init = dcm_backend_instance_init,
    .instance_finalize = dcm_backend_instance_finalize,
    .class_init = dcm_backend_class_init,
};

static void register_types(void)
{
    type_register_static(&dcm_backend_info);
}

type_init(register_types);
