# SPDX-License-Identifier: GPL-2.0-or-later
"""The status socket of a pager: one line of JSON is the request, one line the answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.framework.leftovers import state
from tests.framework.process import threads


def ask(
    path: Path, request: Mapping[str, Any] | None = None, timeout: float = 10.0
) -> dict[str, Any]:
    """Send a request (default: status) to the socket `path`; return the answer.

    Raise OSError if there is none.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout)
        sock.connect(str(path))
        sock.sendall(json.dumps({"cmd": "status"} if request is None else request).encode() + b"\n")
        with sock.makefile("rb") as answer:
            line = answer.readline()
    if not line:
        raise ConnectionError(f"{path} closed without an answer")
    found: dict[str, Any] = json.loads(line)
    return found


def wait_idle(path: Path, pid: int, timeout: float = 20.0) -> dict[str, Any]:
    """Wait until the pager of the process `pid`, which no longer faults, writes no page.

    Return the pager's status. A fault thread evicts after the access that it served has
    gone on. When the thread yields (SCHED_IDLE), other programs may keep it from that for long.
    """
    deadline = time.monotonic() + timeout
    while True:
        # in this order: a fault thread that runs may begin to write
        busy = any(state(lane) != "S" for lane in threads(pid, "dcm-fault-"))
        status = ask(path)
        if not busy and not status["in_flight_bytes"]:
            return status
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path}: fault threads run ({busy}), or pages leave: {status}")
        time.sleep(0.1)
