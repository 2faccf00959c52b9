# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors of a cluster in etcd: `dcmctl announce` runs beside a donor, `dcmctl discover` on hosts.

A donor is a key PREFIX/NAME with a lease; the value has its address. `announce` renews the lease
while the donor answers and lends. The key of a donor that dies disappears when the lease ends; the
key of a donor that drains is removed at once. `discover` writes the donors to a file of [donor]
sections, which the configurations name (donors = FILE), and informs dcm-hostd and the VMs of
libdcm: they use a new donor without a restart, and remove one that is no longer announced
(members.py). Its memory is moved to other donors, or is lost if the donor is dead.

Each round reads all keys, compares them with the VMs' donors, and applies the difference. A watch
only makes the next round start at once, so a missed event does no harm. If etcd does not answer,
`discover` continues with the donors it knows, and logs that.

Values in etcd may be hostile: names, addresses and numbers are checked, and a donor that has a
wrong one is left out and logged once. Only tcp: addresses are accepted, because a UNIX socket of
another host can't be reached.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dcmctl.cluster import confedit, donor
from dcmctl.cluster.etcd import Access, Etcd, EtcdError
from dcmctl.lib.address import ADDRESS_MAX, NAME, Address, Donor
from dcmctl.lib.errors import DcmError, UsageError, printable
from dcmctl.lib.output import print_json
from dcmctl.pager import hostd, settings, vmsock
from dcmctl.pager.status import Fields, Status

Args = argparse.Namespace
FILE = Path("/run/dcm-discover/donors.conf")
LOOK_S = 10.0
SILENCE_S = 900.0  # the watch is dead then: etcd reports progress every ten minutes
KEYS_MAX = 256
LEASE_MIN, LEASE_MAX, LEASE = 5, 3600, 15


def _say(text: str) -> None:
    print(f"dcmctl: {printable(text, 900)}", file=sys.stderr, flush=True)


@dataclass
class _Once:
    """Logs a problem when it begins, not again in each round."""

    now: set[str] = field(default_factory=set)

    def say(self, lines: list[str]) -> None:
        for line in lines:
            if line not in self.now:
                _say(line)
        self.now = set(lines)


# ---- configuration ----


@dataclass(frozen=True)
class Config:
    """The contents of /etc/kvm-dcm/discovery.conf."""

    access: Access
    file: Path
    announce: dict[str, str]


def load(path: Path) -> Config:
    parser = settings.parse(path)
    try:
        for name in parser.sections():
            if name not in ("etcd", "discover", "announce"):
                raise UsageError(f"no section [{printable(name)}]; known: etcd, discover, announce")
        if not parser.has_section("etcd"):
            raise UsageError("[etcd] endpoints = is missing: name etcd's address")
        found = dict(parser.items("discover")) if parser.has_section("discover") else {}
        file = Path(found.pop("file", str(FILE)))
        for left in found:
            raise UsageError(f"[discover] has no setting '{printable(left)}'")
        announce = dict(parser.items("announce")) if parser.has_section("announce") else {}
        return Config(Access.read(dict(parser.items("etcd"))), file, announce)
    except UsageError as exc:
        raise UsageError(f"configuration {path}: {exc}") from None


# ---- what etcd has ----


def check(name: str, value: str | None) -> Donor:
    """Check one key and its value; raise DcmError if either is wrong."""
    if not NAME.fullmatch(name):
        raise DcmError("its name is not a donor's name")
    try:
        said = json.loads(value or "")
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise DcmError("its value is not a JSON object")
    address, status = said.get("address"), said.get("status")
    if not isinstance(address, str) or len(address) > ADDRESS_MAX:
        raise DcmError("it has no address")
    if not address.startswith("tcp:"):
        raise DcmError("its address is not tcp:HOST:PORT")
    if status is not None and not (isinstance(status, str) and settings.STATUS.fullmatch(status)):
        raise DcmError("its status is not HOST:PORT")
    group = said.get("group")
    if group is not None and not (isinstance(group, str) and NAME.fullmatch(group)):
        raise DcmError("its group is not a name")
    return Donor(name, Address.parse(address), status, group=group)


