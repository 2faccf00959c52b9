# SPDX-License-Identifier: GPL-2.0-or-later
"""The donor's HTTP server: clients that take all of its connections, or don't end one."""

from __future__ import annotations

import socket
import time

import pytest

from tests.donor.conftest import Lab, MakeLab

CROWD = 200
OTHER = "127.77.0.2"
LIFE_S = 20  # of a connection
LIVES_S = 20  # more than that: the machine may be slow


def open_one(lab: Lab, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", lab.http_port), timeout=10,
                                    source_address=(source, 0))


def test_a_crowd_keeps_nobody_from_the_status(make_lab: MakeLab) -> None:
    """Connections that say nothing; one of another address, which was there before, stays."""
    lab = make_lab()
    kept = open_one(lab, OTHER)
    kept.sendall(b"GET /healthz HTTP/1.1\r\n")
    crowd = [open_one(lab) for _ in range(CROWD)]
    begin = time.monotonic()
    assert lab.status()["state"] == "lending"
    print(f"/status in {time.monotonic() - begin:.3f} s")
    kept.sendall(b"Host: localhost\r\n\r\n")
    assert kept.recv(100).startswith(b"HTTP/1.1 200"), "it was closed for the crowd's"
    assert lab.fds() < lab.baseline_fds + 160
    kept.close()
    for sock in crowd:
        sock.close()
    assert lab.status()["state"] == "lending"


@pytest.mark.slow
def test_a_request_that_trickles_in_ends(make_lab: MakeLab) -> None:
    """A byte in time each time, without an end; the idle timeout does not see that."""
    lab = make_lab()
    sock = open_one(lab)
    begin = time.monotonic()
    sock.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
    sock.settimeout(0.5)
    with pytest.raises(ConnectionError):
        while time.monotonic() < begin + LIFE_S + LIVES_S:
            try:
                sock.sendall(b"x")
                assert sock.recv(100) == b"", "an answer to half a request"
                raise ConnectionError
            except TimeoutError:
                pass
    print(f"closed after {time.monotonic() - begin:.1f} s")
    sock.close()

