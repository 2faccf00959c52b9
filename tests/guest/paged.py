# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest on donor memory, seen from outside.

What the pager says of itself is not believed: direct memory is measured from
the kernel's account of QEMU's mappings. The ranges under the pager are those
that the kernel marks as registered with a userfaultfd (guest memory, and the
frames where unmapped blocks wait); their resident pages are direct memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.framework import pager

TOP = Path(__file__).resolve().parents[2]
DCMCTL = TOP / "bin" / "dcmctl"
MIB = 1 << 20

_HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
_UFFD_FLAGS = {"um", "uw", "ui"}


class PagerError(Exception):
    """The pager did not answer as it should."""


@dataclass(frozen=True)
class Resident:
    """Resident memory of QEMU, in bytes."""

    direct: int  # in ranges under the pager
    ranges: int  # how many of those there are
    total: int


def resident(pid: int, plain_ram: int = 0) -> Resident:
    """Read /proc/PID/smaps. `plain_ram`: count the mapping of that size instead."""
    direct = ranges = total = rss = size = 0
    name = ""
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as smaps:
        for line in smaps:
            if _HEADER.match(line):
                words = line.split(maxsplit=5)
                first, last = words[0].split("-")
                size = int(last, 16) - int(first, 16)
                name = words[5].strip() if len(words) > 5 else ""
            elif line.startswith("Rss:"):
                rss = int(line.split()[1]) << 10
                total += rss
            elif line.startswith("VmFlags:"):
                flags = set(line.split()[1:])
                if plain_ram:
                    ours = size == plain_ram and "ex" not in flags
                else:
                    ours = bool(_UFFD_FLAGS & flags) or name.startswith("[anon:dcm:")
                if ours:
                    direct += rss
                    ranges += 1
    return Resident(direct, ranges, total)


def resident_stopped(pid: int, plain_ram: int = 0) -> Resident:
    """The same with QEMU stopped meanwhile, so that nothing moves under the count."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.02)
        return resident(pid, plain_ram)
    finally:
        os.kill(pid, signal.SIGCONT)


class Pager:
    """The status socket of one VM's pager."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
        try:
            found = pager.ask(self.path, request, timeout)
        except OSError as err:
            raise PagerError(f"no answer at {self.path}: {err}") from None
        if found.get("ok") is not True:
            raise PagerError(f"{request}: {found.get('error')}")
        return found

    def status(self) -> dict[str, Any]:
        return self.ask({"cmd": "status"})


@dataclass(frozen=True)
class Sample:
    """One look at the running VM."""

    at: float  # seconds since the sampler started
    phase: str
    direct: int  # measured, bytes
    total: int  # QEMU's resident memory altogether
    limit: int | None  # what direct must not exceed; None while it is being lowered
    budget: int
    in_flight_max: int
    said: dict[str, Any]  # the pager's own status
    donors: tuple[int, ...]  # bytes of memory each donor has given to slabs; -1: gone


class Sampler(threading.Thread):
    """Looks at the VM now and then until stopped, and judges what it sees."""

    def __init__(
        self,
        pid: int,
        pager: Pager | None,
        *,
        ram: int = 0,
        donor_bytes: Sequence[Callable[[], int]] = (),
        interval: float = 0.5,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        """Without a pager the guest's `ram` is looked for by its size."""
        super().__init__(daemon=True)
        self.pid = pid
        self.pager = pager
        self.ram = 0 if pager else ram
        self.donor_bytes = donor_bytes
        self.interval = interval
        self.on_sample = on_sample
        self.samples: list[Sample] = []
        self.broken = ""
        self.phase = "boot"
        self._over: list[str] = []
        self._judge = True
        self._epoch = 0  # of the budget: what was read in another says nothing now
        self._halt = threading.Event()
        self._zero = time.monotonic()

    def run(self) -> None:
        while not self._halt.wait(self.interval):
            try:
                self._look()
            except (PagerError, OSError, ValueError) as err:
                if not self._halt.is_set() and Path(f"/proc/{self.pid}").exists():
                    self.broken = str(err)

    def _look(self) -> None:
        epoch = self._epoch
        judge = self._judge and self.pager is not None
        said = self.pager.status() if self.pager else {}
        budget, slack = said.get("budget_bytes", 0), said.get("in_flight_max_bytes", 0)
        limit = budget + slack
        seen = resident(self.pid, self.ram)
        if judge and seen.direct > limit:
            # Pages move between the ranges while they are counted: count again,
            # with everything stopped, before saying anything.
            seen = resident_stopped(self.pid, self.ram)
            if seen.direct > limit and self._judge and epoch == self._epoch:
                self._over.append(
                    f"{seen.direct} bytes direct, {seen.direct - budget} over the budget of "
                    f"{budget} ({slack} may be in flight), in phase {self.phase}"
                )
        donors = []
        for ask in self.donor_bytes:
            try:
                donors.append(ask())
            except Exception:
                donors.append(-1)
        sample = Sample(
            at=time.monotonic() - self._zero,
            phase=self.phase,
            direct=seen.direct,
            total=seen.total,
            limit=limit if judge else None,
            budget=budget,
            in_flight_max=slack,
            said=said,
            donors=tuple(donors),
        )
        self.samples.append(sample)
        if self.on_sample is not None:
            self.on_sample(sample)

    @contextmanager
    def changing(self, budget: int) -> Iterator[None]:
        """The budget becomes this: judge again once it is reached.

        Takes as long as it takes; a budget that is never reached ends as an
        error, since then nothing would be judged any more.
        """
        assert self.pager is not None
        self._judge = False
        self._epoch += 1
        try:
            yield
            deadline = time.monotonic() + 120
            while True:
                slack = int(self.pager.status()["in_flight_max_bytes"])
                if resident(self.pid).direct <= budget + slack:
                    break
                if time.monotonic() > deadline:
                    raise PagerError(
                        f"the budget of {budget} was not reached: "
                        f"{resident(self.pid).direct} bytes are still direct"
                    )
                time.sleep(0.1)
        finally:
            self._judge = True

    def over(self) -> list[str]:
        """Every time that more was direct than may be."""
        return list(self._over)

    def stop(self) -> None:
        self._halt.set()
        with contextlib.suppress(RuntimeError):
            self.join(15)


def dcmctl_run(
    *, name: str, budget: str, keys: Path, donors: dict[str, str], extra: Sequence[str] = ()
) -> list[str]:
    """The command line put before QEMU's."""
    cmd = [str(DCMCTL), "run", "--name", name, "--budget", budget, "--keys", str(keys)]
    for donor, address in donors.items():
        cmd += ["--donor", f"{donor}={address}"]
    return [*cmd, *extra, "--"]
