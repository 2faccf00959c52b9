# SPDX-License-Identifier: GPL-2.0-or-later
"""Java programs for comparing our JVM with the stock one, their donors, and runs of them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.jvm import real, support

from . import donors, gc, host, pauses

SLAB_MIB = 16
LIMIT_S = 1200.0
ASK_S = 0.2  # interval between two status requests to the pager


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to measure.

    @tiny: sizes that only show that everything runs. @large_mib: a heap larger than usual, or 0.
    """

    build: Path
    repeat: int
    tiny: bool = False
    large_mib: int = 0

    @property
    def heap_mib(self) -> int:
        return self.large_mib or (96 if self.tiny else support.HEAP_MIB)


@dataclasses.dataclass(frozen=True)
class Program:
    """A Java program that checks its results itself, or whose output files are compared."""

    name: str
    args: tuple[str, ...]
    files: bool = False  # its answer is the files that it makes in the folder it gets


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run: seconds from start to end, the answer, and the pager's counters."""

    seconds: float
    cpu_s: float
    rss: int  # its peak, in bytes
    answer: str
    pager: Mapping[str, Any]
    age_s: float  # age of the pager's counters at the program's end
    pauses: Sequence[pauses.Pause]
    workers_s: float  # CPU time of donors' GC workers meanwhile


def programs(s: Scale, source: Path) -> list[Program]:
    """The programs of tests/jvm: one whose old generation changes all the time, and real ones."""
    operations, methods = ("20000", 100) if s.tiny else ("600000", 1500)
    source.write_text(support.large_source(methods), encoding="utf-8")
    return [
        Program("churn", ("Churn", "24" if s.tiny else "110", operations, "11", "2", "3")),
        Program("javac", (*support.JAVAC, str(source)), files=True),
        *(
            Program(one.name.lower(), (one.name, *(one.tiny if s.tiny else one.args)))
            for one in real.PROGRAMS
        ),
    ]


@contextlib.contextmanager
def two_donors(s: Scale, folder: Path) -> Iterator[list[donors.Donor]]:
    """Run two donors on a core of their own, without encryption."""
    daemon, options = s.build / "bin" / "dcm-donord", {"slab-size": f"{SLAB_MIB}M"}
    cpus = gc.cpus()[1]
    with (
        donors.donor(daemon, folder / "a", cpus=cpus, options=options) as a,
        donors.donor(daemon, folder / "b", cpus=cpus, options=options, keys=a.keys) as b,
    ):
        yield [a, b]


def answer_of(program: Program, ran: host.Ran, out: Path) -> str:
    """The program's output, or a hash of all files that it has made."""
    if not program.files:
        return ran.output.decode(errors="replace").strip()
    made = hashlib.sha256()
    found = sorted(path for path in out.rglob("*") if path.is_file())
    for path in found:
        made.update(f"{path.relative_to(out)}\n".encode() + path.read_bytes())
    return f"{len(found)} files {made.hexdigest()[:16]}"


class Bench:
    """Both JVMs and the compiled programs; runs them."""

    def __init__(self, s: Scale, folder: Path) -> None:
        self.scale = s
        self.folder = folder
        self.jvm = support.Jvm(folder)
        real.compile_programs(self.jvm.home / "bin" / "javac", self.jvm.classes)
        self.programs = programs(s, folder / "Large.java")

    def with_heap(self, mib: int) -> Bench:
        """This bench with a larger heap."""
        other = copy.copy(self)
        other.scale = dataclasses.replace(self.scale, large_mib=mib)
        return other

    def run(
        self,
        program: Program,
        *flags: str,
        ours: bool,
        on: Sequence[donors.Donor] = (),
        cgroup: host.Cgroup | None = None,
        limit_s: float = LIMIT_S,
        collector: str = "G1",
    ) -> Outcome:
        """Run a program once. @on: the donors of its heap; (): all of the heap is in memory."""
        out, runtime, log = self.folder / "out", self.folder / "run", self.folder / "gc.log"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        log.unlink(missing_ok=True)
        args = [*flags, "-cp", real.class_path(self.jvm.classes), f"-XX:+Use{collector}GC"]
        args += [f"-Xmx{self.scale.heap_mib}m", pauses.flag(log), *program.args]
        if program.files:
            args += ["-d", str(out)]
        worked = sum(donors.gc_seconds(one) for one in on)
        sampler = donors.StatusSampler(runtime, ASK_S)
        sampler.start()
        try:
            ran = host.run(
                self.jvm.command(*args, ours=ours),
                timeout=limit_s,
                cpus=gc.cpus()[0],
                cgroup=cgroup,
                env=gc.with_libdcm(self.scale.build, runtime),
            )
            age = time.monotonic() - sampler.when
        finally:
            pager = sampler.stop()
        if ran.timed_out:
            raise host.BenchError(f"{program.name} ran into its time limit")
        if ran.status:
            raise host.BenchError(f"{program.name}: status {ran.status}: {ran.error[-300:]}")
        if on and not pager:
            raise host.BenchError(f"{program.name}: its pager was never asked how it is")
        answer = answer_of(program, ran, out)
        return Outcome(
            ran.seconds,
            ran.user + ran.system,
            ran.maxrss,
            answer,
            pager,
            age,
            pauses.read(log),
            sum(donors.gc_seconds(one) for one in on) - worked,
        )


def counts(pager: Mapping[str, Any]) -> dict[str, int]:
    """The pager's counts of faults, fetched pages and written pages; {} without a status."""
    if not pager:
        return {}
    return {
        "faults": int(pager["faults"]["total"]),
        "fetched_pages": int(pager["fetched_bytes"]) >> 12,
        "written_pages": int(pager["written_bytes"]) >> 12,
    }


def pager_config(s: Scale, folder: Path, both: list[donors.Donor], share: int) -> Path:
    """A libdcm configuration for a heap of which `share` percent are direct."""
    return donors.pager_config(
        folder / "vm.ini",
        [donor.tcp for donor in both],
        both[0].keys,
        s.heap_mib * share // 100 << 20,
        2 * s.heap_mib << 20,
    )
