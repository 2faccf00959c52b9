# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors that lie about what they have traced, or die: the program is right, the log says so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.conftest import three_donors
from tests.jvm.support import (
    LIMIT_S,
    Asked,
    Jvm,
    configure,
    copies_wait,
    lying,
    on_donors,
    recorded,
)
from tests.jvm.test_cycle import CHECK, CHECKED
from tests.jvm.test_events import recording
from tests.jvm.test_mark import BY_ITSELF, DIAGNOSE, MARK, VERIFY, marked
from tests.jvm.test_state import AGAIN, MARK_TRACES, state, totals

# A lie that G1 finds, and what the log says.
FOUND = {
    "dropped": "donors' marks of a region are not right, region",
    "added": "donors' marks of a region are not right, region",
    "overlap": "donors' marks of a region are not right, region",
    "bytes": "donors' marks of a region are not right, region",
    "short": "bitmaps are too short, bytes",
    "status": "a status that does not exist",
    "opaque": "donors met what is no object",
    "weak": "donors met a weak reference that is none",
    "types": "donors met an object of a type that they do not have",
    "endless": "donors find no end of what they have met",
}


@pytest.mark.parametrize("lie", FOUND)
def test_a_lie_that_is_found(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path, lie: str
) -> None:
    """G1 uses none of it, marks by itself, and says why in one line for each such cycle."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "3", "1", "late", more=lying(liar, lie)).stdout
    assert re.search(r"^ok 3$", said, re.M), said
    # In the first cycle only large arrays are old: there is nothing to lie about.
    assert max(marked(said), default=0) < 100, said
    assert f"{BY_ITSELF}{FOUND[lie]}" in said.replace("TRACE_STATE: ", ""), said


def test_a_mark_that_is_dropped_is_found_by_a_check(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path
) -> None:
    """Nothing contradicts a mark that is missing in bitmap and counts: only DonorCheck does."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK]
    run = [*flags, "Kinds", "3", "1", "late"]
    said = jvm.run(short_tmp, *run, more=lying(liar, "counted")).stdout
    assert re.search(r"^ok 3$", said, re.M), said
    found = [int(line[2]) for line in CHECKED.finditer(said)]
    assert any(found), said
    assert "G1 has marked, and donors have not: 0x" in said, said


def test_memory_of_arrays_that_has_moved(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path
) -> None:
    """Donors that find a large array stale: its elements are read here, and the trace goes on."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor=debug"), *MARK, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "5", "2", "late", more=lying(liar, "stale")).stdout
    assert re.search(r"^ok 5$", said, re.M), said
    assert "Donors' memory of large arrays has moved: " in said, said
    assert len(marked(said)) >= 3 and BY_ITSELF not in said, said


def test_no_weak_objects_in_a_part_of_the_heap(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path
) -> None:
    """Donors that have found none so far, and have not looked everywhere, are asked again."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "5", "2", "late", more=lying(liar, "parts")).stdout
    assert re.search(r"^ok 5$", said, re.M), said
    assert len(marked(said)) >= 3 and BY_ITSELF not in said, said


def test_a_full_collection_ends_a_trace(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path
) -> None:
    """Donors that are never quiet: the trace ends with its cycle, as GC.donors and JFR say."""
    config = configure(short_tmp, donors, "shm")
    path = short_tmp / "donors.jfr"
    flags = [*on_donors(config, "G1", "gc", "gc+donor=debug"), *MARK]
    flags += [recording(path, "jdk.DonorTrace")]
    with Asked(jvm, short_tmp, *flags, more=lying(liar, "restless")) as program:
        program.ask(1)
        until = time.monotonic() + 20
        while totals(state(program))[0] < 100 and time.monotonic() < until:
            pass
        program.jcmd("GC.class_histogram")
        said = program.wait()
        # The thread that traces looks for the end of the cycle between two commands.
        while "0 ended" in state(program)[MARK_TRACES] and time.monotonic() < until:
            pass
        now = state(program)
        assert "Pause Full (Heap Inspection Initiated GC)" in said, said
        assert now[MARK_TRACES] == "0 succeeded, 0 failed, 1 ended with the collection", now
        assert now["Last failure"] == "none" and now[AGAIN] == "in the next cycle", now
    (trace,) = recorded(path, "jdk.DonorTrace")
    assert not trace["succeeded"] and trace["rootsSent"] > 0 and trace["turns"] > 0, trace
    assert trace["failure"].startswith("the collection has ended, turns: "), trace


@pytest.mark.parametrize(
    "after_s",
    [1.5, pytest.param(0.5, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)],
)
def test_a_donor_that_is_killed(jvm: Jvm, short_tmp: Path, after_s: float) -> None:
    """With copies of the heap a donor's death in a cycle costs that cycle, and nothing else."""
    with three_donors(short_tmp) as donors:
        config = configure(short_tmp, donors, "tcp", redundancy="replica:2")
        flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, DIAGNOSE]
        command = jvm.command(*flags, "-XX:+VerifyDuringGC", "Kinds", "15", "9", "late")
        with subprocess.Popen(
            command, env=jvm.environment(short_tmp), stdout=subprocess.PIPE, text=True
        ) as program:
            try:
                # When workers run there is a trace, or one has just been.
                until = time.monotonic() + LIMIT_S / 2
                while not donors[1].gc_workers() and time.monotonic() < until:
                    time.sleep(0.01)
                time.sleep(after_s)
                assert program.poll() is None
                copies_wait(short_tmp)
                os.kill(donors[1].pid, signal.SIGKILL)
                said, _ = program.communicate(timeout=LIMIT_S)
            finally:
                program.kill()
    assert program.returncode == 0, said
    assert re.search(r"^ok 15$", said, re.M) and marked(said), said
