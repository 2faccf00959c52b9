# SPDX-License-Identifier: GPL-2.0-or-later
"""The status socket of a pager: one line of JSON is the request, one line the answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def wait_idle(path: Path, timeout: float = 20.0) -> dict[str, Any]:
    """Wait until no page is on its way out; return the pager's status."""
    deadline = time.monotonic() + timeout
    while (status := ask(path))["in_flight_bytes"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path}: pages are still on their way: {status}")
        time.sleep(0.1)
    return status
