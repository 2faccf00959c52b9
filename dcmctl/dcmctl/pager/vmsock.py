# SPDX-License-Identifier: GPL-2.0-or-later
"""The socket on which libdcm answers for a running VM: find it, send requests, remove a stale one.

libdcm makes `RUNTIME/vm/NAME.sock` in the VM's process. If `dcmctl run` started the VM, there also
is `RUNTIME/vm/NAME.conf`, and that dcmctl holds a lock on this file until it ends. So:

    connect() works                       the VM runs
    connection refused, .conf locked      the VM is starting or ending: leave both files
    refused, no lock, files are old       the VM's process has ended: remove both files

Request and answer are one JSON object on one line each. An answer of more than 1 MiB, one that is
not complete within the timeout, and one that breaks the protocol are errors.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcmctl.lib.address import NAME, UNIX_PATH_MAX, connect_unix
from dcmctl.lib.errors import DcmError, reason, printable

ANSWER_MAX = 1 << 20
TIMEOUT = 3.0
CHANGE_MAX = 15.0  # for an answer to a change of donors; until all VMs have the new list
STALE_AGE = 2.0  # a socket this old does not belong to a VM between bind() and listen()
VMS_MAX = 4096

Json = dict[str, Any]


# ---- the runtime directory ----


def runtime_dir(env: Mapping[str, str] = os.environ) -> Path:
    """$DCM_RUNTIME_DIR; else /run/kvm-dcm-host for root, a folder in $XDG_RUNTIME_DIR for others.

    `dcmctl run` passes the folder to the program it starts, so both use the same one. It is not
    /run/kvm-dcm, which belongs to the user that dcm-donord runs as.
    """
    given = env.get("DCM_RUNTIME_DIR")
    if given:
        return Path(os.path.abspath(given))
    user = os.geteuid()
    if user == 0:
        return Path("/run/kvm-dcm-host")
    base = Path(env.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    with contextlib.suppress(OSError):
        if "XDG_RUNTIME_DIR" in env or base.stat().st_uid == user:
            return base / "kvm-dcm"
    return Path(f"/tmp/kvm-dcm-{user}")  # used only if it belongs to this user


def _check_private(path: Path) -> None:
    """Refuse a folder of sockets that another user may write to, or replace by another folder."""
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise DcmError(f"{path} is not a directory: remove it, or set DCM_RUNTIME_DIR")
    for each in (path, path.parent):
        if each.stat().st_uid not in (0, os.geteuid()):
            raise DcmError(
                f"{each} belongs to another user: set DCM_RUNTIME_DIR to one of your own"
            )
        if each.stat().st_mode & 0o022 and not each.stat().st_mode & stat.S_ISVTX:
            raise DcmError(f"other users may write to {each}: chmod go-w {each}")


def make_vm_dir(top: Path | None = None) -> Path:
    """Make and check the folder of sockets."""
    top = top or runtime_dir()
    path = top / "vm"
    try:
        top.mkdir(mode=0o755, exist_ok=True, parents=True)
        path.mkdir(mode=0o700, exist_ok=True)
        _check_private(path)
    except OSError as exc:
        raise DcmError(
            f"cannot make {path}: {reason(exc)}; set DCM_RUNTIME_DIR to a directory of your own"
        ) from None
    return path


def socket_path(directory: Path, name: str) -> Path:
    path = directory / f"{name}.sock"
    if len(os.fsencode(path)) > UNIX_PATH_MAX:
        raise DcmError(
            f"socket path {path} is longer than {UNIX_PATH_MAX} bytes: "
            "use a shorter --name, or a shorter path in DCM_RUNTIME_DIR"
        )
    return path


# ---- the lock of `dcmctl run` ----


def lock_conf(path: Path) -> int | None:
    """Open and lock NAME.conf, mode 0600; None if another dcmctl holds the lock.

    If the file was unlinked between open() and flock(), open it again: the lock must be on the file
    that has the name now. A dcmctl that removes stale files holds the lock only for a moment, so a
    held lock is tried five times.
    """
    tries = 5
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o600)
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd
        except BlockingIOError:
            tries -= 1
            if not tries:
                os.close(fd)
                return None
            time.sleep(0.05)
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


# ---- requests ----


def decode(data: bytes, who: str) -> Json:
    """Parse a JSON object, which may be hostile; DcmError if it is not one."""

    def refuse(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    try:
        value = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise DcmError(f"{who} answered with something that is not JSON") from None
    if not isinstance(value, dict):
        raise DcmError(f"{who} answered with JSON that is not an object")
    return value


def _exchange(sock: socket.socket, line: bytes, deadline: float) -> bytes:
    def rest() -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    sock.settimeout(rest())
    sock.sendall(line)
    answer = bytearray()
    while True:
        sock.settimeout(rest())
        part = sock.recv(65536)
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "connection closed without an answer")
        end = part.find(b"\n")
        answer += part if end < 0 else part[:end]
        if len(answer) > ANSWER_MAX:
            raise DcmError("")
        if end >= 0:
            return bytes(answer)


@dataclass(frozen=True)
class Vm:
    """A VM and its socket."""

    name: str
    path: Path

    def ask(self, request: Json, timeout: float = TIMEOUT) -> Json:
        """Send a request and return the checked answer; VmGone if no process listens."""
        who = f"VM {self.name}"
        line = json.dumps(request).encode() + b"\n"
        try:
            deadline = time.monotonic() + timeout
            with connect_unix(str(self.path), timeout) as sock:
                data = _exchange(sock, line, deadline)
        except TimeoutError:
            raise DcmError(f"{who} does not answer within {timeout:g} s on {self.path}") from None
        except (ConnectionRefusedError, FileNotFoundError):
            raise VmGone(f"{who} is not running") from None
        except OSError as exc:
            raise DcmError(f"{who}: {reason(exc)}") from None
        except DcmError:
            raise DcmError(f"{who} sent an answer of more than {ANSWER_MAX >> 20} MiB") from None
        answer = decode(data, who)
        ok = answer.pop("ok", None)
        if ok is True:
            return answer
        error = answer.get("error")
        if ok is False and isinstance(error, str) and error:
            raise DcmError(f"{who}: {printable(error)}")
        raise DcmError(f"{who} sent an answer with neither ok nor an error")

    def change_donor(self, op: str, name: str, address: str = "", group: str = "") -> None:
        """Change a donor. `op`: add (with an address), drain, keep or remove.

        It is no error if the VM has made this change already.
        """
        request = {"cmd": "donor", "op": op, "name": name}
        if address:
            request["address"] = address
        if group:
            request["group"] = group
        try:
            self.ask(request, CHANGE_MAX)
        except VmGone:
            raise
        except DcmError as exc:
            if "so already" not in str(exc):
                raise


class VmGone(DcmError):
    """No process listens on the VM's socket."""


