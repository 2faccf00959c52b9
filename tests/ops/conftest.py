# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of dcmctl's tests, and a real etcd."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
for path in (TOP, TOP / "dcmctl"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

from tests.dcmctl.conftest import dcmctl, runtime  # noqa: E402 - from TOP
from tests.dcmctl.paging import args, donors, running  # noqa: E402
from tests.ops.etcd import Server  # noqa: E402

__all__ = ["args", "dcmctl", "donors", "running", "runtime"]

StartEtcd = Callable[..., Server]


@pytest.fixture
def start_etcd(short_tmp: Path) -> Iterator[StartEtcd]:
    """Start real etcds of one member each; all end with the test."""
    if not shutil.which("etcd"):
        pytest.skip("no etcd: scripts/deps.sh ops")
    with contextlib.ExitStack() as stack:

        def start(name: str = "etcd", **options: Any) -> Server:
            return stack.enter_context(Server(short_tmp / name, **options))

        yield start
