# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows: what each measures, and what it must be; a table for people, JSON for others.

The form is that of the benchmarks (bench/dcmbench/report.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcmbench.report import Row

from tests.faults import mended, network, pressure, strangers, tenants
from tests.faults.cell import Cell
from tests.faults.place import Place

Try = Callable[[Place], list[Cell]]
NO_BYTES = "0 bytes lost or wrong"
ONE_S = "<= 1 s"


@dataclass(frozen=True)
class Fault:
    """A row. `host` and `vm` try it on this host and in L1; None: not there."""

    id: str
    what: str
    target: str
    host: Try | None = None
    vm: Try | None = None
    waits: bool = False  # mostly: another may run beside it
    starves: bool = False  # the VM, of memory: there nothing may run beside it
    quick: bool = False  # in `make test` too
    limit_s: float = 240.0
    worst: Callable[[list[float]], float] = max


def faults() -> dict[str, Fault]:
    """By id, in the order of the table."""
    rows = [
        Fault("flood", "6000 idle connections: seconds others wait", ONE_S,
              strangers.flood, quick=True),
        Fault("linger", "60 tenants send on after a refusal: gap of others' heartbeats", ONE_S,
              strangers.linger, quick=True),
        Fault("gc-quota", "a tenant takes all GC workers: bytes above its quota", "0",
              tenants.gc_quota, waits=True, quick=True),
        Fault("hostd-fuse", "files that never close: checks of dcm-hostd's socket that fail", "0",
              mended.fuse, waits=True),
        Fault("stderr-stuck", "nobody reads the log: seconds others wait", ONE_S,
              strangers.stderr_stuck, quick=True),
        Fault("fds", "a tenant takes all descriptors: seconds others wait", ONE_S,
              strangers.fds, quick=True),
        Fault("mapfixed", "mmap(MAP_FIXED) that fails: bytes changed", "0",
              mended.mapfixed, waits=True, quick=True),
        Fault("worker-order", "GC messages in no order: workers that die", "0",
              mended.disorder, waits=True, quick=True),
        Fault("slots-page", "40 connections hold the page: seconds the operator waits", ONE_S,
              strangers.page, quick=True),
        Fault("late-write", "a failed write lands late: bytes wrong", "0",
              mended.late_write, waits=True, quick=True),
        Fault("herd", "64 extents on equal donors: (most - 1) / mean", "<= 1.25",
              tenants.herd, quick=True),
        Fault("partition-30", "30 s without the network, both ways", NO_BYTES,
              network.partition, network.partition, waits=True),
        Fault("partition-oneway", "30 s in which donors are deaf, or mute", NO_BYTES,
              network.oneway, network.oneway, waits=True),
        Fault("pause-donor-30", "donors are stopped for 30 s", NO_BYTES,
              network.pause, network.pause, waits=True),
        Fault("loss-5pct", "5 % of packets lost, 100 ms, out of order", NO_BYTES,
              None, network.loss, waits=True),
        Fault("flap", "the network cut and healed 100 times at random", NO_BYTES,
              network.flap, network.flap, waits=True, limit_s=480.0),
        Fault("disk-full", "logs and state on a disk that is full", NO_BYTES,
              pressure.disk_full, pressure.disk_full, waits=True, quick=True),
        Fault("overcommit", "vm.overcommit_memory=2 at its limit", NO_BYTES,
              None, pressure.overcommit),
        Fault("tmpfs-full", "a donor's slabs find no page", NO_BYTES,
              pressure.tmpfs_full, waits=True, quick=True),
        Fault("pager-pressure", "libdcm's cgroup at its limit, its host without a page", NO_BYTES,
              pressure.pager_pressure, pressure.pager_starved, waits=True, starves=True),
        Fault("kernel-pressure-tcp", "dcmfs writes to sockets with no memory to be had", NO_BYTES,
              None, pressure.kernel_starved),
        Fault("tenant-fair", "beside a tenant at its worst: what is left of the half", ">= 0.7",
              tenants.fair, worst=min),
    ]  # fmt: skip
    return {row.id: row for row in rows}


def row(fault: Fault, cells: list[Cell]) -> Row:
    """All cells as one: the worst value; met if every cell is."""
    values = [cell.value for cell in cells if cell.value is not None]
    return Row(
        fault.id,
        fault.what,
        round(fault.worst(values), 3) if values else None,
        fault.target,
        bool(cells) and all(cell.ok for cell in cells),
        "; ".join(cell.text() for cell in cells) or "not tried",
    )


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """All rows as JSON, for other programs: the file is there whole, or not at all."""
    keys = ("id", "what", "value", "target", "ok", "detail")
    text = json.dumps([{key: getattr(row, key) for key in keys} for row in rows], indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
