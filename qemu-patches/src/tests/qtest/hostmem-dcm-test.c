/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * memory-backend-dcm: what it refuses, and what its memory does
 *
 * Memory needs a donor: the tests that have some are run when
 * QTEST_DCM_CONFIG names a configuration whose donors lend 256 MiB or more,
 * and are skipped otherwise.
 */

#include "qemu/osdep.h"
#include "libqtest.h"
#include "libqos/libqos-pc.h"
#include "libqos/pci-pc.h"
#include "libqos/virtio-pci.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "standard-headers/linux/virtio_ring.h"
#include "qemu/bswap.h"
#include "qapi/error.h"

#define MIB             (1024 * 1024ULL)
#define RAM_BYTES       (192 * MIB)
#define BUDGET_BYTES    (32 * MIB)
#define OTHER_BYTES     (48 * MIB)
/* Written: above the BIOS's own, several times the budget. */
#define AREA            (16 * MIB)
#define AREA_BYTES      (128 * MIB)
#define BALLOON_SLOT    4
#define TIMEOUT_US      (30 * 1000 * 1000)

static const char *config;

static void assert_refused(QTestState *qts, const char *why, const char *fmt,
                           ...)
{
    g_autofree char *object = NULL;
    QDict *err;
    va_list ap;

    va_start(ap, fmt);
    object = g_strdup_vprintf(fmt, ap);
    va_end(ap);

    err = qtest_qmp_assert_failure_ref(
        qts, "{ 'execute': 'object-add', 'arguments': %p }",
        qobject_from_json(object, &error_abort));
    if (!strstr(qdict_get_str(err, "desc"), why)) {
        g_error("refused, but not with '%s': %s", why,
                qdict_get_str(err, "desc"));
    }
    qobject_unref(err);
}

static void test_refused(void)
{
    QTestState *qts = qtest_init("-machine none");
    static const char *const wrong[][2] = {
        { "'share': true", "share=on" },
        { "'prealloc': true", "prealloc=on" },
        { "'merge': true", "merge=on" },
    };
    int i;

    assert_refused(qts, "config",
                   "{ 'qom-type': 'memory-backend-dcm',"
                   "'id': 'm', 'size': 2097152 }");
    assert_refused(qts, "/nowhere/vm.ini",
                   "{ 'qom-type': 'memory-backend-dcm',"
                   "'id': 'm', 'size': 2097152, 'config': '/nowhere/vm.ini' }");
    assert_refused(qts, "page size",
                   "{ 'qom-type': 'memory-backend-dcm',"
                   "'id': 'm', 'size': 4097, 'config': '/nowhere/vm.ini' }");
    for (i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_refused(qts, wrong[i][1],
                       "{ 'qom-type': 'memory-backend-dcm',"
                       "'id': 'm', 'size': 2097152, 'config': '/nowhere/vm.ini',"
                       "%s }",
                       wrong[i][0]);
    }
    qtest_quit(qts);
}

static void test_refused_incoming(void)
{
    QTestState *qts = qtest_init("-machine none -incoming defer");

    assert_refused(qts, "-incoming",
                   "{ 'qom-type': 'memory-backend-dcm',"
                   "'id': 'm', 'size': 2097152, 'config': '/nowhere/vm.ini' }");
    qtest_quit(qts);
}

static void test_refused_migratable(void)
{
    QTestState *qts = qtest_init("-machine none -only-migratable");

    assert_refused(qts, "only-migratable",
                   "{ 'qom-type': 'memory-backend-dcm',"
                   "'id': 'm', 'size': 2097152, 'config': '/nowhere/vm.ini' }");
    qtest_quit(qts);
}

static QTestState *start(const char *more)
{
    return qtest_initf("-M pc,memory-backend=ram -m %llu -nodefaults "
                       "-object memory-backend-dcm,id=ram,size=%llu,"
                       "config=%s,budget=%llu %s",
                       RAM_BYTES / MIB, RAM_BYTES, config, BUDGET_BYTES,
                       more);
}

static QDict *get_status(QTestState *qts)
{
    QDict *reply, *status;

    reply = qtest_qmp(qts,
                      "{ 'execute': 'qom-get', 'arguments':"
                      "{ 'path': '/objects/ram', 'property': 'status' } }");
    status = qobject_to(QDict,
                        qobject_from_json(qdict_get_str(reply, "return"),
                                                 &error_abort));
    g_assert_nonnull(status);
    qobject_unref(reply);
    return status;
}

static int64_t get_number(QTestState *qts, const char *name)
{
    QDict *status = get_status(qts);
    int64_t n = qdict_get_int(status, name);

    qobject_unref(status);
    return n;
}

