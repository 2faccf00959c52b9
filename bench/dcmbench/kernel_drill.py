# SPDX-License-Identifier: GPL-2.0-or-later
"""Drills on dcmfs: donors or dcm-hostd die under a program whose memory is a dcmfs file.

All of it runs in L1, the emulated VM of tests/vm: measure() boots an L1 and runs this file in it,
which does both drills and writes their figures to a file. The test bed is that of tests/faults:
networks, dcm-hostd, and a program that checks every byte and counts accesses longer than a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.faults.dcmfs import Dcmfs
from tests.faults.net import Net
from tests.faults.paged import Victim, donor_in
from tests.faults.place import Place
from tests.framework.donor import Donor

from .drills import Scale, hit
from .host import BenchError

WAYS = ("link", "sigstop", "sigkill")  # the last one's memory does not come back
NAMES = ("d0", "d1", "d2", "d3")
FILE = "vm-drill"
MIB = 16
# A donor that is cut off for less than the patience is not lost.
SETTINGS = "rebuild-rate = 0\npatience = 120s\n"
WHOLE_S = 600.0
STEADY_S = 2.0
BOOT_S = 600.0  # limit for booting L1, on a busy machine
AWAYS_S = (0.0, 0.0, 0.0, 10.0)  # for each kill of dcm-hostd: time until its next start
LIMIT_S = 2400.0
FIGURES = "/tmp/figures"


@dataclasses.dataclass(frozen=True)
class Hit:
    """A donor that died: how many accesses took longer than 1 s, before and after."""

    donor: str
    stops_before: int
    stops: int
    seconds: float  # until nothing was exposed again


@dataclasses.dataclass(frozen=True)
class Drill:
    """The deaths of three donors, by the way in which each died."""

    window_s: float
    hits: dict[str, Hit]
    ops: int
    lost_bytes: int
    wrong_bytes: int
    longest_s: float
    filled_bytes: int

    @property
    def more_stops(self) -> int:
        """The number of stops beyond those in the quiet time before each death."""
        return sum(h.stops - h.stops_before for h in self.hits.values())


@dataclasses.dataclass(frozen=True)
class Restart:
    """dcm-hostd killed and started again: accesses that took longer than 1 s, before and after."""

    stops_before: int
    stops: int
    ops: int
    lost_bytes: int
    wrong_bytes: int
    longest_s: float


def measure(s: Scale) -> tuple[Drill, Restart]:
    """Boot an L1 and run the drills in it."""
    from tests.faults import l1  # L1 itself has no QEMU to start others
    from tests.guest.vmharness import GuestError
    from tests.vm.bed import Bed

    if why := l1.prepare():
        raise BenchError(f"no VM: {why}")
    try:
        bed = Bed(l1.spec(), keep=s.build / "bench" / "kernel-drill")
        with contextlib.closing(bed):
            bed.start(BOOT_S)
            l1.furnish(bed)
            words = f"python3 -m dcmbench.kernel_drill {min(s.window_s, 30.0)}"
            job = bed.spawn(f"cd {l1.THERE} && PYTHONPATH=.:bench exec {words}")
            if status := job.wait(LIMIT_S):
                raise BenchError(f"it ended with {status}: {job.output().stderr[-400:].strip()}")
            found: dict[str, Any] = json.loads(bed.get(FIGURES))
            if wrong := bed.complaints():
                raise BenchError(f"the VM's kernel complains: {' / '.join(wrong)[:300]}")
    except GuestError as e:
        raise BenchError(str(e)[:400]) from e
    hits = {way: Hit(**hit) for way, hit in found["drill"].pop("hits").items()}
    return Drill(hits=hits, **found["drill"]), Restart(**found["restart"])


class File:
    """The dcmfs file, as dcm-hostd's status shows it."""

    def __init__(self, dcmfs: Dcmfs, copies: int = 2) -> None:
        self.dcmfs = dcmfs
        self.copies = copies

    def status(self) -> dict[str, Any]:
        """The file's part of dcm-hostd's status; empty if there is none at the moment."""
        found: dict[str, Any] = self.dcmfs.status().get(FILE, {})
        return found

    def whole(self) -> bool:
        """Whether each extent has its slabs, no page lacks a copy, and all donors are up."""
        s = self.status()
        if not s or not s["extents"]:
            return False
        slabs = sum(d["slabs"] for d in s["donors"])
        lacks = s["exposed_bytes"] if self.copies > 1 else 0
        return slabs == self.copies * s["extents"] and not (lacks or s["filling"] or s["wanted"])

    def until_whole(self) -> None:
        """Wait until the file is whole, and stays so for a while: sessions may still reconnect."""
        end = time.monotonic() + WHOLE_S
        since = time.monotonic()
        while time.monotonic() - since < STEADY_S:
            if not self.whole():
                since = time.monotonic()
                if since > end:
                    said = self.dcmfs.log.read_text(errors="replace")[-1500:]
                    raise BenchError(f"still exposed: {json.dumps(self.status())[-1500:]}; {said}")
            time.sleep(0.2)

    def until_lost(self, name: str) -> None:
        """Wait until dcm-hostd takes the dead donor for lost, which takes some seconds."""
        end = time.monotonic() + WHOLE_S
        while not any(d["name"] == name and d["state"] == "lost" for d in self.donors()):
            if time.monotonic() > end:
                raise BenchError(f"{name} is not lost: {self.donors()}")
            time.sleep(0.2)

    def donors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status().get("donors", [])
        return found

    def busiest(self, of: set[str]) -> str:
        """The donor, of these, that has the most slabs."""
        donors = [d for d in self.donors() if d["name"] in of]
        return str(max(donors, key=lambda d: d["slabs"])["name"])


