# SPDX-License-Identifier: GPL-2.0-or-later
"""GC workers as dcm-donord runs them: right requests, wrong ones, and every kind of end."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawgc import (BITMAP, DONE, FINISH, GC, GC_OPEN, GC_ROLE, GC_SLAB, GHOSTS,
                               NO_GC, PLACE, POLL, REGION, REQUEST, SPACE_DESTROY, STOP,
                               TRACE_START, TYPES_ADD, VGC_BAD_TYPE, VGC_CANCELLED, VGC_INVALID,
                               VGC_NO_TRACE, WORKER, Heap, Worker, alive, children)
from tests.donor.rawtls import (BUSY, ERROR, HELLO, NO_MEMORY, NO_SESSION, NO_SLAB, PROTOCOL, QUOTA,
                                READ, SHM, Closed, Control, Data, Refused, Slab, Tls, dial, hello,
                                pack)
from tests.framework.paths import BUILD

REGIONS = 8


def write(data: Data, slab: Slab, memory: bytes, at: int = 0) -> None:
    for o in range(0, len(memory), 65536):
        data.write(slab.id, at + o, bytes(memory[o:o + 65536]))


def ready(worker: Worker, slab: Slab, heap: Heap) -> None:
    """A space over the slab's first regions."""
    worker.slab(slab.id)
    assert worker.create(heap.regions) == 0
    assert worker.node_type() == 0
    assert worker.place([(r, 0, 0, r * REGION) for r in range(heap.regions)]) == 0


def one_pid(lab: Lab) -> int:
    found = children(lab.pid)
    assert len(found) == 1, found
    return found[0]


def gone(pid: int, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < end, f"process {pid} goes on"
        time.sleep(0.02)


def last_error(worker: Worker) -> int:
    """The last messages of the donor, before it closes the connection."""
    last = [m for m in worker.tls.wait_closed(10) if m.type == ERROR]
    assert last, "hung up on without a word"
    return last[-1].u32(0)


def no_workers(lab: Lab) -> None:
    lab.wait(lambda s: s["gc"]["workers"] == 0, "workers reaped")
    assert not children(lab.pid)


def test_trace(lab: Lab) -> None:
    """A worker finds the live objects in slabs written over the network; again after
    the heap was written again; for shm slabs as well."""
    heap = Heap(REGIONS, 8000, 1)
    roots = random.Random(2).sample(list(heap.refers), 20)
    c = lab.control()
    slab = c.map()
    d = c.data()
    write(d, slab, heap.memory)
    w = Worker(c)
    ready(w, slab, heap)
    for epoch in range(1, 4):
        if epoch == 3:
            heap.chain()
            write(d, slab, heap.memory)
        assert w.trace_start(epoch, heap.tops) == 0
        assert w.roots(epoch, roots) == 0
        assert w.finish(epoch) == 0
        assert w.live(epoch, REGIONS) == heap.reach(roots)
    assert w.request(SPACE_DESTROY).status == 0
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)

    c = lab.control(unix=True)
    slab = c.map(SHM)
    os.pwrite(slab.fd, heap.memory, 3 * REGION)
    w = Worker(c)
    w.slab(slab.id, 1023)
    assert w.create(REGIONS) == 0 and w.node_type() == 0
    assert w.place([(r, 0, 1023, (r + 3) * REGION) for r in range(REGIONS)]) == 0
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, roots[:1]) == 0
    assert w.finish(1) == 0
    assert w.live(1, REGIONS) == heap.reach(roots[:1])
    os.close(slab.fd)
    w.close()
    c.goodbye()
    no_workers(lab)


