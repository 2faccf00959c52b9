# SPDX-License-Identifier: GPL-2.0-or-later
"""Full collections that donors mark and compact; where they fail, G1 does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import (
    DONOR,
    NARROW,
    Asked,
    Jvm,
    churned,
    configure,
    each_way,
    layouts,
    lying,
    on_donors,
)
from tests.jvm.test_mark import BY_ITSELF, VERIFY, marked
from tests.jvm.test_rebuild import REBUILD
from tests.jvm.test_state import TRACES, state

COMPACT = ("-XX:+DonorCompact",)
MOVED = re.compile(
    r"GC\(\d+\) Donors have moved (\d+) KiB of (\d+) regions to (\d+); "
    r"(\d+) late and (\d+) opaque"
)
COMPACTS = "G1 compacts by itself: "
UPDATES = "G1 updates references by itself: "
FULL = re.compile(r"Pause Full .*ms$", re.M)
CHURN = ("Churn", "110", "300000", "11", "2", "12")


def moved(said: str) -> list[tuple[int, int]]:
    """Regions that donors have moved, and to how many, in each collection in which they did."""
    return [(int(line[2]), int(line[3])) for line in MOVED.finditer(said)]


def right(said: str, least: int) -> None:
    """Donors have marked and moved in all full collections, at least `least`."""
    found = moved(said)
    assert len(found) >= least and len(found) == len(FULL.findall(said)), said
    assert max(regions - to for regions, to in found) > 0, said
    assert len(marked(said)) >= least and max(marked(said)) > 1000, said
    assert not any(line in said for line in (BY_ITSELF, COMPACTS, UPDATES)), said


@layouts(NARROW)
def test_each_kind_of_object(jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str) -> None:
    """References, classes that come and go, parked stacks, large arrays: all are there."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT, *VERIFY, layout]
    said = jvm.run(short_tmp, *flags, "Kinds", "6", "1").stdout
    assert re.search(r"^ok 6$", said, re.M), said
    right(said, 6)
    late, opaque = [max(int(line[i]) for line in MOVED.finditer(said)) for i in (4, 5)]
    assert late > 0 and opaque > 0, said


@each_way
def test_heap_that_churns(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """More is alive than the budget has room for."""
    config = configure(short_tmp, donors, transport)
    said = churned(jvm, short_tmp, config, [*COMPACT, layout], *CHURN)
    # a collection may be for both of its threads
    right(said, 6)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["2m", "8m"])
def test_larger_regions(jvm: Jvm, donors: list[Donor], short_tmp: Path, size: str) -> None:
    """The space's regions are G1's, whatever their size."""
    config = configure(short_tmp, donors, "shm")
    flags = [*COMPACT, f"-XX:G1HeapRegionSize={size}", *VERIFY]
    said = churned(jvm, short_tmp, config, flags, "Churn", "60", "100000", "5", "2", "8")
    assert moved(said) and not any(line in said for line in (COMPACTS, UPDATES)), said


@pytest.mark.slow
def test_without_class_unloading(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """All class loaders are roots, and all code."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT, *VERIFY, "-XX:-ClassUnloading"]
    right(jvm.run(short_tmp, *flags, "Kinds", "3", "3").stdout, 3)


@pytest.mark.slow
def test_concurrent_cycles_too(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Full collections end cycles that donors trace for, and what they keep is traced later."""
    config = configure(short_tmp, donors, "shm")
    flags = [*REBUILD, *COMPACT, "-XX:-ExplicitGCInvokesConcurrent", *VERIFY]
    flags += ["-XX:-G1UseAdaptiveIHOP", "-XX:InitiatingHeapOccupancyPercent=20", "-Xmn16m"]
    said = churned(jvm, short_tmp, config, flags, *CHURN)
    assert len(moved(said)) >= 3 and len(marked(said)) > len(moved(said)), said
    assert UPDATES not in said and "cannot read the heap" not in said, said


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("place", COMPACTS + "donors have moved two objects to one place"),
        ("unupdated", UPDATES + "UPDATE: worker lost"),
        *(
            pytest.param(lie, why, marks=pytest.mark.slow)
            for lie, why in (
                ("dropped", BY_ITSELF + "donors' marks of a region are not right"),
                ("weak", BY_ITSELF),
                ("ended", COMPACTS + "donors have moved a region in another way"),
                ("before", COMPACTS + "donors' table of moves is not right"),
                ("unmoved", COMPACTS + "EVACUATE: no space"),
            )
        ),
    ],
)
def test_donors_that_fail(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, liar: Path, lie: str, why: str
) -> None:
    """G1 does what they have not done, and says why; the heap is right."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "4", "3", more=lying(liar, lie)).stdout
    assert re.search(r"^ok 4$", said, re.M), said
    # In some there is nothing to move.
    nothing = said.count("Donors have moved 0 KiB of 0 regions")
    assert said.count(why) >= 2, said
    assert said.count(why) + nothing == len(FULL.findall(said)) >= 4, said


def test_workers_that_are_killed(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """Each collection is whole, and has a line if donors have failed in it."""
    config = configure(short_tmp, own_donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT]
    run = [*flags, "Kinds", "15", "9"]
    killed, said = jvm.run_while_workers_die(short_tmp, own_donors, 6, 0.7, *run)
    assert re.search(r"^ok 15$", said, re.M), said
    assert killed and moved(said), said
    whole = len(moved(said)) + said.count(BY_ITSELF) + said.count(COMPACTS)
    assert whole == len(FULL.findall(said)), said


@pytest.mark.slow
def test_as_much_as_is_possible(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Before the program is out of memory G1 compacts by itself."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT]
    done = jvm.run(short_tmp, *flags, "Churn", "700", "900000", "3", "2", "0", status=1)
    assert "java.lang.OutOfMemoryError" in done.stdout + done.stderr, done.stdout
    assert COMPACTS + "as much as is possible" in done.stdout, done.stdout


def test_donors_without_workers(jvm: Jvm, short_tmp: Path) -> None:
    """G1 marks and compacts by itself, and says so in each collection."""
    with Donor(short_tmp / "a", donor=DONOR, gc={"workers": 0}) as donor:
        config = configure(short_tmp, [donor], "shm")
        flags = [*on_donors(config, "G1", "gc", "gc+donor"), *COMPACT]
        said = jvm.run(short_tmp, *flags, "Kinds", "3", "8").stdout
    assert re.search(r"^ok 3$", said, re.M), said
    assert said.count(BY_ITSELF) == len(FULL.findall(said)) >= 3 and not moved(said), said


def test_what_jcmd_says(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Traces for full collections are counted, and how many donors have compacted."""
    config = configure(short_tmp, donors, "shm")
    with Asked(jvm, short_tmp, *on_donors(config, "G1", "gc", "gc+donor"), *COMPACT) as program:
        said = program.collect(3)
        now = state(program)
    count = len(moved(said))
    assert count >= 3 and len(FULL.findall(said)) == count, said
    assert now["Traces for Full Collection"] == TRACES.format(count, 0), now
    compacted = now["Full collections that donors have compacted"]
    assert compacted == f"{count}; in 0 they have failed", now


def test_not_without_donors(jvm: Jvm, short_tmp: Path) -> None:
    """The flag needs G1 with its heap on donors."""
    done = jvm.run(short_tmp, *COMPACT, "-Xmx64m", "Plain")
    off = "DonorCompact is turned off: it needs -XX:DonorHeap and G1"
    assert off in done.stdout + done.stderr, done.stdout
