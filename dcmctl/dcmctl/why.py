# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl why`: what a VM's accesses wait for, and what would help."""

from __future__ import annotations

import argparse
import time

from dcmctl.cluster import estate
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.lib.units import PAGE, format_count
from dcmctl.pager import reuse, why

Args = argparse.Namespace
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
MOSTLY = 0.5  # share of the time lost to fetches, if it is not known


def find(name: str) -> estate.Machine:
    """Find a VM of either pager by its name, its socket or its file."""
    vms = estate.look(ask_donors=False).vms
    found = [vm for vm in vms if name in (vm.name, vm.path)]
    if not found:
        known = ", ".join(vm.name for vm in vms[:8]) or "none"
        raise DcmError(f"no VM '{printable(name)}' is running (running: {known})")
    if len(found) > 1:
        paths = " or ".join(vm.path for vm in found)
        raise DcmError(f"more than one VM is called '{printable(name)}': write {paths}")
    vm = found[0]
    if vm.counters is None:
        raise DcmError(f"VM {vm.name}: {vm.error or 'its counters can not be read'}")
    return vm


def _larger_line(larger: dict[float, float | None]) -> str:
    known = [f"{s * 100:.0f}% with {f:g} x" for f, s in larger.items() if s is not None]
    if not known:
        return "  a larger budget: too little was fetched to tell"
    return f"  a larger budget would still fetch {', '.join(known)} the budget"


def _curve(
    old: estate.Machine, new: estate.Machine, now: float, lost: float | None
) -> dict[float, float | None]:
    """Forecast fetching faults a second for each of FACTORS, in multiples of the present budget."""
    told: dict[float, float | None] = dict.fromkeys(FACTORS)
    if not old.reuse or not new.reuse or not new.budget_bytes:
        return told
    seen, budget = new.reuse.since(old.reuse), new.budget_bytes // PAGE
    fetched = reuse.fetched_used(old.counters or {}, new.counters or {})
    for factor in FACTORS:
        ratio = seen.ratio(budget, int(budget * factor), fetched)
        if ratio is not None:
            told[factor] = reuse.rate(now, ratio, MOSTLY if lost is None else lost)
    return told


def _curve_line(vm: estate.Machine, curve: dict[float, float | None]) -> str:
    known = [f"{format_count(round(n))} with {f:g} x" for f, n in curve.items() if n is not None]
    if known:
        return f"  faults that fetch, a second, foretold: {', '.join(known)} the budget"
    if vm.reuse and vm.reuse.blind > reuse.BLIND_MAX * vm.reuse.pages:
        return "  a smaller budget: not known, as too many of its pages can't be watched"
    return "  a smaller budget: too few touches were seen to tell: look longer (--seconds)"


def seconds_of(text: str) -> float:
    """The value of --seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise UsageError(f"--seconds '{printable(text)}' is not 0.1 to 3600")
    return seconds


def cmd_why(args: Args) -> int:
    seconds = seconds_of(args.seconds)
    old, begun = find(args.vm), time.monotonic()
    times_before = why.Times.read(old.pid)
    time.sleep(seconds)
    new = find(args.vm)
    took = time.monotonic() - begun
    before, after = old.counters or {}, new.counters or {}
    waits = why.Waits.between(before, after) if old.pid == new.pid else None
    if waits is None:
        raise DcmError(
            f"VM {new.name} started anew meanwhile, or its pager is of another version than dcmctl"
        )
    times = why.Times.read(new.pid)
    cpu = why.summed(times_before.queued, times.queued)
    larger = {}
    if old.away and new.away and new.budget_bytes:
        away = new.away.since(old.away)
        more = {1.25: 4, 1.5: 2, 2.0: 1}
        larger = {f: away.still_fetched(new.budget_bytes // PAGE // by) for f, by in more.items()}
    faults, missing = (after.get(n, 0) - before.get(n, 0) for n in ("FAULTS", "FAULT_MISSING"))
    lost = times.lost(times_before, took * 1e9, missing)
    curve = _curve(old, new, missing / took, lost)
    if args.json:
        print_json(
            {
                "name": new.name,
                "pager": new.pager,
                "seconds": round(took, 3),
                "faults": faults,
                "missing": missing,
                "waited_ns": waits.ns,
                "cpu_waited_ns": cpu,
                "still_fetched": larger,
                "fetches_per_s": {f: n if n is None else round(n) for f, n in curve.items()},
                "lost_time": None if lost is None else round(lost, 3),
                "largest": waits.largest,
                "advice": waits.advice(new.waiting_extents),
            }
        )
    else:
        text = why.lines(new.name, took, waits, (faults, missing), cpu, new.waiting_extents)
        text.insert(-1, _larger_line(larger))
        text.insert(-1, _curve_line(new, curve))
        print("\n".join(text))
    return 0
