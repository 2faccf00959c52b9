# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory under the kernel pager: a dcmfs and the dcm-hostd that serves it, in L1."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.cell import PATIENCE, CannotRun
from tests.faults.net import Leaf
from tests.faults.paged import inside
from tests.faults.place import Place
from tests.framework.donor import Donor, write_private
from tests.framework.paths import BUILD

HOSTD = BUILD / "bin" / "dcm-hostd"
START_S = 60.0 * PATIENCE
STATUS_S = 10.0 * PATIENCE
# A /run/dcm-hostd of its own, as other daemons run beside it; it ends with the process in it.
OWN_RUN = 'mkdir -p /run/dcm-hostd && mount -t tmpfs none /run/dcm-hostd && {} exec "$0" "$@"'


class Dcmfs:
    """A mount; of its files, those that file() tells use one donor, others all."""

    def __init__(
        self,
        place: Place,
        host: Leaf | None,
        donors: Mapping[str, Donor],
        *,
        budget: str = "8M",
        before: str = "",
        settings: str = "",
    ) -> None:
        """`settings`: lines of dcm-hostd's [host]; `before`: what its shell does first."""
        self.mount = place.folder("dcmfs")
        self.log = place.scratch / "hostd.log"
        text = f"[host]\nmount = {self.mount}\ndata-encryption = no\n"
        verbs = any(label.startswith("verbs") for label in donors)
        text += f"transport = {'verbs' if verbs else 'tcp'}\n"
        text += settings
        text += f"[key]\nfile = {next(iter(donors.values())).key_file}\n"
        for label, donor in donors.items():
            address = donor.unix_address if label.startswith("shm") else donor.tcp_address
            text += f"[donor {donor.folder.name}]\naddress = {address}\n"
        self.config = place.scratch / "hostd.conf"
        write_private(self.config, text)
        choices = "mkdir -p /run/dcm-hostd/donors && " + " ".join(
            f"echo {name} >/run/dcm-hostd/donors/vm-{name}.donors &&"
            for name in (donor.folder.name for donor in donors.values())
        )
        self.options = f"extent=2M,budget={budget},on-loss=sigbus"
        shell = ["unshare", "--mount", "--", "sh", "-c", OWN_RUN.format(choices + before)]
        self.command = [*inside(host), *shell, str(HOSTD), "--config", str(self.config)]
        self.process: subprocess.Popen[bytes] | None = None

    def file(self, donor: Donor) -> Path:
        """The file whose memory is on that donor."""
        return self.mount / f"vm-{donor.folder.name}"

    def status(self) -> dict[str, Any]:
        """dcm-hostd's status of its files, by their names; empty if it is busy."""
        assert self.process is not None
        data = b""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(STATUS_S)
            # it has a /run/dcm-hostd of its own
            sock.connect(f"/proc/{self.process.pid}/root/run/dcm-hostd/status.sock")
            while part := sock.recv(1 << 16):
                data += part
        with contextlib.suppress(ValueError):
            return {Path(file["path"]).name: file for file in json.loads(data)["files"]}
        return {}

    def said(self, text: str, since: int = 0) -> bool:
        """Is the text in its log, behind the first `since` bytes?"""
        return text.encode() in self.log.read_bytes()[since:]

    def serve(self) -> None:
        """Start dcm-hostd, until it serves the files."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["nice", "-n", "-15", *self.command], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)  # fmt: skip
        deadline = time.monotonic() + START_S
        while not self.said("files there are served", begin):
            if time.monotonic() > deadline or self.process.poll() is not None:
                said = self.log.read_text(errors="replace")[-500:]
                raise CannotRun(f"dcm-hostd does not serve: {said}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill dcm-hostd; the files stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Dcmfs:
        command = ["mount", "-t", "dcmfs", "-o", self.options, "dcm", str(self.mount)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"no dcmfs here: {done.stderr.strip()}")
        try:
            self.serve()
        except CannotRun:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Files, then the daemon, then the mount."""
        for path in self.mount.glob("vm-*"):
            with contextlib.suppress(OSError):
                os.unlink(path)
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        subprocess.run(["umount", str(self.mount)], capture_output=True, check=False)
