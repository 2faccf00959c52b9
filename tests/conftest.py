# SPDX-License-Identifier: GPL-2.0-or-later
"""For every pytest run: start_donor, short temporary paths, the search for leftovers.

When a test has failed, the ends of its donors' logs are printed with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.framework import again  # noqa: E402
from tests.framework.donor import Donor  # noqa: E402
from tests.framework.failed import FAILED  # noqa: E402
from tests.framework.leftovers import MARK_VARIABLE, RUN_VARIABLE, Watch  # noqa: E402

StartDonor = Callable[..., Donor]


class Leftovers:
    """Fails the run if something that a test started still exists at its end."""

    def __init__(self) -> None:
        run_id = os.environ.setdefault(RUN_VARIABLE, f"pytest-{os.getpid()}")
        self.watch = Watch(run_id, marks=(os.environ.get(MARK_VARIABLE, "dcm"),))
        self.found: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Search after all fixtures are torn down."""
        self.found = self.watch.left()
        if self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what was left."""
        for line in self.found:
            terminalreporter.write_line(f"FAILED left behind by the tests: {line}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Take the snapshot before the first test."""
    config.pluginmanager.register(Leftovers(), "dcm-leftovers")


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A temporary folder whose path is short enough for UNIX sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="dcm-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remember for fixtures whether a test has failed, and whether the emulator made it fail."""
    outcome: Any = yield
    again.note(item, call.excinfo.value if call.excinfo else None)
    item.stash[FAILED] = item.stash.get(FAILED, False) or outcome.get_result().failed


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test, once more if the emulator has killed its VM."""
    again.run(item, nextitem)
    return True


@pytest.fixture
def start_donor(request: pytest.FixtureRequest, short_tmp: Path) -> Iterator[StartDonor]:
    """Start donors: start_donor("a", donor={"slab-size": "4M"}); all end with the test."""
    donors: list[Donor] = []
    with contextlib.ExitStack() as stack:

        def start(name: str = "donor", **options: Any) -> Donor:
            donors.append(stack.enter_context(Donor(short_tmp / name, **options)))
            return donors[-1]

        yield start
        if request.node.stash.get(FAILED, False):
            for donor in donors:
                print(f"donor {donor.folder.name} said:\n{donor.tail(60)}")
