# SPDX-License-Identifier: GPL-2.0-or-later
"""Admission: crowds of strangers, tenants that don't hang up, descriptors that run out."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from tests.donor.conftest import KEYS, Lab, MakeLab
from tests.donor.rawtls import (
    HEARTBEAT,
    MAP,
    MR_INFO,
    NO_MEMORY,
    SHM,
    TCP,
    Closed,
    Control,
    Refused,
    TlsError,
    pack,
)

CROWD = 6000
FLOOD_S = 3.0
HERE = Path(__file__).parent
GREETING = "160301"  # how a TLS handshake begins
# A donor frees the slabs of a lost session after this time. `make test-faults`, which runs alone,
# judges the target of one second: here other tests' programs may keep a SYN waiting that long.
LAPSE_S = 5.0
OTHER = "127.77.0.1"


@contextlib.contextmanager
def flood(*words: object) -> Iterator[subprocess.Popen[str]]:
    """flood.py at work: everything it opens has been opened once."""
    p = subprocess.Popen([sys.executable, str(HERE / "flood.py"), *map(str, words)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout is not None and p.stdout.readline() == "made\n"
        yield p
    finally:
        out, _ = p.communicate()
        print(f"flood {words}: {out.strip()} connections made")
        assert p.returncode == 0


class Waits:
    """The longest that each kind of host had to wait for its session."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.most: dict[str, int] = {}
        self.count = 0

    def insist(self, what: str, once: Callable[[], Control]) -> Control:
        """As a host does: a connection that is lost is made again, at once."""
        begin = time.monotonic()
        tries = 0
        while True:
            tries += 1
            try:
                c = once()
                break
            except (TlsError, Closed, OSError, TimeoutError):
                assert time.monotonic() - begin < 30, f"{what}: not in 30 s, {tries} tries"
        took = time.monotonic() - begin
        self.count += 1
        self.longest[what] = max(took, self.longest.get(what, 0))
        self.most[what] = max(tries, self.most.get(what, 0))
        return c

    def judge(self) -> None:
        for what, took in self.longest.items():
            print(f"{what}: {took:.3f} s at most, {self.most[what]} tries at most")
        print(f"{self.count} sessions")
        assert max(self.longest.values()) <= LAPSE_S, self.longest


class Beats(threading.Thread):
    """A host that beats for the block over the Unix socket, which no crowd's packets delay, and the
    processor time that the donor's event loop took between two of its heartbeats."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self.c = lab.control("bob", unix=True)
        self.clock = Path(f"/proc/{lab.pid}/task/{lab.pid}/schedstat")
        self.stop = threading.Event()
        self.longest = 0.0
        self.busiest = 0.0
        self.count = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join(15)
        with contextlib.suppress(Closed, OSError):
            self.c.goodbye()

    def worked(self) -> float:
        """Seconds that the event loop has been on a processor."""
        return int(self.clock.read_text().split()[0]) / 1e9

    def run(self) -> None:
        last, worked = time.monotonic(), self.worked()
        while not self.stop.is_set():
            self.c.beat()
            while self.c.tls.message().type != HEARTBEAT:
                pass
            now, work = time.monotonic(), self.worked()
            self.longest = max(self.longest, now - last)
            self.busiest = max(self.busiest, work - worked)
            self.count += 1
            last, worked = now, work

    def judge(self) -> None:
        """A loop that a crowd holds works on until the crowd goes; one that does not is on a
        processor for the 0.75 s between two heartbeats at most, and a round."""
        print(f"heartbeats of another host: {self.longest:.3f} s apart at most, the donor at work "
              f"for {self.busiest:.3f} s of that at most; {self.count} of them")
        assert self.count and self.busiest < 1.3


@pytest.mark.parametrize("crowd", [
    pytest.param(("tcp", "127.0.0.1", 1, ""), id="one address, silent"),
    pytest.param(("tcp", "127.0.0.1", 1, GREETING), id="one address, begins"),
    pytest.param(("tcp", "127.3.0.1", 60000, ""), id="many addresses, silent"),
    pytest.param(("tcp", "127.3.0.1", 60000, GREETING), id="many addresses, begins"),
    pytest.param(("unix", "0.0.0.0", 1, GREETING), id="unix"),
])
def test_a_crowd_of_strangers_keeps_nobody_out(
        make_lab: MakeLab, crowd: tuple[str, str, int, str]) -> None:
    """6000 connections that never show a key: new sessions and lost ones are served in time, over
    each socket, though the crowd comes from the very address of a host."""
    kind, first, sources, say = crowd
    lab = make_lab()
    hosts = [lab.control(), lab.control(unix=True)]
    slabs = [c.map(TCP) for c in hosts]
    address = lab.unix_address if kind == "unix" else lab.tcp_address
    waits = Waits()
    with Beats(lab) as beats, flood("idle", address, CROWD, first, sources, say):
        end = time.monotonic() + FLOOD_S
        while time.monotonic() < end:
            for c, unix in ((hosts[0], False), (hosts[1], True)):
                c.tls.sock.close()
                hosts[unix] = waits.insist(
                    f"resumed over {'unix' if unix else 'tcp'}",
                    partial(lab.control, unix=unix, session=c.session, secret=c.secret,
                            timeout=LAPSE_S))
                assert hosts[unix].session == c.session
            for what, more in (("new over unix", {"unix": True}),
                               ("new over tcp from elsewhere", {"source": OTHER})):
                waits.insist(what, partial(lab.control, "bob", timeout=LAPSE_S, **more)).goodbye()
    waits.judge()
    beats.judge()
    for c, slab in zip(hosts, slabs, strict=True):
        d = c.data()
        d.write(slab.id, 0, b"k" * 4096)
        assert d.read(slab.id, 0) == b"k" * 4096
        d.close()
        c.goodbye()
    lab.wait_empty()


@pytest.mark.parametrize("unix", [False, True])
def test_one_that_sends_on_after_a_refusal_stops_nobody(make_lab: MakeLab, unix: bool) -> None:
    """60 connections that send without end after a refusal: others hear heartbeats in time."""
    lab = make_lab()
    address = lab.unix_address if unix else lab.tcp_address
    with Beats(lab) as beats, flood("endless", address, 60, "alice", KEYS["alice"]):
        time.sleep(4)
    beats.judge()
    lab.wait_empty()


def limited(lab: Lab, files: int) -> Lab:
    """@lab with a limit of open files."""
    script = lab.folder / "donord.sh"
    script.write_text(f"#!/bin/sh\nulimit -n {files}\nexec {lab.binary} \"$@\"\n")
    script.chmod(0o755)
    lab.binary = script
    return lab


def test_small_slabs_leave_descriptors_for_others(make_lab: MakeLab) -> None:
    """One tenant maps until it is refused: another one's hosts come, come back and are served."""
    lab = limited(make_lab(start=False, donor={"capacity": "2G", "spare-slabs": 0},
                           limits={"connections": 64, "handshakes": 16}), 600)
    lab.start()
    greedy, bob = lab.control(), lab.control("bob")
    kept = bob.map()
    got = 0
    with pytest.raises(Refused) as e:
        while True:
            greedy.map()
            got += 1
    assert e.value.status == NO_MEMORY
    status = lab.status()
    print(f"{got} slabs, {lab.fds()} descriptors of 600, {status['memory']['capacity_bytes']}")
    assert got + 1 == status["memory"]["capacity_bytes"] // greedy.slab_bytes
    # every connection there may be can be had
    bob.tls.sock.close()
    bob = lab.control("bob", session=bob.session, secret=bob.secret)
    data = [bob.data() for _ in range(60)]
    assert all(d.read(kept.id, 0) == bytes(4096) for d in data)
    for d in data:
        d.close()
    said = [line for line in lab.log.read_text().splitlines() if "open files" in line]
    assert len(said) == 1 and "raise" in said[0], said
    greedy.goodbye()
    bob.goodbye()
    lab.wait_empty()


