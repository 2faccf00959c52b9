# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl budget VM --advise PERCENT`: the budget for a given slowdown, and how sure it is."""

from __future__ import annotations

import argparse
import time

from dcmctl.cluster.estate import Machine
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.lib.units import PAGE, format_count, format_size
from dcmctl.pager import why
from dcmctl.pager.advise import Cost
from dcmctl.pager.reuse import fetched_used
from dcmctl.why import find, seconds_of

Args = argparse.Namespace
Reading = tuple[Machine, dict[str, int]]


def _read(name: str) -> Reading:
    vm = find(name)
    ran = why.cpu_ran_ns(vm.pid) if vm.pid else {}
    if not ran:
        raise DcmError(
            f"VM {vm.name}: its threads' CPU time can't be read, which its waits are compared with"
            + ("; it is known for VMs of the user pager" if vm.pid is None else "")
        )
    return vm, ran


def _cost(old: Reading, new: Reading) -> Cost:
    (before, ran_before), (after, ran_after) = old, new
    a, b = before.counters or {}, after.counters or {}
    waits = why.Waits.between(a, b) if before.pid == after.pid else None
    if waits is None or not before.away or not after.away or not after.budget_bytes:
        raise DcmError(f"VM {after.name} started anew, or its pager is of another version")
    if before.budget_bytes != after.budget_bytes:
        raise DcmError(f"VM {after.name}: its budget was changed meanwhile")
    faults, zero = (b.get(n, 0) - a.get(n, 0) for n in ("FAULTS", "FAULT_ZERO"))
    ran = why.summed(ran_before, ran_after) or 0
    away = after.away.since(before.away)
    reuse = after.reuse.since(before.reuse) if before.reuse and after.reuse else None
    fetched = fetched_used(a, b)
    return Cost.of(after.budget_bytes // PAGE, waits, faults, zero, ran, away, reuse, fetched)


def _size(pages: int | None) -> str:
    return "none known" if pages is None else format_size(pages * PAGE)


def _lines(
    name: str,
    share: float,
    now: float,
    whole: Cost,
    budget: int | None,
    halves: list[int | None],
) -> list[str]:
    """The advice as lines of text; `halves` are the advice from each half of the interval."""
    text = [
        f"{name}: {now * 100:.0f} % slower than with all of its memory direct, with a budget of "
        f"{_size(whole.budget_pages)}"
    ]
    if budget is None:
        why_not = (
            "too little was fetched to tell"
            if whole.slower(whole.budget_pages * 2) is None
            else "no budget is enough, as new pages cost more than that"
        )
        return [*text, f"for {share * 100:g} %: {why_not}"]
    if now <= share and budget == whole.budget_pages:
        known = whole.slower(whole.budget_pages * 15 // 16) is not None
        smaller = "no smaller one is" if known else "for smaller budgets nothing is foretold"
        return [*text, f"that is within what was asked for; {smaller}"]
    slower = whole.slower(budget) or 0.0
    text.append(f"for {share * 100:g} %: a budget of {_size(budget)}, with {slower * 100:.0f} %")
    source = f"{format_count(sum(whole.away.fetched.values()))} fetched pages"
    if budget < whole.budget_pages and whole.reuse:
        source = f"the touches of {format_count(whole.reuse.watched)} watched pages"
    text.append(
        f"from {source}; each half of the time alone says {_size(halves[0])} and "
        f"{_size(halves[1])}"
    )
    return text


def cmd_advise(args: Args) -> int:
    try:
        share = float(args.advise) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 10:
        raise UsageError(f"--advise '{printable(args.advise)}' is not a percentage above 0")
    half = seconds_of(args.seconds) / 2
    readings = [_read(args.vm)]
    for _ in range(2):
        time.sleep(half)
        readings.append(_read(args.vm))
    vm, whole = readings[2][0], _cost(readings[0], readings[2])
    least = -(-(vm.min_budget_bytes or 0) // PAGE)
    halves = [_cost(readings[i], readings[i + 1]).budget_for(share, least) for i in range(2)]
    now, budget = whole.slower(), whole.budget_for(share, least)
    fetched = sum(whole.away.fetched.values())
    if args.json:
        sizes = [None if pages is None else pages * PAGE for pages in (budget, *halves)]
        print_json(
            {
                "name": vm.name,
                "percent": share * 100,
                "budget_bytes": vm.budget_bytes,
                "slower_percent": None if now is None else round(now * 100, 1),
                "advised_bytes": sizes[0],
                "halves_bytes": sizes[1:],
                "fetched_pages": fetched,
            }
        )
        return 0
    if now is None:
        raise DcmError(f"VM {vm.name}: its threads did not run: try again while it works")
    print("\n".join(_lines(vm.name, share, now, whole, budget, halves)))
    return 0
