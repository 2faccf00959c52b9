# SPDX-License-Identifier: GPL-2.0-or-later
"""Donor addresses: tcp:HOST:PORT or unix:/path, optionally with NAME= in front."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass

from dcmctl.lib.errors import UsageError, printable, reason

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
UNIX_PATH_MAX = 107  # sun_path less its NUL
ADDRESS_MAX = 159  # libdcm's limit

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def check_name(name: str, what: str) -> str:
    """Refuse a name that can't be used as a file name, in an INI section and in a table."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{what} '{printable(name)}' is not a name: "
            "up to 63 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return name


def connect_unix(path: str, timeout: float) -> socket.socket:
    """Connect to a UNIX socket. A full backlog gives EAGAIN: try again until the timeout."""
    deadline = time.monotonic() + timeout
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        while True:
            try:
                sock.connect(path)
                return sock
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(0.02)
    except BaseException:
        sock.close()
        raise


@dataclass(frozen=True)
class Address:
    """The address on which a donor listens."""

    kind: str  # "tcp" or "unix"
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        kind, sep, rest = text.partition(":")
        if len(text) > ADDRESS_MAX:
            raise UsageError(
                f"donor address '{printable(text, 60)}' is longer than {ADDRESS_MAX} bytes"
            )
        if kind == "unix" and sep:
            return cls._unix(text, rest)
        if kind == "tcp" and sep:
            return cls._tcp(text, rest)
        raise UsageError(
            f"donor address '{printable(text)}' is neither tcp:HOST:PORT nor unix:/path"
        )

    @classmethod
    def _unix(cls, text: str, path: str) -> Address:
        if not path.startswith("/"):
            raise UsageError(f"donor address '{printable(text)}': the path must start with '/'")
        if len(path.encode()) > UNIX_PATH_MAX:
            raise UsageError(
                f"donor address '{printable(text)}': the path is longer than {UNIX_PATH_MAX} bytes"
            )
        if not path.isprintable() or any(c in path for c in " ;#"):
            raise UsageError(
                f"donor address '{printable(text)}': no blanks, ';', '#' "
                "or control characters in the path"
            )
        return cls("unix", path=path)

    @classmethod
    def _tcp(cls, text: str, rest: str) -> Address:
        if rest.startswith("["):
            host, sep, port = rest[1:].partition("]:")
            try:
                socket.inet_pton(socket.AF_INET6, host)
            except OSError:
                sep = ""
        else:
            host, sep, port = rest.rpartition(":")
            if not _HOST.fullmatch(host):
                sep = ""
        if not sep:
            raise UsageError(
                f"donor address '{printable(text)}' is not tcp:HOST:PORT "
                "(an IPv6 address in brackets: tcp:[::1]:9740)"
            )
        if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
            raise UsageError(f"donor address '{printable(text)}': the port must be 1 to 65535")
        return cls("tcp", host=host, port=int(port))

    def __str__(self) -> str:
        if self.kind == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"

    def probe(self, timeout: float) -> str | None:
        """None if the connection is accepted, else the reason why it is not."""
        try:
            if self.kind == "unix":
                connect_unix(self.path, timeout).close()
            else:
                socket.create_connection((self.host, self.port), timeout).close()
        except TimeoutError:
            return f"no answer within {timeout:g} s"
        except (OSError, UnicodeError) as exc:
            return reason(exc)
        return None


@dataclass(frozen=True)
class Donor:
    """A donor as configured."""

    name: str
    address: Address
    status: str | None = None  # HOST:PORT of its HTTP status
    drain: bool = False  # configured, but not used
    group: str | None = None  # VMs can choose all donors of a group by this name

    @classmethod
    def parse(cls, text: str, default_name: str) -> Donor:
        """Read ADDR or NAME=ADDR. The path of a UNIX socket may contain '='."""
        name, sep, rest = text.partition("=")
        if not sep or ":" in name:
            return cls(default_name, Address.parse(text))
        return cls(check_name(name, "donor name"), Address.parse(rest))


def parse_donors(texts: list[str]) -> list[Donor]:
    """Donors from the command line; those without a name are d1, d2, ..."""
    donors: list[Donor] = []
    for number, text in enumerate(texts, 1):
        donor = Donor.parse(text, f"d{number}")
        for other in donors:
            if other.name == donor.name:
                raise UsageError(f"two donors are called '{donor.name}': write NAME=ADDR")
            if other.address == donor.address:
                raise UsageError(f"donor {donor.address} is given twice")
        donors.append(donor)
    return donors
