# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for something that comes soon, or fails the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(what: Callable[[], Found]) -> Found:
    """Call a function until its result is not empty; return the result."""
    deadline = time.monotonic() + 20
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