/* Every byte of a page depends on its address. */
static void fill(uint8_t *buf, uint64_t addr, size_t len)
{
    size_t i;

    for (i = 0; i < len; i += 8) {
        stq_le_p(buf + i, (addr + i) * 0x9e3779b97f4a7c15ULL);
    }
}

static void write_area(QTestState *qts)
{
    g_autofree uint8_t *buf = g_malloc(MIB);
    uint64_t at;

    for (at = AREA; at < AREA + AREA_BYTES; at += MIB) {
        fill(buf, at, MIB);
        qtest_bufwrite(qts, at, buf, MIB);
    }
}

static void assert_area(QTestState *qts, uint64_t from, uint64_t to)
{
    g_autofree uint8_t *buf = g_malloc(MIB);
    g_autofree uint8_t *want = g_malloc(MIB);
    uint64_t at;

    for (at = from; at < to; at += MIB) {
        fill(want, at, MIB);
        qtest_bufread(qts, at, buf, MIB);
        g_assert_cmpmem(buf, MIB, want, MIB);
    }
}

static void test_memory(void)
{
    QTestState *qts = start("");
    int64_t slack;

    /* Memory that was never written is zero. */
    g_assert_cmphex(qtest_readq(qts, AREA + AREA_BYTES + MIB), ==, 0);
    write_area(qts);
    assert_area(qts, AREA, AREA + AREA_BYTES);

    slack = get_number(qts, "in_flight_max_bytes");
    g_assert_cmpint(get_number(qts, "direct_bytes"), <=,
                    BUDGET_BYTES + slack);
    g_assert_cmpint(get_number(qts, "indirect_bytes"), >=,
                    AREA_BYTES - BUDGET_BYTES - slack);
    g_assert_cmpint(get_number(qts, "lost_pages"), ==, 0);
    qtest_quit(qts);
}

static void set_budget(QTestState *qts, uint64_t bytes)
{
    qtest_qmp_assert_success(
        qts,
        "{ 'execute': 'qom-set', 'arguments':"
        "{ 'path': '/objects/ram', 'property': 'budget', 'value': %" PRIu64
        " } }",
        bytes);
}

