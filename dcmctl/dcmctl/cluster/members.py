# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl donor list, add, drain, remove`: which donors this host uses.

The donors are in two configurations: host.conf for `dcmctl run`, hostd.conf for dcm-hostd. A change
is made in both, if they exist, or in those given with --config. Then dcmctl sends it to the VMs of
libdcm over their sockets, and makes dcm-hostd read its configuration again. All checks are made
before the first change.

A donor that is drained or removed keeps the VMs' memory until it has been moved, so none is lost.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcmctl.cluster import confedit
from dcmctl.lib.address import Address, Donor, check_name
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.lib.table import table
from dcmctl.lib.units import format_size
from dcmctl.pager import hostd, settings, vmsock
from dcmctl.pager.status import DonorStatus, Status

if TYPE_CHECKING:
    from dcmctl.cluster import estate

Args = argparse.Namespace
LOOK_S = 0.5


# ---- configurations ----


def _configs(args: Args) -> list[Path]:
    """The configurations to change."""
    if args.config:
        return [Path(text) for text in args.config]
    found = [path for path in (settings.HOST_CONF, settings.hostd_conf()) if path.is_file()]
    if not found:
        raise DcmError(
            f"there is neither {settings.HOST_CONF} nor {settings.hostd_conf()}: "
            "write one of them, or give another file with --config"
        )
    return found


def _own(path: Path) -> list[Donor]:
    """The donors in the file itself, without those of donors = FILE."""
    more = settings.donors_file(path)
    others = settings.load_donors(more) if more else []
    return [d for d in settings.load_any(path).donors if d not in others]


def _change(paths: list[Path], edit: Callable[[str], str], wanted: Callable[[Donor], Any]) -> None:
    """Edit all files, and check that each donor of a new text is as `wanted` returns it.

    `wanted` returns None for a donor that must be gone.
    """

    def check(new: Path, path: Path) -> None:
        want = [w for d in _own(path) if (w := wanted(d)) is not None]
        have = _own(new)
        if [d for d in have if d in want] != want or settings.load_any(
            new
        ).keys != settings.load_any(path).keys:
            raise DcmError(
                f"{path} can't be changed automatically without changing other lines: edit it"
            )

    with confedit.locked(paths):
        confedit.replace({path: edit(path.read_text()) for path in paths}, check)


# ---- running VMs and dcm-hostd ----


@dataclass
class Reached:
    """Which running VMs took a change, and which did not."""

    vms: list[str]
    failed: list[str]


def _vms() -> list[tuple[vmsock.Vm, Status]]:
    found = []
    for vm in vmsock.find_all():
        try:
            found.append((vm, Status.read(vm.ask({"cmd": "status"}), f"VM {vm.name}")))
        except vmsock.VmGone:
            continue
    return found


def _tell(change: tuple[str, ...], has: Callable[[DonorStatus], bool] | None) -> Reached:
    """Send a change to the VMs of libdcm; with `has`, only to VMs with a donor that it accepts."""
    reached = Reached([], [])
    for vm, status in _vms():
        if has is not None and not any(has(d) for d in status.donors):
            continue
        try:
            vm.change_donor(*change)
            reached.vms.append(vm.name)
        except vmsock.VmGone:
            continue
        except DcmError as exc:
            reached.failed.append(str(exc))
    return reached


def _hostd_runs() -> int | None:
    try:
        return hostd.look()[0]
    except DcmError:
        return None


def _reread(reached: Reached, good: Callable[[hostd.HostFile], bool]) -> None:
    """Make dcm-hostd, if it runs, read its donors; wait until `good` accepts all its files."""
    pid = _hostd_runs()
    if pid is None:
        return
    deadline = time.monotonic() + vmsock.CHANGE_MAX
    try:
        hostd.reread(pid)
        while not all(good(file) for file in hostd.ask()):
            if time.monotonic() > deadline:
                raise DcmError("dcm-hostd did not apply the change: see journalctl -u dcm-hostd")
            time.sleep(0.1)
        reached.vms.append("dcm-hostd")
    except DcmError as exc:
        reached.failed.append(str(exc))


