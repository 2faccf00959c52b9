# SPDX-License-Identifier: GPL-2.0-or-later
"""A program under `dcmctl run` on the memory of two real donors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.dcmctl.support import Cli
from tests.framework.donor import Donor
from tests.framework.paths import PRELOAD

MIB = 1 << 20
TIMEOUT = 120.0
T = TypeVar("T")

# 200 MiB; each page holds its number and the number of the pass that wrote it. Passes go on
# until the stop file exists; then all pages are checked once more.
TOUCH = """
import os, struct, sys
PAGE, PAGES, STOP = 4096, 200 * 256, sys.argv[1]
memory = bytearray(PAGE * PAGES)
def write(turn):
    for p in range(PAGES):
        struct.pack_into("<QQ", memory, p * PAGE + 64, p, turn)
def check(turn):
    for p in range(PAGES):
        got = struct.unpack_from("<QQ", memory, p * PAGE + 64)
        if got != (p, turn):
            print("WRONG page", p, "has", got, flush=True)
            sys.exit(99)
turn = 1
write(turn)
print("filled", os.getpid(), flush=True)
while not os.path.exists(STOP):
    check(turn)
    turn += 1
    write(turn)
check(turn)
print("verified", turn, flush=True)
sys.exit(7)
"""


@pytest.fixture
def donors(start_donor: Callable[..., Donor]) -> tuple[Donor, Donor]:
    options = {"slab-size": "16M", "capacity": "512M"}
    key = {"lab": "7b" * 32}
    return (
        start_donor("near", keys=key, donor=options),
        start_donor("far", keys=key, donor=options),
    )


@pytest.fixture
def args(dcmctl: Cli, donors: tuple[Donor, Donor]) -> list[str]:
    near, far = donors
    dcmctl.env["DCM_LIBDIR"] = str(PRELOAD.parent)
    return [
        "run", "--donor", f"near={near.unix_address}", "--donor", f"far={far.tcp_address}",
        "--keys", str(near.key_file),
    ]  # fmt: skip


@pytest.fixture
def running(dcmctl: Cli, args: list[str], runtime: Path) -> Iterator[Running]:
    process = dcmctl.start(
        *args, "--budget", "64M", "--name", "e2e", "--", sys.executable, "-c", TOUCH,
        runtime / "stop", stderr=subprocess.STDOUT,
    )  # fmt: skip
    vm = Running(dcmctl, process, runtime / "stop")
    try:
        yield vm
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


class Running:
    """The program above under `dcmctl run`."""

    def __init__(self, cli: Cli, process: subprocess.Popen[str], stop: Path) -> None:
        self.cli = cli
        self.process = process
        self.stop = stop
        assert process.stdout is not None
        self.out = process.stdout

    def line(self, beginning: str) -> list[str]:
        """The program's next line; lines of libdcm's log may stand between."""
        said = []
        while line := self.out.readline():
            if line.startswith(beginning):
                return line.split()
            said.append(line)
        pytest.fail(f"ended before '{beginning}': {said}, status {self.process.wait()}")

    def status(self) -> dict[str, Any]:
        done = self.cli("status", "e2e", "--json")
        assert done.returncode == 0, done
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def until(
    what: str, condition: Callable[[], T | None], explain: Callable[[], str] | None = None
) -> T:
    """The first value of `condition` that is true."""
    deadline = time.monotonic() + TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}\n{explain() if explain else ''}"
        time.sleep(0.1)
    return value


def lent(donor: Donor) -> int:
    memory: dict[str, int] = donor.status()["memory"]
    return memory["slabs_mapped"] + memory["slabs_evicting"]
