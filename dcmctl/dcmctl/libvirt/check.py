# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl vm check`: does this host have all that a domain on donor memory needs to start?

Each check uses the real thing: the mount, the socket, the key file, a connection to each donor. A
check that fails says how to repair it.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcmctl.lib import keyfile
from dcmctl.lib.errors import DcmError, reason
from dcmctl.lib.units import format_size
from dcmctl.libvirt import balloon, domain, emulator, qemu_conf, user_session
from dcmctl.libvirt.connection import Host
from dcmctl.pager import dcmfs, hostd, preflight, settings

HOSTD_CONF = settings.hostd_conf()
HOOK = Path("/etc/libvirt/hooks/qemu.d/50-kvm-dcm")
APPARMOR = Path("/etc/apparmor.d/abstractions/libvirt-qemu.d/kvm-dcm")
APPARMOR_ON = Path("/sys/module/apparmor/parameters/enabled")


@dataclass(frozen=True)
class Line:
    """The result of one check."""

    what: str
    good: bool
    said: str


def _try(what: str, check: Callable[[], str]) -> Line:
    try:
        return Line(what, True, check())
    except (DcmError, OSError) as exc:
        return Line(what, False, str(exc) if isinstance(exc, DcmError) else reason(exc))


def _module() -> str:
    if not dcmfs.is_loaded():
        raise DcmError(
            "kvm-dcm is not loaded: modprobe kvm-dcm (built by make install-dkms, dkms install)"
        )
    return "kvm-dcm is loaded"


def _mount() -> str:
    path = dcmfs.the_mount()
    return f"dcmfs is mounted on {path}"


def _hook() -> str:
    if not HOOK.is_file():
        raise DcmError(
            f"{HOOK} is missing: make install-libvirt, then systemctl reload libvirtd or virtqemud"
        )
    if not os.access(HOOK, os.X_OK):
        raise DcmError(f"{HOOK} is not executable: chmod 755 {HOOK}")
    return f"{HOOK} is there"


def _permissions() -> str:
    """QEMU's user must be able to enter the files' folder; the hook gives it access to its file."""
    user = qemu_conf.setting("user") or "libvirt-qemu"
    user = user.lstrip("+")
    try:
        uid = int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise DcmError(
            f"user {user}, as which qemu.conf lets QEMU run, does not exist: correct user ="
        ) from None
    mount = dcmfs.the_mount()
    if uid:
        for path in (*reversed(mount.parents), mount):
            if not path.stat().st_mode & stat.S_IXOTH:
                raise DcmError(
                    f"QEMU's user {user} has no search permission on {path}: chmod o+x {path}"
                )
    return f"QEMU, as {user}, can reach files on {mount}"


def _devices() -> str:
    """dcmfs needs no entry in qemu.conf's cgroup_device_acl, as it has no device node."""
    dcmfs.the_mount()
    return "guest memory is a regular file: cgroup_device_acl needs no entry for it"


def _apparmor() -> str:
    if not APPARMOR_ON.exists() or APPARMOR_ON.read_text().strip() != "Y":
        return "not in use on this host"
    if (qemu_conf.setting("security_driver") or "").strip() == "none":
        return "libvirt does not use it (security_driver in qemu.conf)"
    mount = dcmfs.the_mount()
    rule = f"{mount}/{dcmfs.FOLDER}/@{{profile_name}} rw,"
    if not APPARMOR.is_file() or rule not in APPARMOR.read_text():
        raise DcmError(f"{APPARMOR} lacks the line '{rule}': add it")
    return f"{APPARMOR} allows each QEMU its own file on {mount}"


def _status() -> str:
    files = hostd.ask()
    return f"dcm-hostd serves {len(files)} file{'s' * (len(files) != 1)}"


def _load(conf: Path) -> settings.Settings:
    """Load a configuration of dcm-hostd or of libdcm."""
    return settings.load_hostd(conf) if conf == HOSTD_CONF else settings.load(conf)


def _key(conf: Path) -> str:
    host = _load(conf)
    if host.keys is None:
        raise DcmError(f"{conf} names no key file: add [key] file = FILE")
    tenant = keyfile.pick_tenant(host.keys, host.tenant)
    return f"{host.keys} has a key of tenant {tenant}"


