/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-gc: what is QEMU's part of it - the window, the queue, reset, unplug,
 * what it refuses to be combined with
 *
 * All but the last needs donors: QTEST_DCM_CONFIG names a configuration whose
 * donors lend 256 MiB or more, else those tests are skipped.
 */

#include "qemu/osdep.h"
#include "libqtest.h"
#include "libqos/pci-pc.h"
#include "libqos/virtio-pci.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "qobject/qdict.h"
#include "standard-headers/linux/pci_regs.h"
#include "standard-headers/linux/virtio_pci.h"
#include "standard-headers/linux/virtio_ring.h"

#include <virtio_gc.h>

#define MIB             (1024 * 1024ULL)
#define WINDOW_BYTES    (64 * MIB)
#define WINDOW_BAR      4
#define SPACE_BYTES     (16 * MIB)
#define REGION_BYTES    (64 * 1024)
#define SLOT            4
#define ALLOC_START     (4 * MIB)
#define ALLOC_END       (8 * MIB)
#define TIMEOUT_US      (30 * 1000 * 1000)

static const char *config;

typedef struct GC {
    QTestState *qts;
    QGuestAllocator alloc;
    QPCIBusPC bus;
    QVirtioPCIDevice *dev;
    QVirtQueue *vq;
    QPCIBar window;
} GC;

static QTestState *start(void)
{
    return qtest_initf("-M pc -nodefaults -object memory-backend-dcm,id=window,"
                       "size=%llu,config=%s -device virtio-gc-pci,id=gc,addr=%d,"
                       "memdev=window", WINDOW_BYTES, config, SLOT);
}

