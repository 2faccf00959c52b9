# SPDX-License-Identifier: GPL-2.0-or-later
"""What a donor says of itself over its HTTP status, by default on loopback only."""

from __future__ import annotations

import http.client
import re
import time
from typing import Any

from dcmctl.address import printable
from dcmctl.control import ANSWER_MAX, Json, decode
from dcmctl.errors import DcmError, UsageError, reason
from dcmctl.table import table
from dcmctl.units import format_count, format_duration, format_size

TIMEOUT = 3.0
_ADDRESS = re.compile(
    r"(?:http://)?(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})"
    r"(?P<path>/[!-~]*)?",
    re.ASCII,
)
_LIST_MAX = 1024


def fetch(address: str, timeout: float = TIMEOUT) -> Json:
    """The donor's status object; at most 1 MiB and `timeout` seconds."""
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
                raise DcmError(f"{who} answered more than {ANSWER_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError:
        raise DcmError(f"{who} does not answer within {timeout:g} s") from None
    except (OSError, UnicodeError) as exc:
        raise DcmError(
            f"{who}: {reason(exc)}: is [http] listen on there, and is this its port?"
        ) from None
    except http.client.HTTPException:
        raise DcmError(f"{who} does not speak HTTP there: is this its status port?") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise DcmError(f"{who} answered HTTP {answer.status} {printable(answer.reason, 60)}")
    return decode(bytes(data), who)


# ---- for people: whatever the donor reports, sizes and times made readable ----


def _value(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes") or name == "bytes":
            return format_size(int(value))
        if name.endswith(("_s", "_seconds")):
            return format_duration(value)
        if isinstance(value, int) and (name in ("pid", "port", "id") or abs(value) < 10000):
            return str(value)
        return format_count(float(value))
    return printable(str(value), 80)


def _label(name: str) -> str:
    for end in ("_bytes", "_seconds", "_s"):
        name = name.removesuffix(end)
    return printable(name.replace("_", " "), 40)


def _rows(name: str, items: list[Any]) -> list[str]:
    """A list of objects as a table of its plain members."""
    objects = [item for item in items[:_LIST_MAX] if isinstance(item, dict)]
    if not objects:
        return ["  " + (", ".join(_value("", item) for item in items[:_LIST_MAX]) or "none")]
    columns = [key for key, value in objects[0].items() if not isinstance(value, dict | list)]
    header = [_label(c).upper() + ("<" if isinstance(objects[0][c], str) else "") for c in columns]
    cells = [[_value(c, item.get(c)) for c in columns] for item in objects]
    return ["  " + line for line in table(header, cells, left=0)]


def status_lines(address: str, status: Json) -> list[str]:
    """A donor's status, plain members first, then its groups and lists."""
    lines = [f"donor {printable(address)}"]
    plain = {k: v for k, v in status.items() if not isinstance(v, dict | list)}
    width = max((len(_label(k)) for k in plain), default=0)
    lines += [f"  {_label(k):<{width}}  {_value(k, v)}" for k, v in plain.items()]
    for name, value in status.items():
        if isinstance(value, dict):
            inner = {k: v for k, v in value.items() if not isinstance(v, dict | list)}
            if inner:
                text = ", ".join(f"{_label(k)} {_value(k, v)}" for k, v in inner.items())
                lines.append(f"  {_label(name)}: {text}")
        elif isinstance(value, list):
            lines += ["", f"{_label(name)}:", *_rows(name, value)]
    return lines
