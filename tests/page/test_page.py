# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's page in a browser: it shows what the commands print, and changes VMs.

A program pages on two real donors meanwhile. Pictures are left in build/test/page/.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dcmctl.lib.units import format_count, format_ns, format_size
from playwright.sync_api import Browser

from tests.dcmctl.paging import MIB, Running, lent, until
from tests.dcmctl.support import Cli
from tests.dcmctl.vm_server import VmServer
from tests.framework.donor import Donor
from tests.page.conftest import HOSTILE, SHOTS
from tests.page.page import Dashboard, View, once, shoot, view

Start = Callable[..., Dashboard]
pytestmark = pytest.mark.usefixtures("host_conf")

# Text and number of the reading together: between two calls there may be a new one.
SHOWN = """() => {
  const cells = (row) => [...row.children].map((cell) => cell.innerText);
  const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map(cells);
  return {
    number: Number(document.documentElement.dataset.look),
    pill: document.getElementById("pill").innerText,
    tiles: [...document.querySelectorAll(".tile")].map((tile) => tile.innerText),
    donors: rows("donors"), vms: rows("vms"),
    uses: [...document.querySelectorAll("#uses tr")].map(cells),
    waits: [...document.querySelectorAll("#waits-legend li span")].map((part) => part.innerText),
    why: document.getElementById("waits-why").innerText,
    mix: [...document.querySelectorAll("#mix-legend li span")].map((part) => part.innerText),
  };
}"""
STATE = """async () => (await fetch("/api/state")).json()"""
PILL = """([donor, texts]) => texts.includes(
  document.querySelector(`tr[data-donor="${donor}"] .pill`)?.innerText)"""
EVENT = """(kind) => document.querySelector(`#events [data-kind="${kind}"] span`)?.innerText"""


def shown_with_json(v: View) -> tuple[dict[str, Any], dict[str, Any]]:
    """The page's text, and the API's answer of the same reading."""
    for _ in range(200):
        answer = v.page.evaluate(STATE)
        shown = v.page.evaluate(SHOWN)
        if shown["number"] == answer["look"]["number"]:
            return shown, answer["look"]
    pytest.fail("the page is never at the newest look")


def check_donors(shown: dict[str, Any], estate: dict[str, Any]) -> None:
    assert len(shown["donors"]) == len(estate["donors"])
    for cells, d in zip(shown["donors"], estate["donors"], strict=True):
        assert cells[0].split("\n")[:2] == [d["name"], d["address"]]
        assert cells[1] == d["state"]
        assert cells[2].strip() == (
            f"{format_size(d['lent_bytes'])} of {format_size(d['capacity_bytes'])}"
        )
        assert cells[3:7] == [
            format_size(d["free_bytes"]),
            format_size(d["head_room_bytes"]),
            str(d["sessions"]),
            format_size(sum(use["bytes"] for use in d["uses"])),
        ]


def check_vms(shown: dict[str, Any], look: dict[str, Any]) -> None:
    assert len(shown["vms"]) == len(look["estate"]["vms"])
    for cells, vm, key in zip(shown["vms"], look["estate"]["vms"], look["keys"], strict=True):
        latency = vm["status"]["fault_latency"]
        assert cells[0].split("\n") == [vm["name"], f"user pager, pid {vm['pid']}"]
        assert cells[2].strip() == (
            f"{format_size(vm['direct_bytes'])} of {format_size(vm['budget_bytes'])}"
        )
        lent = ", ".join(f"{u['donor']} {format_size(u['bytes'])}" for u in vm["uses"])
        assert cells[3].strip() == f"{format_size(vm['indirect_bytes'])}, lent by {lent}"
        rate = look["rates"][key]["faults_per_s"]
        assert cells[4:7] == [
            "-" if rate is None else format_count(rate),
            format_ns(latency["p50"]),
            format_ns(latency["p99"]),
        ]
        waits = look["rates"][key]["waits_ns_per_s"]
        waited = sum(waits.values())
        share = ["-" if not waited else f"{ns / waited * 100:.1f}%" for ns in waits.values()]
        assert shown["waits"] == share
        assert shown["why"] == look["rates"][key]["why"]
        mix = look["rates"][key]["block_mix"] or {}
        if not sum(mix.values()):
            mix = vm["status"]["block_mix"]
        total = sum(mix.values())
        assert shown["mix"] == [f"{pages / total * 100:.1f}%" for pages in mix.values()]


