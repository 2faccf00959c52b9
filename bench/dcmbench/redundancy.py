# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows about memory with copies: the cost of a donor's death, and the cost of copies without one.

A drill kills the busiest of four donors, stops it or cuts it off, while bench/drill.c touches
random pages of four times its budget and checks each. The cost of copies is measured with
bench/access.c, with and without copies in turn.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import net

from . import drills, host, kernel_drill, report
from .drills import COPIES, RATE_MIB, Drill, Scale, Way, access

# By drill: what is done to the donor.
WAYS = {"sigkill": "killed", "sigstop": "stopped", "link": "cut off"}
# By id, in the table's order: description and target.
ROWS: dict[str, tuple[str, str]] = {
    "kill-sigkill": (
        "touches in the minute after a donor is killed over the minute before",
        ">= 0.9",
    ),
    "kill-sigstop": ("the same, the donor is stopped", ">= 0.9"),
    "kill-link": ("the same, the network drops all from and to the donor", ">= 0.9"),
    "kill-gap": ("the longest that a thread waited then, the worst way, seconds", "<= 0.25"),
    "kill-twice": ("bytes lost that the status had not named, two donors at once", "0"),
    "disk-all": ("bytes lost when all donors of memory are killed at once, redundancy = disk", "0"),
    "disk-swap": ("touches a second, memory on a donor's file over swap on a file", ">= 1"),
    "evict-1s": ("bytes lost when a donor asks for half of its memory with 1 s to give it", "0"),
    "restart-donor": ("bytes lost when donors are killed and start again, redundancy = none", "0"),
    "restart-hostd": (
        "bytes wrong and lost when dcm-hostd is killed and starts again, in an emulated VM, none",
        "0",
    ),
    "rebuild": ("seconds until nothing is exposed over bytes / rebuild-rate", "<= 1.3"),
    "read-cost": ("read fault, median, replica:2 over none", "<= 1.02"),
    "write-cost": ("half writes, pages a second, replica:2 over none", ">= 0.85"),
    "sum-cost": ("read fault with sums less one without, us", "<= 0.5"),
    "seal-cost": ("read fault over TCP, median, pages sealed over connections with TLS", "<= 1"),
    "metadata": ("bytes of this host a page, sums included", "<= 21"),
    "kernel-kill": ("the drill on dcmfs in an emulated VM: bytes wrong and lost", "0"),
    "flips": ("of 100000 flipped, swapped and replayed pages, those that a program saw", "0"),
}


def row(
    id_: str, value: float | None, ok: bool, detail: str, raw: dict[str, Any] | None = None
) -> report.Row:
    what, target = ROWS[id_]
    return report.Row(
        id_, what, None if value is None else round(value, 3), target, ok, detail, raw or {}
    )


def middle(at: list[int]) -> float:
    """The mean of these percentiles from the 5th to the 95th."""
    return sum(at[5:96]) / len(at[5:96])


