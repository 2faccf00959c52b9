# SPDX-License-Identifier: GPL-2.0-or-later
"""The door: crowds of strangers, and tenants that don't hang up."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.donor.conftest import KEYS, Lab, MakeLab
from tests.donor.rawtls import HEARTBEAT, TCP, Closed, Control, TlsError

CROWD = 6000
FLOOD_S = 3.0
HERE = Path(__file__).parent
GREETING = "160301"  # how a TLS handshake begins
# the bound of each wait; what was measured is printed
PATIENCE_S = 1.0
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
        assert max(self.longest.values()) <= PATIENCE_S, self.longest


class Beats(threading.Thread):
    """A host that beats, and how far apart the donor's heartbeats are; less the time for which
    other programs kept the donor's event loop from a processor, which is no fault of its."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self.c = lab.control("bob")
        self.clock = Path(f"/proc/{lab.pid}/task/{lab.pid}/schedstat")
        self.stop = threading.Event()
        self.longest = 0.0
        self.own = 0.0
        self.count = 0

    def kept(self) -> float:
        return int(self.clock.read_text().split()[1]) / 1e9

    def run(self) -> None:
        last, kept = time.monotonic(), self.kept()
        while not self.stop.is_set():
            self.c.beat()
            while self.c.tls.message().type != HEARTBEAT:
                pass
            now, waited = time.monotonic(), self.kept()
            self.longest = max(self.longest, now - last)
            self.own = max(self.own, now - last - (waited - kept))
            self.count += 1
            last, kept = now, waited

    def judge(self) -> None:
        self.stop.set()
        self.join(15)
        print(f"heartbeats of another host: {self.longest:.3f} s apart at most, "
              f"{self.own:.3f} s of it the donor's; {self.count} of them")
        assert self.count and self.own < 1.3
        self.c.goodbye()


@pytest.mark.parametrize("crowd", [
    pytest.param(("tcp", "127.0.0.1", 1, ""), id="one address, silent"),
    pytest.param(("tcp", "127.0.0.1", 1, GREETING), id="one address, begins"),
    pytest.param(("tcp", "127.3.0.1", 60000, ""), id="many addresses, silent"),
    pytest.param(("tcp", "127.3.0.1", 60000, GREETING), id="many addresses, begins"),
    pytest.param(("unix", "0.0.0.0", 1, GREETING), id="unix"),
])
def test_a_crowd_of_strangers_keeps_nobody_out(
        make_lab: MakeLab, crowd: tuple[str, str, int, str]) -> None:
    """6000 connections that never show a key: new sessions and lost ones are served within a
    second, over each socket, though the crowd comes from the very address of a host."""
    kind, first, sources, say = crowd
    lab = make_lab()
    hosts = [lab.control(), lab.control(unix=True)]
    slabs = [c.map(TCP) for c in hosts]
    beats = Beats(lab)
    beats.start()
    address = lab.unix_address if kind == "unix" else lab.tcp_address
    waits = Waits()
    with flood("idle", address, CROWD, first, sources, say):
        end = time.monotonic() + FLOOD_S
        while time.monotonic() < end:
            for c, unix in ((hosts[0], False), (hosts[1], True)):
                c.tls.sock.close()
                hosts[unix] = waits.insist(
                    f"resumed over {'unix' if unix else 'tcp'}",
                    partial(lab.control, unix=unix, session=c.session, secret=c.secret))
                assert hosts[unix].session == c.session
            waits.insist("new over unix", lambda: lab.control("bob", unix=True)).goodbye()
            waits.insist("new over tcp from elsewhere",
                         lambda: lab.control("bob", source=OTHER)).goodbye()
    waits.judge()
    beats.judge()
    for c, slab in zip(hosts, slabs, strict=True):
        d = c.data()
        d.write(slab.id, 0, b"k" * 4096)
        assert d.read(slab.id, 0) == b"k" * 4096
        d.close()
        c.goodbye()
    lab.settled()


@pytest.mark.parametrize("unix", [False, True])
def test_one_that_sends_on_after_a_refusal_stops_nobody(make_lab: MakeLab, unix: bool) -> None:
    """60 connections that send without end after a refusal: others hear heartbeats in time."""
    lab = make_lab()
    beats = Beats(lab)
    beats.start()
    address = lab.unix_address if unix else lab.tcp_address
    with flood("endless", address, 60, "alice", KEYS["alice"]):
        time.sleep(4)
    beats.judge()
    lab.settled()