def test_who_may(lab: Lab) -> None:
    """The key is not enough: also the session and its secret, and only for its own slabs."""
    alice, bob = lab.control(), lab.control("bob")
    for session, secret in ((alice.session, bytes(16)), (bob.session, bob.secret),
                            (alice.session ^ 1, alice.secret)):
        tls = Tls(dial(lab.tcp_address), "alice", alice.key)
        tls.send(pack(HELLO, 1, hello(GC_ROLE, session, secret)))
        m = tls.message()
        assert (m.type, m.u32(0)) == (ERROR, NO_SESSION)
        tls.close()
    foreign = bob.map()
    mine = alice.map()
    w = Worker(alice)
    for slab in (foreign.id, mine.id ^ 1 << 30, 0, (1 << 64) - 1):
        w.slab(slab)
        m = w.tls.message()
        assert (m.type, m.tag, m.u32(0)) == (ERROR, 3, NO_SLAB)
    # and the worker goes on
    assert w.create(4) == 0
    # a slab that the worker was not given, and places outside the slab it was given
    assert w.place([(0, 0, 0, 0)]) == VGC_INVALID
    w.slab(mine.id)
    assert w.place([(0, 0, 0, mine.bytes)]) == VGC_INVALID
    assert w.place([(0, 0, 0, mine.bytes - REGION + 8)]) == VGC_INVALID
    assert w.place([(0, 0, 0, (1 << 64) - 8)]) == VGC_INVALID
    assert w.place([(4, 0, 0, 0)]) == VGC_INVALID
    assert w.place([(0, 0, 0, mine.bytes - REGION)]) == 0
    w.close()
    alice.goodbye()
    bob.goodbye()


def test_spaces(lab: Lab) -> None:
    """Sixteen spaces and not one more; one that is gone can be made again."""
    c = lab.control()
    w = Worker(c)
    for space in range(16):
        assert w.create(4, space) == 0
    assert w.create(4, 16) == VGC_INVALID
    assert w.create(4, 3) == VGC_INVALID
    assert w.request(SPACE_DESTROY, space=3).status == 0
    assert w.create(4, 3) == 0
    assert w.trace_start(1, [0] * 4) == 0
    assert w.request(TRACE_START, epoch=1, space=17).status == VGC_INVALID
    assert w.call(POLL, space=17, epoch=1).status == VGC_INVALID
    w.close()
    c.goodbye()


def test_limits(make_lab: MakeLab) -> None:
    """Of workers, of memory; none at all; a program that is not there."""
    lab = make_lab(gc={"workers": 2, "tenant-workers": 3, "memory": "64M"})
    c = [lab.control() for _ in range(3)]
    w = [Worker(c[0]), Worker(c[1])]
    with pytest.raises(Refused) as e:
        Worker(c[2])
    assert e.value.status == BUSY
    # the same session again: the new one takes the old one's place, once the old one is reaped
    old = children(lab.pid)
    end = time.monotonic() + 10
    while True:
        try:
            again = Worker(c[0])
            break
        except Refused as e2:
            assert e2.status == BUSY and time.monotonic() < end
            time.sleep(0.05)
    with pytest.raises(Closed):
        while True:
            w[0].tls.message()
    assert len(set(children(lab.pid)) - set(old)) == 1
    for one in (again, *w):
        one.close()
    no_workers(lab)
    late = Worker(c[2], start=False)
    with pytest.raises(Refused) as e:
        late.open(1 << 40)
    assert e.value.status == QUOTA
    with pytest.raises(Refused) as e:
        late.open((1 << 64) - 1)
    assert e.value.status == QUOTA
    assert late.open(1 << 20) >= 1
    late.close()
    for session in c:
        session.goodbye()
    lab.wait_empty()
    for gc in ({"workers": 0}, {"worker": "/nonexistent"}):
        none = make_lab(gc=gc)
        host = none.control()
        with pytest.raises(Refused) as e:
            Worker(host)
        assert e.value.status == NO_GC
        host.goodbye()
        none.wait_empty()


def charge(lab: Lab, name: str) -> dict[str, int]:
    """The bytes that a tenant is charged for."""
    [t] = [t for t in lab.status()["tenants"] if t["tenant"] == name]
    return {k: t[k] for k in ("bytes", "gc_bytes", "gc_workers", "quota_gc_workers")}