static void test_budget(void)
{
    QTestState *qts = start("");
    QDict *r;

    write_area(qts);
    set_budget(qts, OTHER_BYTES);
    r = qtest_qmp(qts,
                  "{ 'execute': 'qom-get', 'arguments':"
                  "{ 'path': '/objects/ram', 'property': 'budget' } }");
    g_assert_cmpint(qdict_get_int(r, "return"), ==, OTHER_BYTES);
    qobject_unref(r);
    g_assert_cmpint(get_number(qts, "budget_bytes"), ==, OTHER_BYTES);

    r = qtest_qmp_assert_failure_ref(
        qts,
        "{ 'execute': 'qom-set', 'arguments':"
        "{ 'path': '/objects/ram', 'property': 'budget', 'value': 4096 } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "at least"));
    qobject_unref(r);
    r = qtest_qmp_assert_failure_ref(
        qts,
        "{ 'execute': 'qom-set', 'arguments':"
        "{ 'path': '/objects/ram', 'property': 'config', 'value': 'x' } }");
    qobject_unref(r);

    g_assert_cmpint(get_number(qts, "budget_bytes"), ==, OTHER_BYTES);
    assert_area(qts, AREA, AREA + AREA_BYTES);
    qtest_quit(qts);
}

static void test_migration(void)
{
    QTestState *qts = start("");
    g_autofree char *said = NULL;
    QDict *r;

    r = qtest_qmp_assert_failure_ref(qts,
                                     "{ 'execute': 'migrate', 'arguments':"
                                     "{ 'uri': 'exec:cat > /dev/null' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "on donors"));
    qobject_unref(r);

    said = qtest_hmp(qts, "savevm x");
    g_assert_nonnull(strstr(said, "on donors"));
    qtest_quit(qts);
}

/* Inflate all of [from, to): the pages must be gone, here and on donors. */
static void inflate(QTestState *qts, uint64_t from, uint64_t to)
{
    QPCIAddress addr = { .devfn = QPCI_DEVFN(BALLOON_SLOT, 0) };
    QGuestAllocator alloc;
    QVirtioPCIDevice *dev;
    QPCIBusPC bus;
    QVirtQueue *vq;
    uint64_t at, list;
    uint32_t i, head;

    /* Its own pages are below what is inflated. */
    alloc_init(&alloc, 0, AREA / 2, AREA, 4096);
    qpci_init_pc(&bus, qts, &alloc);
    dev = virtio_pci_new(&bus.bus, &addr);
    g_assert_nonnull(dev);
    qvirtio_pci_device_enable(dev);
    qvirtio_start_device(&dev->vdev);
    qvirtio_set_features(&dev->vdev,
                         qvirtio_get_features(&dev->vdev) &
                         ~(QVIRTIO_F_BAD_FEATURE |
                           (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                           (1ull << VIRTIO_RING_F_EVENT_IDX)));
    vq = qvirtqueue_setup(&dev->vdev, &alloc, 0);
    qvirtio_set_driver_ok(&dev->vdev);

    list = guest_alloc(&alloc, 4096);
    for (at = from; at < to; at += 1024 * 4096) {
        for (i = 0; i < 1024; i++) {
            qtest_writel(qts, list + 4 * i, (at >> 12) + i);
        }
        head = qvirtqueue_add(qts, vq, list, 4096, false, false);
        qvirtqueue_kick(qts, &dev->vdev, vq, head);
        qvirtio_wait_used_elem(qts, &dev->vdev, vq, head, NULL,
                               TIMEOUT_US);
    }
    qvirtqueue_cleanup(dev->vdev.bus, vq, &alloc);
    qvirtio_pci_device_disable(dev);
    qos_object_destroy(&dev->obj);
    alloc_destroy(&alloc);
}

static void test_discard(void)
{
    g_autofree char *more = g_strdup_printf("-device virtio-balloon-pci,"
                                        "addr=%d",
                                        BALLOON_SLOT);
    QTestState *qts = start(more);
    uint64_t half = AREA + AREA_BYTES / 2, end = AREA + AREA_BYTES, at;
    int64_t before;

    write_area(qts);
    before = get_number(qts, "indirect_bytes");
    inflate(qts, half, end);
    g_assert_cmpint(get_number(qts, "indirect_bytes"), <=,
                    before - (int64_t)(AREA_BYTES / 2 - BUDGET_BYTES));
    for (at = half; at < end; at += 4096) {
        g_assert_cmphex(qtest_readq(qts, at), ==, 0);
    }
    assert_area(qts, AREA, half);
    qtest_quit(qts);
}

static bool add_spare(QTestState *qts)
{
    QDict *r = qtest_qmp(qts,
                         "{ 'execute': 'object-add', 'arguments': {"
                         "'qom-type': 'memory-backend-dcm', 'id': 'spare',"
                         "'size': %" PRIu64 ", 'config': %s } }",
                         (uint64_t)RAM_BYTES, config);
    bool ok = qdict_haskey(r, "return");

    qobject_unref(r);
    return ok;
}

/* Its pager goes some time after the object, with its status socket. */
static void test_add_del(void)
{
    QTestState *qts = qtest_init("-machine none");
    QDict *r;
    int i;

    for (i = 0; i < 3; i++) {
        while (!add_spare(qts)) {
            g_assert_cmpint(i, >, 0);
            g_usleep(20 * 1000);
        }
        qtest_qmp_assert_success(qts,
                                 "{ 'execute': 'object-del',"
                                 "'arguments': { 'id': 'spare' } }");
    }
    qtest_quit(qts);

    qts = start("");
    r = qtest_qmp_assert_failure_ref(qts, "{ 'execute': 'object-del',"
                                     "'arguments': { 'id': 'ram' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "in use"));
    qobject_unref(r);
    qtest_quit(qts);
}

/* Quitting deletes the object, and does not wait for its pager. */
static void test_quit(void)
{
    QTestState *qts = qtest_init("-machine none");

    g_assert_true(add_spare(qts));
    qtest_qmp_assert_success(qts, "{ 'execute': 'quit' }");
    qtest_wait_qemu(qts);
    qtest_quit(qts);
}

static void skip(void)
{
    g_test_skip("QTEST_DCM_CONFIG names no configuration with donors");
}

static void add_with_donors(const char *path, void (*fn)(void))
{
    qtest_add_func(path, config ? fn : skip);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    config = g_getenv("QTEST_DCM_CONFIG");

    qtest_add_func("/hostmem-dcm/refused/properties", test_refused);
    qtest_add_func("/hostmem-dcm/refused/incoming", test_refused_incoming);
    qtest_add_func("/hostmem-dcm/refused/only-migratable",
                   test_refused_migratable);
    add_with_donors("/hostmem-dcm/memory", test_memory);
    add_with_donors("/hostmem-dcm/budget", test_budget);
    add_with_donors("/hostmem-dcm/migration", test_migration);
    add_with_donors("/hostmem-dcm/discard", test_discard);
    add_with_donors("/hostmem-dcm/add-del", test_add_del);
    add_with_donors("/hostmem-dcm/quit", test_quit);
    return g_test_run();
}
