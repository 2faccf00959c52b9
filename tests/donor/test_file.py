# SPDX-License-Identifier: GPL-2.0-or-later
"""Slabs that are files: the same bytes in the same order as of memory, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.donor.conftest import SANITIZER, Lab, MakeLab
from tests.donor.rawgc import NO_GC, Worker
from tests.donor.rawtls import (DATA, NO_MEMORY, NO_SLAB, OK, PLAIN, RANGE, SHM, TCP, TRANSPORT,
                                VERBS, WRITTEN, Control, Data, Expected, Refused, exchange)
from tests.framework.slabs import open_files

MIB = 1 << 20
FREE_FILE = 2  # of FREE_MEM's flags: slabs are files
OPS = 128  # of a worker
IO = 14


def files_of(lab: Lab) -> list[str]:
    """The names of the donor's open files in its directory."""
    folder = str(lab.sections["donor"]["path"])
    return [name for name in open_files(lab.pid).values() if name.startswith(f"{folder}/")]


MakeMount = Callable[..., Path]


@pytest.fixture
def make_mount(short_tmp: Path) -> Iterator[MakeMount]:
    """File systems of this test, gone after its donors: a type, and options of mount."""
    made: list[Path] = []

    def make(kind: str, *options: str) -> Path:
        at = short_tmp / f"m{len(made)}"
        at.mkdir()
        p = subprocess.run(["mount", "-t", kind, *options, str(at)], capture_output=True,
                           text=True, check=False)
        if p.returncode:
            pytest.skip(f"{kind} can't be mounted here: {p.stderr.strip()}")
        made.append(at)
        return at

    yield make
    for at in made:
        subprocess.run(["umount", str(at)], check=True)


@pytest.fixture
def make_disk(make_mount: MakeMount, short_tmp: Path) -> Callable[[], tuple[Path, Path]]:
    """A disk of 32 MiB: the file that it is, and where it is mounted."""

    def make() -> tuple[Path, Path]:
        image = short_tmp / "disk"
        with image.open("wb") as f:
            f.truncate(32 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)],
                       check=True)
        return image, make_mount("ext4", "-o", "loop", str(image))

    return make


MakeDisk = Callable[[], tuple[Path, Path]]


@pytest.fixture
def make_file_lab(make_mount: MakeMount, make_lab: MakeLab, short_tmp: Path) -> Callable[..., Lab]:
    """As make_lab(), with medium = file in a directory of this test."""

    def make(start: bool = True, **sections: Any) -> Lab:
        folder = short_tmp / "slabs"
        folder.mkdir(exist_ok=True)
        donor = {"medium": "file", "path": str(folder), "head-room": "1M",
                 "data-encryption": "no", **sections.pop("donor", {})}
        return make_lab(start, donor=donor, **sections)

    return make


MakeFileLab = Callable[..., Lab]


@pytest.fixture(params=[0, PLAIN], ids=["tls", "plain"])
def link(make_file_lab: MakeFileLab, request: pytest.FixtureRequest) -> Iterator[tuple[
        Lab, Control, Data]]:
    lab = make_file_lab()
    c = lab.control()
    d = c.data(request.param)
    yield lab, c, d
    d.close()
    c.goodbye()
    lab.wait_empty()


def test_model(link: tuple[Lab, Control, Data]) -> None:
    """Random pipelined operations, which overlap, on two slabs against a bytearray each."""
    _, c, d = link
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    slabs = [c.map(), c.map()]
    model = {s.id: bytearray(s.bytes) for s in slabs}
    for _ in range(40):
        stream, expected = b"", []
        for _ in range(rng.randrange(1, 60)):
            slab = rng.choice(slabs)
            pages = rng.choice((1, 1, 2, 4, 8, 16))
            at = rng.randrange(24) * 4096 + rng.choice((0, slab.bytes - 40 * 4096))
            n = pages * 4096
            kind = rng.random()
            if kind < 0.4:
                data = rng.randbytes(4096) * pages
                stream += d.write_bytes(slab.id, at, data)
                model[slab.id][at:at + n] = data
                expected.append(Expected(d.tag, WRITTEN, n))
            elif kind < 0.5:
                stream += d.write_zeroes_bytes(slab.id, at, n)
                model[slab.id][at:at + n] = bytes(n)
                expected.append(Expected(d.tag, WRITTEN, n))
            elif kind < 0.55:
                stream += d.read_bytes(slab.id, at + 1, n)
                expected.append(Expected(d.tag, DATA, 0, status=RANGE))
            else:
                stream += d.read_bytes(slab.id, at, n)
                expected.append(Expected(d.tag, DATA, n, bytes(model[slab.id][at:at + n])))
        exchange(d, stream, expected)
    for slab in slabs:
        for at in range(0, slab.bytes, 65536):
            assert d.read(slab.id, at, 65536) == model[slab.id][at:at + 65536]


