# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of garbage collection on donors: what the engine of GC workers does and takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from . import report

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
}
WITHOUT_HOST = "the host side (libdcm's GC half) is not there yet"


def program(build: Path, *args: str) -> dict[str, Any]:
    """What bench/gc prints."""
    argv = [str(build / "bench" / "bin" / "gc"), *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return dict(json.loads(done.stdout))


def row(name: str, value: float | None, ok: bool, detail: str) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    return report.Row(name, what, None if value is None else round(value, 3), target, ok, detail)


def trace_prefetch(build: Path, repeat: int) -> report.Row:
    """Medians of several runs, each the best of five turns."""
    runs = [program(build, "trace", "256", "1") for _ in range(repeat)]
    engine = report.median([r["engine_ns"] for r in runs])
    plain = report.median([r["plain_ns"] for r in runs])
    objects, size = runs[0]["objects"], runs[0]["bytes"]
    value = plain / engine
    detail = (
        f"{objects} objects, {size >> 20} MiB, one thread: {engine / 1e6:.0f} ms "
        f"({size / engine * 1e3:.0f} MB/s, {objects / engine * 1e3:.1f} M objects/s), "
        f"plain {plain / 1e6:.0f} ms"
    )
    if value < 1.5:
        detail += (
            "; the engine checks every field, follows type descriptions and bounds its memory, "
            "which the plain tracer, made for this heap's four types, does not"
        )
    return row("trace-prefetch", value, value >= 1.5, detail)


def evacuate(build: Path, repeat: int) -> report.Row:
    """Depth first, the default; breadth first in the details."""
    runs = [program(build, "evacuate", "16", "20") for _ in range(repeat)]
    depth = report.median([r["depth_ns"] for r in runs])
    breadth = report.median([r["breadth_ns"] for r in runs])
    copy = report.median([r["memcpy_ns"] for r in runs])
    live = runs[0]["live"]
    crossed = (32 + 32 + 40 + 32 + runs[0]["answer"] + 40) / live
    value = depth / copy
    return row(
        "evacuate",
        value,
        value <= 4 and crossed <= 0.05,
        f"{live / 1e6:.1f} MB live in {runs[0]['objects']} objects: "
        f"{depth / 1e6:.2f} ms depth first, {breadth / 1e6:.2f} ms breadth first, "
        f"memcpy() {copy / 1e6:.2f} ms; request and answer are {crossed:.1%} of the bytes, "
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


def rows(build: Path, repeat: int) -> list[report.Row]:
    """All rows of the table, in its order."""
    found = {
        "trace-prefetch": trace_prefetch(build, repeat),
        "evacuate": evacuate(build, repeat),
        "worker-memory": worker_memory(build),
    }
    return [
        found.get(name) or row(name, None, False, f"not measured: {WITHOUT_HOST}") for name in ROWS
    ]
