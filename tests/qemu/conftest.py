# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests of QEMU with our patches: its binary, donors for it, its configuration."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.framework.donor import Donor, new_key, write_private
from tests.framework.paths import BUILD, TOP

StartDonor = Callable[..., Donor]


@dataclass(frozen=True)
class Qemu:
    """The directory that scripts/qemu-build made."""

    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / "qemu-system-x86_64"

    def environment(self, runtime: Path) -> dict[str, str]:
        """For its processes: this tree's libdcm, and where its status sockets go."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(BUILD / "lib"),
            "DCM_RUNTIME_DIR": str(runtime),
        }


@pytest.fixture(scope="session")
def qemu() -> Qemu:
    done = subprocess.run(
        [str(TOP / "scripts" / "qemu-build")], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, "scripts/qemu-build failed; its message is above"
    return Qemu(Path(done.stdout.strip()))


def two_donors(start_donor: StartDonor, **donor: str) -> tuple[Donor, Donor]:
    """One by shared memory, one by TCP."""
    keys = {"test": new_key()}
    options = {"slab-size": "2M", "capacity": "1G", **donor}
    return start_donor("a", keys=keys, donor=options), start_donor("b", keys=keys, donor=options)


def write_config(path: Path, a: Donor, b: Donor, vm: Mapping[str, str]) -> Path:
    """A pager's configuration with both; `vm` is its [vm] section."""
    lines = ["[vm]", *(f"{key} = {value}" for key, value in vm.items())]
    lines += ["[key]", "tenant = test", f"file = {a.key_file}"]
    lines += ["[donor a]", f"address = {a.unix_address}", "[donor b]", f"address = {b.tcp_address}"]
    write_private(path, "\n".join(lines) + "\n")
    return path


def lent(donors: Sequence[Donor]) -> list[int]:
    """Slabs that each has lent now."""
    return [sum(int(s["slabs"]) for s in d.status()["sessions"]) for d in donors]


def wait_returned(donors: Sequence[Donor]) -> None:
    """Given back by QEMU's exit: a donor that misses a session waits much longer."""
    deadline = time.monotonic() + 15
    while any(held := lent(donors)):
        assert time.monotonic() < deadline, f"slabs still lent: {held}"
        time.sleep(0.1)