def status_of(d: Data, request: bytes) -> int:
    d.tls.send(request)
    m = d.tls.message()
    assert m.tag == d.tag
    assert m.u32(0) == OK or len(m.body) == 8
    return m.u32(0)


def test_bounds(link: tuple[Lab, Control, Data]) -> None:
    """Operations that are not on whole pages of the slab are refused, and change nothing."""
    _, c, d = link
    slab = c.map()
    end = slab.bytes
    for at, n in ((end, 4096), (end - 4096, 8192), (1, 4096), (4095, 4096), (0, 0), (0, 4095),
                  (0, 1), (0, 65536 + 4096), (0, 0xFFFFF000), (1 << 63, 4096),
                  ((1 << 64) - 4096, 4096), ((1 << 64) - 4096, 8192)):
        assert status_of(d, d.read_bytes(slab.id, at, n)) == RANGE, (at, n)
        assert status_of(d, d.write_zeroes_bytes(slab.id, at, n)) == RANGE, (at, n)
    assert status_of(d, d.read_bytes(slab.id + 1, 0, 4096)) == NO_SLAB
    assert d.read(slab.id, end - 4096) == bytes(4096)


def test_lent_over_data_connections_only(make_file_lab: MakeFileLab) -> None:
    """No descriptor and no key is handed out, and no GC worker is shown a file."""
    lab = make_file_lab()
    c = lab.control(unix=True)
    for transports in (SHM, VERBS, SHM | VERBS):
        with pytest.raises(Refused) as e:
            c.map(transports)
        assert e.value.status == TRANSPORT
    slab = c.map(SHM | TCP | VERBS)
    assert slab.transport == TCP and slab.fd == -1 and not c.tls.fds
    with pytest.raises(Refused) as e:
        Worker(c)
    assert e.value.status == NO_GC
    d = c.data()
    d.write(slab.id, 0, b"u" * 65536)
    assert d.read(slab.id, 4096) == b"u" * 4096
    assert [s["transport"] for s in lab.status()["slabs"] if s["state"] == "mapped"] == ["file"]
    d.close()
    c.goodbye()
    lab.wait_empty()


def test_zero_for_the_next_owner(make_file_lab: MakeFileLab) -> None:
    """The whole capacity written by one tenant; the other finds zeroes, and the files no name."""
    lab = make_file_lab(donor={"capacity": "16M"})
    folder = Path(str(lab.sections["donor"]["path"]))
    for tenant in ("alice", "bob", "alice"):
        lab.wait(lambda s: s["memory"]["slabs_free"] == 8, "all back")
        c = lab.control(tenant)
        d = c.data(PLAIN)
        for _ in range(8):
            slab = c.map()
            for at in range(0, slab.bytes, 65536):
                assert d.read(slab.id, at, 65536) == bytes(65536)
                d.write(slab.id, at, tenant[:1].encode() * 65536)
        files = files_of(lab)
        assert len(files) == 8 and all(name.endswith("(deleted)") for name in files), files
        assert not list(folder.iterdir())
        d.close()
        c.goodbye()
    lab.wait_empty()


def test_killed(make_file_lab: MakeFileLab) -> None:
    """SIGKILL in the middle of I/O: the directory is empty, and the next start serves zeroes."""
    lab = make_file_lab()
    folder = Path(str(lab.sections["donor"]["path"]))
    c = lab.control()
    slab = c.map()
    d = c.data()
    d.tls.send(b"".join(d.write_bytes(slab.id, at, b"k" * 65536) for at in range(0, MIB, 65536)))
    lab.kill()
    d.close()
    c.close()
    assert not list(folder.iterdir())
    lab.start()
    assert not list(folder.iterdir())
    lab.served()


