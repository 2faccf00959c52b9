# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl top`: a live table of VMs and donors.

On a terminal the table is on the alternate screen, and a key ends it. If output is no terminal, and
with --once or --json, each interval prints one table, or one JSON object on a line. Rates are
differences between two readings, so a VM appears from its second reading on; latencies are
percentiles since the VM started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dcmctl.lib.errors import DcmError
from dcmctl.lib.table import bar, table
from dcmctl.lib.units import format_count, format_ns, format_percent, format_size
from dcmctl.pager import vmsock
from dcmctl.pager.status import Rates, Status
from dcmctl.pager.vmsock import Json, Vm, VmGone
from dcmctl.show import MIX_LEGEND, donor_table, mix_bar

_ASK_TIMEOUT = 2.0
_ALT_ON, _ALT_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"

_HEADER = [
    "VM<",
    "PID",
    "DIRECT<",
    "OF",
    "BUDGET",
    "INDIRECT",
    "FAULTS/S",
    "HIT",
    "BLOCKS<",
    "P50",
    "P99",
    "OUT MB/S",
    "IN MB/S",
]


@dataclass(frozen=True)
class Look:
    """One reading of one VM."""

    at: float
    status: Status
    raw: Json


@dataclass
class Sample:
    """One reading of all VMs, with rates since the reading before."""

    at: float
    interval: float = 0.0
    looks: dict[str, Look] = field(default_factory=dict)
    rates: dict[str, Rates] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def _look(vm: Vm) -> Look | DcmError:
    try:
        raw = vm.ask({"cmd": "status"}, _ASK_TIMEOUT)
        return Look(time.monotonic(), Status.read(raw, f"VM {vm.name}"), raw)
    except DcmError as exc:
        return exc


def take(previous: Sample | None, pool: ThreadPoolExecutor) -> Sample:
    """Ask every running VM for its status. A VM that fails to answer has no row; others do."""
    now = time.monotonic()
    sample = Sample(now, now - previous.at if previous else 0.0)
    vms = vmsock.find_all()
    for vm, look in zip(vms, pool.map(_look, vms), strict=True):
        if isinstance(look, VmGone):
            continue
        if isinstance(look, DcmError):
            sample.errors[vm.name] = str(look)
            continue
        old = previous.looks.get(vm.name) if previous else None
        sample.looks[vm.name] = look
        sample.rates[vm.name] = Rates.between(
            old.status if old else None, look.status, look.at - old.at if old else 0.0
        )
    return sample


# ---- showing ----


def lines(sample: Sample) -> list[str]:
    """The table as lines of text."""
    statuses = {name: look.status for name, look in sample.looks.items()}
    direct = sum(s.direct_bytes for s in statuses.values())
    budget = sum(s.budget_bytes for s in statuses.values())
    indirect = sum(s.indirect_bytes for s in statuses.values())
    faults = sum(r.faults_per_s for r in sample.rates.values())
    count = len(statuses) + len(sample.errors)
    out = [
        f"dcmctl top  {time.strftime('%H:%M:%S')}  {count} VM{'' if count == 1 else 's'}  "
        f"direct {format_size(direct)} of {format_size(budget)}  "
        f"indirect {format_size(indirect)}  {format_count(faults)} faults/s",
        "",
    ]
    rows = []
    for name, status in statuses.items():
        rate = sample.rates[name]
        rows.append(
            [
                name,
                str(status.pid),
                bar(status.direct_bytes, status.budget_bytes, 10),
                format_size(status.direct_bytes),
                format_size(status.budget_bytes),
                format_size(status.indirect_bytes),
                format_count(rate.faults_per_s),
                format_percent(rate.hit_ratio),
                mix_bar(rate.block_mix),
                format_ns(status.fault_latency.p50),
                format_ns(status.fault_latency.p99),
                f"{rate.written_bytes_per_s / 1e6:.1f}",
                f"{rate.fetched_bytes_per_s / 1e6:.1f}",
            ]
        )
    if rows:
        out += table(_HEADER, rows)
    elif not sample.errors:
        out.append("no VM is running: start one with dcmctl run")
    for name, status in statuses.items():
        if status.exposed_bytes:
            exposed = format_size(status.exposed_bytes)
            out.append(f"! {name}: {exposed} have fewer than {status.copies} copies")
        if status.seal:
            out.append(f"{name}: each page is encrypted on this host before it leaves")
        if status.lag_bytes:
            out.append(f"{name}: {format_size(status.lag_bytes)} is not in files yet")
        if status.lost_pages:
            out.append(f"! {name}: {status.lost_pages} pages lost with their donor")
    out += [f"! {message}" for message in sample.errors.values()]
    if rows:
        donors = donor_table(list(statuses.items()))
        out += ["", *donors, "", MIX_LEGEND]
    return out


