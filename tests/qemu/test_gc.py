# SPDX-License-Identifier: GPL-2.0-or-later
"""Runtimes in a Debian 13 guest, their heaps collected by the donors that hold them.

tests/gc's runtime, in the guest: libvgc, virtio_gc.ko, QEMU's device, libdcm, and the workers of
real donors. It compares every bit with a collector of its own (heap_check.c); here are donors,
kills, and what the host says.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.framework.donor import Donor, new_key, write_private
from tests.qemu.conftest import Qemu, StartDonor, lent, wait_returned
from tests.qemu.gcbed import GcBed, build, gc_bed
from tests.vm.job import Job

HEAPS = os.environ.get("GC_GUEST_HEAPS", "1")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build()


def random_seed(below: int = 1 << 16) -> int:
    """Printed, as a failing test has to name it."""
    seed = random.SystemRandom().randrange(below)
    print(f"seed {seed}")
    return seed


def start_donors(start_donor: StartDonor, number: int) -> list[Donor]:
    """`number` donors that share a key."""
    keys = {"test": new_key()}
    options = {"slab-size": "2M", "capacity": "256M"}
    return [start_donor(name, keys=keys, donor=options) for name in "abc"[:number]]


@contextlib.contextmanager
def guest_on(
    qemu: Qemu, folder: Path, donors: Sequence[Donor], transport: str, budget: str, name: str
) -> Iterator[GcBed]:
    """A guest whose window is on these donors; afterwards they have everything back."""
    lines = ["[vm]", "name = gc", f"budget = {budget}", "[key]", "tenant = test"]
    lines.append(f"file = {donors[0].key_file}")
    for donor in donors:
        address = donor.unix_address if transport == "shm" else donor.tcp_address
        lines += [f"[donor {donor.folder.name}]", f"address = {address}"]
    config = folder / "gc.ini"
    write_private(config, "\n".join(lines) + "\n")
    with gc_bed(qemu, folder, config, name) as bed:
        yield bed


def wait_said(job: Job, word: str) -> None:
    while word not in job.output().stdout:
        assert job.poll() is None, job.output()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("number", "transport"),
    [
        pytest.param(1, "tcp", marks=pytest.mark.slow),
        pytest.param(2, "shm", marks=pytest.mark.slow),
        pytest.param(2, "tcp", marks=pytest.mark.slow),
        pytest.param(3, "shm", marks=pytest.mark.slow),
        (3, "tcp"),
    ],
)
def test_collects(
    qemu: Qemu, start_donor: StartDonor, short_tmp: Path, number: int, transport: str
) -> None:
    """Traces, also while it runs, evacuation and compaction: the same bits, the same graph."""
    donors = start_donors(start_donor, number)
    seed = random_seed()
    name = f"collects-{number}-{transport}"
    with guest_on(qemu, short_tmp, donors, transport, "9M", name) as guest:
        job = guest.spawn(guest.heap("check", seed, HEAPS))
        assert job.wait(600) == 0, job.output()
        said = job.output().stdout
        job.end()
        print(said)
        heaps = re.findall(r"(\d+) regions evacuated, (\d+) compacted", said)
        assert len(heaps) == int(HEAPS) and said.endswith("ok\n")
        # half of the heap was on donors at any time, and each had some of it
        status = guest.pager().status()
        assert status["written_bytes"] > 9 << 20
        assert all(lent(donors)), lent(donors)
        # the example, as its author would run it
        ran = guest.run(["/tmp/lists"], 200)
        assert ran.rc == 0 and "by donors, 0 by itself" in ran.stdout, ran
        guest.check("whole")
    wait_returned(donors)


@pytest.mark.slow
def test_two_heaps(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Two processes, each with a space of its own, at the same time."""
    donors = start_donors(start_donor, 2)
    seed = random_seed()
    with guest_on(qemu, short_tmp, donors, "shm", "18M", "two-heaps") as guest:
        jobs = [guest.spawn(guest.heap("check", seed + k, "1")) for k in range(2)]
        for job in jobs:
            assert job.wait(600) == 0, job.output()
            assert job.output().stdout.endswith("ok\n")
            job.end()
        guest.check("whole")
    wait_returned(donors)


