# SPDX-License-Identifier: GPL-2.0-or-later
"""Which budget is advised, from known costs and a known curve."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dcmctl.pager.advise import Cost
from dcmctl.pager.away import Away
from dcmctl.pager.why import CAUSES, Waits
from tests.dcmctl.support import Cli
from tests.dcmctl.vm_server import STATUS, VmServer


def evenly(evicted: int, to: int) -> Away:
    """Pages that come back after up to `to` evictions, each number as often."""
    fetched: dict[int, int] = {}
    for value in range(to):
        step = max(0, value.bit_length() - 4)
        floor = value >> step << step
        fetched[floor] = fetched.get(floor, 0) + evicted // to
    return Away(evicted, fetched)


def cost(away: Away, here: int = 100, donor: int = 300, ran: int = 1000) -> Cost:
    waits = Waits({**dict.fromkeys(CAUSES, 0), "here": here, "donor": donor})
    return Cost.of(1024, waits, faults=200, zero=100, ran_ns=ran, away=away)


def test_the_smallest_budget_that_is_enough() -> None:
    c = cost(evenly(102400, 1024))
    assert c.slower() == pytest.approx(0.4)
    # Half of this host's own work is for new pages, which no budget saves.
    assert c.slower(2048) == pytest.approx(0.05, abs=0.01)
    for share in (0.1, 0.2, 0.3):
        pages = c.budget_for(share)
        assert pages is not None
        assert 1024 < pages < 2048
        slower, less = c.slower(pages), c.slower(pages - 64)
        assert slower is not None
        assert less is not None
        assert slower <= share < less
    assert c.budget_for(0.4) == 1024
    assert c.budget_for(0.04) is None


def test_unknown() -> None:
    assert cost(Away(0, {})).budget_for(0.1) is None
    assert cost(evenly(102400, 1024), ran=0).slower() is None


def test_command(dcmctl: Cli, runtime: Path) -> None:
    vms = runtime / "vm"
    vms.mkdir(mode=0o700)
    counters = {counter: 0 for counter, _, _ in CAUSES.values()}
    number = 0

    def answer(_: dict[str, Any]) -> bytes:
        """Each reading: 100000 s more of waiting, and as many fetches more."""
        nonlocal number
        number += 1
        now = {**counters, "FAULTS": number * 1000, "FAULT_MISSING": number * 1000}
        now["WAIT_DONOR_NS"] = number * 10**14
        rows = [[floor, n * number] for floor, n in evenly(102400, 1024).fetched.items()]
        said = {"pid": os.getpid(), "budget_bytes": 1024 * 4096, "counters": now, "away": rows}
        said |= {"ok": True, "evicted_pages": 102400 * number}
        return json.dumps({**STATUS, **said}).encode() + b"\n"

    with VmServer(vms, answer=answer):
        words = ("budget", "vm1", "--seconds", "0.2", "--advise")
        found = json.loads(dcmctl(*words, "1", "--json").stdout)
        # Waiting is so much more than running that only a budget without fetches is enough.
        assert found["slower_percent"] > 100
        assert 1400 * 4096 < found["advised_bytes"] < 1700 * 4096
        assert found["halves_bytes"] == [found["advised_bytes"]] * 2
        assert found["fetched_pages"] == 204800
        said = dcmctl(*words, "1").stdout
        assert "% slower than with all of its memory direct, with a budget of 4M" in said
        assert "from 205k fetched pages; each half of the time alone says " in said
        for wrong in ("0", "x", "nan", "1001"):
            dcmctl.fails(*words, wrong, status=2)
        assert "either" in dcmctl.fails("budget", "vm1", status=2)
        assert "either" in dcmctl.fails("budget", "vm1", "4M", "--advise", "5", status=2)
