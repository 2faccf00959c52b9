# SPDX-License-Identifier: GPL-2.0-or-later
"""The control socket of a running VM: finding it, asking it, cleaning up after it.

A VM is `RUNTIME/vm/NAME.sock`, made by libdcm in the VM's process, and, when
`dcmctl run` started it, `RUNTIME/vm/NAME.conf` next to it, on which that
dcmctl holds a lock for as long as it lives. So:

    connect works                   the VM runs
    refused, .conf locked           it starts or ends right now: leave it
    refused, no lock, some age      its process is gone: both files go

One JSON object a line each way. An answer is at most 1 MiB, must come within
the timeout as a whole, and must be what the protocol says, or it is an error.
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
CHANGE_MAX = 15.0  # until those that run have taken a change of their donors
STALE_AGE = 2.0  # seconds between bind() and listen() that nobody needs
VMS_MAX = 4096

Json = dict[str, Any]


# ---- the runtime directory ----


def runtime_dir(env: Mapping[str, str] = os.environ) -> Path:
    """$DCM_RUNTIME_DIR, /run/kvm-dcm-host for root, else below the user's own.

    What runs under `dcmctl run` is told, so both look in the same place. It is not /run/kvm-dcm:
    that is the user's as which dcm-donord runs.
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
    return Path(f"/tmp/kvm-dcm-{user}")  # checked to be ours before use


def _check_private(path: Path) -> None:
    """The sockets' directory: nobody else may put one there, nor another directory in its place."""
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise DcmError(f"{path} is not a directory: remove it, or set DCM_RUNTIME_DIR")
    for each in (path, path.parent):
        if each.stat().st_uid not in (0, os.geteuid()):
            raise DcmError(
                f"{each} belongs to another user: set DCM_RUNTIME_DIR to one of your own"
            )
        if each.stat().st_mode & 0o022 and not each.stat().st_mode & stat.S_ISVTX:
            raise DcmError(f"{each} may be written by others: chmod go-w {each}")


def make_vm_dir(top: Path | None = None) -> Path:
    """The directory of sockets, made and checked."""
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
            "take a shorter --name or DCM_RUNTIME_DIR"
        )
    return path


# ---- the lock of `dcmctl run` ----


def lock_conf(path: Path) -> int | None:
    """Open and lock NAME.conf, made 0600; None when another dcmctl has it.

    The lock is of the file that bears the name: one unlinked by its owner
    between our open and our lock doesn't count. A cleaner holds the lock for
    a moment only, so it is tried for a little longer than that.
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


# ---- asking ----


def decode(data: bytes, who: str) -> Json:
    """One JSON object from outside, or a DcmError whatever the bytes are."""

    def refuse(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    try:
        value = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise DcmError(f"{who} answered something that is not JSON") from None
    if not isinstance(value, dict):
        raise DcmError(f"{who} answered something that is not a JSON object")
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
    """A VM's control socket."""

    name: str
    path: Path

    def ask(self, request: Json, timeout: float = TIMEOUT) -> Json:
        """One request, its checked answer. Raises VmGone when nobody listens."""
        who = f"VM {self.name}"
        line = json.dumps(request).encode() + b"\n"
        try:
            deadline = time.monotonic() + timeout
            with connect_unix(str(self.path), timeout) as sock:
                data = _exchange(sock, line, deadline)
        except TimeoutError:
            raise DcmError(f"{who} does not answer within {timeout:g} s") from None
        except (ConnectionRefusedError, FileNotFoundError):
            raise VmGone(f"{who} is not running") from None
        except OSError as exc:
            raise DcmError(f"{who}: {reason(exc)}") from None
        except DcmError:
            raise DcmError(f"{who} answered more than {ANSWER_MAX >> 20} MiB") from None
        answer = decode(data, who)
        ok = answer.pop("ok", None)
        if ok is True:
            return answer
        error = answer.get("error")
        if ok is False and isinstance(error, str) and error:
            raise DcmError(f"{who}: {printable(error)}")
        raise DcmError(f"{who} answered neither ok nor an error")

    def change_donor(self, op: str, name: str, address: str | None = None) -> None:
        """add (with its address), drain, keep or remove one; what is so already is fine."""
        request = {"cmd": "donor", "op": op, "name": name}
        if address is not None:
            request["address"] = address
        try:
            self.ask(request, CHANGE_MAX)
        except VmGone:
            raise
        except DcmError as exc:
            if "so already" not in str(exc):
                raise


class VmGone(DcmError):
    """Nobody listens on a VM's socket."""


# ---- finding ----


def listening(path: Path) -> bool | None:
    """True; False when nobody listens; None when it can't be said."""
    try:
        connect_unix(str(path), 0.1).close()
        return True
    except ConnectionRefusedError:
        return False
    except TimeoutError:
        return True  # a full backlog is somebody's
    except OSError:
        return None


def _young(path: Path) -> bool:
    return time.time() - os.lstat(path).st_ctime < STALE_AGE


def _clean_if_stale(path: Path, conf: Path) -> None:
    """Remove what a process left that is gone.

    Under the lock a `dcmctl run` of this name would take, so nothing of a
    newcomer's is ever removed.
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
    """Running VMs by name; sockets of processes that are gone are removed."""
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
            # A dcmctl that was killed before its program made a socket.
            _clean_if_stale(path, conf)
    return found


def find(name: str) -> Vm:
    """The VM of that name, or the socket given as a path."""
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
    """The one VM there is, for commands where naming it is optional."""
    vms = find_all()
    if not vms:
        raise DcmError("no VM is running: start one with dcmctl run")
    if len(vms) > 1:
        raise DcmError(f"{len(vms)} VMs are running: say which one (dcmctl list)")
    return vms[0]
