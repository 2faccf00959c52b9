# SPDX-License-Identifier: GPL-2.0-or-later
"""Sizes, times and rates as people write and read them."""

from __future__ import annotations

import re

from dcmctl.lib.errors import UsageError

PAGE = 4096
SIZE_MAX = 1 << 46  # a VM has at most 2^32 - 2 pages (16 TiB); more is a typing error

_SIZE = re.compile(r"(\d{1,20})(?:\.(\d{1,6}))?\s*([KMGT]?)(?:I?B)?", re.IGNORECASE | re.ASCII)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_size(text: str, what: str = "size", *, default_shift: int = 0) -> int:
    """Bytes from `256M`, `1.5G`, `4096`; units are powers of 1024.

    A plain number is shifted by default_shift: QEMU's -m counts in MiB.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{what} '{text}' is not a size; write for example 256M or 1.5G")
    whole, frac, unit = match.groups()
    shift = _SHIFT[unit.upper()] if unit else default_shift
    value = int(whole) << shift
    if frac:
        if not shift:
            raise UsageError(f"{what} '{text}' is a part of a byte; write a unit: K, M, G or T")
        value += (int(frac) << shift) // 10 ** len(frac)
    if value > SIZE_MAX:
        raise UsageError(f"{what} '{text}' is more than {format_size(SIZE_MAX)}")
    return value


def format_size(value: int) -> str:
    """A size with at most three significant digits: 0, 512K, 64M, 1.5G."""
    number = float(value)
    for unit in ("", "K", "M", "G", "T"):
        if abs(number) < 1023.5 or unit == "T":
            break
        number /= 1024
    if unit and abs(number) < 9.95 and round(number, 1) != round(number):
        return f"{number:.1f}{unit}"
    return f"{number:.0f}{unit}"


def exact_size(value: int) -> str:
    """The shortest exact spelling of a size, for configurations."""
    for unit in ("T", "G", "M", "K"):
        shift = _SHIFT[unit]
        if value and value % (1 << shift) == 0:
            return f"{value >> shift}{unit}"
    return str(value)


def format_count(value: float) -> str:
    """Short decimal count: 0, 3.2, 950, 12.3k, 4.5M."""
    if value < 0:
        return "-"
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    if value < 99.95 and round(value, 1) != round(value):
        return f"{value:.1f}{unit}"
    return f"{value:.0f}{unit}"


def format_ns(value: int) -> str:
    """A time: 850ns, 17us, 1.2ms, 3.4s; `-` for none."""
    if value <= 0:
        return "-"
    number = float(value)
    for unit in ("ns", "us", "ms", "s"):
        if number < 999.5 or unit == "s":
            break
        number /= 1000
    if unit != "ns" and number < 9.95:
        return f"{number:.1f}{unit}"
    return f"{number:.0f}{unit}"


def format_duration(seconds: float) -> str:
    """An uptime: 12s, 3m05s, 2h10m, 4d03h."""
    total = max(0, int(seconds))
    minutes, secs = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{secs:02}s"
    return f"{secs}s"


def format_percent(share: float | None) -> str:
    """A share as a percentage; `-` when nothing was counted."""
    if share is None:
        return "-"
    return f"{share * 100:.1f}%"