@pytest.mark.slow
def test_killed_while_collecting(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Killed in the middle of any command, beside another that goes on: nothing is left.

    What donors did for them reaches nobody's memory afterwards.
    """
    donors = start_donors(start_donor, 2)
    rand = random.Random(random_seed())
    with guest_on(qemu, short_tmp, donors, "shm", "12M", "killed") as guest:
        other = guest.spawn(guest.heap("check", rand.randrange(1 << 16), "2"))
        kills = 0
        while other.poll() is None or kills < 4:
            job = guest.spawn(guest.heap("loop", rand.randrange(1 << 16)))
            time.sleep(rand.choice([1.0, 4.0, 12.0]) * rand.random())
            assert job.poll() is None, job.output()
            job.signal(9)
            job.wait(30)
            job.end()
            kills += 1
        assert other.wait(600) == 0, other.output()
        other.end()
        print(f"{kills} killed")
        guest.check("whole")
    wait_returned(donors)


@pytest.mark.slow
def test_beside_nonsense(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Another process's random requests, of which donors see many, disturb nobody's results."""
    donors = start_donors(start_donor, 2)
    seed = random_seed()
    with guest_on(qemu, short_tmp, donors, "shm", "12M", "nonsense") as guest:
        heap = guest.spawn(guest.heap("check", seed, "1"))
        turns = 0
        while heap.poll() is None:
            guest.check("fuzz", str(seed + turns), "1500", timeout=400)
            turns += 1
        assert heap.wait(1) == 0, heap.output()
        heap.end()
        print(f"{turns} turns")
        guest.check("whole")
    wait_returned(donors)


def test_workers_killed(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """A donor's worker dies at any moment: a status, the heap as it was; then it works again."""
    donors = start_donors(start_donor, 2)
    rand = random.Random(random_seed())
    with guest_on(qemu, short_tmp, donors, "tcp", "12M", "workers-killed") as guest:
        job = guest.spawn(guest.heap("kill", rand.randrange(1 << 16), "6"))
        wait_said(job, "up\n")
        killed = 0
        deadline = time.monotonic() + 400
        while job.poll() is None and killed < 60:
            assert time.monotonic() < deadline, job.output()
            time.sleep(rand.random() * 2)
            killed += rand.choice(donors).kill_gc_workers()
        assert job.wait(120) == 0, job.output()
        said = job.output().stdout
        print(said, f"{killed} workers killed")
        job.end()
        found = re.search(r"(\d+) rounds, (\d+) failed", said)
        assert found and int(found[2]) >= 6
        guest.check("whole")
    wait_returned(donors)


def test_donor_killed(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """A donor is gone for good: DONOR_LOST; what the other has is right, and collected on."""
    donors = start_donors(start_donor, 2)
    with guest_on(qemu, short_tmp, donors, "tcp", "12M", "donor-killed") as guest:
        job = guest.spawn(guest.heap("lose", random_seed(), "1"))
        wait_said(job, "up\n")
        donors[1].kill()
        assert job.wait(300) == 0, job.output()
        assert "lost: " in job.output().stdout
        job.end()
        # all of the window can be had again, from the donor that is left
        guest.check("whole")
        # and donors' work goes on
        again = guest.spawn(guest.heap("check", 3, "1"))
        assert again.wait(400) == 0, again.output()
        again.end()
    wait_returned(donors[:1])


@pytest.mark.slow
def test_outlives_a_donor(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """One is killed while objects are moved: what the others hold is whole, and collected on."""
    donors = start_donors(start_donor, 3)
    step = random.choice(("evacuate", "update", "compact"))
    with guest_on(qemu, short_tmp, donors, "tcp", "12M", "outlives") as guest:
        job = guest.spawn(guest.heap("outlive", random_seed(), step, "0"))
        wait_said(job, "kill\n")
        donors[1].kill()
        assert job.wait(400) == 0, job.output()
        print(job.output().stdout)
        job.end()
        guest.check("whole")
    wait_returned([donors[0], donors[2]])


@pytest.mark.slow
def test_hints(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Pages with a hint to keep them are not fetched again after all else was read; others are."""
    donors = start_donors(start_donor, 2)
    with guest_on(qemu, short_tmp, donors, "tcp", "12M", "hints") as guest:
        pager = guest.pager()
        job = guest.spawn(guest.heap("hint", random_seed(), "/tmp"))
        seen = {}
        for step in ("kept", "read", "normal", "again", "cold"):
            wait_said(job, f"at {step}\n")
            seen[step] = pager.status()
            guest.must(f"touch /tmp/{step}")
        assert job.wait(120) == 0, job.output()
        job.end()
        fetched = {step: status["fetched_bytes"] for step, status in seen.items()}
        print(fetched)
        assert fetched["read"] - fetched["kept"] < 64 << 10
        assert fetched["again"] - fetched["normal"] > 512 << 10
        counters = {step: status["counters"] for step, status in seen.items()}
        assert counters["kept"]["KEPT"] > 0
        assert counters["kept"]["KEPT"] == counters["again"]["KEPT"]
        assert counters["again"]["COLD"] == 0
        assert counters["cold"]["COLD"] > 0
        guest.check("whole")
    wait_returned(donors)
