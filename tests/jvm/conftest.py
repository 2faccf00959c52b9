# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests of our JVM: the JVM, and donors for its heap."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.framework.paths import TOP
from tests.jvm.support import DONOR, Jvm, missing
from tests.qemu.conftest import qemu  # noqa: F401  a fixture

# With it nothing may be skipped: make test-jvm sets it.
WHOLE = bool(os.environ.get("DCM_TEST_JVM"))


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    """Our JVM in a JDK, and the programs that it runs."""
    if why := missing():
        pytest.fail(why) if WHOLE else pytest.skip(why)
    return Jvm(tmp_path_factory.mktemp("jvm"))


@contextlib.contextmanager
def two_donors(folder: Path, **options: str) -> Iterator[list[Donor]]:
    """Two donors with a key."""
    first = Donor(folder / "a", donor=DONOR | options)
    with first, Donor(folder / "b", keys=first.keys, donor=DONOR | options) as second:
        yield [first, second]


@contextlib.contextmanager
def three_donors(folder: Path) -> Iterator[list[Donor]]:
    """Three donors with a key, for a heap with copies."""
    with (
        two_donors(folder) as two,
        Donor(folder / "c", keys=two[0].keys, donor=DONOR) as third,
    ):
        yield [*two, third]


@pytest.fixture
def own_donors(short_tmp: Path) -> Iterator[list[Donor]]:
    """Two donors that no other test has used, so what they count is of this test."""
    with two_donors(short_tmp) as donors:
        yield donors


@pytest.fixture(scope="session")
def donors() -> Iterator[list[Donor]]:
    """Two donors of all tests: for 5 s each keeps memory of a JVM that has ended."""
    with tempfile.TemporaryDirectory(prefix="dcm-jvm-") as folder, two_donors(Path(folder)) as two:
        yield two


@pytest.fixture(scope="session")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libvgc that lies."""
    folder = tmp_path_factory.mktemp("liar")
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    command += [f"-I{TOP / 'guest-virtio-gc' / part}" for part in ("lib", "include")]
    command += ["-o", str(folder / "libvgc.so.0"), str(TOP / "tests" / "jvm" / "liar.c")]
    subprocess.run(command, check=True, timeout=60)
    return folder
