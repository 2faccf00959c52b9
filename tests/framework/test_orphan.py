# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs end with the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.framework.leftovers import RUN_VARIABLE, kill, processes
from tests.framework.paths import TOP
from tests.framework.until import until

PARENT = f"""
import subprocess, sys
sys.path.insert(0, {str(TOP)!r})
from tests.framework.orphan import no_orphan
program = subprocess.Popen([*no_orphan("KILL"), "sleep", "1000"])
print(program.pid, flush=True)
sys.stdin.read()
"""
# The parent is gone before the program asks for a signal at its end.
SLOW = "#!/bin/sh\nwhile ! [ -e {go} ]; do sleep 0.01; done\nexec /usr/bin/setpriv \"$@\"\n"


@pytest.mark.parametrize("early", [False, True], ids=["later", "before it asks"])
def test_its_parent_is_killed(tmp_path: Path, early: bool) -> None:
    go, run_id = tmp_path / "go", f"orphan-{os.getpid()}-{early}"
    slow = tmp_path / "setpriv"
    slow.write_text(SLOW.format(go=go))
    slow.chmod(0o755)
    env = {**os.environ, RUN_VARIABLE: run_id, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-IS", "-c", PARENT]
    if not early:
        go.touch()
    try:
        with subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            line = Path(f"/proc/{pid}/cmdline")
            until(lambda: early or line.read_bytes() == b"sleep\x001000\0")
            parent.kill()
        go.touch()
        until(lambda: not processes(run_id))
    finally:
        kill(run_id)