def _donors(conf: Path) -> Iterator[Line]:
    try:
        donors = _load(conf).donors
    except DcmError as exc:
        yield Line("donors", False, str(exc))
        return
    if not donors:
        yield Line("donors", False, f"{conf} has no donor: add [donor NAME]")
    answers = preflight.probe(donors)
    for donor in donors:
        why = answers[donor.name]
        said = "accepts connections"
        if why is not None:
            said = f"{why}: is dcm-donord running there, and is the address in {conf} right?"
        yield Line(f"donor {donor.name} ({donor.address})", why is None, said)


def _memory_path() -> str:
    folder = qemu_conf.ram_folder()
    if any(mount == folder or mount in folder.parents for mount in dcmfs.mounts()):
        raise DcmError(
            f"memory_backing_dir in {qemu_conf.path()} is on dcmfs, so memory of all VMs would be "
            "on "
            "donors: remove the line; the hook puts each VM's memory in its place"
        )
    return f"{folder} is not on dcmfs, as it must be"


def _domains(uri: str | None, name: str | None) -> Iterator[Line]:
    try:
        host = Host(uri)
        doms = [host.find(name)] if name else host.all()
    except DcmError as exc:
        yield Line("libvirt", False, str(exc))
        return
    yield Line("libvirt", True, f"{host.uri} answers")
    for dom in doms:
        yield from _domain(host, dom, name is not None)


def _domain(host: Any, dom: Any, asked: bool) -> Iterator[Line]:
    what = f"domain {dom.name()}"
    try:
        root = domain.read_domain(host.xml(dom))
        memory = domain.find_memory(root)
        if memory is None:
            if asked:
                for why in domain.why_not(root, host.kinds, host.pager):
                    raise DcmError(f"its memory can't be on donors: {why}")
                raise DcmError(
                    f"its memory is not on donors: dcmctl vm enable {dom.name()} --direct SIZE"
                )
            return
        for why in domain.why_not_now(root, memory, host.kinds):
            raise DcmError(why)
        said = f"{format_size(memory.direct)} of its {format_size(domain.size_of(root))} direct"
        yield Line(what, True, said)
        if memory.chosen:
            yield _try(f"{what}, donors", lambda: _chosen(memory))
        yield Line(f"{what}, memory that its guest frees", True, _freed(root))
    except DcmError as exc:
        yield Line(what, False, str(exc))


def _chosen(memory: domain.Memory) -> str:
    """Find the donors that a domain names, itself or by their group."""
    conf = HOSTD_CONF if memory.pager == "kernel" else settings.HOST_CONF
    used = domain.chosen_donors(_load(conf).donors, memory, conf)
    return f"it may use {', '.join(donor.name for donor in used)}"


def _freed(root: Any) -> str:
    """Say what happens to memory that the guest frees. Reporting is optional: never a failure."""
    why = balloon.why_not(root)
    return "reported, and goes to no donor" if why is None else f"goes to donors: {why}"


def _userfaultfd() -> str:
    preflight.check_userfaultfd()
    return "permitted, for faults of system calls too"


def _for_session(uri: str | None, name: str | None) -> list[Line]:
    conf = settings.HOST_CONF
    return [
        _try("userfaultfd", _userfaultfd),
        _try("libdcm", lambda: f"{preflight.find_preload()} is there"),
        _try("emulator", lambda: f"{user_session.find_emulator()} starts {emulator.find_qemu()}"),
        _try("hook", _hook),
        _try("key", lambda: _key(conf)),
        *_donors(conf),
        *_domains(uri, name),
    ]


def run(uri: str | None, name: str | None) -> list[Line]:
    """Run all checks, in the order in which failures should be repaired."""
    if (uri or os.environ.get("LIBVIRT_DEFAULT_URI") or "").startswith("qemu:///session"):
        return _for_session(uri, name)
    lines = [
        _try("kernel module", _module),
        _try("mount", _mount),
        _try("key", lambda: _key(HOSTD_CONF)),
        *_donors(HOSTD_CONF),
        _try("dcm-hostd", _status),
        _try("hook", _hook),
        _try("permissions", _permissions),
        _try("device ACL", _devices),
        _try("AppArmor", _apparmor),
        _try("memory_backing_dir", _memory_path),
        *_domains(uri, name),
    ]
    return lines
