# SPDX-License-Identifier: GPL-2.0-or-later
"""What JFR records of donors' traces and commands is what happened, and what the log says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import (
    DONOR,
    HEAP_MIB,
    Asked,
    Jvm,
    configure,
    on_donors,
    recorded,
    timespan_s,
)
from tests.jvm.test_check import CHECK
from tests.jvm.test_check import CHECKED as FULL_CHECKED
from tests.jvm.test_cycle import CHECK as CYCLE_CHECK
from tests.jvm.test_cycle import CHECKED as CYCLE_CHECKED
from tests.jvm.test_mark import BY_ITSELF, CYCLE_BEGINS, MARK

EVENTS = ("jdk.DonorTrace", "jdk.DonorCommand")
MARKED = re.compile(
    r"Donors have marked (\d+) objects, (\d+) MiB, in (\d+) regions; "
    r"(\d+) roots in (\d+) turns, .*; ([0-9.]+)ms, of which ([0-9.]+)ms to merge"
)
BEGUN = re.compile(rf"GC\((\d+)\) {CYCLE_BEGINS}")
MIB = 1 << 20


def marked(said: str) -> dict[int, re.Match[str]]:
    """The log's line of each cycle in which donors have marked, by the cycle's number."""
    found, cycle = {}, -1
    for text in said.splitlines():
        if line := BEGUN.search(text):
            cycle = int(line[1])
        if line := MARKED.search(text):
            found[cycle] = line
    return found


def failures(said: str) -> list[str]:
    """Why donors have failed, of each cycle in which they were asked and did."""
    return [line for line in re.findall(f"{BY_ITSELF}(.*)", said) if "asked again" not in line]


def recording(path: Path, *events: str) -> str:
    """A flag: JFR records only these events, until the program ends."""
    asked = [f"+{event}#enabled=true" for event in events]
    return "-XX:StartFlightRecording:" + ",".join([f"filename={path}", "settings=none", *asked])


def traced(
    jvm: Jvm, folder: Path, *flags: str, program: tuple[str, ...] = ("Kinds", "4", "1", "late")
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a program to its end: what it said, and the traces and commands that were recorded."""
    path = folder / "donors.jfr"
    said = jvm.run(folder, *flags, recording(path, *EVENTS), *program).stdout
    assert re.search(r"^ok ", said, re.M), said
    return said, recorded(path, EVENTS[0]), recorded(path, EVENTS[1])


def test_marking_is_recorded(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """One event for each trace, with the log's figures, and one for each of its commands."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK]
    said, traces, commands = traced(jvm, short_tmp, *flags)
    lines = marked(said)
    assert len(lines) >= 3 and BY_ITSELF not in said, said
    assert sorted(trace["gcId"] for trace in traces) == sorted(lines), said
    for trace in traces:
        line = lines[trace["gcId"]]
        assert trace["purpose"] == "Concurrent Mark" and trace["succeeded"]
        assert trace["failure"] is None
        figures = [trace[key] for key in ("liveObjects", "regions", "rootsSent", "turns")]
        assert figures == [int(line[n]) for n in (1, 3, 4, 5)], line[0]
        assert trace["liveBytes"] // MIB == int(line[2]), line[0]
        parts = [timespan_s(trace[key]) for key in ("prepareTime", "traceTime", "resultTime")]
        assert abs(sum(parts) - timespan_s(trace["duration"])) < 1e-5 and min(parts) > 0, trace
        # The log's time begins a little earlier, when regions are looked at.
        assert -1e-4 < float(line[6]) / 1e3 - sum(parts) < 0.1, line[0]
        assert trace["eventThread"]["osName"] == "G1 Main Marker"
    for trace in traces:
        ours = [command for command in commands if command["epoch"] == trace["epoch"]]
        names = [command["name"] for command in ours]
        assert names.count("TRACE_START") == names.count("TRACE_FINISH") == 1, names
        assert names.count("TRACE_STATE") >= trace["turns"], names
        assert {"TRACE_BITMAPS", "TRACE_RESULTS", "TRACE_ASK"} <= set(names), names
        # A large array's memory may have come to another donor since the trace began.
        stale = [c["name"] for c in ours if c["answer"] != "done"]
        assert set(stale) <= {"TRACE_ROOTS"}, ours
        roots = [c for c in ours if c["name"] == "TRACE_ROOTS"]
        assert sum(c["bytesSent"] for c in roots) >= 8 * trace["rootsSent"], roots
        bitmaps = [c for c in ours if c["name"] == "TRACE_BITMAPS"]
        assert sum(c["bytesReceived"] for c in bitmaps) >= trace["regions"] * MIB // 64, bitmaps
        spent = sum(timespan_s(command["duration"]) for command in ours)
        assert spent <= timespan_s(trace["duration"]), (spent, trace)
    assert any(command["name"] == "TYPES_ADD" and command["epoch"] == 0 for command in commands)


@pytest.mark.slow
def test_checks_are_recorded(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Traces that are only compared say so, in full collections and in concurrent cycles."""
    config = configure(short_tmp, donors, "shm")
    flags = on_donors(config, "G1", "gc", "gc+donor")
    said, traces, _ = traced(jvm, short_tmp, *flags, *CHECK, program=("Kinds", "3", "2"))
    assert {trace["purpose"] for trace in traces} == {"Full Collection Check"}
    found = [int(line[1]) for line in FULL_CHECKED.finditer(said)]
    assert [trace["liveObjects"] for trace in traces] == found and len(found) >= 3, said
    assert all(trace["liveBytes"] > 16 * trace["liveObjects"] for trace in traces), traces
    said, traces, _ = traced(jvm, short_tmp, *flags, *CYCLE_CHECK)
    assert {trace["purpose"] for trace in traces} == {"Concurrent Mark Check"}
    assert all(trace["succeeded"] for trace in traces)
    # The pause compares fewer objects: regions that were freed since are not in it.
    compared = [int(line[1]) for line in CYCLE_CHECKED.finditer(said)]
    assert len(compared) >= 3 and len(traces) >= len(compared), said
    assert max(compared) <= max(trace["liveObjects"] for trace in traces), said


def test_a_failure_is_recorded(jvm: Jvm, short_tmp: Path) -> None:
    """A trace that fails says why, in the log's words, and so does its command."""
    with Donor(short_tmp / "a", donor=DONOR, gc={"workers": 0}) as donor:
        config = configure(short_tmp, [donor], "shm")
        flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK]
        said, traces, commands = traced(jvm, short_tmp, *flags)
    assert failures(said) and [trace["failure"] for trace in traces] == failures(said), said
    for trace in traces:
        assert not trace["succeeded"] and trace["liveObjects"] == 0 and trace["regions"] > 0, trace
    failed = [command for command in commands if command["answer"] != "done"]
    assert {f"{c['name']}: {c['answer']}" for c in failed} >= set(failures(said)), failed


