# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl vm`: domains of libvirt whose memory is on donors.

To change a domain, dcmctl adds or removes a few elements of its XML (domain.py), defines it again,
and reads it back: if anything else has changed, dcmctl defines the old XML again (connection.py).
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcmctl.lib.address import check_name
from dcmctl.lib.errors import DcmError, UsageError, printable, reason
from dcmctl.lib.output import print_json
from dcmctl.lib.table import table
from dcmctl.lib.units import format_size
from dcmctl.libvirt import balloon, check, domain, emulator, user_session
from dcmctl.libvirt.connection import Host, memory_in, said_by_libvirt
from dcmctl.libvirt.domain import Memory
from dcmctl.pager import dcmfs, hostd, settings
from dcmctl.pager.status import worst_deaths

Args = argparse.Namespace
STATES = {1: "running", 2: "blocked", 3: "paused", 4: "ending", 5: "off", 6: "crashed", 7: "asleep"}


def _check_idle(dom: Any) -> None:
    with said_by_libvirt():
        if not dom.isPersistent():
            raise DcmError(
                f"domain {dom.name()} is transient, so there is no definition to change: define it "
                "first (virsh define)"
            )
        if dom.hasManagedSaveImage():
            raise DcmError(
                f"domain {dom.name()} has a saved state, which needs the memory it was saved with: "
                "start it and shut it down first"
            )


# ---- commands ----


def _diff(name: str, before: bytes, after: bytes) -> list[str]:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    lines = difflib.unified_diff(old, new, f"{name} (now)", name, lineterm="")
    return [printable(line, 400) for line in lines]


def _change(args: Args, host: Host, dom: Any, wanted: bytes) -> int:
    before = host.xml(dom)
    name, active = dom.name(), bool(dom.isActive())
    lines = _diff(name, before, wanted)
    why = balloon.why_not(domain.read_domain(wanted))
    if not args.dry_run and lines:
        host.define(before, wanted)
    if args.json:
        memory = memory_in(wanted)
        print_json(
            {
                "name": name,
                "direct_bytes": None if memory is None else memory.direct,
                "donors": [] if memory is None else list(memory.donors),
                "groups": [] if memory is None else list(memory.groups),
                "redundancy": None if memory is None else memory.redundancy or None,
                "seal": None if memory is None else memory.seal or None,
                "free_page_reporting": why is None,
                "changed": bool(lines),
                "dry_run": args.dry_run,
                "diff": lines,
            }
        )
        return 0
    print("\n".join(lines) if lines else f"{name}: nothing to change")
    if why is not None and memory_in(wanted) is not None:
        print(f"{name}: memory that its guest frees goes to donors: {why}")
    if lines and active and not args.dry_run:
        print(f"{name} runs: the change takes effect at its next start")
    return 0


def cmd_enable(args: Args) -> int:
    host = Host(args.connect)
    dom = host.find(args.vm)
    _check_idle(dom)
    had = host.memory(dom)
    if args.direct is None and had is None:
        raise UsageError(
            "no --direct SIZE: give the most of its memory that may be on this host"
        )
    direct = had.direct if had is not None else 0
    if args.direct is not None:
        direct = _budget(args.direct, "--direct")
    donors, groups = _names(args.donor, "donor"), _names(args.group, "group")
    pager = args.pager or (host.pager if had is None else had.pager)
    before = host.xml(dom)
    made = _emulator(pager)
    report = args.free_page_reporting
    if report is None and (had is None or balloon.ADDED not in had.added):
        report = "yes"
    wanted = domain.enable(
        before, direct, donors, host.kinds, groups, made, args.redundancy, args.seal, report
    )
    if pager == "user":
        _check_program(wanted)
    return _change(args, host, dom, wanted)


def _emulator(pager: str) -> str:
    return str(user_session.find_emulator()) if pager == "user" else ""


