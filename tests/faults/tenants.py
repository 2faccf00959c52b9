# SPDX-License-Identifier: GPL-2.0-or-later
"""One tenant takes all it can get; and memory of equal hosts on equal donors."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.donor.rawgc import TYPES_ADD, Worker
from tests.donor.rawtls import Control
from tests.faults.cell import Cell, CannotRun, at_most, unknown
from tests.faults.cgroup import Cgroup
from tests.faults.paged import Victim, donor_in, libdcm_config
from tests.faults.place import Place
from tests.faults.sessions import MIB, REFUSED, Sessions, keys, session
from tests.faults.strangers import ATTACK, attack
from tests.framework.donor import Donor

FAIR = 0.7


# ---- GC workers ----


def children(pid: int) -> list[int]:
    """Processes of a donor: its workers."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def memory_of(pids: list[int]) -> int:
    """Bytes that processes have for themselves."""
    found = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                found += int(line.split()[1]) << 10
    return found


def gc_quota(place: Place) -> list[Cell]:
    """A tenant takes all workers that it gets, and makes spaces in them as large as they may be."""
    quota = 70 * MIB
    with contextlib.ExitStack() as stack:
        donor = donor_in(
            place.folder("d"), keys=keys(), gc={"workers": 8, "threads": 1, "memory": "100M"},
            limits={"tenant-bytes": str(quota)},
        )  # fmt: skip
        stack.enter_context(donor)
        theirs: list[Worker] = []
        sessions: list[Control] = []
        try:
            for _ in range(16):
                sessions.append(session(donor, donor.unix_address, "mallory"))
                theirs.append(Worker(sessions[-1], space_bytes=64 * MIB))
        except REFUSED as err:
            place.say(f"{len(theirs)} workers, then {type(err).__name__}: {err}")
        for worker in theirs:
            with contextlib.suppress(*REFUSED):
                for space in range(16):
                    worker.create(65536, space)
                    worker.request(TYPES_ADD, struct.pack("<II", 0, 0), space=space)
        used = memory_of(children(donor.pid))
        over = max(0, used - quota)
        note = f"{len(theirs)} workers have {used >> 20} MiB"
        cells = [at_most("bytes above the quota", over, 0, note)]
        mine = session(donor, donor.unix_address)
        try:
            Worker(mine, space_bytes=8 * MIB).close()
            cells.append(at_most("another tenant's worker", 0, 0))
        except REFUSED as err:
            cells.append(unknown("another tenant's worker", f"{type(err).__name__}: {err}"))
        for worker in theirs:
            worker.close()
        for each in sessions:
            each.close()
        mine.close()
        return cells


# ---- one tenant at its worst ----


class Pump:
    """Processes whose data connections write as fast as they can, in a cgroup of the tenant's."""

    def __init__(self, donor: Donor, tenant: str, group: Cgroup, processes: int, each: int) -> None:
        words = [*group.prefix, sys.executable, "-IS", str(ATTACK), "write", donor.tcp_address]
        words += [str(each), tenant, donor.keys[tenant]]
        self.made = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(processes)
        ]

    def end(self) -> int:
        """Bytes written since it began."""
        found = 0
        for process in self.made:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            found += int(process.stdout.readline() or b"0")
        return found

    def __enter__(self) -> Pump:
        for process in self.made:
            assert process.stdout is not None
            if process.stdout.readline() != b"at it\n":
                self.__exit__()
                raise CannotRun("no data connection for one that writes")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.made:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def written(donor: Donor, group: Cgroup, seconds: float) -> float:
    """MB/s of the tenant that means well."""
    with Pump(donor, "test", group, 1, 2) as mine:
        time.sleep(seconds)
        return mine.end() / seconds / 1e6


def bandwidth(place: Place) -> list[Cell]:
    """Beside thirty-two connections that write, or show keys, without end."""
    seconds = 3.0 if place.quick else 6.0
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(Cgroup("mine", "cpu"))
        theirs = stack.enter_context(Cgroup("theirs", "cpu"))
        own = stack.enter_context(Cgroup("donor", "cpu"))
        donor = donor_in(place.folder("b"), way="tcp", keys=keys())
        donor.prefix = own.prefix
        stack.enter_context(donor)
        alone = written(donor, mine, seconds)
        with Pump(donor, "mallory", theirs, 1, 2):
            equal = written(donor, mine, seconds)
        with Pump(donor, "mallory", theirs, 4, 8):
            worst = written(donor, mine, seconds)
        with attack("knock", donor.tcp_address, 32, donor, prefix=theirs.prefix):
            knocked = written(donor, mine, seconds)
        alone = max(alone, written(donor, mine, seconds))  # others may use this machine
    note = f"MB/s: alone {alone:.0f}, beside an equal {equal:.0f}"
    return [
        _least("bandwidth", worst / (alone / 2), f"{note}, beside 32 connections {worst:.0f}"),
        _least("handshakes", knocked / (alone / 2), f"{note}, beside handshakes {knocked:.0f}"),
    ]


