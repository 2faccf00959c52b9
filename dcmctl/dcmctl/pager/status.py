# SPDX-License-Identifier: GPL-2.0-or-later
"""A VM's status answer as checked values.

A missing field is read as zero or empty, because versions of libdcm differ in their fields. A field
of the wrong type, sign or size is an error: the other fields can't be trusted then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dcmctl.lib.errors import DcmError, printable
from dcmctl.lib.units import format_duration, format_size
from dcmctl.pager.vmsock import Json

U64_MAX = (1 << 64) - 1
LIST_MAX = 4096
TEXT_MAX = 256
BLOCK_SIZES = ("4K", "8K", "16K", "32K", "64K")
FAULT_KINDS = ("missing", "minor", "wp", "zero", "sample", "spurious", "busy", "stalled", "lost")
STATES = ("up", "connecting", "lost", "draining", "silent")


class Fields:
    """Checked access to the fields of a JSON object that may be hostile."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise DcmError(f"{where} is not an object")
        self._value = value
        self._where = where

    def _bad(self, name: str, what: str) -> DcmError:
        return DcmError(f"{self._where}: {printable(name, 60)} is not {what}")

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def number(self, name: str) -> int:
        value: Any = self._value.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= U64_MAX:
            raise self._bad(name, "a count")
        return int(value)

    def real(self, name: str) -> float:
        value = self._value.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
            raise self._bad(name, "a number")
        return float(value)

    def text(self, name: str) -> str:
        value = self._value.get(name, "")
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise self._bad(name, "a short text")
        return printable(value, TEXT_MAX)

    def flag(self, name: str) -> bool:
        value = self._value.get(name, False)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false")
        return value

    def raw(self, name: str) -> Any:
        """The unchecked value; the caller checks it."""
        return self._value.get(name)

    def group(self, name: str) -> Fields:
        return Fields(self._value.get(name, {}), f"{self._where}: {printable(name, 60)}")

    def groups(self, name: str) -> Iterator[Fields]:
        value = self._value.get(name, [])
        if not isinstance(value, list) or len(value) > LIST_MAX:
            raise self._bad(name, "a list")
        for number, item in enumerate(value):
            yield Fields(item, f"{self._where}: {name}[{number}]")

    def names(self) -> list[str]:
        if len(self._value) > LIST_MAX:
            raise DcmError(f"{self._where} has too many entries")
        return list(self._value)


LATENCIES = ("fault", "fetch", "writeback")
LATENCY_FIELDS = ("p50", "p90", "p99", "p999", "count")


@dataclass(frozen=True)
class Latency:
    """Percentiles of one kind of operation, in ns, since the VM started."""

    p50: int
    p90: int
    p99: int
    p999: int
    count: int

    @classmethod
    def read(cls, fields: Fields) -> Latency:
        return cls(*(fields.number(name) for name in LATENCY_FIELDS))

    @classmethod
    def of_stats(cls, stats: Mapping[str, int], kind: str) -> Latency:
        """Read it from the statistics of a dcmfs file (dcmfs.stats())."""
        return cls(*(stats.get(f"latency {kind} {name}", 0) for name in LATENCY_FIELDS))


@dataclass(frozen=True)
class Told:
    """A donor's own figures, which it sends in its session: totals over all hosts."""

    capacity_bytes: int
    lent_bytes: int
    head_room_bytes: int
    sessions: int

    @classmethod
    def read(cls, fields: Fields) -> Told | None:
        """Read them; None if the donor has not sent them yet, or its version never does."""
        names = ("capacity_bytes", "lent_bytes", "head_room_bytes", "sessions")
        if not all(name in fields for name in names):
            return None
        return cls(*(fields.number(name) for name in names))

    def __str__(self) -> str:
        return (
            f"lends {format_size(self.lent_bytes)} of {format_size(self.capacity_bytes)} in "
            f"{self.sessions} sessions, keeps {format_size(self.head_room_bytes)} head room"
        )


def trouble(state: str, why: str, silent_ms: int, patience_ms: int, orphans: str = "") -> str:
    """The reason why a donor is not up, and its orphans; "" if there is nothing to say."""
    said = why if state != "up" else ""
    if state == "silent":
        silent = format_duration(silent_ms / 1000)
        patience = format_duration(patience_ms / 1000)
        said = f"silent for {silent}, patience is {patience}" + (f": {why}" if why else "")
    return "; ".join(part for part in (said, orphans) if part)


