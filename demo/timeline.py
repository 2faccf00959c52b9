# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's timeline as an SVG: where the guest's memory was, and what it did.

Written without a library, so that the demo needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

MIB = 1 << 20
WIDTH, LEFT, RIGHT = 900, 60, 20
MEMORY_TOP, MEMORY_BOTTOM = 40, 260
RATE_TOP, RATE_BOTTOM = 300, 380
HEIGHT = 470
DIRECT, INDIRECT, RATE = "#0072b2", "#e69f00", "#333333"


def _line(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


class _Scale:
    """From seconds and MiB to the picture."""

    def __init__(self, start: float, end: float, top: float) -> None:
        self.start, self.end, self.top = start, max(end, start + 1), top

    def x(self, at: float) -> float:
        share = (at - self.start) / (self.end - self.start)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, mib: float) -> float:
        return MEMORY_BOTTOM - mib / self.top * (MEMORY_BOTTOM - MEMORY_TOP)


def _areas(samples: Sequence[Mapping[str, Any]], s: _Scale) -> list[str]:
    """Direct memory, and on it what is on donors."""
    direct = [(s.x(p["at_s"]), s.y(p["direct_bytes"] / MIB)) for p in samples]
    total = [
        (s.x(p["at_s"]), s.y((p["direct_bytes"] + p["indirect_bytes"]) / MIB)) for p in samples
    ]
    ground = [(direct[-1][0], s.y(0)), (direct[0][0], s.y(0))]
    return [
        f'<polygon points="{_line(direct + ground)}" fill="{DIRECT}" fill-opacity="0.7"/>',
        f'<polygon points="{_line(total + direct[::-1])}" fill="{INDIRECT}" fill-opacity="0.7"/>',
    ]


def _budget(samples: Sequence[Mapping[str, Any]], s: _Scale) -> list[str]:
    line = [(s.x(p["at_s"]), s.y(p["budget_bytes"] / MIB)) for p in samples]
    return [f'<polyline points="{_line(line)}" fill="none" stroke="#000" stroke-dasharray="5 3"/>']


def _phases(samples: Sequence[Mapping[str, Any]], s: _Scale) -> list[str]:
    """A line where each work begins, and its name below, alternately higher and lower."""
    out: list[str] = []
    last = ""
    for p in samples:
        if p["phase"] == last:
            continue
        x, last = s.x(p["at_s"]), p["phase"]
        row = len(out) // 2 % 4
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{MEMORY_TOP}" y2="{RATE_BOTTOM + 6 + 15 * row}" '
            'stroke="#999" stroke-width="0.5"/>'
        )
        out.append(_text(x + 2, RATE_BOTTOM + 16 + 15 * row, last, 'font-size="10"'))
    return out


def _rates(samples: Sequence[Mapping[str, Any]], s: _Scale) -> list[str]:
    """Faults a second."""
    rates = [
        (b["at_s"], (b["faults"] - a["faults"]) / (b["at_s"] - a["at_s"]))
        for a, b in pairwise(samples)
        if b["at_s"] > a["at_s"]
    ]
    most = max((rate for _, rate in rates), default=0) or 1
    line = [(s.x(at), RATE_BOTTOM - rate / most * (RATE_BOTTOM - RATE_TOP)) for at, rate in rates]
    return [
        f'<polyline points="{_line(line)}" fill="none" stroke="{RATE}"/>',
        _text(LEFT, RATE_TOP - 6, f"faults a second, at most {most:.0f}"),
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{RATE_BOTTOM}" y2="{RATE_BOTTOM}" '
        'stroke="#000" stroke-width="0.7"/>',
    ]


def _axes(s: _Scale) -> list[str]:
    out = []
    for mib in range(0, int(s.top) + 1, 256):
        y = s.y(mib)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="#ccc" stroke-width="0.5"/>'
        )
        out.append(_text(LEFT - 5, y + 4, f"{mib}", 'text-anchor="end"'))
    step = next((n for n in (10, 30, 60, 120, 300) if (s.end - s.start) / n < 12), 600)
    at = 0.0
    while at <= s.end - s.start:
        out.append(_text(s.x(s.start + at), MEMORY_BOTTOM + 14, f"{at:.0f} s"))
        at += step
    return out


def _legend() -> list[str]:
    return [
        _text(LEFT, 14, "Memory of a guest with 1 GiB of RAM (MiB)", 'font-weight="bold"'),
        f'<rect x="{LEFT}" y="21" width="10" height="10" fill="{DIRECT}" fill-opacity="0.7"/>',
        _text(LEFT + 14, 30, "direct: in this host"),
        f'<rect x="210" y="21" width="10" height="10" fill="{INDIRECT}" fill-opacity="0.7"/>',
        _text(224, 30, "indirect: on donors"),
        '<line x1="390" x2="420" y1="26" y2="26" stroke="#000" stroke-dasharray="5 3"/>',
        _text(424, 30, "budget"),
    ]


def _death(at_s: float, s: _Scale) -> list[str]:
    """Where a donor is killed."""
    if not s.start < at_s <= s.end:
        return []
    x = s.x(at_s)
    return [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{MEMORY_TOP}" y2="{MEMORY_BOTTOM}" stroke="#c00"/>',
        _text(x + 4, MEMORY_TOP + 10, "a donor is killed", 'fill="#c00"'),
    ]


def draw(samples: Sequence[Mapping[str, Any]], ram_bytes: int, killed_at_s: float = 0.0) -> str:
    """The picture of these samples of demo.json; "" if there are too few."""
    if len(samples) < 2:
        return ""
    s = _Scale(samples[0]["at_s"], samples[-1]["at_s"], ram_bytes / MIB)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        *_legend(),
        *_axes(s),
        *_areas(samples, s),
        *_budget(samples, s),
        *_rates(samples, s),
        *_phases(samples, s),
        *_death(killed_at_s, s),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
