# SPDX-License-Identifier: GPL-2.0-or-later
"""LIST: what a session has, and slabs that its host never heard of."""

from __future__ import annotations

import struct

from tests.donor.conftest import Lab
from tests.donor.rawtls import (CONTROL_ROLE, HELLO, HELLO_LIST, LIST, MAP, MORE, SLAB_IS, TCP,
                                WELCOME, WELCOME_LIST, Slab, hello, pack)

SLAB = 2 << 20
LOST = 1000


def ids(answer: list[tuple[int, int, int]]) -> list[int]:
    return [slab for slab, _, _ in answer]


def flags(lab: Lab, said: int) -> int:
    """Those of WELCOME; the session is gone after it."""
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(CONTROL_ROLE, flags=said)))
    m = tls.message()
    assert m.type == WELCOME
    tls.send(pack(5, 2))
    tls.wait_closed()
    tls.close()
    return int(struct.unpack_from("<H", m.body, 2)[0])


def test_it_is_agreed(lab: Lab) -> None:
    """A host that does not know LIST is not told of it."""
    assert flags(lab, 0) & WELCOME_LIST == 0
    assert flags(lab, HELLO_LIST | 0x80) == WELCOME_LIST


def test_the_slabs_of_a_session(lab: Lab) -> None:
    c, other = lab.control(), lab.control("bob")
    assert c.list() == []
    slabs = [c.map(TCP, cookie=100 + n) for n in range(3)]
    other.map(TCP)
    answer = c.list()
    assert answer == [(s.id, 100 + n, MORE if n < 2 else 0) for n, s in enumerate(slabs)]
    assert ids(c.list(slabs[0].id)) == ids(answer)[1:]
    assert c.list(slabs[2].id) == c.list((1 << 64) - 1) == []
    c.unmap(slabs[1])
    assert ids(c.list()) == [slabs[0].id, slabs[2].id]
    c.goodbye()
    other.goodbye()


def test_many_slabs(lab: Lab) -> None:
    """64 in an answer, the lowest first, whatever the order they were lent in."""
    c = lab.control()
    slabs = {c.map(TCP).id for _ in range(70)}
    for slab in sorted(slabs)[10:14]:
        c.unmap(Slab(slab, SLAB, TCP))
        slabs.remove(slab)
    slabs |= {c.map(TCP).id for _ in range(4)}
    first = c.list()
    assert len(first) == 64 and all(f & MORE for _, _, f in first)
    assert ids(first) == sorted(slabs)[:64]
    rest = c.list(first[-1][0])
    assert ids(rest) == sorted(slabs)[64:] and rest[-1][2] == 0
    # answers wait for a host that does not read; all of them come
    tags = [c.send(LIST, struct.pack("<Q", 0)) for _ in range(20)]
    for tag in tags:
        got = [c.wait(SLAB_IS, tag) for _ in range(64)]
        assert [m.u64(0) for m in got] == sorted(slabs)[:64]
    c.goodbye()


def test_lost_answers_leave_no_slab(lab: Lab) -> None:
    """A thousand MAPs whose answers are lost with the connection: all are found and given back."""
    c = lab.control()
    kept = c.map(TCP)
    found = 0
    for _ in range(LOST):
        c.send(MAP, struct.pack("<QQII", SLAB, 1, TCP, 0))
        c.close()
        c = lab.control(session=c.session, secret=c.secret)
        for slab in ids(c.list()):
            if slab != kept.id:
                c.unmap(Slab(slab, SLAB, TCP))
                found += 1
    print(f"{found} of {LOST} MAPs had left a slab")
    assert found
    assert ids(c.list()) == [kept.id]
    status = lab.wait(lambda s: s["memory"]["slabs_releasing"] == 0, "released")
    assert status["memory"]["slabs_mapped"] == 1
    c.goodbye()
