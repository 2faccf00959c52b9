# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook's phases for domains of the system's libvirt (qemu:///system), on the kernel pager.

    prepare    checks the host, makes the file on dcmfs with its budget, waits until dcm-hostd has
               donors for it, and refuses the start if they have no room for all of it
    start      puts a symlink to the file where libvirt tells QEMU to find the guest's memory
    started    checks that QEMU opened this file, and made no other
    release    removes the file; when its last user closes it, donors get their memory back
    reconnect  libvirt has started again: writes the record of a running domain. Never fails, as
               libvirt would end the VM

The hook does nothing for libvirt's restore phase: QEMU writes the saved memory into the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import syslog
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dcmctl.lib.errors import DcmError
from dcmctl.lib.units import PAGE, format_size
from dcmctl.libvirt import domain, qemu_conf, record, room
from dcmctl.libvirt.domain import Memory
from dcmctl.libvirt.xmltree import Element
from dcmctl.pager import dcmfs, hostd

LOCK_MAX = 20.0
DONORS_MAX = 10.0  # until dcm-hostd has sessions with the file's donors
ASK_MAX = 10.0  # dcm-hostd may be resolving donors' names
GONE_MAX = 5.0  # until dcm-hostd no longer serves a file of an earlier run
RAM_NAME = "pc.ram"  # QEMU's name for the memory of a PC


def _log(text: str) -> None:
    syslog.syslog(syslog.LOG_INFO, text)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold a lock, so that two VMs that start at the same time don't count on the same slabs."""
    deadline = time.monotonic() + LOCK_MAX
    fd = os.open(record.make_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DcmError(
                        f"other domains have been starting for {LOCK_MAX:.0f} s: start this one "
                        "again"
                    ) from None
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
        raise DcmError(f"{folder} is not a directory of root: remove it")
    return folder


def _remove_earlier(path: Path) -> None:
    """Remove the file of an earlier run for which release did not run; refuse if it is in use."""
    if not path.exists():
        return
    deadline = time.monotonic() + GONE_MAX
    while True:
        file = hostd.file_at(hostd.ask(ASK_MAX), path)
        if file is None or not file.used:
            break
        if time.monotonic() > deadline:
            raise DcmError(
                f"a process still uses {path}, the memory of an earlier run: end it (fuser {path})"
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


def _wait_for_donors(path: Path, memory: Memory) -> None:
    deadline = time.monotonic() + DONORS_MAX
    while True:
        why = room.shortage(hostd.ask(ASK_MAX), path, memory)
        if why is None:
            return
        if time.monotonic() > deadline:
            raise DcmError(why)
        time.sleep(0.1)


def prepare(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    if os.geteuid():
        raise DcmError(
            "the kernel pager is for VMs of qemu:///system; for VMs of yours: dcmctl vm enable "
            "--connect qemu:///session"
        )
    for why in domain.why_not_now(root, memory):
        raise DcmError(why)
    path = dcmfs.path_of(_mount_folder().parent, uuid)
    with _one_at_a_time():
        hostd.ask(ASK_MAX)  # if it does not answer, fail before anything is made
        _remove_earlier(path)
        try:
            hostd.choose(path, memory.chosen, memory.redundancy, memory.seal)
            _make(path, size, memory)
            _wait_for_donors(path, memory)
            record.write_down(uuid, name, "prepared", path, memory, size)
        except BaseException:
            path.unlink(missing_ok=True)
            hostd.choose(path, ())
            raise
    _log(f"{name}: {format_size(size)} on {path}, {format_size(memory.direct)} of it direct")


# ---- the rest ----


def _ram_of(root: Element) -> Path:
    """The folder that libvirt made for the memory files of this start."""
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
        raise DcmError(f"{path} was removed since the hook made it: start the VM again")
    # QEMU's user owns the folder: never follow a symlink that it may have put there.
    folder = os.open(_ram_of(root), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(folder)
        os.chown(path, owner.st_uid, owner.st_gid)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(RAM_NAME, dir_fd=folder)
        os.symlink(path, RAM_NAME, dir_fd=folder)
    finally:
        os.close(folder)
    record.write_down(uuid, name, "starting", path, memory, size)


def started(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    for entry in _ram_of(root).iterdir():
        if not (entry.name == RAM_NAME and entry.is_symlink()):
            raise DcmError(
                f"QEMU has made {entry}, memory that would not be on donors: give the VM no memory "
                "beside its RAM"
            )
    path = dcmfs.path_of(dcmfs.the_mount(), uuid)
    record.write_down(uuid, name, "running", path, memory, size)


def release(root: Element) -> None:
    uuid = domain.uuid_of(root)
    for mount in dcmfs.mounts():
        path = dcmfs.path_of(mount, uuid)
        if path.is_file():
            path.unlink(missing_ok=True)
            _log(f"{domain.name_of(root)}: removed {path}")
        hostd.choose(path, ())
    record.forget(uuid)


def reconnect(root: Element, memory: Memory) -> None:
    uuid, name, size = domain.uuid_of(root), domain.name_of(root), domain.size_of(root)
    path = dcmfs.path_of(dcmfs.the_mount(), uuid)
    if not path.is_file():
        _log(f"{name} runs, but {path} was removed: the memory remains until the VM ends")
    record.write_down(uuid, name, "running", path, memory, size)


PHASES: dict[tuple[str, str], Callable[[Element, Memory], None]] = {
    ("prepare", "begin"): prepare,
    ("start", "begin"): start,
    ("started", "begin"): started,
    ("reconnect", "begin"): reconnect,
}
