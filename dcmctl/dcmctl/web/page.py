# SPDX-License-Identifier: GPL-2.0-or-later
"""An HTTP server for the operator's page: its files and its API, safe against hostile clients.

Who may access what:

    the page's own files        all clients: they are the same on every host
    data that the page shows    on loopback all clients; else only clients with the token
    changes                     only clients with the token

The token is sent in an Authorization header, never in a URL or a cookie, so it gets into no log,
and requests that a foreign page makes don't have it. The Content-Security-Policy makes the browser
run only code from this server's files, no inline code.

Headers and bodies are limited to what the page sends. httpd.py limits time and number of requests,
and the names of the server.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dcmctl.lib.errors import DcmError, printable, reason
from dcmctl.web.httpd import Handler, Server

CONNECTIONS = 32
BODY_MAX = 4096
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Query = Mapping[str, str]
Get = Callable[[Query], Any]
Post = Callable[[dict[str, Any]], Any]


class Refused(Exception):
    """An answer other than 200: a status and one line."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class File:
    data: bytes
    kind: str
    tag: str


def load_files(folder: Path) -> dict[str, File]:
    """Load all files into memory, so that no name in a request is looked up in the file system."""
    found: dict[str, File] = {}
    try:
        for path in sorted(folder.rglob("*")):
            if path.suffix in TYPES and path.is_file():
                data = path.read_bytes()
                tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
                found["/" + path.relative_to(folder).as_posix()] = File(
                    data, TYPES[path.suffix], tag
                )
    except OSError as exc:
        raise DcmError(f"{folder}: {reason(exc)}: install dcmctl again") from None
    if "/index.html" not in found:
        raise DcmError(f"the page is not in {folder}: install dcmctl again")
    found["/"] = found["/index.html"]
    return found


@dataclass(frozen=True)
class Gate:
    """Decides whether a request is allowed."""

    token: str | None  # None: no changes are allowed
    reading: bool  # whether reading needs the token too

    def check_token(self, header: str | None) -> None:
        if self.token is None:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "changes are off: start dcmctl dashboard with --token-file FILE",
            )
        kind, _, given = (header or "").partition(" ")
        # Hashes have equal lengths, so the time of the comparison reveals nothing.
        a, b = (hashlib.sha256(t.strip().encode()).digest() for t in (given, self.token))
        if not hmac.compare_digest(a, b) or kind.lower() != "bearer":
            raise Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")


class _Request(Handler):
    protocol_version = "HTTP/1.1"
    server: Site
    unread = True  # the request's body has not been read, if it has one

    def handle_one_request(self) -> None:
        self.unread = True
        super().handle_one_request()

    # -- methods --

    def do_GET(self) -> None:
        self._guarded(self._get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._guarded(self._post)

    def _guarded(self, answer: Callable[[str, Query], None]) -> None:
        try:
            parts = urlsplit(self.path)
            query = {k: v[0] for k, v in parse_qs(parts.query, max_num_fields=8).items()}
            answer(parts.path, query)
        except Refused as exc:
            self.refuse(exc.status, str(exc))
        except DcmError as exc:
            self.refuse(HTTPStatus.CONFLICT, str(exc))
        except (ValueError, RecursionError):
            self.refuse(HTTPStatus.BAD_REQUEST, "the request is malformed")

    def _get(self, path: str, query: Query) -> None:
        file = self.server.files.get(path)
        if file is not None:
            if self.headers.get("If-None-Match") == file.tag:
                self._send(HTTPStatus.NOT_MODIFIED, b"", file.kind, file.tag)
            else:
                self._send(HTTPStatus.OK, file.data, file.kind, file.tag)
            return
        get = self.server.gets.get(path)
        if get is None:
            raise Refused(HTTPStatus.NOT_FOUND, "not found")
        if self.server.gate.reading:
            self._check_token()
        self._send_json(get(query))

    def _post(self, path: str, _: Query) -> None:
        post = self.server.posts.get(path)
        if post is None:
            raise Refused(HTTPStatus.NOT_FOUND, "not found")
        # A foreign page lacks the token; these checks are a second defence.
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise Refused(HTTPStatus.FORBIDDEN, "a request of another page is refused")
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            raise Refused(HTTPStatus.FORBIDDEN, "a request of another page is refused")
        self._check_token()
        if self.headers.get_content_type() != "application/json":
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"
            )
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_MAX:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is missing or too long")
        body = json.loads(self.rfile.read(int(length)))
        self.unread = False
        if not isinstance(body, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        self._send_json(post(body))

    def _check_token(self) -> None:
        self.server.gate.check_token(self.headers.get("Authorization"))
        self.guest.trusted = True

    # -- answers --

    def _has_body(self) -> bool:
        headers = getattr(self, "headers", None) or {}
        return "Content-Length" in headers or "Transfer-Encoding" in headers

    def refuse(self, status: HTTPStatus, line: str) -> None:
        self._send_json({"error": line}, status)

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        data = json.dumps(value, separators=(",", ":")).encode()
        self._send(status, data, "application/json")

    def _send(self, status: HTTPStatus, data: bytes, kind: str, tag: str = "") -> None:
        if self.unread and self._has_body():
            # Otherwise the unread body would be taken for the next request.
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if tag:
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "no-cache")
        else:
            self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.UNAUTHORIZED:
            # Not Basic: the browser would show a dialog of its own.
            self.send_header("WWW-Authenticate", 'Bearer realm="dcmctl"')
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors that http.server finds (unknown method, line too long) without an echo."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log method, path and status, but no query and no header."""
        if self.server.verbose:
            path = urlsplit(getattr(self, "path", "-")).path
            status = code.value if isinstance(code, HTTPStatus) else code
            line = f"{self.client_address[0]} {self.command} {printable(path, 60)} {status}"
            print(f"dcmctl: {printable(line)}", file=sys.stderr, flush=True)


class Site(Server):
    """The server of the page."""

    def __init__(
        self,
        address: tuple[str, int],
        gate: Gate,
        files: dict[str, File],
        *,
        tls: ssl.SSLContext | None = None,
        names: tuple[str, ...] = (),
        verbose: bool = False,
    ) -> None:
        self.gate = gate
        self.files = files
        self.verbose = verbose
        self.gets: dict[str, Get] = {}
        self.posts: dict[str, Post] = {}
        super().__init__(address, _Request, CONNECTIONS, tls, names)
