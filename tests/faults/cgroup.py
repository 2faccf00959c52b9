# SPDX-License-Identifier: GPL-2.0-or-later
"""A cgroup for memory or CPU, of the first or the second kind, which goes with the block."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.faults.cell import CannotRun

TOP = Path("/sys/fs/cgroup")


class Cgroup:
    """Processes are put in by `prefix`; all of them have ended when it goes."""

    def __init__(self, name: str, controller: str = "memory") -> None:
        self.old = (TOP / controller).is_dir()
        self.controller = controller
        top = TOP / controller if self.old else TOP
        self.path = top / f"dcm-f{os.getpid()}-{name}"

    @property
    def prefix(self) -> list[str]:
        """A command begins with it to run in here."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh"]

    def usage(self) -> int:
        """Bytes."""
        name = "memory.usage_in_bytes" if self.old else "memory.current"
        return int((self.path / name).read_text())

    def limit(self, limit: int) -> None:
        """Bytes."""
        name = "memory.limit_in_bytes" if self.old else "memory.max"
        (self.path / name).write_text(str(limit))

    def kills(self) -> int:
        """Processes the kernel ended for want of memory."""
        name = "memory.oom_control" if self.old else "memory.events"
        words = (self.path / name).read_text().split()
        found = dict(zip(words[::2], words[1::2], strict=False))
        return int(found.get("oom_kill", 0))

    def __enter__(self) -> Cgroup:
        try:
            if not self.old:
                (TOP / "cgroup.subtree_control").write_text(f"+{self.controller}")
            self.path.mkdir()
        except OSError as err:
            raise CannotRun(f"no cgroup for {self.controller}: {err}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def sweep(controllers: Sequence[str] = ("memory", "cpu", "")) -> None:
    """Those of runs that are no more."""
    for controller in controllers:
        for path in (TOP / controller).glob("dcm-f[0-9]*-*"):
            pid = path.name.removeprefix("dcm-f").partition("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                try:
                    path.rmdir()
                except OSError:
                    continue
