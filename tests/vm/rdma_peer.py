# SPDX-License-Identifier: GPL-2.0-or-later
"""Hostile and well-behaved hosts of a donor with verbs; run inside L1.

    python3 -m tests.vm.rdma_peer SCENARIO

Every scenario starts with a donor that nobody uses and leaves it so; it says "ok" at its end. The
donor's configuration, addresses and programs are where test_rdma.py puts them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.donor.rawtls import (
    ASK_TICKET,
    BUSY,
    DONE,
    EVICT,
    HEARTBEAT,
    MAP,
    MR_INFO,
    NO_SLAB,
    QUOTA,
    TICKET,
    TRANSPORT,
    UNMAP,
    VERBS,
    Closed,
    Control,
    Refused,
    pack,
)

HERE = Path("/root/rdma")
ADDRESS = "10.99.0.1"
KEYS = {"alice": b"\x11" * 32, "bob": b"\x22" * 32}
PAGE = 4096
ACCESS = "error remote access error"


def status() -> dict[str, Any]:
    with urllib.request.urlopen("http://127.0.0.1:9750/status", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def wait(good: Callable[[dict[str, Any]], bool], what: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not good(found := status()):
        assert time.monotonic() < end, f"not reached: {what}: {found}"
        time.sleep(0.05)


def wait_empty(seconds: float = 15) -> None:
    """Nothing of any client is left."""
    wait(lambda s: not s["sessions"] and not s["rdma"]["connections"]
         and not s["rdma"]["registered_bytes"] and not s["rdma"]["tickets"]
         and not s["connections"] and s["memory"]["slabs_mapped"] == 0
         and s["memory"]["slabs_releasing"] == 0
         and all(not t["bytes"] and not t["connections"] for t in s["tenants"]),
         "all gone", seconds)


class Raw:
    """rdma_raw: queue pairs that do what they are told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([str(HERE / "rdma_raw")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, *words: object) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@dataclass
class Ticket:
    number: int
    secret: bytes
    address: bytes
    port: int
    valid_ms: int

    def data(self, **other: Any) -> bytes:
        """Private data that shows it; other fields on request."""
        fields = {"magic": 0x54534D43, "version": 1, "reserved": 0, "number": self.number,
                  "secret": self.secret} | other
        return struct.pack("<IHHQ16s", *fields.values())


@dataclass
class Slab:
    id: int
    bytes: int
    addr: int
    rkey: int


class Host:
    """A session, and what is asked of a donor with verbs. A thread says that it is alive."""

    def __init__(self, tenant: str = "alice") -> None:
        self.control = Control(f"tcp:{ADDRESS}:7400", tenant, KEYS[tenant])
        self.over = threading.Event()
        self.sending = threading.Lock()
        self.send = self.control.tls.send
        # GnuTLS takes one thread that sends beside one that receives
        setattr(self.control.tls, "send", self.locked_send)  # noqa: B010
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()

    def locked_send(self, data: bytes) -> None:
        with self.sending:
            self.send(data)

    def beat(self) -> None:
        while not self.over.wait(1):
            with contextlib.suppress(Closed):
                self.locked_send(pack(HEARTBEAT, 0))

    def ticket(self, lane: int = 1) -> Ticket:
        m = self.control.request(ASK_TICKET, struct.pack("<HHI", lane, 0, 0), TICKET)
        number, secret, address, port, reserved, ms = struct.unpack("<Q16s16sHHI", m.body)
        assert reserved == 0
        return Ticket(number, secret, address, port, ms)

    def pair(self, raw: Raw, lane: int = 1) -> int:
        said = show(raw, self.ticket(lane))
        assert said.startswith("connected"), said
        return int(said.split()[1])

    def map(self, transports: int = VERBS) -> Slab:
        # registering takes an emulated processor its time
        m = self.control.wait(MR_INFO, self.control.send(MAP, struct.pack(
            "<QQII", self.control.slab_bytes, 7, transports, 0)), 60)
        slab, size, addr, rkey, transport = struct.unpack("<QQQII", m.body)
        assert transport == VERBS
        return Slab(slab, size, addr, rkey)

    def goodbye(self) -> None:
        self.over.set()
        self.thread.join()
        self.control.goodbye()


def show(raw: Raw, ticket: Ticket, data: bytes | None = None) -> str:
    return raw.ask("connect", ADDRESS, ticket.port, (ticket.data() if data is None else data).hex())


def read(raw: Raw, pair: int, slab: Slab, at: int, size: int = PAGE) -> str:
    return raw.ask("read", pair, slab.rkey, slab.addr + at, size)


def write(raw: Raw, pair: int, slab: Slab, at: int, data: bytes) -> str:
    return raw.ask("write", pair, slab.rkey, slab.addr + at, data.hex())


def refused(ask: Callable[[], object]) -> int:
    try:
        ask()
    except Refused as e:
        return e.status
    raise AssertionError("not refused")


# ---- scenarios ----


def tickets(raw: Raw) -> None:
    """A host that shows no good ticket is rejected, whatever else it shows; nothing changes."""
    host = Host()
    t = host.ticket()
    assert t.address == bytes(10) + b"\xff\xff" + socket.inet_aton(ADDRESS) and t.valid_ms == 5000
    rng = random.Random(5)
    junk = [b"", b"\0", bytes(32), bytes(56), rng.randbytes(31), rng.randbytes(32),
            rng.randbytes(56), t.data()[:31], t.data(magic=0), t.data(version=0),
            t.data(version=2), t.data(reserved=1), t.data(number=t.number ^ 1),
            t.data(secret=bytes(16)), t.data(secret=t.secret[::-1]), t.data()[1:] + b"\0"]
    for data in junk:
        assert show(raw, t, data) == "rejected", data
    # none of that used it up; what follows it is padding
    assert show(raw, t, t.data() + rng.randbytes(24)).startswith("connected")
    assert show(raw, t) == "rejected"  # a replay
    old = host.ticket(2)
    new = host.ticket(2)
    assert show(raw, old) == "rejected"
    late = host.ticket(3)
    gone = host.ticket(4)
    assert show(raw, new).startswith("connected")
    time.sleep(6)
    assert show(raw, late) == "rejected"
    other = Host("bob")
    gone = other.ticket(4)
    other.goodbye()
    tenants = [s["tenant"] for s in status()["sessions"]]
    assert tenants == ["alice"]
    assert show(raw, gone) == "rejected"
    rdma = status()["rdma"]
    assert rdma["rejected"] == len(junk) + 4 and rdma["connections"] == 2, rdma
    host.goodbye()


def memory(raw: Raw) -> None:
    """Written bytes are read, over verbs and over TCP; a slab is zero at first."""
    host = Host()
    assert refused(host.map) == TRANSPORT  # no queue pair, no domain
    pair = host.pair(raw)
    a, b = host.map(), host.map()
    rng = random.Random(6)
    assert read(raw, pair, a, 0) == "ok " + bytes(PAGE).hex()
    pages = {at: rng.randbytes(PAGE) for at in (0, 8192, a.bytes - PAGE)}
    for at, data in pages.items():
        assert write(raw, pair, a, at, data) == "ok"
        assert write(raw, pair, b, at, data[::-1]) == "ok"
    big = rng.randbytes(65536)
    assert write(raw, pair, a, 1 << 20, big) == "ok"
    for at, data in pages.items():
        assert read(raw, pair, a, at) == "ok " + data.hex()
        assert read(raw, pair, b, at) == "ok " + data[::-1].hex()
    assert read(raw, pair, a, 1 << 20, 65536) == "ok " + big.hex()
    # the way out when RDMA fails
    tcp = host.control.data(lane=9)
    for at, page in pages.items():
        assert tcp.read(a.id, at) == page
    tcp.write(b.id, 4096, b"\x77" * PAGE)
    assert read(raw, pair, b, 4096) == "ok " + "77" * PAGE
    tcp.close()
    host.goodbye()


def revoked(raw: Raw) -> None:
    """A slab given back is out of reach at once; the other is not."""
    host = Host()
    pair = host.pair(raw)
    a, b = host.map(), host.map()
    assert write(raw, pair, a, 0, b"\x01" * PAGE) == "ok"
    assert write(raw, pair, b, 0, b"\x02" * PAGE) == "ok"
    m = host.control.request(UNMAP, struct.pack("<Q", a.id), DONE)
    assert m.u64(0) == a.id
    assert read(raw, pair, a, 0) == ACCESS
    assert read(raw, pair, b, 0).startswith("error")  # that took the queue pair
    pair = host.pair(raw)
    assert read(raw, pair, b, 0) == "ok " + "02" * PAGE
    assert write(raw, pair, a, 0, b"\x03" * PAGE) == ACCESS
    pair = host.pair(raw)
    c = host.map()
    assert c.rkey != a.rkey
    assert read(raw, pair, c, 0) == "ok " + "00" * PAGE
    assert read(raw, pair, b, 0) == "ok " + "02" * PAGE
    wait(lambda s: s["rdma"]["connections"] == 1 and s["rdma"]["registered_bytes"] == 2 * c.bytes,
         "two slabs, one queue pair")
    host.goodbye()


def forced(raw: Raw) -> None:
    """Taken by force while in use: an access error, DONE 0, and the session goes on."""
    host = Host()
    pair = host.pair(raw)
    slabs = [host.map() for _ in range(3)]
    for i, slab in enumerate(slabs):
        assert write(raw, pair, slab, 0, bytes([i + 1]) * PAGE) == "ok"
    text = (HERE / "donor.ini").read_text()
    (HERE / "donor.ini").write_text(text.replace("capacity = 512M", "capacity = 32M"))
    os.kill(status()["pid"], signal.SIGHUP)
    asked = host.control.wait(EVICT).u64(0)
    gone = next(s for s in slabs if s.id == asked)
    kept = [s for s in slabs if s.id != asked]
    i = slabs.index(gone)
    # asked back, not taken: it is there until the deadline
    assert read(raw, pair, gone, 0) == "ok " + bytes([i + 1]).hex() * PAGE
    taken = host.control.wait(DONE, 0)
    assert taken.u64(0) == asked
    wait(lambda s: s["rdma"]["registered_bytes"] == 2 * gone.bytes, "deregistered")
    assert read(raw, pair, gone, 0) == ACCESS
    pair = host.pair(raw)
    for slab in kept:
        assert read(raw, pair, slab, 0) == "ok " + bytes([slabs.index(slab) + 1]).hex() * PAGE
    assert refused(lambda: host.control.request(UNMAP, struct.pack("<Q", asked), DONE)) == NO_SLAB
    (HERE / "donor.ini").write_text(text)
    os.kill(status()["pid"], signal.SIGHUP)
    host.goodbye()


def foreign(raw: Raw) -> None:
    """A key is worth nothing in another session, and only READ and WRITE within a slab work."""
    alice, bob = Host(), Host("bob")
    mine, his = alice.pair(raw), bob.pair(raw)
    a, b = alice.map(), bob.map()
    assert write(raw, mine, a, 0, b"\x0a" * PAGE) == "ok"
    assert write(raw, his, b, 0, b"\x0b" * PAGE) == "ok"
    assert read(raw, his, a, 0) == ACCESS
    his = bob.pair(raw)
    assert write(raw, his, a, 0, b"\xff" * PAGE) == ACCESS
    his = bob.pair(raw)
    assert read(raw, mine, a, 0) == "ok " + "0a" * PAGE
    assert read(raw, his, b, 0) == "ok " + "0b" * PAGE
    for at, size in ((b.bytes, PAGE), (b.bytes - 8, PAGE), ((1 << 64) - PAGE, PAGE)):
        assert read(raw, his, b, at, size) == ACCESS, at
        his = bob.pair(raw)
    assert raw.ask("add", his, b.rkey, b.addr).startswith("error")
    his = bob.pair(raw)
    assert raw.ask("send", his).startswith("error")
    his = bob.pair(raw)
    for rkey in range(0, 1 << 16, 257):  # guesses
        if rkey == b.rkey:
            continue
        if raw.ask("read", his, rkey, 0, 8) != ACCESS:
            raise AssertionError(f"key {rkey} opens something")
        raw.ask("close", his)
        his = bob.pair(raw)
        if rkey > 2000:
            break
    assert read(raw, his, b, 0) == "ok " + "0b" * PAGE
    assert read(raw, mine, a, 0) == "ok " + "0a" * PAGE
    alice.goodbye()
    bob.goodbye()


def lanes(raw: Raw) -> None:
    """A lane has one connection, of either kind; a tenant has a limit of connections."""
    host = Host("bob")  # four connections, its control connection among them
    first = host.pair(raw, 1)
    slab = host.map()
    second = host.pair(raw, 1)
    assert read(raw, first, slab, 0).startswith("error")
    assert read(raw, second, slab, 0).startswith("ok")
    data = host.control.data(lane=1)
    assert read(raw, second, slab, 0).startswith("error")
    assert data.read(slab.id, 0) == bytes(PAGE)
    for _ in range(100):
        try:
            pair = host.pair(raw, 1)
            break
        except Refused as e:
            assert e.status == BUSY
            time.sleep(0.05)
    data.close()
    assert read(raw, pair, slab, 0).startswith("ok")
    host.pair(raw, 2)
    host.pair(raw, 3)
    assert refused(lambda: host.ticket(4)) == QUOTA
    assert status()["tenants"][1]["connections"] == 4
    host.goodbye()


def killed(raw: Raw) -> None:
    """A host that is killed: its slabs are back, deregistered, when 5 s are over."""
    child = os.fork()
    if not child:
        try:
            own = Raw()
            host = Host()
            pair = host.pair(own)
            slab = host.map()
            assert write(own, pair, slab, 0, b"\x01" * PAGE) == "ok"
            (HERE / "ready").write_text(str(own.process.pid))
            time.sleep(1000)
        finally:
            os._exit(1)
    end = time.monotonic() + 30
    while not (HERE / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.2)
    other = int((HERE / "ready").read_text())
    (HERE / "ready").unlink()
    assert status()["rdma"]["registered_bytes"] > 0
    # Its own child first, which would end by itself when nobody writes to it any more.
    os.kill(other, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_empty(8)


def vanished(raw: Raw) -> None:
    """Requests that are given up half way, many at a time, leave nothing."""
    host = Host()
    children = []
    for i in range(20):
        t = host.ticket(i + 1)
        children.append(own := Raw())
        assert own.process.stdin
        own.process.stdin.write(f"connect {ADDRESS} {t.port} {t.data().hex()}\n")
        own.process.stdin.flush()
    for i, own in enumerate(children):
        if i % 2:
            time.sleep(0.02)
        own.process.kill()
    for own in children:
        own.process.wait()
    pair = host.pair(raw, 100)
    slab = host.map()
    assert read(raw, pair, slab, 0).startswith("ok")
    host.goodbye()


def large(raw: Raw) -> None:
    """Registering a slab may take longer than silence may: its host is not given up for it."""
    host = Host()
    pair = host.pair(raw)
    begin = time.monotonic()
    slab = host.map()
    print(f"{slab.bytes >> 20} MiB mapped in {time.monotonic() - begin:.1f} s")
    for at in (0, slab.bytes // 2, slab.bytes - PAGE):
        assert write(raw, pair, slab, at, b"\x2a" * PAGE) == "ok"
        assert read(raw, pair, slab, at) == "ok " + "2a" * PAGE
    assert len(status()["sessions"]) == 1
    host.goodbye()


SCENARIOS = {f.__name__: f for f in (tickets, memory, revoked, forced, foreign, lanes, killed,
                                     vanished, large)}


def main() -> None:
    raw = Raw()
    try:
        SCENARIOS[sys.argv[1]](raw)
        wait_empty()
    finally:
        raw.end()
    print("ok")


if __name__ == "__main__":
    main()
