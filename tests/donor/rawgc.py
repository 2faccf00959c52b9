# SPDX-License-Identifier: GPL-2.0-or-later
"""GC connections and virtio-gc requests, packed here independently of the C that reads them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.donor.rawtls import (ERROR, HELLO, WELCOME, Control, Message, Refused, Slab, Tls, dial,
                                pack)
from tests.donor.rawtls import hello as hello_body

if TYPE_CHECKING:  # programs without pytest use this file too
    from tests.donor.conftest import Lab

GC_ROLE = 3
GC_OPEN, GC_OPENED, GC_SLAB, GC = 64, 65, 66, 67
(PLACE, REQUEST, DONE, POLL, FLAGS, BITMAP, BITS, FINISH, STOP, MOVED, GHOSTS, ACKED, ASK,
 TOLD) = range(2, 16)
NO_GC, WORKER = 12, 13

SPACE_CREATE, SPACE_DESTROY, TYPES_ADD = 1, 2, 4
TRACE_START, TRACE_ROOTS, TRACE_MET, TRACE_FINISH, TRACE_RESULTS = 16, 17, 18, 19, 20
(VGC_OK, VGC_STALE, VGC_DONOR_LOST, VGC_WORKER_LOST, VGC_TIMED_OUT, VGC_CANCELLED, VGC_BAD_TYPE,
 VGC_BAD_OBJECT, VGC_BAD_REFERENCE) = range(9)
VGC_NO_TRACE, VGC_BUSY, VGC_LIMIT, VGC_INVALID, VGC_UNSUPPORTED = 12, 13, 14, 15, 16

REGION = 64 << 10
ADDRESS = 1 << 40
REGIONS = 8  # of a space, in most tests


@dataclass
class Said:
    """A message of a worker."""

    kind: int
    tag: int
    n: int
    payload: bytes

    @property
    def status(self) -> int:
        return int(struct.unpack_from("<I", self.payload)[0])


@dataclass
class Flags:
    busy: bool
    status: int


class Worker:
    """A GC connection of a session: its worker, as the host sees it."""

    def __init__(self, control: Control, *, donor: int = 0, space_bytes: int = 2 << 20,
                 start: bool = True, address: str | None = None) -> None:
        self.control = control
        self.tag = 1000
        self.tls = Tls(dial(address or control.address, 20), control.name, control.key)
        try:
            self.tls.send(pack(HELLO, 1, hello_body(GC_ROLE, control.session, control.secret)))
            self.expect(WELCOME)
            if start:
                self.open(space_bytes, donor)
        except BaseException:
            self.close()
            raise

    def expect(self, type_: int) -> Message:
        m = self.tls.message()
        if m.type == ERROR:
            raise Refused(m.u32(0))
        assert m.type == type_, m
        return m

    def open(self, space_bytes: int, donor: int = 0) -> int:
        self.tls.send(pack(GC_OPEN, 2, struct.pack("<QII", space_bytes, donor, 0)))
        return self.expect(GC_OPENED).u32(0)

    def slab(self, slab: int, number: int = 0) -> None:
        self.tls.send(pack(GC_SLAB, 3, struct.pack("<QII", slab, number, 0)))

    def say(self, kind: int, payload: bytes = b"", *, space: int = 0, epoch: int = 0, n: int = 0,
            value: int = 0, donor: int = 0) -> int:
        self.tag += 1
        body = struct.pack("<IIIIQII", kind, space, epoch, n, value, donor, 0)
        self.tls.send(pack(GC, self.tag, body + payload))
        return self.tag

    def hear(self) -> Said:
        m = self.expect(GC)
        kind, _space, _epoch, n = struct.unpack_from("<IIII", m.body)
        return Said(kind, m.tag, n, m.body[32:])

    def call(self, kind: int, payload: bytes = b"", **more: int) -> Said:
        tag = self.say(kind, payload, **more)
        said = self.hear()
        assert said.tag == tag, said
        return said

    def request(self, command: int, body: bytes = b"", *, epoch: int = 0, count: int = 0,
                space: int = 0, flags: int = 0) -> Said:
        head = struct.pack("<HHIQIIII", command, flags, space, 7, epoch, 0, count, 0)
        return self.call(REQUEST, head + body, space=space)

    def create(self, regions: int, space: int = 0) -> int:
        body = struct.pack("<QQQQQBBBBHBBII", 0, regions * REGION, REGION, ADDRESS, 0,
                           8, 0, 0, 4, 0, 0, 0, 0xFFFF, 0)
        return self.request(SPACE_CREATE, body, space=space).status

    def node_type(self) -> int:
        """Type 1: sixteen bytes, the reference at 8."""
        body = struct.pack("<II", 1, 0)
        body += struct.pack("<IBBBBIIIIIHBB", 1, 1, 0, 0, 0, 16, 0, 0, 0, 0, 1, 0, 0)
        body += struct.pack("<II", 8, 1)
        return self.request(TYPES_ADD, body, count=1).status

    def place(self, places: list[tuple[int, int, int, int]]) -> int:
        """(region, donor, our number of the slab, offset in it)"""
        return self.call(PLACE, b"".join(struct.pack("<IIQQ", *p) for p in places),
                         n=len(places)).status

    def trace_start(self, epoch: int, tops: list[int]) -> int:
        body = b"".join(struct.pack("<IIQ", r, 0, r * REGION + top)
                        for r, top in enumerate(tops))
        return self.request(TRACE_START, body, epoch=epoch, count=len(tops)).status

    def roots(self, epoch: int, offsets: list[int]) -> int:
        body = struct.pack(f"<{len(offsets)}Q", *(ADDRESS + o for o in offsets))
        return self.request(TRACE_ROOTS, body, epoch=epoch, count=len(offsets)).status

    def poll(self, epoch: int) -> Flags:
        said = self.call(POLL, epoch=epoch)
        assert said.kind == FLAGS and len(said.payload) == 24
        return Flags(any(said.payload[:4]), int(struct.unpack_from("<I", said.payload, 8)[0]))

    def finish(self, epoch: int) -> int:
        quiet = 0
        while quiet < 2:
            flags = self.poll(epoch)
            if flags.status:
                return flags.status
            quiet = 0 if flags.busy else quiet + 1
        return self.call(FINISH, epoch=epoch).status

    def live(self, epoch: int, regions: int) -> set[int]:
        """Space offsets of live objects."""
        found: set[int] = set()
        for r in range(regions):
            said = self.call(BITMAP, epoch=epoch, n=r)
            assert said.kind == BITS and len(said.payload) in (0, REGION // 64)
            bits = int.from_bytes(said.payload, "little")
            found |= {r * REGION + 8 * u for u in range(REGION // 8) if bits >> u & 1}
        return found

    def close(self) -> None:
        self.tls.close()


@dataclass
class Heap:
    """Nodes of 16 bytes, each with one reference: the result of a trace is easy to compute."""

    regions: int
    nodes: int
    seed: int
    memory: bytearray = field(init=False)
    refers: dict[int, int | None] = field(init=False)
    tops: list[int] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        room = REGION // 16
        each = self.nodes // self.regions
        assert each <= room
        self.tops = [each * 16] * self.regions
        where = [r * REGION + i * 16 for r in range(self.regions) for i in range(each)]
        self.refers = {o: rng.choice(where) if rng.random() < 0.98 else None for o in where}
        self.memory = bytearray(self.regions * REGION)
        for o, to in self.refers.items():
            struct.pack_into("<QQ", self.memory, o, 1, 0 if to is None else ADDRESS + to)

    def chain(self) -> None:
        """One list through all of it, from the first node: the slowest to trace."""
        where = list(self.refers)
        for o, to in zip(where, [*where[1:], None], strict=True):
            self.refers[o] = to
            struct.pack_into("<Q", self.memory, o + 8, 0 if to is None else ADDRESS + to)

    def reach(self, roots: list[int]) -> set[int]:
        found: set[int] = set()
        for root in roots:
            at: int | None = root
            while at is not None and at not in found:
                found.add(at)
                at = self.refers[at]
        return found


def children(pid: int) -> list[int]:
    """Processes whose parent is @pid and that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        state, parent = text.rsplit(")", 1)[1].split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False  # ProcessLookupError: it is reaped between open() and read()
    return text.rsplit(")", 1)[1].split()[0] != "Z"


def one_pid(lab: Lab) -> int:
    found = children(lab.pid)
    assert len(found) == 1, found
    return found[0]


def no_workers(lab: Lab) -> None:
    lab.wait(lambda s: s["gc"]["workers"] == 0, "workers reaped")
    assert not children(lab.pid)


def ready(worker: Worker, slab: Slab, heap: Heap) -> None:
    """A space over the slab's first regions."""
    worker.slab(slab.id)
    assert worker.create(heap.regions) == 0
    assert worker.node_type() == 0
    assert worker.place([(r, 0, 0, r * REGION) for r in range(heap.regions)]) == 0
