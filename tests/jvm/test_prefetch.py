# SPDX-License-Identifier: GPL-2.0-or-later
"""Regions that the next mixed collection of G1 reads are brought in before its pause."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.guest.paged import PagerError
from tests.jvm.support import LAYOUTS, Jvm, configure, on_donors, pagers, run_tool
from tests.jvm.test_mark import MARK, VERIFY
from tests.jvm.test_rebuild import MANY, MIXED, OFTEN

FLAGS = (*OFTEN, *MARK, "-XX:+DonorRebuild")
ASKED = re.compile(r"The next mixed collection may read (\d+) KiB of donors' memory in \d+ ranges")
COUNTED = re.compile(r"^Mixed collections whose memory was asked for before: (\d+)$", re.M)


def test_pages_come(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The pager brings in pages that no access has asked for, and jcmd counts."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor=debug"), *FLAGS]
    came = counted = 0
    with subprocess.Popen(
        jvm.command(*flags, *MANY),
        env=jvm.environment(short_tmp),
        cwd=short_tmp,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        while program.poll() is None and not (came and counted):
            time.sleep(0.2)
            for pager in pagers(short_tmp):
                try:
                    came = pager.status()["counters"]["AHEAD_PAGES"]
                except PagerError:
                    continue
            if came:
                found = COUNTED.search(run_tool("jcmd", str(program.pid), "GC.donors"))
                assert found
                counted = int(found[1])
        said, _ = program.communicate()
    assert program.returncode == 0 and re.search(r"^ok ", said, re.M), said
    assert came and counted and MIXED in said, said
    kib = [int(line[1]) for line in ASKED.finditer(said)]
    # At most a quarter of the budget, but for what G1 collects in any case.
    assert kib and max(kib) > 1024, said


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_nothing_else_changes(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, layout: str, transport: str
) -> None:
    """HotSpot finds the heap right before, during and after collections."""
    config = configure(short_tmp, donors, transport)
    flags = [*on_donors(config, "G1", "gc", "gc+donor=debug"), *FLAGS, *VERIFY, layout]
    said = jvm.run(short_tmp, *flags, *MANY).stdout
    assert re.search(r"^ok ", said, re.M) and ASKED.search(said), said


@pytest.mark.slow
def test_not_if_it_is_off(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Nor are there pages to be known, unless marks are kept."""
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor=debug"), *FLAGS, "-XX:-DonorPrefetch"]
    said = jvm.run(short_tmp, *flags, *MANY).stdout
    assert MIXED in said and not ASKED.search(said), said
