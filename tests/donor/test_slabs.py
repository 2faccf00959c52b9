# SPDX-License-Identifier: GPL-2.0-or-later
"""Slabs: zero for their next owner, gone for the last one, counted against quotas."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.donor.conftest import SANITIZER, Lab, MakeLab
from tests.donor.rawtls import MAP, MR_INFO, NO_MEMORY, QUOTA, SHM, TCP, Refused
from tests.framework.slabs import slab_memfds

MIB = 1 << 20


def fill_tcp(lab: Lab, tenant: str, byte: bytes, count: int) -> None:
    c = lab.control(tenant)
    d = c.data()
    for _ in range(count):
        slab = c.map()
        for at in range(0, slab.bytes, 65536):
            d.write(slab.id, at, byte * 65536)
    d.close()
    c.goodbye()


def test_a_donor_started_anew_gives_other_ids(make_lab: MakeLab) -> None:
    """A host that does not know yet that the old slabs are lost must not meet the new ones."""
    ids = []
    for _ in range(2):
        lab = make_lab()
        c = lab.control()
        ids.append({c.map().id for _ in range(8)})
        c.goodbye()
    assert len(ids[0]) == len(ids[1]) == 8
    assert not ids[0] & ids[1]


def test_zero_for_the_next_owner(make_lab: MakeLab) -> None:
    """The whole capacity written by one tenant; the other finds zeros, over both transports."""
    lab = make_lab(donor={"capacity": "16M"})
    for kind in (TCP, SHM):
        fill_tcp(lab, "alice", b"\xaa", 8)
        lab.wait(lambda s: s["memory"]["slabs_free"] == 8, "all back")
        c = lab.control("bob", unix=kind == SHM)
        d = c.data()
        ids = set()
        for _ in range(8):
            slab = c.map(kind)
            ids.add(slab.id)
            if kind == SHM:
                with mmap.mmap(slab.fd, slab.bytes) as m:
                    assert m.find(b"\xaa") == -1 and not any(m[::4096])
                    m[:] = b"\xbb" * slab.bytes
                os.close(slab.fd)
            else:
                for at in range(0, slab.bytes, 65536):
                    assert d.read(slab.id, at, 65536) == bytes(65536)
        assert len(ids) == 8
        d.close()
        c.goodbye()
        lab.wait(lambda s: s["memory"]["slabs_free"] == 8, "all back")
    lab.wait_empty()


TOUCH = """
import mmap, os, sys
fd = int(sys.argv[1])
m = mmap.mmap(fd, 2 << 20)
m[0:4] = b"mine"
print("mapped", flush=True)
sys.stdin.readline()
print(m[0:4], flush=True)
"""


def test_old_owner_holds_the_mapping(lab: Lab) -> None:
    """Revoked: the descriptor is empty, can't grow, and the mapping is SIGBUS, even while the
    next owner uses the memory."""
    c = lab.control(unix=True)
    slab = c.map(SHM)
    assert os.fstat(slab.fd).st_size == slab.bytes
    with pytest.raises(PermissionError):
        os.ftruncate(slab.fd, slab.bytes * 2)
    p = subprocess.Popen([sys.executable, "-c", TOUCH, str(slab.fd)], pass_fds=[slab.fd],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None and p.stdout.readline() == "mapped\n"
    c.unmap(slab)  # DONE means that the memory is free
    assert os.fstat(slab.fd).st_size == 0
    assert os.fstat(slab.fd).st_blocks == 0
    assert os.pread(slab.fd, 4096, 0) == b""
    with pytest.raises(PermissionError):
        os.ftruncate(slab.fd, slab.bytes)
    fill_tcp(lab, "bob", b"\xcc", 4)
    out, _ = p.communicate("go\n", timeout=20)
    assert p.returncode == -signal.SIGBUS and out == ""
    os.close(slab.fd)
    c.goodbye()


def test_shrunk_by_its_owner(lab: Lab) -> None:
    """A host may ruin its own shm slab; the donor does not even notice."""
    c = lab.control(unix=True)
    slab = c.map(SHM)
    os.ftruncate(slab.fd, 0)
    c.query()
    c.unmap(slab)
    os.close(slab.fd)
    c.goodbye()


def test_a_slab_lent_has_all_its_pages(make_lab: MakeLab) -> None:
    """All pages of a slab exist when MAP is answered, whether the slab was spare or made for it:
    no process gets SIGBUS for a missing page, or is charged for another's."""
    lab = make_lab(donor={"capacity": "16M", "spare-slabs": 1})
    c = lab.control(unix=True)
    for transports in (SHM, TCP) * 4:
        slab = c.map(transports)
        if slab.transport == SHM:
            assert os.fstat(slab.fd).st_blocks * 512 == slab.bytes
            os.close(slab.fd)
    slabs = [link.stat() for link in slab_memfds(lab.pid)]
    assert [s.st_blocks * 512 for s in slabs] == [s.st_size for s in slabs] == [2 * MIB] * 8
    c.goodbye()
    lab.wait_empty()


