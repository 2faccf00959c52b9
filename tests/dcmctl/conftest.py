# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of dcmctl's tests: a runtime folder, a caller of dcmctl, a key."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import configuration, settings

TOP = Path(__file__).resolve().parents[2]
for path in (TOP, TOP / "dcmctl"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

from tests.dcmctl.paging import args, donors, running  # noqa: E402 - from TOP
from tests.dcmctl.support import Cli  # noqa: E402
from tests.framework.paths import BUILD  # noqa: E402

__all__ = ["args", "donors", "running"]

# Hypothesis writes into build/ only, and no run depends on an earlier one.
configuration.set_hypothesis_home_dir(BUILD / "test" / "hypothesis")
settings.register_profile("dcm", database=None, deadline=None, print_blob=True)
settings.load_profile("dcm")


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder with a short path: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dcmctl-") as path:
        yield Path(path)


@pytest.fixture
def vms(runtime: Path) -> Path:
    """The folder of the VMs' sockets."""
    path = runtime / "vm"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def dcmctl(runtime: Path) -> Cli:
    return Cli(runtime)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("lab:" + "5a" * 32 + "\n")
    path.chmod(0o600)
    return path
