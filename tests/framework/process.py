# SPDX-License-Identifier: GPL-2.0-or-later
"""The processor time and the threads of a process. An OSError if there is no such process."""

from __future__ import annotations

import os
from pathlib import Path


def _seconds(pid: int, first: int) -> float:
    """The sum of two fields of /proc/PID/stat, counted from the state, which is 0."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[first]) + int(fields[first + 1])) / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """The processor time of all threads of a process, in seconds (utime and stime)."""
    return _seconds(pid, 11)


def ended_children_seconds(pid: int) -> float:
    """The processor time of its children that have ended, in seconds (cutime and cstime)."""
    return _seconds(pid, 13)


def threads(pid: int, prefix: str) -> list[Path]:
    """The directories in /proc of the threads whose names begin so: one at least."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = [task for task in tasks if (task / "comm").read_text().startswith(prefix)]
    if not found:
        raise ProcessLookupError(f"process {pid} has no thread {prefix}")
    return found