def test_given_back_under_io(make_file_lab: MakeFileLab) -> None:
    """UNMAP while the disk works: DONE comes after it, and what follows is refused."""
    lab = make_file_lab()
    c = lab.control()
    d = c.data(PLAIN)
    for _ in range(20):
        slab = c.map()
        n = 32
        d.tls.send(b"".join(d.write_bytes(slab.id, i * 65536, b"x" * 65536) for i in range(n)))
        c.unmap(slab)
        got = [d.answer(WRITTEN)[0] for _ in range(n)]
        assert got == sorted(got) and set(got) <= {OK, NO_SLAB}, got
        assert status_of(d, d.read_bytes(slab.id, 0, 4096)) == NO_SLAB
    d.close()
    c.goodbye()
    lab.wait_empty()


def test_cut_under_io(make_file_lab: MakeFileLab) -> None:
    """A lane that comes back is welcome only when the disk has done what the old one sent."""
    lab = make_file_lab(donor={"threads": 2})
    c = lab.control()
    slab = c.map()
    for turn in range(1, 30):
        old = c.data(PLAIN if turn % 2 else 0, lane=1)
        old.tls.send(b"".join(old.write_bytes(slab.id, at, bytes([turn]) * 65536)
                              for at in range(0, 512 << 10, 65536)))
        old.close()
        new = c.data(PLAIN, lane=1)
        for at in range(0, 512 << 10, 65536):
            new.write(slab.id, at, b"n" * 65536)
        for at in range(0, 512 << 10, 65536):
            assert new.read(slab.id, at, 65536) == b"n" * 65536
        new.close()
    c.goodbye()
    lab.wait_empty()


def test_answers_not_read(make_file_lab: MakeFileLab) -> None:
    """A host that never reads stalls itself only, and costs bounded memory."""
    lab = make_file_lab(donor={"threads": 1})
    c = lab.control()
    slab = c.map()
    d = c.data(PLAIN)
    d.write(slab.id, 4096, b"z" * 4096)
    before = lab.rss()
    stuck = [c.data(PLAIN) for _ in range(4)]
    for one in stuck:
        one.tls.sock.settimeout(0.5)
        stream = b"".join(one.read_bytes(slab.id, 0, 65536) for _ in range(3000))
        with pytest.raises(TimeoutError):
            while True:
                one.tls.sock.sendall(stream)
    for _ in range(8):
        assert d.read(slab.id, 4096) == b"z" * 4096
    assert lab.rss() - before < 64 * MIB
    for one in [*stuck, d]:
        one.close()
    c.goodbye()
    lab.wait_empty()


def test_a_tenant_waits_for_few_turns_of_a_bully(make_file_lab: MakeFileLab) -> None:
    """Many connections of one tenant have more under way than the worker has ops; another has one:
    its turns come as with memory, whatever the disk does."""
    lab = make_file_lab(donor={"threads": 1})
    bully, quiet = lab.control("alice"), lab.control("bob")
    theirs, mine = bully.map(), quiet.map()
    lanes = [bully.data(PLAIN) for _ in range(40)]
    lane = quiet.data(PLAIN)
    lab.signal(signal.SIGSTOP)
    for one in lanes:
        one.tls.send(b"".join(one.read_bytes(theirs.id, i * 65536, 65536) for i in range(8)))
    lane.tls.send(lane.read_bytes(mine.id, 0, 4096))
    lab.signal(signal.SIGCONT)
    assert lane.answer(DATA) == (OK, bytes(4096))
    for one in lanes:
        for _ in range(8):
            assert one.answer(DATA) == (OK, bytes(65536))
    found = {t["tenant"]: t for t in lab.status()["tenants"]}
    turn = max(t["data_turn_max"] for t in found.values())
    waited = found["bob"]["data_wait_max"]
    print(f"waited for {waited / turn:.2f} turns of {turn}, {found}")
    # what is answered while the worker is full is charged to the bully too
    assert waited <= 2 * turn + OPS * (65536 + (64 << 10))
    for one in [*lanes, lane]:
        one.close()
    bully.goodbye()
    quiet.goodbye()
    lab.wait_empty()


