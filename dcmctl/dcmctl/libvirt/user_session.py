# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook's phases for a user's own domains (qemu:///session), on libdcm: no module, no root.

libvirt starts dcm-qemu in QEMU's place (emulator.py); dcm-qemu starts QEMU with libdcm, as
`dcmctl run` does. Only the hook, which libvirt runs as the user, sees the domain's XML:

    prepare    checks the host, writes libdcm's configuration from the XML and the user's host.conf
    started    the guest has not run yet: asks QEMU's pager whether donors have room for it
    release    removes the configuration
    reconnect  writes down that the domain runs

libvirt, the hook and QEMU don't have the environment of the user's shell, so their files are in
the folder top(), which does not depend on that environment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dcmctl.lib import installation, keyfile
from dcmctl.lib.address import NAME, Donor
from dcmctl.lib.errors import DcmError
from dcmctl.lib.units import PAGE
from dcmctl.libvirt import domain, record, room
from dcmctl.libvirt.domain import Memory
from dcmctl.libvirt.xmltree import Element
from dcmctl.pager import preflight, settings, vmsock
from dcmctl.pager.hostd import HostDonor, HostFile
from dcmctl.pager.settings import Settings
from dcmctl.pager.status import Status

PAGER_MAX = 20.0  # until the pager answers and has sessions with donors


def top() -> Path:
    """The runtime folder, found without the environment, which only the user's shell may have."""
    return vmsock.runtime_dir({})


def conf_path(uuid: str) -> Path:
    return top() / "libvirt" / f"{uuid}.conf"


def vm_name(root: Element) -> str:
    """The VM's name for `dcmctl status`."""
    element = root.one("name")
    name = element.text if element is not None else ""
    return name if NAME.fullmatch(name) else f"libvirt-{domain.uuid_of(root)}"


def socket_path(root: Element) -> Path:
    return vmsock.socket_path(top() / "vm", vm_name(root))


def find_emulator() -> Path:
    """The path of dcm-qemu in this installation."""
    path = installation.emulator()
    if not os.access(path, os.X_OK):
        raise DcmError(
            f"{path} is missing: make install-libvirt, or install the package kvm-dcm-libvirt"
        )
    return path


# ---- libdcm's configuration for QEMU ----


def settings_of(root: Element, memory: Memory) -> Settings:
    """libdcm's configuration for this domain; DcmError if host.conf lacks a needed setting."""
    conf = settings.HOST_CONF
    if not conf.is_file():
        raise DcmError(f"{conf} is missing: write it, with donors and a key file")
    host = settings.load(conf)
    donors = domain.chosen_donors(tuple(d for d in host.donors if not d.drain), memory, conf)
    if not donors:
        raise DcmError(f"there are no donors: add some to {conf}")
    if host.keys is None:
        raise DcmError(f"{conf} names no key file: add [key] file = FILE")
    return replace(
        host,
        name=vm_name(root),
        budget=memory.direct,
        size=domain.size_of(root) + settings.QEMU_EXTRA,
        mode="qemu",
        redundancy=memory.redundancy or host.redundancy,
        seal=memory.seal == "yes" if memory.seal else host.seal,
        tenant=keyfile.pick_tenant(host.keys, host.tenant),
        donors=donors,
        # `dcmctl discover` may write donors to that file that this domain must not use.
        donors_file=None if memory.chosen else host.donors_file,
    )


def check_donors(donors: tuple[Donor, ...], memory: Memory) -> None:
    """Check that each named donor, a donor of each named group, and at least one donor answers."""
    why = preflight.probe(donors)
    for donor in donors:
        if donor.name in memory.donors and why[donor.name] is not None:
            raise DcmError(f"the VM needs donor {donor.name} ({donor.address}): {why[donor.name]}")
    for group in memory.groups:
        members = [donor for donor in donors if donor.group == group]
        if all(why[donor.name] is not None for donor in members):
            each = ", ".join(f"{d.name} ({d.address}): {why[d.name]}" for d in members)
            raise DcmError(f"the VM needs a donor of group {group}: {each}")
    if all(answer is not None for answer in why.values()):
        each = ", ".join(f"{d.name} ({d.address}): {why[d.name]}" for d in donors)
        raise DcmError(f"no donor answers: {each}")


# ---- the hook's phases ----


def _write_down(root: Element, memory: Memory, phase: str) -> None:
    vmsock.make_vm_dir(top())
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    record.write_down(uuid, name, phase, conf_path(uuid), memory, size)


def is_the_systems() -> bool:
    """Whether root's libvirt runs the hook: this pager is refused then, as root has the other."""
    return os.geteuid() == 0