def _least(name: str, ratio: float, note: str = "") -> Cell:
    return Cell(name, round(ratio, 2), ratio >= FAIR, note)


def shares(place: Place) -> list[Cell]:
    """Slabs, workers and connections, after the other has taken all it can get."""
    cells = []
    # what there is of it, and the quota that gives each tenant half, where there is none by itself
    kinds: tuple[tuple[str, int, dict[str, str | int]], ...] = (
        ("slabs", 64, {"tenant-bytes": "64M"}),
        ("workers", 8, {}),
        ("connections", 128, {"tenant-connections": 64}),
    )
    for what, total, quota in kinds:
        donor = donor_in(
            place.folder(what), keys=keys(), donor={"capacity": "128M"}, gc={"workers": 8},
            limits={"connections": 128, **quota},
        )  # fmt: skip
        with donor, Sessions(donor, "mallory") as theirs, Sessions(donor, "test") as mine:
            took = getattr(theirs, what)(total)
            got = getattr(mine, what)(total // 2)
        cells.append(_least(what, got / (total / 2), f"{got} of {total}, the other has {took}"))
    return cells


def fair(place: Place) -> list[Cell]:
    """One tenant at its worst: what is left for another, of its half."""
    return shares(place) + bandwidth(place)


# ---- equal donors ----


def slow_down(donor: Donor, over: threading.Event) -> None:
    """It is late with all of its answers."""
    while not over.is_set():
        donor.signal(signal.SIGSTOP)
        over.wait(0.15)
        donor.signal(signal.SIGCONT)
        over.wait(0.02)


def burst(place: Place, donors: int, slow: int) -> tuple[float, str]:
    """Two hosts want 32 extents each at once of equal donors, on a busy machine."""
    extents = 64
    with contextlib.ExitStack() as stack:
        made: list[tuple[Donor, str]] = []
        shared: dict[str, str] | None = None
        for number in range(donors):
            donor = donor_in(place.folder(f"d{number}"), keys=shared)
            shared = donor.keys
            made.append((stack.enter_context(donor), "shm" if number % 2 else "tls"))
        over = threading.Event()
        for donor, _ in made[:slow]:
            thread = threading.Thread(target=slow_down, args=(donor, over))
            thread.start()
            stack.callback(thread.join)
        stack.callback(over.set)
        for _ in range(os.cpu_count() or 1):
            burner = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            stack.callback(burner.wait)
            stack.callback(burner.kill)
        victims = []
        for name in "vw":
            folder = place.folder(name)
            config = libdcm_config(folder, made, budget="4M")
            victims.append(Victim(name, f"dcm:{config}", folder, mib=extents, nap_us=20000))
        for victim in victims:
            stack.enter_context(victim)
        for victim in victims:
            victim.ready()
        over.set()
        counts = [donor.status()["memory"]["slabs_mapped"] for donor, _ in made]
        for victim in victims:
            cell = victim.judge()
            if not cell.ok:
                raise CannotRun(cell.text())
    mean = sum(counts) / donors
    return (max(counts) - 1) / mean, f"{max(counts)} and {min(counts)} of {sum(counts)}"


def herd(place: Place) -> list[Cell]:
    """The most loaded donor: (slabs - 1) / mean, the worst of several bursts."""
    cells = []
    sizes = ((2, 0, 2),) if place.quick else ((2, 0, 4), (4, 1, 2), (16, 3, 1))
    for donors, slow, times in sizes:
        found = []
        for turn in range(times):
            found.append(burst(place.below(f"{donors}-{turn}"), donors, slow))
        worst = max(found)
        name = f"{donors} donors" + (f", {slow} slow" if slow else "")
        cells.append(at_most(name, worst[0], 1.25, worst[1]))
    return cells
