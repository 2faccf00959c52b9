# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of garbage collection on donors: the engine of GC workers, and donors with the host side."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.framework.process import processor_seconds

from . import donors, host, report

# By id, in the table's order: description and target.
ROWS: dict[str, tuple[str, str]] = {
    "trace-25": (
        "CLEAN and tracing by a donor's worker against the mutator's side through the pager, "
        "25 % direct",
        ">= 10 x",
    ),
    "trace-prefetch": (
        "tracing with all memory local against a plain queue-based tracer, CPU time",
        ">= 1.5 x",
    ),
    "trace-vs-jvm": ("tracing against a JVM's own marking of an equal graph, per core", ">= 1 x"),
    "mutator": (
        "mutator throughput from TRACE_START to the trace's results against no tracing",
        ">= 0.9 x",
    ),
    "start-pause": (
        "the longest that a program stands still while a trace starts, with a barrier, against "
        "copying what was dirtied",
        "<= 1.5 x",
    ),
    "evacuate": (
        "evacuation of a 16 MiB region half live against memcpy() of its live bytes, CPU time",
        "<= 4 x; <= 5 % of the bytes over the network",
    ),
    "worker-memory": (
        "a worker's resident memory and page tables beside the slabs, of the space",
        "<= 2.5 %",
    ),
    "neighbour": (
        "faults a second of one session while another's worker never rests against while there "
        "is none, donor and worker on one core",
        ">= 0.9 x",
    ),
}
TRACE_25_MIB = 16
MUTATOR_MIB = 64
PAUSE_MIB = 256
BUSY_MIB = 64
NEIGHBOUR_MIB = 32
SLAB_MIB = 8
EVACUATE_MIB = 64
REGION_MIB = 16
LIMIT_S = 1200.0


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to measure. @tiny: sizes that only show that everything runs."""

    build: Path
    repeat: int
    tiny: bool = False

    def mib(self, full: int) -> int:
        return max(16, full // 8) if self.tiny else full


def cpus() -> tuple[set[int] | None, set[int] | None]:
    """The CPUs for a program with its pager, and those for donors; (None, None) with one CPU."""
    mine = sorted(os.sched_getaffinity(0))
    return (set(mine[:-1]), {mine[-1]}) if len(mine) > 1 else (None, None)


def program(build: Path, *args: str | os.PathLike[str]) -> dict[str, Any]:
    """Run bench/gc; return the figures that it prints."""
    argv = [build / "bench" / "bin" / "gc", *args]
    return dict(host.run(argv, timeout=LIMIT_S).json())


@contextlib.contextmanager
def one_donor(
    build: Path, *, slab_mib: int = SLAB_MIB, encrypt: bool = False, threads: int = 0
) -> Iterator[tuple[Path, donors.Donor]]:
    """Make a temporary folder, and run a donor in it, on a core of its own."""
    with tempfile.TemporaryDirectory(prefix="dcm-bench-gc-") as name:
        folder = Path(name)
        options = {
            "slab-size": f"{slab_mib}M",
            "capacity": "2G",
            "data-encryption": "yes" if encrypt else "no",
        }
        daemon = build / "bin" / "dcm-donord"
        with donors.donor(
            daemon,
            folder / "donor",
            cpus=cpus()[1],
            options=options,
            gc_options={"threads": threads},
        ) as donor:
            yield folder, donor


def with_libdcm(build: Path, runtime: Path) -> dict[str, str]:
    """The environment of programs that have a pager."""
    return {"LD_LIBRARY_PATH": os.fspath(build / "lib"), "DCM_RUNTIME_DIR": os.fspath(runtime)}


def on_donor(
    build: Path,
    mode: str,
    mib: int,
    budget: int,
    runs: int,
    *,
    slab_mib: int = SLAB_MIB,
    encrypt: bool = False,
) -> dict[str, Any]:
    """Run bench/gc_host on one donor over TCP, with @budget MiB of its @mib direct; its figures."""
    with one_donor(build, slab_mib=slab_mib, encrypt=encrypt) as (folder, donor):
        config = donors.pager_config(
            folder / "vm.ini",
            donor.tcp,
            donor.keys,
            budget << 20,
            mib << 20,
            encrypt=encrypt,
        )
        done = host.run(
            [build / "bench" / "bin" / "gc_host", mode, config, str(mib), str(runs)],
            timeout=LIMIT_S,
            cpus=cpus()[0],
            env=with_libdcm(build, folder / "run"),
        )
        return dict(done.json())


def row(
    name: str,
    value: float | None,
    ok: bool,
    detail: str,
    raw: Mapping[str, Any] | None = None,
) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    number = None if value is None else round(value, 3)
    return report.Row(name, what, number, target, ok, detail, raw or {})


def trace_25(s: Scale) -> report.Row:
    """Compare the whole time from CLEAN to the results with a plain tracer through the pager.

    A program may run during CLEAN, so a runtime that knows early that it will trace does not wait
    for CLEAN; others do. The row judges the longer time, with CLEAN.
    """
    mib = s.mib(TRACE_25_MIB)
    found = on_donor(s.build, "trace", mib, mib // 4, s.repeat)
    runs, objects, size = found["runs"], found["objects"], found["bytes"]
    donor = report.median([r["donor_ns"] for r in runs])
    value = report.median([r["plain_ns"] / (r["clean_ns"] + r["donor_ns"]) for r in runs])
    alone = report.median([r["plain_ns"] / r["donor_ns"] for r in runs])
    plain = report.median([r["plain_ns"] for r in runs])
    clean = report.median([r["clean_ns"] for r in runs])
    cleans = ", ".join(f"{r['clean_ns'] / 1e6:.0f}" for r in runs)
    return row(
        "trace-25",
        value,
        value >= 10,
        f"Timed: CLEAN, then TRACE_START to the results: {clean / 1e6:.0f} + {donor / 1e6:.0f} ms "
        f"({size / donor * 1e3:.0f} MB/s, {objects / donor * 1e3:.2f} M objects/s); the plain "
        f"tracer through the pager {plain / 1e9:.2f} s. Without CLEAN, which a program may run "
        f"beside, {alone:.0f} x. CLEAN of each run: {cleans} ms: the first writes all that was "
        f"written, later ones only what was written since. Not timed: filling the heap. {objects} "
        f"objects, {size >> 20} MiB, {mib // 4} MiB direct, one donor over TCP in the clear, one "
        "core",
        {"runs": runs, "value_without_clean": round(alone, 3)},
    )


def jvm_marking(log: str) -> list[float]:
    """The CPU time of marking in each full collection, in ns, estimated from its wall time."""
    mark = {n: float(ms) for n, ms in re.findall(r"GC\((\d+)\) Marking Phase ([\d.]+)ms", log)}
    found = []
    for n, user, system, real in re.findall(
        r"GC\((\d+)\) User=([\d.]+)s Sys=([\d.]+)s Real=([\d.]+)s", log
    ):
        if n in mark and float(real) > 0:
            running = min(1.0, (float(user) + float(system)) / float(real))
            found.append(mark[n] * 1e6 * running)
    return found


def trace_vs_jvm(s: Scale) -> report.Row:
    """Trace the same graph in a JVM: Parallel GC with one thread, its whole heap touched before."""
    java, javac = shutil.which("java"), shutil.which("javac")
    if not java or not javac:
        return row("trace-vs-jvm", None, False, "no JDK: scripts/deps.sh bench")
    with tempfile.TemporaryDirectory(prefix="dcm-bench-gc-") as folder:
        graph = Path(folder) / "graph"
        mib = str(s.mib(256))
        objects = program(s.build, "dump", mib, graph)["objects"]
        source = Path(__file__).resolve().parent.parent / "GcGraph.java"
        made = host.run([javac, "-d", folder, source], timeout=LIMIT_S)
        if made.status:
            raise host.BenchError(f"javac: {made.error[-300:]}")
        done = host.run(
            [
                java,
                "-Xms1536m",
                "-Xmx1536m",
                "-XX:+AlwaysPreTouch",
                "-XX:+UseParallelGC",
                "-XX:ParallelGCThreads=1",
                "-Xlog:gc+phases,gc+cpu",
                "-cp",
                folder,
                "GcGraph",
                graph,
                str(s.repeat + 1),
            ],
            timeout=LIMIT_S,
        )
    log = done.output.decode(errors="replace")
    # drop the first, which also moves all objects to their final places
    marking = jvm_marking(log)[1:]
    if done.status or not marking:
        raise host.BenchError(f"java: {done.error[-300:]}")
    engine = report.median(
        [program(s.build, "trace", mib, "1")["engine_ns"] for _ in range(s.repeat)]
    )
    jvm = report.median(marking)
    return row(
        "trace-vs-jvm",
        jvm / engine,
        jvm / engine >= 1,
        f"{objects} objects, one core each, CPU time: {engine / 1e6:.0f} ms; Parallel's marking "
        f"phase {jvm / 1e6:.0f} ms, compressed references, 4 KiB pages",
    )


def mutator(s: Scale) -> report.Row:
    """The program's speed from TRACE_START to the results, over its speed without a trace.

    Periods with and without a trace alternate. A trace period includes the pause, the time until
    donors have begun, in which written pages are sent to them, and the trace. The details also
    have the value for the trace alone.
    """
    mib = s.mib(MUTATOR_MIB)
    found = on_donor(s.build, "mutator", mib, mib // 2, 4 * s.repeat)
    runs = found["runs"][1:]

    def against_quiet(*parts: str) -> float:
        return report.median(
            [
                sum(r.get(f"{part}_ops", 0) for part in parts)
                / sum(r[f"{part}_ns"] for part in parts)
                * r["quiet_ns"]
                / max(r["quiet_ops"], 1)
                for r in runs
            ]
        )

    parts = ("pause", "sync", "trace")
    value, alone = against_quiet(*parts), against_quiet("trace")
    pause, sync, trace = (report.median([r[f"{part}_ns"] for r in runs]) / 1e6 for part in parts)
    steps = report.median([r["quiet_ops"] / r["quiet_ns"] * 1e9 for r in runs])
    return row(
        "mutator",
        value,
        value >= 0.9,
        f"Timed: the pause of {pause:.1f} ms, in which the program stands still, {sync:.0f} ms "
        f"until donors have begun, and the trace of {trace:.0f} ms to its results. The trace alone "
        f"{alone:.3f}. Not timed: CLEAN, which is not asked for. {mib} MiB, half direct, 99 of 100 "
        f"accesses in a sixteenth, with a barrier: {steps:.0f} steps of 16 objects a second "
        "without tracing; the first write to each page of a trace is a fault; donor over TCP in "
        "the clear",
        {"runs": runs, "value_trace_alone": round(alone, 3)},
    )


def start_pause(s: Scale) -> report.Row:
    """The pause of TRACE_START after one second of writing a tenth of memory a second.

    The row judges how much the pause grows from nothing written to that. With a barrier, the
    program stands still in the pause, and later whenever it uses a page that is being sent; the
    longest of these stops counts. Without a barrier, it stands still until all is sent.
    """
    mib = s.mib(PAUSE_MIB)
    found = on_donor(s.build, "pause", mib, mib + mib // 4, s.repeat)
    runs: list[dict[str, int]] = found["runs"]
    sizes = sorted({r["dirty"] for r in runs})
    for r in runs:
        r["felt_ns"] = max(r["pause_ns"], r["gap_ns"])

    def of(beside: bool, dirty: int, what: str) -> float:
        return report.median(
            [r[what] for r in runs if bool(r["beside"]) == beside and r["dirty"] == dirty]
        )

    def growth(beside: bool, what: str) -> str:
        return ", ".join(f"{of(beside, n, what) / 1e6:.2f}" for n in sizes)

    def ratio(beside: bool, what: str) -> float:
        most = [r for r in runs if bool(r["beside"]) == beside and r["dirty"] == sizes[-1]]
        return report.median([r[what] / r["copy_ns"] for r in most])

    value, alone, waits = ratio(True, "felt_ns"), ratio(True, "pause_ns"), ratio(False, "pause_ns")
    clean = report.median([r["clean_ns"] for r in runs]) / 1e6
    written = ", ".join(f"{n / 256:.1f}" for n in sizes)
    pauses = {
        name: [round(of(beside, n, what) / 1e6, 3) for n in sizes]
        for name, beside, what in (
            ("pause, with a barrier", True, "pause_ns"),
            ("longest stop, with a barrier", True, "felt_ns"),
            ("longest stop, no trace", True, "quiet_gap_ns"),
            ("pause, without a barrier", False, "pause_ns"),
        )
    }
    pauses["copying what was written"] = [
        round(of(True, n, "copy_ns") / 1e6, 3) if n else 0.0 for n in sizes
    ]
    return row(
        "start-pause",
        value,
        value <= 1.5,
        f"Timed: the longer of the pause of TRACE_START and the longest time that a program that "
        f"runs until donors have begun takes for a step of 16 accesses. {mib} MiB direct; "
        f"{written} MiB written since CLEAN: {growth(True, 'felt_ns')} ms, of which the pause "
        f"alone {growth(True, 'pause_ns')} ms ({alone:.3f} x); the longest step while nothing is "
        f"traced {growth(True, 'quiet_gap_ns')} ms. Donors begin {growth(True, 'begun_ns')} ms "
        f"after the pause. Without a barrier the program stands still until they have: "
        f"{growth(False, 'pause_ns')} ms ({waits:.2f} x). Sending the most of these over TCP on "
        f"loopback takes {of(True, sizes[-1], 'copy_ns') / 1e6:.1f} ms. Not timed: CLEAN, of "
        f"{clean:.0f} ms while a tenth was dirty, beside which a program may run",
        {
            "written_mib": [round(n / 256, 2) for n in sizes],
            "pauses_ms": pauses,
            "value_pause_alone": round(alone, 3),
            "value_without_barrier": round(waits, 3),
        },
    )


def trace_prefetch(s: Scale) -> report.Row:
    """Compare the engine with the plain tracer: medians of runs, each the best of five turns."""
    mib = str(s.mib(256))
    runs = [program(s.build, "trace", mib, "1") for _ in range(s.repeat)]
    engine = report.median([r["engine_ns"] for r in runs])
    plain = report.median([r["plain_ns"] for r in runs])
    objects, size = runs[0]["objects"], runs[0]["bytes"]
    value = plain / engine
    huge = [program(s.build, "trace", mib, "1", "huge") for _ in range(s.repeat)]
    detail = (
        f"{objects} objects, {size >> 20} MiB, one thread: {engine / 1e6:.0f} ms "
        f"({size / engine * 1e3:.0f} MB/s, {objects / engine * 1e3:.1f} M objects/s), "
        f"plain {plain / 1e6:.0f} ms; with the heap of huge pages "
        f"{report.median([r['engine_ns'] for r in huge]) / 1e6:.0f} ms, plain "
        f"{report.median([r['plain_ns'] for r in huge]) / 1e6:.0f} ms"
    )
    return row("trace-prefetch", value, value >= 1.5, detail)


def evacuate(s: Scale) -> report.Row:
    """Measure the engine's CPU time, and with a real donor the bytes of EVACUATE on the network.

    The donor is reached over the loopback of a network namespace of its own: the kernel's count of
    all bytes on it during the request is used. The to-region and its table are zero before.
    """
    runs = [program(s.build, "evacuate", str(REGION_MIB), "20") for _ in range(s.repeat)]
    depth = report.median([r["depth_ns"] for r in runs])
    breadth = report.median([r["breadth_ns"] for r in runs])
    copy = report.median([r["copy_ns"] for r in runs])
    once = report.median([r["memcpy_ns"] for r in runs])
    live = runs[0]["live"]
    whole: dict[str, dict[str, Any]] = {}
    with host.own_network():
        for way in ("tcp", "tls"):
            whole[way] = on_donor(
                s.build,
                "evacuate",
                EVACUATE_MIB,
                2 * EVACUATE_MIB,
                1 + s.repeat,
                slab_mib=REGION_MIB,
                encrypt=way == "tls",
            )

    def share(way: str, what: str) -> list[float]:
        return [r[what] / r["live"] for r in whole[way]["runs"]]

    crossed = max(max(share(way, "network_bytes")) for way in whole)
    texts = []
    for way, found in whole.items():
        first, *later = share(way, "network_bytes")
        ms = report.median([r["evacuate_ns"] for r in found["runs"]]) / 1e6
        written = report.median([r["written_bytes"] for r in found["runs"]])
        table = found["runs"][0]["table_bytes"]
        traced = report.median([r["trace_bytes"] for r in found["runs"]])
        texts.append(
            f"{way}: {first:.1%} of the live bytes into a region never used, "
            f"{report.median(later):.1%} into one used before, of which the host wrote back "
            f"{written / found['runs'][0]['live']:.1%}; {ms:.1f} ms by the host's clock; its "
            f"trace {traced / 1e3:.1f} kB; idle {found['idle_per_s'] / 1e3:.1f} kB/s; forward "
            f"table {table / 1e6:.2f} MB, which stays on the donor"
        )
    value = depth / copy
    return row(
        "evacuate",
        value,
        value <= 4 and crossed <= 0.05,
        f"Timed: the engine alone, CPU time. {live / 1e6:.1f} MB live in {runs[0]['objects']} "
        f"objects: {depth / 1e6:.2f} ms depth first, {breadth / 1e6:.2f} ms breadth first, "
        f"memcpy() of each stretch of them {copy / 1e6:.2f} ms, of as many bytes in one piece "
        f"{once / 1e6:.2f} ms; caches empty before each. Over the network during EVACUATE with a "
        f"real donor, all of loopback's bytes (write-backs, request, answer, TCP's and IP's own), "
        f"at most {crossed:.1%}. " + "; ".join(texts),
        {"network": whole, "engine": runs},
    )


def worker_memory(s: Scale) -> report.Row:
    """Measure a worker's memory by the kernel's count, while two threads trace again and again."""
    found: dict[int, tuple[int, int]] = {}
    for mib in (s.mib(256), s.mib(512)):
        with one_donor(s.build, slab_mib=REGION_MIB, threads=2) as (folder, donor):
            config = donors.pager_config(
                folder / "vm.ini", donor.tcp, donor.keys, (mib + mib // 4) << 20, mib << 20
            )
            with busy(s.build, config, mib, folder / "run", 1):
                worker = host.children(donor.pid)[1:]
                if len(worker) != 1:
                    raise host.BenchError(f"{len(worker)} processes are the donor's, not one")
                most, until = (0, 0), time.monotonic() + (1 if s.tiny else 8)
                while time.monotonic() < until:
                    most = max(most, host.resident_beside(worker[0], "/memfd:dcm-slab"))
                    time.sleep(0.01)
                found[mib] = most
    if not all(rss for rss, _ in found.values()):
        raise host.BenchError("the worker ended")
    shares = {mib: sum(most) / (mib << 20) * 100 for mib, most in found.items()}
    # Two sizes give the part that grows with the space, and the constant part of each worker.
    (small, less), (large, more) = found.items()
    slope = (sum(more) - sum(less)) / ((large - small) << 20)
    base = sum(less) - slope * (small << 20)
    value = max(shares.values())
    detail = ", ".join(
        f"{mib} MiB: {rss / 2**20:.2f} MiB and {tables / 2**20:.2f} MiB, {shares[mib]:.2f} %"
        for mib, (rss, tables) in found.items()
    )
    return row(
        "worker-memory",
        value,
        value <= 2.5,
        f"the most seen while it traced again and again: the kernel's Rss of every mapping that "
        f"is no slab, the worker's program and libraries too, and its page tables, those of the "
        f"slabs too; two threads; {detail}. That is {slope * 100:.2f} % of the space and "
        f"{base / 2**20:.2f} MiB",
        {"bytes": {str(mib): sum(most) for mib, most in found.items()}},
    )


def worker_seconds(donor_pid: int) -> float:
    """CPU time of a donor's workers so far."""
    return sum(processor_seconds(pid) for pid in host.children(donor_pid)[1:])


