# SPDX-License-Identifier: GPL-2.0-or-later
"""The estate over time: rates, history, events and health.

A thread reads the estate once an interval. The difference of two readings gives rates, a point in
the history of each VM, and events; a single reading gives health. Memory is bounded: it keeps an
hour of history for at most HISTORIES VMs, and the last EVENTS events. Callers can wait for the next
reading.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from dcmctl.cluster.estate import Donor, Estate, Machine
from dcmctl.lib.errors import DcmError
from dcmctl.lib.units import PAGE, format_size
from dcmctl.pager.status import BLOCK_SIZES
from dcmctl.pager.why import Waits

HISTORY_S = 3600
HISTORIES = 256  # VMs
EVENTS = 500
# The same thresholds as in the alerts; see operations.md.
NEAR_FULL, FULL = 0.85, 0.95
GOOD, NOTE, WARN, BAD = "good", "note", "warn", "bad"


@dataclass(frozen=True)
class Line:
    """A problem, or something that has happened."""

    level: str
    text: str
    donor: str | None = None
    vm: str | None = None


@dataclass(frozen=True)
class Event:
    number: int
    time: float
    level: str
    kind: str
    text: str
    donor: str | None
    vm: str | None


@dataclass(frozen=True)
class Rates:
    """Rates of one VM between two readings; None if it has no counters."""

    faults_per_s: float | None = None
    missing_per_s: float | None = None
    fetched_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None
    block_mix: dict[str, int] | None = None  # pages fetched, by the size of their block
    waits_ns_per_s: dict[str, float] | None = None  # of all accesses together, by cause
    why: str = ""  # the cause of the longest waits, and what would help


Point = tuple[float | None, ...]
# Fields of a point of a VM's history; latencies are percentiles since the VM started.
POINT = (
    "time", "direct_bytes", "budget_bytes", "indirect_bytes", "faults_per_s", "missing_per_s",
    "fault_p50_ns", "fault_p99_ns", "fetched_bytes_per_s", "written_bytes_per_s",
)  # fmt: skip


def key_of(vm: Machine) -> str:
    """The key of a VM; VMs of the two pagers may have the same name."""
    return f"{vm.pager}:{vm.path}"


# ---- health, from one reading ----


def fullness(donor: Donor) -> float | None:
    if not donor.capacity_bytes or donor.lent_bytes is None:
        return None
    return donor.lent_bytes / donor.capacity_bytes


def _donor_health(d: Donor) -> Iterator[Line]:
    why = f": {d.error}" if d.error else ""
    if d.state == "lost":
        yield Line(BAD, f"donor {d.name} is lost{why}", d.name)
    elif d.state == "silent":
        yield Line(WARN, f"donor {d.name} does not answer; VMs wait for it{why}", d.name)
    elif d.state == "draining":
        yield Line(WARN, f"donor {d.name} drains: VMs move their memory off it", d.name)
    elif d.state == "connecting":
        yield Line(WARN, f"donor {d.name} is not reached{why}", d.name)
    elif d.error:
        yield Line(WARN, f"donor {d.name}: its status can't be read: {d.error}", d.name)
    share = fullness(d)
    if share is not None and share >= NEAR_FULL:
        level = BAD if share >= FULL else WARN
        yield Line(level, f"donor {d.name} is full to {share * 100:.0f} %", d.name)


def _vm_health(vm: Machine, waited: bool) -> Iterator[Line]:
    if vm.error:
        yield Line(WARN, f"VM {vm.name} does not answer: {vm.error}", vm=vm.name)
    if vm.lost_bytes:
        lost = format_size(vm.lost_bytes)
        yield Line(BAD, f"VM {vm.name} has lost {lost} with a donor", vm=vm.name)
    if wrong := (vm.counters or {}).get("WRONG_PAGES"):
        text = f"VM {vm.name}: donors gave wrong bytes of {wrong} pages; the VM's log names them"
        yield Line(BAD, text, vm=vm.name)
    if vm.exposed_bytes:
        exposed = format_size(vm.exposed_bytes)
        text = f"VM {vm.name}: {exposed} have fewer than {vm.copies} copies"
        yield Line(WARN, text, vm=vm.name)
    if waited:
        text = f"VM {vm.name}: no donor has room for {vm.waiting_extents} of its extents"
        yield Line(BAD, text, vm=vm.name)


def health(estate: Estate, waited: frozenset[str] = frozenset()) -> list[Line]:
    """List problems, worst first. `waited`: VMs that waited for donors' room in two readings."""
    lines = [line for d in estate.donors for line in _donor_health(d)]
    lines += [line for vm in estate.vms for line in _vm_health(vm, key_of(vm) in waited)]
    said = {vm.error for vm in estate.vms}
    lines += [Line(WARN, text) for text in estate.problems if text not in said]
    return sorted(lines, key=lambda line: (BAD, WARN).index(line.level))


