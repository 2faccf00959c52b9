# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors trace for G1's concurrent cycles; where they fail, G1 marks by itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import (
    DONOR,
    LIMIT_S,
    NARROW,
    Jvm,
    churned,
    configure,
    each_way,
    layouts,
    on_donors,
)

DIAGNOSE = "-XX:+UnlockDiagnosticVMOptions"
# System.gc() is a concurrent cycle, and what survives a pause is old.
MARK = ("-XX:+DonorMark", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxTenuringThreshold=0")
# HotSpot sees at Remark that all that is reachable is marked, and around each pause
# that no reference is wrong.
VERIFY = (DIAGNOSE, "-XX:+VerifyBeforeGC", "-XX:+VerifyAfterGC", "-XX:+VerifyDuringGC")
MARKED = re.compile(
    r"GC\(\d+\) Donors have marked (\d+) objects, \d+ MiB, in \d+ regions; (\d+) roots"
)
BY_ITSELF = "G1 marks by itself: "
CYCLE_BEGINS = r"Concurrent Mark Cycle$"
CYCLE = re.compile(r"Concurrent Mark Cycle [0-9.]+ms$", re.M)
CHURN = ("Churn", "110", "300000", "11", "2", "6")


def marked(said: str) -> list[int]:
    """Objects that donors have marked, of each cycle in which they did."""
    return [int(line[1]) for line in MARKED.finditer(said)]


def right(said: str, least: int) -> None:
    """Donors have marked in at least `least` cycles; each other cycle has a line why not."""
    found = marked(said)
    assert len(found) >= least and max(found) > 1000, said
    assert len(found) + said.count(BY_ITSELF) >= len(CYCLE.findall(said)), said
    assert "cannot read the heap" not in said and "not right" not in said, said


@layouts(NARROW)
def test_each_kind_of_object(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str
) -> None:
    """References, classes that come and go, parked stacks, large arrays: all are found."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, *VERIFY, layout]
    said = jvm.run(short_tmp, *flags, "Kinds", "6", "1", "late").stdout
    assert re.search(r"^ok 6$", said, re.M), said
    right(said, 3)


def test_verification_would_find_it(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Donors are not told of a class's references: verification ends the JVM."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, *VERIFY]
    flags += ["-XX:DonorCheckHide=Kinds$Link", "-XX:-CreateCoredumpOnCrash"]
    command = jvm.command(*flags, "Kinds", "6", "2", "late")
    done = subprocess.run(
        command,
        env=jvm.environment(short_tmp),
        cwd=short_tmp,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode != 0 and marked(done.stdout), done.stdout
    assert "there should not have been any failures" in done.stdout + done.stderr, done.stdout


@each_way
def test_heap_that_churns(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """The program changes what donors trace, and more is alive than the budget has room for."""
    config = configure(short_tmp, donors, transport)
    said = churned(jvm, short_tmp, config, [*MARK, layout], *CHURN)
    right(said, 3)


@pytest.mark.slow
@pytest.mark.parametrize("check", [False, True])
def test_full_collections_in_between(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, check: bool
) -> None:
    """A full collection ends a trace; with a check donors trace in it, too."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), "-XX:+DonorMark", DIAGNOSE]
    flags += ["-XX:MaxTenuringThreshold=0", "-XX:InitiatingHeapOccupancyPercent=5"]
    flags += ["-XX:+DonorCheck", "-XX:+DonorCheckFatal"] if check else ["-XX:+VerifyDuringGC"]
    # On a busy machine a trace, and its check, take as long as a twelfth of the program.
    said = jvm.run(short_tmp, *flags, *CHURN[:-1], "2" if check else "12").stdout
    assert re.search(r"^ok ", said, re.M), said
    if check:
        assert "Donors' marks of a concurrent cycle checked: " in said, said
        assert "Donors' marks checked: " in said, said
    else:
        assert marked(said), said


@pytest.mark.slow
def test_workers_that_are_killed(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """A cycle whose trace is lost is G1's; donors are asked again, and the program is right."""
    config = configure(short_tmp, own_donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK, DIAGNOSE, "-XX:+VerifyDuringGC"]
    program = ("Kinds", "15", "9", "late")
    killed, said = jvm.run_while_workers_die(
        short_tmp, own_donors, 12, 0.005, *flags, *program, after=CYCLE_BEGINS
    )
    assert re.search(r"^ok 15$", said, re.M), said
    assert killed and marked(said) and BY_ITSELF in said, said


def test_donors_that_do_not_trace(jvm: Jvm, short_tmp: Path) -> None:
    """Without workers G1 marks by itself, says so, and asks less and less often."""
    with Donor(short_tmp / "a", donor=DONOR, gc={"workers": 0}) as donor:
        config = configure(short_tmp, [donor], "shm")
        flags = [*on_donors(config, "G1", "gc", "gc+donor"), *MARK]
        said = jvm.run(short_tmp, *flags, "Kinds", "5", "8", "late").stdout
    assert re.search(r"^ok 5$", said, re.M), said
    assert not marked(said) and "and are asked again after" in said, said
    assert said.count(BY_ITSELF) >= len(CYCLE.findall(said)) >= 5, said


def test_not_without_donors(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The flag is off by default, and needs G1 with its heap on donors."""
    done = jvm.run(short_tmp, "-XX:+DonorMark", "-Xmx64m", "Plain")
    assert "DonorMark is turned off: it needs -XX:DonorHeap and G1" in done.stdout + done.stderr
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), "-XX:+ExplicitGCInvokesConcurrent"]
    said = jvm.run(short_tmp, *flags, "Kinds", "2", "10", "late").stdout
    assert CYCLE.search(said) and not marked(said) and BY_ITSELF not in said, said