def unchanging(donor: dict[str, Any]) -> dict[str, Any]:
    """A donor without the fields that change while no memory is lent: times and errors."""
    times = ("rtt_ns", "silent_ms")
    uses = [{k: v for k, v in use.items() if k not in times} for use in donor["uses"]]
    return {**donor, "uses": uses}


def test_the_page_says_what_the_command_line_says(
    running: Running, start_dashboard: Start, browser: Browser, dcmctl: Cli
) -> None:
    running.line("filled")
    d = start_dashboard("--interval", "0.5")
    with view(browser, d.url) as v:
        v.open()
        v.until("() => document.querySelectorAll('.uplot').length === 4")
        v.until("() => Number(document.documentElement.dataset.look) > 6")
        shown, look = shown_with_json(v)
        estate = look["estate"]
        check_donors(shown, estate)
        check_vms(shown, look)
        assert shown["pill"] == "all is well"
        assert look["health"] == {"level": "good", "lines": []}
        direct, budget = (
            format_size(sum(vm[name] for vm in estate["vms"]))
            for name in ("direct_bytes", "budget_bytes")
        )
        assert shown["tiles"][0].split("\n") == ["2 of 2", "donors up"]
        assert shown["tiles"][3].split("\n") == [direct, f"direct of {budget} budget"]
        bytes_of = {u["donor"]: format_size(u["bytes"]) for u in estate["vms"][0]["uses"]}
        assert shown["uses"] == [["", "near", "far"], ["e2e", bytes_of["near"], bytes_of["far"]]]

        # Other commands: fields that do not change are identical.
        said = once(dcmctl)["estate"]
        assert [unchanging(x) for x in said["donors"]] == [unchanging(x) for x in estate["donors"]]
        listed = json.loads(dcmctl("list", "--json").stdout)
        for one, vm in zip(listed, estate["vms"], strict=True):
            for name in ("name", "pid", "budget_bytes", "size_bytes"):
                assert one[name] == vm[name]
        real = [donor["lent_bytes"] for donor in estate["donors"]]
        assert sum(real) == sum(u["bytes"] for vm in estate["vms"] for u in vm["uses"])
        # Without --token-file nothing can be changed.
        assert v.page.locator("button:visible", has_text="…").count() == 0
        # History came from the server, and the page continues it.
        points = "() => fetch('/api/history?vm=' + encodeURIComponent(%r)).then((a) => a.json())"
        history = v.page.evaluate(points % look["keys"][0])
        assert len(history["points"]) >= 6
        at = history["names"].index("faults_per_s")
        assert any(point[at] for point in history["points"])
        shoot(v, SHOTS / "wide.png")
        v.clean()


def test_dark_and_narrow(
    running: Running, start_dashboard: Start, browser: Browser, tmp_path: Path
) -> None:
    running.line("filled")
    d = start_dashboard("--interval", "0.5", "--token-file", tmp_path / "token")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    with view(browser, d.url) as v:
        v.open()
        light = v.page.evaluate(ground)
        v.until("() => Number(document.documentElement.dataset.look) > 4")
        v.page.emulate_media(color_scheme="dark")
        v.until(f"(light) => ({ground})() !== light", light)
        v.until("() => document.querySelectorAll('.uplot').length === 4")
        shoot(v, SHOTS / "dark.png")
        v.clean()
    with view(browser, d.url, width=360, height=740, dark=True) as v:
        v.open()
        v.until("() => document.querySelectorAll('.uplot').length === 4")
        # No horizontal scrolling, and buttons are large enough to hit.
        assert v.page.evaluate("() => document.documentElement.scrollWidth") <= 360
        for button in v.page.locator("button:visible", has_text="…").all():
            box = button.bounding_box()
            assert box is not None
            assert box["height"] >= 32
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
        shoot(v, SHOTS / "phone.png")
        v.clean()


