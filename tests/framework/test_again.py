# SPDX-License-Identifier: GPL-2.0-or-later
"""A test whose guest the emulator has killed runs once more, any other that fails does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.framework.paths import TOP
from tests.guest.vmharness import Accel, Guest, GuestError, GuestGone, Image

CONFTEST = f"""
import sys
sys.path.insert(0, {str(TOP)!r})
from tests.conftest import pytest_runtest_makereport, pytest_runtest_protocol
"""
# It fails as many times as it is told, with such an error.
TEST = """
from pathlib import Path
from tests.guest.vmharness import GuestError, GuestGone
def test_it(tmp_path):
    runs = Path({folder!r}) / "runs"
    with runs.open("a") as file:
        file.write("x")
    if len(runs.read_text()) <= {failures}:
        raise {error}
"""
GHOST = 'GuestGone("died", by_emulator=True)'
OOPS = """\
[    2.371685] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI
[    2.372213] RIP: 0010:sched_clock_cpu+0x9/0x1d0
[    2.372438] Code: 90 90 f3 0f 1e fa 41 54 55 53 %s <90> e8 31 3d
[    2.374314] ---[ end trace 0000000000000000 ]---
"""


@pytest.mark.parametrize(
    ("error", "failures", "runs", "status"),
    [
        (GHOST, 1, 2, 0),
        (GHOST, 2, 2, 1),
        ('GuestGone("died")', 1, 1, 1),
        ('GuestError("no shell")', 1, 1, 1),
        ("AssertionError", 1, 1, 1),
    ],
)
def test_runs(tmp_path: Path, error: str, failures: int, runs: int, status: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    text = TEST.format(folder=str(tmp_path), failures=failures, error=error)
    (tmp_path / "test_it.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert len((tmp_path / "runs").read_text()) == runs
    assert ("runs again" in done.stdout) is (runs == 2)


@pytest.mark.parametrize(
    ("accel", "byte", "by_emulator"),
    [("tcg", "66", True), ("tcg", "cc", False), ("kvm", "66", False)],
)
def test_a_guest_that_dies_of_a_breakpoint(
    tmp_path: Path, accel: str, byte: str, by_emulator: bool
) -> None:
    """One that is not in its code is the emulator's doing; with KVM there is no emulator."""
    guest = Guest(Image(tmp_path, {}), Accel(accel, "chosen"))
    try:
        guest.console_path.write_text(OOPS % byte)
        with subprocess.Popen(["true"]) as guest._proc:
            gone = guest._gone()
    finally:
        guest.close()
    assert isinstance(gone, GuestGone) and isinstance(gone, GuestError)
    assert gone.by_emulator is by_emulator
    assert "QEMU ended with status 0" in str(gone)
