# SPDX-License-Identifier: GPL-2.0-or-later
"""The young generation fits into what the host keeps of the heap."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import BUDGET_MIB, Asked, Jvm, configure, on_donors, pagers
from tests.jvm.test_state import state

# Regions of 1 MiB, before a collection
YOUNG = re.compile(r"GC\((\d+)\) (Eden|Survivor) regions: (\d+)->")
MIB = 1 << 20
# As large as it may be, at once
LARGE = ("-XX:+UnlockExperimentalVMOptions", "-XX:G1NewSizePercent=40")


def youngest(said: str) -> int:
    """Of all collections: the most regions of the young generation."""
    regions: dict[str, int] = {}
    for gc, _, count in YOUNG.findall(said):
        regions[gc] = regions.get(gc, 0) + int(count)
    return max(regions.values())


@pytest.mark.parametrize(
    ("flag", "most"),
    [
        ("-Xlog:gc", BUDGET_MIB // 2),
        pytest.param("-XX:DonorYoungPercent=25", BUDGET_MIB // 4, marks=pytest.mark.slow),
        ("-XX:DonorYoungPercent=0", None),
        pytest.param("-Xmn48m", None, marks=pytest.mark.slow),
    ],
)
def test_g1(jvm: Jvm, donors: list[Donor], short_tmp: Path, flag: str, most: int | None) -> None:
    """Half of the budget, or another share; all that G1 takes, if it is told to."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc+donor", "gc+heap"), *LARGE, flag]
    said = jvm.run(short_tmp, *flags, "Churn", "40", "400000", "11", "2", "0").stdout
    assert f"The host keeps {BUDGET_MIB} MiB of the heap" in said, said
    if most is None:
        assert youngest(said) > BUDGET_MIB // 2, said
    else:
        assert most // 2 < youngest(said) <= most, said


@pytest.mark.parametrize("collector", ["Serial", "Parallel"])
@pytest.mark.parametrize(("flag", "young_mib"), [("-Xlog:gc", 32), ("-XX:NewRatio=1", 128)])
def test_a_young_generation_of_fixed_size(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, collector: str, flag: str, young_mib: int
) -> None:
    """It is no larger than half of the budget, unless options say how large it is."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, collector), flag, "-XX:+PrintFlagsFinal", "-version"]
    said = jvm.run(short_tmp, *flags).stdout
    largest = re.search(r" MaxNewSize += (\d+) ", said)
    assert largest and young_mib * MIB * 9 // 10 < int(largest[1]) <= young_mib * MIB, largest


def test_the_budget_changes(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The next collection knows of it, and so does jcmd."""
    config = configure(short_tmp, donors, "shm")
    with Asked(jvm, short_tmp, *on_donors(config, "G1", "gc+donor")) as program:
        program.collect(1)
        assert state(program)["Kept by the host"] == f"{BUDGET_MIB} MiB at most"
        (pager,) = pagers(short_tmp)
        pager.ask({"cmd": "budget", "bytes": 24 * MIB})
        said = program.collect(1)
        assert f"The host keeps 24 MiB of the heap, before {BUDGET_MIB}" in said, said
        assert state(program)["Kept by the host"] == "24 MiB at most"
