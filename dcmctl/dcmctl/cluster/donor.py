# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a donor's status over HTTP. By default donors serve it on loopback only."""

from __future__ import annotations

import http.client
import re
import time

from dcmctl.lib.errors import DcmError, UsageError, reason, printable
from dcmctl.lib.table import bar, table
from dcmctl.lib.units import format_count, format_duration, format_percent, format_size
from dcmctl.pager.status import Fields
from dcmctl.pager.vmsock import Json, decode

TIMEOUT = 3.0
_ADDRESS = re.compile(
    r"(?:http://)?(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})"
    r"(?P<path>/[!-~]*)?",
    re.ASCII,
)
ANSWER_MAX = 16 << 20  # the answer lists every slab


def fetch(address: str, timeout: float = TIMEOUT) -> Json:
    """Fetch the donor's status object; an error if it exceeds 16 MiB or takes over `timeout` s."""
    match = _ADDRESS.fullmatch(address)
    port = int(match["port"]) if match else 0
    if not match or not 1 <= port <= 65535:
        raise UsageError(
            f"'{printable(address)}' is not HOST:PORT of a donor's HTTP status "
            "([http] listen = in its donor.conf)"
        )
    who = f"donor {printable(address)}"
    path = match["path"] or ""
    connection = http.client.HTTPConnection(match["v6"] or match["host"], port, timeout=timeout)
    deadline = time.monotonic() + timeout
    try:
        connection.request("GET", path if path.strip("/") else "/status")
        answer = connection.getresponse()
        data = bytearray()
        while part := answer.read1(65536):
            data += part
            if len(data) > ANSWER_MAX:
                raise DcmError(f"{who} sent an answer of more than {ANSWER_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError:
        raise DcmError(f"{who} does not answer within {timeout:g} s") from None
    except (OSError, UnicodeError) as exc:
        raise DcmError(
            f"{who}: {reason(exc)}: check that dcm-donord runs, and [http] listen in its donor.conf"
        ) from None
    except http.client.HTTPException:
        raise DcmError(
            f"{who} does not speak HTTP: use the port of [http] listen in its donor.conf"
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        raise DcmError(f"{who} answered HTTP {answer.status} {printable(answer.reason, 60)}")
    return decode(bytes(data), who)


# ---- as text ----


def _percent(part: int, whole: int) -> str:
    return format_percent(part / whole if whole else None)


def status_lines(address: str, status: Json) -> list[str]:
    """The donor's status as lines: its memory, its sessions, its connections' counters."""
    who = f"donor {printable(address)}"
    f = Fields(status, who)
    memory = f.group("memory")
    used, capacity = memory.number("used_bytes"), memory.number("capacity_bytes")
    lines = [
        f"{who}: {f.text('state') or '-'}, pid {f.number('pid')}, "
        f"up {format_duration(f.number('uptime_ms') / 1000)}, dcm-donord {f.text('version') or '-'}"
    ]

    def put(label: str, text: str) -> None:
        lines.append(f"  {label:<10}  {text}")

    put(
        "lent",
        f"{bar(used, capacity, 20)} {format_size(used)} of {format_size(capacity)} capacity "
        f"({_percent(used, capacity)}), backed by {format_size(memory.number('backed_bytes'))}",
    )
    put(
        "host",
        f"{format_size(memory.number('host_free_bytes'))} free of "
        f"{format_size(memory.number('host_total_bytes'))}, head room "
        f"{format_size(memory.number('head_room_bytes'))}, room to lend "
        f"{format_size(memory.number('room_bytes'))}",
    )
    put(
        "slabs",
        f"of {format_size(memory.number('slab_bytes'))}: "
        + ", ".join(
            f"{memory.number('slabs_' + kind)} {kind}"
            for kind in ("mapped", "evicting", "spare", "releasing", "free")
        ),
    )
    evictions = f.group("evictions")
    put(
        "evictions",
        f"{evictions.number('asked')} asked for, {evictions.number('done')} given back, "
        f"{evictions.number('forced')} taken by force",
    )
    data = f.group("data")
    put(
        "data",
        f"{data.number('connections')} connections, "
        f"{format_count(data.number('reads'))} reads ({format_size(data.number('read_bytes'))}), "
        f"{format_count(data.number('writes'))} writes "
        f"({format_size(data.number('written_bytes'))}); accesses by shm are not counted",
    )
    lines += ["", *_tenants(f), "", *_sessions(f)]
    return lines


def _tenants(f: Fields) -> list[str]:
    rows = [
        [
            t.text("tenant") or "-",
            format_size(t.number("bytes")),
            format_size(t.number("quota_bytes")),
            str(t.number("sessions")),
            str(t.number("connections")),
            str(t.number("quota_refusals")),
        ]
        for t in f.groups("tenants")
    ]
    header = ["TENANT<", "BYTES", "QUOTA", "SESSIONS", "CONNECTIONS", "REFUSED"]
    return table(header, rows) if rows else ["no tenants"]


def _sessions(f: Fields) -> list[str]:
    rows = [
        [
            s.text("session") or "-",
            s.text("tenant") or "-",
            s.text("state") or "-",
            format_duration(s.number("age_ms") / 1000),
            str(s.number("slabs")),
            format_size(s.number("bytes")),
            s.text("peer") or "-",
        ]
        for s in f.groups("sessions")
    ]
    header = ["SESSION<", "TENANT<", "STATE<", "AGE", "SLABS", "BYTES", "PEER<"]
    return table(header, rows) if rows else ["no sessions"]