def _check_program(wanted: bytes) -> None:
    """Refuse a domain whose <emulator> was another QEMU than the one that dcm-qemu starts."""
    memory = memory_in(wanted)
    program = emulator.find_qemu()
    had = memory.emulator if memory is not None else ""
    if had and os.path.realpath(had) != os.path.realpath(program):
        raise DcmError(
            f"its <emulator> is {had}, and libdcm pages {program} only: change <emulator>"
        )


def _names(given: list[str] | None, what: str) -> tuple[str, ...] | None:
    if not given:
        return None
    names = tuple(check_name(name, what) for name in given)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{what} {name} is given twice: leave one out")
    return names


def cmd_disable(args: Args) -> int:
    host = Host(args.connect)
    dom = host.find(args.vm)
    _check_idle(dom)
    return _change(args, host, dom, domain.disable(host.xml(dom)))


def _budget(text: str, what: str) -> int:
    size = settings.page_size(text, what)
    if size < settings.BUDGET_MIN:
        raise UsageError(f"{what} '{printable(text)}' is too small: at least 1M")
    return size


def _enabled(args: Args) -> tuple[Host, Any, Memory]:
    """The domain that the arguments name; an error if its memory is not on donors."""
    host = Host(args.connect)
    dom = host.find(args.vm)
    memory = host.memory(dom)
    if memory is None:
        raise DcmError(f"{dom.name()}: its memory is not on donors: dcmctl vm enable {dom.name()}")
    return host, dom, memory


def cmd_budget(args: Args) -> int:
    host, dom, memory = _enabled(args)
    live = _live(host, dom, memory)
    if args.size is not None:
        size = _budget(args.size, "budget")
        before = host.xml(dom)
        wanted = domain.enable(before, size, None, host.kinds, None, _emulator(memory.pager))
        if dom.isActive():
            _set_live(host, dom, memory, size)
            live = _live(host, dom, memory)
        if dom.isPersistent():
            host.define(before, wanted)
        memory = replace(memory, direct=size)
    answer = {
        "name": dom.name(),
        "direct_bytes": memory.direct,
        "budget_bytes": None if live is None else live.budget,
        "used_bytes": None if live is None else live.direct,
    }
    if args.json:
        print_json(answer)
        return 0
    text = f"{dom.name()}: budget {format_size(memory.direct)}"
    if live is not None:
        if live.budget != memory.direct:
            text += f" from its next start, {format_size(live.budget)} now"
        text += f"; {format_size(live.direct)} direct now"
    elif dom.isActive():
        text += " from its next start"
    print(text)
    return 0


def cmd_redundancy(args: Args) -> int:
    host, dom, memory = _enabled(args)
    now: str | None = None
    if args.value is not None:
        before = host.xml(dom)
        made = _emulator(memory.pager)
        wanted = domain.enable(before, memory.direct, None, host.kinds, None, made, args.value)
        if dom.isActive():
            now = _set_live_redundancy(host, dom, memory, args.value)
        if dom.isPersistent():
            host.define(before, wanted)
        memory = replace(memory, redundancy=args.value)
    said = memory.redundancy or "what the configuration says"
    if args.json:
        print_json({"name": dom.name(), "redundancy": memory.redundancy or None, "now": now})
        return 0
    text = f"{dom.name()}: redundancy {said}"
    if now is None and (args.value is not None or not dom.isActive()):
        text += " from its next start"
    print(text + _risks(dom, memory))
    return 0


def _risks(dom: Any, memory: Memory) -> str:
    """The state of a running domain's copies, for the kernel pager; else see dcmctl status."""
    file: hostd.HostFile | None = None
    if memory.pager == "kernel" and dom.isActive():
        with contextlib.suppress(DcmError):
            file = hostd.file_at(hostd.ask(), _path(dom))
    if file is None:
        return ""
    exposed = format_size(file.exposed_bytes) if file.exposed_bytes else "nothing"
    text = f"; {exposed} has fewer copies" if file.copies > 1 else ""
    if file.lag_bytes:
        text += f"; {format_size(file.lag_bytes)} is not in files yet"
    if file.seal:
        text += "; its pages are encrypted before they leave"
    worst = worst_deaths({d.name: d.alone_bytes for d in file.donors}, file.together)
    return f"{text}; {worst}" if worst else text


