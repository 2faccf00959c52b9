# SPDX-License-Identifier: GPL-2.0-or-later
"""`jcmd PID GC.donors` says how the heap lies on donors, and what they have traced so far."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.framework.donor import Donor
from tests.jvm.support import DONOR, HEAP_MIB, Asked, Jvm, configure, on_donors
from tests.jvm.test_check import CHECK as FULL_CHECK
from tests.jvm.test_cycle import CHECK as CYCLE_CHECK
from tests.jvm.test_mark import BY_ITSELF, MARK, marked

LOG = ("gc", "gc+donor")
TRACES = "{} succeeded, {} failed, 0 ended with the collection"
MARK_TRACES = "Traces for Concurrent Mark"
AGAIN = "Donors are asked again"
LEFT_OUT = "Cycles in which donors were not asked"
COMMANDS = re.compile(r"(\d+), of which (\d+) failed; (\d+) bytes sent, (\d+) received")
FAILURE = re.compile(r"GC\((\d+)\), \d{4}-\d\d-\d\dT[0-9:.]+[+-]\d{4}, ([0-9.]+) s ago: (.*)")


def state(program: Asked) -> dict[str, str]:
    """The lines of GC.donors by what they are about."""
    first, *lines = program.jcmd("GC.donors").splitlines()
    assert re.fullmatch(r"\d+:", first)
    return dict(line.split(": ", 1) for line in lines)


def totals(said: dict[str, str]) -> list[int]:
    """Commands, those that failed, bytes sent and received."""
    match = COMMANDS.fullmatch(said["Commands"])
    assert match, said
    return [int(number) for number in match.groups()]


def test_before_during_and_after(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The device stays, cycles and commands are counted, also while donors trace."""
    config = configure(short_tmp, donors, "shm")
    with Asked(jvm, short_tmp, *on_donors(config, "G1", *LOG), *MARK) as program:
        before = state(program)
        assert before["Heap on donors"] == f"dcm:{config}, 2 donors at the start"
        assert before["Window"] == f"512 MiB, of which the heap takes {HEAP_MIB} MiB"
        assert re.fullmatch(rf"{HEAP_MIB} of 1024 KiB, from 0x[0-9a-f]+", before["Regions"])
        assert {"TRACE", "CONCURRENT", "HINTS", "CLEAR"} <= set(before["Features"].split())
        assert before["Concurrent marking"] == "by donors"
        assert before[MARK_TRACES] == TRACES.format(0, 0) and before[LEFT_OUT] == "0", before
        assert before["Last failure"] == "none" and before[AGAIN] == "in the next cycle"

        program.ask(20)
        during = [state(program) for _ in range(3)]
        said = program.wait()
        after = state(program)

        found = len(marked(said))
        assert found >= 20 and BY_ITSELF not in said, said
        assert after[MARK_TRACES] == TRACES.format(found, 0), after
        assert {**after, MARK_TRACES: "", "Commands": ""} == {
            **before,
            MARK_TRACES: "",
            "Commands": "",
        }
        states = [before, *during, after]
        counts = [int(one[MARK_TRACES].split()[0]) for one in states]
        assert counts == sorted(counts), states
        for column in zip(*[totals(one) for one in states], strict=True):
            assert list(column) == sorted(column), states
        commands, failed, sent, received = totals(after)
        # A trace has ten commands or more, of at least 32 bytes each way.
        assert commands - totals(before)[0] >= 10 * found and failed == 0, after
        assert sent >= 32 * commands and received >= 32 * commands, after
        assert totals(state(program)) == totals(after)


