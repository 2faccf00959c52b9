# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of which a part is on files, as donors of memory are full: the cold part goes there."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pager.support import (
    LIMIT_S,
    PAGER_TEST,
    StartDonor,
    ask,
    built,
    configure,
    start,
    start_files,
)

pytestmark = built
TIER_TEST = PAGER_TEST.parent / "tier_test"


def status(folder: Path) -> dict[str, Any]:
    return ask(folder, {"cmd": "status"})


def settled(now: dict[str, Any]) -> bool:
    """Each extent has one slab, two of them in memory."""
    return [d["slabs"] for d in now["donors"]] == [2, 2] and not now["filling"]


@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
def test_cold_memory_makes_room_for_busy(start_donor: StartDonor, short_tmp: Path) -> None:
    """The donor of memory has room for the half that was written first; then the other is used.

    When the donor of files dies, all that is lost is memory that was not used any more.
    """
    memory = start(start_donor, "a", capacity="32M")
    files = start_files(start_donor, short_tmp, memory)
    config = configure(short_tmp, [memory, files], "tcp", cold_after="1s")
    log = short_tmp / "log"
    with log.open("w") as stderr:
        program = subprocess.Popen(
            [str(TIER_TEST), str(config), "64"],
            env={**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    # a lane's rate of use falls below one a second in a minute
    deadline = time.monotonic() + 2 * LIMIT_S

    def until(good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not good(now := status(short_tmp)):
            assert program.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        return now

    try:
        assert program.stdout and program.stdout.readline() == "filled\n", log.read_text()
        until(settled)
        assert "goes to files" not in log.read_text()
        until(lambda now: settled(now) and log.read_text().count("goes to files") == 2)
        files.kill()
        after = until(lambda now: now["extents"]["lost"])
        out, _ = program.communicate("\n", timeout=LIMIT_S)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0 and out == "every byte right\n", f"{out}\n{log.read_text()}"
    assert after["extents"]["lost"] == 2, after
