# SPDX-License-Identifier: GPL-2.0-or-later
"""The door: tenants that don't hang up."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.donor.conftest import KEYS, MakeLab
from tests.donor.rawtls import HEARTBEAT, Control

HERE = Path(__file__).parent


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


class Beats(threading.Thread):
    """A host that beats and measures how far apart the donor's heartbeats are."""

    def __init__(self, c: Control) -> None:
        super().__init__(daemon=True)
        self.c = c
        self.stop = threading.Event()
        self.longest = 0.0
        self.count = 0

    def run(self) -> None:
        last = time.monotonic()
        while not self.stop.is_set():
            self.c.beat()
            while self.c.tls.message().type != HEARTBEAT:
                pass
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            self.count += 1
            last = now

    def done(self) -> float:
        self.stop.set()
        self.join(15)
        assert self.count, "no heartbeat came"
        return self.longest


@pytest.mark.parametrize("unix", [False, True])
def test_one_that_sends_on_after_a_refusal_stops_nobody(make_lab: MakeLab, unix: bool) -> None:
    """60 connections that send without end after a refusal: others hear heartbeats in time."""
    lab = make_lab()
    beats = Beats(lab.control("bob"))
    beats.start()
    address = lab.unix_address if unix else lab.tcp_address
    with flood("endless", address, 60, "alice", KEYS["alice"]):
        time.sleep(4)
    longest = beats.done()
    print(f"heartbeats of another host: {longest:.3f} s apart at most, of {beats.count}")
    assert longest < 1.5
    beats.c.goodbye()
    lab.settled()
