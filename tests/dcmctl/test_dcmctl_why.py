# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl why` of a VM whose socket answers with chosen counters."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dcmctl.pager.why import CAUSES
from tests.dcmctl.support import Cli
from tests.dcmctl.vm_server import STATUS, VmServer


def test_why(dcmctl: Cli, vms: Path) -> None:
    names = [counter for counter, _, _ in CAUSES.values()]
    with VmServer(vms) as vm:
        vm.status["pid"] = os.getpid()
        vm.status["counters"] = {"FAULTS": 5, "FAULT_MISSING": 2, **dict.fromkeys(names, 1000)}
        vm.step = {"counters.FAULTS": 2000, "counters.FAULT_MISSING": 1500}
        vm.step |= {"counters.WAIT_DONOR_NS": 30_000_000, "counters.WAIT_HERE_NS": 10_000_000}
        done = dcmctl("why", "vm1", "--seconds", "0.1")
        assert done.returncode == 0, done
        for said in (
            " s 2k faults, 1.5k of them fetched; 0.",
            "donors' answers        75.0%   30ms   15us a fault",
            "this host's own work   25.0%   10ms  5.0us a fault",
            "no free frame           0.0%\n",
            "ready to run, waited ",
            "a larger budget: too little was fetched to tell",
            "a smaller budget: too few touches were seen to tell: look longer (--seconds)",
            "75 % of the time is donors' answers: ",
        ):
            assert said in done.stdout, done.stdout
        found = json.loads(dcmctl("why", "vm1", "--seconds", "0.1", "--json").stdout)
        assert found["waited_ns"] == {
            "donor": 30_000_000, "queue": 0, "here": 10_000_000, "frames": 0, "out": 0, "retry": 0
        }  # fmt: skip
        assert (found["faults"], found["missing"], found["largest"]) == (2000, 1500, "donor")
        assert found["cpu_waited_ns"] >= 0

        vm.step = {}
        done = dcmctl("why", str(vm.path), "--seconds", "0.1")
        assert done.stdout.endswith("\nno access waited\n"), done
        vm.status["pid"] = 1 << 30  # no such process
        assert "wake-ups: not known" in dcmctl("why", "vm1", "--seconds", "0.1").stdout


def test_why_tells_of_a_larger_budget(dcmctl: Cli, vms: Path) -> None:
    """All pages come back, after 8 k to 16 k evictions: the budget, 16 k pages, need not double."""
    counters = {counter: 9 for counter, _, _ in CAUSES.values()}
    common = {"ok": True, "budget_bytes": 16384 * 4096, "counters": counters}
    later = [[8192, 1050], *([8192 + at * 1024, 1000] for at in range(1, 8))]
    readings = [
        {"evicted_pages": 100, "away": [[8192, 50]]},
        {"evicted_pages": 8100, "away": later},
    ]

    def answer(_: dict[str, Any]) -> bytes:
        reading = readings.pop(0) if len(readings) > 1 else readings[0]
        return json.dumps({**STATUS, **common, **reading}).encode() + b"\n"

    with VmServer(vms, answer=answer):
        found = json.loads(dcmctl("why", "vm1", "--seconds", "0.1", "--json").stdout)
        assert found["still_fetched"]["1.25"] == 1
        assert found["still_fetched"]["2.0"] == 0


def test_why_tells_of_other_budgets(dcmctl: Cli, vms: Path) -> None:
    """As many touches at each distance up to twice the budget, of a sample of one page in 16."""
    counters = {counter: 9 for counter, _, _ in CAUSES.values()}
    common = {"ok": True, "budget_bytes": 16384 * 4096, "pid": os.getpid()}
    reuse = {"watched": 2048, "pages": 32768, "blind": 0, "unknown": 0}
    readings = [(0, 0), (1000, 900)]

    def answer(_: dict[str, Any]) -> bytes:
        faults, n = readings.pop(0) if len(readings) > 1 else readings[0]
        now = {**counters, "FAULTS": faults, "FAULT_MISSING": faults}
        rows = [[1024 * at, n * 16] for at in range(16)]
        rows += [[2048 * at, n * 32] for at in range(8, 16)]
        said = {**common, "counters": now, "reuse": {**reuse, "touches": rows}}
        return json.dumps({**STATUS, **said}).encode() + b"\n"

    with VmServer(vms, answer=answer):
        done = dcmctl("why", "vm1", "--seconds", "0.1", "--json")
        assert not done.stderr, done
        found = json.loads(done.stdout)
        told = found["fetches_per_s"]
        assert list(told) == ["0.5", "0.75", "1.0", "1.5", "2.0"]
        assert 0 == told["2.0"] < told["1.5"] < told["1.0"] < told["0.75"] <= told["0.5"]
        assert told["1.0"] > 1000  # of 1000 in little more than 0.1 s
        assert 0 <= found["lost_time"] <= 1
        readings[:] = [(0, 0), (1000, 900)]
        said = dcmctl("why", "vm1", "--seconds", "0.1").stdout
        assert "  faults that fetch, a second, foretold: " in said
        assert " with 0.5 x, " in said
        reuse["blind"] = 10000
        readings[:] = [(0, 0), (1000, 900)]
        said = dcmctl("why", "vm1", "--seconds", "0.1").stdout
        assert "a smaller budget: not known, as too many of its pages can't be watched" in said


def test_why_fails(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as vm:
        assert "version" in dcmctl.fails("why", "vm1", "--seconds", "0.1")
        vm.status["counters"] = {counter: 9 for counter, _, _ in CAUSES.values()}
        vm.step = {"pid": 1}
        assert "started anew" in dcmctl.fails("why", "vm1", "--seconds", "0.1")
        assert "(running: vm1)" in dcmctl.fails("why", "vm2")
        for seconds in ("0", "nan", "x", "3601"):
            dcmctl.fails("why", "vm1", "--seconds", seconds, status=2)


def test_faults_that_do_not_fetch_count_as_time_lost_to_fetches(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as vm:
        vm.status["pid"] = os.getpid()
        names = ("FAULTS", "FAULT_MISSING", *(counter for counter, _, _ in CAUSES.values()))
        vm.status["counters"] = dict.fromkeys(names, 9)
        vm.step = {"counters.FAULTS": 10_000_000}
        found = json.loads(dcmctl("why", "vm1", "--seconds", "0.1", "--json").stdout)
        assert (found["faults"], found["lost_time"]) == (10_000_000, 0)
        vm.step |= {"counters.FAULT_MISSING": 10_000_000}
        found = json.loads(dcmctl("why", "vm1", "--seconds", "0.1", "--json").stdout)
        assert found["lost_time"] == 1
