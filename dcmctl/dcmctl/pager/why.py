# SPDX-License-Identifier: GPL-2.0-or-later
"""Find from two readings of a VM's counters what its accesses waited for, and what would help.

For each access that waits for a page, the core counts the time by cause (WAIT_* in core/counter.h),
the same for both pagers. It can't see how long the thread waits for a CPU after it was woken. The
scheduler counts that for each thread, together with all other times at which the thread was ready
to run but did not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dcmctl.lib.units import format_count, format_ns

# By cause: the core's counter, a description, advice.
CAUSES = {
    "donor": (
        "WAIT_DONOR_NS",
        "donors' answers",
        "accesses wait for donors and the network: a larger budget needs fewer answers, a nearer "
        "donor or a faster network gives each sooner",
    ),
    "queue": (
        "WAIT_QUEUE_NS",
        "queues of this host",
        "faults wait for one another in this host: more lanes, and CPUs for them, serve more at a "
        "time",
    ),
    "here": (
        "WAIT_HERE_NS",
        "this host's own work",
        "this host itself works on the faults, which no donor and no network makes faster: a "
        "larger budget means fewer faults",
    ),
    "frames": (
        "WAIT_FRAMES_NS",
        "no free frame",
        "faults have to make room first: a larger budget, or a larger reserve_pages (dcmctl "
        "tunable), keeps frames free",
    ),
    "out": (
        "WAIT_OUT_NS",
        "write-backs behind",
        "frames come free only as donors take what was written: a larger budget, or a faster way "
        "to donors, helps",
    ),
    "retry": (
        "WAIT_RETRY_NS",
        "donors that fail",
        "a donor does not answer or gave wrong bytes: dcmctl donor list says which; drain or mend "
        "it",
    ),
}
NOTHING = "no access waited"


@dataclass(frozen=True)
class Waits:
    """The time that all accesses together waited between two readings, in ns, by cause."""

    ns: dict[str, int]

    @classmethod
    def between(cls, old: Mapping[str, int], new: Mapping[str, int]) -> Waits | None:
        """Compute them; None if the VM doesn't count them, or was restarted meanwhile."""
        ns: dict[str, int] = {}
        for cause, (counter, _, _) in CAUSES.items():
            if counter not in old or counter not in new or new[counter] < old[counter]:
                return None
            ns[cause] = new[counter] - old[counter]
        return cls(ns)

    @property
    def total(self) -> int:
        return sum(self.ns.values())

    @property
    def largest(self) -> str | None:
        return max(self.ns, key=lambda cause: self.ns[cause]) if self.total else None

    def advice(self, waiting_extents: int | None = 0) -> str:
        """A sentence that names the largest cause and what would help."""
        if self.largest is None:
            return NOTHING
        share = self.ns[self.largest] * 100 / self.total
        _, what, helps = CAUSES[self.largest]
        text = f"{share:.0f} % of the time is {what}: {helps}"
        if waiting_extents and self.largest in ("frames", "out"):
            text += f"; {waiting_extents} extents have no slab: add a donor"
        return text


def _schedstat(pid: int, field: int) -> dict[str, int]:
    """A field of /proc/PID/task/TID/schedstat, by thread; the pager's threads are left out.

    Empty if it can't be read: the process is another user's.
    """
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if not (task / "comm").read_text().startswith("dcm-"):
                    found[task.name] = int((task / "schedstat").read_text().split()[field])
    return found


def cpu_ran_ns(pid: int) -> dict[str, int]:
    """The CPU time of each thread."""
    return _schedstat(pid, 0)


def cpu_wait_ns(pid: int) -> dict[str, int]:
    """How long each thread was ready to run and waited for a CPU."""
    return _schedstat(pid, 1)


FAULT_KERNEL_NS = 4000  # CPU time that a fault takes in its own thread, about


@dataclass(frozen=True)
class Times:
    """Scheduler figures by thread: ns on a CPU, ns ready but not running, number of time slices."""

    ran: dict[str, int]
    queued: dict[str, int]
    slices: dict[str, int]

    @classmethod
    def read(cls, pid: int | None) -> Times:
        if pid is None:
            return cls({}, {}, {})
        return cls(*(_schedstat(pid, field) for field in range(3)))

    def lost(self, old: Times, took_ns: float, fetches: int) -> float | None:
        """The share of the time since `old` that threads lost to faults that fetch.

        A thread leaves its CPU at each fault, but for other reasons too, such as faults that do not
        fetch: of these there are not fewer with a larger budget. All of these intervals are taken
        to be equally long. Threads with less than 5 % of the CPU time are left out. None: not
        known.
        """
        grown = {t: self.ran[t] - old.ran[t] for t in self.ran.keys() & old.ran.keys()}
        busy = [t for t, ran in grown.items() if ran * 20 > sum(grown.values())]
        whole = took_ns * len(busy)
        if not busy or whole <= 0:
            return None
        away = max(0.0, whole - sum(grown[t] for t in busy))
        times = sum(self.slices.get(t, 0) - old.slices.get(t, 0) for t in busy)
        lost = away * min(1.0, fetches / max(times, 1)) + fetches * FAULT_KERNEL_NS
        return float(min(1.0, lost / whole))


def summed(old: Mapping[str, int], new: Mapping[str, int]) -> int | None:
    """The sum of the differences for threads in both readings; None if there is no such thread."""
    both = old.keys() & new.keys()
    return sum(max(0, new[t] - old[t]) for t in both) if both else None


def lines(
    name: str,
    seconds: float,
    waits: Waits,
    faults: tuple[int, int],
    cpu: int | None,
    extents: int | None,
) -> list[str]:
    """The text of `dcmctl why`; `faults`: the number of all faults, and of those that fetched."""
    total, missing = faults
    text = [
        f"{name}: in {seconds:.1f} s {format_count(total)} faults, {format_count(missing)} of them "
        f"fetched; {waits.total / 1e9 / seconds:.2f} accesses waited at a time"
    ]
    for cause, (_, what, _) in CAUSES.items():
        share = waits.ns[cause] * 100 / waits.total if waits.total else 0.0
        line = f"  {what:<20}  {share:5.1f}%"
        if waits.ns[cause] and total:
            ns = waits.ns[cause]
            line += f"  {format_ns(ns):>5}  {format_ns(ns // total):>5} a fault"
        text.append(line)
    if cpu is None:
        text.append("  wake-ups: not known: its threads' schedstat can't be read")
    else:
        text.append(
            f"  wake-ups: not seen alone; its threads, ready to run, waited {format_ns(cpu)} for a "
            "CPU"
        )
    text.append(waits.advice(extents))
    return text