static void negotiate(GC *gc)
{
    qvirtio_start_device(&gc->dev->vdev);
    qvirtio_set_features(&gc->dev->vdev,
                         qvirtio_get_features(&gc->dev->vdev) &
                         ~(QVIRTIO_F_BAD_FEATURE |
                           (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                           (1ull << VIRTIO_RING_F_EVENT_IDX)));
    gc->vq = qvirtqueue_setup(&gc->dev->vdev, &gc->alloc,
                              VIRTIO_GC_VQ_COMMAND);
    qvirtio_set_driver_ok(&gc->dev->vdev);
}

static void up(GC *gc)
{
    QPCIAddress addr = { .devfn = QPCI_DEVFN(SLOT, 0) };

    gc->qts = start();
    alloc_init(&gc->alloc, 0, ALLOC_START, ALLOC_END, 4096);
    qpci_init_pc(&gc->bus, gc->qts, &gc->alloc);
    gc->dev = virtio_pci_new(&gc->bus.bus, &addr);
    g_assert_nonnull(gc->dev);
    g_assert_cmpint(gc->dev->vdev.device_type, ==, VIRTIO_ID_GC);
    qvirtio_pci_device_enable(gc->dev);
    gc->window = qpci_iomap(gc->dev->pdev, WINDOW_BAR, NULL);
    negotiate(gc);
}

static void down(GC *gc)
{
    qvirtqueue_cleanup(gc->dev->vdev.bus, gc->vq, &gc->alloc);
    qvirtio_pci_device_disable(gc->dev);
    qos_object_destroy(&gc->dev->obj);
    alloc_destroy(&gc->alloc);
    qtest_quit(gc->qts);
}

static uint64_t window_read(GC *gc, uint64_t at)
{
    return qpci_io_readq(gc->dev->pdev, gc->window, at);
}

static void window_write(GC *gc, uint64_t at, uint64_t value)
{
    qpci_io_writeq(gc->dev->pdev, gc->window, at, value);
}

/* A request that is not waited for; its descriptor. */
static uint32_t submit(GC *gc, const void *request, size_t size, size_t room,
                       uint64_t *answer, size_t step)
{
    uint64_t out = guest_alloc(&gc->alloc, 4096);
    uint32_t head = 0;
    size_t at, n;

    *answer = guest_alloc(&gc->alloc, 4096);
    qtest_memwrite(gc->qts, out, request, size);
    for (at = 0; at < size; at += n) {
        uint32_t d;

        n = MIN(step, size - at);
        d = qvirtqueue_add(gc->qts, gc->vq, out + at, n, false,
                           at + n < size || room);
        head = at ? head : d;
    }
    for (at = 0; at < room; at += n) {
        n = MIN(step, room - at);
        qvirtqueue_add(gc->qts, gc->vq, *answer + at, n, true, at + n < room);
    }
    qvirtqueue_kick(gc->qts, &gc->dev->vdev, gc->vq, head);
    return head;
}

/* One request, in pieces of @step; the status, or what @len became. */
static uint32_t ask(GC *gc, const void *request, size_t size, size_t room,
                    uint32_t *len, size_t step)
{
    struct virtio_gc_done done = { 0 };
    uint64_t answer;
    uint32_t head, got;

    head = submit(gc, request, size, room, &answer, step);
    qvirtio_wait_used_elem(gc->qts, &gc->dev->vdev, gc->vq, head, &got,
                           TIMEOUT_US);
    if (len) {
        *len = got;
    } else {
        g_assert_cmpint(got, ==, sizeof(done));
    }
    qtest_memread(gc->qts, answer, &done, MIN(got, sizeof(done)));
    return le32_to_cpu(done.status);
}

typedef struct QEMU_PACKED Create {
    struct virtio_gc_req req;
    struct virtio_gc_space space;
} Create;

static Create space_create(uint32_t id, uint64_t window)
{
    return (Create) {
        .req.command = cpu_to_le16(VIRTIO_GC_SPACE_CREATE),
        .req.space = cpu_to_le32(id),
        .space.window = cpu_to_le64(window),
        .space.bytes = cpu_to_le64(SPACE_BYTES),
        .space.region_bytes = cpu_to_le64(REGION_BYTES),
        .space.address = cpu_to_le64(1ULL << 40),
        .space.ref_bytes = 8,
        .space.type_bytes = 4,
        .space.type_mask = cpu_to_le32(0xffff),
    };
}

static uint32_t ask_create(GC *gc, uint32_t id, uint64_t window)
{
    Create c = space_create(id, window);

    return ask(gc, &c, sizeof(c), 64, NULL, 4096);
}

static uint32_t ask_destroy(GC *gc, uint32_t id)
{
    struct virtio_gc_req r = {
        .command = cpu_to_le16(VIRTIO_GC_SPACE_DESTROY),
        .space = cpu_to_le32(id),
    };

    return ask(gc, &r, sizeof(r), 64, NULL, 4096);
}

/* The capability of shared memory region 0, and the configuration. */
static void test_window(void)
{
    GC gc;
    QPCIDevice *pdev;
    uint64_t bytes, length = 0;
    uint8_t at = 0;

    up(&gc);
    pdev = gc.dev->pdev;
    while ((at = qpci_find_capability(pdev, PCI_CAP_ID_VNDR, at))) {
        if (qpci_config_readb(pdev, at + offsetof(struct virtio_pci_cap,
                              cfg_type)) != VIRTIO_PCI_CAP_SHARED_MEMORY_CFG) {
            continue;
        }
        g_assert_cmpint(qpci_config_readb(pdev, at +
            offsetof(struct virtio_pci_cap, id)), ==, VIRTIO_GC_SHM_WINDOW);
        g_assert_cmpint(qpci_config_readb(pdev, at +
            offsetof(struct virtio_pci_cap, bar)), ==, WINDOW_BAR);
        g_assert_cmpint(qpci_config_readl(pdev, at +
            offsetof(struct virtio_pci_cap, offset)), ==, 0);
        length = qpci_config_readl(pdev, at + offsetof(struct virtio_pci_cap,
                                                       length)) |
                 (uint64_t)qpci_config_readl(pdev, at +
                     offsetof(struct virtio_pci_cap64, length_hi)) << 32;
    }
    g_assert_cmphex(length, ==, WINDOW_BYTES);

    bytes = qvirtio_config_readq(&gc.dev->vdev,
                                 offsetof(struct virtio_gc_config,
                                          window_bytes));
    g_assert_cmphex(bytes, ==, WINDOW_BYTES);
    g_assert_cmpint(qvirtio_config_readl(&gc.dev->vdev,
                    offsetof(struct virtio_gc_config, donors)), >, 0);
    g_assert_cmpint(qvirtio_config_readl(&gc.dev->vdev,
                    offsetof(struct virtio_gc_config, budget_mib)), >, 0);

    window_write(&gc, 0, 1);
    window_write(&gc, WINDOW_BYTES - 8, 2);
    g_assert_cmphex(window_read(&gc, 0), ==, 1);
    g_assert_cmphex(window_read(&gc, WINDOW_BYTES - 8), ==, 2);
    down(&gc);
}

static void test_commands(void)
{
    Create c = space_create(1, 0);
    uint32_t len;
    GC gc;

    up(&gc);
    g_assert_cmpint(ask_create(&gc, 1, 0), ==, VIRTIO_GC_OK);
    g_assert_cmpint(ask_create(&gc, 1, SPACE_BYTES), ==, VIRTIO_GC_INVALID);
    /* However the bytes are spread. */
    c.req.space = cpu_to_le32(2);
    c.space.window = cpu_to_le64(SPACE_BYTES);
    g_assert_cmpint(ask(&gc, &c, sizeof(c), 64, NULL, 5), ==, VIRTIO_GC_OK);
    c.req.command = cpu_to_le16(999);
    g_assert_cmpint(ask(&gc, &c, sizeof(c), 64, NULL, 4096), ==,
                    VIRTIO_GC_UNSUPPORTED);
    /* No room, no answer, nothing done; nothing said. */
    c = space_create(3, 2 * SPACE_BYTES);
    ask(&gc, &c, sizeof(c), 31, &len, 4096);
    g_assert_cmpint(len, ==, 0);
    g_assert_cmpint(ask_destroy(&gc, 3), ==, VIRTIO_GC_INVALID);
    ask(&gc, &c, sizeof(c), 0, &len, 4096);
    g_assert_cmpint(len, ==, 0);
    ask(&gc, &c, 0, 64, &len, 4096);
    g_assert_cmpint(len, ==, sizeof(struct virtio_gc_done));

    window_write(&gc, SPACE_BYTES - 8, 1);
    window_write(&gc, SPACE_BYTES, 2);
    g_assert_cmpint(ask_destroy(&gc, 2), ==, VIRTIO_GC_OK);
    g_assert_cmphex(window_read(&gc, SPACE_BYTES - 8), ==, 1);
    g_assert_cmphex(window_read(&gc, SPACE_BYTES), ==, 0);
    down(&gc);
}

/* With requests on their way, of which some may be done. */
static void test_reset(void)
{
    uint64_t answer, at;
    GC gc;
    int i;

    up(&gc);
    for (at = 0; at < WINDOW_BYTES; at += MIB) {
        window_write(&gc, at, at + 1);
    }
    for (i = 0; i < 16; i++) {
        Create c = space_create(i, i * SPACE_BYTES);

        submit(&gc, &c, sizeof(c), 64, &answer, 4096);
    }
    qvirtqueue_cleanup(gc.dev->vdev.bus, gc.vq, &gc.alloc);
    qvirtio_reset(&gc.dev->vdev);
    /* [VGC-D-5] */
    for (at = 0; at < WINDOW_BYTES; at += MIB) {
        g_assert_cmphex(window_read(&gc, at), ==, 0);
    }
    negotiate(&gc);
    for (i = 0; i < 4; i++) {
        g_assert_cmpint(ask_create(&gc, i, i * SPACE_BYTES), ==, VIRTIO_GC_OK);
    }
    qtest_system_reset(gc.qts);
    qtest_quit(gc.qts);
    alloc_destroy(&gc.alloc);
    qos_object_destroy(&gc.dev->obj);
}

/* Requests made while the VM is stopped are answered when it runs again. */
static void test_stopped(void)
{
    Create c = space_create(1, 0);
    struct virtio_gc_done done;
    uint64_t answer;
    uint32_t head;
    GC gc;

    up(&gc);
    qtest_qmp_assert_success(gc.qts, "{ 'execute': 'stop' }");
    head = submit(&gc, &c, sizeof(c), 64, &answer, 4096);
    qtest_memset(gc.qts, answer, 0xff, 64);
    qtest_qmp_assert_success(gc.qts, "{ 'execute': 'query-status' }");
    g_assert_cmphex(qtest_readl(gc.qts, answer), ==, 0xffffffff);
    qtest_qmp_assert_success(gc.qts, "{ 'execute': 'cont' }");
    qvirtio_wait_used_elem(gc.qts, &gc.dev->vdev, gc.vq, head, NULL,
                           TIMEOUT_US);
    qtest_memread(gc.qts, answer, &done, sizeof(done));
    g_assert_cmpint(le32_to_cpu(done.status), ==, VIRTIO_GC_OK);
    down(&gc);
}

static void test_unplug(void)
{
    QDict *r;
    GC gc;

    up(&gc);
    g_assert_cmpint(ask_create(&gc, 1, 0), ==, VIRTIO_GC_OK);
    r = qtest_qmp_assert_failure_ref(gc.qts, "{ 'execute': 'object-del',"
                                     "'arguments': { 'id': 'window' } }");
    qobject_unref(r);
    qpci_unplug_acpi_device_test(gc.qts, "gc", SLOT);
    qtest_qmp_assert_success(gc.qts, "{ 'execute': 'object-del',"
                             "'arguments': { 'id': 'window' } }");
    qtest_quit(gc.qts);
    alloc_destroy(&gc.alloc);
    qos_object_destroy(&gc.dev->obj);
}

static void test_migration(void)
{
    g_autofree char *said = NULL;
    QDict *r;
    GC gc;

    up(&gc);
    /* [VGC-D-6] */
    r = qtest_qmp_assert_failure_ref(gc.qts, "{ 'execute': 'migrate',"
        "'arguments': { 'uri': 'exec:cat > /dev/null' } }");
    qobject_unref(r);
    said = qtest_hmp(gc.qts, "savevm x");
    g_assert_nonnull(strstr(said, "non-migratable"));

    /* The device is one that QEMU's own inspection knows. */
    r = qtest_qmp(gc.qts, "{ 'execute': 'x-query-virtio-status', 'arguments':"
                  "{ 'path': '/machine/peripheral/gc/virtio-backend' } }");
    g_assert_cmpstr(qdict_get_str(qdict_get_qdict(r, "return"), "name"), ==,
                    "virtio-gc");
    qobject_unref(r);
    down(&gc);
}

static void test_refused(void)
{
    QTestState *qts = qtest_init("-M pc -nodefaults -object memory-backend-ram,"
                                 "id=ram,size=2M");
    QDict *r;

    r = qtest_qmp_assert_failure_ref(qts, "{ 'execute': 'device_add',"
        "'arguments': { 'driver': 'virtio-gc-pci', 'id': 'gc' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "memdev"));
    qobject_unref(r);
    r = qtest_qmp_assert_failure_ref(qts, "{ 'execute': 'device_add',"
        "'arguments': { 'driver': 'virtio-gc-pci', 'id': 'gc',"
        "'memdev': 'ram' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "memory-backend-dcm"));
    qobject_unref(r);
    qtest_quit(qts);
}

/* One window, one device; and one that is not whole extents. */
static void test_refused_window(void)
{
    QTestState *qts = start();
    QDict *r;

    r = qtest_qmp_assert_failure_ref(qts, "{ 'execute': 'device_add',"
        "'arguments': { 'driver': 'virtio-gc-pci', 'id': 'gc2',"
        "'memdev': 'window' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "busy"));
    qobject_unref(r);
    qtest_quit(qts);

    qts = qtest_init("-M pc -nodefaults");
    qtest_qmp_assert_success(qts, "{ 'execute': 'object-add', 'arguments': {"
        "'qom-type': 'memory-backend-dcm', 'id': 'odd', 'size': 4198400,"
        "'config': %s } }", config);
    r = qtest_qmp_assert_failure_ref(qts, "{ 'execute': 'device_add',"
        "'arguments': { 'driver': 'virtio-gc-pci', 'id': 'gc',"
        "'memdev': 'odd' } }");
    g_assert_nonnull(strstr(qdict_get_str(r, "desc"), "whole extents"));
    qobject_unref(r);
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

    qtest_add_func("/virtio-gc/refused/memdev", test_refused);
    add_with_donors("/virtio-gc/refused/window", test_refused_window);
    add_with_donors("/virtio-gc/window", test_window);
    add_with_donors("/virtio-gc/commands", test_commands);
    add_with_donors("/virtio-gc/reset", test_reset);
    add_with_donors("/virtio-gc/stopped", test_stopped);
    add_with_donors("/virtio-gc/unplug", test_unplug);
    add_with_donors("/virtio-gc/migration", test_migration);
    return g_test_run();
}
