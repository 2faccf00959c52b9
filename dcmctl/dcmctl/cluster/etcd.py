# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of etcd, over the JSON gateway of its v3 API, with the few requests that dcmctl needs.

Of several endpoints, the one that answered last is asked first. Every request has a time limit and
every answer a size limit; callers check the values. A watch is read line by line; the caller learns
from it only that a key has changed, and reads all keys again.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import re
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcmctl.lib.errors import DcmError, UsageError, printable, reason
from dcmctl.lib.keyfile import read_private

ANSWER_MAX = 4 << 20
TIMEOUT = 3.0
ENDPOINTS_MAX = 16
PREFIX = "/kvm-dcm/donors/"
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decode(value: Any, limit: int) -> str | None:
    """The text in a base64 field; None for anything else."""
    if not isinstance(value, str) or len(value) > 2 * limit:
        return None
    try:
        return base64.b64decode(value, validate=True).decode()
    except ValueError:
        return None


def range_end(prefix: str) -> str:
    """The first key after all keys with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def number(value: Any) -> int:
    """An int64 field, which etcd sends as text."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


@dataclass(frozen=True)
class Access:
    """The addresses of etcd, the prefix of its keys, and the credentials."""

    endpoints: tuple[str, ...]
    prefix: str = PREFIX
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_file: Path | None = None

    @classmethod
    def read(cls, section: configparser.SectionProxy | dict[str, str]) -> Access:
        values = dict(section)
        endpoints = tuple(
            text.strip() for text in values.pop("endpoints", "").split(",") if text.strip()
        )
        if not 1 <= len(endpoints) <= ENDPOINTS_MAX:
            raise UsageError("[etcd] endpoints = must name 1 to 16, as http(s)://HOST:PORT")
        for text in endpoints:
            _endpoint(text)
        prefix = values.pop("prefix", PREFIX)
        if not prefix.isascii() or not prefix.isprintable() or not 1 <= len(prefix) <= 200:
            raise UsageError("[etcd] prefix is not 1 to 200 printable ASCII characters")

        def path(name: str) -> Path | None:
            text = values.pop(name, None)
            return None if text is None else Path(text)

        access = cls(
            endpoints,
            prefix,
            path("ca"),
            path("cert"),
            path("key"),
            values.pop("user", None),
            path("password-file"),
        )
        for left in values:
            raise UsageError(f"[etcd] has no setting '{printable(left)}'")
        if (access.cert is None) != (access.key is None):
            raise UsageError("[etcd] cert and key come together")
        if (access.user is None) != (access.password_file is None):
            raise UsageError("[etcd] user and password-file come together")
        if access.user is not None and any(e.startswith("http:") for e in endpoints):
            raise UsageError("[etcd] a password is sent over https:// only: change endpoints =")
        return access


def _endpoint(text: str) -> tuple[str, str, int]:
    try:
        url = urllib.parse.urlsplit(text)
        port = url.port
    except ValueError:
        url, port = urllib.parse.urlsplit(""), None
    if url.scheme not in ("http", "https") or not url.hostname or not port or url.path.strip("/"):
        raise UsageError(f"etcd endpoint '{printable(text)}' is not http(s)://HOST:PORT")
    return url.scheme, url.hostname, port


class EtcdError(DcmError):
    """etcd can't be reached, or refuses the request."""


