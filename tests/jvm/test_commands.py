# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command that a JVM sends fails in turn, or workers and donors die before it."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.framework.paths import TOP
from tests.jvm.conftest import three_donors
from tests.jvm.support import LIMIT_S, Jvm, configure, copies_wait, lying, on_donors
from tests.jvm.test_compact import COMPACT
from tests.jvm.test_mark import VERIFY
from tests.jvm.test_rebuild import REBUILD

pytestmark = pytest.mark.slow

TRACE = ("START", "ROOTS", "MET", "FINISH", "RESULTS", "STATE", "ASK", "BITMAPS")
BOTH = ("TYPES_ADD", *(f"TRACE_{name}" for name in TRACE), "HINT")
# What System.gc() is: flags, the program's last arguments, the commands.
KINDS = {
    "cycle": (REBUILD, ("late",), (*BOTH, "TRACE_CARDS", "CLEAN")),
    "full": (COMPACT, (), (*BOTH, "SPACE_DONORS", "EVACUATE", "UPDATE", "RELEASE")),
}
# Before these nothing of a worker is needed any more, or yet.
FORGOTTEN = ("TYPES_ADD", "TRACE_START", "HINT", "RELEASE")
BY_ITSELF = re.compile(r"G1 .* by itself: [A-Z_]+: (worker lost|donor lost|timed out)")


@dataclass(frozen=True)
class Case:
    """A command in one kind of collection."""

    command: str
    flags: Sequence[str]
    last: Sequence[str]

    def program(self, config: Path) -> list[str]:
        """Six collections of each kind of object; HotSpot looks before, in and after each."""
        heap = on_donors(config, "G1", "gc", "gc+donor=debug")
        return [*heap, *self.flags, *VERIFY, "Kinds", "6", "7", *self.last]


each_command = pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(command, flags, last), id=f"{kind}-{command}")
        for kind, (flags, last, commands) in KINDS.items()
        for command in commands
    ],
)


def at(command: str) -> dict[str, str]:
    """The environment that names a command to the libvgc that lies."""
    text = (TOP / "guest-virtio-gc" / "include" / "virtio_gc.h").read_text()
    found = re.search(rf"\bVIRTIO_GC_{command} = (\d+),", text)
    assert found
    return {"AT": found[1]}


@each_command
@pytest.mark.parametrize(("lie", "why"), [("refused", "worker lost"), ("unheard", "timed out")])
def test_one_fails(
    jvm: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    liar: Path,
    case: Case,
    lie: str,
    why: str,
) -> None:
    """At its first call and at later ones: a line says so, and the heap is right.

    Donors that keep what RELEASE would have them forget do so until the next trace.
    """
    config = configure(short_tmp, donors, "shm")
    more = lying(liar, lie) | at(case.command)
    done = jvm.run(short_tmp, *case.program(config), more=more)
    said = done.stdout
    assert re.search(r"^ok 6$", said, re.M), said
    assert "liar: call 3\n" in done.stderr, done.stderr
    assert case.command == "RELEASE" or f"{case.command}: {why}" in said, said


def run_stopped(
    jvm: Jvm, folder: Path, liar: Path, case: Case, config: Path, then: Callable[[int], None]
) -> str:
    """Run java, and do something before calls of a command, whose number it gets: the output."""
    asked, go = folder / "asked", folder / "go"
    for fifo in (asked, go):
        os.mkfifo(fifo)
    stops = {"ASKED": str(asked), "GO": str(go)}
    env = jvm.environment(folder) | lying(liar, "stopped") | at(case.command) | stops
    log = folder / "log"
    # Both ends of each are open here, so that no open() waits.
    with (
        log.open("w") as out,
        asked.open("r+b", buffering=0) as ask,
        go.open("r+b", buffering=0) as answer,
        subprocess.Popen(jvm.command(*case.program(config)), env=env, stdout=out) as running,
    ):
        try:
            times = 0
            until = time.monotonic() + LIMIT_S / 2
            while running.poll() is None:
                assert time.monotonic() < until, log.read_text()
                if select.select([ask], [], [], 0.1)[0]:
                    ask.read(1)
                    then(times)
                    times += 1
                    answer.write(b"g")
        finally:
            running.kill()
    said = log.read_text()
    assert running.returncode == 0, said
    assert re.search(r"^ok 6$", said, re.M), said
    return said


@each_command
def test_workers_are_killed(
    jvm: Jvm, own_donors: list[Donor], short_tmp: Path, liar: Path, case: Case
) -> None:
    """Before it: what the workers knew is lost, and the heap is right."""
    config = configure(short_tmp, own_donors, "tcp")
    killed: list[int] = []

    def kill(_: int) -> None:
        killed.extend(donor.kill_gc_workers() for donor in own_donors)

    said = run_stopped(jvm, short_tmp, liar, case, config, kill)
    assert any(killed), said
    assert case.command in FORGOTTEN or BY_ITSELF.search(said), said


@each_command
def test_a_donor_is_killed(
    jvm: Jvm, short_tmp: Path, liar: Path, case: Case
) -> None:
    """Before it, with another copy of each page: the heap is right."""
    with three_donors(short_tmp) as donors:
        config = configure(short_tmp, donors, "tcp", redundancy="replica:2")

        def kill(times: int) -> None:
            if times == 1:
                copies_wait(short_tmp)
                donors[1].kill()

        said = run_stopped(jvm, short_tmp, liar, case, config, kill)
        assert donors[1].process is None, said