def memory_of(space_bytes: int) -> int:
    """The memory that a worker with one thread may take, as the donor counts it."""
    return space_bytes // 40 + (24 << 20) + (5 << 20)


def test_memory_is_the_tenants(make_lab: MakeLab) -> None:
    """The memory that a worker may take counts against its tenant until the worker is reaped."""
    lab = make_lab(gc={"workers": 8, "threads": 1, "memory": "100M"},
                   limits={"tenant-bytes": "70M"})
    c = lab.control()
    slab = c.map()
    w = Worker(c, space_bytes=64 << 20)
    one = memory_of(64 << 20)
    assert charge(lab, "alice") == {"bytes": slab.bytes + one, "gc_bytes": one,
                                    "gc_workers": 1, "quota_gc_workers": 4}
    assert charge(lab, "bob")["bytes"] == 0
    assert lab.status()["gc"]["charged_bytes"] == one
    # there is room for one more, and for some slabs, but not for all of these
    d = lab.control()
    late = Worker(d, start=False)
    with pytest.raises(Refused) as e:
        late.open(800 << 20)
    assert e.value.status == QUOTA
    late.open(64 << 20)
    left = ((70 << 20) - slab.bytes - 2 * one) // slab.bytes
    assert c.query()["free"] == left
    for _ in range(left):
        c.map()
    with pytest.raises(Refused) as e:
        c.map()
    assert e.value.status == QUOTA
    refused = [t["quota_refusals"] for t in lab.status()["tenants"] if t["tenant"] == "alice"]
    assert refused == [2]
    # the other tenant has all of its own
    other = lab.control("bob")
    Worker(other, space_bytes=64 << 20).close()
    other.goodbye()
    pid = children(lab.pid)[0]
    os.kill(pid, signal.SIGSTOP)  # it takes no part in its end
    w.close()
    late.close()
    no_workers(lab)
    assert charge(lab, "alice")["gc_bytes"] == 0
    c.map()
    c.goodbye()
    d.goodbye()
    lab.wait_empty()


def test_memory_is_the_hosts(make_lab: MakeLab) -> None:
    """Memory that workers may take is not lent; without enough memory a worker is refused."""
    lab = make_lab(donor={"capacity": "100%", "head-room": "1%"},
                   gc={"threads": 1, "memory": "100%"},
                   # few connections: descriptors are for the slabs of all this memory
                   limits={"tenant-bytes": "1024G", "connections": 64, "handshakes": 16})
    c = lab.control()
    w = Worker(c, start=False)
    memory = lab.status()["memory"]
    # so much that memory taken by other programs meanwhile does not matter
    half = memory["allowed_bytes"] // 2
    w.open((half - memory_of(0)) * 40)
    assert lab.status()["memory"]["allowed_bytes"] < 0.7 * memory["allowed_bytes"]
    other = lab.control("bob")
    late = Worker(other, start=False)
    with pytest.raises(Refused) as e:
        late.open((int(half * 1.6) - memory_of(0)) * 40)
    assert e.value.status == NO_MEMORY
    w.close()
    lab.wait(lambda s: s["gc"]["charged_bytes"] == 0, "worker reaped")
    assert lab.status()["memory"]["allowed_bytes"] > 0.7 * memory["allowed_bytes"]
    late.open((int(half * 1.2) - memory_of(0)) * 40)
    late.close()
    c.goodbye()
    other.goodbye()
    lab.wait_empty()


