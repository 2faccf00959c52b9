# SPDX-License-Identifier: GPL-2.0-or-later
"""Each benchmark starts: it finds its modules, whatever folder it is called from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.framework.paths import TOP


@pytest.mark.parametrize("name", ["run", "run-gc", "run-jvm", "run-redundancy", "kernel/run"])
def test_a_benchmark_starts(name: str, tmp_path: Path) -> None:
    """Two benchmarks once did not find the tests' helpers, which they use for donors."""
    command = [str(TOP / "bench" / name), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--only ID" in done.stdout, done.stderr
