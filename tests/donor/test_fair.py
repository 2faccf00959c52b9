# SPDX-License-Identifier: GPL-2.0-or-later
"""One tenant has as many requests under way as it may; another still gets its turns.

Nothing is timed: what others do on the machine must not decide. The donor is stopped until all
requests are in its sockets, and then its own counters tell how much it did for one tenant while
another one waited.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawtls import (
    DATA,
    DONE,
    FREE_MEM,
    OK,
    PLAIN,
    QUERY_MEM,
    UNMAP,
    Data,
    pack,
)
from tests.framework.leftovers import state

CONNECTIONS = 200
DEEP = 4  # READs that each has under way
ROUNDS = 2
BIG = 65536
HEAD = 24  # of an answer
LIVES_S = 30
TURN_ALONE = 1 << 20
RECORD_COST = 5 << 10
SLABS = 90
MESSAGES = 64  # of a control connection in one event
TURNS = 2  # of the bully's, which the other tenant may have to wait for


def freeze(lab: Lab) -> None:
    """Stop the donor: requests that clients send stay in the sockets."""
    lab.signal(signal.SIGSTOP)
    for task in Path(f"/proc/{lab.pid}/task").iterdir():
        while state(task) != "T":
            time.sleep(0.001)


def drain(lanes: list[Data], want: int) -> None:
    """Read and discard @want bytes."""
    room = bytearray(1 << 20)
    by_fd = {lane.tls.sock.fileno(): lane.tls.sock for lane in lanes}
    with select.epoll() as poll:
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        while want > 0:
            ready = poll.poll(LIVES_S)
            assert ready, f"{want} bytes did not come"
            for fd, _ in ready:
                want -= by_fd[fd].recv_into(room, len(room), socket.MSG_TRUNC)


def of(lab: Lab, tenant: str) -> dict[str, Any]:
    return next(t for t in lab.status()["tenants"] if t["tenant"] == tenant)


@pytest.mark.parametrize("deep", [1, 16])
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_tenant_waits_for_two_turns_of_a_bully_at_most(
        make_lab: MakeLab, encrypted: bool, deep: int) -> None:
    """Two hundred connections of one tenant, and one connection of another, of @deep READs."""
    flags = 0 if encrypted else PLAIN
    lab = make_lab(donor={"threads": 1, "data-encryption": "no"},
                   limits={"tenant-connections": CONNECTIONS + 8})
    bully, quiet = lab.control("alice"), lab.control("bob")
    bully_slab, quiet_slab = bully.map(), quiet.map()
    lanes = [bully.data(flags) for _ in range(CONNECTIONS)]
    lane = quiet.data(flags)
    size = 4096 if deep == 1 else BIG
    for done in range(1, ROUNDS + 1):
        bully.beat()
        quiet.beat()
        freeze(lab)
        for one in lanes:
            one.tls.send(b"".join(one.read_bytes(bully_slab.id, 0, BIG) for _ in range(DEEP)))
        lane.tls.send(b"".join(lane.read_bytes(quiet_slab.id, 0, size) for _ in range(deep)))
        lab.signal(signal.SIGCONT)
        drain([*lanes, lane], CONNECTIONS * DEEP * (HEAD + BIG) + deep * (HEAD + size))
        reads = done * (CONNECTIONS * DEEP + deep)
        lab.wait(lambda s, reads=reads: s["data"]["reads"] == reads, "all served")  # type: ignore[misc]
    got, lost = of(lab, "bob"), of(lab, "alice")
    # requests that a tenant sent at once wait for each other, not for other tenants
    turn = max(lost["data_turn_max"], got["data_turn_max"])
    print(f"{'TLS' if encrypted else 'plain'}, {deep} deep: waited for "
          f"{got['data_wait_max'] / turn:.2f} turns of {turn} at most; "
          f"quiet {got}; bully {lost}")
    assert lost["data_cost"] >= ROUNDS * CONNECTIONS * DEEP * (HEAD + BIG)
    assert got["data_turns"] >= ROUNDS
    assert got["data_wait_max"] <= TURNS * turn
    for one in [*lanes, lane]:
        one.close()
    for control in (bully, quiet):
        control.goodbye()


def test_tiny_records_are_paid_for(make_lab: MakeLab) -> None:
    """Requests of a TLS record for each byte: that costs the donor more than its bytes say."""
    lab = make_lab(donor={"threads": 1})
    c = lab.control()
    slab = c.map()
    d = c.data()
    before = of(lab, "alice")["data_cost"]
    freeze(lab)
    records = 0
    for _ in range(50):
        for byte in d.read_bytes(slab.id, 0, 4096):
            d.tls.send(bytes([byte]))
            records += 1
    lab.signal(signal.SIGCONT)
    for _ in range(50):
        assert d.answer(DATA)[0] == OK
    found = of(lab, "alice")
    print(f"{records} records: {found}")
    assert found["data_cost"] - before >= records * RECORD_COST
    assert found["data_turn_max"] <= TURN_ALONE + 64 * RECORD_COST + 2 * BIG
    d.close()
    c.goodbye()


def test_all_is_served_that_came_before_a_hang_up(make_lab: MakeLab) -> None:
    """More records than the donor reads at once, and the end of the stream behind them."""
    lab = make_lab(donor={"threads": 1})
    c = lab.control()
    slab = c.map()
    d = c.data()
    freeze(lab)
    for _ in range(300):
        d.tls.send(d.read_bytes(slab.id, 0, 4096))
    d.tls.sock.shutdown(socket.SHUT_WR)
    lab.signal(signal.SIGCONT)
    for _ in range(300):
        assert d.answer(DATA)[0] == OK
    d.close()
    c.goodbye()


def test_a_control_connection_waits_for_a_part_of_anothers_requests(make_lab: MakeLab) -> None:
    """One tenant gives back many slabs at once; another asks how much is lent meanwhile."""
    lab = make_lab(donor={"capacity": "1G", "slab-size": "2M"})
    giver, asker = lab.control("alice"), lab.control("bob")
    slabs = [giver.map() for _ in range(SLABS)]
    assert asker.query()["used"] == SLABS * slabs[0].bytes
    giver.query()  # epoll may list the last sender first
    freeze(lab)
    for n in range(0, SLABS, 30):
        giver.tls.send(b"".join(pack(UNMAP, 1000 + i, struct.pack("<Q", slabs[i].id))
                                for i in range(n, n + 30)))
    tag = asker.send(QUERY_MEM)
    lab.signal(signal.SIGCONT)
    left = struct.unpack_from("<4Q", asker.wait(FREE_MEM, tag).body)[3] // slabs[0].bytes
    print(f"{SLABS - left} of {SLABS} requests were served first")
    assert SLABS - left <= MESSAGES
    for n in range(SLABS):
        giver.wait(DONE, 1000 + n)
    giver.goodbye()
    asker.goodbye()