def test_no_more_than_it_was_charged(make_lab: MakeLab, asan_donord: object) -> None:
    """A worker that makes spaces for all it can has less memory than its tenant pays for."""
    lab = make_lab(gc={"threads": 1, "worker": str(BUILD / "bin" / "dcm-gc-worker")})
    c = lab.control()
    w = Worker(c, space_bytes=1 << 20)
    limit = memory_of(1 << 20)
    pid = one_pid(lab)
    made = 0
    for space in range(16):
        made += w.create(65536, space) == 0
        w.request(TYPES_ADD, struct.pack("<II", 0, 0), space=space)
    assert made < 16
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10
             for line in status.splitlines() if line.endswith(" kB")}
    assert sizes["VmData"] <= limit
    assert sizes["RssAnon"] + sizes["RssShmem"] <= limit
    # as much as the worker's tables, which a tenant may have written
    lab.wait(lambda s: s["gc"]["backed_bytes"] > 0, "workers looked at")
    assert lab.status()["gc"]["backed_bytes"] <= lab.status()["gc"]["charged_bytes"] == limit
    w.close()
    c.goodbye()
    lab.wait_empty()


def test_workers_of_a_tenant(make_lab: MakeLab) -> None:
    """One tenant can't take all workers; workers that another does not use stay reserved."""
    lab = make_lab(gc={"workers": 4})
    alice = [lab.control() for _ in range(3)]
    two = [Worker(c) for c in alice[:2]]
    with pytest.raises(Refused) as e:
        Worker(alice[2])
    assert e.value.status == QUOTA
    bob = lab.control("bob")
    Worker(bob).close()
    # the same session again takes its own worker's place, once the old one is reaped
    end = time.monotonic() + 10
    while True:
        try:
            two.append(Worker(alice[0]))
            break
        except Refused as e2:
            assert e2.status == BUSY and time.monotonic() < end
            time.sleep(0.05)
    for w in two:
        w.close()
    no_workers(lab)
    # a number in the configuration overrides the share
    lab.sections["tenant alice"] = {"workers": 3}
    lab.sections["gc"]["tenant-workers"] = 1
    lab.reload()
    three = [Worker(c) for c in alice]
    assert charge(lab, "alice")["gc_workers"] == 3
    assert charge(lab, "bob")["quota_gc_workers"] == 1
    for w in three:
        w.close()
    for c in (*alice, bob):
        c.goodbye()
    no_workers(lab)
    lab.wait_empty()


def nices(pid: int) -> set[int]:
    """Of all threads of a process."""
    return {int((task / "stat").read_text().rsplit(")", 1)[1].split()[16])
            for task in Path(f"/proc/{pid}/task").iterdir()}


def test_nice_by_number(make_lab: MakeLab) -> None:
    """The workers of a tenant that has many are nicer, so that all weigh as one."""
    lab = make_lab(gc={"workers": 16})
    if lab.status()["gc"]["cpu"] != "nice":
        pytest.skip("the donor divides a cgroup here")
    alice = [lab.control() for _ in range(8)]
    bob = lab.control("bob")
    one = Worker(bob)
    pid = one_pid(lab)
    assert nices(pid) == {5}
    many = [Worker(c) for c in alice]
    lab.served()
    found = [nices(p) for p in children(lab.pid) if p != pid]
    # 1.25 ** 9 is 7.5
    assert found == [{14}] * 8
    assert nices(pid) == {5}
    # a trace's threads are as nice
    heap = Heap(REGIONS, 800, 3)
    slab = alice[0].map()
    ready(many[0], slab, heap)
    assert many[0].trace_start(1, heap.tops) == 0
    assert [nices(p) for p in children(lab.pid) if p != pid] == [{14}] * 8
    for w in many[2:]:
        w.close()
    lab.wait(lambda s: s["gc"]["workers"] == 3, "workers reaped")
    if os.geteuid() == 0:  # or nobody may take it back
        assert [nices(p) for p in children(lab.pid) if p != pid] == [{8}] * 2
    for w in (*many[:2], one):
        w.close()
    for c in (*alice, bob):
        c.goodbye()
    no_workers(lab)
    lab.wait_empty()


