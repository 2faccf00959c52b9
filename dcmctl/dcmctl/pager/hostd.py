# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests to dcm-hostd: list the dcmfs files that it serves, and their donors; change them."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from dcmctl.lib.address import connect_unix
from dcmctl.lib.errors import DcmError, printable, reason
from dcmctl.pager.settings import REDUNDANCY
from dcmctl.pager.status import Fields, Told, orphans_said, read_together, trouble

SOCKET = Path("/run/dcm-hostd/status.sock")
ANSWER_MAX = 64 << 20  # enough for 1024 files with 64 donors each
FILES_MAX = 1024
TIMEOUT = 3.0
CHANGE_MAX = 15.0  # dcm-hostd resolves donors' names first


@dataclass(frozen=True)
class HostDonor:
    """A donor, as dcm-hostd's session for one file sees it."""

    name: str
    address: str
    state: str
    slabs: int
    slabs_free: int  # that the donor would lend to this tenant now
    why: str
    transport: str = ""
    medium: str = "memory"  # what the donor lends: memory or file
    rtt_ns: int = 0
    slabs_total: int = 0  # that the donor may lend; 0: not known
    slabs_used: int = 0  # that the donor has lent to all tenants
    group: str = ""
    silent_ms: int = 0  # since the last message on its control connection
    patience_ms: int = 0  # a silence of this length makes the donor lost
    alone_bytes: int = 0  # upper bound of the loss if only this donor dies
    orphans: int = 0  # slabs of the ended donor that are still mapped on this host
    orphans_waiting: int = 0  # orphans that no other donor has room for
    told: Told | None = None  # the donor's own figures

    @property
    def trouble(self) -> str:
        """The reason why the donor is not up, and its orphans; "" if there is nothing to say."""
        orphans = orphans_said(self.orphans, self.orphans_waiting)
        return trouble(self.state, self.why, self.silent_ms, self.patience_ms, orphans)


@dataclass(frozen=True)
class HostFile:
    """A dcmfs file that dcm-hostd serves."""

    path: str
    extents: int
    extent_bytes: int
    slabs: int
    used: bool
    donors: tuple[HostDonor, ...]
    bytes: int = 0
    wanted: int = 0  # extents that wait for a slab
    slabs_lost: int = 0
    choice: bool = False  # the file may use only `donors`, not all that dcm-hostd has
    redundancy: str = "none"
    copies: int = 1  # configured number of slabs of an extent, each on another donor
    exposed_bytes: int = 0  # if copies > 1: extents with a slab too few or a page not in each
    lag_bytes: int = 0  # as Status.lag_bytes
    seal: bool = False  # its pages are encrypted before they leave
    together: dict[str, int] = field(default_factory=dict)  # as Status.together

    @property
    def outstanding(self) -> int:
        """The number of slabs that the file may still ask for."""
        return max(0, self.extents * self.copies - self.slabs)

    @property
    def outstanding_files(self) -> int:
        """The number of these slabs that must be on donors that lend files."""
        have = sum(donor.slabs for donor in self.donors if donor.medium == "file")
        return max(0, self.extents * REDUNDANCY.get(self.redundancy, (1, 0))[1] - have)


def socket_path() -> Path:
    return Path(os.environ.get("DCM_HOSTD_STATUS") or SOCKET)


def choose(file: Path, chosen: tuple[str, ...], redundancy: str = "", seal: str = "") -> None:
    """Write the file that tells dcm-hostd which donors and @groups a new dcmfs file may use.

    `chosen`: () for all donors. `redundancy`: on how many donors each page is. `seal`: "yes" or
    "no", whether pages are encrypted before they leave. "" for either: what hostd.conf says.
    """
    choice = socket_path().parent / "donors" / f"{file.name}.donors"
    given = [f"{key} = {v}" for key, v in (("redundancy", redundancy), ("seal", seal)) if v]
    if not chosen and not given:
        choice.unlink(missing_ok=True)
        return
    lines = [*(chosen or ("*",)), *given]
    choice.parent.mkdir(mode=0o700, exist_ok=True)
    new = choice.with_suffix(".new")
    new.write_text("".join(f"{line}\n" for line in lines))
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
    """Read one answer. If dcm-hostd has too many connections, it closes this one: try again."""
    while True:
        with connect_unix(str(path), max(0.01, deadline - time.monotonic())) as sock:
            data = _read(sock, deadline)
        if data:
            return data
        time.sleep(0.05)
        if time.monotonic() > deadline:
            raise TimeoutError