# ---- rates and events, from two readings ----


def rates(old: Machine | None, new: Machine, seconds: float) -> Rates:
    """Compute a VM's rates; all None if it has no earlier reading, or was restarted since."""
    if old is None or old.pid != new.pid or seconds <= 0 or not old.counters or not new.counters:
        return Rates()
    a, b = old.counters, new.counters

    def per_s(name: str, unit: int = 1) -> float | None:
        if name not in a or name not in b or b[name] < a[name]:
            return None
        return round((b[name] - a[name]) * unit / seconds, 3)

    waits = Waits.between(a, b)
    mix = {s: b.get(f"MIX_{s}", 0) - a.get(f"MIX_{s}", 0) for s in BLOCK_SIZES}
    return Rates(
        faults_per_s=per_s("FAULTS"),
        missing_per_s=per_s("FAULT_MISSING"),
        fetched_bytes_per_s=per_s("FETCHED_PAGES", PAGE),
        written_bytes_per_s=per_s("WRITTEN_PAGES", PAGE),
        block_mix=mix if min(mix.values()) >= 0 else None,
        waits_ns_per_s={cause: round(ns / seconds, 3) for cause, ns in waits.ns.items()}
        if waits
        else None,
        why=waits.advice(new.waiting_extents) if waits else "",
    )


# By state of a donor: text and severity of the event that it gets into this state.
STATES = {
    "lost": (BAD, "is lost"),
    "silent": (WARN, "does not answer; VMs wait for it"),
    "draining": (WARN, "drains"),
    "connecting": (WARN, "is not reached"),
    "up": (GOOD, "is up"),
    "unused": (NOTE, "is used by no VM"),
}


def _donor_events(old: Donor | None, new: Donor | None) -> Iterator[tuple[str, Line]]:
    if new is None:
        assert old is not None
        yield "donor-gone", Line(NOTE, f"donor {old.name} is no longer used by this host", old.name)
        return
    if old is None:
        yield "donor-found", Line(NOTE, f"donor {new.name} is known: {new.state}", new.name)
        return
    if old.state != new.state:
        level, text = STATES.get(new.state, (NOTE, f"is {new.state}"))
        why = f": {new.error}" if new.error and level in (WARN, BAD) else ""
        yield f"donor-{new.state}", Line(level, f"donor {new.name} {text}{why}", new.name)
    if new.error and not old.error and old.state == new.state:
        yield "donor-untold", Line(WARN, f"donor {new.name}: {new.error}", new.name)
    if old.state == "draining" and old.here_bytes and not new.here_bytes:
        text = f"donor {new.name} is drained: no memory of this host is left on it"
        yield "donor-drained", Line(GOOD, text, new.name)


def _grown(old: int | None, new: int | None) -> int:
    return max(0, (new or 0) - (old or 0)) if old is not None else 0


def _vm_events(old: Machine | None, new: Machine | None) -> Iterator[tuple[str, Line]]:
    if new is None:
        assert old is not None
        yield "vm-ended", Line(NOTE, f"VM {old.name} has ended", vm=old.name)
        return
    if old is None or (old.pid != new.pid and old.pid and new.pid):
        yield "vm-started", Line(NOTE, f"VM {new.name} runs", vm=new.name)
        return
    if old.budget_bytes and new.budget_bytes and old.budget_bytes != new.budget_bytes:
        sizes = f"{format_size(old.budget_bytes)} to {format_size(new.budget_bytes)}"
        yield "budget", Line(NOTE, f"VM {new.name}: budget from {sizes}", vm=new.name)
    if lost := _grown(old.lost_bytes, new.lost_bytes):
        text = f"VM {new.name} has lost {format_size(lost)} with a donor"
        yield "memory-lost", Line(BAD, text, vm=new.name)
    a, b = old.counters or {}, new.counters or {}
    for name, where in (("MOVED_PAGES", "another donor"), ("PULLED_PAGES", "this host")):
        if moved := _grown(a.get(name), b.get(name)) * PAGE:
            text = f"VM {new.name}: {format_size(moved)} moved to {where}{_slabs(old, new)}"
            yield "slab-moved", Line(NOTE, text, vm=new.name)


def _slabs(old: Machine, new: Machine) -> str:
    """A text: how the number of a VM's slabs changed on each donor."""
    before = {use.donor: use.slabs for use in old.uses}
    changes = [
        f"{use.donor} {use.slabs - before[use.donor]:+d}"
        for use in new.uses
        if use.slabs != before.get(use.donor, use.slabs)
    ]
    return f" (slabs: {', '.join(changes)})" if changes else ""


def events(old: Estate, new: Estate) -> Iterator[tuple[str, Line]]:
    """Kind and text of each event between two readings."""
    before = {(d.name, d.address): d for d in old.donors}
    after = {(d.name, d.address): d for d in new.donors}
    for donor in before | after:
        yield from _donor_events(before.get(donor), after.get(donor))
    vms, now = ({key_of(vm): vm for vm in e.vms} for e in (old, new))
    for vm in vms | now:
        yield from _vm_events(vms.get(vm), now.get(vm))