def filled() -> int:
    """Bytes that the kernel module has copied to restore copies."""
    [stats] = Path("/sys/kernel/debug/kvm-dcm").glob("*/stats")
    found = re.search(r"^FILLED_PAGES (\d+)$", stats.read_text(), re.MULTILINE)
    assert found
    return 4096 * int(found[1])


def stops(victim: Victim, seconds: float) -> int:
    """Wait `seconds`; the number of accesses that took over a second meanwhile, or still wait."""
    before = int(victim.ask("stat", WHOLE_S)["stops"])
    time.sleep(seconds)
    return int(victim.ask("stat", WHOLE_S)["stops"]) - before


@dataclasses.dataclass(frozen=True)
class Bench:
    """Donors in networks of their own, dcmfs, and a program that uses a file of it."""

    net: Net
    donors: dict[str, Donor]
    file: File
    victim: Victim


@contextlib.contextmanager
def used(place: Place, names: Sequence[str], copies: int) -> Iterator[Bench]:
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(Net("host", *names))
        donors: dict[str, Donor] = {}
        keys = None
        for name in names:
            donor = donor_in(place.folder(name), net[name], "tcp", keys=keys)
            donor.prefix = [*place.first, *donor.prefix]
            keys = donor.keys
            donors[name] = stack.enter_context(donor)
        settings = SETTINGS + (f"redundancy = replica:{copies}\n" if copies > 1 else "")
        dcmfs = Dcmfs(place, net["host"], donors, budget=f"{MIB // 4}M", settings=settings)
        file = File(stack.enter_context(dcmfs), copies)
        victim = Victim(FILE, f"file:{dcmfs.mount / FILE}", place.folder("v"), mib=MIB)
        stack.enter_context(victim).ready(WHOLE_S)
        file.until_whole()
        yield Bench(net, donors, file, victim)


def drill(place: Place, window_s: float) -> Drill:
    """In L1: hit one donor after the other."""
    with used(place, NAMES, 2) as made:
        file, victim = made.file, made.victim
        begin, left = filled(), set(NAMES)
        hits: dict[str, Hit] = {}
        for way in WAYS:
            place.say(f"{way}: quiet")
            quiet = stops(victim, window_s)
            file.until_whole()
            name = file.busiest(left)
            left.remove(name)
            place.say(f"{way}: {name}")
            at = time.monotonic()
            with hit(made.donors[name].pid, made.net[name], way):
                after = stops(victim, window_s)
                if way == "sigkill":
                    file.until_lost(name)
            file.until_whole()
            hits[way] = Hit(name, quiet, after, round(time.monotonic() - at, 1))
        copied = filled() - begin
        end = victim.ask("end", WHOLE_S)
        return Drill(window_s, hits, end["ops"], end["lost_bytes"], end["wrong_bytes"],
                     end["longest_s"], copied)  # fmt: skip


def restart(place: Place, window_s: float) -> Restart:
    """In L1: kill dcm-hostd and start it again, while a program without copies goes on."""
    with used(place, NAMES[:2], 1) as made:
        dcmfs, victim = made.file.dcmfs, made.victim
        quiet = after = 0
        for away in AWAYS_S:
            quiet += stops(victim, window_s / len(AWAYS_S))
            place.say(f"dcm-hostd: away for {away:.0f} s")
            before = int(victim.ask("stat", WHOLE_S)["stops"])
            dcmfs.kill()
            time.sleep(away)
            dcmfs.serve()
            made.file.until_whole()
            time.sleep(window_s / len(AWAYS_S))
            after += int(victim.ask("stat", WHOLE_S)["stops"]) - before
        end = victim.ask("end", WHOLE_S)
        return Restart(quiet, after, end["ops"], end["lost_bytes"], end["wrong_bytes"],
                       end["longest_s"])  # fmt: skip


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    figures: dict[str, Any] = {}
    for name in ("drill", "restart"):
        at = Path("/tmp") / name
        at.mkdir(exist_ok=True)
        there = Place(name, at, vm=True)
        done: Drill | Restart = (drill if name == "drill" else restart)(there, seconds)
        figures[name] = dataclasses.asdict(done)
    Path(FIGURES).write_text(json.dumps(figures))