def orphans_said(orphans: int, waiting: int) -> str:
    """A text about orphans: slabs on this host whose donor has ended; "" if there are none."""
    if not orphans:
        return ""
    said = f"{orphans} slabs outlived it and are used on this host"
    if waiting == orphans:
        return said + ": no other donor has room for them yet"
    return said + ": they are moved to other donors"


@dataclass(frozen=True)
class DonorStatus:
    """A donor as one VM sees it."""

    name: str
    address: str
    transport: str
    medium: str  # what the donor lends: memory or file
    state: str
    slabs: int
    bytes: int
    rtt_ns: int
    reads: int
    writes: int
    why: str
    slab_bytes: int
    slabs_free: int  # that the donor would lend to this tenant now
    slabs_total: int  # that the donor may lend; 0: not known
    slabs_used: int  # that the donor has lent to all tenants
    silent_ms: int = 0  # since the last message on its control connection
    patience_ms: int = 0  # a silence of this length makes the donor lost
    alone_bytes: int = 0  # upper bound of the loss if only this donor dies
    orphans: int = 0  # slabs of the ended donor that are still mapped on this host
    orphans_waiting: int = 0  # orphans that no other donor has room for
    told: Told | None = None  # the donor's own figures
    wrong_pages: int = 0  # pages that came back with other bytes than were written
    leaving: bool = False  # removed by the operator; it is left once its slabs are moved

    @classmethod
    def read(cls, fields: Fields) -> DonorStatus:
        return cls(
            name=fields.text("name"),
            address=fields.text("address"),
            transport=fields.text("transport"),
            medium=fields.text("medium"),
            state=fields.text("state"),
            slabs=fields.number("slabs"),
            bytes=fields.number("bytes"),
            rtt_ns=fields.number("rtt_ns"),
            reads=fields.number("reads"),
            writes=fields.number("writes"),
            why=fields.text("why"),
            slab_bytes=fields.number("slab_bytes"),
            slabs_free=fields.number("slabs_free"),
            slabs_total=fields.number("slabs_total"),
            slabs_used=fields.number("slabs_used"),
            silent_ms=fields.number("silent_ms"),
            patience_ms=fields.number("patience_ms"),
            alone_bytes=fields.number("alone_bytes"),
            orphans=fields.number("orphans"),
            orphans_waiting=fields.number("orphans_waiting"),
            told=Told.read(fields),
            wrong_pages=fields.number("wrong_pages"),
            leaving=fields.flag("leaving"),
        )

    @property
    def trouble(self) -> str:
        """The reason why the donor is not up, and its orphans; "" if there is nothing to say."""
        orphans = orphans_said(self.orphans, self.orphans_waiting)
        return trouble(self.state, self.why, self.silent_ms, self.patience_ms, orphans)


