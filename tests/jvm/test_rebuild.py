# SPDX-License-Identifier: GPL-2.0-or-later
"""Old regions whose marks are kept, and remembered sets that donors rebuild."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import (
    COMPACT_HEADERS,
    LIMIT_S,
    Asked,
    Jvm,
    churned,
    configure,
    each_way,
    layouts,
    lying,
    on_donors,
)
from tests.jvm.test_mark import BY_ITSELF, CHURN, MARK, VERIFY, marked, right
from tests.jvm.test_state import state

REBUILD = (*MARK, "-XX:+DonorRebuild")
FOUND = re.compile(r"GC\(\d+\) Donors have found (\d+) cards in (\d+) regions; (\d+) late objects")
G1_REBUILDS = "G1 rebuilds remembered sets by itself: "
MIXED = "Pause Young (Mixed)"
# Cycles begin by themselves, and almost all regions are worth a collection.
OFTEN = (
    "-Xmn24m",
    "-XX:MaxTenuringThreshold=0",
    "-XX:-G1UseAdaptiveIHOP",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:G1MixedGCLiveThresholdPercent=95",
    "-XX:G1HeapWastePercent=1",
)
MANY = ("Churn", "100", "500000", "11", "2", "0")


def found(said: str) -> list[int]:
    """Cards that donors have found, of each cycle in which they did."""
    return [int(line[1]) for line in FOUND.finditer(said)]


@layouts(COMPACT_HEADERS)
def test_each_kind_of_object(jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str) -> None:
    """Parked stacks, large arrays, weak references: no card is missing, as HotSpot sees."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *REBUILD, *VERIFY, layout]
    said = jvm.run(short_tmp, *flags, "Kinds", "6", "1", "late").stdout
    assert re.search(r"^ok 6$", said, re.M), said
    right(said, 3)
    assert max(found(said), default=0) > 10 and G1_REBUILDS not in said, said


@each_way
def test_heap_that_churns(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """The program changes what donors search, and more is alive than the budget has room for."""
    config = configure(short_tmp, donors, transport)
    said = churned(jvm, short_tmp, config, [*REBUILD, layout], *CHURN)
    right(said, 3)
    assert max(found(said), default=0) > 100 and G1_REBUILDS not in said, said


@pytest.mark.parametrize(
    ("mark", "verify"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_mixed_collections(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, mark: bool, verify: bool
) -> None:
    """Regions are collected by what donors have found, or G1 by the marks that are kept."""
    config = configure(short_tmp, donors, "shm")
    flags = [*OFTEN, "-XX:+DonorRebuild", *(["-XX:+DonorMark"] if mark else [])]
    said = churned(jvm, short_tmp, config, [*flags, *(VERIFY if verify else [])], *MANY)
    assert said.count(MIXED) >= 3, said
    assert bool(found(said)) == mark and bool(marked(said)) == mark, said
    assert G1_REBUILDS not in said, said


def test_not_without_donors(jvm: Jvm, short_tmp: Path) -> None:
    """The flag needs G1 with its heap on donors."""
    done = jvm.run(short_tmp, "-XX:+DonorRebuild", "-Xmx64m", "Plain")
    off = "DonorRebuild is turned off: it needs -XX:DonorHeap and G1"
    assert off in done.stdout + done.stderr, done.stdout


def test_a_card_that_is_missing_is_found(
    jvm: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    liar: Path,
) -> None:
    """HotSpot's checks, which the other tests rely on, end the JVM when cards are left out."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *REBUILD, *VERIFY]
    command = jvm.command(*flags, "-XX:-CreateCoredumpOnCrash", "Kinds", "20", "2", "late")
    done = subprocess.run(
        command,
        env={**jvm.environment(short_tmp), **lying(liar, "cards")},
        cwd=short_tmp,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode != 0 and found(done.stdout), done.stdout
    assert "Missing rem set entry" in done.stdout + done.stderr, done.stdout


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("outside", "donors found a card outside of the heap"),
        ("nowhere", "donors found a reference into no region"),
    ],
)
def test_a_search_that_fails(
    jvm: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    liar: Path,
    lie: str,
    why: str,
) -> None:
    """G1 reads the regions itself, and says why; marks are the donors' all the same."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *REBUILD, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "4", "3", "late", more=lying(liar, lie)).stdout
    assert re.search(r"^ok 4$", said, re.M), said
    # a search that finds nothing has nothing that could be wrong
    assert f"{G1_REBUILDS}{why}" in said and max(found(said), default=0) == 0, said
    assert marked(said) and BY_ITSELF not in said, said


def test_what_jcmd_says(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """GC.donors counts the searches that the log tells of."""
    config = configure(short_tmp, own_donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *REBUILD]
    with Asked(jvm, short_tmp, *flags) as program:
        assert state(program)["Searches for cards"] == "0 succeeded, 0 failed"
        said = program.collect(10)
        counted = f"{len(found(said))} succeeded, 0 failed"
        assert found(said) and state(program)["Searches for cards"] == counted, said
        # Dead objects are in the way of one that walks through the heap.
        assert "Heap dump file created" in program.jcmd(
            "GC.heap_dump", "-all=true", str(short_tmp / "heap.hprof")
        )


def test_a_region_that_has_moved(
    jvm: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    liar: Path,
) -> None:
    """A region that has come to another donor is read here, and the others are not."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *REBUILD, *VERIFY]
    said = jvm.run(short_tmp, *flags, "Kinds", "6", "1", "late", more=lying(liar, "moved")).stdout
    assert re.search(r"^ok 6$", said, re.M), said
    assert max(found(said), default=0) > 0 and G1_REBUILDS not in said, said
