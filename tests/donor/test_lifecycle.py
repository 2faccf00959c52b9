# SPDX-License-Identifier: GPL-2.0-or-later
"""Start, reload, status and metrics, as an operator uses them."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.donor.conftest import SANITIZER, Lab, MakeLab
from tests.framework.donor import write_private
from tests.framework.paths import TOP


def run(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(lab.binary), *arguments], capture_output=True, text=True,
                          timeout=30, check=False, env={**os.environ, **SANITIZER})


@pytest.fixture
def stopped(make_lab: MakeLab) -> Lab:
    lab = make_lab(start=False)
    lab.write_files()
    return lab


def test_check_config(stopped: Lab) -> None:
    good = run(stopped, "--config", str(stopped.config), "--check-config")
    assert (good.returncode, good.stdout) == (0, "the configuration is good\n")


def test_default_file(stopped: Lab) -> None:
    """The shipped file is good, and every option it shows commented is known."""
    path = TOP / "configs" / "donor.conf"
    assert run(stopped, "--config", str(path), "--keys", str(stopped.key_file),
               "--check-config").returncode == 0
    lines = []
    for line in path.read_text().splitlines():
        bare = line.removeprefix("# ")
        if line.startswith("# ") and " = " in bare and bare.split(" = ")[0].isprintable() \
                and " " not in bare.split(" = ")[0]:
            line = bare
        if line.startswith("# [tenant"):
            line = "[tenant NAME]"
        lines.append(line)
    everything = stopped.folder / "everything.conf"
    everything.write_text("\n".join(lines))
    out = run(stopped, "--config", str(everything), "--keys", str(stopped.key_file),
              "--check-config")
    assert out.returncode == 0, out.stderr


@pytest.mark.parametrize(("text", "said"), [
    ("[donor]\ncapactiy = 1G\n", "line 2: [donor] capactiy: unknown option"),
    ("[doner]\nunix = x\n", "line 2: [doner]: unknown section"),
    ("[donor]\ncapacity = 1X\n", "write bytes, 64M, 2G or 12%"),
    ("[donor]\ncapacity = 200%\n", "write bytes, 64M, 2G or 12%"),
    ("[donor]\nslab-size = 3M\nunix = /x\n", "power of two"),
    ("[donor]\nslab-size = 1M\nunix = /x\n", "from 2097152"),
    ("[donor]\nlisten = 127.0.0.1\nkeys = KEYS\n", "write HOST:PORT"),
    ("[donor]\nthreads = 65\n", "from 0 to 64"),
    ("[donor]\nthreads = 99999999999999999999999\n", "write a whole number"),
    ("[donor]\npoll-us = often\n", "write auto or a whole number"),
    ("[donor]\npoll-us = 1001\n", "from 0 to 1000"),
    ("[donor]\ndrain-timeout = 5\n", "write a time"),
    ("[limits]\npatience = 999ms\n", "must be from 1000 to 86400000 ms"),
    ("[limits]\npatience = 60\n", "write a time"),
    ("[tenant a]\npatience = 0s\n", "line 2: [tenant] patience = 0s: must be from 1000"),
    ("[tenant a]\npatience = soon\n", "write a time"),
    ("[donor]\njunk\n", "line 2: neither"),
    ("[donor]\nunix = " + "x" * 300 + "\n", "line 2: longer"),
    ("[donor]\n", "nothing to listen on"),
    ("[http]\nlisten = 0.0.0.0:0\n[donor]\nunix = SOCK\nkeys = KEYS\n", "allow-remote"),
    ("[http]\nlisten = example.org:80\n[donor]\nunix = SOCK\nkeys = KEYS\n", "numeric"),
    ("[tenant " + "x" * 65 + "]\nbytes = 1G\n", "1 to 64 letters"),
    ("[tenant ]\nbytes = 1G\n", "line 2: [tenant ]: a tenant's name"),
    ("[tenant a@b]\nbytes = 1G\n", "line 2: [tenant a@b]: a tenant's name"),
])
def test_bad_config(stopped: Lab, text: str, said: str) -> None:
    """One line that names the file and what to write; status 2."""
    text = text.replace("KEYS", str(stopped.key_file)).replace("SOCK", str(stopped.unix))
    stopped.config.write_text(text)
    out = run(stopped, "--config", str(stopped.config))
    assert out.returncode == 2
    assert said in out.stderr
    assert len([x for x in out.stderr.splitlines() if " error: " in x]) == 1


@pytest.mark.parametrize(("text", "mode", "said"), [
    (None, 0, "dcmctl keygen"),
    ("alice:" + "11" * 32, 0o640, "chmod 600"),
    ("alice:" + "11" * 32, 0o604, "chmod 600"),
    ("# nothing\n", 0o600, "has no key"),
    ("alice\n", 0o600, "line 1: has no ':'"),
    ("\nalice:1234\n", 0o600, "line 2: the key must be"),
    ("alice:" + "1x" * 32, 0o600, "the key must be"),
    ("al ice:" + "11" * 32, 0o600, "letters, digits"),
    (("alice:" + "11" * 32 + "\n") * 2, 0o600, "line 2: the tenant has a line already"),
])
def test_bad_keys(stopped: Lab, text: str | None, mode: int, said: str) -> None:
    stopped.key_file.unlink()
    if text is not None:
        write_private(stopped.key_file, text)
        stopped.key_file.chmod(mode)
    out = run(stopped, "--config", str(stopped.config))
    assert out.returncode == 2
    assert said in out.stderr and "11111111" not in out.stderr


def test_drop_in_and_command_line(stopped: Lab) -> None:
    folder = Path(str(stopped.config) + ".d")
    folder.mkdir()
    (folder / "10-a.conf").write_text("[donor]\ncapacity = 4M\n")
    (folder / "20-b.conf").write_text("[donor]\ncapacity = 1M\n")
    args = ("--config", str(stopped.config), "--check-config")
    assert "smaller than one slab" in run(stopped, *args).stderr
    assert run(stopped, *args, "--capacity", "8M").returncode == 0
    assert run(stopped, *args, "--set", "donor.capacity=8M").returncode == 0
    assert run(stopped, *args, "--set", "donor.capacity").returncode != 0
    assert run(stopped, "--nonsense").returncode != 0


def test_ready_fd_and_notify(stopped: Lab) -> None:
    """Port 0 is told through --ready-fd; systemd's datagram says READY."""
    notify = stopped.folder / "notify"
    r, w = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(notify))
        sock.settimeout(20)
        p = subprocess.Popen(
            [str(stopped.binary), "--config", str(stopped.config), "--listen", "127.0.0.1:0",
             "--listen", "[::1]:0", "--http", "127.0.0.1:0", "--ready-fd", str(w)],
            pass_fds=[w], stderr=subprocess.PIPE, text=True,
            env={**os.environ, **SANITIZER, "NOTIFY_SOCKET": str(notify), "JOURNAL_STREAM": "1:2"})
        os.close(w)
        try:
            with os.fdopen(r) as f:
                said = [x.split("=", 1) for x in f.read().splitlines()]
            # its state goes into the store, in the place of one that may be there
            assert sock.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=dcm-state"
            assert sock.recv(4096) == b"FDSTORE=1\nFDPOLL=0\nFDNAME=dcm-state"
            assert sock.recv(4096).startswith(b"READY=1")
            assert said[0] == ["READY", "1"] and said[1] == ["PID", str(p.pid)]
            listens = [v for k, v in said if k == "LISTEN"]
            assert len(listens) == 3 and not any(x.endswith(":0") for x in listens)
            web = dict(said)["HTTP"]
            client = http.client.HTTPConnection(web, timeout=10)
            client.request("GET", "/healthz")
            assert client.getresponse().read() == b"ok\n"
            client.close()
            p.send_signal(signal.SIGHUP)
            assert sock.recv(4096) == b"RELOADING=1"
            assert sock.recv(4096) == b"READY=1"
            p.send_signal(signal.SIGTERM)
            assert sock.recv(4096).startswith(b"STOPPING=1")
        finally:
            p.terminate()
            _, err = p.communicate(timeout=20)
    assert p.returncode == 0
    assert err and all(x[0] == "<" and x[2] == ">" for x in err.splitlines()), err


