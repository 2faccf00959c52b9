# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors that are killed and started again with a descriptor store: sessions and slabs go on.

The store is tests/framework/fdstore.py, which speaks systemd's documented protocol.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.kept_state import (DAMAGES, F_ADD_SEALS, F_SEAL_SHRINK, STATE, State, memfd,
                                    resigned)
from tests.donor.rawtls import (DONE, EVICT, NO_SESSION, NO_SLAB, SHM, TCP, UNMAP,
                                VERBS, Closed, Control, DATA, Refused, Slab, TlsError)
from tests.framework.fdstore import Store

PAGE = 4096
SLAB = 2 << 20


@pytest.fixture
def kept_lab(make_lab: MakeLab, short_tmp: Path) -> Iterator[Callable[..., Lab]]:
    """Donors with a descriptor store, which is empty when they have ended."""
    made: list[tuple[Lab, Store]] = []

    def make(**sections: dict[str, str | int]) -> Lab:
        folder = short_tmp / f"s{len(made)}"
        folder.mkdir()
        lab = make_lab(start=False, **sections)
        lab.store = Store(folder)
        made.append((lab, lab.store))
        return lab.start()

    yield make
    for lab, store in made:
        if lab.process is not None:
            lab.finish()
        assert store.names() == []
        store.close()


def store_of(lab: Lab) -> Store:
    assert lab.store
    return lab.store


def again(lab: Lab) -> None:
    """Killed, and started by systemd."""
    lab.kill()
    lab.start()


def back(lab: Lab, c: Control, unix: bool = False) -> Control:
    c.close()
    return lab.control(c.name, unix=unix, session=c.session, secret=c.secret)


def name_of(c: Control, slab: Slab) -> str:
    return f"dcm-slab-{c.donor_id:016x}-{slab.id}"


