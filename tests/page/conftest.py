# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's page in a real Chromium, with real donors and a program that is paged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
for path in (TOP, TOP / "dcmctl"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

from playwright.sync_api import Browser, sync_playwright  # noqa: E402 - from TOP

from tests.dcmctl import conftest as cli  # noqa: E402
from tests.dcmctl import paging  # noqa: E402
from tests.dcmctl.support import Cli  # noqa: E402
from tests.framework.donor import Donor  # noqa: E402
from tests.framework.paths import BUILD  # noqa: E402
from tests.page.page import Dashboard  # noqa: E402

# Fixtures of dcmctl's tests.
args, donors, running = paging.args, paging.donors, paging.running
dcmctl, runtime = cli.dcmctl, cli.runtime

SHOTS = BUILD / "test" / "page"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; only addresses of this host can be reached from it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: scripts/deps.sh page")
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=120_000,
        )
        yield started
        started.close()


@pytest.fixture
def host_conf(tmp_path: Path, donors: tuple[Donor, Donor], dcmctl: Cli) -> Path:
    """The host's configuration: both donors, with the addresses of their status."""
    near, far = donors
    path = tmp_path / "host.conf"
    path.write_text(
        f"[key]\nfile = {near.key_file}\n"
        f"[donor near]\naddress = {near.unix_address}\nstatus = 127.0.0.1:{near.http_port}\n"
        f"[donor far]\naddress = {far.tcp_address}\nstatus = 127.0.0.1:{far.http_port}\n"
    )
    dcmctl.env["DCM_HOST_CONF"] = str(path)
    dcmctl.env["DCM_HOSTD_CONF"] = str(tmp_path / "no-hostd.conf")
    dcmctl.env["DCM_HOSTD_STATUS"] = str(tmp_path / "no-hostd")
    return path


@pytest.fixture
def start_dashboard(dcmctl: Cli) -> Iterator[Callable[..., Dashboard]]:
    """start_dashboard("--token-file", path): serve the page on a free port of loopback."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> Dashboard:
        if "--listen" not in words:
            words = ("--listen", "127.0.0.1:0", *words)
        process = dcmctl.start("dashboard", *words)
        started.append(process)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http"), process.communicate(timeout=10)
        return Dashboard(url, process)

    yield start
    for process in started:
        process.terminate()
    for process in started:
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        assert process.returncode == 0, (out, err)
        assert "Traceback" not in err, err
