# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of docs/benchmarks.md that are made from measured rows."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Found = dict[str, dict[str, Row]]  # by file (FILES), then by id

FILES = ("memory", "gc", "kernel", "redundancy", "jvm")
SIDES = {"direct": "all direct", "shm": "shm", "tcp": "TCP", "tls": "TLS", "zram": "zram"}
SHARES = (75, 50, 25)
BLOCK = re.compile(r"(<!-- ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.S)


def load(folder: Path) -> Found:
    """Read the measured rows, and the description of the machine, under the key `machine`."""
    found: Found = {}
    for name in FILES:
        path = folder / f"{name}.json"
        if path.exists():
            rows = json.loads(path.read_text(encoding="utf-8"))
            found[name] = {r["id"]: r for r in rows if r["value"] is not None}
    path = folder / "machine.json"
    if found and path.exists():
        found["machine"] = {"machine": json.loads(path.read_text(encoding="utf-8"))}
    return found


def shown(text: str, name: str, title: str) -> str:
    """The document, with a link to this picture in the picture's block."""

    def one(match: re.Match[str]) -> str:
        begin, block, old, end = match.groups()
        mine = block == f"picture-{name}"
        return begin + (f"![{title}](pictures/{name}.svg)\n" if mine else old) + end

    return BLOCK.sub(one, text)


def filled(text: str, found: Found) -> str:
    """The document, with each block replaced that there are rows for."""

    def one(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        return begin + _block(name, old, found) + end

    return BLOCK.sub(one, text)


def _block(name: str, old: str, found: Found) -> str:
    kind, _, file = name.partition("-")
    if name == "machine":
        return _machine(found.get("machine", {}).get("machine", {})) or old
    if kind == "picture":
        return old  # a picture: pictures.py replaces it once it is drawn
    if name == "columns":
        return _columns(found.get("memory", {}), old)
    if name == "apps":
        return _apps(found.get("memory", {})) or old
    if kind == "rows" and file in FILES:
        return _rows(found.get(file, {}), old)
    if kind == "details" and file in FILES:
        return _details(found.get(file, {}), old)
    raise ValueError(f"docs/benchmarks.md: no block is called {name}")


def _table(head: Sequence[str], lines: Sequence[str]) -> str:
    rule = "| --- " + "| ---: " * (len(head) - 1) + "|"
    return "\n".join(["| " + " | ".join(head) + " |", rule, *lines]) + "\n"


def _keyed(old: str) -> dict[str, str]:
    """The lines of a table, by the id in their first column."""
    return {m[1]: m[0] for m in re.finditer(r"^\| `([^`]+)`.*$", old, re.M)}


def _machine(machine: Row) -> str:
    """The table of the machine, without date and load, as each row has its own date."""
    left_out = ("date", "load at the start")
    lines = [f"| {k} | {v} |" for k, v in machine.items() if k not in left_out]
    return "\n".join(["| | |", "| --- | --- |", *lines]) + "\n" if lines else ""


def _order(rows: Mapping[str, Row], old: Mapping[str, str]) -> list[str]:
    """All ids: those of the document in its order, then those that are new."""
    return [*old, *(i for i in rows if i not in old)]


def _rows(rows: Mapping[str, Row], old: str) -> str:
    lines = _keyed(old)
    for id_ in _order(rows, lines):
        if id_ in rows:
            r = rows[id_]
            lines[id_] = (
                f"| `{id_}` | {r['what']} | {r['value']:g} | {r['target']} | "
                f"{'yes' if r['ok'] else '**no**'} | {r.get('when', '')[:10]} |"
            )
    head = "| id | what | value | target | met | measured |\n| --- | --- | ---: | --- | --- | --- |"
    return "\n".join([head, *lines.values()]) + "\n"


def _details(rows: Mapping[str, Row], old: str) -> str:
    """A paragraph for each row: its detail text, which explains the figures."""
    paragraph = re.compile(r"^- `([^`]+)`: .*\n(?:  .*\n)*", re.M)
    found = {m[1]: m[0].rstrip("\n") for m in paragraph.finditer(old)}
    for id_ in _order(rows, found):
        if id_ in rows:
            text = " ".join(f"- `{id_}`: {rows[id_]['detail']}".split())
            found[id_] = "\n".join(
                textwrap.wrap(text, 100, subsequent_indent="  ", break_on_hyphens=False)
            )
    return "\n".join(found.values()) + "\n" if found else ""


def _columns(rows: Mapping[str, Row], old: str) -> str:
    """The table of rows of bench/access.c, with a column for each way to reach a donor."""
    lines = _keyed(old)
    for id_ in ("seq-vs-zram", "rand-vs-zram", "scale-2"):
        if id_ in rows and "columns" in rows[id_].get("raw", {}):
            raw = rows[id_]["raw"]
            cells = [f"{raw['columns'][s]:g}" if s in raw["columns"] else "" for s in SIDES]
            lines[id_] = f"| `{id_}`, {raw['unit']} | " + " | ".join(cells) + " |"
    return _table(["row", *SIDES.values()], list(lines.values())) if lines else old


def _apps(rows: Mapping[str, Row]) -> str:
    """The table of programs, with each way's slowdown and its bound."""
    found = {way: rows.get(f"apps-{way}", {}).get("raw", {}) for way in ("shm", "tls")}
    lines = []
    for name, p in found["shm"].get("programs", {}).items():
        cells = []
        for share in map(str, SHARES):
            for side in (*found, "zram"):
                seconds = p["seconds"].get(share, {}).get(side)
                bound = found.get(side, {}).get("bound", {}).get(name, {})
                cell = "-" if seconds is None else f"{seconds / p['plain']:.2f}"
                cells.append(f"{cell} ({bound[share]:.2f})" if share in bound else cell)
        direct = f"{p['direct'] / p['plain']:.2f}" if p["direct"] is not None else "-"
        alone = f"{p['plain']:.1f} s, {p['peak_mib']} MiB"
        lines.append(f"| `{name}` | {alone} | {direct} | " + " | ".join(cells) + " |")
    head = ["program", "alone", "all direct"]
    head += [f"{share} % {SIDES[side]}" for share in SHARES for side in (*found, "zram")]
    return _table(head, lines) if lines else ""
