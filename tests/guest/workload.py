# SPDX-License-Identifier: GPL-2.0-or-later
"""The work done in the guest, and the right answers, computed on the host.

Each job is real programs from Debian; work.sh runs them. None of the answers
comes from the guest: what it prints is compared with what this computes.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "payload"
PAYLOAD = (FOLDER / "work.sh", FOLDER / "query.sql")
MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """One piece of work: what it is, how to start it, how to judge it."""

    name: str
    what: str
    command: str
    check: Callable[[str], str]  # "" when the output is right, else what is wrong
    timeout: float


@dataclass(frozen=True)
class Done:
    """The result of a job."""

    name: str
    what: str
    ok: bool
    detail: str
    seconds: float


def _seq_lines(first: int, last: int) -> Iterator[bytes]:
    for start in range(first, last + 1, 50_000):
        numbers = range(start, min(start + 50_000, last + 1))
        yield ("\n".join(map(str, numbers)) + "\n").encode()


@cache
def seq_bytes(first: int, last: int) -> int:
    return sum(len(part) for part in _seq_lines(first, last))


@cache
def seq_sha256(first: int, last: int) -> str:
    """sha256 of what `seq first last` prints."""
    digest = hashlib.sha256()
    for part in _seq_lines(first, last):
        digest.update(part)
    return digest.hexdigest()


@cache
def redis_sha256(count: int) -> str:
    digest = hashlib.sha256()
    for i in range(1, count + 1):
        key = (i * 7919) % count + 1
        digest.update(b"%0200d\n" % (key * 7919))
    return digest.hexdigest()


@cache
def sqlite_answer() -> str:
    """The same SQL on the host's own SQLite."""
    base = sqlite3.connect(":memory:")
    lines = []
    text = "\n".join(
        line
        for line in (FOLDER / "query.sql").read_text().splitlines()
        if not line.lstrip().startswith("--")
    )
    for statement in text.split(";"):
        if statement.strip():
            lines += ["|".join(map(str, row)) for row in base.execute(statement)]
    base.close()
    return "\n".join(lines)


def _wants(word: str) -> Callable[[str], str]:
    def check(output: str) -> str:
        return "" if word in output.split() else f"expected {word}, got {output[-300:]!r}"

    return check


def _check_sqlite(output: str) -> str:
    want = sqlite_answer().splitlines()
    got = output.splitlines()
    if got == want:
        return ""
    bad = next((f"{g!r}, not {w!r}" for g, w in zip(got, want, strict=False) if g != w), "")
    return f"{len(got)} lines of {len(want)}, first wrong one {bad or '(one is missing)'}"


def _check_stress(output: str) -> str:
    """stress-ng must have passed, and must have done something."""
    if re.search(r"\b(error|detected|corrupt)", output, re.IGNORECASE):
        return f"stress-ng complains: {output[-600:]!r}"
    passed = re.search(r"passed: (\d+)", output)
    failed = re.search(r"failed: (\d+)", output)
    ops = re.search(r"metrc:.*\bvm\s+(\d+)\s", output)
    if not (passed and failed and ops):
        return f"no verdict in {output[-600:]!r}"
    if int(passed[1]) != 2 or int(failed[1]) != 0 or int(ops[1]) == 0:
        return f"passed {passed[1]}, failed {failed[1]}, operations {ops[1]}"
    return ""


# Numbers of eight digits: nine bytes a line, no two pages alike.
BASE = 10_000_000


def hold(mib: int, timeout: float = 120) -> Job:
    last = BASE + mib * MIB // 9
    want = seq_bytes(BASE, last)
    return Job(
        "hold",
        f"write {want >> 20} MiB to tmpfs and leave it",
        f"sh work.sh hold {BASE} {last}",
        _wants(str(want)),
        timeout,
    )


def held(mib: int, timeout: float = 120) -> Job:
    last = BASE + mib * MIB // 9
    return Job(
        "held",
        f"sha256 of the {mib} MiB left alone since",
        "sh work.sh held",
        _wants(seq_sha256(BASE, last)),
        timeout,
    )


def stress(method: str, mib: int, seconds: int, timeout: float = 240, ops: int = 0) -> Job:
    """`mib` is of both workers together. At most `seconds`, or `ops` of stress-ng's, if given."""
    return Job(
        f"stress-ng {method}",
        f"stress-ng --vm 2 --verify, {mib} MiB, method {method}",
        f"sh work.sh stress {method} {mib // 2}M {seconds} {ops or ''}",
        _check_stress,
        timeout,
    )


def sort(lines: int, buffer_mib: int = 160, timeout: float = 180) -> Job:
    first, last = BASE, BASE + lines - 1
    return Job(
        "sort",
        f"shuf and sort {lines} lines",
        f"sh work.sh sort {first} {last} {buffer_mib}M",
        _wants(seq_sha256(first, last)),
        timeout,
    )


def sqlite(timeout: float = 180) -> Job:
    return Job(
        "sqlite3",
        "250000 rows, index, update, integrity check, queries",
        "sh work.sh sqlite",
        _check_sqlite,
        timeout,
    )


def xz(mib: int, level: int = 6, timeout: float = 180) -> Job:
    last = BASE + mib * MIB // 9
    return Job(
        "xz",
        f"xz -{level} round trip of {mib} MiB",
        f"sh work.sh xz {BASE} {last} {level}",
        _wants(seq_sha256(BASE, last)),
        timeout,
    )


def redis(count: int, timeout: float = 180) -> Job:
    if count % 100:
        raise ValueError("redis takes keys by the hundred")
    return Job(
        "redis",
        f"{count} keys written in order, read back in another",
        f"sh work.sh redis {count}",
        _wants(redis_sha256(count)),
        timeout,
    )


def scratch(mib: int, timeout: float = 120) -> Job:
    last = BASE + mib * MIB // 9
    return Job(
        "scratch",
        f"{mib} MiB through a disk with O_DIRECT",
        f"sh work.sh scratch {BASE} {last}",
        _wants(seq_sha256(BASE, last)),
        timeout,
    )
