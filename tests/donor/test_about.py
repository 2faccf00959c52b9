# SPDX-License-Identifier: GPL-2.0-or-later
"""ABOUT: what a donor says about itself, to hosts that know the message."""

from __future__ import annotations

import struct

import pytest

from tests.donor.conftest import MakeLab
from tests.donor.rawtls import (ABOUT, CONTROL_ROLE, FREE_MEM, HEARTBEAT, HELLO, HELLO_ABOUT,
                                QUERY_MEM, WELCOME, WELCOME_ABOUT, Message, Tls, hello, pack)

MIB = 1 << 20


def answers(tls: Tls, tag: int) -> list[Message]:
    """All that the donor sends for two questions; the second one's FREE_MEM ends it."""
    tls.send(pack(QUERY_MEM, tag) + pack(QUERY_MEM, tag + 1))
    got: list[Message] = []
    while not (got and got[-1].type == FREE_MEM and got[-1].tag == tag + 1):
        m = tls.message()
        if m.type != HEARTBEAT:
            got.append(m)
    return got


def test_totals_are_told_once(make_lab: MakeLab) -> None:
    """Behind FREE_MEM, when they have changed; totals of all tenants, and no more."""
    lab = make_lab(donor={"capacity": "64M", "slab-size": "2M", "head-room": "8M"})
    other = lab.control("bob")
    slab = other.map()
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(CONTROL_ROLE, flags=HELLO_ABOUT)))
    m = tls.message()
    assert m.type == WELCOME
    assert struct.unpack_from("<H", m.body, 2)[0] == WELCOME_ABOUT
    got = answers(tls, 10)
    assert [(m.type, m.tag) for m in got] == [(FREE_MEM, 10), (ABOUT, 10), (FREE_MEM, 11)]
    assert struct.unpack("<3Q2I", got[1].body) == (64 * MIB, 2 * MIB, 8 * MIB, 2, 0)
    assert [m.type for m in answers(tls, 20)] == [FREE_MEM, FREE_MEM]
    other.unmap(slab)
    got = answers(tls, 30)
    assert [m.type for m in got] == [FREE_MEM, ABOUT, FREE_MEM]
    assert struct.unpack("<3Q2I", got[1].body) == (64 * MIB, 0, 8 * MIB, 2, 0)
    tls.send(pack(5, 40))
    tls.wait_closed()
    tls.close()
    other.goodbye()


@pytest.mark.parametrize("flags", [0, 0x77])
def test_a_host_that_does_not_know_it_is_not_told(make_lab: MakeLab, flags: int) -> None:
    lab = make_lab()
    tls = lab.tls()
    tls.send(pack(HELLO, 1, hello(CONTROL_ROLE, flags=flags)))
    assert struct.unpack_from("<H", tls.message().body, 2)[0] & WELCOME_ABOUT == 0
    assert [m.type for m in answers(tls, 10)] == [FREE_MEM, FREE_MEM]
    tls.send(pack(5, 40))
    tls.wait_closed()
    tls.close()