def test_stale_and_live_socket(make_lab: MakeLab) -> None:
    """A socket file left by a killed donor is replaced; a living donor's is not."""
    lab = make_lab()
    out = run(lab, "--unix", str(lab.unix), "--keys", str(lab.key_file))
    assert out.returncode == 2 and "another donor" in out.stderr
    lab.served()
    lab.kill()
    assert lab.unix.exists()
    lab.start()
    c = lab.control(unix=True)
    c.goodbye()
    assert oct(lab.unix.stat().st_mode & 0o777) == "0o660"
    lab.finish()
    assert not lab.unix.exists()


def test_reload(make_lab: MakeLab) -> None:
    """Good files change options that need no restart; bad ones change nothing, with a reason."""
    lab = make_lab()
    c = lab.control()
    slab = c.map()
    lab.sections["donor"]["capacity"] = "128M"
    lab.sections["donor"]["slab-size"] = "4M"  # needs a restart: stays
    lab.sections["tenant bob"] = {"bytes": "2M"}
    lab.keys["carol"] = "44" * 32
    lab.reload()
    status = lab.wait(lambda s: s["events"]["reloads"] == 1, "reloaded")
    assert status["memory"]["capacity_bytes"] == 128 << 20
    assert status["memory"]["slab_bytes"] == 2 << 20
    quotas = {t["tenant"]: t["quota_bytes"] for t in status["tenants"]}
    assert quotas["bob"] == 2 << 20
    lab.logged("slab-size has changed")
    lab.served("carol")
    good_config, good_keys = lab.config.read_text(), lab.key_file.read_text()
    for n, (config, keys) in enumerate((("[donor]\nbroken = yes\n", good_keys),
                                        ("", good_keys),
                                        (good_config, "junk\n"),
                                        (good_config.replace("128M", "64M"), "")), 1):
        write_private(lab.config, config)
        write_private(lab.key_file, keys)
        lab.signal(signal.SIGHUP)
        status = lab.wait(lambda s, n=n: s["events"]["reloads_failed"] == n,  # type: ignore[misc]
                          "refused")
        assert status["memory"]["capacity_bytes"] == 128 << 20
        assert {t["tenant"] for t in status["tenants"]} == {"alice", "bob", "carol"}
        lab.served("carol")
    lab.logged("everything stays as it was")
    assert c.query()["used"] == slab.bytes
    c.goodbye()
    lab.wait_empty()