def test_two_tenants_at_quota(make_lab: MakeLab) -> None:
    lab = make_lab(donor={"capacity": "64M"}, **{
        "tenant alice": {"bytes": "6M", "connections": 4},
        "tenant bob": {"bytes": "4M"}})
    a, a2, b = lab.control("alice"), lab.control("alice"), lab.control("bob")
    mine = [a.map(), a.map(), a2.map()]
    theirs = [b.map(), b.map()]
    for c in (a, a2, b):
        assert c.query()["free"] == 0
        with pytest.raises(Refused) as e:
            c.map()
        assert e.value.status == QUOTA
    # both are at their limit and both still work
    for c, slab in ((a, mine[0]), (b, theirs[0])):
        d = c.data()
        d.write(slab.id, 0, b"q" * 4096)
        assert d.read(slab.id, 0) == b"q" * 4096
        d.close()
    lab.wait(lambda s: s["connections"] == 3, "data connections closed")
    d1, d2 = a.data(), a.data()
    with pytest.raises(Refused) as e:
        a.data()
    assert e.value.status == QUOTA
    d1.close()
    d2.close()
    # one slab back is one slab more, for that tenant only
    a2.unmap(mine[2])
    with pytest.raises(Refused):
        b.map()
    assert a.query()["free"] == 1
    assert a.map().bytes == a.slab_bytes
    status = {t["tenant"]: t for t in lab.status()["tenants"]}
    assert status["alice"]["bytes"] == 6 * MIB and status["bob"]["bytes"] == 4 * MIB
    for c in (a, a2, b):
        c.goodbye()
    lab.wait_empty()


def test_capacity(make_lab: MakeLab) -> None:
    lab = make_lab(donor={"capacity": "8M", "spare-slabs": 0})
    a, b = lab.control("alice"), lab.control("bob")
    slabs = [a.map() for _ in range(4)]
    for c in (a, b):
        with pytest.raises(Refused) as e:
            c.map()
        assert e.value.status == NO_MEMORY
    a.unmap(slabs[0])
    assert b.query() == {"free": 1, "total": 4, "slab": 2 * MIB, "used": 6 * MIB, "flags": 0}
    b.map()
    a.goodbye()
    b.goodbye()
    lab.wait_empty()


def test_memory_comes_back(make_lab: MakeLab) -> None:
    """Twenty times the capacity lent and written: resident memory ends where it began."""
    lab = make_lab(donor={"capacity": "32M"})

    def fill() -> None:
        # slabs that other sessions gave back may not be freed yet
        lab.wait(lambda s: s["memory"]["slabs_free"] == 16, "all back")
        fill_tcp(lab, "alice", b"\x22", 16)

    fill()
    lab.wait_empty()
    before = lab.rss()
    for _ in range(4):
        fill()
    lab.wait_empty()
    assert lab.rss() - before < 16 * MIB
    # only the spare slab is left
    lab.wait(lambda s: s["memory"]["slabs_made"] - s["memory"]["slabs_released"] == 1, "released")


