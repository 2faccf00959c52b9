# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl donor` and keygen with files, sockets and a server that sends garbage."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dcmctl.support import Cli

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answers every connection with the same bytes, after reading a request."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(data: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(10)
                    try:
                        peer.recv(65536)
                        peer.sendall(data)
                    except OSError:
                        pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        threads.append(thread)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


GARBAGE = [
    (b"", "[http] listen"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "HTTP"),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n{}", "HTTP"),
    (http(b"not here", "404 Not Found"), "HTTP 404"),
    (http(b"hello"), "not JSON"),
    (http(b"[1,2]"), "JSON that is not an object"),
    (http(b"{" * 100000), "not JSON"),
    (http(b'{"memory": 5}'), "not an object"),
    (http(b'{"memory": {"used_bytes": -5}}'), "not a count"),
    (http(b'{"tenants": {"a": 1}}'), "not a list"),
    (http(b'{"sessions": [5]}'), "not an object"),
    (http(b'{"state": 5}'), "not a short text"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "not JSON"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (17 << 20), "more than 16 MiB"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP"),
]


@pytest.mark.parametrize(("data", "said"), GARBAGE, ids=range(len(GARBAGE)))
def test_garbage(dcmctl: Cli, serve: Serve, data: bytes, said: str) -> None:
    message = dcmctl.fails("donor", "status", serve(data))
    assert message.startswith("donor 127.0.0.1:")
    assert said in message
    assert message.isprintable()


def test_empty_status_is_shown(dcmctl: Cli, serve: Serve) -> None:
    """Donors of other versions may omit any field."""
    address = serve(http(b"{}"))
    done = dcmctl("donor", "status", address)
    assert done.returncode == 0, done
    assert "no tenants" in done.stdout
    assert dcmctl("donor", "status", address, "--json").stdout == "{}\n"
    assert dcmctl("donor", "status", f"http://{address}/status").returncode == 0


def test_control_characters(dcmctl: Cli, serve: Serve) -> None:
    evil = "\x1b[2J\x07"
    body = {"state": evil, "sessions": [{"peer": evil}], "tenants": [{"tenant": evil}]}
    out = dcmctl("donor", "status", serve(http(json.dumps(body).encode()))).stdout
    assert out
    assert all(c == "\n" or c.isprintable() for c in out)


def test_bad_addresses(dcmctl: Cli) -> None:
    for address in ("host", "host:0", "host:99999", "ftp://h:1", "h:1 x", "/tmp/sock", ""):
        assert "is not HOST:PORT" in dcmctl.fails("donor", "status", address, status=2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert "Connection refused" in dcmctl.fails("donor", "status", address)


def test_donor_list(dcmctl: Cli, tmp_path: Path, runtime: Path) -> None:
    conf = tmp_path / "host.conf"
    path = runtime / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        conf.write_text(
            f"[donor near]\naddress = unix:{path}\n[donor gone]\naddress = unix:{path}.not\n"
        )
        done = dcmctl("donor", "list", "--config", conf)
        assert done.returncode == 1  # one of them doesn't answer
        rows = [line.split() for line in done.stdout.splitlines()]
        assert rows[0][:2] == ["DONOR", "STATE"]
        assert rows[1][:3] == ["near", "answers", "-"]
        assert rows[1][-1] == f"unix:{path}"
        assert rows[2][:2] == ["gone", "silent"]
        assert rows[3] == ["!", "gone:", "No", "such", "file", "or", "directory"]
        shown = json.loads(dcmctl("donor", "list", "--config", conf, "--json").stdout)
        assert [(d["name"], d["reachable"]) for d in shown] == [("near", True), ("gone", False)]
        assert dcmctl("donor", "list", "--config", conf, "--no-check").returncode == 0


def test_keygen(dcmctl: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lab.key"
    done = dcmctl("keygen", path, "lab")
    assert done.returncode == 0
    text = path.read_text()
    tenant, _, key = text.strip().partition(":")
    assert (tenant, len(key)) == ("lab", 64)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in done.stdout + done.stderr
    assert "exists" in dcmctl.fails("keygen", path, "lab")
    assert path.read_text() == text
    assert "already" in dcmctl.fails("keygen", path, "lab", "--append")
    shown = json.loads(dcmctl("keygen", path, "two", "--append", "--bytes", "16", "--json").stdout)
    assert shown == {"file": str(path), "tenant": "two", "bytes": 16}
    assert path.read_text().startswith(text)
    assert "16 to 64" in dcmctl.fails("keygen", tmp_path / "x", "t", "--bytes", "8", status=2)
    assert "is not a name" in dcmctl.fails("keygen", tmp_path / "x", "a:b", status=2)
    assert "No such file" in dcmctl.fails("keygen", tmp_path / "no" / "x", "t")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert "exists" in dcmctl.fails("keygen", link, "t")