@dataclass(frozen=True)
class Status:
    """The answer to `{"cmd":"status"}`."""

    name: str
    pid: int
    version: str
    mode: str
    uptime_s: float
    budget_bytes: int
    direct_bytes: int
    indirect_bytes: int
    size_bytes: int
    in_flight_bytes: int
    min_budget_bytes: int
    pinned_bytes: int
    faults: dict[str, int]
    fetches: int
    fetched_bytes: int
    writebacks: int
    written_bytes: int
    cancelled: int
    clean_drops: int
    zero_pages: int
    stretch: int
    reduce: int
    block_mix: dict[str, int]
    prefetch_fetched: int
    prefetch_observed: int
    prefetch_touched: int
    fault_latency: Latency
    fetch_latency: Latency
    writeback_latency: Latency
    lost_pages: int
    redundancy: str  # one of settings.REDUNDANCY
    seal: bool  # pages are encrypted before they leave
    copies: int  # configured number of slabs of an extent, each on another donor
    exposed_bytes: int  # if copies > 1: extents with a slab too few or a page not in each
    near_bytes: int  # extents with two copies on one host or in one group of donors
    lag_bytes: int  # with disk:lazy: memory that is not in files yet
    donors: tuple[DonorStatus, ...]
    together: dict[str, int]  # "near+far": bytes that are lost if all of these die at once
    extents: dict[str, int]
    waiting: int  # extents that wait for a slab

    @classmethod
    def read(cls, answer: Json, who: str) -> Status:
        f = Fields(answer, who)
        faults = f.group("faults")
        mix = f.group("block_mix")
        prefetch = f.group("prefetch")
        latency = f.group("latency_ns")
        extents = f.group("extents")
        return cls(
            name=f.text("name"),
            pid=f.number("pid"),
            version=f.text("version"),
            mode=f.text("mode"),
            uptime_s=f.real("uptime_s"),
            budget_bytes=f.number("budget_bytes"),
            direct_bytes=f.number("direct_bytes"),
            indirect_bytes=f.number("indirect_bytes"),
            size_bytes=f.number("size_bytes"),
            in_flight_bytes=f.number("in_flight_bytes"),
            min_budget_bytes=f.number("min_budget_bytes"),
            pinned_bytes=f.number("pinned_bytes"),
            faults={name: faults.number(name) for name in ("total", *FAULT_KINDS)},
            fetches=f.number("fetches"),
            fetched_bytes=f.number("fetched_bytes"),
            writebacks=f.number("writebacks"),
            written_bytes=f.number("written_bytes"),
            cancelled=f.number("cancelled"),
            clean_drops=f.number("clean_drops"),
            zero_pages=f.number("zero_pages"),
            stretch=f.number("stretch"),
            reduce=f.number("reduce"),
            block_mix={size: mix.number(size) for size in BLOCK_SIZES},
            prefetch_fetched=prefetch.number("fetched"),
            prefetch_observed=prefetch.number("observed"),
            prefetch_touched=prefetch.number("touched"),
            fault_latency=Latency.read(latency.group("fault")),
            fetch_latency=Latency.read(latency.group("fetch")),
            writeback_latency=Latency.read(latency.group("writeback")),
            lost_pages=f.number("lost_pages"),
            redundancy=f.text("redundancy"),
            seal=f.flag("seal"),
            copies=max(f.number("copies"), 1),
            exposed_bytes=f.number("exposed_bytes"),
            near_bytes=f.number("near_bytes"),
            lag_bytes=f.number("lag_bytes"),
            donors=tuple(DonorStatus.read(d) for d in f.groups("donors")),
            together=read_together(f),
            extents={n: extents.number(n) for n in ("total", "mapped", "moving", "lost")},
            waiting=f.number("waiting"),
        )

    @property
    def hit_ratio(self) -> float | None:
        """The share of all faults since the start that needed no fetch."""
        return hit_ratio(self.faults["missing"], self.faults["total"])

    @property
    def prefetch_accuracy(self) -> float | None:
        """The share of pages fetched ahead that were used, among those observed until eviction."""
        if not self.prefetch_observed:
            return None
        return min(1.0, self.prefetch_touched / self.prefetch_observed)


def read_together(fields: Fields) -> dict[str, int]:
    """The bytes that are lost if several donors die at once, by their names joined by +."""
    return {s.text("donors"): s.number("bytes") for s in fields.groups("together")}


def worst_deaths(alone: dict[str, int], together: dict[str, int]) -> str:
    """A text: which donor's death would lose most, and which deaths at once; "" if none would."""
    parts = []
    for found, die in ((alone, "dies"), (together, "die at once")):
        names, size = max(found.items(), key=lambda item: item[1], default=("", 0))
        if size:
            parts.append(f"at most {format_size(size)} if {names.replace('+', ' and ')} {die}")
    return "; ".join(parts)


def hit_ratio(missing: int, total: int) -> float | None:
    """1 - missing / total; None when there was no fault."""
    if total <= 0:
        return None
    return max(0.0, 1 - missing / total)


@dataclass(frozen=True)
class Rates:
    """Rates of one VM between two of its status answers."""

    faults_per_s: float
    hit_ratio: float | None
    written_bytes_per_s: float
    fetched_bytes_per_s: float
    block_mix: dict[str, int]

    @classmethod
    def between(cls, old: Status | None, new: Status, seconds: float) -> Rates:
        """Compute the rates; zero if there is no earlier answer, or the VM was restarted since."""
        if old is None or old.pid != new.pid or new.uptime_s < old.uptime_s or seconds <= 0:
            return cls(0.0, None, 0.0, 0.0, new.block_mix)

        def delta(a: int, b: int) -> int:
            return max(0, b - a)

        total = delta(old.faults["total"], new.faults["total"])
        missing = delta(old.faults["missing"], new.faults["missing"])
        mix = {s: delta(old.block_mix[s], new.block_mix[s]) for s in BLOCK_SIZES}
        return cls(
            faults_per_s=total / seconds,
            hit_ratio=hit_ratio(missing, total),
            written_bytes_per_s=delta(old.written_bytes, new.written_bytes) / seconds,
            fetched_bytes_per_s=delta(old.fetched_bytes, new.fetched_bytes) / seconds,
            block_mix=mix if any(mix.values()) else new.block_mix,
        )