@contextlib.contextmanager
def busy(
    build: Path, config: Path, mib: int, runtime: Path, runs: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a session whose worker traces without a rest; the block begins after its first trace."""
    argv: list[str | os.PathLike[str]] = [build / "bench/bin/gc_host", "busy", config]
    with host.spawn(
        [*argv, str(mib), str(runs)], cpus=cpus()[0], env=with_libdcm(build, runtime)
    ) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != b"busy\n":
                raise host.BenchError("gc_host busy: no trace")
            yield process
            if process.poll() is not None:
                assert process.stderr
                raise host.BenchError(f"gc_host busy: {process.stderr.read()[-300:]!r}")
        finally:
            host.kill_group(process)


def neighbour(s: Scale) -> report.Row:
    """Compare a session's speed while another session is busy with its speed while that rests.

    The other session rests and goes on in turn, so that nothing else differs.
    """
    ratios, rates, shares = [], [], []
    with one_donor(s.build) as (folder, donor):
        configs = [
            donors.pager_config(
                folder / f"{name}.ini", donor.tcp, donor.keys, budget << 20, mib << 20
            )
            for name, budget, mib in (
                ("busy", BUSY_MIB // 4, BUSY_MIB),
                ("neighbour", NEIGHBOUR_MIB // 4, NEIGHBOUR_MIB),
            )
        ]

        def faults() -> float:
            pages = NEIGHBOUR_MIB << 8
            seconds = 0.3 if s.tiny else 2
            command = f"--pages {pages} --pattern rand --seconds {seconds} --warm {pages}"
            found = host.run(
                [s.build / "bench/bin/access", *command.split(), "--pager", configs[1]],
                timeout=LIMIT_S,
                cpus=cpus()[0],
                env=with_libdcm(s.build, folder / "neighbour"),
            ).json()
            return float(str(found["faults_per_s"]))

        with busy(s.build, configs[0], BUSY_MIB, folder / "busy", 1) as other:
            for turn in range(2 * s.repeat):
                found = {}
                # alternate the order, so that other work of the machine affects both alike
                for beside in (True, False) if turn % 2 else (False, True):
                    other.send_signal(signal.SIGUSR2 if beside else signal.SIGUSR1)
                    begun, cpu = time.monotonic(), worker_seconds(donor.pid)
                    found[beside] = faults()
                    if beside:
                        cpu = worker_seconds(donor.pid) - cpu
                        shares.append(cpu / (time.monotonic() - begun))
                ratios.append(found[True] / found[False])
                rates.append(found[False])
    value = report.median(ratios)
    return row(
        "neighbour",
        value,
        value >= 0.9,
        f"random accesses to {NEIGHBOUR_MIB} MiB, a quarter direct, over tcp: "
        f"{report.median(rates):.0f} faults a second without, when the core sleeps between "
        f"them; the other's traces of {BUSY_MIB} MiB had {report.median(shares):.0%} of the core",
    )


def measures(s: Scale) -> dict[str, Callable[[], report.Row]]:
    """The functions that measure rows, by id. If one fails, its row says why; others go on."""
    found: dict[str, Callable[[Scale], report.Row]] = {
        "trace-25": trace_25,
        "trace-prefetch": trace_prefetch,
        "trace-vs-jvm": trace_vs_jvm,
        "mutator": mutator,
        "start-pause": start_pause,
        "evacuate": evacuate,
        "worker-memory": worker_memory,
        "neighbour": neighbour,
    }

    def attempt(name: str) -> Callable[[], report.Row]:
        def once() -> report.Row:
            try:
                return found[name](s)
            except (host.BenchError, OSError) as e:
                return row(name, None, False, f"not measured: {e}")

        return once

    return {name: attempt(name) for name in found}
