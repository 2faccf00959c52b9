# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors trace the heap of a JVM: their marks are those of the JVM, for each kind of object."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import DONOR, WIDE, Jvm, churned, configure, each_way, layouts, on_donors

CHECK = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+DonorCheck")
ROUNDS = 6
CHECKED = re.compile(r"Donors' marks checked: (\d+) objects in \d+ regions, (\d+) differ, ")
NOT_CHECKED = "Donors' marks are not checked: "


def checks(said: str) -> list[tuple[int, int]]:
    """Objects that were compared and that differed, of each check."""
    return [(int(line[1]), int(line[2])) for line in CHECKED.finditer(said)]


def all_equal(said: str, least: int) -> None:
    """At least `least` full collections were checked, each with no difference."""
    found = checks(said)
    assert len(found) >= least, said
    assert len(found) == len(re.findall(r"Pause Full .*ms$", said, re.M)), said
    assert all(objects > 1000 and differ == 0 for objects, differ in found), said
    assert NOT_CHECKED not in said and "has not" not in said, said


@layouts(WIDE)
def test_each_kind_of_object(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str
) -> None:
    """References, classes that come and go, parked stacks, large arrays: not a bit differs."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, layout]
    said = jvm.run(short_tmp, *flags, "Kinds", str(ROUNDS), "1").stdout
    assert re.search(rf"^ok {ROUNDS}$", said, re.M), said
    all_equal(said, ROUNDS)


@each_way
def test_heap_that_churns(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """The same for a heap of which more is alive than the budget has room for."""
    config = configure(short_tmp, donors, transport)
    churn = ("Churn", "110", "300000", "11", "2", "12")
    said = churned(jvm, short_tmp, config, [*CHECK, layout], *churn)
    # a collection may be for both of its threads
    all_equal(said, 6)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["2m", "8m"])
def test_larger_regions(jvm: Jvm, donors: list[Donor], short_tmp: Path, size: str) -> None:
    """The space's regions are G1's, whatever their size."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, f"-XX:G1HeapRegionSize={size}"]
    all_equal(jvm.run(short_tmp, *flags, "Kinds", "3", "2").stdout, 3)


@pytest.mark.slow
def test_without_class_unloading(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """All class loaders are roots, and all code."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:-ClassUnloading"]
    all_equal(jvm.run(short_tmp, *flags, "Kinds", "3", "3").stdout, 3)


@pytest.mark.slow
def test_archived_classes(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Classes and objects of a CDS archive are like others."""
    archive = short_tmp / "ours.jsa"
    jvm.run(short_tmp, "-Xshare:dump", f"-XX:SharedArchiveFile={archive}", "-Xmx256m")
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-Xshare:on"]
    run = [*flags, f"-XX:SharedArchiveFile={archive}", "Kinds", "3", "4"]
    all_equal(jvm.run(short_tmp, *run).stdout, 3)


@pytest.mark.slow
def test_verified_too(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """HotSpot's own verification finds nothing before and after a check."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK]
    flags += ["-XX:+VerifyBeforeGC", "-XX:+VerifyAfterGC", "-XX:+VerifyDuringGC"]
    all_equal(jvm.run(short_tmp, *flags, "Kinds", "3", "5").stdout, 3)


def test_a_wrong_type_is_found(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """References of a class that donors are not told of are differences, with class and address."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:DonorCheckHide=Kinds$Link"]
    said = jvm.run(short_tmp, *flags, "Kinds", "2", "6").stdout
    assert re.search(r"^ok 2$", said, re.M), said
    found = checks(said)
    assert len(found) >= 2 and all(differ > 100 for _, differ in found), said
    missed = set(re.findall(r"and donors have not: 0x[0-9a-f]+, (.*), in region", said))
    assert {"Kinds$Link", "[J"} <= missed, said


def test_a_difference_can_end_the_vm(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """DonorCheckFatal makes a difference what no test can miss."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc+donor"), *CHECK, "-XX:+DonorCheckFatal"]
    flags += ["-XX:DonorCheckHide=Kinds$Link", "-XX:-CreateCoredumpOnCrash"]
    done = jvm.run(short_tmp, *flags, "Kinds", "2", "7", status=1)
    assert "DonorCheck: donors' marks differ from G1's at" in done.stdout + done.stderr


def test_donors_that_do_not_trace(jvm: Jvm, short_tmp: Path) -> None:
    """Without workers there is one line for each collection, and the program does not notice."""
    with Donor(short_tmp / "a", donor=DONOR, gc={"workers": 0}) as donor:
        config = configure(short_tmp, [donor], "shm")
        flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:+DonorCheckFatal"]
        said = jvm.run(short_tmp, *flags, "Kinds", "3", "8").stdout
    assert re.search(r"^ok 3$", said, re.M), said
    assert said.count(NOT_CHECKED) == len(re.findall(r"Pause Full .*ms$", said, re.M)) >= 3
    assert not checks(said)


@pytest.mark.slow
def test_workers_that_are_killed(jvm: Jvm, own_donors: list[Donor], short_tmp: Path) -> None:
    """A collection whose trace is lost goes on; later ones are checked again, and are right."""
    config = configure(short_tmp, own_donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:+DonorCheckFatal"]
    run = [*flags, "Kinds", "15", "9"]
    killed, said = jvm.run_while_workers_die(short_tmp, own_donors, 6, 1, *run)
    assert re.search(r"^ok 15$", said, re.M), said
    found = checks(said)
    assert killed and found and all(differ == 0 for _, differ in found), said
    assert len(found) + said.count(NOT_CHECKED) == len(re.findall(r"Pause Full .*ms$", said, re.M))


def test_what_cannot_be_checked(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Other collectors, or no donors: a warning; class pointers that are whole: one line."""
    done = jvm.run(short_tmp, *CHECK, "-Xmx64m", "Plain")
    assert "DonorCheck is turned off: it needs -XX:DonorHeap and G1" in done.stdout + done.stderr
    config = configure(short_tmp, donors, "shm")
    done = jvm.run(short_tmp, *on_donors(config, "Serial"), *CHECK, "Plain")
    assert "DonorCheck is turned off" in done.stdout + done.stderr
    flags = [*on_donors(config, "G1", "gc+donor"), *CHECK, "-XX:-UseCompressedClassPointers"]
    said = jvm.run(short_tmp, *flags, "Kinds", "2", "10").stdout
    assert said.count(f"{NOT_CHECKED}class pointers are not compressed") == 1 and not checks(said)