def read(etcd: Etcd) -> tuple[list[Donor], list[str]]:
    """Read all announced donors; also return a line for each key that is left out."""
    keys, more = etcd.get_all(KEYS_MAX)
    donors: list[Donor] = []
    wrong: list[str] = []
    for name, value in keys:
        try:
            made = check(name, value)
            if any(d.name == made.name or d.address == made.address for d in donors):
                raise DcmError("another donor has its name or its address")
            if len(donors) == settings.DONORS_MAX:
                raise DcmError(f"there are more than {settings.DONORS_MAX}")
            donors.append(made)
        except DcmError as exc:
            wrong.append(f"etcd: donor {printable(name, 63)} is left out: {exc}")
    if more:
        wrong.append(f"etcd has more than {KEYS_MAX} keys below {etcd.access.prefix}")
    return donors, wrong


# ---- applying it: the file, the VMs ----


def write(path: Path, donors: list[Donor]) -> bool:
    """Write the file, whole or not at all; return whether it has changed."""
    text = "; written by dcmctl discover: changes are lost\n"
    for d in donors:
        text = confedit.added(text, d)
    try:
        if path.is_file() and path.read_text() == text:
            return False
        path.parent.mkdir(mode=0o755, exist_ok=True, parents=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text)
        new.chmod(0o644)
        new.replace(path)
    except OSError as exc:
        raise DcmError(f"{path}: {exc.strerror or exc}") from None
    return True


def _wants(vm: vmsock.Vm, file: Path) -> bool:
    """Whether a VM's configuration names the file of discovered donors."""
    try:
        return settings.donors_file(vm.path.with_suffix(".conf")) == file
    except DcmError:
        return False


def _tell_vm(vm: vmsock.Vm, donors: list[Donor], gone: set[tuple[str, str]]) -> list[str]:
    """Make the donors of one VM those of the file: add new donors, remove those of `gone`.

    If the VM is leaving a donor that is announced again, that donor is added again. The VM's status
    shows which donors it is leaving, so it does not matter which process removed them. A donor that
    an operator drains stays as it is.
    """
    status = Status.read(vm.ask({"cmd": "status"}), f"VM {vm.name}")
    have = {(d.name, d.address): d for d in status.donors}
    wrong: list[str] = []

    def tell(op: str, name: str, *address: str) -> None:
        try:
            vm.change_donor(op, name, *address)
            _say(f"VM {vm.name}: {op} donor {name}")
        except vmsock.VmGone:
            raise
        except DcmError as exc:
            wrong.append(f"donor {name}: {exc}")

    for name, address in gone & set(have):
        if have[name, address].state != "draining":
            tell("remove", name)
    for d in donors:
        known = have.get((d.name, str(d.address)))
        if known is None or known.leaving:
            tell("add", d.name, str(d.address), d.group or "")
    return wrong


