# SPDX-License-Identifier: GPL-2.0-or-later
"""The common part of dcmctl's HTTP servers: limits that hold against hostile clients.

Each connection has a thread and one of a fixed number of places. No connection waits for a place:
if all are taken, or half of them by one address, a new connection replaces an old one of the
address that has the most. Connections that have shown the token are replaced last. A request may
take REQUEST_S seconds in all, however slowly it arrives, and a connection lasts LIFE_S, or
TRUSTED_S with a token. While more than a quarter of the places are taken, a connection without a
token is closed after its answer.

The Host header of a request must be an address, localhost or a name given with --name: a foreign
page can make any other name resolve to this server (DNS rebinding).
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
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dcmctl.lib.errors import DcmError, UsageError, printable, reason

if TYPE_CHECKING:
    import ssl  # slow to load

REQUEST_S = 10.0
LIFE_S = 30.0
TRUSTED_S = 600.0
THREAD_S = 1.0  # until the thread of a replaced connection ends
QUEUE = 128
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)|(localhost)):(\d{1,5})", re.ASCII)


def parse_listen(text: str) -> tuple[str, int]:
    """Parse a numeric ADDRESS:PORT: a name service must not decide what is loopback."""
    match = _LISTEN.fullmatch(text)
    port = int(match[4]) if match else -1
    if not match or port > 65535:
        raise UsageError(f"--listen '{printable(text)}' is not ADDRESS:PORT with a numeric address")
    host = "127.0.0.1" if match[3] else match[1] or match[2]
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        raise UsageError(f"--listen '{printable(text)}' has no valid address") from None


def parse_names(given: list[str] | None) -> tuple[str, ...]:
    """Check the host names of --name."""
    names = tuple(name.lower() for name in given or ())
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise UsageError(f"--name '{printable(name)}' is not a host name")
    return names


def host_refused(value: str | None, names: tuple[str, ...]) -> tuple[HTTPStatus, str] | None:
    """The status and reason with which a request's Host is refused; None if it is allowed.

    Any address is allowed.
    """
    if not value:
        return HTTPStatus.BAD_REQUEST, "the request has no Host header"
    try:
        name = urlsplit(f"//{value}").hostname or ""
        if name == "localhost" or name in names:
            return None
        ipaddress.ip_address(name)
    except ValueError:
        return (
            HTTPStatus.FORBIDDEN,
            "this server does not have this name: use its address, or start dcmctl with --name "
            "NAME",
        )
    return None


@dataclass(eq=False)
class Guest:
    """A connection that has a place."""

    handle: socket.socket  # the same connection, to end it from another thread
    source: str
    since: float = field(default_factory=time.monotonic)
    trusted: bool = False  # it has shown the token
    leaving: bool = False

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.handle.shutdown(socket.SHUT_RDWR)

    def old(self) -> bool:
        return time.monotonic() - self.since > (TRUSTED_S if self.trusted else LIFE_S)


def _source(host: str) -> str:
    """The source under which connections are counted: an IPv4 address, or an IPv6 site."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


class _Deadline(io.RawIOBase):
    """A socket with one deadline for the whole request, however slowly it arrives."""

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
    """Serves a connection, and its requests one after the other."""

    server: Server

    def setup(self) -> None:
        self.guest = self.server.guest(self.request)
        self.connection = self.request
        self.connection.settimeout(REQUEST_S)
        if self.server.tls is not None:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
            self.request = self.connection
        self.deadline = _Deadline(self.connection)
        self.rfile = io.BufferedReader(self.deadline)
        self.wfile = self.connection.makefile("wb", 0)

    def finish(self) -> None:
        """Close the TLS socket too; the server closes only the one that it accepted."""
        super().finish()
        with contextlib.suppress(OSError):
            self.connection.close()

    def handle_one_request(self) -> None:
        self.deadline.due = time.monotonic() + REQUEST_S
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.guest.old() or (self.server.crowded() and not self.guest.trusted):
            self.close_connection = True
        refused = host_refused(self.headers.get("Host"), self.server.names)
        if refused:
            self.refuse(*refused)
        return not refused

    def refuse(self, status: HTTPStatus, line: str) -> None:
        """Send an answer other than 200."""
        self.send_error(status, line)

    def send_response(self, code: int, message: str | None = None) -> None:
        """Start the answer, with a deadline of its own."""
        self.connection.settimeout(REQUEST_S)
        super().send_response(code, message)

    def version_string(self) -> str:
        return "dcmctl"

    def log_message(self, *_: Any) -> None:
        """Log nothing: requests are not events."""


class Server(http.server.ThreadingHTTPServer):
    """A server for one class of handlers, on an address from parse_listen()."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = QUEUE

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[Handler],
        connections: int,
        tls: ssl.SSLContext | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        self.tls = tls
        self.names = names
        self._most = connections
        self._guests: dict[socket.socket, Guest] = {}  # by accepted socket
        self._lock = threading.Lock()
        # Twice the places: the thread of a replaced connection may still be writing its answer.
        self._workers = threading.BoundedSemaphore(2 * connections)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, handler)
        except OSError as exc:
            raise DcmError(f"can't listen on {_shown(*address)}: {reason(exc)}") from None

    def server_bind(self) -> None:
        """As http.server does, but without looking up this host's name, which may be slow."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{_shown(self.server_name, self.server_port)}/"

    def guest(self, request: socket.socket) -> Guest:
        with self._lock:
            return self._guests[request]

    def crowded(self) -> bool:
        with self._lock:
            return 4 * len(self._staying()) > self._most

    def _staying(self) -> list[Guest]:
        return [guest for guest in self._guests.values() if not guest.leaving]

    def _make_room(self, source: str) -> Guest | None:
        """Choose the connection that a new one of this source replaces. The lock is held."""
        there = self._staying()
        taken = Counter(guest.source for guest in there)
        if 2 * taken[source] < self._most:
            if len(there) < self._most:
                return None
            source = taken.most_common(1)[0][0]
        guest = min(
            (guest for guest in there if guest.source == source),
            key=lambda guest: (guest.trusted, guest.since),
        )
        guest.leaving = True
        return guest

    def process_request(self, request: Any, client_address: Any) -> None:
        guest = Guest(request.dup(), _source(client_address[0]))
        with self._lock:
            leaving = self._make_room(guest.source)
            self._guests[request] = guest
        if leaving:
            leaving.end()
        if not self._workers.acquire(timeout=THREAD_S):
            self._forget(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            self._workers.release()
            raise

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            guest = self._guests.pop(request)
        guest.handle.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)
            self._workers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors of the server, but not that a client went away or did not speak TLS."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"dcmctl: {type(error).__name__}: {printable(str(error))}", file=sys.stderr)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