def test_disk_full(make_disk: MakeDisk, make_file_lab: MakeFileLab) -> None:
    """A disk of 32 MiB: NO_MEMORY when it is full, room again when a slab is back, and when
    somebody else fills it slabs are asked back."""
    _, at = make_disk()
    lab = make_file_lab(donor={"path": str(at), "capacity": "100%", "head-room": "4M",
                               "spare-slabs": 0})
    memory = lab.status()["memory"]
    assert memory["medium"] == "file" and memory["path"] == str(at)
    assert memory["host_total_bytes"] < 32 * MIB
    c = lab.control()
    d = c.data(PLAIN)
    slabs = []
    with pytest.raises(Refused) as e:
        while True:
            slabs.append(c.map())
    assert e.value.status == NO_MEMORY
    assert 10 <= len(slabs) <= 15
    assert c.query()["free"] == 0
    # all that was lent can be written: it was allocated
    for slab in slabs:
        for offset in range(0, slab.bytes, 65536):
            d.write(slab.id, offset, b"f" * 65536)
    c.unmap(slabs.pop())
    lab.wait(lambda s: s["memory"]["slabs_free"] == 1, "room again")
    slabs.append(c.map())
    (at / "other").write_bytes(bytes(3 * MIB))
    lab.wait(lambda s: s["evictions"]["asked"] > 0, "asked back")
    (at / "other").unlink()
    d.close()
    c.goodbye()
    lab.finish()
    assert [p.name for p in at.iterdir()] == ["lost+found"]


def test_the_disk_fails(make_disk: MakeDisk, make_file_lab: MakeFileLab) -> None:
    """The end of the disk breaks off: what lies there is told IO, each slab is logged once, and
    everything else goes on."""
    image, at = make_disk()
    lab = make_file_lab(donor={"path": str(at), "capacity": "100%", "spare-slabs": 0})
    c = lab.control()
    d = c.data(PLAIN)
    slabs = [c.map() for _ in range(8)]
    for slab in slabs:
        for offset in range(0, slab.bytes, 65536):
            d.write(slab.id, offset, b"d" * 65536)
    os.truncate(image, 20 * MIB)
    failed: dict[int, int] = {slab.id: 0 for slab in slabs}
    for slab in slabs:
        for offset in range(0, slab.bytes, 65536):
            status = status_of(d, d.read_bytes(slab.id, offset, 65536))
            assert status in (OK, IO)
            failed[slab.id] += status == IO
    print(f"failed: {failed}")
    assert any(failed.values()) and not all(failed.values()), failed
    for slab in slabs:
        if not failed[slab.id]:
            assert d.read(slab.id, 0, 65536) == b"d" * 65536
    assert lab.status()["data"]["disk_errors"] == sum(failed.values())
    lab.logged("can't be read at", sum(1 for n in failed.values() if n))
    assert f"{at}: slab " in lab.log.read_text()
    os.truncate(image, 32 * MIB)
    d.close()
    c.goodbye()
    lab.finish()


@pytest.mark.parametrize(("donor", "said"), [
    ({"path": "/nonexistent"}, "No such file"),
    ({"path": "/proc"}, "without a name"),
    ({"path": ""}, "set path"),
    ({"medium": "disk"}, "write memory or file"),
    ({"hugepages": "yes"}, "hugepages = no"),
    ({"rdma": "yes"}, "set rdma = no"),
], ids=lambda v: "-".join(v) if isinstance(v, dict) else None)
def test_not_to_be_had(make_file_lab: MakeFileLab, donor: dict[str, str], said: str) -> None:
    """A configuration that can't work ends the donor with one line, and status 2."""
    refused(make_file_lab(False, donor=donor), said)


def refused(lab: Lab, said: str) -> None:
    lab.write_files()
    p = subprocess.run([str(lab.binary), "--config", str(lab.config)], capture_output=True,
                       text=True, timeout=60, check=False, env={**os.environ, **SANITIZER})
    assert p.returncode == 2, p.stderr
    assert said in p.stderr and p.stderr.count("\n") == 1, p.stderr


def test_no_direct_io(make_mount: MakeMount, make_file_lab: MakeFileLab) -> None:
    """A file system that would put pages into this host's memory is refused."""
    refused(make_file_lab(False, donor={"path": str(make_mount("ramfs", "ramfs"))}), "direct I/O")


def test_hosts_are_told(make_file_lab: MakeFileLab, make_lab: MakeLab) -> None:
    """FREE_MEM says that slabs are files, and of memory nothing new; so do the figures."""
    for lab, flags in ((make_file_lab(), FREE_FILE), (make_lab(), 0)):
        c = lab.control()
        assert c.query()["flags"] == flags
        c.goodbye()
        medium = "file" if flags else "memory"
        assert lab.metrics()[f'dcm_donor_medium_info{{medium="{medium}"}}'] == 1
        assert lab.metrics()["dcm_donor_disk_errors_total"] == 0
        assert lab.status()["memory"]["medium"] == medium