def test_a_donor_is_killed(
    running: Running, donors: tuple[Donor, Donor], start_dashboard: Start, browser: Browser
) -> None:
    """The page shows it without a reload. 5 s is the target; the time is printed."""
    running.line("filled")
    # what one on this host had would outlive it
    _, far = donors
    d = start_dashboard("--interval", "1")
    with view(browser, d.url) as v:
        v.open()
        v.until(PILL, ["far", ["up"]])
        assert v.text("#pill") == "all is well"
        far.kill()
        killed = time.monotonic()
        v.until("() => document.querySelector('#health .line')?.innerText.includes('far')")
        print(f"\na killed donor shows on the page after {time.monotonic() - killed:.1f} s")
        v.until(PILL, ["far", ["lost"]])
        print(f"and as lost after {time.monotonic() - killed:.1f} s")
        v.until(EVENT, "donor-lost")
        assert v.text("#pill") == "in trouble"
        assert "lost" in v.until(EVENT, "memory-lost")
        shoot(v, SHOTS / "lost.png")
        v.clean()


def test_a_donor_drains(
    running: Running, donors: tuple[Donor, Donor], start_dashboard: Start, browser: Browser
) -> None:
    """Drained by SIGTERM: the events say what moved, and that the donor is drained."""
    running.line("filled")
    _, far = donors
    d = start_dashboard("--interval", "0.2")
    with view(browser, d.url) as v:
        v.open()
        v.until(PILL, ["far", ["up"]])
        far.signal(signal.SIGTERM)
        assert "moved to" in v.until(EVENT, "slab-moved")
        v.until("""() => ["donor-draining", "donor-drained"].some((kind) =>
            document.querySelector(`#events [data-kind="${kind}"]`))""")
        status = running.status()
        assert status["lost_pages"] == 0
        shoot(v, SHOTS / "drained.png")
        v.clean()


def test_budget_takes_a_token_and_a_yes(
    running: Running, start_dashboard: Start, browser: Browser, tmp_path: Path, dcmctl: Cli
) -> None:
    running.line("filled")
    file = tmp_path / "token"
    d = start_dashboard("--interval", "0.5", "--token-file", file)
    token = file.read_text().strip()
    with view(browser, d.url) as v:
        v.open()
        page = v.page
        page.get_by_role("button", name="Budget…").click()
        page.locator("#dialog-value").fill("32M")
        page.locator("#dialog-no").click()
        assert running.status()["budget_bytes"] == 64 * MIB

        page.get_by_role("button", name="Budget…").click()
        page.locator("#dialog-value").fill("a lot")
        page.locator("#dialog-token").fill("wrong, and far too long to be short")
        page.locator("#dialog-yes").click()
        v.until("() => document.getElementById('dialog-error').innerText.includes('256M')")
        page.locator("#dialog-value").fill("32M")
        page.locator("#dialog-yes").click()
        v.until("() => document.getElementById('dialog-error').innerText.includes('token')")
        shoot(v, SHOTS / "dialog.png")
        assert running.status()["budget_bytes"] == 64 * MIB

        page.locator("#dialog-token").fill(token)
        page.locator("#dialog-yes").click()
        v.until("() => !document.getElementById('dialog').open")
        assert running.status()["budget_bytes"] == 32 * MIB
        assert "64M to 32M" in v.until(EVENT, "budget")
        # The token is asked for once; the page shows the pager's own reason.
        page.get_by_role("button", name="Budget…").click()
        assert not page.locator("#dialog-token").is_visible()
        page.locator("#dialog-value").fill("4K")
        page.locator("#dialog-yes").click()
        v.until("() => document.getElementById('dialog-error').innerText.includes('smallest')")
        page.locator("#dialog-no").click()
        # One answer was 401 and one 409, as expected: the browser logs both.
        assert [line for line in v.said if "401" not in line and "409" not in line] == []
        assert not [url for url in v.asked if token in url]
        assert token not in page.content()
    assert once(dcmctl)["estate"]["vms"][0]["budget_bytes"] == 32 * MIB


