# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl dashboard` over HTTP, with hostile clients; rates and events of two readings.

The page in a browser is in tests/page.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dcmctl.cluster.estate import Donor, Estate, Machine, Use, would_expose
from dcmctl.lib import installation
from dcmctl.pager.why import CAUSES
from dcmctl.web import page
from dcmctl.web.watch import Watch, events, health, key_of, rates
from hypothesis import given
from hypothesis import strategies as st

from tests.dcmctl.support import Cli
from tests.dcmctl.vm_server import VmServer

MIB = 1 << 20


class Site:
    """A server of the page."""

    def __init__(self, cli: Cli, *words: object) -> None:
        self.process = cli.start("dashboard", "--listen", "127.0.0.1:0", "--interval", "1", *words)
        assert self.process.stdout is not None
        url = self.process.stdout.readline()
        assert url.startswith("http"), self.process.communicate(timeout=10)
        self.port = int(url.rstrip("/\n").rpartition(":")[2])

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer, text

    def json(self, path: str, **headers: str) -> Any:
        status, _, text = self.ask("GET", path, **headers)
        assert status == 200, text
        return json.loads(text)

    def raw(self, data: bytes) -> bytes:
        """Everything that the server sends until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as sock:
            got = b""
            try:
                sock.sendall(data)
                while part := sock.recv(65536):
                    got += part
            except (ConnectionResetError, BrokenPipeError):
                pass
            return got

    def end(self) -> str:
        self.process.terminate()
        _, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        assert "Error" not in err, err
        return str(err)


@pytest.fixture
def cli(dcmctl: Cli, tmp_path: Path) -> Cli:
    """A server on a host without configuration and VMs, except those of the test."""
    dcmctl.env["DCM_HOST_CONF"] = str(tmp_path / "no-host.conf")
    dcmctl.env["DCM_HOSTD_CONF"] = str(tmp_path / "no-hostd.conf")
    dcmctl.env["DCM_HOSTD_STATUS"] = str(tmp_path / "no-hostd")
    return dcmctl


@pytest.fixture
def vm(runtime: Path) -> Iterator[VmServer]:
    with VmServer(runtime / "vm") as server:
        yield server


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def site(cli: Cli, vm: VmServer, token: str) -> Iterator[Site]:
    made = Site(cli, "--token-file", token)
    yield made
    made.end()


BEARER = "Bearer a-token-of-some-length"
JSON = "application/json"


def test_files_and_headers(site: Site) -> None:
    status, answer, text = site.ask("GET", "/")
    assert status == 200
    assert b"<title>kvm-dcm</title>" in text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in str(answer.headers)
    status, again, text = site.ask("GET", "/", If_None_Match=answer.headers["ETag"])
    assert (status, text) == (304, b"")
    for path in ("/main.js", "/style.css", "/vendor/uPlot.esm.js"):
        assert site.ask("GET", path)[0] == 200
    assert site.ask("HEAD", "/main.js")[2] == b""
    # No file refers to another server, or makes markup from text.
    for name in page.load_files(installation.web_folder()):
        _, _, text = site.ask("GET", name)
        if "vendor" not in name:
            assert b"innerHTML" not in text
            assert b"eval(" not in text
        assert b"style=" not in text or b"vendor" in name.encode()


@pytest.mark.parametrize(
    "path",
    ["/../dcmctl/web.py", "/%2e%2e/x", "//etc/passwd", "/vendor/", "/x", "/vendor/uPlot.LICENSE"],
)
def test_nothing_else_is_served(site: Site, path: str) -> None:
    status, _, text = site.ask("GET", path)
    assert status == 404
    assert json.loads(text) == {"error": "not found"}


def test_the_same_as_the_command_line(site: Site, cli: Cli) -> None:
    look = site.json("/api/state")["look"]
    said = json.loads(cli("dashboard", "--once", "--interval", "0.3").stdout)
    for one in (look["estate"], said["estate"]):
        one.pop("time")
    assert look["estate"] == said["estate"]
    assert look["keys"] == said["keys"]
    assert look["health"] == said["health"]
    assert said["health"]["lines"][0]["text"] == "donor d2 drains: VMs move their memory off it"


def test_waiting_for_the_next_look(site: Site, vm: VmServer) -> None:
    vm.step = {"uptime_s": 1}
    first = site.json("/api/state")["look"]["number"]
    second = site.json(f"/api/state?after={first}")["look"]["number"]
    assert second > first
    key = site.json("/api/state")["look"]["keys"][0]
    history = site.json("/api/history?vm=" + key.replace("/", "%2F"))
    assert history["names"][0] == "time"
    assert len(history["points"]) >= 2
    assert site.json("/api/history?vm=nobody")["points"] == []
    assert site.json("/api/state?after=x&event=-1")["look"]["number"] >= second


def test_hosts(site: Site) -> None:
    for host in ("127.0.0.1:1", "localhost", "[::1]:9", "10.1.2.3", "127.0.0.1"):
        assert site.ask("GET", "/api/state", Host=host)[0] == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "x@y:1", "[a"):
        for path in ("/", "/api/state"):
            assert site.ask("GET", path, Host=host)[0] in (400, 403), host
    assert b" 400 " in site.raw(b"GET / HTTP/1.0\r\n\r\n").split(b"\r\n")[0]


def test_a_body_is_no_request(site: Site) -> None:
    """An unread body is not taken for the next request."""
    inner = b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(inner)
    for method in (b"GET /main.js", b"POST /api/budget", b"POST /x", b"DELETE /"):
        assert site.raw(method + head + inner).count(b"HTTP/1.1 ") == 1
    chunked = b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert site.raw(chunked + inner).count(b"HTTP/1.1 ") == 1


def test_a_change_takes_the_token(site: Site, vm: VmServer, runtime: Path) -> None:
    change = {"vm": f"user:{runtime}/vm/vm1.sock", "bytes": 128 * MIB}
    good = {"Content_Type": JSON, "Authorization": BEARER}

    def post(body: Any = change, **headers: str) -> int:
        return site.ask("POST", "/api/budget", body, **headers)[0]

    assert post(Content_Type=JSON) == 401
    assert post(**{**good, "Authorization": "Bearer wrong"}) == 401
    assert post(**{**good, "Authorization": "Basic a-token-of-some-length"}) == 401
    assert site.ask("POST", "/api/budget?token=a-token-of-some-length", change)[0] == 401
    # A foreign page that knew the token could send requests of these kinds.
    assert post(**good, Origin="http://evil.example") == 403
    assert post(**good, Origin="null") == 403
    assert post(**good, Sec_Fetch_Site="cross-site") == 403
    assert post(**{**good, "Content_Type": "text/plain"}) == 415
    assert post(b"x" * 5000, **good) == 413
    assert post(b"{", **good) == 400
    assert post(b"[]", **good) == 400
    assert post(b"[" * 4000, **good) == 400
    assert site.ask("GET", "/api/budget")[0] == 404
    assert site.ask("DELETE", "/api/state", **good)[0] == 501
    for wrong in (0, -1, True, "4M", 1 << 60, None):
        assert post({**change, "bytes": wrong}, **good) == 409
    assert post({"vm": "user:/etc/passwd", "bytes": 128 * MIB}, **good) == 409
    assert [r for r in vm.requests if r["cmd"] == "budget"] == []

    for body in ({"donor": "nobody"}, {"donor": "d1", "undo": 1}, {}, {"donor": ["d1"]}):
        assert site.ask("POST", "/api/drain", body, **good)[0] == 409
        assert site.ask("POST", "/api/drain", body, Content_Type=JSON)[0] == 401
    assert not [r for r in vm.requests if r["cmd"] == "donor"]
    assert post(**good, Origin=f"http://127.0.0.1:{site.port}") == 200
    assert vm.status["budget_bytes"] == 128 * MIB
    status, _, text = site.ask("POST", "/api/budget", {**change, "bytes": MIB}, **good)
    assert (status, "at least 4M" in text.decode()) == (409, True)
    kinds = {event["kind"]: event["text"] for event in site.json("/api/state")["events"]}
    assert kinds["budget"] == "VM vm1: budget from 256M to 128M"


def test_without_a_token_nothing_changes(cli: Cli, vm: VmServer, runtime: Path) -> None:
    site = Site(cli)
    assert not site.json("/api/state")["changes"]
    change = {"vm": f"user:{runtime}/vm/vm1.sock", "bytes": 128 * MIB}
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
        assert site.ask("POST", "/api/budget", change, Content_Type=JSON, **headers)[0] == 403
    assert vm.status["budget_bytes"] == 256 * MIB
    site.end()


def test_a_name_wants_the_token_for_all(cli: Cli, token: str) -> None:
    site = Site(cli, "--token-file", token, "--name", "Ops.example", "-v")
    assert site.ask("GET", "/", Host="ops.example:443")[0] == 200
    assert site.ask("GET", "/api/state", Host="ops.example")[0] == 401
    assert site.ask("GET", "/api/state", Host="ops.example", Authorization=BEARER)[0] == 200
    assert site.ask("GET", "/api/state?token=a-token-of-some-length")[0] == 401
    log = site.end()
    assert "GET /api/state 401" in log
    assert "token" not in log


def test_tls(cli: Cli, tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=dcm", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", cert, "-out",
         tmp_path / "only"],
        check=True, capture_output=True,
    )  # fmt: skip
    cert.write_text(cert.read_text() + (tmp_path / "only").read_text())
    site = Site(cli, "--cert", cert)
    trust = ssl.create_default_context(cafile=str(tmp_path / "only"))
    connection = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=60, context=trust)
    connection.request("GET", "/api/state")
    assert connection.getresponse().status == 200
    connection.close()
    assert b"HTTP/1.1 200" not in site.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    site.end()


def test_slow_and_many(site: Site) -> None:
    """A client that sends a byte now and then is cut after REQUEST_S; others are served."""
    slow = [socket.create_connection(("127.0.0.1", site.port), 60) for _ in range(20)]
    for sock in slow:
        sock.sendall(b"GET / HTTP/1.1\r\nX: ")
    assert site.ask("GET", "/")[0] == 200
    began = time.monotonic()
    trickled = slow[0]
    trickled.settimeout(0.2)
    while time.monotonic() - began < 60:
        try:
            trickled.sendall(b"x")
            if not trickled.recv(4096):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        pytest.fail("a request that never ends is kept")
    for sock in slow:
        sock.close()
    assert site.ask("GET", "/")[0] == 200


@pytest.mark.slow
def test_keep_alive_without_a_token_holds_no_place(site: Site) -> None:
    """All places are busy with requests: a new client is still answered at once."""
    request = b"GET /favicon HTTP/1.1\r\nHost: localhost\r\n\r\n"
    stop = threading.Event()
    answers = Counter[int]()

    def hold(number: int) -> None:
        """Hold a place as long as the server allows, then take another."""
        while not stop.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", site.port), 60) as sock,
            ):
                sock.settimeout(5)
                while not stop.is_set():
                    sock.sendall(request)
                    if not sock.recv(65536):
                        break
                    answers[number] += 1
                    stop.wait(0.5)
            stop.wait(0.05)

    threads = [threading.Thread(target=hold, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    try:
        longest = 0.0
        done = 0
        end = time.monotonic() + 15
        while time.monotonic() < end:
            began = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                done += site.ask("GET", "/", Authorization=BEARER)[0] == 200
            longest = max(longest, time.monotonic() - began)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(f"longest wait {longest:.2f} s, {done} answers; of the others' {answers.total()}")
    assert longest < 5
    assert done > 10


def test_a_token_keeps_its_place(site: Site) -> None:
    """More clients come than there are places: a connection with the token is kept."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.auto_open = 0
    connection.connect()
    headers = {"Authorization": BEARER, "Content-Type": JSON}
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        for _ in range(3):
            connection.request("POST", "/api/budget", b"{}", headers)
            assert connection.getresponse().read()
            for _ in range(40):
                other = socket.create_connection(("127.0.0.1", site.port), 60)
                stack.callback(other.close)
                other.sendall(b"GET / HTTP/1.1\r\nX: ")
            # The last one has a place, so all others have had theirs.
            other.sendall(b"\r\nHost: localhost\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200")


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_garbage(shared: Site, pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for sent in (data + b"\r\n\r\n", b"GET /" + data + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", shared.port), 60) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            got = b""
            try:
                while part := sock.recv(65536):
                    got += part
            except ConnectionResetError:
                pass
        assert got == b"" or got.startswith(b"HTTP/1.1 ") or b"error" in got


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dash")
    cli = Cli(folder)
    cli.env["DCM_HOST_CONF"] = cli.env["DCM_HOSTD_CONF"] = str(folder / "none")
    site = Site(cli)
    yield site
    assert site.ask("GET", "/")[0] == 200
    site.end()


def test_options(cli: Cli, tmp_path: Path) -> None:
    def wrong(*words: object) -> str:
        return cli.fails("dashboard", *words, status=2)

    assert "--token-file" in wrong("--listen", "0.0.0.0:0")
    assert "--cert" in wrong("--listen", "0.0.0.0:0", "--token-file", tmp_path / "t")
    for listen in ("host:80", "1.2.3.4", "1.2.3.4:99999", "[::1]", "300.1.1.1:80", "80"):
        assert "--listen" in wrong("--listen", listen)
    assert "--interval" in wrong("--interval", "0")
    assert "--interval" in wrong("--interval", "nan")
    assert "--name" in wrong("--name", "a b")
    assert "--token-file" in wrong("--name", "ops")
    assert "--cert-key" in wrong("--cert-key", "x")
    assert "certificate" in cli.fails("dashboard", "--cert", tmp_path / "no")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in cli.fails("dashboard", "--listen", f"127.0.0.1:{port}")


def test_token_files(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "new"
    Site(cli, "--token-file", file).end()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = file.read_text().strip()
    assert len(made) >= 32
    Site(cli, "--token-file", file).end()
    assert file.read_text().strip() == made
    file.chmod(0o644)
    assert "chmod 600" in cli.fails("dashboard", "--token-file", file)
    file.chmod(0o600)
    for text in ("short", "two words of some length", "", "x" * 2000):
        file.write_text(text)
        assert "one word" in cli.fails("dashboard", "--token-file", file)
    assert "token file" in cli.fails("dashboard", "--token-file", tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    assert "token file" in cli.fails("dashboard", "--token-file", link)
    assert not (tmp_path / "nowhere").exists()


# ---- what two looks make ----

DONOR = Donor(
    name="far", address="tcp:127.0.0.1:1", status=None, configured=True, state="up",
    capacity_bytes=1000, lent_bytes=100, free_bytes=900, head_room_bytes=None, sessions=None,
    slab_bytes=10, error="", uses=(Use("vm", "far", "up", "tcp", 2, 20, 5, ""),),
)  # fmt: skip
COUNTERS = {
    "FAULTS": 100, "FAULT_MISSING": 50, "FETCHED_PAGES": 10, "WRITTEN_PAGES": 20, "MOVED_PAGES": 0,
    "PULLED_PAGES": 0, "MIX_4K": 1, "MIX_8K": 2, "MIX_16K": 3, "MIX_32K": 4, "MIX_64K": 5,
}  # fmt: skip
VM = Machine(
    name="vm", pager="user", path="/vm.sock", running=True, pid=7, size_bytes=4096,
    budget_bytes=64 * MIB, min_budget_bytes=4096, direct_bytes=MIB, indirect_bytes=MIB,
    lent_bytes=20, lost_bytes=0, waiting_extents=0, uses=DONOR.uses, status=None,
    counters=COUNTERS, latency=None, error="",
)  # fmt: skip


def estate_of(*things: Donor | Machine, problems: tuple[str, ...] = (), at: float = 1.0) -> Estate:
    donors = tuple(x for x in things if isinstance(x, Donor))
    return Estate(
        at, False, donors, tuple(x for x in things if isinstance(x, Machine)), problems
    )


def kinds(old: Estate, new: Estate) -> list[str]:
    return [kind for kind, _ in events(old, new)]


def test_events() -> None:
    was = estate_of(DONOR, VM)
    assert kinds(was, was) == []
    assert kinds(was, estate_of(VM)) == ["donor-gone"]
    assert kinds(estate_of(VM), was) == ["donor-found"]
    assert kinds(was, estate_of(DONOR)) == ["vm-ended"]
    assert kinds(estate_of(DONOR), was) == ["vm-started"]
    assert kinds(was, estate_of(DONOR, replace(VM, pid=8))) == ["vm-started"]
    draining = replace(DONOR, state="draining")
    assert kinds(was, estate_of(draining, VM)) == ["donor-draining"]
    empty = replace(draining, uses=())
    assert kinds(estate_of(draining, VM), estate_of(empty, VM)) == ["donor-drained"]
    for state in ("lost", "connecting", "silent", "unused"):
        assert kinds(was, estate_of(replace(DONOR, state=state), VM)) == [f"donor-{state}"]
    assert kinds(was, estate_of(replace(DONOR, error="no"), VM)) == ["donor-untold"]
    assert kinds(was, estate_of(DONOR, replace(VM, budget_bytes=MIB))) == ["budget"]
    assert kinds(was, estate_of(DONOR, replace(VM, lost_bytes=4096))) == ["memory-lost"]
    moved = replace(
        VM,
        counters={**COUNTERS, "MOVED_PAGES": 512},
        uses=(replace(DONOR.uses[0], slabs=0), replace(DONOR.uses[0], donor="next", slabs=2)),
    )
    ((kind, line),) = events(was, estate_of(DONOR, moved))
    assert kind == "slab-moved"
    assert line.text == "VM vm: 2M moved to another donor (slabs: far -2)"
    # A VM that no longer answers has lost no memory by that.
    silent = replace(VM, counters=None, lost_bytes=None, budget_bytes=None, error="busy")
    assert kinds(was, estate_of(DONOR, silent)) == []


def test_health() -> None:
    assert health(estate_of(DONOR, VM)) == []
    full = replace(DONOR, lent_bytes=850)
    assert [line.level for line in health(estate_of(full))] == ["warn"]
    assert [line.level for line in health(estate_of(replace(full, lent_bytes=950)))] == ["bad"]
    assert health(estate_of(replace(full, capacity_bytes=None))) == []
    lines = health(
        estate_of(
            replace(DONOR, state="draining"),
            replace(VM, lost_bytes=4096, waiting_extents=2, error="VM vm does not answer"),
            problems=("VM vm does not answer", "dcm-hostd does not run"),
        ),
        frozenset({key_of(VM)}),
    )
    assert [line.level for line in lines] == ["bad", "bad", "warn", "warn", "warn"]
    assert sum("does not answer" in line.text for line in lines) == 1
    assert lines[-1].text == "dcm-hostd does not run"
    assert health(estate_of(DONOR, replace(VM, copies=2))) == []
    (line,) = health(estate_of(DONOR, replace(VM, copies=2, exposed_bytes=3 * MIB)))
    assert (line.level, line.text) == ("warn", "VM vm: 3M have fewer than 2 copies")


def test_a_drain_that_exposes_memory() -> None:
    """Without enough other donors, or without room on them, there will be fewer copies."""
    uses = tuple(Use("vm", name, "up", "tcp", 2, 20, 5, "") for name in ("far", "near", "next"))
    vm = replace(VM, copies=2, uses=uses)
    others = [replace(DONOR, name=name, uses=()) for name in ("near", "next")]
    assert would_expose(estate_of(DONOR, *others, vm), "far") == []
    assert would_expose(estate_of(DONOR, *others, replace(vm, copies=1)), "far") == []
    assert would_expose(estate_of(DONOR, *others, vm), "other") == []
    (said,) = would_expose(estate_of(DONOR, *others, replace(vm, copies=3)), "far")
    assert said.endswith("it is to be on 3 donors, and only 2 others are up")
    (said,) = would_expose(estate_of(DONOR, others[0], replace(vm, uses=uses[:2])), "far")
    assert said.endswith("it is to be on 2 donors, and only 1 other is up")
    full = [replace(donor, free_bytes=5) for donor in others]
    (said,) = would_expose(estate_of(DONOR, *full, vm), "far")
    assert said == "VM vm: 20 will have fewer copies: other donors have room for 10"


def test_rates() -> None:
    later = {name: value * 3 for name, value in COUNTERS.items()}
    rate = rates(VM, replace(VM, counters=later), 2.0)
    assert (rate.faults_per_s, rate.missing_per_s) == (100.0, 50.0)
    assert (rate.fetched_bytes_per_s, rate.written_bytes_per_s) == (10 * 4096, 20 * 4096)
    assert rate.block_mix == {"4K": 2, "8K": 4, "16K": 6, "32K": 8, "64K": 10}
    assert (rate.waits_ns_per_s, rate.why) == (None, "")  # of a pager that does not count them
    nothing = rates(None, VM, 1.0)
    assert (nothing.faults_per_s, nothing.block_mix) == (None, None)
    for old in (replace(VM, pid=8), replace(VM, counters=None), replace(VM, counters=later)):
        assert rates(old, VM, 1.0).faults_per_s is None
    assert rates(VM, VM, 0.0).faults_per_s is None


def test_rates_say_why() -> None:
    names = [counter for counter, _, _ in CAUSES.values()]
    first = replace(VM, counters={**COUNTERS, **dict.fromkeys(names, 7)})
    assert rates(first, first, 2.0).why == "no access waited"
    later = replace(first, counters={**COUNTERS, **dict.fromkeys(names, 7), "WAIT_OUT_NS": 4007})
    rate = rates(first, later, 2.0)
    assert rate.waits_ns_per_s == {**dict.fromkeys(CAUSES, 0.0), "out": 2000.0}
    assert rate.why.startswith("100 % of the time is write-backs behind: ")
    without_room = rates(first, replace(later, waiting_extents=3), 2.0)
    assert without_room.why.endswith("; 3 extents have no slab: add a donor")


def test_waiting_in_vain() -> None:
    """Each extent waits a moment for its slab; waiting in two readings means no room."""
    waits = replace(VM, waiting_extents=3)
    made = [estate_of(vm, at=at) for at, vm in enumerate([VM, waits, VM, waits, waits, waits])]
    watch = Watch(lambda: made.pop(0), 60)
    told = []
    while made:
        watch.take()
        now = watch.after(0, 0)
        assert now is not None
        told.append(now.to_json()["health"]["level"])
    assert told == ["good"] * 4 + ["bad"] * 2
    assert [event.kind for event in watch.events_after(0)] == ["no-room"]


def test_the_watch_is_bounded_and_survives() -> None:
    made = [estate_of(DONOR, VM), estate_of(replace(DONOR, state="lost"), VM, at=2.0)]

    def look() -> Estate:
        if not made:
            raise PermissionError("not yours")
        return made.pop(0)

    watch = Watch(look, 1800)
    watch.take()
    assert watch.events_after(0) == []
    watch.take()
    assert [event.kind for event in watch.events_after(0)] == ["donor-lost"]
    assert watch.events_after(1) == []
    watch.take()  # the reading fails: the last estate stays, with the error
    now = watch.after(0, 0)
    assert now is not None
    assert now.number == 3
    assert now.estate.problems == ("not yours",)
    assert [d.name for d in now.estate.donors] == ["far"]
    assert len(watch.history(key_of(VM))) == 2
    assert watch.vm(key_of(VM)) == VM
    assert watch.vm("user:other") is None
    watch.stop()
