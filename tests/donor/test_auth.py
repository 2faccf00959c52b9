# SPDX-License-Identifier: GPL-2.0-or-later
"""A peer without a key gets nothing, not even an answer."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.donor.conftest import Lab
from tests.donor.rawtls import (
    CONTROL_ROLE,
    HELLO,
    WELCOME,
    Closed,
    Control,
    Tls,
    TlsError,
    dial,
    hello,
    pack,
)


def silence(sock: socket.socket) -> None:
    """The donor closes without having said one byte."""
    try:
        assert sock.recv(4096) == b""
    except ConnectionResetError:
        pass


@pytest.mark.parametrize(("name", "key"), [
    ("alice", b"\x33" * 32),  # wrong key
    ("alice", b"\x22" * 32),  # another tenant's
    ("nobody", b"\x11" * 32),  # unknown name
    ("a" * 300, b"\x11" * 32),  # longer than any name may be
])
def test_wrong_key(lab: Lab, name: str, key: bytes) -> None:
    heard: list[bytes] = []
    with pytest.raises(TlsError):
        Tls(dial(lab.tcp_address), name, key, on_bytes=heard.append)
    assert b"".join(heard) == b""


def test_wrong_key_unix(lab: Lab) -> None:
    heard: list[bytes] = []
    with pytest.raises(TlsError):
        Tls(dial(lab.unix_address), "alice", b"\x33" * 32, on_bytes=heard.append)
    assert b"".join(heard) == b""


def test_no_retry_request(lab: Lab) -> None:
    """A key share the donor does not take would need an answer before the key is checked."""
    heard: list[bytes] = []
    with pytest.raises(TlsError):
        Tls(dial(lab.tcp_address), "alice", lab.key("alice"), flags=Tls.KEY_SHARE_TOP,
            priority=b"NONE:+VERS-TLS1.3:+AES-128-GCM:+AEAD:+ECDHE-PSK:+GROUP-SECP384R1:"
                     b"+GROUP-X25519:+SIGN-ALL", on_bytes=heard.append)
    assert b"".join(heard) == b""


def test_no_key_tls(lab: Lab) -> None:
    """TLS 1.3 and 1.2 as browsers speak it."""
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        with dial(lab.tcp_address) as sock:
            sock.sendall(outgoing.read())
            silence(sock)


@pytest.mark.parametrize("junk", [
    b"GET / HTTP/1.1\r\nHost: donor\r\n\r\n",
    pack(HELLO, 1, hello(CONTROL_ROLE)),
    b"\x00" * 1000,
    b"\x16\x03\x01\xff\xff" + b"\x01" * 70000,
    os.urandom(5000),
])
def test_plaintext_junk(lab: Lab, junk: bytes) -> None:
    with dial(lab.tcp_address) as sock:
        try:
            sock.sendall(junk)
        except (ConnectionError, BrokenPipeError):
            pass
        silence(sock)


def test_says_nothing(lab: Lab) -> None:
    """Connections that never speak, or stop in the middle, are closed unanswered."""
    socks = [dial(lab.tcp_address) for _ in range(8)]
    socks[0].sendall(b"\x16")
    socks[1].sendall(b"\x16\x03\x01\x02\x00\x01")
    for sock in socks:
        silence(sock)
        sock.close()
    assert lab.status()["events"]["handshakes_timed_out"] >= 8


def test_a_refused_connection_leaves_no_socket(tmp_path: Path) -> None:
    """dial() closes a socket that it could not connect: an open one would fail this test."""
    with pytest.raises(FileNotFoundError):
        dial(f"unix:{tmp_path}/nobody.sock")


def test_failed_handshakes_are_told_apart(lab: Lab) -> None:
    """The log says why a handshake failed; the peer learns nothing."""
    with pytest.raises(TlsError):
        Tls(dial(lab.unix_address), "alice", b"\x33" * 32)
    with dial(lab.tcp_address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        silence(sock)
    dial(lab.tcp_address).close()
    for reason in ("no key, an unknown name or a wrong key", "not a TLS handshake",
                   "the peer closed the connection"):
        lab.logged(f"handshake failed: {reason};")


def test_key_but_no_hello(lab: Lab) -> None:
    tls = lab.tls()
    assert tls.wait_closed() == []
    tls.close()


class Tap(threading.Thread):
    """Relays one connection and keeps what the client sent."""

    def __init__(self, target: str) -> None:
        super().__init__(daemon=True)
        self.target = target
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp:127.0.0.1:%d" % self.server.getsockname()[1]
        self.sent = b""

    def run(self) -> None:
        client, _ = self.server.accept()
        donor = dial(self.target)
        back = threading.Thread(target=self.copy, args=(donor, client, False), daemon=True)
        back.start()
        self.copy(client, donor, True)
        back.join()
        client.close()
        donor.close()
        self.server.close()

    def copy(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        try:
            while data := source.recv(65536):
                self.sent += data if keep else b""
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def test_replayed_connection(lab: Lab) -> None:
    """A recorded connection, byte for byte, opens nothing."""
    tap = Tap(lab.tcp_address)
    tap.start()
    c = Control(tap.address, "alice", lab.key("alice"))
    slab = c.map()
    assert slab.bytes == c.slab_bytes
    c.goodbye()
    tap.join(10)
    before = lab.status()["events"]
    with dial(lab.tcp_address) as sock:
        try:
            sock.sendall(tap.sent)
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass
    after = lab.wait(lambda s: s["events"]["handshakes_failed"] > before["handshakes_failed"],
                     "the replay was refused")["events"]
    assert after["sessions_made"] == before["sessions_made"]
    assert after["maps"] == before["maps"]


def test_handshake_flood(lab: Lab) -> None:
    """Many half-open handshakes keep nobody else out."""
    socks = [dial(lab.tcp_address) for _ in range(200)]
    lab.served("alice")
    for sock in socks:
        sock.close()


def test_pipelined_hello(lab: Lab) -> None:
    """HELLO may come with requests behind it."""
    tls = lab.tls()
    tls.send(pack(HELLO, 5, hello(CONTROL_ROLE)) + pack(16, 6) + pack(16, 7))
    assert [(m.type, m.tag) for m in (tls.message(), tls.message(), tls.message())] == [
        (WELCOME, 5), (17, 6), (17, 7)]
    tls.send(pack(5, 8))
    with pytest.raises(Closed):
        while True:
            tls.message()
    tls.close()
