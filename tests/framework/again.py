# SPDX-License-Identifier: GPL-2.0-or-later
"""A test whose VM the emulator has killed, by what no processor does, runs once more.

docs/testing.md says what these deaths are, and tests/framework/emulator.py tells them from others.
A test that fails for any other reason fails.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

from tests.framework.failed import FAILED

GHOST = pytest.StashKey[bool]()


def note(item: pytest.Item, error: BaseException | None) -> None:
    """Remember an error that says that the emulator has killed a guest (GuestGone)."""
    if getattr(error, "by_emulator", False):
        item.stash[GHOST] = True


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test, and report it; if it failed with item.stash[GHOST] set, the second run."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if item.stash.get(GHOST, False) and any(report.failed for report in reports):
        print(f"\n{item.name} runs again: docs/testing.md, emulator", flush=True)
        item.stash[FAILED] = item.stash[GHOST] = False
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