def test_a_program_that_runs(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """A recording that jcmd starts and stops has the traces in between."""
    config = configure(short_tmp, donors, "shm")
    path = short_tmp / "donors.jfr"
    with Asked(jvm, short_tmp, *on_donors(config, "G1"), *MARK) as program:
        program.collect(1)
        events = [f"+{event}#enabled=true" for event in EVENTS]
        assert "Started recording" in program.jcmd("JFR.start", "name=donors", *events)
        program.collect(3)
        program.jcmd("JFR.dump", "name=donors", f"filename={path}")
        traces = recorded(path, "jdk.DonorTrace")
        assert [trace["succeeded"] for trace in traces] == [True] * 3, traces
        assert {command["epoch"] for command in recorded(path, "jdk.DonorCommand")} == {
            0,
            *[trace["epoch"] for trace in traces],
        }
        program.jcmd("JFR.stop", "name=donors")
        program.collect(1)
        program.jcmd("JFR.start", "name=again", events[0])
        program.jcmd("JFR.stop", "name=again", f"filename={path}")
        assert not recorded(path, *EVENTS)


def test_events_are_off_by_default(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The JDK's own settings record none of them, and all else as ever; a threshold holds."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK]
    path = short_tmp / "profile.jfr"
    start = f"-XX:StartFlightRecording:filename={path},settings=profile"
    said = jvm.run(short_tmp, *flags, start, "Kinds", "3", "3", "late").stdout
    cycles = set(marked(said))
    assert not recorded(path, *EVENTS)
    collections = recorded(path, "jdk.GarbageCollection")
    assert cycles and cycles <= {event["gcId"] for event in collections}, said
    assert {event["name"] for event in collections} >= {"G1New", "G1Old"}, collections
    more = ",+jdk.DonorCommand#enabled=true,+jdk.DonorCommand#threshold=100s"
    jvm.run(short_tmp, *flags, start + more, "Kinds", "2", "4", "late")
    assert not recorded(path, "jdk.DonorCommand") and recorded(path, "jdk.GarbageCollection")


def test_other_events_are_the_stock_ones(
    jvm: Jvm, donors: list[Donor], short_tmp: Path
) -> None:
    """JFR has the stock JVM's events, numbers, settings, fields; on donors two more."""
    config = configure(short_tmp, donors, "shm")
    heap = f"-Xmx{HEAP_MIB}m"
    stock = jvm.run(short_tmp, heap, "Types", ours=False).stdout.splitlines()
    assert len(stock) > 100 and jvm.run(short_tmp, heap, "Types").stdout.splitlines() == stock
    said = jvm.run(short_tmp, *on_donors(config, "G1"), "Types").stdout.splitlines()
    more = sorted(set(said) - set(stock))
    assert set(stock) <= set(said) and [line.split()[1] for line in more] == list(EVENTS), more
    assert all(" false: threshold enabled: long startTime, long duration, " in x for x in more)
    assert len({line.split()[0] for line in said}) == len(said)


@pytest.mark.slow
def test_recordings_while_workers_die(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """Each trace has one event, whatever becomes of it."""
    config = configure(short_tmp, own_donors, "shm")
    path = short_tmp / "donors.jfr"
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, recording(path, *EVENTS)]
    program = ("Kinds", "15", "9", "late")
    killed, said = jvm.run_while_workers_die(
        short_tmp, own_donors, 12, 0.005, *flags, *program, after=CYCLE_BEGINS
    )
    assert killed and re.search(r"^ok 15$", said, re.M), said
    traces = recorded(path, "jdk.DonorTrace")
    good = [trace["gcId"] for trace in traces if trace["succeeded"]]
    assert good == list(marked(said)), said
    bad = [trace["failure"] for trace in traces if not trace["succeeded"]]
    assert bad and bad == failures(said), said
