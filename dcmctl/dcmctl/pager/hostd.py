# SPDX-License-Identifier: GPL-2.0-or-later
"""What dcm-hostd tells of the files it serves and of their donors."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from dcmctl.lib.address import connect_unix
from dcmctl.lib.errors import DcmError, printable, reason
from dcmctl.pager.status import Fields, trouble

SOCKET = Path("/run/dcm-hostd/status.sock")
ANSWER_MAX = 64 << 20  # 1024 files with 64 donors
FILES_MAX = 1024
TIMEOUT = 3.0


@dataclass(frozen=True)
class HostDonor:
    """A donor, as one file's sessions see it."""

    name: str
    address: str
    state: str
    slabs: int
    slabs_free: int  # it would lend to this tenant now
    why: str
    transport: str = ""
    rtt_ns: int = 0
    slabs_total: int = 0  # that it may lend; 0: not known
    slabs_used: int = 0  # that it has lent, to anybody
    group: str = ""
    silent_ms: int = 0  # since its control connection said something
    patience_ms: int = 0  # how long that may be

    @property
    def trouble(self) -> str:
        """Why it is not up, "" if it is."""
        return trouble(self.state, self.why, self.silent_ms, self.patience_ms)


@dataclass(frozen=True)
class HostFile:
    """A file that is served."""

    path: str
    extents: int
    extent_bytes: int
    slabs: int
    used: bool
    donors: tuple[HostDonor, ...]
    bytes: int = 0
    wanted: int = 0  # extents that wait for a slab
    slabs_lost: int = 0
    choice: bool = False  # it may use some donors only, which `donors` are

    @property
    def outstanding(self) -> int:
        """Slabs it may ask for yet."""
        return max(0, self.extents - self.slabs)


def socket_path() -> Path:
    return Path(os.environ.get("DCM_HOSTD_STATUS") or SOCKET)


def choose(file: Path, chosen: tuple[str, ...]) -> None:
    """Which donors, or @groups, a file that is made next may use; none: any. dcm-hostd reads it."""
    choice = socket_path().parent / "donors" / f"{file.name}.donors"
    if not chosen:
        choice.unlink(missing_ok=True)
        return
    choice.parent.mkdir(mode=0o700, exist_ok=True)
    new = choice.with_suffix(".new")
    new.write_text("".join(f"{name}\n" for name in chosen))
    new.replace(choice)


def _read(sock: socket.socket, deadline: float) -> bytes:
    data = bytearray()
    while True:
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        part = sock.recv(1 << 16)
        if not part:
            return bytes(data)
        data += part
        if len(data) > ANSWER_MAX or time.monotonic() > deadline:
            raise TimeoutError


def _exchange(path: Path, deadline: float) -> bytes:
    """It closes connections that are too many at once: then again."""
    while True:
        with connect_unix(str(path), max(0.01, deadline - time.monotonic())) as sock:
            data = _read(sock, deadline)
        if data:
            return data
        time.sleep(0.05)
        if time.monotonic() > deadline:
            raise TimeoutError


def ask(timeout: float = TIMEOUT) -> list[HostFile]:
    """Newest first."""
    return look(timeout)[1]


def look(timeout: float = TIMEOUT) -> tuple[int, list[HostFile]]:
    """Its process, and its files."""
    path = socket_path()
    try:
        data = _exchange(path, time.monotonic() + timeout)
    except TimeoutError:
        raise DcmError(f"dcm-hostd does not answer on {path} within {timeout:g} s") from None
    except PermissionError:
        raise DcmError(f"dcm-hostd's {path} may only be asked by root") from None
    except OSError as exc:
        raise DcmError(
            f"dcm-hostd does not run ({path}: {reason(exc)}): systemctl start dcm-hostd"
        ) from None
    try:
        answer = json.loads(data)
    except ValueError:
        raise DcmError("dcm-hostd gave no answer that can be read") from None
    files: list[HostFile] = []
    for f in Fields(answer, "dcm-hostd").groups("files"):
        donors = tuple(
            HostDonor(
                name=d.text("name"),
                address=d.text("address"),
                state=d.text("state"),
                slabs=d.number("slabs"),
                slabs_free=d.number("slabs_free"),
                why=printable(d.text("why")),
                transport=d.text("transport"),
                rtt_ns=d.number("rtt_ns"),
                slabs_total=d.number("slabs_total"),
                slabs_used=d.number("slabs_used"),
                group=d.text("group"),
                silent_ms=d.number("silent_ms"),
                patience_ms=d.number("patience_ms"),
            )
            for d in f.groups("donors")
        )
        path_text = f.raw("path")
        if not isinstance(path_text, str):
            continue  # no UTF-8: not one of ours
        files.append(
            HostFile(
                path=path_text,
                extents=f.number("extents"),
                extent_bytes=f.number("extent_bytes"),
                slabs=f.number("slabs"),
                used=bool(f.raw("used")),
                donors=donors,
                bytes=f.number("bytes"),
                wanted=f.number("wanted"),
                slabs_lost=f.number("slabs_lost"),
                choice=f.raw("choice") is True,
            )
        )
    return Fields(answer, "dcm-hostd").number("pid"), files


def reread(pid: int) -> None:
    """Have it read again which donors there are."""
    try:
        # not by a number alone: it may have ended since it said so
        fd = os.pidfd_open(pid)
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() != "dcm-hostd":
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            signal.pidfd_send_signal(fd, signal.SIGUSR1)
        finally:
            os.close(fd)
    except OSError as exc:
        raise DcmError(f"dcm-hostd (pid {pid}): {reason(exc)}") from None


def file_at(files: list[HostFile], path: Path) -> HostFile | None:
    """The newest of that name: one that was removed may still be on its way out."""
    return next((f for f in files if f.path == str(path)), None)
