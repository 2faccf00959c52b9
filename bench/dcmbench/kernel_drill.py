# SPDX-License-Identifier: GPL-2.0-or-later
"""The drill on dcmfs: donors cut off, stopped and killed under a program whose memory is a file.

Everything is in L1, the emulated VM of tests/vm: measure() boots one, and runs this file there,
which writes its figures to a file. What is there is that of tests/faults: networks, dcm-hostd,
and a program that checks every byte, and counts accesses that take longer than a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.dcmfs import Dcmfs
from tests.faults.net import Net
from tests.faults.paged import Victim, donor_in
from tests.faults.place import Place

from .drills import Scale, hit
from .host import BenchError

WAYS = ("link", "sigstop", "sigkill")  # the last one's memory does not come back
NAMES = ("d0", "d1", "d2", "d3")
FILE = "vm-drill"
MIB = 16
# A donor that is cut off for less than the patience is not lost.
SETTINGS = "redundancy = replica:2\nrebuild-rate = 0\npatience = 120s\n"
WHOLE_S = 600.0
STEADY_S = 2.0
BOOT_S = 600.0  # on a machine that does much else
LIMIT_S = 2400.0
FIGURES = "/tmp/figures"


@dataclasses.dataclass(frozen=True)
class Hit:
    """What was done to one donor: accesses that took longer than 1 s, before and after."""

    donor: str
    stops_before: int
    stops: int
    seconds: float  # until nothing was exposed again


@dataclasses.dataclass(frozen=True)
class Drill:
    """Three donors' deaths, by the way they died."""

    window_s: float
    hits: dict[str, Hit]
    ops: int
    lost_bytes: int
    wrong_bytes: int
    longest_s: float
    filled_bytes: int

    @property
    def more_stops(self) -> int:
        """Than in the quiet time before."""
        return sum(h.stops - h.stops_before for h in self.hits.values())


def measure(s: Scale) -> Drill:
    """Boot an L1 and run the drill in it."""
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
    hits = {way: Hit(**hit) for way, hit in found.pop("hits").items()}
    return Drill(hits=hits, **found)


class File:
    """The file, as dcm-hostd tells of it."""

    def __init__(self, dcmfs: Dcmfs) -> None:
        self.dcmfs = dcmfs

    def status(self) -> dict[str, Any]:
        """Empty if dcm-hostd gave none just now."""
        found: dict[str, Any] = self.dcmfs.status().get(FILE, {})
        return found

    def whole(self) -> bool:
        """Each extent has two slabs, and no page lacks a copy."""
        s = self.status()
        if not s or not s["extents"]:
            return False
        slabs = sum(d["slabs"] for d in s["donors"])
        return slabs == 2 * s["extents"] and not (s["exposed_bytes"] or s["filling"] or s["wanted"])

    def until_whole(self) -> None:
        """And it stays so for a while: connections may be about to be made again."""
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
        """A donor that is dead is taken for lost some seconds later."""
        end = time.monotonic() + WHOLE_S
        while not any(d["name"] == name and d["state"] == "lost" for d in self.donors()):
            if time.monotonic() > end:
                raise BenchError(f"{name} is not lost: {self.donors()}")
            time.sleep(0.2)

    def donors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status().get("donors", [])
        return found

    def busiest(self, of: set[str]) -> str:
        """Of these donors, the one with most slabs."""
        donors = [d for d in self.donors() if d["name"] in of]
        return str(max(donors, key=lambda d: d["slabs"])["name"])


def filled() -> int:
    """Bytes that were copied to make copies, as the module counts."""
    [stats] = Path("/sys/kernel/debug/kvm-dcm").glob("*/stats")
    found = re.search(r"^FILLED_PAGES (\d+)$", stats.read_text(), re.MULTILINE)
    assert found
    return 4096 * int(found[1])


def stops(victim: Victim, seconds: float) -> int:
    """Accesses that took longer than a second in that time, or still wait."""
    before = int(victim.ask("stat", WHOLE_S)["stops"])
    time.sleep(seconds)
    return int(victim.ask("stat", WHOLE_S)["stops"]) - before


def drill(place: Place, window_s: float) -> Drill:
    """In L1: hit one donor after the other."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(Net("host", *NAMES))
        donors = {}
        keys = None
        for name in NAMES:
            donor = donor_in(place.folder(name), net[name], "tcp", keys=keys)
            donor.prefix = [*place.first, *donor.prefix]
            keys = donor.keys
            donors[name] = stack.enter_context(donor)
        dcmfs = Dcmfs(place, net["host"], donors, budget=f"{MIB // 4}M", settings=SETTINGS)
        file = File(stack.enter_context(dcmfs))
        victim = Victim(FILE, f"file:{dcmfs.mount / FILE}", place.folder("v"), mib=MIB)
        stack.enter_context(victim).ready(WHOLE_S)
        file.until_whole()
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
            with hit(donors[name].pid, net[name], way):
                after = stops(victim, window_s)
                if way == "sigkill":
                    file.until_lost(name)
            file.until_whole()
            hits[way] = Hit(name, quiet, after, round(time.monotonic() - at, 1))
        copied = filled() - begin
        end = victim.ask("end", WHOLE_S)
        return Drill(window_s, hits, end["ops"], end["lost_bytes"], end["wrong_bytes"],
                     end["longest_s"], copied)  # fmt: skip


if __name__ == "__main__":
    at = Path("/tmp/drill")
    at.mkdir(exist_ok=True)
    done = drill(Place("kernel-drill", at, vm=True), float(sys.argv[1]))
    Path(FIGURES).write_text(json.dumps(dataclasses.asdict(done)))
