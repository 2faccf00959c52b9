# SPDX-License-Identifier: GPL-2.0-or-later
"""10^5 parked virtual threads and 10^5 classes that come and go: the stock JVM's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import HEAP_MIB, Jvm, configure, on_donors
from tests.jvm.test_compact import COMPACT
from tests.jvm.test_mark import DIAGNOSE, marked
from tests.jvm.test_rebuild import REBUILD

pytestmark = pytest.mark.slow

CROWD = ("Crowd", "100000", "100000", "6", "5")


@pytest.fixture(scope="module")
def answer(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the stock JVM says with all of its heap in memory."""
    folder = tmp_path_factory.mktemp("stock")
    said = jvm.run(folder, f"-Xmx{HEAP_MIB}m", *CROWD, ours=False).stdout
    assert said.startswith("ok ")
    return said


@pytest.mark.parametrize("flags", [REBUILD, COMPACT], ids=["cycle", "full"])
def test_all_are_found(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, answer: str, flags: tuple[str, ...]
) -> None:
    """Donors mark them all, in concurrent cycles or full collections."""
    config = configure(short_tmp, donors, "tcp")
    heap = on_donors(config, "G1", "gc", "gc+donor")
    said = jvm.run(short_tmp, *heap, *flags, DIAGNOSE, "-XX:+VerifyDuringGC", *CROWD).stdout
    assert said.endswith(answer), said
    assert len(marked(said)) >= 6 and max(marked(said)) > 400_000, said
    assert "a limit is reached" not in said, said