def page(n: int) -> bytes:
    return struct.pack("<Q", n) * (PAGE // 8)


def mapped(slab: Slab) -> mmap.mmap:
    return mmap.mmap(slab.fd, SLAB)


def test_a_killed_donor_keeps_its_slabs(kept_lab: Callable[..., Lab]) -> None:
    lab = kept_lab()
    c, local, other = lab.control(), lab.control(unix=True), lab.control("bob")
    slabs = [c.map(TCP, cookie=n) for n in range(3)]
    near = local.map(SHM, cookie=9)
    d = c.data()
    for n, slab in enumerate(slabs):
        d.write(slab.id, n * PAGE, page(n + 1))
    with mapped(near) as m:
        m[:PAGE] = page(77)
        before = lab.status()
        assert store_of(lab).slabs() == 4
        again(lab)
        after = lab.status()
        assert after["donor_id"] == before["donor_id"]
        assert after["events"]["sessions_restored"] == 3
        assert after["events"]["slabs_restored"] == 4
        assert after["memory"]["used_bytes"] == before["memory"]["used_bytes"] == 4 * SLAB
        assert [t["bytes"] for t in after["tenants"]] == [t["bytes"] for t in before["tenants"]]
        shown = {s["slab"]: (s["session"], s["cookie"], s["transport"])
                 for s in after["slabs"] if s["state"] == "mapped"}
        assert shown == {s["slab"]: (s["session"], s["cookie"], s["transport"])
                         for s in before["slabs"] if s["state"] == "mapped"}
        # each session by its own secret only
        for secret in (local.secret, other.secret, bytes(16)):
            with pytest.raises(Refused) as e:
                lab.control(session=c.session, secret=secret)
            assert e.value.status == NO_SESSION
        with pytest.raises(Refused):
            lab.control("bob", session=c.session, secret=c.secret)
        d.close()
        c, local, other = back(lab, c), back(lab, local, unix=True), back(lab, other)
        d = c.data()
        for n, slab in enumerate(slabs):
            assert d.read(slab.id, n * PAGE) == page(n + 1)
            assert d.read(slab.id, SLAB - PAGE) == bytes(PAGE)
        # the mapping is still the donor's slab: it is cut when the slab is given back
        assert m[:PAGE] == page(77)
        m[PAGE:2 * PAGE] = page(78)
        new = c.map(TCP)
        assert new.id not in shown and new.id > max(shown)
        # a second time, with what was lent since
        d.write(new.id, 0, page(5))
        again(lab)
        d.close()
        c, local = back(lab, c), back(lab, local, unix=True)
        d = c.data()
        assert d.read(new.id, 0) == page(5) and d.read(slabs[2].id, 2 * PAGE) == page(3)
        assert m[PAGE:2 * PAGE] == page(78)
        local.send(UNMAP, struct.pack("<Q", near.id))
        local.wait(DONE)
        assert os.fstat(near.fd).st_size == 0
    os.close(near.fd)
    lab.wait(lambda _: store_of(lab).slabs() == 4, "removed from the store")
    d.close()
    c.goodbye()
    local.goodbye()
    lab.wait(lambda s: s["memory"]["slabs_mapped"] + s["memory"]["slabs_releasing"] == 0, "free")
    assert store_of(lab).names() == [STATE]
    other.close()
    # a session without slabs is one too
    again(lab)
    lab.control("bob", session=other.session, secret=other.secret).goodbye()
    lab.served()


def test_a_killed_donor_keeps_its_files(kept_lab: Callable[..., Lab], short_tmp: Path) -> None:
    """With medium = file too; a donor of memory takes no file for a slab."""
    folder = short_tmp / "slabs"
    folder.mkdir()
    lab = kept_lab(donor={"medium": "file", "path": str(folder), "head-room": "1M"})
    c = lab.control()
    slab = c.map(TCP)
    d = c.data()
    d.write(slab.id, PAGE, page(6))
    again(lab)
    assert lab.status()["events"]["slabs_restored"] == 1
    d.close()
    c = back(lab, c)
    d = c.data()
    assert d.read(slab.id, PAGE) == page(6) and d.read(slab.id, 0) == bytes(PAGE)
    d.write(slab.id, 0, page(7))
    assert d.read(slab.id, 0) == page(7) and d.read(c.map(TCP).id, PAGE) == bytes(PAGE)
    d.close()
    lab.kill()
    for key in ("medium", "path"):
        del lab.sections["donor"][key]
    lab.start()
    assert lab.status()["events"]["slabs_restored"] == 0
    lab.logged("2 slabs from before the restart are lost", 1)
    assert store_of(lab).slabs() == 0
    c = back(lab, c)
    d = c.data()
    d.tls.send(d.read_bytes(slab.id, 0, PAGE))
    assert d.answer(DATA)[0] == NO_SLAB
    d.close()
    c.goodbye()


def test_a_stop_leaves_nothing(kept_lab: Callable[..., Lab]) -> None:
    """A donor that drains gives everything back; a restart then is a new donor."""
    lab = kept_lab(donor={"drain-timeout": "1s"})
    c = lab.control(unix=True)
    slab = c.map(SHM)
    donor_id = c.donor_id
    assert lab.stop() == 1  # the slab was not given back
    assert store_of(lab).names() == [] and os.fstat(slab.fd).st_size == 0
    os.close(slab.fd)
    c.close()
    lab.start()
    assert int(lab.status()["donor_id"], 16) != donor_id
    with pytest.raises(Refused) as e:
        lab.control(session=c.session, secret=c.secret)
    assert e.value.status == NO_SESSION


@pytest.mark.parametrize("how", ["removed", "changed"])
def test_a_tenant_that_went_meanwhile(kept_lab: Callable[..., Lab], how: str) -> None:
    lab = kept_lab()
    c, b = lab.control(unix=True), lab.control("bob")
    gone, stays = c.map(SHM), b.map(TCP)
    d = b.data()
    d.write(stays.id, 0, page(3))
    lab.kill()
    if how == "removed":
        del lab.keys["alice"]
    else:
        lab.keys["alice"] = "33" * 32
    lab.start()
    status = lab.status()
    assert status["events"]["sessions_restored"] == status["events"]["slabs_restored"] == 1
    assert status["memory"]["slabs_mapped"] == 1
    assert os.fstat(gone.fd).st_size == 0, "its memory is free, whoever has it mapped"
    os.close(gone.fd)
    assert sorted(store_of(lab).names()) == [name_of(b, stays), STATE]
    lab.logged("have ended: their tenants' keys were changed or removed", 1)
    if how == "changed":
        with pytest.raises(Refused) as e:
            lab.control(session=c.session, secret=c.secret)
        assert e.value.status == NO_SESSION
    c.close()
    d.close()
    b = back(lab, b)
    d = b.data()
    assert d.read(stays.id, 0) == page(3)
    d.close()
    b.goodbye()


def test_a_key_changed_while_it_ran(kept_lab: Callable[..., Lab]) -> None:
    """Sessions go on with the key that was loaded last, as they did before the restart."""
    lab = kept_lab()
    c = lab.control()
    slab = c.map(TCP)
    lab.keys["alice"] = "44" * 32
    lab.reload()
    lab.logged("reloaded", 1)
    c.close()
    again(lab)
    c = lab.control(session=c.session, secret=c.secret)
    c.unmap(slab)
    c.goodbye()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_not_used(kept_lab: Callable[..., Lab], damage: str) -> None:
    """A start without it, one line, and nothing leaked."""
    lab = kept_lab()
    store = store_of(lab)
    c, local = lab.control(), lab.control(unix=True)
    c.map(TCP)
    slab = local.map(SHM)
    donor_id = c.donor_id
    lab.kill()
    DAMAGES[damage](State(store))
    lab.start()
    status = lab.status()
    assert int(status["donor_id"], 16) != donor_id
    assert not status["sessions"] and status["memory"]["slabs_mapped"] == 0
    lab.logged("the state from before the restart can't be used", 1)
    assert store.names() == [STATE] and lab.memfds() == lab.spare()
    assert os.fstat(slab.fd).st_size == 0
    os.close(slab.fd)
    for one in (c, local):
        with pytest.raises(Refused) as e:
            lab.control(session=one.session, secret=one.secret)
        assert e.value.status == NO_SESSION
        one.close()
    lab.served()
    # and the new state is a good one
    c = lab.control()
    slab = c.map(TCP)
    again(lab)
    c = back(lab, c)
    c.unmap(slab)
    c.goodbye()


def test_another_slab_size(kept_lab: Callable[..., Lab]) -> None:
    lab = kept_lab()
    c = lab.control()
    c.map(TCP)
    lab.kill()
    lab.sections["donor"]["slab-size"] = "4M"
    lab.start()
    lab.logged("slab-size or hugepages has changed", 1)
    assert store_of(lab).names() == [STATE] and not lab.status()["sessions"]
    c.close()


def test_descriptors_for_another_process(kept_lab: Callable[..., Lab]) -> None:
    """A stale LISTEN_PID: they are not ours to look at. The next start frees them."""
    lab = kept_lab()
    c = lab.control()
    c.map(TCP)
    c.close()
    donor_id = c.donor_id
    lab.kill()
    lab.listen_pid = "1"
    lab.start()
    status = lab.status()
    assert int(status["donor_id"], 16) != donor_id and not status["sessions"]
    c = lab.control()
    slab = c.map(TCP)
    lab.listen_pid = "-"
    again(lab)
    assert lab.status()["events"]["slabs_restored"] == 1
    assert sorted(store_of(lab).names()) == [name_of(c, slab), STATE]
    back(lab, c).goodbye()


def test_slabs_that_are_not_what_they_were(kept_lab: Callable[..., Lab]) -> None:
    """Slabs that are lost: one that its host truncated, one that is not in the store, one that
    others could truncate; no others. Memfds in the store that no record names are freed."""
    lab = kept_lab()
    store = store_of(lab)
    c, local = lab.control(), lab.control(unix=True)
    good, missing, unsealed = (c.map(TCP) for _ in range(3))
    cut, whole = local.map(SHM), local.map(SHM)
    d = c.data()
    d.write(good.id, 0, page(9))
    lab.kill()
    os.truncate(cut.fd, PAGE)
    store.drop(name_of(c, missing))
    fcntl.fcntl(store.fd(name_of(c, unsealed)), F_ADD_SEALS, F_SEAL_SHRINK)
    store.put(f"dcm-slab-{c.donor_id:016x}-12345", memfd(SLAB))
    store.put(f"dcm-slab-{c.donor_id ^ 1:016x}-{good.id}", memfd(SLAB))
    store.put("dcm-slab-junk", memfd(SLAB))
    store.put("another", os.pipe()[0])
    lab.start()
    status = lab.status()
    assert status["events"]["slabs_restored"] == 2 and status["memory"]["slabs_mapped"] == 2
    lab.logged("3 slabs from before the restart are lost", 1)
    d.close()
    c, local = back(lab, c), back(lab, local, unix=True)
    d = c.data()
    assert d.read(good.id, 0) == page(9)
    for slab in (missing, unsealed):
        d.tls.send(d.read_bytes(slab.id, 0, PAGE))
        assert d.answer(DATA)[0] == NO_SLAB
    local.unmap(whole)
    with pytest.raises(Refused) as e:
        local.unmap(cut)
    assert e.value.status == NO_SLAB
    for slab in (cut, whole):
        os.close(slab.fd)
    d.close()
    c.goodbye()
    local.goodbye()
    lab.wait(lambda _: sorted(store.names()) == ["another", "dcm-slab-junk", STATE], "removed")
    # names that are not ours stay where they are
    for name in ("dcm-slab-junk", "another"):
        store.drop(name)


def test_slabs_beyond_the_room_of_the_store(kept_lab: Callable[..., Lab]) -> None:
    """FileDescriptorStoreMax= is too low: what it did not take is lost with the process."""
    lab = kept_lab()
    store_of(lab).most = 3
    c = lab.control()
    slabs = [c.map(TCP) for _ in range(4)]
    d = c.data()
    for n, slab in enumerate(slabs):
        d.write(slab.id, 0, page(n))
    again(lab)
    assert lab.status()["events"]["slabs_restored"] == 2
    d.close()
    c = back(lab, c)
    d = c.data()
    for n, slab in enumerate(slabs[:2]):
        assert d.read(slab.id, 0) == page(n)
    d.close()
    c.goodbye()


def test_a_slab_of_verbs_is_served_over_tcp(kept_lab: Callable[..., Lab]) -> None:
    """Its key ended with the process; its bytes did not."""
    lab = kept_lab()
    c = lab.control()
    slab = c.map(TCP)
    d = c.data()
    d.write(slab.id, PAGE, page(21))
    lab.kill()
    resigned(State(store_of(lab)), 40, "<I", VERBS)
    lab.start()
    d.close()
    c = back(lab, c)
    d = c.data()
    assert d.read(slab.id, PAGE) == page(21)
    assert [s["transport"] for s in lab.status()["slabs"] if s["state"] == "mapped"] == ["tcp"]
    d.close()
    c.goodbye()


def test_an_evict_of_before_the_restart(kept_lab: Callable[..., Lab]) -> None:
    """Its DONE comes after: the slab is given back all the same."""
    lab = kept_lab()
    c = lab.control()
    slab = c.map(TCP)
    lab.sections["donor"]["capacity"] = "2M"
    other = c.map(TCP)
    lab.reload()
    asked = c.wait(EVICT)
    lab.sections["donor"]["capacity"] = "256M"
    again(lab)
    c = back(lab, c)
    c.send(DONE, struct.pack("<Q", asked.u64(0)), tag=asked.tag)
    lab.wait(lambda s: s["memory"]["slabs_mapped"] == 1, "given back")
    c.unmap(slab if asked.u64(0) == other.id else other)
    c.goodbye()


class Busy(threading.Thread):
    """A host that maps, writes, checks and gives back until the donor is killed."""

    def __init__(self, c: Control, seed: int, known: dict[int, dict[int, int]]) -> None:
        super().__init__()
        self.c, self.known, self.random = c, known, random.Random(seed)
        self.doubt: set[int] = set()  # slabs whose UNMAP was not answered
        self.failed: BaseException | None = None
        self.steps = 0

    def run(self) -> None:
        try:
            self.work()
        except (Closed, TlsError, OSError, TimeoutError):
            pass  # the donor was killed
        except BaseException as e:  # noqa: BLE001
            self.failed = e

    def work(self) -> None:
        d = self.c.data()
        try:
            while True:
                self.steps += 1
                what = self.random.random()
                if not self.known or (what < 0.15 and len(self.known) < 12):
                    self.known[self.c.map(TCP).id] = {}
                elif what < 0.22:
                    slab = self.random.choice(list(self.known))
                    self.doubt.add(slab)
                    del self.known[slab]
                    self.c.request(UNMAP, struct.pack("<Q", slab), DONE)
                    self.doubt.remove(slab)
                elif what < 0.7:
                    slab = self.random.choice(list(self.known))
                    at = self.random.randrange(SLAB // PAGE)
                    n = self.random.getrandbits(60)
                    # a WRITE whose answer did not come has happened or has not
                    self.known[slab].pop(at, None)
                    d.write(slab, at * PAGE, page(n))
                    self.known[slab][at] = n
                else:
                    slab = self.random.choice(list(self.known))
                    for at, n in list(self.known[slab].items())[:4]:
                        assert d.read(slab, at * PAGE) == page(n), (slab, at)
        finally:
            d.close()


def test_killed_at_any_moment(kept_lab: Callable[..., Lab]) -> None:
    """Twenty times while two hosts map, write and give back: every byte that was answered is
    there, and what no host knows is all that is left over."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    lab = kept_lab(donor={"data-encryption": "no", "spare-slabs": 2})
    store = store_of(lab)
    sessions = [lab.control("alice"), lab.control("bob")]
    known: list[dict[int, dict[int, int]]] = [{}, {}]
    doubt: set[int] = set()
    pages = steps = 0
    for _ in range(20):
        hosts = [Busy(c, rng.getrandbits(30), k) for c, k in zip(sessions, known, strict=True)]
        for host in hosts:
            host.start()
        threading.Event().wait(rng.uniform(0, 0.6))
        lab.kill()
        for host in hosts:
            host.join()
            if host.failed:
                raise host.failed
            doubt |= host.doubt
            steps += host.steps
        lab.start()
        sessions = [back(lab, c) for c in sessions]
        held = {s["slab"] for s in lab.status()["slabs"] if s["state"] == "mapped"}
        assert set(known[0]) | set(known[1]) <= held
        # what else is there: a MAP or an UNMAP whose answer was lost
        for c, k in zip(sessions, known, strict=True):
            d = c.data()
            for slab, content in k.items():
                for at, n in content.items():
                    assert d.read(slab, at * PAGE) == page(n), (slab, at)
                    pages += 1
            d.close()
    print(f"{steps} steps, {pages} pages checked, {len(doubt)} UNMAPs in doubt")
    assert pages
    for c in sessions:
        c.goodbye()
    lab.wait(lambda s: s["memory"]["slabs_mapped"] + s["memory"]["slabs_releasing"] == 0, "free")
    assert store.names() == [STATE]
