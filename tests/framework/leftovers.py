# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds what a test run left behind: processes, mounts, swap, sockets, cgroups.

A run has DCM_TEST_RUN=<id> in its environment. All its processes inherit it, also daemons that left
the session and the process group, so a process with the id in /proc/PID/environ belongs to this run
and to no other work on the machine. Mounts, swap, sockets, cgroups and files in /dev/shm are
compared with a snapshot taken before the run; only those count whose path is in one of the run's
folders or has "dcm" in its name. If several runs run at the same time, each has
DCM_TEST_MARK=<folder>: then only paths in this folder count for that run, and scripts/run-stages
looks for all others when all runs have ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

RUN_VARIABLE = "DCM_TEST_RUN"
MARK_VARIABLE = "DCM_TEST_MARK"
SOCKET_DIRS = ("/run/kvm-dcm", "/run/kvm-dcm-host", "/dev/shm")


@dataclass(frozen=True)
class Snapshot:
    """Mounts, swap, sockets, cgroups and files at one time that could be the run's."""

    mounts: frozenset[str] = frozenset()
    swaps: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    cgroups: frozenset[str] = frozenset()


@dataclass
class Watch:
    """Compares the state of the machine with that at the time the Watch was made."""

    run_id: str
    marks: tuple[str, ...] = ("dcm",)
    before: Snapshot = field(default_factory=lambda: snapshot())

    def left(self, grace_s: float = 5.0) -> list[str]:
        """One line for each leftover. Processes that are ending get `grace_s` seconds."""
        deadline = time.monotonic() + grace_s
        while True:
            found = self._look()
            if not found or time.monotonic() >= deadline:
                return found
            time.sleep(0.1)

    def _look(self) -> list[str]:
        now = snapshot()
        found = [f"process {pid}: {what}" for pid, what in processes(self.run_id)]
        for kind, old, new in (
            ("mount", self.before.mounts, now.mounts),
            ("swap device", self.before.swaps, now.swaps),
            ("file", self.before.files, now.files),
            ("cgroup", self.before.cgroups, now.cgroups),
        ):
            found += [
                f"{kind}: {item}"
                for item in sorted(new - old)
                if kind == "swap device" or any(mark in item for mark in self.marks)
            ]
        return found


def processes(run_id: str) -> list[tuple[int, str]]:
    """Live processes of the run, without this process and its ancestors."""
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    own = ancestors(os.getpid())
    found: list[tuple[int, str]] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            if state(entry) in "ZX":
                continue
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError):
            continue  # it has ended, or is another user's
        found.append((int(entry.name), line.strip()[:200]))
    return found


def kill(run_id: str) -> None:
    """Kill all processes of the run, without this process and its ancestors."""
    for pid, _ in processes(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def state(proc: Path) -> str:
    """The state letter of a process. The name before it may have spaces and brackets."""
    return (proc / "stat").read_text().rpartition(")")[2].split()[0]


def ancestors(pid: int) -> set[int]:
    """The process and its ancestors."""
    chain: set[int] = set()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            break
    return chain


def snapshot() -> Snapshot:
    """A snapshot of the machine."""
    return Snapshot(
        mounts=frozenset(line.split()[4] for line in lines("/proc/self/mountinfo")),
        swaps=frozenset(line.split()[0] for line in lines("/proc/swaps")[1:]),
        files=frozenset(files()),
        cgroups=frozenset(cgroups()),
    )


def lines(path: str) -> list[str]:
    """The lines of a file; none if it can't be read."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def files() -> list[str]:
    """Files in the folders where programs put sockets and shared memory.

    Sockets on which a process listens are left out: a process of the run is reported itself, so
    others belong to other work on the machine.
    """
    found: list[str] = []
    alive = {line.split()[-1] for line in lines("/proc/net/unix")}
    for top in (*SOCKET_DIRS, f"{os.environ.get('XDG_RUNTIME_DIR', '/nonexistent')}/kvm-dcm"):
        for folder, _, names in os.walk(top):
            paths = [f"{folder}/{name}" for name in names]
            found += [path for path in paths if path not in alive]
    return found


def cgroups() -> list[str]:
    """cgroups, three levels deep."""
    top = Path("/sys/fs/cgroup")
    found: list[str] = []
    for pattern in ("*", "*/*", "*/*/*"):
        try:
            found += [str(path) for path in top.glob(pattern) if path.is_dir()]
        except OSError:
            break
    return found