class Discoverer:
    """Finds donors in etcd, and updates the file and the VMs that use them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.etcd = Etcd(config.access)
        self.donors = settings.load_donors(config.file)
        self.ever = {(d.name, str(d.address)) for d in self.donors}
        self.said = _Once()
        self.changed = True  # dcm-hostd may have started before dcmctl

    def look(self) -> bool:
        """Do one round; return whether etcd answered."""
        lines: list[str] = []
        answered = True
        try:
            donors, lines = read(self.etcd)
            if donors != self.donors:
                names = ", ".join(d.name for d in donors) or "none"
                _say(f"{len(donors)} donor{'s' * (len(donors) != 1)}: {names}")
            self.donors = donors
        except EtcdError as exc:
            answered = False
            lines = [f"{exc}: going on with the {len(self.donors)} donors that are known"]
        self.ever |= {(d.name, str(d.address)) for d in self.donors}
        try:
            self.changed |= write(self.config.file, self.donors)
        except DcmError as exc:
            lines.append(str(exc))
        lines += self._tell()
        self.said.say(lines)
        return answered

    def _tell(self) -> list[str]:
        lines: list[str] = []
        gone = self.ever - {(d.name, str(d.address)) for d in self.donors}
        for vm in vmsock.find_all():
            try:
                if _wants(vm, self.config.file):
                    lines += _tell_vm(vm, self.donors, gone)
            except vmsock.VmGone:
                continue
            except DcmError as exc:
                lines.append(str(exc))
        if self.changed and settings.hostd_conf().is_file():
            try:
                if settings.donors_file(settings.hostd_conf()) == self.config.file:
                    hostd.reread(hostd.look()[0])
                self.changed = False
            except DcmError as exc:
                # dcm-hostd reads the file when it starts
                self.changed = "does not run" not in str(exc)
                if self.changed:
                    lines.append(str(exc))
        return lines


def _watch(access: Access, wake: threading.Event, stop: threading.Event) -> None:
    etcd = Etcd(access)
    while not stop.is_set():
        with contextlib.suppress(Exception):  # the next timed round logs the error
            for _ in etcd.watch(SILENCE_S):
                wake.set()
                if stop.is_set():
                    return
        stop.wait(1.0)


def cmd_discover(args: Args) -> int:
    config = load(Path(args.config))
    if args.once:
        donors, wrong = read(Etcd(config.access))
        for line in wrong:
            _say(line)
        if args.json:
            print_json(
                [
                    {
                        "name": d.name,
                        "address": str(d.address),
                        "status": d.status,
                        "group": d.group,
                    }
                    for d in donors
                ]
            )
        for d in donors if not args.json else []:
            print(f"{d.name} {d.address}")
        return 0
    wake, stop = threading.Event(), threading.Event()
    _end_by_signal(stop, wake)
    found = Discoverer(config)
    watcher = threading.Thread(target=_watch, args=(config.access, wake, stop), daemon=True)
    watcher.start()
    while not stop.is_set():
        wake.clear()
        found.look()
        wake.wait(LOOK_S)
    return 0


def _end_by_signal(stop: threading.Event, wake: threading.Event) -> None:
    def end(*_: object) -> None:
        stop.set()
        wake.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


# ---- the donor's side ----


class Announcer:
    """Keeps a lease, and the donor's key with it, in etcd while the donor lends."""

    def __init__(self, config: Config) -> None:
        values = dict(config.announce)
        name, address = values.pop("name", ""), values.pop("address", "")
        self.status = values.pop("status", "127.0.0.1:9750")
        said = {
            "address": address,
            "status": values.pop("show-status", None),
            "group": values.pop("group", None),
        }
        seconds = values.pop("lease", str(LEASE))
        for left in values:
            raise UsageError(f"[announce] has no setting '{printable(left)}'")
        if not (seconds.isdigit() and LEASE_MIN <= int(seconds[:6]) <= LEASE_MAX):
            raise UsageError(f"[announce] lease is not {LEASE_MIN} to {LEASE_MAX} seconds")
        self.seconds = int(seconds)
        self.name = name
        self.value = json.dumps({key: text for key, text in said.items() if text is not None})
        try:
            check(name, self.value)
        except DcmError as exc:
            raise UsageError(f"[announce] name, address, show-status or group: {exc}") from None
        self.etcd = Etcd(config.access)
        self.lease = 0
        self.said = _Once()

    def lends(self) -> str:
        """The reason why the donor does not lend; "" if it lends."""
        try:
            said = Fields(donor.fetch(self.status), f"donor {self.status}")
            state = said.text("state")
        except DcmError as exc:
            return str(exc)
        return "" if state == "lending" else f"the donor is {state}"

    def leave(self) -> None:
        if self.lease:
            lease, self.lease = self.lease, 0
            self.etcd.revoke(lease)
            _say(f"donor {self.name}: no longer announced")

    def round(self) -> None:
        why = self.lends()
        lines = [f"donor {self.name}: not announced: {why}"] if why else []
        try:
            if why:
                self.leave()
            elif not self.lease or not self.etcd.keep(self.lease):
                self.lease = 0
                lease = self.etcd.lease(self.seconds)
                other = self.etcd.claim(self.name, self.value, lease)
                if other is None:
                    self.lease = lease
                    _say(
                        f"donor {self.name}: announced as {self.value}, lease {self.seconds} s",
                    )
                else:
                    self.etcd.revoke(lease)
                    lines.append(
                        f"donor {self.name}: another donor announces this name: "
                        f"{printable(other)}: give one of them another [announce] name"
                    )
        except EtcdError as exc:
            lines.append(str(exc))
        self.said.say(lines)


def cmd_announce(args: Args) -> int:
    path = Path(args.config)
    config = load(path)
    try:
        announcer = Announcer(config)
    except UsageError as exc:
        raise UsageError(f"configuration {path}: {exc}") from None
    stop = threading.Event()
    _end_by_signal(stop, stop)
    while not stop.is_set():
        began = time.monotonic()
        announcer.round()
        stop.wait(max(0.2, announcer.seconds / 3 - (time.monotonic() - began)))
    with contextlib.suppress(EtcdError):
        announcer.leave()
    return 0
