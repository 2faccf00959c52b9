# SPDX-License-Identifier: GPL-2.0-or-later
"""What libvirt's qemu hook does for a domain whose memory is on donors.

    prepare    is all there? makes the file on dcmfs with its budget, waits until dcm-hostd has
               donors for it, and refuses the start when they would not hold all of it
    start      puts a link to the file where libvirt tells QEMU to find the guest's memory
    started    looks whether QEMU took it, and only that
    release    removes the file; with its last user donors have their memory back
    reconnect  libvirt is there again: writes down what it finds, and never fails, as libvirt
               would end the VM
    migrate    refused: not supported yet
    restore    as it is: QEMU writes the saved memory into the file

That is for the kernel pager; for VMs that libdcm pages (pager="user") see user_session.py.

What is done is written down for each domain, and each phase can be run again or left out: libvirt
may have been killed at any point. All waits together are bounded. libvirt is never called: it
waits for this. What a domain may take of donors is known from dcm-hostd alone: a file that has
fewer slabs than extents may ask for the rest, so that much is promised to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import sys
import syslog
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dcmctl import control, dcmfs, domain, hostd, qemu_conf
from dcmctl.domain import Memory
from dcmctl.errors import DcmError, reason
from dcmctl.hostd import HostFile
from dcmctl.units import PAGE, format_size
from dcmctl.xmltree import Element

ALL_MAX = 40  # seconds for all of a phase
LOCK_MAX = 20.0
DONORS_MAX = 10.0  # until dcm-hostd has its donors
ASK_MAX = 10.0  # dcm-hostd looks up donors' names when a file comes
GONE_MAX = 5.0  # until a file of an earlier run is gone
HOSTD_CONF = Path("/etc/kvm-dcm/hostd.conf")
RAM_NAME = "pc.ram"  # QEMU's name for the memory of a PC
# Those whose failure ends what libvirt was about to do.
REFUSING = ("prepare", "start", "started", "migrate", "restore")


def state_folder() -> Path:
    given = os.environ.get("DCM_LIBVIRT_STATE")
    if given or not os.geteuid():
        return Path(given or "/run/kvm-dcm-libvirt")
    return control.runtime_dir({}) / "libvirt"


class _TooLong(Exception):
    pass


# ---- what was done ----


def _folder() -> Path:
    folder = state_folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise DcmError(f"{folder} is not a directory of ours: remove it")
    return folder


def write_down(uuid: str, name: str, phase: str, path: Path, memory: Memory, size: int) -> None:
    """Whole or not at all."""
    folder = _folder()
    record = {
        "name": name,
        "uuid": uuid,
        "phase": phase,
        "file": str(path),
        "memory_bytes": size,
        "direct_bytes": memory.direct,
        "time": int(time.time()),
    }
    new = folder / f".{uuid}.{os.getpid()}"
    new.write_text(json.dumps(record) + "\n")
    new.replace(folder / f"{uuid}.json")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two that start at once must not both be promised the same slabs."""
    deadline = time.monotonic() + LOCK_MAX
    fd = os.open(_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DcmError("another domain is being started all the time") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)


# ---- prepare ----


def _mount_folder() -> Path:
    folder = dcmfs.the_mount() / dcmfs.FOLDER
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise DcmError(f"{folder} is not a directory of root's: remove it")
    return folder


def _remove_earlier(path: Path) -> None:
    """What a run left that was not released, unless somebody still has it."""
    if not path.exists():
        return
    deadline = time.monotonic() + GONE_MAX
    while True:
        file = hostd.file_at(hostd.ask(ASK_MAX), path)
        if file is None or not file.used:
            break
        if time.monotonic() > deadline:
            raise DcmError(
                f"a process still uses the memory of an earlier run, {path}: end it (fuser {path})"
            )
        time.sleep(0.2)
    path.unlink(missing_ok=True)
    while hostd.file_at(hostd.ask(ASK_MAX), path) is not None and time.monotonic() < deadline:
        time.sleep(0.2)


