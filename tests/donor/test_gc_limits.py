# SPDX-License-Identifier: GPL-2.0-or-later
"""Of GC workers: how many a tenant may have, their memory, their share of processors."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawgc import (NO_GC, REGIONS, TYPES_ADD, Heap, Worker, children, no_workers,
                               one_pid, ready)
from tests.donor.rawtls import BUSY, NO_MEMORY, QUOTA, Closed, Refused
from tests.framework.paths import BUILD
from tests.framework.process import processor_seconds


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

    def used() -> tuple[float, float]:
        return processor_seconds(pid), sum(processor_seconds(p) for p in others)

    start = used()
    end = time.monotonic() + 60
    while sum(used()) - sum(start) < 3 and time.monotonic() < end:
        time.sleep(0.2)
        for c in (*alice, bob):
            c.beat()
    mine, theirs = (now - then for now, then in zip(used(), start, strict=True))
    print(f"one worker {mine:.2f} s, eight workers {theirs:.2f} s")
    assert mine / (mine + theirs) > 0.3  # a half is fair; a ninth is by worker
    for w in (*many, one):
        w.close()
    for c in (*alice, bob):
        c.goodbye()
    no_workers(lab)
    lab.wait_empty()
