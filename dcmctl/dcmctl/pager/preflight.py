# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks before a program is started: can libdcm page it, and do its donors answer?

Each check uses the real thing: it calls userfaultfd, reads the program's ELF header, connects to
each donor.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import shutil
import signal
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from dcmctl.lib import installation
from dcmctl.lib.address import Donor
from dcmctl.lib.errors import DcmError, reason, printable

PRELOAD = "libdcm-preload.so"
# Allocators whose mappings the shim sees: library and Debian's package. The first is preferred.
ALLOCATORS = {
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
}
PROBE_TIMEOUT = 2.0

# linux/userfaultfd.h, asm/unistd.h
_USERFAULTFD_IOC_NEW = 0xAA00
_NR_USERFAULTFD = {"x86_64": 323, "aarch64": 282, "riscv64": 282, "ppc64le": 364, "s390x": 355}
_UFFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_UFFD_SYSCTL = Path("/proc/sys/vm/unprivileged_userfaultfd")
_UFFD_DEVICE = "/dev/userfaultfd"

_ELF_MAGIC = b"\x7fELF"
_PT_INTERP = 3


# ---- userfaultfd ----


def _try_syscall() -> int:
    """0 if userfaultfd(2) gives a descriptor that handles faults in kernel mode too, else errno."""
    number = _NR_USERFAULTFD.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(ctypes.c_long(number), ctypes.c_long(_UFFD_FLAGS))
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def _try_device() -> int:
    """0 if /dev/userfaultfd (since Linux 6.1) gives such a descriptor, else errno."""
    try:
        fd = os.open(_UFFD_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as exc:
        return exc.errno or errno.EIO
    try:
        os.close(fcntl.ioctl(fd, _USERFAULTFD_IOC_NEW, _UFFD_FLAGS))
    except OSError as exc:
        return exc.errno or errno.EIO
    finally:
        os.close(fd)
    return 0


def check_userfaultfd() -> None:
    """Raise DcmError, with ways to allow it, unless faults in kernel mode can be handled."""
    by_call = _try_syscall()
    if not by_call or not _try_device():
        return
    if by_call == errno.ENOSYS and not os.path.exists(_UFFD_DEVICE):
        raise DcmError(
            "this kernel has no userfaultfd: boot Linux 6.1 or later with CONFIG_USERFAULTFD"
        )
    ways = []
    with contextlib.suppress(OSError):
        if _UFFD_SYSCTL.read_text().strip() == "0":
            ways.append("'sudo sysctl vm.unprivileged_userfaultfd=1'")
    if os.path.exists(_UFFD_DEVICE):
        ways.append(
            f"'sudo chgrp kvm {_UFFD_DEVICE} && sudo chmod g+rw {_UFFD_DEVICE}' "
            "as a member of group kvm"
        )
    ways.append("CAP_SYS_PTRACE")
    raise DcmError(
        f"no permission for userfaultfd ({os.strerror(by_call)}); "
        f"get it by {', or by '.join(ways)}"
    )


# ---- libraries ----


def find_preload() -> Path:
    """The path of the shim. It must have no blank or colon, at which LD_PRELOAD is split."""
    given = os.environ.get("DCM_LIBDIR")
    dirs = [Path(os.path.abspath(given))] if given else installation.library_dirs()
    for directory in dirs:
        path = directory / PRELOAD
        if path.is_file():
            if any(c in str(path) for c in " :"):
                raise DcmError(
                    f"{path}: LD_PRELOAD cannot hold a path with a blank or a colon; "
                    "set DCM_LIBDIR to a directory without them"
                )
            return path
    hint = "is DCM_LIBDIR right?" if given else "run make, or set DCM_LIBDIR"
    raise DcmError(f"{PRELOAD} is not in {' or '.join(map(str, dirs))}: {hint}")


def find_allocator(name: str | None) -> Path:
    """The path of this allocator, or of the first there is: its large mappings can be paged."""
    arch = installation.multiarch()
    names = [name] if name else list(ALLOCATORS)
    for library, _ in (ALLOCATORS[n] for n in names):
        for directory in (
            f"/usr/lib/{arch}",
            f"/lib/{arch}",
            "/usr/lib64",
            "/usr/lib",
            "/usr/local/lib",
        ):
            path = Path(directory) / library
            if path.is_file():
                return path
    library, package = ALLOCATORS[names[0]]
    raise DcmError(
        f"{library} is missing; without it malloc'ed memory is not paged: apt install "
        f"{package}, or use --malloc own for a program with an allocator of its own"
    )


# ---- the program ----


def find_program(program: str) -> Path:
    """The file that exec would run."""
    found = shutil.which(program)
    if found is None:
        if "/" in program and os.path.exists(program):
            raise DcmError(f"{printable(program)} is not an executable file", 126)
        raise DcmError(f"program '{printable(program)}' is not found", 127)
    return Path(found)


def _interpreter(first_line: bytes) -> str | None:
    words = first_line[2:].split()
    if not words:
        return None
    if os.path.basename(words[0]) == b"env":
        names = [w for w in words[1:] if not w.startswith(b"-") and b"=" not in w]
        return os.fsdecode(names[0]) if names else None
    return os.fsdecode(words[0])


def check_preloadable(program: Path, depth: int = 4) -> None:
    """Refuse a program that would run without the shim: setuid or static, for example."""
    try:
        info = program.stat()
        with program.open("rb") as file:
            head = file.read(4096)
            if head.startswith(b"#!"):
                name = _interpreter(head.split(b"\n", 1)[0])
                found = shutil.which(name) if name else None
                if found and depth:
                    check_preloadable(Path(found), depth - 1)
                return
            dynamic = _has_interp(head)
    except PermissionError:
        return  # it can be executed but not read: exec decides
    except OSError as exc:
        raise DcmError(f"cannot read {program}: {reason(exc)}") from None
    if dynamic is None:
        return  # not ELF: exec decides
    if not dynamic:
        raise DcmError(
            f"{program} is statically linked, so libdcm cannot be preloaded: "
            "use a dynamically linked build, or link the program with libdcm"
        )
    caps = False
    with contextlib.suppress(OSError):
        caps = bool(os.getxattr(program, "security.capability")) and os.geteuid() != 0
    setuid = info.st_mode & stat.S_ISUID and info.st_uid != os.geteuid()
    setgid = info.st_mode & stat.S_ISGID and info.st_gid != os.getegid()
    if setuid or setgid or caps:
        raise DcmError(
            f"{program} is set-uid, set-gid or has file capabilities, so the loader ignores "
            "LD_PRELOAD: run it as the user whose rights it takes, or use a copy without them"
        )


def _has_interp(head: bytes) -> bool | None:
    """Whether an ELF file names a dynamic loader; None if the file is not ELF."""
    if len(head) < 64 or not head.startswith(_ELF_MAGIC):
        return None
    if head[4] != 2 or (head[5] == 1) != (sys.byteorder == "little"):
        raise DcmError("the program is not a 64-bit one for this machine: only those can be paged")
    (offset,) = struct.unpack_from("=Q", head, 32)
    size, count = struct.unpack_from("=HH", head, 54)
    if size < 4 or offset + size * count > len(head):
        return True  # unusual headers: exec decides
    return any(
        struct.unpack_from("=I", head, offset + i * size)[0] == _PT_INTERP for i in range(count)
    )


# ---- donors ----


def probe(donors: Iterable[Donor], timeout: float = PROBE_TIMEOUT) -> dict[str, str | None]:
    """By donor name: None if the donor accepts a connection, else the reason why not."""
    from concurrent.futures import ThreadPoolExecutor  # loads logging and more

    todo = list(donors)
    if not todo:
        return {}
    with ThreadPoolExecutor(max_workers=min(16, len(todo))) as pool:
        # A thread may exist for a moment after it was joined. Signals are blocked in these threads,
        # so that none of them takes a signal that run.py is going to wait for.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            answers = pool.map(lambda donor: donor.address.probe(timeout), todo)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return {donor.name: answer for donor, answer in zip(todo, answers, strict=True)}
