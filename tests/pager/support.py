# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors, configurations and programs under a pager, for tests of the user pager."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.framework import pager
from tests.framework.donor import Donor, write_private

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DCM_BUILD", ROOT / "build"))
PAGER_TEST = BUILD / "tests-pager" / "pager_test"
PRELOAD = BUILD / "lib" / "libdcm-preload.so"
JEMALLOC = next(Path("/usr/lib").glob("*/libjemalloc.so.2"), None)
SECONDS = os.environ.get("PAGER_TEST_SECONDS", "5")
LIMIT_S = 240

built = pytest.mark.skipif(not PAGER_TEST.exists(), reason="run make -C tests/pager")

StartDonor = Callable[..., Donor]


def start(
    start_donor: StartDonor, name: str = "a", slab: str = "16M", capacity: str = "2G", **more: str
) -> Donor:
    """A donor with room for all pages that these tests page out."""
    return start_donor(name, donor={"slab-size": slab, "capacity": capacity, **more})


def start_group(start_donor: StartDonor, names: str, **kw: str) -> list[Donor]:
    """Several, which share a key."""
    donors = [start(start_donor, name, **kw) for name in names]
    for other in donors[1:]:
        share_key(donors[0], other)
    return donors


def share_key(one: Donor, other: Donor) -> None:
    """One configuration can have both."""
    other.keys = one.keys
    other.reload()


def start_files(start_donor: StartDonor, folder: Path, one: Donor) -> Donor:
    """A donor that lends files, with the key of another one."""
    slabs = folder / "slabs"
    slabs.mkdir()
    made = start(start_donor, "f", medium="file", path=str(slabs))
    share_key(one, made)
    return made


def configure(
    folder: Path,
    donors: list[Donor],
    transport: str = "shm",
    tunables: Mapping[str, int] | None = None,
    name: str | None = "test",
    **vm: str,
) -> Path:
    """A libdcm configuration for these donors, which share a key; with no name if that is None."""
    values = {"budget": "16M", "size": "1G", "mode": "program"}
    values |= {"name": name} if name else {}
    values |= {"threshold": "1M", "on-loss": "sigbus"}
    values |= {k.replace("_", "-"): v for k, v in vm.items()}
    text = "[vm]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    for donor in donors:
        address = donor.unix_address if transport == "shm" else donor.tcp_address
        text += f"[donor {donor.folder.name}]\naddress = {address}\n"
    text += f"[key]\ntenant = test\nfile = {donors[0].key_file}\n"
    text += "[tunables]\n" + "".join(f"{k} = {v}\n" for k, v in (tunables or {}).items())
    path = folder / "libdcm.ini"
    write_private(path, text)
    return path


def run(
    folder: Path, *command: str | Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; nothing here may hang."""
    env = {**os.environ, "DCM_RUNTIME_DIR": str(folder / "run"), **environment}
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def under_pager(config: Path, *, heap: bool = False) -> dict[str, Any]:
    """Environment that puts a program under a pager."""
    preload = str(PRELOAD)
    if heap and JEMALLOC:
        preload += f" {JEMALLOC}"
    return {"DCM_CONFIG": str(config), "LD_PRELOAD": preload}


def socket_of(folder: Path, name: str = "test") -> Path:
    """A pager's status socket."""
    return folder / "run" / "vm" / f"{name}.sock"


def ask(folder: Path, request: Mapping[str, Any], name: str = "test") -> dict[str, Any]:
    """One request on a pager's status socket."""
    return pager.ask(socket_of(folder, name), request)


def hostile(kind: str = "HOSTILE") -> dict[str, Any]:
    """Environment that puts donors behind the worst transport, or a LIAR; see hostile.c."""
    seed = str(random.SystemRandom().randrange(1 << 30))
    print(f"hostile with seed {seed}")
    return {f"PAGER_TEST_{kind}": seed}