def ask(timeout: float = TIMEOUT) -> list[HostFile]:
    """The files that dcm-hostd serves, newest first."""
    return look(timeout)[1]


def look(timeout: float = TIMEOUT) -> tuple[int, list[HostFile]]:
    """The process id of dcm-hostd, and the files it serves, newest first."""
    path = socket_path()
    try:
        data = _exchange(path, time.monotonic() + timeout)
    except TimeoutError:
        raise DcmError(
            f"dcm-hostd does not answer on {path} within {timeout:g} s: see journalctl -u dcm-hostd"
        ) from None
    except PermissionError:
        raise DcmError(
            f"{path}, the status of dcm-hostd, is for root only: run this as root"
        ) from None
    except OSError as exc:
        raise DcmError(
            f"dcm-hostd does not run ({path}: {reason(exc)}): systemctl start dcm-hostd"
        ) from None
    try:
        answer = json.loads(data)
    except ValueError:
        raise DcmError("dcm-hostd sent an answer that is not JSON") from None
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
                medium=d.text("medium"),
                rtt_ns=d.number("rtt_ns"),
                slabs_total=d.number("slabs_total"),
                slabs_used=d.number("slabs_used"),
                group=d.text("group"),
                silent_ms=d.number("silent_ms"),
                patience_ms=d.number("patience_ms"),
                alone_bytes=d.number("alone_bytes"),
                orphans=d.number("orphans"),
                orphans_waiting=d.number("orphans_waiting"),
                told=Told.read(d),
            )
            for d in f.groups("donors")
        )
        path_text = f.raw("path")
        if not isinstance(path_text, str):
            continue  # not UTF-8: dcmctl makes no such file
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
                redundancy=f.text("redundancy"),
                copies=max(f.number("copies"), 1),
                exposed_bytes=f.number("exposed_bytes"),
                lag_bytes=f.number("lag_bytes"),
                seal=f.raw("seal") is True,
                together=read_together(f),
            )
        )
    return Fields(answer, "dcm-hostd").number("pid"), files


def reread(pid: int) -> None:
    """Make dcm-hostd read its list of donors again."""
    try:
        # The process may have ended, and another may have its number: check the pidfd's process.
        fd = os.pidfd_open(pid)
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() != "dcm-hostd":
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            signal.pidfd_send_signal(fd, signal.SIGUSR1)
        finally:
            os.close(fd)
    except OSError as exc:
        raise DcmError(f"dcm-hostd (pid {pid}): {reason(exc)}") from None


def set_redundancy(path: Path, chosen: tuple[str, ...], redundancy: str, seal: str) -> None:
    """Change on how many donors each page of a served file is.

    `chosen`, `seal`: the values that were given to choose().
    """
    pid, files = look()
    file = file_at(files, path)
    if file is None:
        raise DcmError(
            f"dcm-hostd does not serve {path}: its log says why (journalctl -u dcm-hostd)"
        )
    choose(path, chosen, redundancy, seal)
    reread(pid)
    deadline = time.monotonic() + CHANGE_MAX
    while file is not None and file.redundancy != redundancy:
        if time.monotonic() > deadline:
            raise DcmError(
                f"dcm-hostd does not change the redundancy of {path}: its log says why "
                "(journalctl -u dcm-hostd)"
            )
        time.sleep(0.05)
        file = file_at(ask(), path)
    if file is None:
        raise DcmError(f"{path} is not served any more")


def file_at(files: list[HostFile], path: Path) -> HostFile | None:
    """The newest file with this path: a removed one may still be served until its last close."""
    return next((f for f in files if f.path == str(path)), None)
