# SPDX-License-Identifier: GPL-2.0-or-later
"""Hostile messages of a host with a valid key on a control connection."""

from __future__ import annotations

import random
import struct

import pytest

from tests.donor.conftest import Lab
from tests.donor.rawtls import (ACTIVITY, CONTROL_ROLE, DATA_ROLE, DONE, ERROR, EVICT,
                                FREE_MEM, GOODBYE, HEARTBEAT, HELLO, MAP, MR_INFO, NO_SESSION,
                                NO_SLAB, PROTOCOL, QUERY_MEM, READ, SHM, SIZE, TCP, TRANSPORT,
                                UNMAP, VERBS, VERSION, WELCOME, Closed, Refused, hello, pack)


def refused(lab: Lab, first: bytes, status: int, tag: int | None = None) -> None:
    """A fresh connection says @first, gets ERROR, and is closed."""
    tls = lab.tls()
    tls.send(first)
    answers = tls.wait_closed()
    tls.close()
    assert [m.type for m in answers] == [ERROR], answers
    assert answers[0].u32(0) == status
    if tag is not None:
        assert answers[0].tag == tag


@pytest.mark.parametrize("first", [
    pack(QUERY_MEM, 1),  # before HELLO
    pack(GOODBYE, 1),
    pack(READ, 1, bytes(24)),
    pack(WELCOME, 1, bytes(48)),  # the donor's own
    pack(HELLO, 1, hello(CONTROL_ROLE), size=31),
    pack(HELLO, 1, hello(CONTROL_ROLE), size=33),
    pack(HELLO, 1, hello(CONTROL_ROLE), size=0xFFFFFFFF),
    pack(HELLO, 1, hello(7)),  # no such role
    pack(HELLO, 1, struct.pack("<HHBBHQ16s", 1, 1, 1, 0, 9, 0, bytes(16))),  # reserved
    pack(HELLO, 1, hello(CONTROL_ROLE, versions=(3, 2))),  # backwards
    pack(999, 1, bytes(8)),
    b"XY" + bytes(14),
    b"\xff",
    b"\x43\x4d" + b"\xff" * 4000,
])
def test_bad_first_message(lab: Lab, first: bytes) -> None:
    if first == b"\xff":
        tls = lab.tls()
        tls.send(first)
        tls.close()
        return
    refused(lab, first, PROTOCOL)


def test_version(lab: Lab) -> None:
    refused(lab, pack(HELLO, 9, hello(CONTROL_ROLE, versions=(2, 9))), VERSION, 9)
    refused(lab, pack(HELLO, 9, hello(CONTROL_ROLE, versions=(0, 0))), VERSION, 9)
    tls = lab.tls()
    tls.send(pack(HELLO, 9, hello(CONTROL_ROLE, versions=(0, 65535))))
    m = tls.message()
    assert m.type == WELCOME and struct.unpack_from("<H", m.body)[0] == 1
    tls.send(pack(GOODBYE, 1))
    tls.wait_closed()
    tls.close()


def test_foreign_sessions(lab: Lab) -> None:
    a, b = lab.control("alice"), lab.control("bob")
    for role in (CONTROL_ROLE, DATA_ROLE):
        refused(lab, pack(HELLO, 1, hello(role, a.session, bytes(16))), NO_SESSION)
        refused(lab, pack(HELLO, 1, hello(role, a.session ^ 1, a.secret)), NO_SESSION)
        # right secret, other tenant
        refused(lab, pack(HELLO, 1, hello(role, b.session, b.secret)), NO_SESSION)
    refused(lab, pack(HELLO, 1, hello(DATA_ROLE)), NO_SESSION)
    slab = b.map()
    with pytest.raises(Refused) as e:
        a.unmap(slab)
    assert e.value.status == NO_SLAB
    a.send(DONE, struct.pack("<Q", slab.id))  # another's slab: not even an answer
    a.query()
    assert b.query()["used"] == slab.bytes
    a.goodbye()
    b.goodbye()


def test_out_of_order(lab: Lab) -> None:
    """HELLO twice; a data message on a control connection; the donor's own messages."""
    for bad in (pack(HELLO, 1, hello(CONTROL_ROLE)), pack(READ, 1, bytes(24)),
                pack(MR_INFO, 1, bytes(32)), pack(EVICT, 1, bytes(8)),
                pack(FREE_MEM, 1, bytes(40)), pack(ERROR, 1, bytes(8))):
        c = lab.control()
        c.tls.send(bad)
        left = [m for m in c.tls.wait_closed() if m.type != HEARTBEAT]
        assert [(m.type, m.u32(0)) for m in left] == [(ERROR, PROTOCOL)]
        again = lab.control(session=c.session, secret=c.secret)
        again.goodbye()
        c.close()


