# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that a guest reports as free goes to no donor: `dcmctl run` with a real QEMU's balloon.

QEMU's processor is stopped. This test is the guest's driver, by QEMU's qtest socket: it finds the
balloon that dcmctl adds, fills memory, and puts the addresses of the filled memory on the balloon's
queue of free page reports. tests/guest has a guest with Linux's own driver.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.dcmctl.paging import MIB, until
from tests.dcmctl.support import Cli
from tests.framework.paths import DONORD, PRELOAD

pytestmark = [
    pytest.mark.skipif(
        not (PRELOAD.exists() and DONORD.exists()),
        reason="build/ has no pager or no donor: run make",
    ),
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="no QEMU: scripts/deps.sh qemu"
    ),
]

FILLED = 64 * MIB  # where the filled memory begins
PIECES, PIECE = 32, 4 * MIB  # as many as the queue takes; one page reporting order and more
QUEUE = MIB  # where the virtqueue lies: descriptors, available and, a page on, used
REPORTING_FEATURE, REPORTING_QUEUE = 1 << 5, 3
BALLOON_ID = 0x10021AF4
PORTS = 0xC000


class Machine:
    """QEMU by its qtest socket: memory and ports, as the guest's processor sees them."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))
        self.answers = self.sock.makefile("r")

    def ask(self, *words: object) -> str:
        line = " ".join(hex(w) if isinstance(w, int) else str(w) for w in words)
        self.sock.sendall(f"{line}\n".encode())
        while (answer := self.answers.readline()).startswith("IRQ"):
            pass
        assert answer.startswith("OK"), f"{line}: {answer}"
        return answer[2:].strip()

    def number(self, *words: object) -> int:
        return int(self.ask(*words), 16)

    def write(self, at: int, data: bytes) -> None:
        self.ask("write", at, len(data), f"0x{data.hex()}")

    def config(self, slot: int, register: int) -> None:
        """Choose a register of a PCI device, which port 0xcfc then is."""
        self.ask("outl", 0xCF8, 1 << 31 | slot << 11 | register)

    def fill(self) -> None:
        for i in range(PIECES):
            self.ask("memset", FILLED + i * PIECE, PIECE, 0x5A)

    def report(self, slot: int) -> None:
        """As a driver does (virtio 1.0, legacy interface): all that was filled is free."""
        self.config(slot, 0)
        assert self.number("inl", 0xCFC) == BALLOON_ID
        self.config(slot, 0x10)
        self.ask("outl", 0xCFC, PORTS)
        self.config(slot, 4)
        self.ask("outw", 0xCFC, 5)  # ports, bus master
        assert self.number("inl", PORTS) & REPORTING_FEATURE
        for status in (1, 3):
            self.ask("outb", PORTS + 18, status)
        self.ask("outl", PORTS + 4, REPORTING_FEATURE)
        self.ask("outw", PORTS + 14, REPORTING_QUEUE)
        assert self.number("inw", PORTS + 12) == PIECES
        self.ask("outl", PORTS + 8, QUEUE // 4096)
        self.ask("outb", PORTS + 18, 7)
        for i in range(PIECES):
            flags = 2 | (i < PIECES - 1)  # to be written by the device; another one follows
            descriptor = struct.pack("<QIHH", FILLED + i * PIECE, PIECE, flags, i + 1)
            self.write(QUEUE + i * 16, descriptor)
        self.write(QUEUE + PIECES * 16, struct.pack("<HHH", 0, 1, 0))
        self.ask("outw", PORTS + 16, REPORTING_QUEUE)
        until("the report is not taken", lambda: self.number("readw", QUEUE + 4096 + 2) == 1)

    def close(self) -> None:
        self.answers.close()
        self.sock.close()


@contextmanager
def machine(
    dcmctl: Cli, args: list[str], runtime: Path, name: str, *more: str
) -> Iterator[Machine]:
    path = runtime / f"{name}.qtest"
    process = dcmctl.start(
        *args, "--budget", "192M", "--name", name, *more, "--", "qemu-system-x86_64", "-M", "pc",
        "-m", "256", "-accel", "tcg", "-S", "-nodefaults", "-display", "none",
        "-qtest", f"unix:{path},server=on,wait=off", "-qtest-log", "/dev/null",
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        until("no qtest", lambda: path.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        found = Machine(path)
        yield found
        found.close()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_memory_reported_free_goes_to_no_donor(dcmctl: Cli, args: list[str], runtime: Path) -> None:
    """Reported, then evicted by a smaller budget: not written; without reports it is."""
    size = PIECES * PIECE

    def status(name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(dcmctl("status", name, "--json").stdout)
        return answer

    def shrink(name: str) -> dict[str, Any]:
        assert dcmctl("budget", name, "16M").returncode == 0

        def reached() -> dict[str, Any] | None:
            now = status(name)
            most = 16 * MIB + now["in_flight_max_bytes"]
            return now if now["direct_bytes"] <= most and not now["in_flight_bytes"] else None

        return until("the smaller budget is not reached", reached)

    with machine(dcmctl, args, runtime, "told") as vm:
        vm.fill()
        before = status("told")
        assert before["direct_bytes"] >= size and before["written_bytes"] == 0
        vm.report(0x1E)
        after = status("told")
        discarded = after["counters"]["DISCARDED_PAGES"] - before["counters"]["DISCARDED_PAGES"]
        assert discarded == size // 4096
        # the queue is new
        assert after["direct_bytes"] < before["direct_bytes"] - size + MIB
        assert shrink("told")["written_bytes"] < MIB
        # It reads as zero, and is memory as any other.
        assert vm.number("readq", FILLED + 4096) == 0
        vm.fill()
        assert vm.number("readq", FILLED + 4096) == 0x5A5A5A5A5A5A5A5A
        assert status("told")["written_bytes"] > size // 2

    with machine(dcmctl, args, runtime, "untold", "--free-page-reporting", "no") as vm:
        vm.fill()
        vm.config(0x1E, 0)
        assert vm.number("inl", 0xCFC) == 0xFFFFFFFF, "a balloon that was not asked for"
        now = shrink("untold")
        assert now["counters"]["DISCARDED_PAGES"] == 0
        assert now["written_bytes"] > size - 32 * MIB
        assert vm.number("readq", FILLED + 4096) == 0x5A5A5A5A5A5A5A5A