def test_hugepages_missing(make_lab: MakeLab) -> None:
    """Without reserved huge pages the donor says so and does not start."""
    with open("/proc/sys/vm/nr_hugepages") as f:
        if f.read().strip() != "0":
            pytest.skip("this machine has huge pages reserved")
    lab = make_lab(start=False, donor={"hugepages": "yes"})
    lab.write_files()
    p = subprocess.run([str(lab.binary), "--config", str(lab.config)], capture_output=True,
                       text=True, timeout=30, check=False, env={**os.environ, **SANITIZER})
    assert p.returncode == 2
    assert "nr_hugepages" in p.stderr and p.stderr.count("\n") == 1


@contextlib.contextmanager
def huge_pages(count: int) -> Iterator[None]:
    """As many reserved, for as long."""
    path = Path("/proc/sys/vm/nr_hugepages")
    try:
        path.write_text(str(count))
        got = int(path.read_text())
    except OSError:
        pytest.skip("huge pages can't be reserved here")
    try:
        if got < count:
            pytest.skip("the machine has no huge pages to give")
        yield
    finally:
        path.write_text("0")


def test_hugepages(make_lab: MakeLab) -> None:
    """Slabs of huge pages, lent over both transports; none left: refused, not SIGBUS."""
    with huge_pages(6):
        lab = make_lab(donor={"hugepages": "2M", "head-room": "2M", "capacity": "100%"})
        c = lab.control(unix=True)
        d = c.data()
        slabs = [c.map(TCP if i % 2 else SHM) for i in range(5)]
        with pytest.raises(Refused) as e:
            c.map()
        assert e.value.status == NO_MEMORY
        for slab in slabs:
            if slab.transport == TCP:
                d.write(slab.id, 2 * MIB - 4096, b"h" * 4096)
                assert d.read(slab.id, 2 * MIB - 8192, 8192) == bytes(4096) + b"h" * 4096
        d.close()
        c.goodbye()
        lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
        lab.finish()


def test_a_map_waits_for_one_of_each_other_tenants_at_most(make_lab: MakeLab) -> None:
    """Ten sessions of a tenant ask for slabs that are to be made; then another tenant does."""
    with huge_pages(16):
        lab = make_lab(donor={"hugepages": "2M", "head-room": "2M", "capacity": "100%",
                              "spare-slabs": 0})
        many, other = [lab.control() for _ in range(10)], lab.control("bob")
        lab.signal(signal.SIGSTOP)
        body = struct.pack("<QQII", 2 * MIB, 7, TCP, 0)
        tags = [c.send(MAP, body) for c in [*many, other]]
        lab.signal(signal.SIGCONT)
        # ids grow in the order in which slabs are made
        ids = [c.wait(MR_INFO, tag).u64(0) for c, tag in zip([*many, other], tags, strict=True)]
        before = sum(i < ids[-1] for i in ids)
        print(f"the other tenant's slab was made after {before} of {len(many)}")
        assert before <= 1
        for c in [*many, other]:
            c.goodbye()
        lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
        lab.finish()


def test_maps_that_wait_for_huge_pages_count_against_the_quota(make_lab: MakeLab) -> None:
    """Eight sessions of a tenant with a quota of two slabs ask at once: two of them get one."""
    with huge_pages(16):
        lab = make_lab(donor={"hugepages": "2M", "head-room": "2M", "capacity": "100%",
                              "spare-slabs": 0}, **{"tenant alice": {"bytes": "4M"}})
        sessions = [lab.control() for _ in range(8)]
        lab.signal(signal.SIGSTOP)
        body = struct.pack("<QQII", 2 * MIB, 7, TCP, 0)
        tags = [c.send(MAP, body) for c in sessions]
        lab.signal(signal.SIGCONT)
        got = []
        for c, tag in zip(sessions, tags, strict=True):
            try:
                got.append(c.wait(MR_INFO, tag).type)
            except Refused as e:
                got.append(-e.status)
        assert sorted(got) == [-QUOTA] * 6 + [MR_INFO] * 2, got
        assert {t["tenant"]: t["bytes"] for t in lab.status()["tenants"]}["alice"] == 4 * MIB
        # a refused MAP, and the MAP of a host that is gone, count no longer
        sessions[got.index(MR_INFO)].goodbye()
        lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
        sessions[got.index(MR_INFO)] = lab.control()
        sessions[got.index(MR_INFO)].map()
        for c in sessions:
            c.goodbye()
        lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
        lab.finish()