def test_replayed_requests(lab: Lab) -> None:
    c = lab.control()
    slab = c.map()
    c.unmap(slab)
    with pytest.raises(Refused) as e:
        c.unmap(slab)
    assert e.value.status == NO_SLAB
    # DONE and ACTIVITY that nobody asked for
    other = c.map()
    assert other.id != slab.id
    tag = c.send(DONE, struct.pack("<Q", other.id))
    with pytest.raises(Refused) as e:
        c.wait(DONE, tag)
    assert e.value.status == NO_SLAB
    c.send(DONE, struct.pack("<Q", 0xFFFFFFFFFFFFFFFF))
    c.send(ACTIVITY, struct.pack("<QQ", other.id, 1 << 63))
    c.send(ACTIVITY, struct.pack("<QQ", 12345, 1))
    assert c.query()["used"] == other.bytes
    c.goodbye()


def test_map_refusals(lab: Lab) -> None:
    c = lab.control()
    for transports, size, status in ((TCP, 4096, SIZE), (TCP, 0xFFFFFFFFFFFFFFFF, SIZE),
                                     (0, None, TRANSPORT), (VERBS, None, TRANSPORT),
                                     (SHM, None, TRANSPORT)):  # shm needs the UNIX socket
        with pytest.raises(Refused) as e:
            c.map(transports, slab_bytes=size)
        assert e.value.status == status
    assert c.map(SHM | TCP | VERBS).transport == TCP
    c.goodbye()


def test_interleaved(lab: Lab) -> None:
    """Messages cut anywhere, and many in one record, are the same messages."""
    c = lab.control()
    stream = b"".join(
        pack(QUERY_MEM, 1000 + i) + pack(HEARTBEAT, 0)
        + pack(MAP, 2000 + i, struct.pack("<QQII", c.slab_bytes, i, TCP, 0))
        for i in range(10))
    for i in range(0, len(stream) // 2, 3):
        c.tls.send(stream[i:i + 3])
    c.tls.send(stream[(len(stream) // 2 + 2) // 3 * 3:])
    got: list[tuple[int, int]] = []
    while len(got) < 20:
        m = c.tls.message()
        if m.type != HEARTBEAT:
            got.append((m.type, m.tag))
    assert got == [x for i in range(10) for x in ((FREE_MEM, 1000 + i), (MR_INFO, 2000 + i))]
    c.goodbye()


def test_truncated(lab: Lab) -> None:
    """A host that goes in the middle of any message takes nothing with it."""
    whole = pack(MAP, 1, struct.pack("<QQII", 2 << 20, 0, TCP, 0))
    for cut in (1, 2, 15, 16, 17, len(whole) - 1):
        c = lab.control()
        c.tls.send(whole[:cut])
        c.close()
        again = lab.control(session=c.session, secret=c.secret)
        assert again.query()["used"] == 0
        again.goodbye()


def test_answers_not_read(lab: Lab) -> None:
    """Back-pressure: the donor stops reading, holds little, and loses nothing."""
    c = lab.control()
    before = lab.rss()
    c.tls.sock.setblocking(False)
    sent, stream = 0, b"".join(pack(QUERY_MEM, i) for i in range(400))
    try:
        while sent < 40000:
            c.tls.sock.setblocking(False)
            n = c.tls.sock.send(b"")  # a broken socket would raise
            assert n == 0
            if not writable(c):
                break
            c.tls.sock.setblocking(True)
            c.tls.send(stream)
            sent += 400
    finally:
        c.tls.sock.setblocking(True)
    lab.served()
    assert lab.rss() - before < 64 << 20
    got = 0
    while got < sent:
        m = c.tls.message()
        if m.type == FREE_MEM:
            assert m.tag == got % 400
            got += 1
    c.goodbye()


def writable(c: object) -> bool:
    import select  # noqa: PLC0415

    sock = c.tls.sock  # type: ignore[attr-defined]
    return bool(select.select([], [sock], [], 0.3)[1])


def test_mutations(lab: Lab) -> None:
    """Random damage to real conversations; the donor survives, others are served."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(60):
        # a damaged length makes the donor wait for more: don't wait long with it
        c = lab.control(rng.choice(("alice", "bob")), unix=rng.random() < 0.5, timeout=0.2)
        stream = bytearray(b"".join(
            rng.choice((
                pack(QUERY_MEM, rng.randrange(9)), pack(HEARTBEAT, 0),
                pack(MAP, 5, struct.pack("<QQII", c.slab_bytes, 1, rng.choice((1, 2, 3)), 0)),
                pack(UNMAP, 6, struct.pack("<Q", rng.randrange(1 << 22))),
                pack(DONE, 6, struct.pack("<Q", rng.randrange(1 << 22))),
            )) for _ in range(rng.randrange(1, 12))))
        for _ in range(rng.randrange(3)):
            stream[rng.randrange(len(stream))] = rng.randrange(256)
        if rng.random() < 0.3:
            del stream[rng.randrange(len(stream)):]
        try:
            c.tls.send(bytes(stream))
            c.send(GOODBYE)
            while True:
                c.tls.message()
        except (Closed, TimeoutError):
            pass
        c.close()
        # the damaged message may be GOODBYE itself: end the session for sure
        try:
            lab.control(c.name, session=c.session, secret=c.secret).goodbye()
        except Refused as e:
            assert e.status == NO_SESSION
