# SPDX-License-Identifier: GPL-2.0-or-later
"""A report on a row that took too long: its place in the code, its processes, their logs.

The row's process notes its place when it is told to end; `schedule.py` looks at the other processes
before it ends them. The report is bounded: it must fit into the end of a log of CI.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tests.framework import leftovers

PLACE = "stood.txt"
DEPTH = 3  # calls shown
PROCESSES = 12
LOGS = 6
LOG_LINES = 3
WIDTH = 160


def note_at_end(scratch: Path) -> None:
    """In the row's process: SIGTERM ends it, and leaves a note of where it was."""

    def terminated(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            (scratch / PLACE).write_text(place(frame))
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminated)


def place(frame: FrameType | None) -> str:
    """The innermost calls of the tests' own code, the innermost first."""
    calls = [
        f"{Path(call.filename).name}:{call.lineno} `{call.line}`"
        for call in traceback.extract_stack(frame)
        if "/tests/" in call.filename and call.filename.endswith(".py")
    ]
    return ", in ".join(calls[: -DEPTH - 1 : -1])


def noted(scratch: Path) -> str:
    """The note that the row's process left; there is none if Python itself stood still."""
    try:
        return (scratch / PLACE).read_text()
    except OSError:
        return "a place that its process could not tell"


def look(run_id: str, scratch: Path) -> list[str]:
    """Lines on the processes of a row, and the ends of their logs."""
    lines = []
    for pid, command in leftovers.processes(run_id)[:PROCESSES]:
        lines.append(f"process {pid}, {command[:WIDTH]}: {', '.join(threads(pid))}"[: 3 * WIDTH])
    for path in list(logs(scratch))[:LOGS]:
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
            lines += [f"{path.relative_to(scratch)}: {line[:WIDTH]}" for line in text]
    return lines


def threads(pid: int) -> list[str]:
    """Each thread's name and where the kernel has it wait; those that are alike as one."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text().strip()
                state = leftovers.state(task)
                waits = (task / "wchan").read_text().strip("\0\n0") or "-"
                text = f"{name} {state} {waits}"
                found[text] = found.get(text, 0) + 1
    return [f"{n} x {text}" if n > 1 else text for text, n in found.items()]


def logs(scratch: Path) -> Iterator[Path]:
    """Files whose names end in .log, but for those on dcmfs, as dcmfs may stand still."""
    for top, folders, names in os.walk(scratch):
        folders[:] = sorted(name for name in folders if name != "dcmfs")
        yield from (Path(top) / name for name in sorted(names) if name.endswith(".log"))
