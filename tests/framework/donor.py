# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts real donors on loopback, each with keys and a port of its own, and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.framework.fdstore import Store
from tests.framework.paths import DONORD
from tests.framework.port import free_port

MIB = 1 << 20
START_S = 20.0
STOP_S = 20.0


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, as key files must be."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def new_key() -> str:
    """A new pre-shared key, in the form of key files."""
    return secrets.token_hex(32)


class DonorError(Exception):
    """A donor failed to start, to answer or to end; the message has the end of its log."""


class Donor:
    """One dcm-donord. As a context manager, it ends the daemon at the end of the block.

    `folder` gets its configuration, keys, socket and log. Keyword arguments are sections of the
    configuration: Donor(folder, donor={"slab-size": "2M"}, limits={"connections": 16}).
    """

    def __init__(
        self,
        folder: Path,
        *,
        keys: Mapping[str, str] | None = None,
        binary: Path = DONORD,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        **sections: Mapping[str, str | int],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.binary = binary
        self.keys = dict(keys) if keys else {"test": new_key()}
        self.key_file = folder / "donor.keys"
        self.config = folder / "donor.ini"
        self.log = folder / "donor.log"
        self.unix = folder / "donor.sock"
        self.port = 0
        self.http_port = 0
        self.environment = dict(environment or {})
        self.stderr: int | None = None  # a descriptor for its standard error, instead of the log
        self.prefix = list(prefix)  # the command that executes it: nsenter, prlimit
        self.store: Store | None = None  # systemd's descriptor store
        self.listen_pid = "-"  # LISTEN_PID for the daemon; "-": its own process id
        self.process: subprocess.Popen[bytes] | None = None
        self.killed_workers = set[int]()
        self.sections: dict[str, dict[str, str | int]] = {
            "donor": {
                "listen": "127.0.0.1:0",
                "unix": str(self.unix),
                "keys": str(self.key_file),
                "capacity": "256M",
                "head-room": "64M",
                "slab-size": "2M",
            },
            "http": {"listen": "127.0.0.1:0"},
        }
        for name, options in sections.items():
            self.sections.setdefault(name, {}).update(options)

    @property
    def tcp_address(self) -> str:
        """Its address in the form of libdcm's configuration."""
        return f"tcp:{self._host('donor')}:{self.port}"

    @property
    def unix_address(self) -> str:
        """Its address in the form of libdcm's configuration."""
        return f"unix:{self.unix}"

    def _host(self, section: str) -> str:
        return str(self.sections[section]["listen"]).rpartition(":")[0]

    @property
    def pid(self) -> int:
        """The process id of the running daemon."""
        if self.process is None:
            raise DonorError("the donor is not running")
        return self.process.pid

    def write_files(self) -> None:
        """Write configuration and keys from the attributes; reload() makes the donor read them."""
        write_private(self.key_file, "".join(f"{t}:{k}\n" for t, k in self.keys.items()))
        text = "".join(
            f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in options.items())
            for name, options in self.sections.items()
        )
        write_private(self.config, text)

    def start(self) -> Donor:
        """Start the daemon, wait until it is ready, and read its ports.

        A donor that is started again keeps its ports.
        """
        for name, port in (("donor", self.port), ("http", self.http_port)):
            host, _, given = str(self.sections[name]["listen"]).rpartition(":")
            if given == "0" or port:
                self.sections[name]["listen"] = f"{host}:{port or free_port()}"
        self.write_files()
        prefix, passed, environment = self.prefix, list[int](), self.environment
        if self.store:
            prefix, passed = self.store.command(self.listen_pid)
            environment = {**environment, **self.store.environment()}
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as ready:
            with self.log.open("ab") as log:
                words = [str(self.binary), "--config", str(self.config)]
                self.process = subprocess.Popen(
                    [*prefix, *words, "--ready-fd", str(writing)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log if self.stderr is None else self.stderr,
                    pass_fds=(writing, *passed),
                    env={**os.environ, **environment},
                )
            if self.store:
                self.store.main = self.process.pid
            os.close(writing)
            self._read_ready(ready.fileno())
        return self

    def _read_ready(self, fd: int) -> None:
        """Read NAME=VALUE lines to the end of file; a donor that fails closes the pipe early."""
        deadline = time.monotonic() + START_S
        text = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                self.kill()
                raise DonorError(f"not ready after {START_S:.0f} s:\n{self.tail()}")
            if not (data := os.read(fd, 4096)):
                break
            text += data
        pairs = [line.partition("=") for line in text.decode().splitlines()]
        for name, _, value in pairs:
            if name == "LISTEN" and value.startswith("tcp:"):
                self.port = int(value.rpartition(":")[2])
            elif name == "HTTP" and value != "off":
                self.http_port = int(value.rpartition(":")[2])
        if ("READY", "=", "1") not in pairs:
            self.kill()
            raise DonorError(f"did not start:\n{self.tail()}")

    def status(self) -> dict[str, Any]:
        """The donor's JSON status, over HTTP."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.http_port}/status", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def metrics(self) -> dict[str, float]:
        """The donor's Prometheus metrics, by name with labels."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.http_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def gc_workers(self) -> list[int]:
        """The process ids of the donor's GC workers, which are children of any of its threads."""
        children, found = set[str](), []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children.update((task / "children").read_text().split())
        for pid in children:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("dcm-gc-worker"):
                    found.append(int(pid))
        return found

    def kill_gc_workers(self) -> int:
        """Send SIGKILL to all GC workers that it has now: how many.

        One that was killed before and has not ended yet, as on a busy machine, counts once.
        """
        killed = 0
        for pid in set(self.gc_workers()) - self.killed_workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
            self.killed_workers.add(pid)
        return killed

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon a signal."""
        os.kill(self.pid, number)

    def reload(self) -> None:
        """Write the files again and make the donor read them."""
        self.write_files()
        self.signal(signal.SIGHUP)

    def stop(self) -> int:
        """Send SIGTERM (the donor drains), SIGKILL after STOP_S; return the exit status."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return process.returncode

    def kill(self) -> None:
        """Send SIGKILL: to clients, the donor has crashed."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait()

    def tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Donor:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
