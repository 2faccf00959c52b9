# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors in namespaces, and victims: programs that know each byte of the memory that is paged."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.cell import PATIENCE, Cell, CannotRun
from tests.faults.net import Leaf
from tests.framework.donor import Donor, write_private
from tests.framework.paths import BUILD

VICTIM = BUILD / "tests-faults" / "victim"
# Each way to donors: does data go encrypted, and over which socket.
WAYS = ("shm", "tcp", "tls")
PLAIN = ("tcp", "verbs")  # not encrypted
RDMA_ADDRESS = "10.99.0.1"  # of rxe's device in L1 (tests/vm/rdma.py)
READY_S = 120.0 * PATIENCE
END_S = 120.0 * PATIENCE
RECOVERED_S = 60.0 * PATIENCE
STAT_S = 10.0 * PATIENCE


def inside(leaf: Leaf | None) -> list[str]:
    """The beginning of a command that runs in a leaf."""
    return ["nsenter", f"--net=/run/netns/{leaf.name}", "--"] if leaf else []


def donor_in(
    folder: Path,
    leaf: Leaf | None = None,
    way: str = "tls",
    *,
    keys: Mapping[str, str] | None = None,
    donor: Mapping[str, str | int] | None = None,
    **sections: Mapping[str, str | int],
) -> Donor:
    """A donor in a leaf, not started."""
    options: dict[str, str | int] = {"capacity": "1G", "rdma": "no"}
    if leaf:
        options["listen"] = f"{leaf.address}:0"
    if way in PLAIN:
        options["data-encryption"] = "no"
    if way == "verbs":
        options |= {"rdma": "yes", "listen": f"{RDMA_ADDRESS}:0"}
    made = Donor(folder, keys=keys, prefix=inside(leaf), donor=options | dict(donor or {}))
    for name, section in sections.items():
        made.sections[name] = dict(section)
    return made


def libdcm_config(folder: Path, donors: Sequence[tuple[Donor, str]], **vm: str) -> Path:
    """libdcm's configuration for donors and the ways to them; they share a key."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"name": folder.name, "budget": "8M", "size": "1G", "mode": "program"}
    values |= {"threshold": "1M", "on-loss": "sigbus"}
    if any(way in PLAIN for _, way in donors):
        values["data-encryption"] = "no"
    if any(way == "verbs" for _, way in donors):
        values["transport"] = "verbs"
    values |= {k.replace("_", "-"): v for k, v in vm.items()}
    text = "[vm]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    for donor, way in donors:
        address = donor.unix_address if way == "shm" else donor.tcp_address
        text += f"[donor {donor.folder.name}]\naddress = {address}\n"
    text += f"[key]\ntenant = test\nfile = {donors[0][0].key_file}\n"
    path = folder / "libdcm.ini"
    write_private(path, text)
    return path


class Victim:
    """One victim; as a context manager it is killed with the block, if it has not ended."""

    def __init__(
        self,
        name: str,
        memory: str,
        folder: Path,
        *,
        leaf: Leaf | None = None,
        mib: int = 48,
        threads: int = 2,
        nap_us: int = 2000,
        prefix: Sequence[str] = (),
        stderr: int | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.seed = random.SystemRandom().randrange(1 << 30)
        self.log = folder / "victim.log"
        self.command = [*prefix, *inside(leaf), str(VICTIM), memory, str(mib), str(threads)]
        self.command += [str(self.seed), str(nap_us)]
        self._stderr = stderr
        self._buffer = b""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Victim:
        """It begins to write all of its pages."""
        env = {**os.environ, "DCM_RUNTIME_DIR": str(self.folder / "run")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if self._stderr is None else self._stderr,
            )
        return self

    def ready(self, timeout: float = READY_S) -> Victim:
        """All of its pages are written once."""
        if self.line(timeout) != "ready":
            assert self.process is not None
            status = self.process.wait(60 * PATIENCE)
            raise CannotRun(f"victim {self.name} has ended ({status}), not ready: {self.tail()}")
        return self

    def line(self, timeout: float) -> str:
        """The next line it says; "" when it has ended."""
        assert self.process is not None and self.process.stdout is not None
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError(f"victim {self.name} says nothing in {timeout:.0f} s")
            if not (data := os.read(fd, 4096)):
                return ""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def ask(self, what: str, timeout: float) -> dict[str, Any]:
        """"stat" or "end"."""
        assert self.process is not None and self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{what}\n".encode())
            self.process.stdin.flush()
        if not (line := self.line(timeout)):
            status = self.process.wait()
            raise CannotRun(f"victim {self.name} has ended ({status}): {self.tail()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def wait_recovered(self, timeout: float = RECOVERED_S) -> float:
        """Until no access waits and the accesses go on; the seconds it took."""
        begin = time.monotonic()
        before = self.ask("stat", STAT_S)
        while time.monotonic() - begin < timeout:
            time.sleep(0.2)
            now = self.ask("stat", STAT_S)
            if now["waiting_s"] < 0.2 and now["ops"] > before["ops"]:
                return time.monotonic() - begin
        raise TimeoutError(f"victim {self.name} still waits {timeout:.0f} s after it was healed")

    def tail(self, lines: int = 4) -> str:
        """The end of what it and libdcm said."""
        if not self.log.exists():
            return "?"
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def judge(self, note: str = "") -> Cell:
        """The end: every page is read once more; bytes lost and wrong, the longest wait."""
        try:
            if self.process is not None and self.process.poll() is None:
                self.wait_recovered()
            said = self.ask("end", END_S)
        except (TimeoutError, CannotRun) as err:
            return Cell(self.name, None, False, f"{err}; seed {self.seed}; {self.tail()}")
        assert self.process is not None
        status = self.process.wait(60 * PATIENCE)
        bad = int(said["lost_bytes"]) + int(said["wrong_bytes"])
        text = f"longest wait {said['longest_s']:.1f} s, {said['ops']} accesses"
        if bad or status:
            text += f", {said['lost_bytes']} lost, {said['wrong_bytes']} wrong"
            text += f", status {status}, seed {self.seed}: {self.tail()}"
        return Cell(self.name, bad, bad == 0 and status == 0, f"{text}{note}")

    def __enter__(self) -> Victim:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
