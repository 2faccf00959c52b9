# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors' marks of concurrent cycles are G1's own of the same cycles."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import LAYOUTS, Jvm, churned, configure, each_way, on_donors
from tests.jvm.test_mark import BY_ITSELF, CHURN, CYCLE, DIAGNOSE, MARK

CHECK = (*MARK, DIAGNOSE, "-XX:+DonorCheck")
CHECKED = re.compile(
    r"Donors' marks of a concurrent cycle checked: "
    r"(\d+) objects in \d+ regions, (\d+) differ, (\d+) late"
)
# How often the program asks for a collection in the long test
ROUNDS = int(os.environ.get("DCM_JVM_ROUNDS", "100"))


def all_equal(said: str, least: int) -> None:
    """At least `least` cycles were checked, and no mark differs."""
    found = [tuple(int(n) for n in line.groups()) for line in CHECKED.finditer(said)]
    assert len(found) >= least and max(objects for objects, _, _ in found) > 1000, said
    assert all(differ == 0 for _, differ, _ in found), said
    # Late marks may differ, but must be less than a tenth of all.
    assert sum(late for _, _, late in found) < sum(objects for objects, _, _ in found) / 10, said
    assert len(found) + said.count(BY_ITSELF) >= len(CYCLE.findall(said)) - 1, said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_kind_of_object(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str
) -> None:
    """References, classes that come and go, parked stacks, large arrays: not a bit differs."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, layout]
    said = jvm.run(short_tmp, *flags, "Kinds", "6", "1", "late").stdout
    assert re.search(r"^ok 6$", said, re.M), said
    all_equal(said, 3)


@each_way
def test_heap_that_churns(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """The same while the program changes what is traced, four times as large as the budget."""
    config = configure(short_tmp, donors, transport)
    said = churned(jvm, short_tmp, config, [*CHECK, layout], *CHURN)
    all_equal(said, 3)


@pytest.mark.slow
def test_many_cycles(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """One cycle after the other (DCM_JVM_ROUNDS of them or more), each checked."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:+DonorCheckFatal"]
    said = jvm.run(short_tmp, *flags, "Kinds", str(ROUNDS), "3", "late").stdout
    assert re.search(rf"^ok {ROUNDS}$", said, re.M), said
    all_equal(said, ROUNDS // 2)


def test_a_missing_reference_is_found(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Donors are not told of a class's references: the check finds the objects they missed."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *CHECK, "-XX:DonorCheckHide=Kinds$Link"]
    said = jvm.run(short_tmp, *flags, "Kinds", "3", "4", "late").stdout
    assert re.search(r"^ok 3$", said, re.M), said
    assert sum(int(line[2]) for line in CHECKED.finditer(said)) > 100, said
    assert re.search(r"G1 has marked, and donors have not: 0x[0-9a-f]+, Kinds\$Link", said), said
