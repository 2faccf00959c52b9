# SPDX-License-Identifier: GPL-2.0-or-later
"""JVMs in guests: several in one, one of which is killed; two guests on the same donors."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.donor import Donor, write_private
from tests.framework.paths import BUILD, TOP
from tests.jvm.support import LIMIT_S, Jvm
from tests.jvm.test_mark import MARK, marked
from tests.qemu.conftest import Qemu, wait_returned
from tests.qemu.gcbed import build
from tests.qemu.javabed import JavaBed
from tests.vm.job import Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WINDOW_MIB = 512
HEAP_MIB = 128
# MiB that are alive, operations, seed, threads, collections
CHURN = ("Churn", "50", "60000", "11", "2", "4")


@pytest.fixture(scope="module")
def disk() -> Path:
    """A disk with Debian's JRE, and our libjvm."""
    build()
    done = subprocess.run(
        [str(TOP / "scripts" / "jdk-image")], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, "scripts/jdk-image failed; its message is above"
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def answer(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the stock JVM says on this host, with its heap in memory."""
    said = jvm.run(tmp_path_factory.mktemp("stock"), f"-Xmx{HEAP_MIB}m", *CHURN, ours=False).stdout
    assert said.startswith("ok ")
    return said


@contextlib.contextmanager
def guest(
    jvm: Jvm, disk: Path, qemu: Qemu, folder: Path, donors: list[Donor], budget_mib: int
) -> Iterator[JavaBed]:
    """A guest with a Java, whose window is on these donors; it is judged at the end."""
    folder.mkdir()
    lines = ["[vm]", "name = gc", f"budget = {budget_mib}M"]
    lines += ["[key]", "tenant = test", f"file = {donors[0].key_file}"]
    for donor in donors:
        lines += [f"[donor {donor.folder.name}]", f"address = {donor.tcp_address}"]
    config = folder / "gc.ini"
    write_private(config, "\n".join(lines) + "\n")
    keep = BUILD / "test" / "jvm-guest" / folder.name
    with JavaBed(disk, qemu, folder, config, keep, WINDOW_MIB, memory_mib=1536) as bed:
        bed.load_java(jvm.classes)
        yield bed
        bed.unload()
        assert bed.finish() == []
        assert all(line.startswith("libdcm: donor ") for line in bed.qemu_log().splitlines())


def start(bed: JavaBed, *flags: str) -> Job:
    """A program of which donors mark the heap."""
    return bed.spawn(bed.java(HEAP_MIB, *MARK, "-Xmn16m", "-Xlog:gc,gc+donor", *flags, *CHURN))


def wait_marked(job: Job) -> None:
    """Until donors have marked."""
    while not marked(job.output().stdout):
        assert job.poll() is None, job.output()
        time.sleep(0.2)


def end(job: Job, answer: str) -> str:
    """What it has said at its end: it was right, and donors have marked."""
    assert job.wait(LIMIT_S * 2) == 0, job.output()
    said = job.output().stdout
    job.end()
    assert said.endswith(answer) and marked(said), said
    return said


def test_several_in_one_guest(
    jvm: Jvm, disk: Path, qemu: Qemu, short_tmp: Path, own_donors: list[Donor], answer: str
) -> None:
    """Three share its window; a worker and one of them are killed, and nothing is left of it."""
    with guest(jvm, disk, qemu, short_tmp / "one", own_donors, 64) as bed:
        jobs = [start(bed) for _ in range(3)]
        for job in jobs:
            wait_marked(job)
        dies = jobs.pop()
        dies.signal(signal.SIGKILL)
        dies.wait(30)
        dies.end()
        own_donors[0].kill_gc_workers()
        for job in jobs:
            end(job, answer)
        # A heap as large as the window: all of it is free.
        whole = bed.run(bed.java(WINDOW_MIB, "-Xlog:gc+donor", "Drop", "100"), 300, stdin=b"\n\n")
        assert whole.rc == 0 and f", {WINDOW_MIB} MiB, 2 donors" in whole.stdout, whole
    wait_returned(own_donors)


def test_two_guests_on_the_same_donors(
    jvm: Jvm, disk: Path, qemu: Qemu, short_tmp: Path, own_donors: list[Donor], answer: str
) -> None:
    """Each gets its own answer, whatever donors do for the other."""
    with (
        guest(jvm, disk, qemu, short_tmp / "one", own_donors, 32) as one,
        guest(jvm, disk, qemu, short_tmp / "two", own_donors, 32) as two,
    ):
        jobs = [start(one), start(two)]
        for job in jobs:
            end(job, answer)
    wait_returned(own_donors)
