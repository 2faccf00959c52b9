# SPDX-License-Identifier: GPL-2.0-or-later
"""All donors and VMs that this host knows, as one value.

The values come from the sockets of libdcm's VMs, from dcm-hostd, from dcmfs for each of its files,
and from donors whose status address is configured. If one of these sources does not answer, its
values are missing and `problems` has a line about it; all others are there. Unknown values are
None, never 0.
"""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dcmctl.lib.address import Donor as Configured
from dcmctl.lib.errors import DcmError, reason
from dcmctl.lib.units import format_size
from dcmctl.libvirt import record
from dcmctl.pager import dcmfs, hostd, settings, vmsock
from dcmctl.pager.away import Away
from dcmctl.pager.reuse import Reuse
from dcmctl.pager.status import LATENCIES, DonorStatus, Fields, Latency, Status

ASKERS = 8
# If VMs differ on a donor's state, the worst counts: one VM that has lost a donor matters.
ORDER = ("lost", "silent", "draining", "connecting", "up")


@dataclass(frozen=True)
class Use:
    """One donor as one VM uses it."""

    vm: str
    donor: str
    state: str
    transport: str
    slabs: int
    bytes: int
    rtt_ns: int
    why: str
    silent_ms: int = 0
    alone_bytes: int = 0  # upper bound of the VM's loss if only this donor dies


@dataclass(frozen=True)
class Donor:
    """A donor as this host knows it. Sizes are the donor's own, else those that VMs report."""

    name: str
    address: str
    status: str | None  # HOST:PORT of its HTTP status
    configured: bool
    state: str  # up, connecting, silent, lost, draining; "unused": no VM has it
    capacity_bytes: int | None
    lent_bytes: int | None
    free_bytes: int | None
    head_room_bytes: int | None
    sessions: int | None
    slab_bytes: int | None
    error: str  # why its HTTP status failed, or why it is not up
    uses: tuple[Use, ...]
    group: str | None = None
    medium: str = "memory"  # what it lends: memory or file

    @property
    def here_bytes(self) -> int:
        """Bytes that VMs of this host have on the donor."""
        return sum(use.bytes for use in self.uses)


@dataclass(frozen=True)
class Machine:
    """A VM, or a program, whose memory is on donors."""

    name: str
    pager: str  # "user" or "kernel"
    path: str  # its socket (libdcm), or its file (dcmfs)
    running: bool
    pid: int | None
    size_bytes: int | None
    budget_bytes: int | None
    min_budget_bytes: int | None
    direct_bytes: int | None
    indirect_bytes: int | None  # on donors only; known for the user pager
    lent_bytes: int
    lost_bytes: int | None
    waiting_extents: int | None  # extents that can't leave this host: no donor has room
    uses: tuple[Use, ...]
    status: Status | None  # user pager: its whole status
    counters: dict[str, int] | None  # by the core's names; None if they can't be read
    latency: dict[str, Latency] | None  # of "fault", "fetch" and "writeback"; None as above
    error: str
    copies: int = 1  # configured number of slabs of an extent, each on another donor
    exposed_bytes: int = 0  # if copies > 1: extents with a slab too few or a page not in each
    lag_bytes: int = 0  # as Status.lag_bytes
    seal: bool | None = None  # pages are encrypted before they leave
    away: Away | None = None  # None if it can't be read
    reuse: Reuse | None = None  # None if it can't be read, or the pager takes no sample

    @property
    def unprotected_bytes(self) -> int:
        """Memory that is lost if the one donor that has it dies."""
        return self.exposed_bytes if self.copies > 1 else self.lent_bytes


