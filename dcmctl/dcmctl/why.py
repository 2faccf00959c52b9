# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl why`: what a VM's accesses wait for, and what would help."""

from __future__ import annotations

import argparse
import time

from dcmctl.cluster import estate
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.lib.units import PAGE
from dcmctl.pager import why

Args = argparse.Namespace


def find(name: str) -> estate.Machine:
    """The VM of this name, or with its memory in this file, of either pager."""
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
    cpu_before = why.cpu_wait_ns(old.pid) if old.pid else {}
    time.sleep(seconds)
    new = find(args.vm)
    took = time.monotonic() - begun
    before, after = old.counters or {}, new.counters or {}
    waits = why.Waits.between(before, after) if old.pid == new.pid else None
    if waits is None:
        raise DcmError(
            f"VM {new.name} started anew meanwhile, or its pager is of another version than dcmctl"
        )
    cpu = why.summed(cpu_before, why.cpu_wait_ns(new.pid)) if new.pid else None
    larger = {}
    if old.away and new.away and new.budget_bytes:
        away = new.away.since(old.away)
        more = {1.25: 4, 1.5: 2, 2.0: 1}
        larger = {f: away.still_fetched(new.budget_bytes // PAGE // by) for f, by in more.items()}
    faults, missing = (after.get(n, 0) - before.get(n, 0) for n in ("FAULTS", "FAULT_MISSING"))
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
                "largest": waits.largest,
                "advice": waits.advice(new.waiting_extents),
            }
        )
    else:
        text = why.lines(new.name, took, waits, (faults, missing), cpu, new.waiting_extents)
        text.insert(-1, _larger_line(larger))
        print("\n".join(text))
    return 0
