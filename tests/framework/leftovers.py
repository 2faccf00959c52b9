# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds what a test run left behind: processes, mounts, swap, sockets, cgroups.

A run carries DCM_TEST_RUN=<id> in its environment, and every process it starts inherits it,
daemons that left the session and the process group included. So a process with the id in its
/proc/PID/environ is ours and no other's, and other work on the same machine is never blamed.
The rest (mounts, swap, sockets, cgroups, files in /dev/shm) is compared with a snapshot taken
before, and only what bears a mark counts: a path below the run's directories or a "dcm" in
its name. A run that is not alone has DCM_TEST_MARK=<directory>: then only paths below that
directory count, and whoever started the runs looks for the rest when all of them have ended.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

RUN_VARIABLE = "DCM_TEST_RUN"
MARK_VARIABLE = "DCM_TEST_MARK"
SOCKET_DIRS = ("/run/kvm-dcm", "/run/kvm-dcm-host", "/dev/shm")


@dataclass(frozen=True)
class Snapshot:
    """What was there at one moment and could be taken for ours."""

    mounts: frozenset[str] = frozenset()
    swaps: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    cgroups: frozenset[str] = frozenset()


@dataclass
class Watch:
    """Compares the machine with how it was when the watch was made."""

    run_id: str
    marks: tuple[str, ...] = ("dcm",)
    before: Snapshot = field(default_factory=lambda: snapshot())

    def left(self, settle_s: float = 5.0) -> list[str]:
        """One line for each thing left; processes on their way out get `settle_s` to go."""
        deadline = time.monotonic() + settle_s
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
    """Live processes of the run, but for this one and those above it."""
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
            continue  # gone meanwhile, or another user's
        found.append((int(entry.name), line.strip()[:200]))
    return found


def state(proc: Path) -> str:
    """The one-letter state of a process; its name may hold spaces and brackets."""
    return (proc / "stat").read_text().rpartition(")")[2].split()[0]


def ancestors(pid: int) -> set[int]:
    """The process and all above it."""
    chain: set[int] = set()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            break
    return chain


def snapshot() -> Snapshot:
    """The state now."""
    return Snapshot(
        mounts=frozenset(line.split()[4] for line in lines("/proc/self/mountinfo")),
        swaps=frozenset(line.split()[0] for line in lines("/proc/swaps")[1:]),
        files=frozenset(files()),
        cgroups=frozenset(cgroups()),
    )


def lines(path: str) -> list[str]:
    """A file's lines; none when it can't be read."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def files() -> list[str]:
    """Everything below the directories where parts put sockets and shared memory.

    But for sockets somebody still listens on: a process of ours is reported as such, so
    these are another's who works on the same machine.
    """
    found: list[str] = []
    alive = {line.split()[-1] for line in lines("/proc/net/unix")}
    for top in (*SOCKET_DIRS, f"{os.environ.get('XDG_RUNTIME_DIR', '/nonexistent')}/kvm-dcm"):
        for folder, _, names in os.walk(top):
            paths = [f"{folder}/{name}" for name in names]
            found += [path for path in paths if path not in alive]
    return found


def cgroups() -> list[str]:
    """cgroup directories, three levels deep."""
    top = Path("/sys/fs/cgroup")
    found: list[str] = []
    for pattern in ("*", "*/*", "*/*/*"):
        try:
            found += [str(path) for path in top.glob(pattern) if path.is_dir()]
        except OSError:
            break
    return found