def medians(pairs: list[tuple[float, float]]) -> str:
    """A text: the medians of both sides, and the range of the ratios of pairs."""
    ours, plain = (report.median(list(side)) for side in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    return (
        f"{ours:.2f} against {plain:.2f} us, in one process that has the pages of both and goes "
        f"from one to the other each 64 faults; median of {len(pairs)} processes, from "
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
    )


class Bench:
    """Makes the rows; each drill is done once, for all rows that need it."""

    def __init__(self, s: Scale, folder: Path) -> None:
        self.scale = s
        self.ledger = host.Ledger(s.build / "bench" / "leftovers.json")
        self.ledger.sweep()
        net.sweep()
        self.folder = folder
        self._made: dict[str, Drill] = {}
        self._kernel: tuple[kernel_drill.Drill, kernel_drill.Restart] | None = None
        self._nr = 0

    def in_vm(self) -> tuple[kernel_drill.Drill, kernel_drill.Restart]:
        if self._kernel is None:
            self._kernel = kernel_drill.measure(self.scale)
        return self._kernel

    def place(self) -> Path:
        self._nr += 1
        return self.folder / str(self._nr)

    def drill(self, how: str) -> Drill:
        if how not in self._made:
            self._made[how] = drills.drill(self.scale, self.place(), how)
        return self._made[how]

    def kill(self, id_: str) -> report.Row:
        d = self.drill(id_.removeprefix("kill-"))
        value = d.after / d.before
        return row(
            id_,
            value,
            value >= 0.9 and not d.lost_pages,
            f"{d.before:.0f} touches a second in {self.scale.window_s:.0f} s before, {d.after:.0f} "
            f"after; no page wrong (each touch checks), {d.lost_pages} lost; {d.failovers} reads "
            f"went to another donor. {COPIES}, the busiest of four donors over TCP in the clear, "
            f"{4 * self.scale.budget >> 20} MiB, a quarter direct, two threads, half writes; "
            "program and pager on one CPU, donors on the other"
            + ("; each in a network of its own" if id_ == "kill-link" else ""),
            dataclasses.asdict(d),
        )

    def gap(self, id_: str) -> report.Row:
        ways = {way: self.drill(how) for how, way in WAYS.items()}
        value = max(d.gap_s for d in ways.values())
        after = ", ".join(f"{way} {d.gap_s:.3f} s" for way, d in ways.items())
        before = ", ".join(f"{d.gap_before_s:.3f}" for d in ways.values())
        return row(
            id_,
            value,
            value <= 0.25,
            f"Any thread, in the minute after: {after}; in the minutes before {before} s",
        )

    def twice(self, id_: str) -> report.Row:
        t = drills.twice(self.scale, self.place())
        value = max(0, t.lost - t.named)
        every = sum(t.together.values())
        return row(
            id_,
            value,
            value == 0 and t.lost > 0,
            f"{t.lost >> 20} MiB lost with {t.pair.replace('+', ' and ')}; the status had named "
            f"{t.named >> 20} MiB for these two, of {every >> 20} MiB in all. {COPIES}, four "
            "donors over TCP in the clear, killed while the program goes on; pages that were in "
            "this host, or never written, are not lost with them",
            dataclasses.asdict(t),
        )

    def disk(self, id_: str) -> report.Row:
        d = drills.disk(self.scale, self.place())
        return row(
            id_,
            d.lost_pages * 4096,
            not d.lost_pages,
            f"No page wrong (each touch checks) of {d.mapped_bytes >> 20} MiB. {d.before:.0f} "
            f"touches a second before, written to memory and a file each, {d.after:.0f} after, "
            f"from one disk's file; longest stop {d.gap_s:.2f} s, before {d.gap_before_s:.2f}; "
            "a write-back waits for both copies for up to 10 s (thin_after), so that no page "
            "is on one donor of memory alone. redundancy = disk, three donors of memory and one of "
            "files over TCP in the clear, half writes",
            dataclasses.asdict(d),
        )

    def disk_swap(self, id_: str) -> report.Row:
        pairs = [
            (
                access(self.scale, self.place(), "none", 0, number=0, files=True),
                drills.swapped(self.scale, self.place(), self.ledger),
            )
            for _ in range(self.scale.repeat)
        ]
        ours, peer = ([p[i]["touches_per_s"] for p in pairs] for i in (0, 1))
        value = report.median([a / b for a, b in zip(ours, peer, strict=True)])
        return row(
            id_,
            value,
            value >= 1,
            f"{report.median(ours):.0f} against {report.median(peer):.0f} touches a second; medians"
            f" of {self.scale.repeat} pairs, alternating. Random pages of "
            f"{4 * self.scale.budget >> 20} MiB, a quarter in memory, one thread, no writes while "
            "it is measured; one donor of files over TCP in the clear; swap of a memory cgroup, on "
            "a file in the same directory; both write and read the disk without the page cache",
        )

    def evict(self, id_: str) -> report.Row:
        e = drills.evict(self.scale, self.place())
        return row(
            id_,
            e.lost_pages * 4096,
            not e.lost_pages and e.asked > 0,
            f"{e.asked} slabs asked back, {e.forced} of them taken after a second; no page wrong "
            f"(each touch checks). {COPIES}, three donors over TCP in the clear, half writes",
            dataclasses.asdict(e),
        )

    def restart(self, id_: str) -> report.Row:
        r = drills.restart(self.scale, self.place())
        return row(
            id_,
            r.lost_pages * 4096,
            not r.lost_pages,
            f"{r.kills} kills of two donors, the last two at once; no page wrong (each touch "
            f"checks); longest stop of a thread {r.gap_s:.2f} s, {r.gap_before_s:.2f} before. "
            "redundancy = none, TCP in the clear, half writes; descriptors kept by a program that "
            "plays systemd's part, which starts the daemon at once",
            dataclasses.asdict(r),
        )

    def rebuild(self, id_: str) -> report.Row:
        d = self.drill("sigkill")
        assert d.rebuild_s is not None
        value = d.rebuild_s / (d.rebuilt_bytes / (RATE_MIB << 20)) if d.rebuilt_bytes else None
        return row(
            id_,
            value,
            value is not None and value <= 1.3,
            f"{d.rebuild_s:.1f} s from the moment the donor is taken for lost (5 s after its "
            f"death) for {d.rebuilt_bytes >> 20} MiB, at rebuild-rate {RATE_MIB}M, while the "
            "program goes on; pages that it writes meanwhile are not copied",
        )

    def turns(
        self, id_: str, ours: Way, plain: Way, limit: float, what: str, number: int, donors: str
    ) -> report.Row:
        """Compare median read faults, ours over plain; each process has memory of both kinds."""
        pairs = []
        for n in range(3 * self.scale.repeat):
            order = (ours, plain) if n % 2 else (plain, ours)
            figures = drills.beside(self.scale, self.place(), *order, number)
            ns = ("ns", "ns_0") if n % 2 else ("ns_0", "ns")
            pairs.append((figures[ns[0]]["p50"] / 1000, figures[ns[1]]["p50"] / 1000))
        value = report.median([a / b for a, b in pairs])
        return row(
            id_,
            value,
            value <= limit,
            f"{what}: {medians(pairs)}. Random pages of {4 * self.scale.budget >> 20} MiB each, a "
            f"quarter direct, one thread, no writes, {donors}",
        )

    def reads(self, id_: str) -> report.Row:
        ways = Way(redundancy=COPIES), Way()
        donors = "two donors over TCP in the clear"
        return self.turns(id_, *ways, 1.02, f"{COPIES} against none", 2, donors)

    def writes(self, id_: str) -> report.Row:
        ours, plain = [], []
        for n in range(3 * self.scale.repeat):
            ways = ("none", COPIES) if n % 2 else (COPIES, "none")
            found = {way: access(self.scale, self.place(), way, 50) for way in ways}
            ours.append(found[COPIES]["touches_per_s"])
            plain.append(found["none"]["touches_per_s"])
        value = report.median([a / b for a, b in zip(ours, plain, strict=True)])
        return row(
            id_,
            value,
            value >= 0.85,
            f"{report.median(ours):.0f} against {report.median(plain):.0f} touches a second; "
            f"medians of {len(ours)} pairs of runs, either first in turn. Random pages of "
            f"{4 * self.scale.budget >> 20} MiB, a quarter direct, one thread, 50 % writes, "
            "two donors over TCP in the clear",
        )

    def sums(self, id_: str) -> report.Row:
        runs = [
            access(self.scale, self.place(), COPIES, 0, alternate="sums")
            for _ in range(self.scale.repeat)
        ]
        ours, plain = ([middle(r[ns]["at"]) / 1000 for r in runs] for ns in ("ns", "ns_0"))
        value = report.median([a - b for a, b in zip(ours, plain, strict=True)])
        return row(
            id_,
            value,
            value <= 0.5,
            f"{report.median(ours):.2f} with sums, {report.median(plain):.2f} us without: mean of "
            f"the middle nine tenths of {runs[0]['faults']} faults and more; sums are turned on "
            f"and off each 64 faults; median of {self.scale.repeat} runs. {COPIES}, random pages "
            f"of {4 * self.scale.budget >> 20} MiB, a quarter direct, one thread, no writes, two "
            "donors over TCP in the clear",
        )

    def seal(self, id_: str) -> report.Row:
        ways = Way(encrypt=True, seal=True), Way(encrypt=True)
        what = "Sealed over connections without TLS, against TLS and not sealed"
        return self.turns(id_, *ways, 1, what, 1, "one donor, no copies")

    def metadata(self, id_: str) -> report.Row:
        value = drills.metadata(self.scale, self.place())
        sealed = drills.metadata(self.scale, self.place(), seal=True)
        return row(
            id_,
            value,
            value <= 21,
            f"{sealed:.2f} with seals in place of sums. As the core counts what it has allocated: "
            f"descriptors, sums or seals, extents; {4 * self.scale.budget >> 20} MiB, all of it "
            f"with {COPIES}",
        )

    def kernel(self, id_: str) -> report.Row:
        d, _ = self.in_vm()
        quiet, after = (", ".join(f"{way} {getattr(h, part)}" for way, h in d.hits.items())
                        for part in ("stops_before", "stops"))  # fmt: skip
        bad = d.lost_bytes + d.wrong_bytes
        return row(
            id_,
            bad,
            bad == 0 and d.more_stops <= 0,
            f"{d.ops} accesses of two threads, each checked in full, {d.filled_bytes >> 20} MiB "
            f"copied again. Accesses that took longer than 1 s, in {d.window_s:.0f} s before: "
            f"{quiet}; in as many after: {after}; the longest of all, also while the "
            f"file was first written, {d.longest_s:.2f} s. {COPIES}, 16 "
            "MiB, a quarter direct, four donors over TCP in the clear, each in a network of its "
            "own; the busiest is cut off, then another stopped, then another killed, each when "
            "nothing is exposed. The VM's processors, its clock's ticks with them, are emulated "
            "in software on two processors of this host: threads stand also when nothing is wrong",
            dataclasses.asdict(d),
        )

    def hostd(self, id_: str) -> report.Row:
        _, r = self.in_vm()
        bad = r.lost_bytes + r.wrong_bytes
        return row(
            id_,
            bad,
            bad == 0,
            f"{len(kernel_drill.AWAYS_S)} kills, the last time away for "
            f"{kernel_drill.AWAYS_S[-1]:.0f} s; {r.ops} accesses of two threads, each checked in "
            f"full. Accesses that took longer than 1 s: {r.stops}, in quiet times before "
            f"{r.stops_before}; the longest of all {r.longest_s:.2f} s. redundancy = none, two "
            "donors over TCP in the clear; the VM of kernel-kill",
            dataclasses.asdict(r),
        )

    def flips(self, id_: str) -> report.Row:
        f = drills.flips(self.scale, self.place())
        return row(
            id_,
            f.seen,
            not (f.seen or f.lost) and f.noticed > 0,
            f"{f.noticed} pages came back wrong, and each was read from the other donor; {f.lost} "
            f"lost; every touch checks its page, and the first wrong one ends the run. Changed in "
            f"one donor's memory: bits of {f.changed['flip']} pages, {f.changed['swap']} pages "
            f"that got another's bytes, {f.changed['replay']} that got those of before. {COPIES}, "
            "two donors over TCP in the clear, half writes",
            dataclasses.asdict(f),
        )


def measures(
    build: Path, repeat: int, tiny: bool, folder: Path
) -> dict[str, Callable[[], report.Row]]:
    """By id; a row that fails says why, and the others go on."""
    bench = Bench(Scale(build, repeat, tiny), folder)
    by_id = {
        "kill-sigkill": bench.kill,
        "kill-sigstop": bench.kill,
        "kill-link": bench.kill,
        "kill-gap": bench.gap,
        "kill-twice": bench.twice,
        "disk-all": bench.disk,
        "disk-swap": bench.disk_swap,
        "evict-1s": bench.evict,
        "restart-donor": bench.restart,
        "restart-hostd": bench.hostd,
        "rebuild": bench.rebuild,
        "read-cost": bench.reads,
        "write-cost": bench.writes,
        "sum-cost": bench.sums,
        "seal-cost": bench.seal,
        "metadata": bench.metadata,
        "kernel-kill": bench.kernel,
        "flips": bench.flips,
    }

    def attempt(id_: str) -> report.Row:
        try:
            return by_id[id_](id_)
        except (host.BenchError, OSError) as e:
            return row(id_, None, False, f"not measured: {e}")

    return {id_: functools.partial(attempt, id_) for id_ in ROWS}
