# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of garbage collection on donors: the engine of GC workers, and donors with the host side."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import donors, host, report

# The ids of the table, in its order: what, target.
ROWS: dict[str, tuple[str, str]] = {
    "trace-25": (
        "tracing by a donor's worker against the mutator's side through the pager, 25 % direct",
        ">= 10 x",
    ),
    "trace-prefetch": (
        "tracing with all memory local against a plain queue-based tracer, CPU time",
        ">= 1.5 x",
    ),
    "trace-vs-jvm": ("tracing against a JVM's own marking of an equal graph, per core", ">= 1 x"),
    "mutator": ("mutator throughput while donors trace against no tracing", ">= 0.9 x"),
    "start-pause": ("pause to start a trace against copying what was dirtied", "<= 1.5 x"),
    "evacuate": (
        "evacuation of a 16 MiB region half live against memcpy() of its live bytes, CPU time",
        "<= 4 x; <= 5 % of the bytes over the network",
    ),
    "worker-memory": ("a worker's memory beside the slabs, of the space", "<= 2.5 %"),
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
LIMIT_S = 1200.0


def cpus() -> tuple[set[int] | None, set[int] | None]:
    """Those of the program and its pager, and those of donors: apart, if there are two."""
    mine = sorted(os.sched_getaffinity(0))
    return (set(mine[:-1]), {mine[-1]}) if len(mine) > 1 else (None, None)


def program(build: Path, *args: str | os.PathLike[str]) -> dict[str, Any]:
    """What bench/gc prints."""
    argv = [build / "bench" / "bin" / "gc", *args]
    return dict(host.run(argv, timeout=LIMIT_S).json())


@contextlib.contextmanager
def one_donor(build: Path) -> Iterator[tuple[Path, donors.Donor]]:
    """A folder for a while, and in it a donor on a core of its own."""
    with tempfile.TemporaryDirectory(prefix="dcm-bench-gc-") as name:
        folder = Path(name)
        options = {"slab-size": f"{SLAB_MIB}M", "capacity": "2G"}
        daemon = build / "bin" / "dcm-donord"
        with donors.donor(daemon, folder / "donor", cpus=cpus()[1], options=options) as donor:
            yield folder, donor


def with_libdcm(build: Path, runtime: Path) -> dict[str, str]:
    """The environment of programs that have a pager."""
    return {"LD_LIBRARY_PATH": os.fspath(build / "lib"), "DCM_RUNTIME_DIR": os.fspath(runtime)}


def on_donor(build: Path, mode: str, mib: int, budget: int, runs: int) -> dict[str, Any]:
    """What bench/gc_host prints: one donor over tcp, @budget MiB of its @mib direct."""
    with one_donor(build) as (folder, donor):
        config = donors.pager_config(
            folder / "vm.ini", donor.tcp, donor.keys, budget << 20, mib << 20
        )
        done = host.run(
            [build / "bench" / "bin" / "gc_host", mode, config, str(mib), str(runs)],
            timeout=LIMIT_S,
            cpus=cpus()[0],
            env=with_libdcm(build, folder / "run"),
        )
        return dict(done.json())


def row(name: str, value: float | None, ok: bool, detail: str) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    return report.Row(name, what, None if value is None else round(value, 3), target, ok, detail)


def trace_25(build: Path, repeat: int) -> report.Row:
    """From TRACE_START to its results, all in, against the plain tracer through the pager."""
    found = on_donor(build, "trace", TRACE_25_MIB, TRACE_25_MIB // 4, repeat)
    runs, objects, size = found["runs"], found["objects"], found["bytes"]
    donor = report.median([r["donor_ns"] for r in runs])
    value = report.median([r["plain_ns"] / r["donor_ns"] for r in runs])
    plain = report.median([r["plain_ns"] for r in runs])
    clean = report.median([r["clean_ns"] for r in runs])
    return row(
        "trace-25",
        value,
        value >= 10,
        f"{objects} objects, {size >> 20} MiB, {TRACE_25_MIB // 4} MiB direct, one donor, one "
        f"core: {donor / 1e6:.0f} ms from TRACE_START to the results "
        f"({size / donor * 1e3:.0f} MB/s, {objects / donor * 1e3:.2f} M objects/s), after CLEAN "
        f"of {clean / 1e6:.0f} ms; through the pager {plain / 1e9:.2f} s",
    )


def jvm_marking(log: str) -> list[float]:
    """Marking of each full collection in ns of CPU time: of its wall time what it was running."""
    mark = {n: float(ms) for n, ms in re.findall(r"GC\((\d+)\) Marking Phase ([\d.]+)ms", log)}
    found = []
    for n, user, system, real in re.findall(
        r"GC\((\d+)\) User=([\d.]+)s Sys=([\d.]+)s Real=([\d.]+)s", log
    ):
        if n in mark and float(real) > 0:
            running = min(1.0, (float(user) + float(system)) / float(real))
            found.append(mark[n] * 1e6 * running)
    return found


def trace_vs_jvm(build: Path, repeat: int) -> report.Row:
    """The same graph in a JVM; Parallel with one thread, all of its heap there from the start."""
    java, javac = shutil.which("java"), shutil.which("javac")
    if not java or not javac:
        return row("trace-vs-jvm", None, False, "no JDK: scripts/deps.sh bench")
    with tempfile.TemporaryDirectory(prefix="dcm-bench-gc-") as folder:
        graph = Path(folder) / "graph"
        objects = program(build, "dump", "256", graph)["objects"]
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
                str(repeat + 1),
            ],
            timeout=LIMIT_S,
        )
    log = done.output.decode(errors="replace")
    # the first one also moves everything to where it stays
    marking = jvm_marking(log)[1:]
    if done.status or not marking:
        raise host.BenchError(f"java: {done.error[-300:]}")
    engine = report.median(
        [program(build, "trace", "256", "1")["engine_ns"] for _ in range(repeat)]
    )
    jvm = report.median(marking)
    return row(
        "trace-vs-jvm",
        jvm / engine,
        jvm / engine >= 1,
        f"{objects} objects, one core each, CPU time: {engine / 1e6:.0f} ms; Parallel's marking "
        f"phase {jvm / 1e6:.0f} ms, compressed references, 4 KiB pages",
    )


