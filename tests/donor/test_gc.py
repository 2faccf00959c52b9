# SPDX-License-Identifier: GPL-2.0-or-later
"""GC workers as dcm-donord runs them: right requests, wrong ones, and every kind of end."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time

import pytest

from tests.donor.conftest import Lab, MakeLab
from tests.donor.rawgc import (BITMAP, DONE, FINISH, GC, GC_OPEN, GC_ROLE, GC_SLAB, GHOSTS, PLACE,
                               POLL, REGION, REGIONS, REQUEST, SPACE_DESTROY, STOP, TRACE_START,
                               VGC_BAD_TYPE, VGC_CANCELLED, VGC_INVALID, VGC_NO_TRACE, WORKER,
                               Heap, Worker, alive, children, no_workers, one_pid, ready)
from tests.donor.rawtls import (ERROR, HELLO, NO_SESSION, NO_SLAB, PROTOCOL, READ, SHM, Closed,
                                Control, Data, Refused, Slab, Tls, dial, hello, pack)


def write(data: Data, slab: Slab, memory: bytes, at: int = 0) -> None:
    for o in range(0, len(memory), 65536):
        data.write(slab.id, at + o, bytes(memory[o:o + 65536]))


def gone(pid: int, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < end, f"process {pid} goes on"
        time.sleep(0.02)


def last_error(worker: Worker) -> int:
    """The last messages of the donor, before it closes the connection."""
    last = [m for m in worker.tls.wait_closed() if m.type == ERROR]
    assert last, "hung up on without a word"
    return last[-1].u32(0)


def test_trace(lab: Lab) -> None:
    """A worker finds the live objects in slabs written over the network; again after
    the heap was written again; for shm slabs as well."""
    heap = Heap(REGIONS, 8000, 1)
    roots = random.Random(2).sample(list(heap.refers), 20)
    c = lab.control()
    slab = c.map()
    d = c.data()
    write(d, slab, heap.memory)
    w = Worker(c)
    ready(w, slab, heap)
    for epoch in range(1, 4):
        if epoch == 3:
            heap.chain()
            write(d, slab, heap.memory)
        assert w.trace_start(epoch, heap.tops) == 0
        assert w.roots(epoch, roots) == 0
        assert w.finish(epoch) == 0
        assert w.live(epoch, REGIONS) == heap.reach(roots)
    assert w.request(SPACE_DESTROY).status == 0
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)

    c = lab.control(unix=True)
    slab = c.map(SHM)
    os.pwrite(slab.fd, heap.memory, 3 * REGION)
    w = Worker(c)
    w.slab(slab.id, 1023)
    assert w.create(REGIONS) == 0 and w.node_type() == 0
    assert w.place([(r, 0, 1023, (r + 3) * REGION) for r in range(REGIONS)]) == 0
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, roots[:1]) == 0
    assert w.finish(1) == 0
    assert w.live(1, REGIONS) == heap.reach(roots[:1])
    os.close(slab.fd)
    w.close()
    c.goodbye()
    no_workers(lab)


def test_who_may(lab: Lab) -> None:
    """The key is not enough: also the session and its secret, and only for its own slabs."""
    alice, bob = lab.control(), lab.control("bob")
    for session, secret in ((alice.session, bytes(16)), (bob.session, bob.secret),
                            (alice.session ^ 1, alice.secret)):
        tls = Tls(dial(lab.tcp_address), "alice", alice.key)
        tls.send(pack(HELLO, 1, hello(GC_ROLE, session, secret)))
        m = tls.message()
        assert (m.type, m.u32(0)) == (ERROR, NO_SESSION)
        tls.close()
    foreign = bob.map()
    mine = alice.map()
    w = Worker(alice)
    for slab in (foreign.id, mine.id ^ 1 << 30, 0, (1 << 64) - 1):
        w.slab(slab)
        m = w.tls.message()
        assert (m.type, m.tag, m.u32(0)) == (ERROR, 3, NO_SLAB)
    # and the worker goes on
    assert w.create(4) == 0
    # a slab that the worker was not given, and places outside the slab it was given
    assert w.place([(0, 0, 0, 0)]) == VGC_INVALID
    w.slab(mine.id)
    assert w.place([(0, 0, 0, mine.bytes)]) == VGC_INVALID
    assert w.place([(0, 0, 0, mine.bytes - REGION + 8)]) == VGC_INVALID
    assert w.place([(0, 0, 0, (1 << 64) - 8)]) == VGC_INVALID
    assert w.place([(4, 0, 0, 0)]) == VGC_INVALID
    assert w.place([(0, 0, 0, mine.bytes - REGION)]) == 0
    w.close()
    alice.goodbye()
    bob.goodbye()


def test_spaces(lab: Lab) -> None:
    """Sixteen spaces and not one more; one that is gone can be made again."""
    c = lab.control()
    w = Worker(c)
    for space in range(16):
        assert w.create(4, space) == 0
    assert w.create(4, 16) == VGC_INVALID
    assert w.create(4, 3) == VGC_INVALID
    assert w.request(SPACE_DESTROY, space=3).status == 0
    assert w.create(4, 3) == 0
    assert w.trace_start(1, [0] * 4) == 0
    assert w.request(TRACE_START, epoch=1, space=17).status == VGC_INVALID
    assert w.call(POLL, space=17, epoch=1).status == VGC_INVALID
    w.close()
    c.goodbye()


def bad_messages(slab: Slab) -> dict[str, bytes]:
    body = struct.pack("<IIIIQII", POLL, 0, 0, 0, 0, 0, 0)
    return {
        "of data": pack(READ, 1, struct.pack("<QQII", slab.id, 0, 4096, 0)),
        "again": pack(GC_OPEN, 1, struct.pack("<QII", 1 << 20, 0, 0)),
        "a donor's kind": pack(GC, 1, struct.pack("<IIIIQII", DONE, 0, 0, 0, 0, 0, 0)),
        "the donor's own kind": pack(GC, 1, struct.pack("<IIIIQII", 1, 0, 0, 0, 0, 0, 0)),
        "no kind": pack(GC, 1, struct.pack("<IIIIQII", 99, 0, 0, 0, 0, 0, 0)),
        "reserved": pack(GC, 1, body[:-4] + b"\1\0\0\0"),
        "short": pack(GC, 1, body[:-1]),
        "long": pack(GC, 1, body, size=32 + 65537),
        "slab's number": pack(GC_SLAB, 1, struct.pack("<QII", slab.id, 1024, 0)),
        "slab's size": pack(GC_SLAB, 1, struct.pack("<QI", slab.id, 0)),
        "junk": b"\xa5" * 64,
    }


def test_wrong_messages(lab: Lab) -> None:
    """An invalid message ends the connection and the worker, not the session."""
    c = lab.control()
    slab = c.map()
    for name, raw in bad_messages(slab).items():
        w = Worker(c)
        pid = one_pid(lab)
        w.tls.send(raw)
        assert last_error(w) == PROTOCOL, name
        w.close()
        gone(pid)
    # before there is a worker
    for raw in (pack(GC_SLAB, 1, struct.pack("<QII", slab.id, 0, 0)),
                pack(GC, 1, struct.pack("<IIIIQII", POLL, 0, 0, 0, 0, 0, 0)),
                pack(GC_OPEN, 1, struct.pack("<QII", 1 << 20, 64, 0))):
        w = Worker(c, start=False)
        w.tls.send(raw)
        assert last_error(w) == PROTOCOL
        w.close()
    assert c.query()["used"] == slab.bytes
    c.goodbye()
    no_workers(lab)


def test_noise(lab: Lab) -> None:
    """Right framing, random contents: an answer or the end of the worker; then the next."""
    rng = random.Random(5)
    c = lab.control()
    slab = c.map()
    ended = 0
    for _ in range(12):
        w = Worker(c)
        ready(w, slab, Heap(REGIONS, 800, 3))
        try:
            for k in range(60):
                payload = rng.randbytes(rng.choice((0, 8, 24, 32, 40, 48, 64, 512, 4096)))
                if k % 2:
                    command = rng.choice((1, 2, 4, 16, 17, 18, 20, 32, 36))
                    payload = struct.pack("<HHIQIIII", command, 0, 0, 1, rng.randrange(3), 0,
                                          len(payload) // 16, 0) + payload
                w.say(REQUEST if k % 2 else rng.choice((PLACE, POLL, BITMAP, FINISH, GHOSTS)),
                      payload, epoch=rng.randrange(3), n=rng.randrange(70),
                      value=rng.randrange(9999), donor=rng.randrange(70))
            w.say(STOP, value=5)
            tag = w.say(POLL, epoch=1)
            while w.hear().tag != tag:
                pass
        except (Closed, Refused):
            ended += 1
        w.close()
    assert ended < 12
    d = c.data()
    d.write(slab.id, 0, b"n" * 4096)
    d.close()
    c.goodbye()
    no_workers(lab)


def test_hostile_heap(lab: Lab) -> None:
    """Bytes that are no heap: a status that says where, and nothing else happens."""
    rng = random.Random(6)
    c = lab.control()
    slab = c.map()
    d = c.data()
    w = Worker(c)
    heap = Heap(REGIONS, 8000, 4)
    ready(w, slab, heap)
    bad = rng.choice(list(heap.refers))
    struct.pack_into("<Q", heap.memory, bad, 0x7777)
    write(d, slab, heap.memory)
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, [bad]) == 0
    assert w.finish(1) == VGC_BAD_TYPE
    assert w.call(FINISH, epoch=1).status == VGC_BAD_TYPE
    for epoch in range(2, 12):
        write(d, slab, rng.randbytes(len(heap.memory)))
        assert w.trace_start(epoch, [REGION] * REGIONS) == 0
        assert w.roots(epoch, [8 * rng.randrange(REGION) for _ in range(16)]) == 0
        assert w.finish(epoch) != 0
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def long_trace(lab: Lab, c: Control) -> tuple[Worker, Slab, Data, Heap]:
    """A worker that traces until the trace is cancelled: new roots keep coming."""
    heap = Heap(REGIONS, 30000, 7)
    heap.chain()
    slab = c.map()
    d = c.data()
    write(d, slab, heap.memory)
    w = Worker(c)
    ready(w, slab, heap)
    assert w.trace_start(1, heap.tops) == 0
    assert w.roots(1, [0]) == 0
    return w, slab, d, heap


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGABRT])
def test_worker_killed(lab: Lab, how: signal.Signals) -> None:
    """In the middle of a trace: the host is told, its slabs are as they were, and another
    worker does it all."""
    c = lab.control()
    w, slab, d, heap = long_trace(lab, c)
    pid = one_pid(lab)
    os.kill(pid, how)
    assert last_error(w) == WORKER
    gone(pid)
    w.close()
    for o in range(0, len(heap.memory), 65536):
        assert d.read(slab.id, o, 65536) == heap.memory[o:o + 65536]
    assert lab.status()["gc"]["lost"] > 0
    again = Worker(c)
    ready(again, slab, heap)
    assert again.trace_start(1, heap.tops) == 0
    assert again.roots(1, [0]) == 0
    assert again.finish(1) == 0
    assert again.live(1, REGIONS) == heap.reach([0])
    again.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def test_stop(lab: Lab) -> None:
    """A trace that is told to stop says so, and another can begin."""
    c = lab.control()
    w, _, d, heap = long_trace(lab, c)
    w.say(STOP, value=VGC_CANCELLED)
    assert w.call(FINISH, epoch=1).status in (0, VGC_CANCELLED)
    assert w.trace_start(2, heap.tops) == 0
    assert w.roots(2, [REGION]) == 0
    assert w.call(POLL, epoch=1).payload[8] == VGC_NO_TRACE
    assert w.finish(2) == 0
    assert w.live(2, REGIONS) == heap.reach([REGION])
    w.close()
    d.close()
    c.goodbye()


def test_hang_up_ends_it(lab: Lab) -> None:
    """A worker that is stopped, and reads nothing, ends with its connection, and with its
    session; other workers go on."""
    other = lab.control("bob")
    kept, _, kept_data, _ = long_trace(lab, other)
    kept_pid = one_pid(lab)
    for session_too in (False, True):
        c = lab.control()
        w, _, d, _ = long_trace(lab, c)
        [pid] = [p for p in children(lab.pid) if p != kept_pid]
        os.kill(pid, signal.SIGSTOP)
        if session_too:
            c.goodbye()
            with pytest.raises(Closed):
                while True:
                    w.tls.message()
        w.close()
        gone(pid)
        d.close()
        if not session_too:
            c.goodbye()
    assert alive(kept_pid)
    assert kept.finish(1) == 0
    kept.close()
    kept_data.close()
    other.goodbye()
    no_workers(lab)


def test_slow_host(lab: Lab) -> None:
    """While a host does not read its answers the donor reads nothing of it; once it
    reads, every answer is there, in order."""
    c = lab.control()
    w, _, d, _ = long_trace(lab, c)
    assert w.finish(1) == 0
    first, many, sent = w.tag + 1, 20000, threading.Event()

    def ask() -> None:
        for _ in range(many // 100):
            batch = b""
            for _ in range(100):
                w.tag += 1
                batch += pack(GC, w.tag, struct.pack("<IIIIQII", BITMAP, 0, 1, 0, 0, 0, 0)
                              + bytes(2048))
            w.tls.send(batch)
        sent.set()

    asks = threading.Thread(target=ask)
    asks.start()
    # 40 MB of questions and 20 MB of answers: more than sockets hold
    assert not sent.wait(1.5)
    c.beat()
    lab.served()
    for tag in range(first, first + many):
        assert w.hear().tag == tag
        if tag % 500 == 0:
            c.beat()
    asks.join(10)
    assert sent.is_set()
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def test_answers_after_a_worker_did_not_read(lab: Lab) -> None:
    """Messages that the donor had read from the socket when its worker did not read were
    never passed on: the buffer they were in raised no event. Now every one is answered."""
    c = lab.control()
    w, _, d, _ = long_trace(lab, c)
    assert w.finish(1) == 0
    pid = one_pid(lab)
    # the amount that just fits the donor's buffers is among these
    for many in range(64, 256, 6):
        os.kill(pid, signal.SIGSTOP)
        first = w.tag + 1
        for _ in range(many):
            w.say(BITMAP, bytes(2048), epoch=1)
        c.beat()
        lab.served()
        os.kill(pid, signal.SIGCONT)
        for tag in range(first, first + many):
            assert w.hear().tag == tag
    w.close()
    d.close()
    c.goodbye()
    no_workers(lab)


def test_slab_taken_back(lab: Lab) -> None:
    """A worker whose mapped slab was given back dies of SIGBUS and sees no page of the next
    owner; the donor and the session go on."""
    c = lab.control()
    w, slab, d, heap = long_trace(lab, c)
    assert w.finish(1) == 0
    c.unmap(slab)
    assert w.trace_start(2, heap.tops) == 0
    try:
        # the worker may live long enough to answer
        assert w.roots(2, [0]) == 0
        assert last_error(w) == WORKER
    except Refused as e:
        assert e.status == WORKER
    w.close()
    other = c.map()
    assert d.read(other.id, 0) == bytes(4096)
    d.close()
    c.goodbye()
    no_workers(lab)


@pytest.mark.parametrize("how", ["drained", "told twice", "killed"])
def test_donor_ends(make_lab: MakeLab, how: str) -> None:
    """No worker is left behind, however the daemon ends."""
    lab = make_lab()
    c = lab.control()
    w, slab, d, _ = long_trace(lab, c)
    pid = one_pid(lab)
    os.kill(pid, signal.SIGSTOP)  # it could not do anything about it
    if how == "killed":
        lab.signal(signal.SIGKILL)
        assert lab.process is not None
        lab.process.wait(10)
        lab.process = None
    else:
        lab.signal(signal.SIGTERM)
        if how == "drained":
            c.unmap(slab)
        else:
            lab.wait(lambda s: s["state"] == "draining", "the first signal")
            lab.signal(signal.SIGTERM)
    gone(pid)
    if lab.process is not None:
        assert lab.process.wait(20) == (how == "told twice")
    with pytest.raises((Closed, Refused)):
        while True:
            w.tls.message()
    w.close()
    d.close()
    c.close()