def reload_with(lab: Lab, capacity_mib: int) -> None:
    """Reload with another capacity and wait until it holds; the donor logs one line."""
    lab.sections["donor"]["capacity"] = f"{capacity_mib}M"
    lab.reload()
    lab.wait(lambda s: s["memory"]["capacity_bytes"] == capacity_mib << 20, "reloaded")


def test_log_reader_that_stalls_stops_the_donor(make_lab: MakeLab) -> None:
    """Nobody reads standard error: tenants are served; a later line counts the dropped ones."""
    lab = make_lab(start=False)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    lab.stderr = writing
    with os.fdopen(reading, "rb") as log:
        lab.start()
        # fill the pipe; the donor's end stays without O_NONBLOCK
        full = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, b"\n")
        os.close(full)
        os.close(writing)
        for _ in range(3):
            lab.served()
        longest = 0.0
        # a reload says a line, more of them than are kept
        for n in range(1, 400):
            begin = time.monotonic()
            reload_with(lab, 100 + n)
            longest = max(longest, time.monotonic() - begin)
        lab.served()
        print(f"reloads took {longest:.3f} s at most with a log that nobody reads")
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.extend(log))
        reader.start()
        lab.finish()
        reader.join(20)
        text = b"".join(found).decode()
    assert "Sanitizer" not in text, text
    assert "lines were dropped: the log's reader did not keep up" in text
    assert text.rstrip().endswith("ended"), text[-500:]


def test_end_waits_for_a_log_reader_that_stalls(make_lab: MakeLab) -> None:
    """SIGTERM ends a donor whose log is stuck."""
    lab = make_lab(start=False)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    lab.stderr = writing
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb"):
        lab.start()
        for n in range(1, 60):
            reload_with(lab, 100 + n)
        lab.finish()


def get(lab: Lab, path: str, method: str = "GET",
        host: str | None = None) -> tuple[int, str, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", lab.http_port, timeout=10)
    client.request(method, path, headers={"Host": host} if host else {})
    answer = client.getresponse()
    body = answer.read()
    client.close()
    return answer.status, answer.getheader("Content-Type", ""), body


def test_http(lab: Lab) -> None:
    c = lab.control()
    slab = c.map()
    d = c.data()
    d.write(slab.id, 0, b"h" * 8192)
    status, kind, body = get(lab, "/status")
    found = json.loads(body)
    assert status == 200 and kind == "application/json"
    mine = next(s for s in found["sessions"] if s["session"] == f"{c.session:016x}")
    assert (mine["tenant"], mine["slabs"], mine["written_bytes"]) == ("alice", 1, 8192)
    assert found["memory"]["used_bytes"] == slab.bytes
    assert c.secret.hex() not in body.decode() and lab.keys["alice"] not in body.decode()
    status, kind, body = get(lab, "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    text = body.decode()
    assert f"dcm_donor_used_bytes {slab.bytes}\n" in text
    assert 'dcm_transport_operations_total{op="write",transport="tcp"}' in text
    if shutil.which("promtool"):
        lint = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              capture_output=True, timeout=60, check=False)
        assert lint.returncode == 0 and not lint.stderr, lint.stderr
    assert get(lab, "/healthz")[::2] == (200, b"ok\n")
    assert get(lab, "/other")[0] == 404
    assert get(lab, "/status", "DELETE")[0] == 405
    assert get(lab, "/status", host="evil.example:80")[0] == 403
    assert get(lab, "/status", host="127.0.0.1.evil.example")[0] == 403
    assert get(lab, "/status", host="localhost:1")[0] == 200
    d.close()
    c.goodbye()


def test_http_junk(lab: Lab) -> None:
    for junk in (b"\x00" * 100, b"GET " + b"/" * 100000, b"POST /status HTTP/1.1\r\n"
                 b"Host: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000):
        with socket.create_connection(("127.0.0.1", lab.http_port), timeout=10) as sock:
            try:
                sock.sendall(junk)
                sock.settimeout(0.3)
                while sock.recv(65536):
                    pass
            except OSError:
                pass
    assert get(lab, "/healthz")[0] == 200