def _set_live_redundancy(host: Host, dom: Any, memory: Memory, value: str) -> str | None:
    """Set the redundancy of a running domain; None if it was started before vm enable."""
    root = _root(host, dom)
    if memory.pager == "user":
        if user_session.live(root) is None:
            return None
        user_session.set_redundancy(root, value)
        return value
    if not dcmfs.mounts() or not _path(dom).exists():
        return None
    hostd.set_redundancy(_path(dom), memory.chosen, value, memory.seal)
    return value


def _root(host: Host, dom: Any) -> Any:
    return domain.read_domain(host.xml(dom))


def _set_live(host: Host, dom: Any, memory: Memory, size: int) -> None:
    """Set the budget of a running domain, unless it was started before vm enable."""
    if memory.pager == "user":
        root = _root(host, dom)
        if user_session.live(root) is not None:
            user_session.set_budget(root, size)
        return
    if not dcmfs.mounts():
        return
    try:
        path = _path(dom)
        if path.exists():
            dcmfs.set_budget(path, size)
    except PermissionError:
        raise DcmError(
            f"{dom.name()} runs, and only root can change its budget now: run this as root"
        ) from None
    except OSError as exc:
        raise DcmError(f"{dom.name()}: {reason(exc)}") from None


def _path(dom: Any) -> Path:
    return dcmfs.path_of(dcmfs.the_mount(), dom.UUIDString())


def _live(host: Host, dom: Any, memory: Memory) -> user_session.Live | None:
    """The pager's figures for a domain; None if it doesn't run or its pager doesn't answer."""
    if not dom.isActive():
        return None
    if memory.pager == "user":
        return user_session.live(_root(host, dom))
    try:
        info = dcmfs.info(_path(dom))
    except (DcmError, OSError):
        return None
    return user_session.Live(info.budget, info.direct, info.lost)


def cmd_list(args: Args) -> int:
    host = Host(args.connect)
    files: list[hostd.HostFile] = []
    with contextlib.suppress(DcmError):
        files = hostd.ask()
    rows: list[list[str]] = []
    objects: list[dict[str, Any]] = []
    failed = False
    for dom in host.all():
        entry = _entry(host, dom, files)
        if entry is None:
            continue
        objects.append(entry)
        failed |= "error" in entry
        rows.append(_row(entry))
    if args.json:
        print_json(objects)
    elif rows:
        header = ["VM<", "STATE<", "MEMORY", "BUDGET", "DIRECT", "LENT", "DONORS<"]
        print("\n".join(table(header, rows)))
        for entry in objects:
            if "error" in entry:
                print(f"! {entry['name']}: {entry['error']}")
    else:
        print("no domain has its memory on donors")
    return 1 if failed else 0


def _entry(host: Host, dom: Any, files: list[hostd.HostFile]) -> dict[str, Any] | None:
    """The list's entry for a domain; None if its memory is not on donors. Unknown values: None."""
    with said_by_libvirt():
        name, state = dom.name(), STATES.get(dom.state()[0], "?")
    entry: dict[str, Any] = {"name": name, "state": state}
    try:
        root = domain.read_domain(host.xml(dom))
        memory = domain.find_memory(root)
        if memory is None:
            return None
        entry["memory_bytes"] = domain.size_of(root)
        entry["budget_bytes"] = memory.direct
    except DcmError as exc:
        return {**entry, "error": str(exc)}
    live = _live(host, dom, memory)
    entry["direct_bytes"] = None if live is None else live.direct
    entry["lost_bytes"] = None if live is None else live.lost
    entry["lent_bytes"], entry["donors"] = None, []
    if live is not None:
        entry["budget_bytes"] = live.budget
        if memory.pager == "user":
            entry["lent_bytes"], entry["donors"] = live.lent, live.donors
            return entry
        file = hostd.file_at(files, _path(dom))
        if file is not None:
            entry["lent_bytes"] = file.slabs * file.extent_bytes
            entry["donors"] = [d.name for d in file.donors if d.slabs]
    return entry