def prepare(root: Element, memory: Memory) -> None:
    if is_the_systems():
        raise DcmError(
            "pager='user' is for VMs of qemu:///session: dcmctl vm disable, then dcmctl vm enable"
        )
    for why in domain.why_not_now(root, memory):
        raise DcmError(why)
    preflight.check_userfaultfd()
    preflight.find_preload()
    made = settings_of(root, memory)
    check_donors(made.donors, memory)
    if vmsock.listening(socket_path(root)):
        raise DcmError(f"a VM called {vm_name(root)} is running already (dcmctl list)")
    text = made.to_ini()
    _write_down(root, memory, "prepared")
    try:
        _write_conf(conf_path(domain.uuid_of(root)), text)
    except BaseException:
        release(root)
        raise


def _write_conf(path: Path, text: str) -> None:
    """Write a file under another name, then rename it to `path`."""
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def _status(vm: vmsock.Vm) -> Status:
    return Status.read(vm.ask({"cmd": "status"}), f"VM {vm.name}")


def _seen(status: Status, path: Path, size: int) -> HostFile:
    """The donors in libdcm's status, in the form of dcm-hostd's status (for room.py)."""
    slab = max((d.slab_bytes for d in status.donors), default=0)
    groups = {d.name: d.group or "" for d in settings.load(settings.HOST_CONF).donors}
    donors = tuple(
        HostDonor(
            name=d.name,
            address=d.address,
            state=d.state,
            medium=d.medium,
            slabs=d.slabs,
            slabs_free=d.slabs_free,
            why=d.why,
            group=groups.get(d.name, ""),
        )
        for d in status.donors
    )
    # Count slabs for RAM only, not for QEMU's own memory. Without donors, the slab size is unknown.
    extents = -(-size // slab) if slab else 1
    slabs = status.extents["mapped"] if status.copies == 1 else sum(d.slabs for d in donors)
    return HostFile(
        str(path), extents, slab, slabs, True, donors,
        redundancy=status.redundancy, copies=status.copies,
    )  # fmt: skip


def started(root: Element, memory: Memory) -> None:
    vm, size = vmsock.Vm(vm_name(root), socket_path(root)), domain.size_of(root)
    deadline = time.monotonic() + PAGER_MAX
    while True:
        try:
            file = _seen(_status(vm), vm.path, size)
            why = room.shortage([file], vm.path, memory, settings.HOST_CONF)
        except vmsock.VmGone:
            why = f"QEMU runs without libdcm: no process listens on {vm.path}"
        if why is None:
            break
        if time.monotonic() > deadline:
            raise DcmError(why)
        time.sleep(0.1)
    _write_down(root, memory, "running")


def release(root: Element) -> None:
    uuid = domain.uuid_of(root)
    conf_path(uuid).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if vmsock.listening(socket_path(root)) is False:
            socket_path(root).unlink(missing_ok=True)
    record.forget(uuid)


def reconnect(root: Element, memory: Memory) -> None:
    _write_down(root, memory, "running")


PHASES: dict[tuple[str, str], Callable[[Element, Memory], None]] = {
    ("prepare", "begin"): prepare,
    ("started", "begin"): started,
    ("reconnect", "begin"): reconnect,
}


# ---- running domains ----


@dataclass(frozen=True)
class Live:
    """The pager's figures for a running domain, in bytes."""

    budget: int
    direct: int
    lost: int
    lent: int | None = None
    donors: list[str] = field(default_factory=list)


def live(root: Element) -> Live | None:
    """Ask the pager of a domain; None if it does not run under libdcm, or is another user's."""
    try:
        status = _status(vmsock.Vm(vm_name(root), socket_path(root)))
    except (DcmError, OSError):
        return None
    return Live(
        budget=status.budget_bytes,
        direct=status.direct_bytes,
        lost=status.lost_pages * PAGE,
        lent=sum(d.bytes for d in status.donors),
        donors=[d.name for d in status.donors if d.slabs],
    )


def set_budget(root: Element, size: int) -> None:
    _change(root, {"cmd": "budget", "bytes": size})


def set_redundancy(root: Element, value: str) -> None:
    _change(root, {"cmd": "redundancy", "value": value})


def _change(root: Element, request: vmsock.Json) -> None:
    vm = vmsock.Vm(vm_name(root), socket_path(root))
    try:
        vm.ask(request, vmsock.CHANGE_MAX)
    except vmsock.VmGone:
        raise DcmError(
            f"VM {vm.name} runs without libdcm, as it was started before dcmctl vm enable: "
            "shut it down and start it again"
        ) from None