def test_too_few_descriptors_for_its_connections(make_lab: MakeLab) -> None:
    """A donor that can't have the connections it is told to take does not start, and says why."""
    lab = limited(make_lab(start=False, limits={"connections": 300}), 300)
    lab.write_files()
    p = subprocess.run([str(lab.binary), "--config", str(lab.config)], capture_output=True,
                       text=True, timeout=30, check=False)
    print(p.stderr)
    assert p.returncode == 2
    assert "LimitNOFILE" in p.stderr and p.stderr.count("\n") == 1


@contextlib.contextmanager
def no_descriptor(lab: Lab) -> Iterator[None]:
    """Its next descriptor can't be had."""
    before = resource.prlimit(lab.pid, resource.RLIMIT_NOFILE)
    used = {int(fd) for fd in os.listdir(f"/proc/{lab.pid}/fd")}
    lowest = min(set(range(len(used) + 1)) - used)
    resource.prlimit(lab.pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.prlimit(lab.pid, resource.RLIMIT_NOFILE, before)


def test_a_descriptor_that_can_not_be_passed_leaves_no_slab(make_lab: MakeLab) -> None:
    """The slab's descriptor can't be sent: MAP is refused, nothing else changes."""
    lab = make_lab()
    c = lab.control(unix=True)
    with no_descriptor(lab):
        with pytest.raises(Refused) as e:
            c.map(SHM)
        assert e.value.status == NO_MEMORY
    assert c.query()["used"] == 0
    assert lab.status()["sessions"][0]["slabs"] == 0
    slab = c.map(SHM)
    os.close(slab.fd)
    c.goodbye()
    lab.wait_empty()


def test_admission_without_descriptors(make_lab: MakeLab) -> None:
    """No descriptor is left: a stranger's or the new connection is closed; later all works."""
    lab = make_lab()
    lab.wait(lambda s: not s["connections"], "quiet")
    with no_descriptor(lab):
        with pytest.raises((TlsError, Closed, OSError)):
            lab.control()
    lab.served()
    lab.wait_empty()


def test_maps_in_a_row_do_not_wait_for_the_next_message(lab: Lab) -> None:
    """More MAPs at once than descriptors may wait to be passed: all are answered."""
    c = lab.control(unix=True)
    body = struct.pack("<QQII", c.slab_bytes, 7, SHM, 0)
    c.tls.sock.settimeout(20)
    c.tls.send(b"".join(pack(MAP, tag, body) for tag in range(20)))
    answers: list[int] = []
    beats = 0
    while len(answers) < 20:
        m = c.tls.message()
        if m.type == HEARTBEAT:
            beats += bool(answers)
            assert beats < 2, f"{len(answers)} answers, and the rest with the donor's own messages"
        else:
            assert m.type == MR_INFO
            answers.append(m.tag)
    assert answers == list(range(20))
    c.goodbye()