def test_donors_that_fail(jvm: Jvm, short_tmp: Path) -> None:
    """A failure is told with its cycle, its reason, its age, and when donors are asked again."""
    with Donor(short_tmp / "a", donor=DONOR, gc={"workers": 0}) as donor:
        config = configure(short_tmp, [donor], "shm")
        with Asked(jvm, short_tmp, *on_donors(config, "G1", *LOG), *MARK) as program:
            # Donors are asked in the 1st cycle, the 2nd, and then not in one.
            for cycle, failed, left_out, again in (
                (1, 1, 0, "in the next cycle"),
                (2, 2, 0, "after 1 more"),
                (3, 2, 1, "in the next cycle"),
                (4, 3, 1, "after 3 more"),
            ):
                said = program.collect(1)
                now = state(program)
                assert now[MARK_TRACES] == TRACES.format(0, failed), (cycle, now)
                assert (now[LEFT_OUT], now[AGAIN]) == (str(left_out), again), (cycle, now)
                reason = re.search(f"{BY_ITSELF}(.*)", said)
                match = FAILURE.fullmatch(now["Last failure"])
                assert reason and match, (said, now)
                if cycle != 3:
                    number = re.search(r"GC\((\d+)\) Concurrent Mark Cycle$", said, re.M)
                    assert number and (match[1], match[3]) == (number[1], reason[1]), (said, now)
                    assert 0 <= float(match[2]) < 60
                assert totals(now)[1] > 0


def test_workers_that_come_back(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """The last failure stays to be seen when donors mark again."""
    config = configure(short_tmp, own_donors, "shm")
    with Asked(jvm, short_tmp, *on_donors(config, "G1", *LOG), *MARK) as program:
        said = program.collect(1)
        # Workers that are killed between traces are started again for the next.
        for _ in range(20):
            program.ask(1)
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                for donor in own_donors:
                    donor.kill_gc_workers()
            said += program.wait()
            if BY_ITSELF in said:
                break
        said += program.collect(3)
        now = state(program)
    assert BY_ITSELF in said, said
    failed = len(re.findall(f"{BY_ITSELF}(?!donors have failed)", said))
    assert now[MARK_TRACES] == TRACES.format(len(marked(said)), failed), (said, now)
    assert now[AGAIN] == "in the next cycle" and FAILURE.fullmatch(now["Last failure"]), now


def test_what_is_only_checked(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """With DonorCheck G1 marks, and traces are counted by what they are compared in."""
    config = configure(short_tmp, donors, "shm")
    heap = on_donors(config, "G1", *LOG)
    with Asked(jvm, short_tmp, *heap, *CYCLE_CHECK) as program:
        program.collect(2)
        now = state(program)
        assert now["Concurrent marking"] == "by G1, and by donors to compare (DonorCheck is on)"
        assert now["Traces for Concurrent Mark Check"] == TRACES.format(2, 0), now
        assert now["Traces for Full Collection Check"] == TRACES.format(0, 0), now
    with Asked(jvm, short_tmp, *heap, *FULL_CHECK) as program:
        program.collect(2)
        now = state(program)
        assert now["Concurrent marking"] == "not by donors (DonorMark is off)"
        assert now["Traces for Full Collection Check"] == TRACES.format(2, 0), now
        assert AGAIN not in now and MARK_TRACES not in now


def test_what_donors_do_not_trace(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Another collector, or a heap that cannot be traced: the state says so, and why."""
    config = configure(short_tmp, donors, "shm")
    for collector in ("Serial", "Shenandoah"):
        with Asked(jvm, short_tmp, *on_donors(config, collector)) as program:
            program.collect(1)
            now = state(program)
            assert now["Concurrent marking"] == "not by donors (DonorMark is off)", now
            assert now["Heap on donors"] and totals(now)[0] > 0, now
    flags = [*on_donors(config, "G1"), *MARK, "-XX:-UseCompressedClassPointers"]
    with Asked(jvm, short_tmp, *flags) as program:
        program.collect(1)
        now = state(program)
        assert now["Concurrent marking"] == "by G1: class pointers are not compressed", now


def test_without_donors(jvm: Jvm, short_tmp: Path) -> None:
    """One line says that the heap is not on donors; help describes the command."""
    with Asked(jvm, short_tmp, f"-Xmx{HEAP_MIB}m") as program:
        said = program.jcmd("GC.donors").splitlines()
        assert said[1:] == ["The heap is not on donors (DonorHeap is not set)"]
        help_text = program.jcmd("help", "GC.donors")
    assert "Print the state of the donors that hold the Java heap" in help_text, help_text
    assert re.search(r"Impact: Low", help_text), help_text