def _end(args: Args, reached: Reached, what: dict[str, Any], said: str) -> int:
    for line in reached.failed:
        print(f"dcmctl: {line}", file=sys.stderr)
    if args.json:
        print_json({**what, "told": reached.vms, "failed": reached.failed})
    else:
        print(said)
    return 1 if reached.failed else 0


# ---- add ----


def _check_address(donor: Donor) -> None:
    """Refuse a host name that does not resolve, before anything is changed."""
    if donor.address.kind == "unix":
        return
    try:
        socket.getaddrinfo(donor.address.host, donor.address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise DcmError(f"donor {donor.name}: {donor.address}: {exc.strerror or exc}") from None


def _conflict(name: str, address: str, others: list[tuple[str, str]], where: str) -> None:
    for other, other_address in others:
        if other == name and other_address != address:
            raise DcmError(f"{where} has a donor {name} with another address ({other_address})")
        if other != name and other_address == address:
            raise DcmError(f"{where} has this address already, as donor {other}")


def cmd_add(args: Args) -> int:
    name = check_name(args.name, "donor name")
    group = None if args.group is None else check_name(args.group, "group")
    donor = Donor(name, Address.parse(args.address), args.status, group=group)
    if donor.status is not None and not settings.STATUS.fullmatch(donor.status):
        raise UsageError(f"--status '{printable(donor.status)}' is not HOST:PORT")
    paths = [] if args.no_config else _configs(args)
    address = str(donor.address)
    for path in paths:
        have = list(settings.load_any(path).donors)
        _conflict(name, address, [(d.name, str(d.address)) for d in have], str(path))
        for d in have:
            if d.name == name and group not in (None, d.group):
                raise DcmError(
                    f"{path} has donor {name} with another group, or none: change group = there"
                )
        if len(have) >= settings.DONORS_MAX:
            raise DcmError(
                f"{path} has {settings.DONORS_MAX} donors already, the most that are allowed"
            )
    for vm, status in _vms():
        _conflict(name, address, [(d.name, d.address) for d in status.donors], f"VM {vm.name}")
    _check_address(donor)
    new = [path for path in paths if name not in {d.name for d in _own(path)}]
    again = [path for path in paths if path not in new]
    if new:
        _change(new, lambda text: confedit.added(text, donor), lambda d: d)
    if again:
        _undrain(again, name, False)
    reached = _tell(("add", name, address, group or ""), None)
    _reread(
        reached,
        lambda f: f.choice or any(d.name == name and d.state != "draining" for d in f.donors),
    )
    said = f"{name} ({address}): in {', '.join(map(str, paths)) or 'no configuration'}; "
    said += f"used by {', '.join(reached.vms) or 'no running VM'}"
    what = {"name": name, "address": address, "status": donor.status, "group": group}
    return _end(args, reached, {**what, "configs": [str(path) for path in paths]}, said)


# ---- drain and remove ----


def _undrain(paths: list[Path], name: str, drain: bool) -> None:
    def wanted(d: Donor) -> Donor:
        return replace(d, drain=drain) if d.name == name else d

    _change(paths, lambda text: confedit.drained(text, name, drain), wanted)


def _left(name: str) -> tuple[list[tuple[str, int, int]], int, bool]:
    """VMs with slabs on the donor (name, slabs, bytes); waiting extents; does any VM have it?"""
    from dcmctl.cluster import estate  # loads modules that other commands don't need

    seen = estate.look(ask_donors=False)
    donors = [d for d in seen.donors if d.name == name]
    uses = [use for d in donors for use in d.uses]
    waiting = sum(vm.waiting_extents or 0 for vm in seen.vms if any(u.vm == vm.name for u in uses))
    return [(u.vm, u.slabs, u.bytes) for u in uses if u.slabs], waiting, bool(uses)


def _wait(args: Args, name: str, gone: bool) -> tuple[int, int]:
    """Wait until the donor has no memory of a VM; with `gone`, until no VM has the donor.

    Return the bytes that were moved, and those that are left.
    """
    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    first: int | None = None
    said = ""
    while True:
        left, waiting, known = _left(name)
        slabs, size = sum(n for _, n, _ in left), sum(n for _, _, n in left)
        first = size if first is None else max(first, size)
        if not left and not (gone and known):
            return first - size, size
        whose = ", ".join(vm for vm, _, _ in left)
        text = f"{name}: {slabs} slabs ({format_size(size)}) left, of {whose}"
        if waiting:
            text += "; other donors have no room for some of it: add a donor (dcmctl donor add)"
        if text != said and left and not args.json:
            print(text, flush=True)
            said = text
        if deadline is not None and time.monotonic() > deadline:
            return first - size, size
        time.sleep(LOOK_S)


def _warn(args: Args, name: str) -> None:
    """Print which VMs would lose copies without this donor, before anything is changed."""
    from dcmctl.cluster import estate

    if not args.json:
        for line in estate.would_expose(estate.look(ask_donors=False), name):
            print(line, flush=True)


def _known(args: Args, name: str) -> list[Path]:
    """The configurations that have this donor; DcmError if no configuration and no VM has it."""
    paths = [] if args.no_config else _configs(args)
    own = [path for path in paths if name in {d.name for d in _own(path)}]
    found = [
        p for p in paths if p not in own and name in {d.name for d in settings.load_any(p).donors}
    ]
    if found:
        raise DcmError(
            f"donor {name} was found by dcmctl discover: end its announcement instead "
            f"(it is in {settings.donors_file(found[0])}, not in {found[0]})"
        )
    if not own and not any(name == d.name for _, status in _vms() for d in status.donors):
        raise DcmError(f"there is no donor {printable(name)}: see dcmctl donor list")
    return own


def _finish(args: Args, name: str, reached: Reached, gone: bool, verb: str) -> int:
    what: dict[str, Any] = {"name": name}
    if args.no_wait:
        return _end(args, reached, what, f"{name}: {verb}; its memory is being moved")
    try:
        moved, left = _wait(args, name, gone)
    except KeyboardInterrupt:
        raise DcmError(f"{name}: continues by itself; see dcmctl donor list") from None
    what |= {"moved_bytes": moved, "left_bytes": left}
    if left:
        reached.failed.append(f"{name}: {format_size(left)} are left after {args.timeout:g} s")
        return _end(args, reached, what, f"{name}: continues by itself; see dcmctl donor list")
    return _end(
        args, reached, what, f"{name}: {verb}; nothing is on it ({format_size(moved)} moved)"
    )


def begin_drain(args: Args, name: str, drain: bool) -> Reached:
    """Start to drain a donor, or use it again. VMs move its memory while they run."""
    own = _known(args, name)
    if own:
        _undrain(own, name, drain)
    op = "drain" if drain else "keep"
    reached = _tell((op, name), lambda d: d.name == name)

    def good(f: hostd.HostFile) -> bool:
        return all((d.state == "draining") == drain for d in f.donors if d.name == name)

    _reread(reached, good)
    return reached


def cmd_drain(args: Args) -> int:
    name = check_name(args.name, "donor name")
    if not args.undo:
        _warn(args, name)
    reached = begin_drain(args, name, not args.undo)
    if args.undo:
        return _end(args, reached, {"name": name}, f"{name}: in use again")
    return _finish(args, name, reached, False, "drained")


def cmd_remove(args: Args) -> int:
    name = check_name(args.name, "donor name")
    own = _known(args, name)
    for path in own:
        if len(settings.load_any(path).donors) == 1 and settings.donors_file(path) is None:
            raise DcmError(f"donor {name} is the only one in {path}: add another one first")
    _warn(args, name)
    if own:
        _change(
            own,
            lambda text: confedit.removed(text, name),
            lambda d: None if d.name == name else d,
        )
    reached = _tell(("remove", name), lambda d: d.name == name)
    _reread(reached, lambda f: all(d.state == "draining" for d in f.donors if d.name == name))
    return _finish(args, name, reached, True, "removed")


# ---- list ----


def _size(value: int | None) -> str:
    return "-" if value is None else format_size(value)


def _row(d: estate.Donor, said: str) -> list[str]:
    return [
        d.name,
        said,
        _size(d.capacity_bytes),
        _size(d.lent_bytes),
        _size(d.free_bytes),
        _size(d.head_room_bytes),
        "-" if d.sessions is None else str(d.sessions),
        format_size(d.here_bytes),
        ",".join(sorted({use.vm for use in d.uses if use.slabs})) or "-",
        d.address,
    ]


HEADER = (
    *("DONOR<", "STATE<", "CAPACITY", "LENT", "FREE", "HEAD ROOM", "SESSIONS", "HERE"),
    *("VMS<", "ADDRESS<"),
)


def _state(d: estate.Donor, answer: str | None, tried: bool) -> str:
    if d.uses:
        return d.state
    if not tried:
        return "unused"
    return "answers" if answer is None else "silent"


def cmd_list(args: Args) -> int:
    from dcmctl.cluster import estate
    from dcmctl.pager import preflight

    if args.config is not None and not Path(args.config).is_file():
        raise DcmError(f"configuration {args.config} does not exist")
    seen = estate.look(None if args.config is None else Path(args.config), not args.no_check)
    # Connect to donors that no VM uses, to see whether they answer.
    idle = [d for d in seen.donors if not d.uses]
    tried = [Donor(d.name, Address.parse(d.address)) for d in idle]
    answers = {} if args.no_check else preflight.probe(tried)
    rows, objects, lines = [], [], []
    bad = False
    for d in seen.donors:
        why = answers.get(d.name) if not d.uses else (d.error or None)
        tested = bool(d.uses) or not args.no_check
        good = d.state in ("up", "draining") if d.uses else why is None
        bad |= tested and not good
        rows.append(_row(d, _state(d, why, not args.no_check)))
        lines += [f"! {d.name}: {why}"] if why else []
        lines += [f"! {d.name}: {d.error}"] if d.error and d.error != why else []
        objects.append(
            {
                **asdict(d),
                "here_bytes": d.here_bytes,
                "reachable": good if tested else None,
                "error": why,
            }
        )
    for line in seen.problems:
        print(f"dcmctl: {line}", file=sys.stderr)
    if args.json:
        print_json(objects)
    elif rows:
        header = list(HEADER)
        if any(d.group for d in seen.donors):
            header.append("GROUP<")
            rows = [[*row, d.group or "-"] for row, d in zip(rows, seen.donors, strict=True)]
        if any(d.medium == "file" for d in seen.donors):
            header.append("LENDS<")
            rows = [[*row, d.medium] for row, d in zip(rows, seen.donors, strict=True)]
        print("\n".join(table(header, rows) + lines))
    else:
        print("no donors")
    return 1 if bad or seen.problems else 0


# ---- the parser ----


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise UsageError(f"timeout '{printable(text)}' is not a number of seconds")
    return value


def add_parsers(donors: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    p = add(
        donors, "list", cmd_list, "list all donors that this host knows, and the VMs that use them"
    )
    p.add_argument(
        "--config", metavar="FILE", help="list donors of FILE instead of those of this host"
    )
    p.add_argument("--no-check", action="store_true", help="do not connect to the donors")

    def change(name: str, command: Callable[[Args], int], text: str) -> argparse.ArgumentParser:
        p = add(donors, name, command, text)
        p.add_argument("name", metavar="NAME")
        p.add_argument(
            "--config",
            metavar="FILE",
            action="append",
            help="change FILE instead of host.conf and hostd.conf in /etc/kvm-dcm; may be "
            "given several times",
        )
        p.add_argument("--no-config", action="store_true", help="change running VMs only, no file")
        return p

    def waits(p: argparse.ArgumentParser) -> None:
        p.add_argument(
            "--no-wait", action="store_true", help="do not wait until all memory is moved"
        )
        p.add_argument("--timeout", type=_seconds, metavar="S", help="wait for at most S seconds")

    p = change("add", cmd_add, "use a new donor, or use a drained one again")
    p.add_argument("address", metavar="ADDR", help="tcp:HOST:PORT or unix:/path")
    p.add_argument("--status", metavar="HOST:PORT", help="address of the donor's HTTP status")
    p.add_argument("--group", metavar="NAME", help="a group that VMs can name instead of the donor")
    p = change("drain", cmd_drain, "move all memory off a donor, and put no more on it")
    p.add_argument("--undo", action="store_true", help="use the donor again")
    waits(p)
    p = change("remove", cmd_remove, "move all memory off a donor, and remove it from this host")
    waits(p)
