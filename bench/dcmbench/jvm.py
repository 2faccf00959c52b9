# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of our JVM: what its libjvm costs without the flag, and plain G1 with a heap on donors.

G1 collects by itself here: donors only keep pages. Timed is a process from its start to its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.jvm import support

from . import donors, gc, host, report

# The ids of the table, in its order: what, target.
ROWS: dict[str, tuple[str, str]] = {
    "off": ("the patched JVM without the flag against the stock one", "0.98 to 1.02 x"),
    "slowdown-50": ("plain G1, half of the heap direct, against all memory", "<= 1.15 x"),
    "slowdown-25": ("plain G1, a quarter of the heap direct, against all memory", "<= 1.5 x"),
}
MOST = {"slowdown-50": 1.15, "slowdown-25": 1.5}
SLAB_MIB = 16
LIMIT_S = 1200.0
ASK_S = 0.2  # between two questions to the pager


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to measure. @tiny: sizes that only show that everything runs."""

    build: Path
    repeat: int
    tiny: bool = False

    @property
    def heap_mib(self) -> int:
        return 96 if self.tiny else support.HEAP_MIB


@dataclasses.dataclass(frozen=True)
class Program:
    """A Java program that checks itself, or whose files are compared."""

    name: str
    args: tuple[str, ...]
    files: bool = False  # its answer is the files it makes, in the folder that it gets


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run: seconds from start to end, the answer, and what the pager has counted."""

    seconds: float
    cpu_s: float
    answer: str
    pager: Mapping[str, Any]
    age_s: float  # of the counts when the program had ended


def programs(s: Scale, source: Path) -> list[Program]:
    """Those of tests/jvm: one whose old generation changes all the time, and javac."""
    operations, methods = ("20000", 100) if s.tiny else ("600000", 1500)
    source.write_text(support.large_source(methods), encoding="utf-8")
    return [
        Program("churn", ("Churn", "24" if s.tiny else "110", operations, "11", "2", "3")),
        Program("javac", (*support.JAVAC, str(source)), files=True),
    ]


@contextlib.contextmanager
def two_donors(s: Scale, folder: Path) -> Iterator[list[donors.Donor]]:
    """Two donors on a core of their own, in the clear."""
    daemon, options = s.build / "bin" / "dcm-donord", {"slab-size": f"{SLAB_MIB}M"}
    cpus = gc.cpus()[1]
    with (
        donors.donor(daemon, folder / "a", cpus=cpus, options=options) as a,
        donors.donor(daemon, folder / "b", cpus=cpus, options=options, keys=a.keys) as b,
    ):
        yield [a, b]


def answer_of(program: Program, ran: host.Ran, out: Path) -> str:
    """What the program has said, or a hash of all that it has made."""
    if not program.files:
        return ran.output.decode(errors="replace").strip()
    made = hashlib.sha256()
    found = sorted(path for path in out.rglob("*") if path.is_file())
    for path in found:
        made.update(f"{path.relative_to(out)}\n".encode() + path.read_bytes())
    return f"{len(found)} files {made.hexdigest()[:16]}"


class Bench:
    """Our JVM beside the stock one, compiled programs, and runs of them."""

    def __init__(self, s: Scale, folder: Path) -> None:
        self.scale = s
        self.folder = folder
        self.jvm = support.Jvm(folder)
        self.programs = programs(s, folder / "Large.java")

    def run(self, program: Program, *flags: str, ours: bool, paged: bool = False) -> Outcome:
        """Run it once, with what the pager counted; its answer must be there."""
        out, runtime = self.folder / "out", self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        args = [*flags, "-XX:+UseG1GC", f"-Xmx{self.scale.heap_mib}m", *program.args]
        if program.files:
            args += ["-d", str(out)]
        sampler = donors.StatusSampler(runtime, ASK_S)
        sampler.start()
        try:
            ran = host.run(
                self.jvm.command(*args, ours=ours),
                timeout=LIMIT_S,
                cpus=gc.cpus()[0],
                env=gc.with_libdcm(self.scale.build, runtime),
            )
            age = time.monotonic() - sampler.when
        finally:
            pager = sampler.stop()
        if ran.timed_out:
            raise host.BenchError(f"{program.name} ran into its time limit")
        if ran.status:
            raise host.BenchError(f"{program.name}: status {ran.status}: {ran.error[-300:]}")
        if paged and not pager:
            raise host.BenchError(f"{program.name}: its pager was never asked how it is")
        answer = answer_of(program, ran, out)
        return Outcome(ran.seconds, ran.user + ran.system, answer, pager, age)

    def pair(
        self, program: Program, left: Callable[[], Outcome], right: Callable[[], Outcome]
    ) -> list[tuple[Outcome, Outcome]]:
        """Runs of both sides in turn, after one of each that does not count; equal answers."""
        found = []
        for turn in range(self.scale.repeat + 1):
            # What the machine does meanwhile is in both the same.
            if turn % 2:
                b, a = right(), left()
            else:
                a, b = left(), right()
            if a.answer != b.answer:
                raise host.BenchError(f"{program.name}: {a.answer} is not {b.answer}")
            found.append((a, b))
        return found[1:]


