# SPDX-License-Identifier: GPL-2.0-or-later
"""Getting memory back: batch eviction under a raised head room, deadlines, drain."""

from __future__ import annotations

import os
import signal
import struct
import time

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawtls import (ACTIVITY, CHECK_ACTIVITY, DONE, DRAINING, EVICT, HEARTBEAT,
                                NO_MEMORY, NO_SLAB, SHM, TCP, Closed, Control, Message, Refused,
                                TlsError)

MIB = 1 << 20


def answer(c: Control, activity: dict[int, int], done: bool, seconds: float = 6) -> list[int]:
    """Play a good host until one EVICT came and no more do; the slabs asked back."""
    evicted: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        m: Message = c.tls.message()
        if m.type == CHECK_ACTIVITY:
            slab = m.u64(0)
            c.send(ACTIVITY, struct.pack("<QQ", slab, activity[slab]), m.tag)
        elif m.type == EVICT:
            evicted.append(m.u64(0))
            if done:
                c.send(DONE, m.body, m.tag)
        elif m.type == HEARTBEAT:
            c.beat()
            if evicted:
                break
    return evicted


def squeeze(lab: Lab, slabs: int) -> None:
    """Lower the capacity, so that only @slabs may stay lent.

    The capacity is exact. The head room is not, as free memory changes on a busy machine: a
    test below has it.
    """
    lab.sections["donor"]["capacity"] = f"{slabs * 2}M"
    lab.reload()


def test_least_active_go(make_lab: MakeLab) -> None:
    """E of E+E': with E' = E = half of all slabs, the least active half is evicted."""
    lab = make_lab(donor={"capacity": "32M", "spare-slabs": 2})
    c = lab.control(unix=True)
    slabs = [c.map(SHM) for _ in range(8)]
    activity = {s.id: (i + 1) * 1000 for i, s in enumerate(slabs)}
    squeeze(lab, 4)
    evicted = answer(c, activity, done=True)
    assert sorted(evicted) == sorted(s.id for s in slabs[:4])
    status = lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0
                      and s["memory"]["slabs_mapped"] == 4, "given back")
    assert status["evictions"] == {"rounds": 1, "asked": 4, "done": 4, "forced": 0}
    assert status["memory"]["slabs_spare"] == 0  # those went first
    for slab in slabs:
        assert os.fstat(slab.fd).st_size == (0 if slab.id in evicted else slab.bytes)
        os.close(slab.fd)
    with pytest.raises(Refused) as e:
        c.map()
    assert e.value.status == NO_MEMORY
    c.goodbye()


def test_head_room(make_lab: MakeLab) -> None:
    """A head room larger than the host's memory takes everything back."""
    lab = make_lab(donor={"capacity": "32M"})
    c = lab.control()
    slabs = [c.map(TCP) for _ in range(6)]
    d = c.data()
    for s in slabs:
        d.write(s.id, 0, b"v" * 4096)
    lab.sections["donor"]["head-room"] = "100%"
    lab.reload()
    evicted: list[int] = []
    while len(evicted) < 6:
        evicted += answer(c, {s.id: 0 for s in slabs}, done=True)
    assert sorted(evicted) == sorted(s.id for s in slabs)
    lab.wait(lambda s: s["memory"]["backed_bytes"] == 0 and s["memory"]["slabs_spare"] == 0,
             "everything is back with the host")
    assert c.query()["free"] == 0
    lab.sections["donor"]["head-room"] = "64M"
    lab.reload()
    lab.wait(lambda s: s["memory"]["slabs_free"] == 16, "room again")
    assert c.map().bytes == c.slab_bytes
    d.close()
    c.goodbye()
    lab.wait_empty()


def test_donor_knows_tcp_activity(make_lab: MakeLab) -> None:
    """A host that calls its idle tcp slabs busy loses them all the same."""
    lab = make_lab(donor={"capacity": "32M"})
    c = lab.control()
    slabs = [c.map(TCP) for _ in range(4)]
    d = c.data()
    end = time.monotonic() + 2.2
    while time.monotonic() < end:
        for s in slabs[2:]:
            d.write(s.id, 0, b"b" * 65536)
    squeeze(lab, 2)
    claims = {s.id: 1 << 60 for s in slabs[:2]} | {s.id: 0 for s in slabs[2:]}
    assert sorted(answer(c, claims, done=True)) == sorted(s.id for s in slabs[:2])
    d.close()
    c.goodbye()