def as_json(sample: Sample) -> Json:
    """The reading as JSON: each VM's own status, and its rates."""
    vms = []
    for name, look in sample.looks.items():
        rate = sample.rates[name]
        vms.append(
            {
                **look.raw,
                "name": name,
                "rates": {
                    "faults_per_s": round(rate.faults_per_s, 3),
                    "hit_ratio": rate.hit_ratio,
                    "written_bytes_per_s": round(rate.written_bytes_per_s, 3),
                    "fetched_bytes_per_s": round(rate.fetched_bytes_per_s, 3),
                    "block_mix": rate.block_mix,
                },
            }
        )
    return {
        "time": round(time.time(), 3),
        "interval_s": round(sample.interval, 3),
        "vms": vms,
        "errors": [{"vm": vm, "error": text} for vm, text in sample.errors.items()],
    }


def _emit(sample: Sample, machine: bool) -> None:
    text = json.dumps(as_json(sample)) if machine else "\n".join(lines(sample)) + "\n"
    print(text, flush=True)


# ---- the terminal ----


@contextlib.contextmanager
def _screen(fd: int) -> Iterator[None]:
    """The alternate screen, and keys without echo, until the block ends."""
    saved = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        sys.stdout.write(_ALT_ON)
        sys.stdout.flush()
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, saved)
        sys.stdout.write(_ALT_OFF)
        sys.stdout.flush()


def _draw(sample: Sample) -> None:
    width, height = shutil.get_terminal_size()
    out = [_HOME]
    shown = lines(sample)
    hint = "q ends it"
    if len(shown) > height - 1:
        shown = shown[: max(1, height - 2)]
        hint = "q ends it; the window is too small for the whole table"
    for line in [*shown, "", hint][:height]:
        text = line[:width]
        if line.startswith(("VM ", "DONOR ")):
            text = _BOLD + text + _PLAIN
        elif line.startswith("!"):
            text = _RED + text + _PLAIN
        out.append(text + _CLEAR_LINE + "\r\n")
    out[-1] = out[-1].removesuffix("\r\n")
    out.append(_CLEAR_BELOW)
    sys.stdout.write("".join(out))
    sys.stdout.flush()


def _key_ends(fd: int, seconds: float) -> bool:
    """Wait for an interval or a key; return whether it was q, Q, Escape or the end of input."""
    try:
        ready, _, _ = select.select([fd], [], [], max(0.0, seconds))
    except InterruptedError:
        return False
    return bool(ready) and os.read(fd, 64)[:1] in (b"q", b"Q", b"\x1b", b"")


def _live(interval: float, next_sample: Callable[[Sample | None], Sample]) -> None:
    fd = sys.stdin.fileno()
    with _screen(fd):
        sample = next_sample(None)
        while True:
            _draw(sample)
            due = sample.at + interval
            while (left := due - time.monotonic()) > 0:
                if _key_ends(fd, left):
                    return
            sample = next_sample(sample)


def top(interval: float, once: bool, machine: bool) -> int:
    """Run `dcmctl top`. --once waits one interval too, because a rate needs two readings."""
    with ThreadPoolExecutor(max_workers=8) as pool:

        def next_sample(previous: Sample | None) -> Sample:
            return take(previous, pool)

        try:
            if not once and not machine and sys.stdout.isatty() and sys.stdin.isatty():
                _live(interval, next_sample)
                return 0
            # The handler sets a flag: an exception raised inside a destructor would be lost.
            halt = threading.Event()
            signal.signal(signal.SIGINT, lambda *_: halt.set())
            sample = next_sample(None)
            while True:
                if sample.looks or sample.errors or not once:
                    if halt.wait(interval):
                        return 0
                    sample = next_sample(sample)
                _emit(sample, machine)
                if once:
                    return 0
        except KeyboardInterrupt:
            return 0
