# SPDX-License-Identifier: GPL-2.0-or-later
"""The exporter, alert rules and dashboards, with Debian's Prometheus and running daemons."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dcmctl.cluster import estate
from dcmctl.pager.status import LATENCIES, Latency
from dcmctl.web import exporter

from tests.dcmctl.paging import MIB, Running, until
from tests.dcmctl.support import TOP, Cli
from tests.framework.donor import Donor
from tests.framework.paths import DONORD, PRELOAD
from tests.framework.port import free_port

CONFIGS = TOP / "configs"
RULES = CONFIGS / "prometheus" / "kvm-dcm.rules.yml"
DASHBOARDS = sorted((CONFIGS / "grafana").glob("*.json"))
METRIC = re.compile(r"\b(?:dcm|process)_[a-z0-9_]+\b")
# Metrics of the kernel pager; tests/vm/test_hostd.py has one.
KERNEL_ONLY = {"dcm_host_hostd_up"}

real = pytest.mark.skipif(
    not (PRELOAD.exists() and DONORD.exists()), reason="build/ has no pager or no donor: run make"
)
needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus") or not shutil.which("promtool"),
    reason="no prometheus: scripts/deps.sh ops",
)


def promtool(*words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, words)], input=text, capture_output=True, text=True, check=False
    )


@needs_prometheus
def test_rules() -> None:
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done
    done = promtool("test", "rules", TOP / "tests" / "ops" / "kvm-dcm.rules.test.yml")
    assert done.returncode == 0, done
    done = promtool("check", "config", CONFIGS / "prometheus" / "prometheus.yml")
    assert done.returncode == 0, done
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    tested = (TOP / "tests" / "ops" / "kvm-dcm.rules.test.yml").read_text()
    assert [name for name in alerts if name not in tested] == []


# ---- the exporter alone ----


class Exporter:
    """A `dcmctl exporter` on a port of its own."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.process = cli.start("exporter", "--listen", "127.0.0.1:0", *words)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)
        assert match, said
        self.port = int(match[1])

    def get(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
        return text


@pytest.fixture
def exported(dcmctl: Cli, tmp_path: Path) -> Iterator[Exporter]:
    dcmctl.env |= {
        "DCM_HOST_CONF": str(tmp_path / "none"),
        "DCM_HOSTD_CONF": str(tmp_path / "none"),
        "DCM_HOSTD_STATUS": str(tmp_path / "none"),
    }
    made = Exporter(dcmctl)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, f"{name} is there twice"
            found[name] = float(value)
    return found


def test_nothing_runs(exported: Exporter) -> None:
    found = samples(exported.get())
    assert found['dcm_host_vms{pager="user"}'] == 0
    assert not any(name.startswith("dcm_vm_") for name in found)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        exported.get("/status")


def test_any_host_was_taken(exported: Exporter) -> None:
    """A foreign name that resolves to this server (DNS rebinding) is refused."""
    for host, status in (
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost:1", 200),
        ("[::1]:9", 200),
        ("", 400),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", exported.port, timeout=30)
        connection.request("GET", "/metrics", headers={"Host": host})
        answer = connection.getresponse()
        text = answer.read()
        assert (answer.status, b"dcm_host_vms" in text) == (status, status == 200), host
        connection.close()


def test_a_name_of_ours(dcmctl: Cli) -> None:
    assert "--name" in dcmctl.fails("exporter", "--name", "no name", status=2)
    made = Exporter(dcmctl, "--name", "Ops.example")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=30)
        connection.request("GET", "/", headers={"Host": "ops.example:9751"})
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        made.process.kill()
        made.process.communicate()


def test_who_is_rude_keeps_nobody_waiting(exported: Exporter) -> None:
    """Silent connections, nonsense, long requests, and more connections than places."""
    idle = [socket.create_connection(("127.0.0.1", exported.port)) for _ in range(4)]
    for rude in (b"\x00" * 100, b"GET /" + b"x" * 70_000, b"GET /metrics HTTP/1.1\r\n" * 3):
        with socket.create_connection(("127.0.0.1", exported.port)) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(rude + b"\r\n\r\n")
                sock.settimeout(30)
                while sock.recv(65536):
                    pass
    assert "dcm_host_vms" in exported.get()
    idle += [socket.create_connection(("127.0.0.1", exported.port)) for _ in range(40)]
    for sock in idle:
        sock.close()

    def answers() -> bool:
        try:
            return "dcm_host_vms" in exported.get()
        except OSError:
            return False

    until("answers again", answers)
    assert exported.process.poll() is None


@pytest.mark.slow
def test_who_trickles_keeps_no_place(exported: Exporter) -> None:
    """All places send a byte now and then: all are ended, and the exporter answers."""
    slow = [socket.create_connection(("127.0.0.1", exported.port)) for _ in range(8)]
    for sock in slow:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        sock.settimeout(0.05)
    left = list(slow)

    def ended() -> bool:
        for sock in list(left):
            try:
                sock.sendall(b"x")
                if not sock.recv(4096):
                    left.remove(sock)
            except TimeoutError:
                continue
            except OSError:
                left.remove(sock)
        return not left

    until("those that trickle are ended", ended)
    assert "dcm_host_vms" in exported.get()
    for sock in slow:
        sock.close()


def test_where_it_listens(dcmctl: Cli) -> None:
    for text in ("nowhere", "127.0.0.1:99999", ":1", "127.0.0.1:x", "host.example:80", "[::1]"):
        assert "--listen" in dcmctl.fails("exporter", "--listen", text, status=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"can't listen on {address}: " in dcmctl.fails("exporter", "--listen", address)


def test_names_are_escaped() -> None:
    page = exporter.Page()
    page.gauge("dcm_x", "y").put(1, vm='a"b\\c\ne')
    assert page.text().splitlines()[2] == 'dcm_x{vm="a\\"b\\\\c\\ne"} 1'


def test_kernel_pagers_are_told_too() -> None:
    """Metrics of a dcmfs file, from a made-up value of estate.py: here is no module."""
    use = estate.Use("web1", "far", "lost", "tcp", 3, 3 << 21, 5000, "gone")
    vm = estate.Machine(
        name="web1", pager="kernel", path="/mnt/dcm/web1", running=True, pid=None,
        size_bytes=1 << 30, budget_bytes=1 << 28, min_budget_bytes=1 << 20, direct_bytes=1 << 27,
        indirect_bytes=None, lent_bytes=3 << 21, lost_bytes=4096, waiting_extents=2, uses=(use,),
        status=None, counters={"FAULT_MINOR": 3, "FAULT_CANCEL": 4, "FETCHED_PAGES": 5,
                  "DISCARDED_PAGES": 6, "WAIT_OUT_NS": 2_500_000_000},
        latency={
            kind: Latency.of_stats({"latency fault count": 2, "latency fault p50": 8000}, kind)
            for kind in LATENCIES
        },
        error="", lag_bytes=8192, seal=True,
    )  # fmt: skip
    donor = estate.Donor(
        name="far", address="tcp:h:1", status=None, configured=True, state="lost",
        capacity_bytes=None, lent_bytes=None, free_bytes=None, head_room_bytes=None,
        sessions=None, slab_bytes=None, error="gone", uses=(use,),
    )  # fmt: skip
    twice = estate.Estate(0.0, True, (donor, donor), (vm, vm), ())
    found = samples(exporter.metrics(twice, 0.5))
    labels = 'vm="web1",pager="kernel"'
    assert found[f'dcm_vm_faults_total{{{labels},kind="minor"}}'] == 7
    assert found[f"dcm_vm_fetched_bytes_total{{{labels}}}"] == 5 * 4096
    assert found[f"dcm_vm_discarded_bytes_total{{{labels}}}"] == 6 * 4096
    assert found[f'dcm_vm_waited_seconds_total{{{labels},cause="out"}}'] == 2.5
    assert f'dcm_vm_waited_seconds_total{{{labels},cause="donor"}}' not in found
    assert found[f"dcm_vm_lost_bytes{{{labels}}}"] == 4096
    assert found[f"dcm_vm_unprotected_bytes{{{labels}}}"] == 3 << 21
    assert found[f"dcm_vm_lag_bytes{{{labels}}}"] == 8192
    assert found[f"dcm_vm_sealed{{{labels}}}"] == 1
    assert found[f"dcm_vm_extents_unbacked{{{labels}}}"] == 2
    assert found['dcm_host_donor_up{donor="far"}'] == 0
    assert found["dcm_host_hostd_up"] == 1
    assert found[f'dcm_vm_fault_latency_seconds{{{labels},quantile="0.5"}}'] == 8e-6
    assert found[f"dcm_vm_fault_latency_seconds_count{{{labels}}}"] == 2
    assert found[f"dcm_vm_fetch_latency_seconds_count{{{labels}}}"] == 0
    assert f"dcm_vm_indirect_bytes{{{labels}}}" not in found
    assert 'dcm_host_donor_capacity_bytes{donor="far"}' not in found


# ---- all of it ----


class Prometheus:
    """A real Prometheus that scrapes each second."""

    def __init__(self, folder: Path, hosts: list[str], donors: list[str]) -> None:
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            f"rule_files: ['{RULES}']\nscrape_configs:\n"
            f"  - {{job_name: dcm-hosts, static_configs: [{{targets: {json.dumps(hosts)}}}]}}\n"
            f"  - {{job_name: dcm-donors, static_configs: [{{targets: {json.dumps(donors)}}}]}}\n"
        )
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            said = json.loads(answer.read())
        assert said["status"] == "success"
        return said["data"]

    def query(self, expr: str) -> list[Any]:
        result: list[Any] = self.ask("query", query=expr)["result"]
        return result

    def scrapes(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return len(self.query("up == 1 and count_over_time(up[1m]) > 5")) >= 3
        except OSError:
            return False


def expressions() -> list[tuple[str, str]]:
    """(place, expression) for all panels and variables of the dashboards."""
    found = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                found.append((f"{path.name}: {panel['title']}", target["expr"]))
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                label = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
                assert label
                found.append((f"{path.name}: ${variable['name']}", label[1]))
    return found


def filled(expr: str) -> str:
    for name in ("host", "vm", "donor"):
        expr = expr.replace(f"${name}", ".*")
    expr = expr.replace("$__rate_interval", "1m")
    assert "$" not in expr
    return expr


def test_dashboards_are_whole() -> None:
    assert len(DASHBOARDS) == 2
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        panels = board["panels"]
        assert len({p["id"] for p in panels}) == len(panels)
        known = {v["name"] for v in board["templating"]["list"]} | {"__rate_interval"}
        for panel in panels:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            for target in panel.get("targets", []):
                assert set(re.findall(r"\$(\w+)", target["expr"])) <= known
        # no panel covers another
        cells = [
            (x, y)
            for p in panels
            for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
            for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))


@real
@needs_prometheus
def test_a_live_scrape_has_all_metrics(
    running: Running, donors: tuple[Donor, Donor], exported: Exporter, tmp_path: Path
) -> None:
    """Expressions of dashboards and rules are valid, and use metrics that exist."""
    running.line("filled")
    text = exported.get()
    checked = promtool("check", "metrics", text=text)
    assert (checked.returncode, checked.stderr) == (0, ""), checked
    found = samples(text)
    labels = 'vm="e2e",pager="user"'
    assert found[f"dcm_vm_budget_bytes{{{labels}}}"] == 64 * MIB
    assert found[f"dcm_vm_indirect_bytes{{{labels}}}"] >= 100 * MIB
    assert found[f"dcm_vm_unprotected_bytes{{{labels}}}"] == found[f"dcm_vm_lent_bytes{{{labels}}}"]
    assert found['dcm_host_donor_capacity_bytes{donor="far"}'] == 512 * MIB
    for donor in donors:
        with urllib.request.urlopen(f"http://127.0.0.1:{donor.http_port}/metrics") as answer:
            checked = promtool("check", "metrics", text=answer.read().decode())
        assert (checked.returncode, checked.stderr) == (0, ""), checked

    server = Prometheus(
        tmp_path,
        [f"127.0.0.1:{exported.port}"],
        [f"127.0.0.1:{donor.http_port}" for donor in donors],
    )
    try:
        until("Prometheus scrapes all three", server.scrapes, server.log.read_text)
        there = set(server.ask("label/__name__/values"))
        rules = server.ask("rules")["groups"]
        exprs = [(r["name"], r["query"]) for g in rules for r in g["rules"]]
        assert len(exprs) == RULES.read_text().count("alert: ")
        for where, expr in [*exprs, *expressions()]:
            missing = set(METRIC.findall(expr)) - there - KERNEL_ONLY
            assert missing == set(), where
        for where, expr in expressions():
            assert server.query(filled(expr)) != [], f"{where}: {expr} says nothing"
        assert all(r["health"] == "ok" for g in server.ask("rules")["groups"] for r in g["rules"])
        # the samples are the values that dcmctl prints
        budget = server.query('dcm_vm_budget_bytes{vm="e2e"}')[0]["value"][1]
        assert int(budget) == running.status()["budget_bytes"]

        # A donor dies: hosts and Prometheus see it.
        donors[1].kill()

        def alerts() -> set[str]:
            return {a["labels"]["alertname"] for a in server.ask("alerts")["alerts"]}

        until(
            "the alerts are there",
            lambda: {"DcmDonorDown", "DcmDonorUnreachable", "DcmMemoryLost"} <= alerts(),
            lambda: f"{alerts()} {server.query('dcm_host_donor_up')}",
        )

        # Pages that were on their way to the donor are found to be lost a little later.
        def lost() -> tuple[int, int]:
            sample = server.query('dcm_vm_lost_bytes{vm="e2e"}')[0]["value"][1]
            return int(sample), running.status()["lost_pages"] * 4096

        until("the sample is the value", lambda: 0 < lost()[0] == lost()[1], lambda: str(lost()))
    finally:
        server.process.terminate()
        server.process.wait(30)