def used(pid: int) -> float:
    """Seconds of CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_cpu_of_a_tenant(make_lab: MakeLab, tmp_path: Path) -> None:
    """Eight workers of one tenant that do nothing but burn the CPU leave the only worker
    of another tenant far more than a ninth of it."""
    spins = tmp_path / "worker"
    spins.write_text("#!/bin/sh\nwhile :; do :; done\n")
    spins.chmod(0o755)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # the donor and its workers have one CPU
    try:
        lab = make_lab(gc={"workers": 16, "worker": str(spins)})
    finally:
        os.sched_setaffinity(0, before)
    alice = [lab.control() for _ in range(8)]
    bob = lab.control("bob")
    one = Worker(bob)
    pid = one_pid(lab)
    many = [Worker(c) for c in alice]
    others = [p for p in children(lab.pid) if p != pid]
    start = used(pid), sum(used(p) for p in others)
    end = time.monotonic() + 60
    while used(pid) + sum(used(p) for p in others) - sum(start) < 3 and time.monotonic() < end:
        time.sleep(0.2)
        for c in (*alice, bob):
            c.beat()
    mine, theirs = used(pid) - start[0], sum(used(p) for p in others) - start[1]
    print(f"one worker {mine:.2f} s, eight workers {theirs:.2f} s")
    assert mine / (mine + theirs) > 0.3  # a half is fair; a ninth is by worker
    for w in (*many, one):
        w.close()
    for c in (*alice, bob):
        c.goodbye()
    no_workers(lab)
    lab.wait_empty()


def bad_messages(slab: Slab) -> dict[str, bytes]:
    body = struct.pack("<IIIIQII", POLL, 0, 0, 0, 0, 0, 0)
    return {
        "of data": pack(READ, 1, struct.pack("<QQII", slab.id, 0, 4096, 0)),
        "again": pack(GC_OPEN, 1, struct.pack("<QII", 1 << 20, 0, 0)),
        "a donor's kind": pack(GC, 1, struct.pack("<IIIIQII", DONE, 0, 0, 0, 0, 0, 0)),
        "the donor's own kind": pack(GC, 1, struct.pack("<IIIIQII", 1, 0, 0, 0, 0, 0, 0)),
        "no kind": pack(GC, 1, struct.pack("<IIIIQII", 99, 0, 0, 0, 0, 0, 0)),
        "reserved": pack(GC, 1, body[:-4] + b"\1\0\0\0"),
        "short": pack(GC, 1, body[:-1]),
        "long": pack(GC, 1, body, size=32 + 65537),
        "slab's number": pack(GC_SLAB, 1, struct.pack("<QII", slab.id, 1024, 0)),
        "slab's size": pack(GC_SLAB, 1, struct.pack("<QI", slab.id, 0)),
        "junk": b"\xa5" * 64,
    }


def test_wrong_messages(lab: Lab) -> None:
    """An invalid message ends the connection and the worker, not the session."""
    c = lab.control()
    slab = c.map()
    for name, raw in bad_messages(slab).items():
        w = Worker(c)
        pid = one_pid(lab)
        w.tls.send(raw)
        assert last_error(w) == PROTOCOL, name
        w.close()
        gone(pid)
    # before there is a worker
    for raw in (pack(GC_SLAB, 1, struct.pack("<QII", slab.id, 0, 0)),
                pack(GC, 1, struct.pack("<IIIIQII", POLL, 0, 0, 0, 0, 0, 0)),
                pack(GC_OPEN, 1, struct.pack("<QII", 1 << 20, 64, 0))):
        w = Worker(c, start=False)
        w.tls.send(raw)
        assert last_error(w) == PROTOCOL
        w.close()
    assert c.query()["used"] == slab.bytes
    c.goodbye()
    no_workers(lab)


def test_noise(lab: Lab) -> None:
    """Right framing, random contents: an answer or the end of the worker; then the next."""
    rng = random.Random(5)
    c = lab.control()
    slab = c.map()
    ended = 0
    for _ in range(12):
        w = Worker(c)
        ready(w, slab, Heap(REGIONS, 800, 3))
        try:
            for k in range(60):
                payload = rng.randbytes(rng.choice((0, 8, 24, 32, 40, 48, 64, 512, 4096)))
                if k % 2:
                    command = rng.choice((1, 2, 4, 16, 17, 18, 20, 32, 36))
                    payload = struct.pack("<HHIQIIII", command, 0, 0, 1, rng.randrange(3), 0,
                                          len(payload) // 16, 0) + payload
                w.say(REQUEST if k % 2 else rng.choice((PLACE, POLL, BITMAP, FINISH, GHOSTS)),
                      payload, epoch=rng.randrange(3), n=rng.randrange(70),
                      value=rng.randrange(9999), donor=rng.randrange(70))
            w.say(STOP, value=5)
            tag = w.say(POLL, epoch=1)
            while w.hear().tag != tag:
                pass
        except (Closed, Refused):
            ended += 1
        w.close()
    assert ended < 12
    d = c.data()
    d.write(slab.id, 0, b"n" * 4096)
    d.close()
    c.goodbye()
    no_workers(lab)


def test_hostile_heap(lab: Lab) -> None:
    """Bytes that are no heap: a status that says where, and nothing else happens."""
    rng = random.Random(6)
    c = lab.control()
    slab = c.map()
    d = c.data()
    w = Worker(c)
    heap = Heap(REGIONS, 8000, 4)
    ready(w, slab, heap)
    bad = rng.choice(list(heap.refers))
    struct.pack_into("<Q", heap.memory, bad, 0x7777)
    write(d, slab, heap.memory)
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, [bad]) == 0
    assert w.finish(1) == VGC_BAD_TYPE
    assert w.call(FINISH, epoch=1).status == VGC_BAD_TYPE
    for epoch in range(2, 12):
        write(d, slab, rng.randbytes(len(heap.memory)))
        assert w.trace_start(epoch, [REGION] * REGIONS) == 0
        assert w.roots(epoch, [8 * rng.randrange(REGION) for _ in range(16)]) == 0
        assert w.finish(epoch) != 0
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def long_trace(lab: Lab, c: Control) -> tuple[Worker, Slab, Data, Heap]:
    """A worker that traces until the trace is cancelled: new roots keep coming."""
    heap = Heap(REGIONS, 30000, 7)
    heap.chain()
    slab = c.map()
    d = c.data()
    write(d, slab, heap.memory)
    w = Worker(c)
    ready(w, slab, heap)
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, [0]) == 0
    return w, slab, d, heap


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGABRT])
def test_worker_killed(lab: Lab, how: signal.Signals) -> None:
    """In the middle of a trace: the host is told, its slabs are as they were, and another
    worker does it all."""
    c = lab.control()
    w, slab, d, heap = long_trace(lab, c)
    pid = one_pid(lab)
    os.kill(pid, how)
    assert last_error(w) == WORKER
    gone(pid)
    w.close()
    for o in range(0, len(heap.memory), 65536):
        assert d.read(slab.id, o, 65536) == heap.memory[o:o + 65536]
    assert lab.status()["gc"]["lost"] > 0
    again = Worker(c)
    ready(again, slab, heap)
    assert again.trace_start(1, heap.tops) == 0
    assert again.roots(1, [0]) == 0
    assert again.finish(1) == 0
    assert again.live(1, REGIONS) == heap.reach([0])
    again.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def test_stop(lab: Lab) -> None:
    """A trace that is told to stop says so, and another can begin."""
    c = lab.control()
    w, _, d, heap = long_trace(lab, c)
    w.say(STOP, value=VGC_CANCELLED)
    assert w.call(FINISH, epoch=1).status in (0, VGC_CANCELLED)
    assert w.trace_start(2, heap.tops) == 0
    assert w.roots(2, [REGION]) == 0
    assert w.call(POLL, epoch=1).payload[8] == VGC_NO_TRACE
    assert w.finish(2) == 0
    assert w.live(2, REGIONS) == heap.reach([REGION])
    w.close()
    d.close()
    c.goodbye()


def test_hang_up_ends_it(lab: Lab) -> None:
    """A worker that is stopped, and reads nothing, ends with its connection, and with its
    session; other workers go on."""
    other = lab.control("bob")
    kept, _, kept_data, _ = long_trace(lab, other)
    kept_pid = one_pid(lab)
    for session_too in (False, True):
        c = lab.control()
        w, _, d, _ = long_trace(lab, c)
        [pid] = [p for p in children(lab.pid) if p != kept_pid]
        os.kill(pid, signal.SIGSTOP)
        if session_too:
            c.goodbye()
            with pytest.raises(Closed):
                while True:
                    w.tls.message()
        w.close()
        gone(pid)
        d.close()
        if not session_too:
            c.goodbye()
    assert alive(kept_pid)
    assert kept.finish(1) == 0
    kept.close()
    kept_data.close()
    other.goodbye()
    no_workers(lab)


def test_slow_host(lab: Lab) -> None:
    """While a host does not read its answers the donor reads nothing of it; once it
    reads, every answer is there, in order."""
    c = lab.control()
    w, _, d, _ = long_trace(lab, c)
    assert w.finish(1) == 0
    first, many, sent = w.tag + 1, 20000, threading.Event()

    def ask() -> None:
        for _ in range(many // 100):
            batch = b""
            for _ in range(100):
                w.tag += 1
                batch += pack(GC, w.tag, struct.pack("<IIIIQII", BITMAP, 0, 1, 0, 0, 0, 0)
                              + bytes(2048))
            w.tls.send(batch)
        sent.set()

    asks = threading.Thread(target=ask)
    asks.start()
    # 40 MB of questions and 20 MB of answers: more than sockets hold
    assert not sent.wait(1.5)
    c.beat()
    lab.served()
    for tag in range(first, first + many):
        assert w.hear().tag == tag
        if tag % 500 == 0:
            c.beat()
    asks.join(10)
    assert sent.is_set()
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def test_slab_taken_back(lab: Lab) -> None:
    """A worker whose mapped slab was given back dies of SIGBUS and sees no page of the next
    owner; the donor and the session go on."""
    c = lab.control()
    w, slab, d, heap = long_trace(lab, c)
    assert w.finish(1) == 0
    c.unmap(slab)
    assert w.trace_start(2, heap.tops) == 0
    try:
        # the worker may live long enough to answer
        assert w.roots(2, [0]) == 0
        assert last_error(w) == WORKER
    except Refused as e:
        assert e.status == WORKER
    w.close()
    other = c.map()
    assert d.read(other.id, 0) == bytes(4096)
    d.close()
    c.goodbye()
    no_workers(lab)


@pytest.mark.parametrize("how", ["drained", "told twice", "killed"])
def test_donor_ends(make_lab: MakeLab, how: str) -> None:
    """No worker is left behind, however the daemon ends."""
    lab = make_lab()
    c = lab.control()
    w, slab, d, _ = long_trace(lab, c)
    pid = one_pid(lab)
    os.kill(pid, signal.SIGSTOP)  # it could not do anything about it
    if how == "killed":
        lab.signal(signal.SIGKILL)
        assert lab.process is not None
        lab.process.wait(10)
        lab.process = None
    else:
        lab.signal(signal.SIGTERM)
        if how == "drained":
            c.unmap(slab)
        else:
            lab.wait(lambda s: s["state"] == "draining", "the first signal")
            lab.signal(signal.SIGTERM)
    gone(pid)
    if lab.process is not None:
        assert lab.process.wait(20) == (how == "told twice")
    with pytest.raises((Closed, Refused)):
        while True:
            w.tls.message()
    w.close()
    d.close()
    c.close()
