# SPDX-License-Identifier: GPL-2.0-or-later
"""READ and WRITE: every byte, any order of arrival, any death."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawtls import (DATA, HELLO, NO_SLAB, OK, PLAIN, QUERY_MEM, RANGE, READ, SHM, TCP,
                                WRITE, WRITTEN, Closed, Control, Data, Expected, exchange, hello,
                                pack)
from tests.framework.paths import TOP

MIB = 1 << 20


@pytest.fixture(params=[0, PLAIN], ids=["tls", "plain"])
def link(lab: Lab, request: pytest.FixtureRequest) -> Iterator[tuple[Control, Data]]:
    c = lab.control()
    d = c.data(request.param)
    assert d.tls.plain == bool(request.param)
    yield c, d
    d.close()
    c.goodbye()


def test_model(link: tuple[Control, Data]) -> None:
    """Random pipelined operations on two slabs against a bytearray each."""
    c, d = link
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    slabs = [c.map(), c.map()]
    model = {s.id: bytearray(s.bytes) for s in slabs}
    for _ in range(40):
        stream, expected = b"", []
        for _ in range(rng.randrange(1, 40)):
            slab = rng.choice(slabs)
            pages = rng.choice((1, 1, 2, 4, 8, 16))
            # few offsets, so that operations of one batch meet
            at = rng.randrange(24) * 4096 + rng.choice((0, slab.bytes - 40 * 4096))
            if rng.random() < 0.5:
                data = rng.randbytes(4096) * pages
                stream += d.write_bytes(slab.id, at, data)
                model[slab.id][at:at + len(data)] = data
                expected.append(Expected(d.tag, WRITTEN, pages * 4096))
            else:
                stream += d.read_bytes(slab.id, at, pages * 4096)
                expected.append(Expected(d.tag, DATA, pages * 4096,
                                         bytes(model[slab.id][at:at + pages * 4096])))
        exchange(d, stream, expected)
    for slab in slabs:
        for at in range(0, slab.bytes, 65536):
            assert d.read(slab.id, at, 65536) == model[slab.id][at:at + 65536]


def test_order_in_a_batch(link: tuple[Control, Data]) -> None:
    """READ, WRITE, READ of one page in one segment take effect in this order."""
    c, d = link
    slab = c.map()
    d.write(slab.id, 0, b"a" * 4096)
    stream = d.read_bytes(slab.id, 0, 4096) + d.write_bytes(slab.id, 0, b"b" * 4096) \
        + d.read_bytes(slab.id, 0, 4096) + d.write_bytes(slab.id, 0, b"c" * 4096) \
        + d.read_bytes(slab.id, 0, 4096)
    for _ in range(20):
        d.write(slab.id, 0, b"a" * 4096)
        d.tls.send(stream)
        got = [d.tls.message().body[8:9] for _ in range(5)]
        assert got == [b"a", b"", b"b", b"", b"c"]


def status_of(d: Data, request: bytes) -> int:
    d.tls.send(request)
    m = d.tls.message()
    assert m.tag == d.tag
    assert m.u32(0) == OK or len(m.body) == 8
    return m.u32(0)


def test_bounds(link: tuple[Control, Data], lab: Lab) -> None:
    c, d = link
    slab = c.map()
    end = slab.bytes
    for at, n in ((end, 4096), (end - 4096, 8192), (1, 4096), (4095, 4096), (0, 0), (0, 4095),
                  (0, 1), (0, 65536 + 4096), (0, 0xFFFFF000), (1 << 63, 4096),
                  ((1 << 64) - 4096, 4096), ((1 << 64) - 4096, 8192)):
        assert status_of(d, d.read_bytes(slab.id, at, n)) == RANGE, (at, n)
    for at, n in ((end, 4096), (end - 4096, 8192), (1, 4096), (0, 1), (0, 4097),
                  ((1 << 64) - 4096, 8192)):
        assert status_of(d, d.write_bytes(slab.id, at, b"x" * n)) == RANGE, (at, n)
    for bad in (0, slab.id + (1 << 20), slab.id ^ 1, (1 << 64) - 1):
        assert status_of(d, d.read_bytes(bad, 0, 4096)) == NO_SLAB
        assert status_of(d, d.write_bytes(bad, 0, b"x" * 4096)) == NO_SLAB
    assert d.read(slab.id, end - 4096) == bytes(4096)
    other = lab.control("bob")
    foreign = other.map()
    assert status_of(d, d.read_bytes(foreign.id, 0, 4096)) == NO_SLAB
    assert status_of(d, d.write_bytes(foreign.id, 0, b"x" * 4096)) == NO_SLAB
    other.goodbye()
    c.unmap(slab)
    assert status_of(d, d.read_bytes(slab.id, 0, 4096)) == NO_SLAB


def test_shm_slab_is_not_served(lab: Lab) -> None:
    c = lab.control(unix=True)
    slab = c.map(SHM)
    d = c.data()
    assert status_of(d, d.read_bytes(slab.id, 0, 4096)) == NO_SLAB
    d.close()
    c.goodbye()


@pytest.mark.parametrize("bad", [
    pack(WRITE, 1, struct.pack("<QQII", 1, 0, 4096, 0) + bytes(8192)),
    pack(WRITE, 1, struct.pack("<QQII", 1, 0, 8192, 0) + bytes(4096)),
    pack(WRITE, 1, struct.pack("<QQII", 1, 0, 0xFFFFFFFF, 0), size=0xFFFFFFFF),
    pack(WRITE, 1, struct.pack("<QQII", 1, 0, 131072, 0) + bytes(131072)),
    pack(READ, 1, struct.pack("<QQII", 1, 0, 4096, 1)),
    pack(READ, 1, bytes(25)),
    pack(DATA, 1, bytes(8)),
    pack(QUERY_MEM, 1),
    pack(HELLO, 1, hello(2)),
    b"\x00" * 64,
])
def test_broken_stream(link: tuple[Control, Data], bad: bytes) -> None:
    """A stream with wrong framing is closed; the session and its other connections stay."""
    c, d = link
    slab = c.map()
    broken = c.data(PLAIN if d.tls.plain else 0)
    with pytest.raises((Closed, ConnectionError)):
        broken.tls.send(bad)
        while True:
            broken.tls.message()
    broken.close()
    d.write(slab.id, 0, b"q" * 4096)
    assert d.read(slab.id, 0) == b"q" * 4096


SYS_PIDFD_GETFD = 438


def also_open_here(pid: int, peer: object) -> socket.socket:
    """The socket of process @pid that is connected to @peer, as a child after fork() has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            fd = libc.syscall(SYS_PIDFD_GETFD, process, int(name), 0)
            if fd < 0:
                continue
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.close(fd)
                continue
            sock = socket.socket(fileno=fd)
            with contextlib.suppress(OSError):
                if sock.getpeername() == peer:
                    return sock
            sock.close()
    finally:
        os.close(process)
    raise AssertionError(f"process {pid} has no socket connected to {peer}")