@dataclass(frozen=True)
class Estate:
    """All donors and VMs at one time."""

    time: float
    hostd: bool  # dcm-hostd answers
    donors: tuple[Donor, ...]
    vms: tuple[Machine, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def donor(self, name: str) -> Donor | None:
        return next((d for d in self.donors if d.name == name), None)

    def vm(self, name: str) -> Machine | None:
        return next((v for v in self.vms if v.name == name), None)


def would_expose(seen: Estate, name: str) -> list[str]:
    """One line for each VM that will have fewer copies of its memory without this donor."""
    found: list[str] = []
    for vm in seen.vms:
        size = sum(use.bytes for use in vm.uses if use.donor == name)
        if vm.copies < 2 or not size:
            continue
        others = {use.donor for use in vm.uses if use.donor != name and use.state == "up"}
        room = sum(d.free_bytes or 0 for d in seen.donors if d.name in others)
        if len(others) < vm.copies:
            up = f"{len(others)} other{' is' if len(others) == 1 else 's are'} up"
            why = f"it is to be on {vm.copies} donors, and only {up}"
        elif room < size:
            why = f"other donors have room for {format_size(room)}"
        else:
            continue
        found.append(f"VM {vm.name}: {format_size(size)} will have fewer copies: {why}")
    return found


# ---- VMs ----


def _use(vm: str, d: DonorStatus | hostd.HostDonor, slab_bytes: int) -> Use:
    return Use(
        vm=vm,
        donor=d.name,
        state=d.state,
        transport=d.transport,
        slabs=d.slabs,
        bytes=d.slabs * slab_bytes if slab_bytes else getattr(d, "bytes", 0),
        rtt_ns=d.rtt_ns,
        why=d.trouble or d.why,
        silent_ms=d.silent_ms,
        alone_bytes=d.alone_bytes,
    )


def _counters(fields: Fields) -> dict[str, int]:
    return {name: fields.number(name) for name in fields.names()}


def _user_vm(vm: vmsock.Vm) -> tuple[Machine, Status | None]:
    try:
        answer = vm.ask({"cmd": "status"})
        status = Status.read(answer, f"VM {vm.name}")
        counters = _counters(Fields(answer, vm.name).group("counters"))
    except DcmError as exc:
        return _silent(vm.name, "user", str(vm.path), str(exc)), None
    uses = tuple(_use(vm.name, d, 0) for d in status.donors)
    return (
        Machine(
            name=vm.name,
            pager="user",
            path=str(vm.path),
            running=True,
            pid=status.pid,
            size_bytes=status.size_bytes,
            budget_bytes=status.budget_bytes,
            min_budget_bytes=status.min_budget_bytes,
            direct_bytes=status.direct_bytes,
            indirect_bytes=status.indirect_bytes,
            lent_bytes=sum(use.bytes for use in uses),
            lost_bytes=status.lost_pages * 4096,
            waiting_extents=status.waiting,
            uses=uses,
            status=status,
            counters=counters,
            latency={
                "fault": status.fault_latency,
                "fetch": status.fetch_latency,
                "writeback": status.writeback_latency,
            },
            error="",
            copies=status.copies,
            away=Away.of_status(Fields(answer, vm.name)),
            reuse=Reuse.of_status(Fields(answer, vm.name)),
            exposed_bytes=status.exposed_bytes,
            lag_bytes=status.lag_bytes,
            seal=status.seal,
        ),
        status,
    )


def _silent(name: str, pager: str, path: str, why: str) -> Machine:
    return Machine(
        name=name,
        pager=pager,
        path=path,
        running=True,
        pid=None,
        size_bytes=None,
        budget_bytes=None,
        min_budget_bytes=None,
        direct_bytes=None,
        indirect_bytes=None,
        lent_bytes=0,
        lost_bytes=None,
        waiting_extents=None,
        uses=(),
        status=None,
        counters=None,
        latency=None,
        error=why,
    )


def _domain_names() -> dict[str, str]:
    """The names of libvirt's VMs by the path of their memory's file, from the hook's records."""
    names: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for path in sorted(record.state_folder().glob("*.json"))[: hostd.FILES_MAX]:
            with contextlib.suppress(OSError, ValueError, DcmError):
                fields = Fields(json.loads(path.read_bytes()[:65536]), str(path))
                names[fields.text("file")] = fields.text("name")
    return names


def _kernel_vm(file: hostd.HostFile, names: dict[str, str]) -> Machine:
    name = names.get(file.path) or Path(file.path).name
    uses = tuple(_use(name, d, file.extent_bytes) for d in file.donors)
    info: dcmfs.Info | None = None
    counters: dict[str, int] | None = None
    latency: dict[str, Latency] | None = None
    away: Away | None = None
    reuse: Reuse | None = None
    why = ""
    try:
        info = dcmfs.info(Path(file.path))
        stats = dcmfs.stats(Path(file.path))
        counters = {key: value for key, value in stats.items() if " " not in key}
        latency = {kind: Latency.of_stats(stats, kind) for kind in LATENCIES}
        away = Away.of_stats(stats)
        reuse = Reuse.of_stats(stats)
    except (DcmError, OSError) as exc:
        why = f"{file.path}: {reason(exc)}"
    return Machine(
        name=name,
        pager="kernel",
        path=file.path,
        running=file.used,
        pid=None,
        size_bytes=file.bytes,
        budget_bytes=None if info is None else info.budget,
        min_budget_bytes=None if info is None else info.min_budget,
        direct_bytes=None if info is None else info.direct,
        indirect_bytes=None,  # the kernel does not count them
        lent_bytes=file.slabs * file.extent_bytes,
        lost_bytes=None if info is None else info.lost,
        waiting_extents=file.wanted,
        uses=uses,
        status=None,
        counters=counters,
        latency=latency,
        error=why,
        copies=file.copies,
        away=away,
        reuse=reuse,
        exposed_bytes=file.exposed_bytes,
        lag_bytes=file.lag_bytes,
        seal=file.seal,
    )


# ---- donors ----


@dataclass(frozen=True)
class _Memory:
    """The memory of a donor; None for values that are not known."""

    capacity: int | None = None
    lent: int | None = None
    free: int | None = None
    slab: int | None = None
    medium: str = "memory"
    head_room: int | None = None
    sessions: int | None = None


def _told(seen: list[tuple[DonorStatus | hostd.HostDonor, int]]) -> _Memory:
    """The donor's memory, as it reported it to a VM of this host whose session is up."""
    for d, slab in seen:
        if d.state in ("up", "draining") and d.slabs_total and slab:
            lent, free = d.slabs_used * slab, d.slabs_free * slab
            made = _Memory(d.slabs_total * slab, lent, free, slab, d.medium)
            if d.told is None:
                return made  # an older donor
            return replace(
                made,
                capacity=d.told.capacity_bytes,
                lent=d.told.lent_bytes,
                head_room=d.told.head_room_bytes,
                sessions=d.told.sessions,
            )
    return _Memory()


def _asked(address: str) -> tuple[Fields | None, str]:
    from dcmctl.cluster import donor  # loads an HTTP client, which takes longer than all else

    try:
        return Fields(donor.fetch(address), f"donor {address}"), ""
    except DcmError as exc:
        return None, str(exc)


def _worst(uses: list[Use]) -> str:
    states = {use.state for use in uses}
    return next((state for state in ORDER if state in states), "unused")


def _donor(
    name: str,
    address: str,
    known: Configured | None,
    uses: list[Use],
    memory: _Memory,
    ask: bool,
) -> Donor:
    state = _worst(uses)
    why = next((use.why for use in uses if use.state == state and use.why), "")
    made = Donor(
        name=name,
        address=address,
        status=None if known is None else known.status,
        configured=known is not None,
        state=state,
        capacity_bytes=memory.capacity,
        lent_bytes=memory.lent,
        free_bytes=memory.free,
        head_room_bytes=memory.head_room,
        sessions=memory.sessions,
        slab_bytes=memory.slab,
        error=why if state != "up" else "",
        uses=tuple(uses),
        group=None if known is None else known.group,
        medium=memory.medium,
    )
    if made.status is None or not ask:
        return made
    fields, error = _asked(made.status)
    if fields is None:
        return replace(made, error=error)
    try:
        m = fields.group("memory")
        return replace(
            made,
            state="draining" if fields.text("state") in ("draining", "stopping") else made.state,
            capacity_bytes=m.number("capacity_bytes"),
            lent_bytes=m.number("used_bytes"),
            free_bytes=m.number("slabs_free") * m.number("slab_bytes"),
            head_room_bytes=m.number("head_room_bytes"),
            slab_bytes=m.number("slab_bytes"),
            medium=m.text("medium") or made.medium,
            sessions=len(list(fields.groups("sessions"))),
        )
    except DcmError as exc:
        return replace(made, error=str(exc))


def configured(problems: list[str], only: Path | None) -> list[Configured]:
    """The donors of this host's two configurations, or of the file `only`, without duplicates."""
    found: list[Configured] = []
    for path in (settings.HOST_CONF, settings.hostd_conf()) if only is None else (only,):
        if not path.is_file():
            continue
        try:
            donors = settings.load_any(path).donors
        except DcmError as exc:
            problems.append(str(exc))
            continue
        for d in donors:
            same = [k for k in found if (k.name, k.address) == (d.name, d.address)]
            if not same:
                found.append(d)
            elif same[0].status is None and d.status is not None:
                found[found.index(same[0])] = d
    return found


def look(config: Path | None = None, ask_donors: bool = True) -> Estate:
    """Ask all VMs and donors, eight at a time, each with its own time limit.

    `config`: return only the donors in this file; all VMs are asked all the same.
    """
    problems: list[str] = []
    known = configured(problems, config)
    seen: dict[tuple[str, str], list[tuple[DonorStatus | hostd.HostDonor, int]]] = {}
    uses: dict[tuple[str, str], list[Use]] = {}
    files: list[hostd.HostFile] = []
    answers = False
    try:
        files = hostd.ask()
        answers = True
    except DcmError as exc:
        if settings.hostd_conf().is_file():
            problems.append(str(exc))
    with ThreadPoolExecutor(ASKERS) as pool:
        users = list(pool.map(_user_vm, vmsock.find_all()))
        names = _domain_names() if files else {}
        vms = [vm for vm, _ in users] + [_kernel_vm(file, names) for file in files]
        for vm, status in users:
            for d, use in zip(status.donors if status else (), vm.uses, strict=True):
                seen.setdefault((d.name, d.address), []).append((d, d.slab_bytes))
                uses.setdefault((d.name, d.address), []).append(use)
        for file, vm in zip(files, vms[len(users) :], strict=True):
            for h, use in zip(file.donors, vm.uses, strict=True):
                seen.setdefault((h.name, h.address), []).append((h, file.extent_bytes))
                uses.setdefault((h.name, h.address), []).append(use)
        keys = [(d.name, str(d.address)) for d in known]
        by_key = dict(zip(keys, known, strict=True))
        if config is None:
            keys += [key for key in seen if key not in by_key]

        def ask(key: tuple[str, str]) -> Donor:
            memory = _told(seen.get(key, []))
            return _donor(key[0], key[1], by_key.get(key), uses.get(key, []), memory, ask_donors)

        donors = list(pool.map(ask, keys))
    problems += [vm.error for vm in vms if vm.error]
    return Estate(time.time(), answers, tuple(donors), tuple(vms), tuple(problems))