def test_drain_takes_a_token_and_a_yes(
    running: Running, donors: tuple[Donor, Donor], start_dashboard: Start, browser: Browser,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Drain a donor for this host, and use it again; nothing is lost."""
    running.line("filled")
    _, far = donors
    file = tmp_path / "token"
    d = start_dashboard("--interval", "0.5", "--token-file", file)
    with view(browser, d.url) as v:
        v.open()
        v.until(PILL, ["far", ["up"]])
        button = v.page.locator('tr[data-donor="far"] button')
        button.click()
        v.page.locator("#dialog-no").click()
        button.click()
        v.page.locator("#dialog-yes").click()
        v.until("() => document.getElementById('dialog-error').innerText.includes('token')")
        assert all(x["state"] == "up" for x in running.status()["donors"])
        v.page.locator("#dialog-token").fill(file.read_text())
        v.page.locator("#dialog-yes").click()
        v.until("() => !document.getElementById('dialog').open")
        v.until(EVENT, "donor-drained")
        until("memory stays on it", lambda: lent(far) == 0)
        status = running.status()
        assert status["lost_pages"] == 0
        before = status["faults"]["missing"]
        until("it does not go on", lambda: running.status()["faults"]["missing"] > before + 1000)
        shoot(v, SHOTS / "drained-by-page.png")
        assert button.inner_text() == "Use again…"
        button.click()
        v.page.locator("#dialog-yes").click()
        v.until(PILL, ["far", ["up"]])
        assert [line for line in v.said if "401" not in line] == []


def test_from_elsewhere_it_takes_the_token(
    running: Running, start_dashboard: Start, browser: Browser, tmp_path: Path
) -> None:
    running.line("filled")
    file = tmp_path / "token"
    d = start_dashboard("--listen", "0.0.0.0:0", "--plain", "--token-file", file)
    url = d.url.replace("0.0.0.0", "127.0.0.1")
    with view(browser, url) as v:
        v.page.goto(url)
        v.page.locator("#gate-token").wait_for()
        assert not v.page.locator("#page").is_visible()
        v.page.locator("#gate-token").fill("no token at all")
        v.page.get_by_role("button", name="Look").click()
        v.until("() => document.getElementById('gate-error').innerText.includes('wrong')")
        v.page.locator("#gate-token").fill(file.read_text())
        v.page.get_by_role("button", name="Look").click()
        v.until(PILL, ["near", ["up"]])
        assert not [url for url in v.asked if file.read_text().strip() in url]
        assert [line for line in v.said if "401" not in line] == []


def test_names_are_text(runtime: Path, start_dashboard: Start, browser: Browser) -> None:
    """A VM whose donors have hostile names; the page runs none of them."""
    with VmServer(runtime / "vm") as server:
        first, second = server.status["donors"]
        first["name"], first["state"] = HOSTILE, "lost"
        first["why"] = "<img src=http://192.0.2.1/x onerror=alert(2)>"
        second["name"] = "far\x1b[2J\u202e" + "x" * 180
        d = start_dashboard("--interval", "0.5")
        with view(browser, d.url, width=360) as v:
            v.open()
            names = v.until(
                """(text) => {
                  const names = [...document.querySelectorAll('#donors b.name')];
                  return names.some((b) => b.innerText === text) && names.map((b) => b.innerText);
                }""",
                HOSTILE,
            )
            assert len(names) == 4  # two of them from the configuration
            assert v.page.locator("script").count() == 1
            assert v.page.locator("img").count() == 0
            assert "<img" in v.text("#health")
            assert v.page.evaluate("() => document.documentElement.scrollWidth") <= 360
            shoot(v, SHOTS / "hostile.png")
            v.clean()


def test_the_server_comes_back(
    start_dashboard: Start, browser: Browser, dcmctl: Cli, tmp_path: Path
) -> None:
    """Without the server the page says that it is not live; it recovers with the server."""
    d = start_dashboard("--interval", "0.5")
    with view(browser, d.url) as v:
        v.open()
        d.process.terminate()
        until("the server ends", lambda: d.process.poll() is not None)
        v.until("() => document.getElementById('pill').innerText === 'not live'")
        start_dashboard("--interval", "0.5", "--listen", d.url.split("/")[2])
        v.until("() => document.getElementById('live').innerText.startsWith('live')")
        v.until("() => document.getElementById('pill').innerText !== 'not live'")
        # The console has the failed requests, and nothing else.
        failed = "error: Failed to load resource: net::"
        assert [line for line in v.said if not line.startswith(failed)] == []
