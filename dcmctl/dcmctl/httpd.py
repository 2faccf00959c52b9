# SPDX-License-Identifier: GPL-2.0-or-later
"""What our HTTP servers have in common: limits that hold whoever connects.

A thread a connection, so many and no more; who comes then waits in the listener's queue. A request
has REQUEST_S seconds in all, however it trickles in, so a place is free again after that.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import ipaddress
import re
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from dcmctl.errors import DcmError, UsageError, printable, reason

if TYPE_CHECKING:
    import ssl  # takes long to load

REQUEST_S = 10.0
QUEUE = 32
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)|(localhost)):(\d{1,5})", re.ASCII)


def parse_listen(text: str) -> tuple[str, int]:
    """A numeric address: no name service decides whether it is loopback."""
    match = _LISTEN.fullmatch(text)
    port = int(match[4]) if match else -1
    if not match or port > 65535:
        raise UsageError(f"--listen '{printable(text)}' is not ADDRESS:PORT with a numeric address")
    host = "127.0.0.1" if match[3] else match[1] or match[2]
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        raise UsageError(f"--listen '{printable(text)}': no such address") from None


class _Deadline(io.RawIOBase):
    """A socket that is read until one time for all of a request, however it trickles in."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.due = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.due - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class Handler(http.server.BaseHTTPRequestHandler):
    """A connection; its requests, one after the other."""

    server: Server

    def setup(self) -> None:
        self.connection = self.request
        self.connection.settimeout(REQUEST_S)
        if self.server.tls is not None:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
            self.request = self.connection
        self.deadline = _Deadline(self.connection)
        self.rfile = io.BufferedReader(self.deadline)
        self.wfile = self.connection.makefile("wb", 0)

    def finish(self) -> None:
        """The server closes the socket that it gave us; TLS made another of it."""
        super().finish()
        with contextlib.suppress(OSError):
            self.connection.close()

    def handle_one_request(self) -> None:
        self.deadline.due = time.monotonic() + REQUEST_S
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def send_response(self, code: int, message: str | None = None) -> None:
        """What was left of the time to read it is not that to write."""
        self.connection.settimeout(REQUEST_S)
        super().send_response(code, message)

    def version_string(self) -> str:
        return "dcmctl"

    def log_message(self, *_: Any) -> None:
        """Nothing: a request is no event."""


class Server(http.server.ThreadingHTTPServer):
    """Of handlers of a kind, on an address of parse_listen()."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = QUEUE

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[Handler],
        connections: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        self._room = threading.BoundedSemaphore(connections)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, handler)
        except OSError as exc:
            raise DcmError(f"can't listen on {_shown(*address)}: {reason(exc)}") from None

    def server_bind(self) -> None:
        """Without http.server's look for our name, which may take a name service its time."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{_shown(self.server_name, self.server_port)}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(timeout=REQUEST_S):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or spoke no TLS, is none of our troubles."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"dcmctl: {type(error).__name__}: {printable(str(error))}", file=sys.stderr)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