# ---- the thread ----


@dataclass
class Look:
    """One reading, with rates and health."""

    number: int
    estate: Estate
    rates: dict[str, Rates] = field(default_factory=dict)
    # VMs with waiting extents in two readings: donors have no room. In one it means nothing, as
    # each extent waits a moment for its slab.
    waited: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        lines = health(self.estate, self.waited)
        return {
            "number": self.number,
            "estate": self.estate.to_json(),
            "keys": [key_of(vm) for vm in self.estate.vms],
            "rates": {key: asdict(rate) for key, rate in self.rates.items()},
            "health": {
                "level": lines[0].level if lines else GOOD,
                "lines": [asdict(line) for line in lines],
            },
        }


class Watch:
    """Reads the estate until it is stopped."""

    def __init__(self, look: Callable[[], Estate], interval: float) -> None:
        self.interval = interval
        self._look = look
        self._changed = threading.Condition()
        self._taking = threading.Lock()  # one reading at a time
        self._stopped = False
        self._now: Look | None = None
        self._last_event = 0
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._points: dict[str, deque[Point]] = {}
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self.take()
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self.interval
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, max(0.0, due - time.monotonic()))
                if self._stopped:
                    return
            due = max(due, time.monotonic()) + self.interval
            self.take()

    def take(self) -> None:
        """Read the estate now, for example after a change."""
        with self._taking:
            self._take_one()

    def _take_one(self) -> None:
        try:
            estate = self._look()
        except (DcmError, OSError) as exc:
            # E.g. the runtime folder is another user's: keep the last estate, and add the error.
            old = self._now.estate if self._now else None
            estate = Estate(
                time.time(),
                False,
                old.donors if old else (),
                old.vms if old else (),
                (str(exc),),
            )
        with self._changed:
            self._add(estate)
            self._changed.notify_all()

    def _add(self, estate: Estate) -> None:
        old = self._now
        now = Look((old.number if old else 0) + 1, estate)
        before = {key_of(vm): vm for vm in old.estate.vms} if old else {}
        seconds = estate.time - old.estate.time if old else 0.0
        for vm in estate.vms:
            key = key_of(vm)
            now.rates[key] = rates(before.get(key), vm, seconds)
            self._point(key, estate.time, vm, now.rates[key])
        now.waited = frozenset(
            key
            for key in (key_of(vm) for vm in estate.vms if vm.waiting_extents)
            if key in before and before[key].waiting_extents
        )
        if old:
            for kind, line in events(old.estate, estate):
                self._say(kind, line)
            for vm in estate.vms:
                if key_of(vm) in now.waited - old.waited:
                    self._say("no-room", Line(BAD, f"VM {vm.name}: no donor has room", vm=vm.name))
        self._now = now

    def _say(self, kind: str, line: Line) -> None:
        self._last_event += 1
        number, at = self._last_event, round(time.time(), 3)
        self._events.append(Event(number, at, line.level, kind, line.text, line.donor, line.vm))

    def _point(self, key: str, at: float, vm: Machine, rate: Rates) -> None:
        points = self._points.pop(key, None)
        if points is None:
            points = deque(maxlen=max(2, int(HISTORY_S / self.interval)))
        latency = vm.latency["fault"] if vm.latency and vm.latency["fault"].count else None
        points.append(
            (
                round(at, 3),
                vm.direct_bytes,
                vm.budget_bytes,
                vm.indirect_bytes,
                rate.faults_per_s,
                rate.missing_per_s,
                latency.p50 if latency else None,
                latency.p99 if latency else None,
                rate.fetched_bytes_per_s,
                rate.written_bytes_per_s,
            )
        )
        self._points[key] = points
        while len(self._points) > HISTORIES:
            # Drop the history whose last point is the oldest.
            del self._points[next(iter(self._points))]

    # -- for readers, in threads of their own --

    def after(self, number: int, timeout: float) -> Look | None:
        """Wait at most `timeout` seconds for a reading other than `number`; return the newest."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or (self._now is not None and self._now.number != number),
                timeout,
            )
            return self._now

    def events_after(self, number: int) -> list[Event]:
        with self._changed:
            return [event for event in self._events if event.number > number]

    def history(self, key: str) -> list[Point]:
        with self._changed:
            return list(self._points.get(key, ()))

    def vm(self, key: str) -> Machine | None:
        """Find a VM in the last reading; the page can change only VMs that were shown."""
        with self._changed:
            vms = self._now.estate.vms if self._now else ()
        return next((vm for vm in vms if key_of(vm) == key), None)

    def donor(self, name: str) -> Donor | None:
        with self._changed:
            return self._now.estate.donor(name) if self._now else None