def _make(path: Path, size: int, memory: Memory) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.ftruncate(fd, -(-size // PAGE) * PAGE)
        dcmfs.set_budget(fd, memory.direct)
    finally:
        os.close(fd)


def _others(files: list[HostFile], mine: HostFile) -> int:
    """What others may ask yet of donors that this one uses too."""
    donors = {donor.name for donor in mine.donors}
    return sum(
        file.outstanding
        for file in files
        if file.path != mine.path and donors & {donor.name for donor in file.donors}
    )


def shortage(
    files: list[HostFile], path: Path, memory: Memory, conf: Path = HOSTD_CONF
) -> str | None:
    """Why donors, which are in `conf`, can't be promised to hold a file; None: they can."""
    file = hostd.file_at(files, path)
    if file is None:
        return f"dcm-hostd does not serve {path}: its log says why (journalctl -u dcm-hostd)"
    known = {donor.name: donor for donor in file.donors}
    for name in memory.donors:
        if name not in known:
            return f"it needs donor {name}, which is not in {conf}"
        if known[name].state != "up":
            return f"it needs donor {name}, which is {known[name].state}: {known[name].why or '?'}"
    for group in memory.groups:
        members = [donor for donor in file.donors if donor.group == group]
        if not members:
            return f"it needs a donor of group {group}: none in {conf} is"
        if all(donor.state != "up" for donor in members):
            each = [f"{d.name} is {d.state} ({d.why or '?'})" for d in members]
            return f"it needs a donor of group {group}: {', '.join(each)}"
    if not file.donors:
        return f"there are no donors: name some in {conf}"
    promised = _others(files, file)
    free = sum(donor.slabs_free for donor in file.donors if donor.state == "up")
    if free - promised >= file.outstanding:
        return None
    each = []
    for donor in file.donors:
        said = f"{donor.name} is {donor.state}"
        if donor.state == "up":
            said = f"{donor.name} has {format_size(donor.slabs_free * file.extent_bytes)}"
        each.append(f"{said} ({donor.why})" if donor.why and donor.state != "up" else said)
    need = format_size(file.outstanding * file.extent_bytes)
    text = (
        f"donors have no room for it: it can need {need} in slabs of "
        f"{format_size(file.extent_bytes)}; {', '.join(each)}"
    )
    if promised:
        text += f"; {format_size(promised * file.extent_bytes)} of that is promised to other VMs"
    return text


def _wait_for_donors(path: Path, memory: Memory) -> None:
    deadline = time.monotonic() + DONORS_MAX
    while True:
        why = shortage(hostd.ask(ASK_MAX), path, memory)
        if why is None:
            return
        if time.monotonic() > deadline:
            raise DcmError(why)
        time.sleep(0.1)


def prepare(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    if os.geteuid():
        raise DcmError(
            "the kernel pager is for VMs of the system's libvirt (qemu:///system); for yours: "
            "dcmctl vm enable --connect qemu:///session"
        )
    for why in domain.why_not_now(root, memory):
        raise DcmError(why)
    path = dcmfs.path_of(_mount_folder().parent, uuid)
    with _one_at_a_time():
        hostd.ask(ASK_MAX)  # says what is wrong before anything is made
        _remove_earlier(path)
        try:
            hostd.choose(path, memory.chosen)
            _make(path, size, memory)
            _wait_for_donors(path, memory)
            write_down(uuid, name, "prepared", path, memory, size)
        except BaseException:
            path.unlink(missing_ok=True)
            hostd.choose(path, ())
            raise
    log(f"{name}: {format_size(size)} on {path}, {format_size(memory.direct)} of it direct")


# ---- the rest ----


def _ram_of(root: Element) -> Path:
    """The directory libvirt made for the memory files of this start."""
    number = root.attributes.get("id", "")
    base = qemu_conf.ram_folder()
    if number.isascii() and number.isdigit() and base.is_dir():
        found = [entry for entry in base.iterdir() if entry.name.startswith(f"{number}-")]
        if len(found) == 1:
            return found[0]
    raise DcmError(
        f"libvirt made no directory for this VM's memory in {base}: its <memoryBacking> needs "
        "<source type='file'/>"
    )


def start(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    path = dcmfs.path_of(dcmfs.the_mount(), uuid)
    if not path.is_file() or path.is_symlink():
        raise DcmError(f"{path} is not there any more: start the VM again")
    # It is QEMU's user's, who may not choose what is done to other directories.
    folder = os.open(_ram_of(root), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(folder)
        os.chown(path, owner.st_uid, owner.st_gid)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(RAM_NAME, dir_fd=folder)
        os.symlink(path, RAM_NAME, dir_fd=folder)
    finally:
        os.close(folder)
    write_down(uuid, name, "starting", path, memory, size)


def started(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    for entry in _ram_of(root).iterdir():
        if not (entry.name == RAM_NAME and entry.is_symlink()):
            raise DcmError(f"QEMU has made {entry}, memory that would not be on donors")
    path = dcmfs.path_of(dcmfs.the_mount(), uuid)
    write_down(uuid, name, "running", path, memory, size)


def release(root: Element) -> None:
    uuid = domain.uuid_of(root)
    for mount in dcmfs.mounts():
        path = dcmfs.path_of(mount, uuid)
        if path.is_file():
            path.unlink(missing_ok=True)
            log(f"{domain.name_of(root)}: {path} removed")
        hostd.choose(path, ())
    (state_folder() / f"{uuid}.json").unlink(missing_ok=True)


def reconnect(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    path = dcmfs.path_of(dcmfs.the_mount(), uuid)
    if not path.is_file():
        log(f"{name} runs, but {path} is not there: it has its memory until it ends")
    write_down(uuid, name, "running", path, memory, size)


def migrate(_root: Element, _memory: Memory) -> None:
    raise DcmError("a VM with memory on donors can't be migrated yet: shut it down, start it there")


PHASES: dict[tuple[str, str], Callable[[Element, Memory], None]] = {
    ("prepare", "begin"): prepare,
    ("start", "begin"): start,
    ("started", "begin"): started,
    ("reconnect", "begin"): reconnect,
    ("migrate", "begin"): migrate,
}


def _module(root: Element) -> Any:
    """Whose business the domain is, whatever else is wrong with what it says."""
    if all(e.attributes.get("pager") != "user" for e in root.all("metadata", domain.MEMORY)):
        return sys.modules[__name__]
    from dcmctl import user_session  # which most hosts never need

    return user_session


def log(text: str) -> None:
    syslog.syslog(syslog.LOG_INFO, text)


def _on_alarm(*_: Any) -> None:
    raise _TooLong


def main(argv: list[str], data: bytes) -> int:
    """One call of libvirt's; the exit status. Only for a domain that has our element."""
    operation, phase = (argv + ["", "", ""])[2:4] if len(argv) > 2 else ("", "")
    syslog.openlog("kvm-dcm-hook")
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(ALL_MAX)
    try:
        root = domain.read_domain(data)
        if (operation, phase) == ("release", "end"):
            _module(root).release(root)
            return 0
        memory = domain.find_memory(root)
        action = None if memory is None else _module(root).PHASES.get((operation, phase))
        if memory is not None and action is not None:
            action(root, memory)
        return 0
    except _TooLong:
        why = f"not done within {ALL_MAX} s"
    except DcmError as exc:
        why = str(exc)
    except OSError as exc:
        why = f"{exc.filename or operation}: {reason(exc)}"
    finally:
        signal.alarm(0)
    print(f"kvm-dcm: {why}", file=sys.stderr)
    syslog.syslog(syslog.LOG_ERR, f"{operation}: {why}")
    return 1 if operation in REFUSING else 0
