# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's page: its server, and a browser that shows it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Request

PATIENCE_MS = 60_000


@dataclass(frozen=True)
class Dashboard:
    """A running `dcmctl dashboard`."""

    url: str
    process: subprocess.Popen[str]


class View:
    """The page in a browser, with its console messages and requests."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.said: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self._request)
        page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)

    def open(self) -> None:
        self.page.goto(self.url)
        self.until("() => document.documentElement.dataset.look > 0")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text().strip()

    def until(self, script: str, given: Any = None) -> Any:
        """Wait until a function in the page returns a true value; return the value.

        wait_for_function() evaluates text in the page, which the page forbids.
        """
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not (value := self.page.evaluate(script, given)):
            assert time.monotonic() < deadline, f"never: {script} {given}: {self.said}"
            self.page.wait_for_timeout(50)
        return value

    def clean(self) -> None:
        """Check: no console message, no request to another server, no cookie."""
        assert self.said == []
        ours = urlsplit(self.url).netloc
        assert self.asked
        assert {urlsplit(url).netloc for url in self.asked} == {ours}
        assert self.page.context.cookies() == []


@contextmanager
def view(
    browser: Browser, url: str, *, width: int = 1280, height: int = 900, dark: bool = False
) -> Iterator[View]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
    )
    try:
        yield View(context.new_page(), url)
    finally:
        context.close()


def shoot(seen: View, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    seen.page.screenshot(path=str(path), full_page=True)


def once(dcmctl: Any) -> dict[str, Any]:
    """The same data from the command line."""
    done = dcmctl("dashboard", "--once", "--interval", "0.3")
    assert done.returncode == 0, done
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