def _row(entry: dict[str, Any]) -> list[str]:
    def size(name: str) -> str:
        value = entry.get(name)
        return "-" if value is None else format_size(value)

    columns = ("memory_bytes", "budget_bytes", "direct_bytes", "lent_bytes")
    donors = ",".join(entry.get("donors", [])) or "-"
    return [entry["name"], entry["state"], *map(size, columns), donors]


def cmd_check(args: Args) -> int:
    lines = check.run(args.connect, args.vm)
    if args.json:
        print_json([line.__dict__ for line in lines])
    else:
        for line in lines:
            print(f"{'pass' if line.good else 'FAIL'}  {line.what}: {line.said}")
    return 0 if all(line.good for line in lines) else 1


# ---- the parser ----


def add_parsers(sub: Any, parser_class: type, add: Callable[..., argparse.ArgumentParser]) -> None:
    text = "put the memory of libvirt's domains on donors, and show it"
    p = sub.add_parser("vm", help=text, description=text[0].upper() + text[1:] + ".")
    p.set_defaults(command=None, parser=p)
    vms = p.add_subparsers(title="commands", metavar="COMMAND", parser_class=parser_class)

    def make(name: str, command: Callable[[Args], int], text: str) -> argparse.ArgumentParser:
        p = add(vms, name, command, text)
        p.add_argument(
            "--connect",
            metavar="URI",
            help="URI of libvirt (default: $LIBVIRT_DEFAULT_URI, or qemu:///system)",
        )
        return p

    p = make("enable", cmd_enable, "put a domain's memory on donors from its next start on")
    p.add_argument("vm", metavar="VM", help="name or UUID of the domain")
    p.add_argument("--direct", metavar="SIZE", help="the most of its memory on this host")
    p.add_argument(
        "--donor",
        metavar="NAME",
        action="append",
        help="a donor that it may use, and no others; must be up when it starts",
    )
    p.add_argument(
        "--group",
        metavar="NAME",
        action="append",
        help="a group whose donors it may use; one of them must be up when it starts",
    )
    p.add_argument(
        "--redundancy",
        choices=settings.REDUNDANCY,
        help="on how many donors each page is: replica:2 survives the death of one, replica:3 "
        "of two; disk is one donor of memory and one of files; none survives none (default: what "
        "hostd.conf or host.conf says)",
    )
    p.add_argument(
        "--seal",
        choices=("yes", "no"),
        help="whether pages are encrypted on this host before they leave, so that donors need not "
        "be trusted (default: what hostd.conf or host.conf says)",
    )
    p.add_argument(
        "--free-page-reporting",
        choices=("yes", "no"),
        help="whether the guest reports memory that it has freed, so that this memory goes to no "
        "donor (default yes); a <memballoon> that says otherwise stays as it is",
    )
    p.add_argument(
        "--pager",
        choices=domain.PAGERS,
        help="kernel, for qemu:///system, or user (libdcm), for qemu:///session (default: by URI)",
    )
    p.add_argument("--dry-run", action="store_true", help="print the difference, change nothing")
    p = make(
        "disable", cmd_disable, "put a domain's memory back on this host from its next start on"
    )
    p.add_argument("vm", metavar="VM")
    p.add_argument("--dry-run", action="store_true", help="print the difference, change nothing")
    make("list", cmd_list, "list the domains whose memory is on donors")
    p = make("budget", cmd_budget, "show or change the most of a domain's memory on this host")
    p.add_argument("vm", metavar="VM")
    p.add_argument("size", nargs="?", metavar="SIZE")
    text = "show or change on how many donors a domain has each page, also while it runs"
    p = make("redundancy", cmd_redundancy, text)
    p.add_argument("vm", metavar="VM")
    p.add_argument("value", nargs="?", metavar="VALUE", choices=settings.REDUNDANCY)
    p = make("check", cmd_check, "check all that a start needs, and say how to repair it")
    p.add_argument(
        "vm", nargs="?", metavar="VM", help="one domain (default: all whose memory is on donors)"
    )