def ratio(runs: Sequence[tuple[Outcome, Outcome]]) -> float:
    """The median of the times of each pair, the left one's over the right one's."""
    return report.median([a.seconds / b.seconds for a, b in runs])


def raw(runs: Sequence[tuple[Outcome, Outcome]]) -> list[dict[str, Any]]:
    """What a row keeps of its runs."""
    return [
        {
            "seconds": a.seconds,
            "cpu_s": a.cpu_s,
            "pager": counts(a.pager),
            "age_s": a.age_s,
            "against": b.seconds,
        }
        for a, b in runs
    ]


def counts(pager: Mapping[str, Any]) -> dict[str, int]:
    """Faults, pages brought in and pages written back, as the pager counted them."""
    if not pager:
        return {}
    return {
        "faults": int(pager["faults"]["total"]),
        "fetched_pages": int(pager["fetched_bytes"]) >> 12,
        "written_pages": int(pager["written_bytes"]) >> 12,
    }


def row(
    name: str, value: float | None, ok: bool, detail: str, found: Mapping[str, Any] | None = None
) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    number = None if value is None else round(value, 3)
    return report.Row(name, what, number, target, ok, detail, found or {})


def off(b: Bench) -> report.Row:
    """Both JVMs with all of the heap in memory, in turn."""
    found, said = {}, []
    for program in b.programs:
        stock_run = functools.partial(b.run, program, ours=False)
        runs = b.pair(program, functools.partial(b.run, program, ours=True), stock_run)
        found[program.name] = runs
        stock = report.median([right.seconds for _, right in runs])
        said.append(f"{program.name} {ratio(runs):.3f} (stock {stock:.1f} s)")
    value = report.geomean([ratio(runs) for runs in found.values()])
    return row(
        "off",
        value,
        0.98 <= value <= 1.02,
        f"Timed: the process from its start to its end. {', '.join(said)}. G1, a heap of "
        f"{b.scale.heap_mib} MiB in memory, no donor; median of {b.scale.repeat} pairs, one after "
        "the other, geometric mean over the programs",
        {name: raw(runs) for name, runs in found.items()},
    )


def slowdown(b: Bench, name: str, share: int) -> report.Row:
    """Our JVM with its heap on donors against the stock one with all of it in memory, in turn."""
    found, said = {}, []
    for program in b.programs:
        with (
            tempfile.TemporaryDirectory(dir=b.folder) as place,
            two_donors(b.scale, Path(place)) as both,
        ):
            config = donors.pager_config(
                Path(place) / "vm.ini",
                [donor.tcp for donor in both],
                both[0].keys,
                b.scale.heap_mib * share // 100 << 20,
                2 * b.scale.heap_mib << 20,
            )
            flag = f"-XX:DonorHeap=dcm:{config}"
            paged = functools.partial(b.run, program, flag, ours=True, paged=True)
            runs = b.pair(program, paged, functools.partial(b.run, program, ours=False))
        found[program.name] = runs
        plain = report.median([right.seconds for _, right in runs])
        middle = {
            what: report.median([counts(left.pager)[what] for left, _ in runs])
            for what in ("faults", "fetched_pages", "written_pages")
        }
        said.append(
            f"{program.name} {ratio(runs):.2f} (all memory {plain:.1f} s; {middle['faults']:.0f} "
            f"faults, {middle['fetched_pages']:.0f} pages brought in, "
            f"{middle['written_pages']:.0f} written)"
        )
    value = report.geomean([ratio(runs) for runs in found.values()])
    oldest = max(left.age_s for runs in found.values() for left, _ in runs)
    return row(
        name,
        value,
        value <= MOST[name],
        f"Timed: the process from its start to its end. {', '.join(said)}. All memory: the stock "
        f"JVM. A heap of {b.scale.heap_mib} MiB, {share} % of it direct; two donors over TCP in "
        "the clear, on a CPU beside that of the program and its pager. The counts are the "
        f"pager's, at most {oldest:.1f} s before the end; medians of {b.scale.repeat} pairs, one "
        "after the other, geometric mean over the programs. Donors trace nothing here",
        {program: raw(runs) for program, runs in found.items()},
    )


def measures(
    build: Path, repeat: int, tiny: bool, folder: Path
) -> dict[str, Callable[[], report.Row]]:
    """By id; a row that fails says why, and the others go on."""
    s = Scale(build, repeat, tiny)
    made: list[Bench] = []

    def attempt(name: str) -> report.Row:
        if why := support.missing():
            return row(name, None, False, f"not measured: {why}")
        try:
            if not made:
                made.append(Bench(s, folder))
            if name == "off":
                return off(made[0])
            return slowdown(made[0], name, int(name.rpartition("-")[2]))
        except (host.BenchError, OSError) as e:
            return row(name, None, False, f"not measured: {e}")

    return {name: functools.partial(attempt, name) for name in ROWS}
