# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory without copies on donors that are killed and started again, as by systemd; and on donors
of this host that are killed for good: no byte is lost."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor
from tests.framework.fdstore import Store
from tests.pager.support import StartDonor, built, configure, start_group
from tests.pager.test_copies import nothing_lost, torture

pytestmark = built
KILLS = 8


@pytest.fixture
def kept_donors(short_tmp: Path) -> Iterator[list[Donor]]:
    """Two donors, each with a descriptor store, which is empty when they have ended."""
    donors: list[Donor] = []
    for name in "ab":
        donor = Donor(
            short_tmp / name,
            keys=donors[0].keys if donors else None,
            donor={"slab-size": "16M", "capacity": "2G"},
        )
        donor.store = Store(donor.folder)
        donors.append(donor)
    for donor in donors:
        donor.start()
    yield donors
    ended = [donor.stop() for donor in donors]
    for donor in donors:
        assert donor.store
        left = donor.store.names()
        donor.store.close()
        assert left == [] and ended == [0, 0], donor.tail()


@pytest.mark.parametrize("transport", ["tcp", pytest.param("shm", marks=pytest.mark.slow)])
def test_donors_are_killed_at_any_moment(
    kept_donors: list[Donor], short_tmp: Path, transport: str
) -> None:
    """With redundancy none, by SIGKILL, one or both at once, while all memory is in use."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    config = configure(short_tmp, kept_donors, transport)
    with torture(short_tmp, config) as threads:
        threads.until(lambda s: s["extents"]["mapped"] >= 4, "all memory is mapped")
        for n in range(1, KILLS + 1):
            hit = rng.sample(kept_donors, rng.choice((1, 1, 2)))
            since = time.monotonic()
            for donor in hit:
                donor.kill()
            # Hosts wait for 5 s. A machine that runs other tests may take longer to start a
            # process, so the VM sees the donors gone for a moment, and then its time stops.
            threading.Event().wait(rng.uniform(0, 0.3))
            threads.process.send_signal(signal.SIGSTOP)
            for donor in hit:
                donor.start()
            threads.process.send_signal(signal.SIGCONT)
            print(f"{n}: {len(hit)} killed, back after {time.monotonic() - since:.1f} s")
            for donor in hit:
                assert donor.status()["events"]["sessions_restored"] == 1
            threading.Event().wait(rng.uniform(0, 0.3))
            after = threads.until(
                lambda s: all(d["state"] == "up" for d in s["donors"]), "reached again"
            )
            nothing_lost(after)
        # nor is a slab left that the VM does not know
        for donor, seen in zip(kept_donors, after["donors"], strict=True):
            assert donor.status()["memory"]["slabs_mapped"] == seen["slabs"] > 0
        log = threads.finish()
    assert "reached again" in log and " is lost" not in log, log


def orphans(status: dict[str, Any]) -> list[int]:
    return [d["orphans"] for d in status["donors"]]


def moved_off(donor: int, status: dict[str, Any]) -> bool:
    """Nothing is left on a donor that has died."""
    found = status["donors"][donor]
    return bool(found["state"] == "lost" and not found["slabs"])


def test_dead_donors_of_this_host_lose_nothing(start_donor: StartDonor, short_tmp: Path) -> None:
    """Killed for good, one after the other, the last with no donor left; then others come."""
    donors = start_group(start_donor, "abc")
    config = configure(short_tmp, donors)
    with torture(short_tmp, config) as threads:
        threads.until(lambda s: s["extents"]["mapped"] >= 4, "all memory is mapped")
        for dead in range(2):
            donors[dead].kill()
            after = threads.until(partial(moved_off, dead), "moved")
            nothing_lost(after)
        donors[2].kill()
        after = threads.until(lambda s: orphans(s)[2] > 0, "orphans")
        nothing_lost(after)
        assert after["donors"][2]["orphans_waiting"] == orphans(after)[2] >= 4
        faults = after["faults"]["total"]
        threads.until(lambda s: s["faults"]["total"] > faults + 1000, "used as before")
        # a process that knows nothing of them, at the same addresses
        donors[0].start()
        donors[2].start()
        after = threads.until(lambda s: orphans(s) == [0, 0, 0], "moved to the new donors")
        nothing_lost(after)
        assert after["extents"]["mapped"] == sum(d["slabs"] for d in after["donors"])
        log = threads.finish()
    assert "nothing is lost" in log and "with it" not in log, log