def test_bytes_for_a_closed_connection_that_a_child_has_open(lab: Lab) -> None:
    """A GC worker just forked has the donor's sockets until execve(): one that the donor closes
    meanwhile gets bytes, and must not be looked at again."""
    c = lab.control()
    d = c.data(PLAIN)
    with also_open_here(lab.pid, d.tls.sock.getsockname()):
        before = lab.fds()
        d.tls.send(b"\x00" * 64)
        lab.wait(lambda _: lab.fds() < before, "the donor's descriptor closed")
        for _ in range(3):
            d.tls.sock.send(b"more")
            lab.served()
    d.close()
    c.goodbye()


def test_write_of_zeroes(link: tuple[Control, Data], lab: Lab) -> None:
    """A WRITE without a payload writes zeroes, in its turn, and nowhere else."""
    c, d = link
    slab = c.map()
    d.write(slab.id, 0, b"o" * 65536)
    d.tls.send(
        d.read_bytes(slab.id, 4096, 8192)
        + d.write_zeroes_bytes(slab.id, 4096, 8192)
        + d.read_bytes(slab.id, 0, 16384)
    )
    assert d.answer(DATA) == (OK, b"o" * 8192)
    assert d.answer(WRITTEN) == (OK, b"")
    assert d.answer(DATA) == (OK, b"o" * 4096 + bytes(8192) + b"o" * 4096)
    for offset, n in ((0, 0), (0, 4095), (slab.bytes, 4096), (0, 65536 + 4096)):
        d.tls.send(d.write_zeroes_bytes(slab.id, offset, n))
        assert d.answer(WRITTEN)[0] == RANGE


def test_killed_in_a_write(link: tuple[Control, Data]) -> None:
    """Half a WRITE changes nothing, wherever it is cut."""
    c, d = link
    slab = c.map()
    d.write(slab.id, 0, b"o" * 65536)
    for cut in (20, 39, 40, 41, 4096, 60000):
        half = c.data(PLAIN if d.tls.plain else 0)
        half.tls.send(half.write_bytes(slab.id, 0, b"n" * 65536)[:cut])
        half.close()
    again = c.data()
    assert again.read(slab.id, 0, 65536) == b"o" * 65536
    again.close()


def test_answers_not_read(link: tuple[Control, Data], lab: Lab) -> None:
    """A host that never reads stalls itself only, and costs bounded memory."""
    c, d = link
    slab = c.map()
    stuck = c.data(PLAIN if d.tls.plain else 0)
    before = lab.rss()
    stream = b"".join(stuck.read_bytes(slab.id, 0, 65536) for _ in range(3000))
    stuck.tls.sock.settimeout(0.5)
    if stuck.tls.plain:
        with pytest.raises(TimeoutError):
            while True:
                stuck.tls.sock.sendall(stream)
    else:
        stuck.tls.send(stream)
    d.write(slab.id, 4096, b"z" * 4096)
    assert d.read(slab.id, 4096) == b"z" * 4096
    lab.served()
    assert lab.rss() - before < 32 << 20
    stuck.close()


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 1}, {"threads": 3},
                                     {"threads": 2, "poll-us": 50}],
                         ids=lambda o: "-".join(f"{k}-{v}" for k, v in o.items()))