def mutator(build: Path, repeat: int) -> report.Row:
    """While donors trace, to the results, in turn with as long without.

    What they need is brought to them before, while the program runs too: with that, and the pause,
    in the details.
    """
    found = on_donor(build, "mutator", MUTATOR_MIB, MUTATOR_MIB // 2, 4 * repeat)
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

    value = against_quiet("trace")
    parts = ("pause", "settle", "trace")
    pause, settle, trace = (report.median([r[f"{part}_ns"] for r in runs]) / 1e6 for part in parts)
    steps = report.median([r["quiet_ops"] / r["quiet_ns"] * 1e9 for r in runs])
    return row(
        "mutator",
        value,
        value >= 0.9,
        f"{MUTATOR_MIB} MiB, half direct, 99 of 100 accesses in a sixteenth: {steps:.0f} steps of "
        f"16 objects a second without, traces of {trace:.0f} ms with a barrier, of which the first "
        f"write to each page is a fault; with a pause of {pause:.1f} ms and {settle:.0f} ms until "
        f"donors have begun {against_quiet(*parts):.3f}",
    )


def start_pause(build: Path, repeat: int) -> report.Row:
    """After one second of writing a tenth a second; growth from nothing to that.

    With the barrier, as the program could not go on otherwise; without it in the details.
    """
    found = on_donor(build, "pause", PAUSE_MIB, PAUSE_MIB + PAUSE_MIB // 4, repeat)
    runs: list[dict[str, int]] = found["runs"]
    sizes = sorted({r["dirty"] for r in runs})

    def of(beside: bool, dirty: int, what: str) -> float:
        return report.median(
            [r[what] for r in runs if bool(r["beside"]) == beside and r["dirty"] == dirty]
        )

    def growth(beside: bool, what: str) -> str:
        return ", ".join(f"{of(beside, n, what) / 1e6:.2f}" for n in sizes)

    def ratio(beside: bool) -> float:
        most = [r for r in runs if bool(r["beside"]) == beside and r["dirty"] == sizes[-1]]
        return report.median([r["pause_ns"] / r["copy_ns"] for r in most])

    value = ratio(True)
    clean = report.median([r["clean_ns"] for r in runs]) / 1e6
    written = ", ".join(f"{n / 256:.1f}" for n in sizes)
    return row(
        "start-pause",
        value,
        value <= 1.5,
        f"{PAUSE_MIB} MiB direct, CLEAN of {clean:.0f} ms while a tenth was dirty; {written} MiB "
        f"written since: pause of {growth(True, 'pause_ns')} ms with a barrier, donors begin "
        f"{growth(True, 'begun_ns')} ms after it; without one it is the program that waits, "
        f"{growth(False, 'pause_ns')} ms ({ratio(False):.2f}); sending the most of them over TCP "
        f"on loopback takes {of(True, sizes[-1], 'copy_ns') / 1e6:.1f} ms",
    )


def trace_prefetch(build: Path, repeat: int) -> report.Row:
    """Medians of several runs, each the best of five turns."""
    runs = [program(build, "trace", "256", "1") for _ in range(repeat)]
    engine = report.median([r["engine_ns"] for r in runs])
    plain = report.median([r["plain_ns"] for r in runs])
    objects, size = runs[0]["objects"], runs[0]["bytes"]
    value = plain / engine
    huge = [program(build, "trace", "256", "1", "huge") for _ in range(repeat)]
    detail = (
        f"{objects} objects, {size >> 20} MiB, one thread: {engine / 1e6:.0f} ms "
        f"({size / engine * 1e3:.0f} MB/s, {objects / engine * 1e3:.1f} M objects/s), "
        f"plain {plain / 1e6:.0f} ms; with the heap of huge pages "
        f"{report.median([r['engine_ns'] for r in huge]) / 1e6:.0f} ms, plain "
        f"{report.median([r['plain_ns'] for r in huge]) / 1e6:.0f} ms"
    )
    return row("trace-prefetch", value, value >= 1.5, detail)


def evacuate(build: Path, repeat: int) -> report.Row:
    """Depth first, the default; breadth first in the details."""
    runs = [program(build, "evacuate", "16", "20") for _ in range(repeat)]
    depth = report.median([r["depth_ns"] for r in runs])
    breadth = report.median([r["breadth_ns"] for r in runs])
    copy = report.median([r["copy_ns"] for r in runs])
    once = report.median([r["memcpy_ns"] for r in runs])
    live = runs[0]["live"]
    crossed = (32 + 32 + 40 + 32 + runs[0]["answer"] + 40) / live
    value = depth / copy
    return row(
        "evacuate",
        value,
        value <= 4 and crossed <= 0.05,
        f"{live / 1e6:.1f} MB live in {runs[0]['objects']} objects: "
        f"{depth / 1e6:.2f} ms depth first, {breadth / 1e6:.2f} ms breadth first, "
        f"memcpy() of each stretch of them {copy / 1e6:.2f} ms, of as many bytes in one piece "
        f"{once / 1e6:.2f} ms; caches empty before each; request and answer are {crossed:.1%} of "
        "the bytes, "
        "the forward table stays on the donor",
    )


def worker_memory(build: Path) -> report.Row:
    """What the engine counts of its own tables, with two threads."""
    values = {mib: program(build, "memory", str(mib), "2") for mib in (256, 512)}
    shares = {mib: v["memory"] / v["space"] * 100 for mib, v in values.items()}
    value = max(shares.values())
    detail = ", ".join(
        f"{mib} MiB: {values[mib]['memory'] / 2**20:.2f} MiB, {share:.2f} %"
        for mib, share in shares.items()
    )
    return row("worker-memory", value, value <= 2.5, f"two threads; {detail}")


def worker_seconds(donor_pid: int) -> float:
    """CPU time of a donor's workers so far."""
    ticks = 0
    for pid in host.children(donor_pid)[1:]:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def neighbour(build: Path, repeat: int) -> report.Row:
    """The busy session rests and goes on in turn, so that nothing else differs."""
    here = cpus()[0]
    ratios, rates, shares = [], [], []
    with one_donor(build) as (folder, donor):
        configs = [
            donors.pager_config(
                folder / f"{name}.ini", donor.tcp, donor.keys, budget << 20, mib << 20
            )
            for name, budget, mib in (
                ("busy", BUSY_MIB // 4, BUSY_MIB),
                ("neighbour", NEIGHBOUR_MIB // 4, NEIGHBOUR_MIB),
            )
        ]
        tools = build / "bench" / "bin"

        def faults() -> float:
            pages = NEIGHBOUR_MIB << 8
            command = f"--pages {pages} --pattern rand --seconds 2 --warm {pages}"
            found = host.run(
                [tools / "access", *command.split(), "--pager", configs[1]],
                timeout=LIMIT_S,
                cpus=here,
                env=with_libdcm(build, folder / "neighbour"),
            ).json()
            return float(str(found["faults_per_s"]))

        with host.spawn(
            [tools / "gc_host", "busy", configs[0], str(BUSY_MIB), "1"],
            cpus=here,
            env=with_libdcm(build, folder / "busy"),
        ) as busy:
            try:
                assert busy.stdout
                if busy.stdout.readline() != b"busy\n":
                    raise host.BenchError("gc_host busy: no trace")
                for turn in range(2 * repeat):
                    found = {}
                    # what the machine does meanwhile is in both the same
                    for beside in (True, False) if turn % 2 else (False, True):
                        busy.send_signal(signal.SIGUSR2 if beside else signal.SIGUSR1)
                        begun, cpu = time.monotonic(), worker_seconds(donor.pid)
                        found[beside] = faults()
                        if beside:
                            cpu = worker_seconds(donor.pid) - cpu
                            shares.append(cpu / (time.monotonic() - begun))
                    ratios.append(found[True] / found[False])
                    rates.append(found[False])
                if busy.poll() is not None:
                    assert busy.stderr
                    raise host.BenchError(f"gc_host busy: {busy.stderr.read()[-300:]!r}")
            finally:
                host.kill_group(busy)
    value = report.median(ratios)
    return row(
        "neighbour",
        value,
        value >= 0.9,
        f"random accesses to {NEIGHBOUR_MIB} MiB, a quarter direct, over tcp: "
        f"{report.median(rates):.0f} faults a second without, when the core sleeps between "
        f"them; the other's traces of {BUSY_MIB} MiB had {report.median(shares):.0%} of the core",
    )


def rows(build: Path, repeat: int) -> list[report.Row]:
    """All rows of the table, in its order; one that fails says why, and the others go on."""
    measures: dict[str, Callable[[], report.Row]] = {
        "trace-25": lambda: trace_25(build, repeat),
        "trace-prefetch": lambda: trace_prefetch(build, repeat),
        "trace-vs-jvm": lambda: trace_vs_jvm(build, repeat),
        "mutator": lambda: mutator(build, repeat),
        "start-pause": lambda: start_pause(build, repeat),
        "evacuate": lambda: evacuate(build, repeat),
        "worker-memory": lambda: worker_memory(build),
        "neighbour": lambda: neighbour(build, repeat),
    }
    progress, found = report.Progress(), []
    for name in ROWS:
        progress.say(name)
        try:
            found.append(measures[name]())
        except host.BenchError as e:
            found.append(row(name, None, False, f"not measured: {e}"))
    return found