@pytest.mark.slow
def test_silent_hosts_are_asked_first(make_lab: MakeLab) -> None:
    """While a silent host has slabs, live hosts keep theirs, idle ones too. The silent host is
    asked like any other and has as long to answer; then its slabs are revoked."""
    lab = make_lab(donor={"capacity": "32M"}, eviction={"evict-timeout": "3s"})
    silent, alive = lab.control(unix=True), lab.control("bob")
    theirs = [silent.map(SHM) for _ in range(4)]
    ours = [alive.map(TCP) for _ in range(4)]
    end = time.monotonic() + 20
    while [s["state"] for s in lab.status()["sessions"]] != ["silent", "alive"]:
        alive.beat()
        assert time.monotonic() < end, lab.status()["sessions"]
        time.sleep(0.2)
    squeeze(lab, 5)
    end = time.monotonic() + 20
    while lab.status()["evictions"]["asked"] != 3:
        alive.beat()
        assert time.monotonic() < end, lab.status()["evictions"]
        time.sleep(0.1)
    assert lab.status()["evictions"]["forced"] == 0
    # the host was only slow: it gives back the slabs it was asked for, and none is revoked
    asked = [silent.wait(EVICT).u64(0) for _ in range(3)]
    assert set(asked) < {s.id for s in theirs}
    silent.send(DONE, struct.pack("<Q", asked[0]))
    # ... but it sends nothing else any more
    end = time.monotonic() + 20
    while lab.status()["evictions"]["forced"] != 2:
        alive.beat()
        assert time.monotonic() < end, lab.status()["evictions"]
        time.sleep(0.2)
    assert lab.status()["evictions"] == {"rounds": 1, "asked": 3, "done": 1, "forced": 2}
    lab.logged("3 of them of silent hosts")
    # more than silent hosts have: the others give the rest
    while [s["state"] for s in lab.status()["sessions"]] != ["silent", "alive"]:
        alive.beat()
        time.sleep(0.2)
    squeeze(lab, 2)
    evicted = answer(alive, {s.id: 0 for s in ours}, done=True)
    assert len(evicted) == 2
    lab.wait(lambda s: s["memory"]["slabs_mapped"] == 2, "all that was wanted")
    for slab in theirs:
        os.close(slab.fd)
    silent.close()
    alive.goodbye()
    lab.wait_empty()


def test_not_given_back(make_lab: MakeLab) -> None:
    """Past the deadline the donor revokes the slab, logs that, and no host can use it."""
    lab = make_lab(donor={"capacity": "32M"}, eviction={"evict-timeout": "300ms"})
    shm, tcp = lab.control(unix=True), lab.control()
    s, t = shm.map(SHM), tcp.map(TCP)
    d = tcp.data()
    d.write(t.id, 0, b"t" * 4096)
    # too slow even to answer CHECK_ACTIVITY
    lab.sections["donor"]["head-room"] = "100%"
    lab.reload()
    for c, slab in ((shm, s), (tcp, t)):
        assert c.wait(EVICT).u64(0) == slab.id
        gone = c.wait(DONE)
        assert (gone.tag, gone.u64(0)) == (0, slab.id)
    d.tls.send(d.read_bytes(t.id, 0, 4096))
    m = d.tls.message()
    assert m.u32(0) == NO_SLAB
    lab.wait(lambda x: x["memory"]["slabs_releasing"] == 0, "released")
    assert os.fstat(s.fd).st_size == 0
    # a DONE that comes now is no error
    shm.send(DONE, struct.pack("<Q", s.id))
    assert shm.query()["used"] == 0
    assert lab.status()["evictions"]["forced"] == 2
    lab.logged("not given back in time; revoked")
    d.close()
    shm.goodbye()
    tcp.goodbye()


def test_evict_again_after_resume(make_lab: MakeLab) -> None:
    lab = make_lab(donor={"capacity": "32M"})
    c = lab.control()
    slab = c.map()
    lab.sections["donor"]["head-room"] = "100%"
    lab.reload()
    assert c.wait(EVICT).u64(0) == slab.id
    c.tls.sock.close()
    again = lab.control(session=c.session, secret=c.secret)
    m = again.wait(EVICT)
    assert m.u64(0) == slab.id
    again.send(DONE, m.body, m.tag)
    lab.wait(lambda s: s["evictions"]["done"] == 1, "done")
    again.goodbye()
    lab.wait(lambda s: not s["connections"] and not s["sessions"], "gone")


