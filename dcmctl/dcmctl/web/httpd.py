# SPDX-License-Identifier: GPL-2.0-or-later
"""What our HTTP servers have in common: limits that hold whoever connects.

A thread a connection, so many and no more. Nobody waits for a place: when all are taken, or half of
them by one address, a new connection takes the place of an old one, of the address that has most.
A connection that has shown a token keeps its place longest. A request has REQUEST_S seconds in all,
however it trickles in, and a connection LIFE_S, or TRUSTED_S with a token; while more than a
quarter of the places are taken one without a token ends with its answer.

Every request names us by an address, as localhost or by a name we were given: any other name could
be made to resolve to us by somebody else's page (DNS rebinding).
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
    import ssl  # takes long to load

REQUEST_S = 10.0
LIFE_S = 30.0
TRUSTED_S = 600.0
THREAD_S = 1.0  # for one of those whose connections were ended to end
QUEUE = 128
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
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


def parse_names(given: list[str] | None) -> tuple[str, ...]:
    """Of --name: host names by which we are reached."""
    names = tuple(name.lower() for name in given or ())
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise UsageError(f"--name '{printable(name)}' is not a host's name")
    return names


def host_refused(value: str | None, names: tuple[str, ...]) -> tuple[HTTPStatus, str] | None:
    """What is wrong with a request's Host. Any address is fine."""
    if not value:
        return HTTPStatus.BAD_REQUEST, "no Host in the request"
    try:
        name = urlsplit(f"//{value}").hostname or ""
        if name == "localhost" or name in names:
            return None
        ipaddress.ip_address(name)
    except ValueError:
        return (
            HTTPStatus.FORBIDDEN,
            "this name is not one of ours: use the address, or start dcmctl with --name NAME",
        )
    return None


@dataclass(eq=False)
class Guest:
    """A connection that has a place."""

    handle: socket.socket  # the same connection, to end it from another thread
    source: str
    since: float = field(default_factory=time.monotonic)
    trusted: bool = False  # has shown the token
    leaving: bool = False

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.handle.shutdown(socket.SHUT_RDWR)

    def old(self) -> bool:
        return time.monotonic() - self.since > (TRUSTED_S if self.trusted else LIFE_S)


def _source(host: str) -> str:
    """Whose places are counted together: an address, of IPv6 what one site has."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


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
        """An answer that is not what was asked for."""
        self.send_error(status, line)

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
        names: tuple[str, ...] = (),
    ) -> None:
        self.tls = tls
        self.names = names
        self._most = connections
        self._guests: dict[socket.socket, Guest] = {}  # by the server's own sockets
        self._lock = threading.Lock()
        # Whose connection is ended may still be at work on his answer.
        self._workers = threading.BoundedSemaphore(2 * connections)
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

    def guest(self, request: socket.socket) -> Guest:
        with self._lock:
            return self._guests[request]

    def crowded(self) -> bool:
        with self._lock:
            return 4 * len(self._staying()) > self._most

    def _staying(self) -> list[Guest]:
        return [guest for guest in self._guests.values() if not guest.leaving]

    def _make_room(self, source: str) -> Guest | None:
        """Who leaves, that one more of this source can come. Under the lock."""
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
        """A client that went away, or spoke no TLS, is none of our troubles."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"dcmctl: {type(error).__name__}: {printable(str(error))}", file=sys.stderr)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
