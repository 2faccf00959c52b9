# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows in processes of their own, two at a time where they mostly wait, and what they leave behind.

A row that takes too long is ended with all that it started, and says what it waited for. What a
row leaves, processes, namespaces, mounts or cgroups, makes it a row that is not met.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import cgroup, net, stuck
from tests.faults.cell import PATIENCE, Cell, unknown
from tests.framework import leftovers
from tests.framework.orphan import no_orphan

if TYPE_CHECKING:  # the rest of the rows' code is none of the schedule's
    from tests.faults.table import Fault

BESIDE = 2  # rows that wait
QUICK_S = 60.0  # a row of `make test`


@dataclass
class Task:
    """A row, or several in the VM; its process writes cells by row into a file."""

    name: str
    command: list[str]
    waits: bool
    limit_s: float


@dataclass
class Outcome:
    """Cells by row; seconds by task; and what each task that took too long waited for."""

    cells: dict[str, list[Cell]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stood: dict[str, list[str]] = field(default_factory=dict)

    def end(self) -> str:
        """How long each took, and what those that took too long waited for."""
        lines = ["seconds: " + ", ".join(f"{name} {s:.0f}" for name, s in self.seconds.items())]
        for name, more in self.stood.items():
            lines += [f"{name} took too long:", *(f"    {line}" for line in more)]
        return "\n".join(lines)


def task(
    fault: Fault, command: Sequence[str], *, quick: bool = False, inside: bool = False
) -> Task:
    """A row here, or `inside` the VM; `command` is this program without it."""
    limit_s = min(fault.limit_s, QUICK_S) if quick else fault.limit_s
    waits = fault.waits and not (inside and fault.starves)
    return Task(fault.id, [*command, "--row", fault.id], waits, limit_s * PATIENCE)


@dataclass
class Running:
    """A task's process."""

    task: Task
    process: subprocess.Popen[bytes]
    scratch: Path
    run_id: str
    begun: float
    watch: leftovers.Watch


def begin(task: Task) -> Running:
    """Start it."""
    scratch = Path(tempfile.mkdtemp(prefix="dcm-f-", dir="/tmp"))
    scratch.chmod(0o755)
    run_id = f"faults-{os.getpid()}-{task.name}"
    env = {**os.environ, leftovers.RUN_VARIABLE: run_id, "TMPDIR": str(scratch)}
    # It ends, and what it started, even if this process is killed.
    process = subprocess.Popen(
        [*no_orphan("TERM"), *task.command, "--scratch", str(scratch)],
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Processes and files with these marks are this task's: another may run beside it.
    marks = (str(scratch), f"{net.PREFIX}{process.pid}-")
    watch = leftovers.Watch(run_id, marks, leftovers.Snapshot())
    return Running(task, process, scratch, run_id, time.monotonic(), watch)


def end(running: Running, *, late: bool = False) -> dict[str, list[Cell]]:
    """End a row, so that nothing of it is left; its results."""
    if running.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(20)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
    found: dict[str, list[Cell]] = {}
    with contextlib.suppress(OSError, ValueError):
        text = json.loads((running.scratch / "cells.json").read_text())
        found = {name: [Cell.read(cell) for cell in cells] for name, cells in text.items()}
    mine = found.setdefault(running.task.name, [])
    if late:
        where = stuck.noted(running.scratch)
        why = f"took longer than {running.task.limit_s:.0f} s; it waited at {where}"
        mine.append(unknown("all", why))
    elif len(found) == 1 and not mine:
        mine.append(unknown("all", f"its process ended with {running.process.returncode}"))
    left = running.watch.left(5.0)
    clean(running)
    if left and not late:
        mine.append(unknown("left behind", "; ".join(left)))
    return found


def clean(running: Running) -> None:
    """Processes, then what they held."""
    leftovers.kill(running.run_id)
    net.sweep()
    cgroup.sweep()
    for line in reversed(leftovers.lines("/proc/self/mountinfo")):
        if (path := line.split()[4]).startswith(f"{running.scratch}/"):
            subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
    shutil.rmtree(running.scratch, ignore_errors=True)


def tell(took: float, found: dict[str, list[Cell]]) -> None:
    """One line for each row."""
    for name, cells in found.items():
        told = "ok" if all(cell.ok for cell in cells) else "NOT MET"
        said = "; ".join(cell.text() for cell in cells)
        print(f"-- {name}: {told} in {took:.0f} s: {said}", file=sys.stderr, flush=True)


def alone(active: Sequence[Running]) -> bool:
    """One that measures runs."""
    return any(not running.task.waits for running in active)


def run(
    tasks: Sequence[Task], so_far: Callable[[dict[str, list[Cell]]], None] = lambda _: None
) -> Outcome:
    """Those that measure one by one; then those that wait, two at a time, the longest first."""
    measuring = [task for task in tasks if not task.waits]
    waiting = sorted((task for task in tasks if task.waits), key=lambda task: -task.limit_s)
    active: list[Running] = []
    found = Outcome()
    try:
        while measuring or waiting or active:
            if measuring and not active:
                active.append(begin(measuring.pop(0)))
            elif waiting and len(active) < BESIDE and not (measuring or alone(active)):
                active.append(begin(waiting.pop(0)))
                continue
            time.sleep(0.1)
            for running in list(active):
                took = time.monotonic() - running.begun
                runs = running.process.poll() is None
                late = runs and took > running.task.limit_s
                if runs and not late:
                    continue
                if late:
                    found.stood[running.task.name] = stuck.look(running.run_id, running.scratch)
                active.remove(running)
                cells = end(running, late=late)
                found.seconds[running.task.name] = took
                tell(took, cells)
                for name, more in cells.items():
                    found.cells.setdefault(name, []).extend(more)
                so_far(found.cells)
    finally:
        for running in active:
            end(running, late=True)
    return found
