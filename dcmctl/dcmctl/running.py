# SPDX-License-Identifier: GPL-2.0-or-later
"""Running VMs: `dcmctl status`, `list`, `top`, `why`, `budget`, `redundancy` and `tunable`.

They send requests to libdcm in the VM's process, over the VM's socket (pager/vmsock.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from dcmctl import show
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.lib.table import table
from dcmctl.lib.units import format_duration, format_size, parse_size
from dcmctl.pager import settings, vmsock
from dcmctl.pager.status import Fields, Status

Args = argparse.Namespace


# ---- commands that only read ----


def _ask_status(vm: vmsock.Vm) -> tuple[vmsock.Json, Status]:
    answer = vm.ask({"cmd": "status"})
    return answer, Status.read(answer, f"VM {vm.name}")


def cmd_status(args: Args) -> int:
    vm = vmsock.find(args.vm) if args.vm else vmsock.find_only()
    answer, status = _ask_status(vm)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(show.status_lines(vm.name, status)))
    return 0


def cmd_list(args: Args) -> int:
    vms = vmsock.find_all()
    if args.quiet:
        for vm in vms:
            print(vm.name)
        return 0
    rows: list[list[str]] = []
    objects: list[dict[str, Any]] = []
    failed = False
    for vm in vms:
        try:
            _, s = _ask_status(vm)
        except vmsock.VmGone:
            continue
        except DcmError as exc:
            failed = True
            print(f"dcmctl: {exc}", file=sys.stderr)
            objects.append({"name": vm.name, "socket": str(vm.path), "error": str(exc)})
            continue
        objects.append(
            {
                "name": vm.name,
                "socket": str(vm.path),
                "pid": s.pid,
                "mode": s.mode,
                "uptime_s": s.uptime_s,
                "budget_bytes": s.budget_bytes,
                "direct_bytes": s.direct_bytes,
                "indirect_bytes": s.indirect_bytes,
                "size_bytes": s.size_bytes,
                "lost_pages": s.lost_pages,
                "donors": [d.name for d in s.donors],
            }
        )
        rows.append(
            [
                vm.name,
                str(s.pid),
                s.mode or "-",
                format_duration(s.uptime_s),
                format_size(s.direct_bytes),
                format_size(s.budget_bytes),
                format_size(s.indirect_bytes),
                ",".join(d.name for d in s.donors) or "-",
            ]
        )
    if args.json:
        print_json(objects)
    elif rows:
        header = ["VM<", "PID", "MODE<", "UP", "DIRECT", "BUDGET", "INDIRECT", "DONORS<"]
        print("\n".join(table(header, rows)))
    elif not failed:
        print("no VM is running")
    return 1 if failed else 0


def cmd_top(args: Args) -> int:
    from dcmctl.top import top  # only this command needs the modules for terminals

    try:
        interval = float(args.interval)
    except ValueError:
        interval = 0.0
    if not 0.1 <= interval <= 3600:
        raise UsageError(f"interval '{printable(args.interval)}' is not 0.1 to 3600 seconds")
    return top(interval, args.once, args.json)


def cmd_why(args: Args) -> int:
    from dcmctl import why  # reads the whole estate

    return why.cmd_why(args)


# ---- commands that change a VM ----


def cmd_budget(args: Args) -> int:
    if (args.size is None) == (args.advise is None):
        raise UsageError("dcmctl budget needs either a SIZE or --advise PERCENT")
    if args.advise is not None:
        from dcmctl import advise  # reads the whole estate

        return advise.cmd_advise(args)
    vm = vmsock.find(args.vm)
    size = parse_size(args.size, "budget")
    _, before = _ask_status(vm)
    vm.ask({"cmd": "budget", "bytes": size})
    _, after = _ask_status(vm)
    if args.json:
        print_json(
            {
                "name": vm.name,
                "old_budget_bytes": before.budget_bytes,
                "budget_bytes": after.budget_bytes,
                "direct_bytes": after.direct_bytes,
            }
        )
    else:
        print(
            f"{vm.name}: budget {format_size(before.budget_bytes)} -> "
            f"{format_size(after.budget_bytes)}, {format_size(after.direct_bytes)} direct now"
        )
    return 0


def cmd_redundancy(args: Args) -> int:
    vm = vmsock.find(args.vm)
    _, before = _ask_status(vm)
    after = before
    if args.value is not None:
        vm.ask({"cmd": "redundancy", "value": args.value})
        _, after = _ask_status(vm)
    if args.json:
        print_json(
            {
                "name": vm.name,
                "old_redundancy": before.redundancy,
                "redundancy": after.redundancy,
                "old_copies": before.copies,
                "copies": after.copies,
                "exposed_bytes": after.exposed_bytes,
            }
        )
        return 0
    text = f"{vm.name}: redundancy "
    if args.value is not None:
        text += f"{before.redundancy} -> "
    text += after.redundancy
    if after.copies > 1 and after.exposed_bytes:
        text += f"; {format_size(after.exposed_bytes)} has fewer copies yet (dcmctl status)"
    print(text)
    return 0


def _tunables(vm: vmsock.Vm) -> dict[str, dict[str, Any]]:
    """Tunables by name: {"value": N}, and unit, bounds and reason if libdcm gives them."""
    who = f"VM {vm.name}"
    fields = Fields(vm.ask({"cmd": "tunables"}), who)
    found: dict[str, dict[str, Any]] = {}
    raw = fields.raw("tunables")
    if isinstance(raw, dict):
        raw = [
            {"name": name, **value} if isinstance(value, dict) else {"name": name, "value": value}
            for name, value in raw.items()
        ]
    if not isinstance(raw, list) or len(raw) > 1024:
        raise DcmError(f"{who} sent an answer without a list of tunables")
    for item in raw:
        entry = Fields(item, f"{who}: tunable")
        name = entry.text("name")
        found[name] = {"value": entry.number("value")}
        for key in ("unit", "why"):
            if key in entry:
                found[name][key] = entry.text(key)
        for key in ("default", "min", "max"):
            if key in entry:
                found[name][key] = entry.number(key)
    return found


def cmd_tunable(args: Args) -> int:
    vm = vmsock.find(args.vm)
    if args.name is None:
        return _show_tunables(vm, args.json)
    name = settings.tunable_name(args.name)
    before = _tunables(vm)
    if name not in before:
        raise DcmError(f"VM {vm.name} has no tunable '{name}'; it has: {', '.join(before)}")
    after = before
    if args.value is not None:
        vm.ask({"cmd": "set", "name": name, "value": settings.tunable_value(args.value, name)})
        after = _tunables(vm)
        if name not in after:
            raise DcmError(f"VM {vm.name} no longer lists tunable '{name}'")
    if args.json:
        print_json({"name": name, **after[name]})
    elif args.value is None:
        print(after[name]["value"])
    else:
        print(f"{vm.name}: {name} {before[name]['value']} -> {after[name]['value']}")
    return 0


def _show_tunables(vm: vmsock.Vm, machine: bool) -> int:
    found = _tunables(vm)
    if machine:
        print_json(found)
        return 0
    rows = []
    for name, entry in found.items():
        bounds = f"{entry['min']}..{entry['max']}" if "min" in entry and "max" in entry else "-"
        rows.append(
            [
                name,
                str(entry["value"]),
                entry.get("unit", "-"),
                str(entry.get("default", "-")),
                bounds,
            ]
        )
    print("\n".join(table(["TUNABLE<", "VALUE", "UNIT<", "DEFAULT", "RANGE<"], rows)))
    return 0


# ---- the parser ----


def add_parsers(sub: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    p = add(sub, "status", cmd_status, "show all figures of a running VM")
    p.add_argument(
        "vm", nargs="?", metavar="VM", help="name of the VM (default: the only one that runs)"
    )

    p = add(sub, "list", cmd_list, "list running VMs")
    p.add_argument(
        "-q", "--quiet", action="store_true", help="print names only, without asking the VMs"
    )

    p = add(sub, "top", cmd_top, "show a live table of VMs and donors")
    p.add_argument(
        "--interval", metavar="S", default="2", help="seconds between two readings (default 2)"
    )
    p.add_argument(
        "--once", action="store_true", help="print one table after one interval, and exit"
    )

    p = add(sub, "why", cmd_why, "show what a VM's accesses wait for, and what would help")
    p.add_argument("vm", metavar="VM", help="its name, or the path of its dcmfs file")
    p.add_argument(
        "--seconds", metavar="S", default="5", help="how long to look (default %(default)s)"
    )

    text = "change the direct budget of a running VM, or say which it needs"
    p = add(sub, "budget", cmd_budget, text)
    p.add_argument("vm", metavar="VM")
    p.add_argument("size", nargs="?", metavar="SIZE")
    p.add_argument(
        "--advise", metavar="PERCENT", help="name the budget for so much slowdown; changes nothing"
    )
    p.add_argument(
        "--seconds", metavar="S", default="10", help="how long --advise looks (default %(default)s)"
    )

    text = "show or change on how many donors a running VM has each page"
    p = add(sub, "redundancy", cmd_redundancy, text)
    p.add_argument("vm", metavar="VM")
    p.add_argument("value", nargs="?", metavar="VALUE", choices=settings.REDUNDANCY)

    p = add(sub, "tunable", cmd_tunable, "list, show or change tunables of a running VM")
    p.add_argument("vm", metavar="VM")
    p.add_argument("name", nargs="?", metavar="NAME")
    p.add_argument("value", nargs="?", metavar="VALUE")