# ---- finding ----


def listening(path: Path) -> bool | None:
    """Whether a process listens on a socket; None if it is not known."""
    try:
        connect_unix(str(path), 0.1).close()
        return True
    except ConnectionRefusedError:
        return False
    except TimeoutError:
        return True  # the backlog of a process that listens is full
    except OSError:
        return None


def _young(path: Path) -> bool:
    return time.time() - os.lstat(path).st_ctime < STALE_AGE


def _clean_if_stale(path: Path, conf: Path) -> None:
    """Remove the files of a VM whose process has ended.

    This takes the lock that `dcmctl run` takes for this name, so files of a VM that is being
    started are never removed.
    """
    with contextlib.suppress(OSError):
        left = path if path.exists() else conf
        if _young(left) or os.lstat(left).st_uid != os.geteuid():
            return
        fd = lock_conf(conf)
        if fd is None:
            return
        try:
            if not path.exists() or listening(path) is False:
                for name in (path, conf):
                    name.unlink(missing_ok=True)
        finally:
            os.close(fd)


def find_all() -> list[Vm]:
    """Running VMs, sorted by name. Sockets of processes that have ended are removed."""
    directory = runtime_dir() / "vm"
    try:
        _check_private(directory)
        names = sorted(os.listdir(directory))[: 4 * VMS_MAX]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise DcmError(f"cannot read {directory}: {reason(exc)}") from None
    found: list[Vm] = []
    for entry in names:
        stem, dot, ext = entry.rpartition(".")
        if not dot or not NAME.fullmatch(stem) or len(found) >= VMS_MAX:
            continue
        path = directory / f"{stem}.sock"
        conf = directory / f"{stem}.conf"
        if ext == "sock":
            try:
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    continue
            except OSError:
                continue
            if listening(path) is False:
                _clean_if_stale(path, conf)
                continue
            found.append(Vm(stem, path))
        elif ext == "conf" and f"{stem}.sock" not in names:
            # A .conf alone: dcmctl was killed before its program made the socket.
            _clean_if_stale(path, conf)
    return found


def find(name: str) -> Vm:
    """The VM with this name, or, for a path, the VM with this socket."""
    if "/" in name:
        path = Path(name)
        return Vm(path.stem, path)
    if not NAME.fullmatch(name):
        raise DcmError(f"'{printable(name)}' is not a VM's name")
    path = runtime_dir() / "vm" / f"{name}.sock"
    if listening(path) is not False and path.exists():
        _check_private(path.parent)
        return Vm(name, path)
    names = ", ".join(vm.name for vm in find_all()[:8]) or "none"
    raise DcmError(f"no VM '{name}' is running (running: {names})")


def find_only() -> Vm:
    """The VM of a command without a VM argument: the only one that runs, or else DcmError."""
    vms = find_all()
    if not vms:
        raise DcmError("no VM is running: start one with dcmctl run")
    if len(vms) > 1:
        raise DcmError(f"{len(vms)} VMs are running: name one of them (dcmctl list)")
    return vms[0]