def test_many_connections_one_session(make_lab: MakeLab, options: dict[str, int]) -> None:
    """Lanes: each connection its own thread, all on one slab, pages apart."""
    lab = make_lab(donor={"data-encryption": "no", **options})
    c = lab.control()
    slab = c.map()
    failed: list[BaseException] = []

    def lane(n: int) -> None:
        try:
            d = c.data(PLAIN if n % 2 else 0)
            for i in range(60):
                page = bytes([n, i]) * 2048
                d.write(slab.id, n * 65536 + (i % 16) * 4096, page)
                assert d.read(slab.id, n * 65536 + (i % 16) * 4096) == page
            d.close()
        except BaseException as e:  # handed to the test
            failed.append(e)

    lanes = [threading.Thread(target=lane, args=(n,)) for n in range(8)]
    for t in lanes:
        t.start()
    for t in lanes:
        t.join()
    assert not failed, failed
    c.goodbye()
    lab.wait_empty()


def test_encryption_is_the_hosts_choice(lab: Lab, make_lab: MakeLab) -> None:
    """Plain needs both: a donor that insists keeps TLS, so does a host that does not ask."""
    strict = make_lab(donor={"data-encryption": "yes"})
    c = strict.control()
    slab = c.map()
    d = c.data(PLAIN)
    assert not d.tls.plain
    d.write(slab.id, 0, b"s" * 4096)
    assert d.read(slab.id, 0) == b"s" * 4096
    d.close()
    c.goodbye()
    strict.wait_empty()
    c = lab.control()
    d = c.data()
    assert not d.tls.plain
    d.close()
    c.goodbye()


def test_speaking_too_early(lab: Lab) -> None:
    """With plain asked for, anything between HELLO and WELCOME is ambiguous: closed."""
    c = lab.control()
    slab = c.map()
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(2, c.session, c.secret, PLAIN))
             + pack(READ, 2, struct.pack("<QQII", slab.id, 0, 4096, 0)))
    with pytest.raises(Closed):
        while True:
            tls.message()
    tls.close()
    # under TLS it is a pipelined request like any other
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(2, c.session, c.secret))
             + pack(READ, 2, struct.pack("<QQII", slab.id, 0, 4096, 0)))
    assert tls.message().tag == 1
    m = tls.message()
    assert (m.type, m.tag, m.body[8:]) == (DATA, 2, bytes(4096))
    tls.close()
    assert c.map(TCP).transport == TCP
    c.goodbye()


@pytest.mark.parametrize("end", ["closed", "reset"])
def test_a_connection_cut_in_a_record_is_closed(lab: Lab, end: str) -> None:
    """Part of a TLS record and the end came at once: the donor kept the connection, for ever."""
    c = lab.control()
    d = c.data()
    record = d.tls.sealed(d.read_bytes(1, 0, 4096))
    lab.signal(signal.SIGSTOP)
    try:
        d.tls.sock.send(record[:-1])
        if end == "reset":
            d.tls.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        d.tls.sock.close()
    finally:
        lab.signal(signal.SIGCONT)
    lab.wait(lambda s: s["data"]["connections"] == 0, "closed")
    c.goodbye()


def test_served_where_it_arrives(lab: Lab) -> None:
    """A connection that wanders between CPUs is handed from worker to worker, in order."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one CPU")
    c = lab.control()
    slab = c.map()
    d = c.data()
    other = c.data(PLAIN)
    try:
        for turn in range(8):
            os.sched_setaffinity(0, {allowed[turn % 2]})
            for i in range(80):
                page = bytes([turn, i]) * 2048
                d.write(slab.id, i % 8 * 4096, page)
                other.tls.send(other.write_bytes(slab.id, 65536, page)
                               + other.read_bytes(slab.id, 65536, 4096))
                assert d.read(slab.id, i % 8 * 4096) == page
                assert other.answer(WRITTEN)[0] == OK
                assert other.answer(DATA) == (OK, page)
    finally:
        os.sched_setaffinity(0, allowed)
    d.close()
    other.close()
    c.goodbye()


def test_one_write_at_a_time_beside_many(lab: Lab) -> None:
    """A host with one WRITE on its way hung beside a tenant whose connections never pause."""
    words = [sys.executable, "-IS", str(TOP / "tests/faults/attack.py"), "write"]
    words += [lab.tcp_address, "16", "bob", lab.keys["bob"]]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bob:
        try:
            assert bob.stdout is not None
            assert bob.stdout.readline() == b"at it\n"
            c = lab.control()
            slab = c.map()
            d = c.data()
            for n in range(300):
                d.write(slab.id, 0, bytes([n % 256]) * 65536)
                c.beat()
            d.close()
            c.goodbye()
        finally:
            bob.kill()