class Etcd:
    """A connection to etcd, for one thread."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._endpoints = list(access.endpoints)
        self._token: str | None = None
        self._tls: ssl.SSLContext | None = None
        if any(text.startswith("https:") for text in access.endpoints):
            try:
                self._tls = ssl.create_default_context(
                    cafile=None if access.ca is None else str(access.ca)
                )
                if access.cert is not None:
                    self._tls.load_cert_chain(access.cert, access.key)
            except (OSError, ssl.SSLError) as exc:
                raise DcmError(f"etcd's certificates: {reason(exc)}") from None

    # ---- one request ----

    def _connect(self, endpoint: str, timeout: float) -> http.client.HTTPConnection:
        scheme, host, port = _endpoint(endpoint)
        if scheme == "https":
            assert self._tls is not None
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _post(
        self, connection: http.client.HTTPConnection, path: str, body: dict[str, Any]
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = self._token
        connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse()

    def _one(self, endpoint: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        deadline = time.monotonic() + TIMEOUT
        connection = self._connect(endpoint, TIMEOUT)
        try:
            answer = self._post(connection, path, body)
            data = bytearray()
            while part := answer.read1(65536):
                data += part
                if len(data) > ANSWER_MAX or time.monotonic() > deadline:
                    raise TimeoutError("its answer is too large or too slow")
        finally:
            connection.close()
        # a stream answers with several lines: take the first
        line = bytes(data).partition(b"\n")[0]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise http.client.HTTPException("its answer is not a JSON object")
        return answer.status, value

    def _login(self, endpoint: str) -> None:
        access = self.access
        if access.user is None or access.password_file is None:
            return
        secret = read_private(access.password_file).strip()
        body = {"name": access.user, "password": secret}
        self._token = None
        status, answer = self._one(endpoint, "/v3/auth/authenticate", body)
        token = answer.get("token")
        if status != 200 or not isinstance(token, str) or not token.isprintable():
            raise EtcdError(
                f"etcd {endpoint} refuses user {printable(access.user)}: check user and "
                "password-file"
            )
        self._token = token

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to one endpoint after the other; return the first answer."""
        why = ""
        for endpoint in list(self._endpoints):
            try:
                if self._token is None:
                    self._login(endpoint)
                status, answer = self._one(endpoint, path, body)
                if status == 401 and self.access.user is not None:
                    self._login(endpoint)  # the token may have expired
                    status, answer = self._one(endpoint, path, body)
            except (OSError, http.client.HTTPException, UnicodeError) as exc:
                why = f"{endpoint}: {reason(exc)}"
                continue
            if self._endpoints[0] != endpoint:
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
            if status != 200:
                said = answer.get("message") or answer.get("error") or f"HTTP {status}"
                raise EtcdError(f"etcd {endpoint}: {printable(str(said))}")
            return answer
        raise EtcdError(f"etcd can't be reached: {printable(why)}")

    # ---- requests ----

    def get_all(self, limit: int) -> tuple[list[tuple[str, str | None]], bool]:
        """At most `limit` keys with the prefix (which is cut off) and values; are there more?"""
        prefix = self.access.prefix
        body = {"key": encode(prefix), "range_end": encode(range_end(prefix)), "limit": limit}
        answer = self.ask("/v3/kv/range", body)
        kvs = answer.get("kvs", [])
        if not isinstance(kvs, list) or len(kvs) > limit:
            raise EtcdError("etcd sent an answer without a list of keys")
        found: list[tuple[str, str | None]] = []
        for kv in kvs:
            key = decode(kv.get("key"), 1024) if isinstance(kv, dict) else None
            if key is None or not key.startswith(prefix):
                continue
            found.append((key[len(prefix) :], decode(kv.get("value", ""), 4096)))
        return found, bool(answer.get("more"))

    def lease(self, seconds: int) -> int:
        made = number(self.ask("/v3/lease/grant", {"TTL": seconds}).get("ID"))
        if not made:
            raise EtcdError("etcd sent an answer without a lease")
        return made

    def keep(self, lease: int) -> bool:
        """Renew a lease; False if it has ended."""
        answer = self.ask("/v3/lease/keepalive", {"ID": str(lease)})
        result = answer.get("result")
        return isinstance(result, dict) and number(result.get("TTL")) > 0

    def revoke(self, lease: int) -> None:
        self.ask("/v3/lease/revoke", {"ID": str(lease)})

    def claim(self, name: str, value: str, lease: int) -> str | None:
        """Put a key, unless it exists with another value: return that value then."""
        key = encode(self.access.prefix + name)
        put = {"requestPut": {"key": key, "value": encode(value), "lease": str(lease)}}
        compare = [{"key": key, "target": "CREATE", "result": "EQUAL", "createRevision": "0"}]
        same = [{"key": key, "target": "VALUE", "result": "EQUAL", "value": encode(value)}]
        for condition in (compare, same):
            answer = self.ask("/v3/kv/txn", {"compare": condition, "success": [put]})
            if answer.get("succeeded") is True:
                return None
        found = dict(self.get_all(1024)[0])
        return found.get(name) or "?"

    def watch(self, silence: float) -> Iterator[None]:
        """Yield when the watch has begun, then at each change of a key with the prefix."""
        prefix = self.access.prefix
        body = {
            "create_request": {
                "key": encode(prefix),
                "range_end": encode(range_end(prefix)),
                "progress_notify": True,
            }
        }
        endpoint = self._endpoints[0]
        self._endpoints.append(self._endpoints.pop(0))  # next time, try another one first
        if self._token is None:
            self._login(endpoint)
        connection = self._connect(endpoint, silence)
        try:
            answer = self._post(connection, "/v3/watch", body)
            while line := answer.readline(ANSWER_MAX):
                if len(line) >= ANSWER_MAX or answer.status != 200:
                    return
                yield None
        finally:
            connection.close()
