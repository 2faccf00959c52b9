# SPDX-License-Identifier: GPL-2.0-or-later
"""Real donors on this host, and pager configurations that use them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dcmbench.host import BenchError, children, kill_group, spawn
from tests.framework import pager
from tests.framework.port import free_port
from tests.framework.process import ended_children_seconds, processor_seconds

START_S = 20.0
# Makes a context in which this thread, and processes that it starts, are in another network.
Network = Callable[[], AbstractContextManager[None]]


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(text)


@dataclasses.dataclass(frozen=True)
class Donor:
    """A running dcm-donord."""

    tcp: str
    unix: str
    keys: Path
    http: int
    pid: int
    conf: Path
    network: Network

    def change(self, old: str, new: str) -> None:
        """Replace a line of its configuration while it runs."""
        text = self.conf.read_text()
        if text.count(f"{old}\n") != 1:
            raise BenchError(f"{self.conf}: no line {old}")
        self.conf.write_text(text.replace(f"{old}\n", f"{new}\n"))
        os.kill(self.pid, signal.SIGHUP)

    def status(self) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with (
            self.network(),
            opener.open(f"http://127.0.0.1:{self.http}/status", timeout=5) as answer,
        ):
            found: dict[str, Any] = json.load(answer)
            return found


def gc_seconds(of: Donor) -> float:
    """CPU time of a donor's GC workers so far, those that have ended included."""
    seconds = 0.0
    for pid in children(of.pid):
        with contextlib.suppress(OSError):
            own = pid == of.pid
            seconds += ended_children_seconds(pid) if own else processor_seconds(pid)
    return seconds


@contextlib.contextmanager
def donor(
    daemon: Path,
    folder: Path,
    *,
    cpus: set[int] | None = None,
    options: Mapping[str, str | int] | None = None,
    gc_options: Mapping[str, int] | None = None,
    keys: Path | None = None,
    more: str = "",
    network: Network = contextlib.nullcontext,
    ip: str = "127.0.0.1",
) -> Iterator[Donor]:
    """Run a donor with 4 GiB to lend until the end of the block.

    `keys`: another donor's key file; None: make one. `more`: further lines of its configuration.
    `network`: the network in which it runs, with address `ip`.
    """
    if not daemon.exists():
        raise BenchError(f"{daemon.name} is not built: run make")
    folder.mkdir(parents=True, exist_ok=True)
    port, http = free_port(), free_port()
    conf, sock = folder / "donor.ini", folder / "donor.sock"
    if keys is None:
        keys = folder / "keys"
        write_private(keys, f"bench:{secrets.token_hex(32)}\n")
    values: dict[str, str | int] = {
        "listen": f"{ip}:{port}",
        "unix": os.fspath(sock),
        "keys": os.fspath(keys),
        "capacity": "4G",
        "head-room": "512M",
        "slab-size": "64M",
        "data-encryption": "no",
        **(options or {}),
    }
    text = "[donor]\n" + "".join(f"{k} = {v}\n" for k, v in values.items())
    text += "[gc]\n" + "".join(f"{k} = {v}\n" for k, v in (gc_options or {}).items())
    conf.write_text(text + more + f"[http]\nlisten = 127.0.0.1:{http}\n", encoding="utf-8")
    log = folder / "donor.log"
    with network(), log.open("wb") as out:
        proc = spawn(
            [daemon, "--config", conf],
            cpus=cpus,
            stdout=out.fileno(),
            stderr=subprocess.STDOUT,
        )
    made = Donor(f"tcp:{ip}:{port}", f"unix:{sock}", keys, http, proc.pid, conf, network)
    try:
        deadline = time.monotonic() + START_S
        while True:
            if proc.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-300:].strip()
                raise BenchError(f"the donor did not start: {tail}")
            try:
                made.status()
                break
            except (OSError, ValueError):
                time.sleep(0.02)
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if proc.poll() is None:
                proc.send_signal(signal.SIGTERM)
                proc.wait(10)
        kill_group(proc)


def ask_pager(path: Path, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Send a request (default: status) to a pager's socket; return the answer."""
    return pager.ask(path, request, timeout=1.0)


def tune(path: Path, name: str, value: int) -> None:
    """Set a tunable of a pager."""
    if not ask_pager(path, {"cmd": "set", "name": name, "value": value}).get("ok"):
        raise BenchError(f"{path.stem}: {name} could not be set to {value}")


class StatusSampler(threading.Thread):
    """Asks a pager for its status every `every` seconds, and keeps the last answer."""

    def __init__(self, runtime: Path, every: float = 1.0) -> None:
        super().__init__(daemon=True)
        self._runtime = runtime
        self._every = every
        self._halt = threading.Event()
        self.last: dict[str, Any] = {}
        self.when = time.monotonic()  # the time of the last answer

    def run(self) -> None:
        while not self._halt.wait(self._every):
            for path in (self._runtime / "vm").glob("*.sock"):
                with contextlib.suppress(OSError, ValueError):
                    self.last, self.when = ask_pager(path), time.monotonic()

    def stop(self) -> dict[str, Any]:
        self._halt.set()
        self.join()
        return self.last


def pager_note(p: object) -> str:
    """A short text of a pager's counters; "" if there is no status."""
    if not isinstance(p, dict) or "faults" not in p:
        return ""
    f, mix = p["faults"], p.get("block_mix", {})
    return (
        f"pager: faults {f.get('total')} (missing {f.get('missing')}, minor {f.get('minor')}, "
        f"wp {f.get('wp')}, zero {f.get('zero')}), fetches {p.get('fetches')}, "
        f"write-backs {p.get('writebacks')}, clean drops {p.get('clean_drops')}, "
        f"stretch {p.get('stretch')}, reduce {p.get('reduce')}, "
        f"pages by block {' '.join(f'{k} {v}' for k, v in mix.items())}"
    )


def pager_config(
    path: Path,
    address: str | Sequence[str],
    keys: Path,
    budget: int,
    size: int,
    *,
    name: str = "bench",
    lanes: int = 2,
    encrypt: bool = False,
    seal: bool = False,
    redundancy: str = "none",
    rebuild_rate: int = 200 << 20,
    tunables: Mapping[str, int] | None = None,
) -> Path:
    """Write a configuration for dcm_pager_open(), with one donor or several."""
    lines = [
        "[vm]",
        f"name = {name}-{os.getpid()}",
        f"budget = {budget}",
        f"size = {size}",
        "mode = program",
        f"lanes = {lanes}",
        f"data-encryption = {'yes' if encrypt else 'no'}",
        f"seal = {'yes' if seal else 'no'}",
        f"redundancy = {redundancy}",
        f"rebuild-rate = {rebuild_rate}",
        "[key]",
        f"file = {keys}",
    ]
    for number, one in enumerate([address] if isinstance(address, str) else address):
        lines += [f"[donor number{number}]", f"address = {one}"]
    if tunables:
        lines.append("[tunables]")
        lines += [f"{k} = {v}" for k, v in tunables.items()]
    write_private(path, "\n".join(lines) + "\n")
    return path