def test_many_evictions_at_once(make_lab: MakeLab) -> None:
    """More EVICTs than a connection holds at once all arrive."""
    lab = make_lab(donor={"capacity": "2G"})
    c = lab.control()
    slabs = [c.map() for _ in range(900)]
    lab.sections["donor"]["head-room"] = "100%"
    lab.reload()
    evicted: set[int] = set()
    while len(evicted) < 900:
        new = answer(c, {s.id: 0 for s in slabs}, done=True)
        assert new
        evicted.update(new)
    lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0 and s["memory"]["slabs_mapped"] == 0,
             "all back", 30)
    c.goodbye()


def test_drain(make_lab: MakeLab) -> None:
    """SIGTERM: everything asked back, nothing new given, status 0 when all is back."""
    lab = make_lab()
    a, b = lab.control("alice"), lab.control("bob", unix=True)
    x, y = a.map(), b.map(SHM)
    process = lab.process
    assert process is not None
    lab.signal(signal.SIGTERM)
    for c, slab in ((a, x), (b, y)):
        m = c.wait(EVICT)
        assert m.u64(0) == slab.id
        assert c.query()["flags"] == 1
        with pytest.raises(Refused) as e:
            c.map()
        assert e.value.status == DRAINING
    with pytest.raises(Refused) as e:
        lab.control()
    assert e.value.status == DRAINING
    # until the deadline data still moves, and a lost session can be resumed
    d = a.data()
    d.write(x.id, 0, b"m" * 4096)
    a.tls.sock.close()
    a = lab.control(session=a.session, secret=a.secret)
    m = a.wait(EVICT)
    assert d.read(x.id, 0) == b"m" * 4096
    a.send(DONE, m.body, m.tag)
    b.unmap(y)
    assert process.wait(15) == 0
    for c in (a, b):
        with pytest.raises(Closed):
            while True:
                c.tls.message()
        c.close()
    d.close()
    assert "drained: every slab is back" in lab.tail()
    lab.finish()


def test_drain_left_behind(make_lab: MakeLab) -> None:
    """After drain-timeout: status 1, and the log names the tenants that kept slabs."""
    lab = make_lab(donor={"drain-timeout": "1s"})
    c = lab.control(unix=True)
    slab = c.map(SHM)
    process = lab.process
    assert process is not None
    lab.signal(signal.SIGTERM)
    assert process.wait(15) == 1
    assert "not given back: 1 slabs (2 MiB) of alice" in lab.tail()
    assert os.fstat(slab.fd).st_size == 0
    c.close()
    lab.finish()


def test_second_sigterm(make_lab: MakeLab) -> None:
    lab = make_lab(donor={"drain-timeout": "600s"})
    c = lab.control()
    c.map()
    process = lab.process
    assert process is not None
    lab.signal(signal.SIGTERM)
    c.wait(EVICT)
    lab.signal(signal.SIGTERM)
    assert process.wait(15) == 1
    assert "not given back: 1 slabs" in lab.tail()
    c.close()
    lab.finish()


def test_tenant_loses_its_key(make_lab: MakeLab) -> None:
    """A key taken away: its slabs are asked back, no new connection; others don't notice."""
    lab = make_lab()
    a, b = lab.control("alice"), lab.control("bob")
    mine, _ = a.map(), b.map()
    key = lab.keys.pop("alice")
    lab.reload()
    m = a.wait(EVICT)
    assert m.u64(0) == mine.id
    with pytest.raises(Refused) as e:
        a.map()
    assert e.value.status == DRAINING
    a.send(DONE, m.body, m.tag)
    lab.keys["alice"] = key
    with pytest.raises(TlsError):
        lab.control("alice")
    del lab.keys["alice"]
    assert b.query()["flags"] == 0
    b.map()
    a.goodbye()
    b.goodbye()
    lab.wait(lambda s: [t["tenant"] for t in s["tenants"]] == ["bob"], "alice forgotten")
    lab.keys["alice"] = key
    lab.reload()
    lab.wait(lambda s: s["events"]["reloads"] == 2, "reloaded")
    lab.served("alice")
    lab.wait_empty()
