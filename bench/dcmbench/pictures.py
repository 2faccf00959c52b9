# SPDX-License-Identifier: GPL-2.0-or-later
"""Pictures of measured rows: SVG by matplotlib, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "kvm-dcm",
        "svg.fonttype": "none",  # text stays text
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
    }
)

from matplotlib import pyplot as plt  # noqa: E402 - its settings come first

from dcmbench.document import SHARES, Found  # noqa: E402

# Colours that can be told apart with the usual kinds of colour blindness, and a mark for each.
LOOKS: dict[str, tuple[str, str, str]] = {
    "shm": ("shared memory", "#0072b2", "o"),
    "tcp": ("TCP", "#009e73", "s"),
    "tls": ("TLS", "#cc79a7", "^"),
    "zram": ("swap on zram", "#d55e00", "x"),
}
COLOURS = ("#999999", "#d55e00", "#e69f00", "#cc79a7", "#f0e442", "#56b4e9", "#0072b2", "#000000")
MARKS = "vxs^pDo*"


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)
    # Remove blanks at the ends of lines.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def _panels(count: int) -> tuple[Any, list[Any]]:
    columns = min(count, 3)
    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False, layout="constrained"
    )
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_axis_off()
    return figure, flat[:count]


def slowdown(found: Found) -> Any | None:
    """Each program's time over its time alone, by the share of its memory that is direct."""
    programs = found.get("memory", {}).get("apps-shm", {}).get("raw", {}).get("programs", {})
    if not programs:
        return None
    figure, axes = _panels(len(programs))
    for ax, (name, p) in zip(axes, programs.items(), strict=True):
        for side, (label, colour, mark) in LOOKS.items():
            points = [
                (share, p["seconds"][str(share)][side] / p["plain"])
                for share in SHARES
                if side in p["seconds"].get(str(share), {})
            ]
            if p["direct"] is not None and side == "shm":
                points.insert(0, (100, p["direct"] / p["plain"]))
            if points:
                x, y = zip(*points, strict=True)
                ax.plot(x, y, color=colour, marker=mark, markersize=4, label=label)
        ax.axhline(1, color="#666666", linewidth=0.8, linestyle=":")
        ax.set_title(name)
        ax.set_yscale("log")
        ax.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        ax.set_yticks([], minor=True)
        ax.set_xlim(105, 20)
        ax.set_xticks([100, *SHARES])
        ax.set_xlabel("direct, % of the peak")
        ax.set_ylabel("time over time alone")
    axes[0].legend()
    return figure


def misses(found: Found) -> Any | None:
    """The misses of each policy on each trace, by the share of memory."""
    raw = found.get("memory", {}).get("policy", {}).get("raw", {})
    if not raw.get("misses"):
        return None
    figure, axes = _panels(len(raw["misses"]))
    for ax, (name, by_share) in zip(axes, raw["misses"].items(), strict=True):
        shares = sorted((int(s) for s in by_share), reverse=True)
        lines = dict(raw["names"])
        lines["pages"] = "LRU-3, blocks: pages fetched"
        for (policy, label), colour, mark in zip(lines.items(), COLOURS, MARKS, strict=True):
            values = [max(by_share[str(s)][policy], 1) for s in shares]
            style = "--" if policy == "pages" else "-"
            ax.plot(
                shares,
                values,
                color=colour,
                marker=mark,
                markersize=4,
                linestyle=style,
                label=label,
            )
        ax.set_title(name)
        ax.set_yscale("log")
        ax.invert_xaxis()
        ax.set_xlabel("direct, % of the footprint")
        ax.set_ylabel("misses")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def latency(found: Found) -> Any | None:
    """The distribution of the times of touches that fault.

    None if a side was not measured: the existing picture, which has all sides, is kept then.
    """
    memory = found.get("memory", {})
    lines: dict[str, Mapping[str, Any]] = {}
    for id_ in ("fault-shm", "fault-tcp", "fault-tls", "rand-vs-zram"):
        lines |= memory.get(id_, {}).get("raw", {}).get("latency_ns", {})
    if not lines.keys() >= LOOKS.keys():
        return None
    figure, (ax,) = _panels(1)
    figure.set_size_inches(5.5, 3.4)
    for side, (label, colour, mark) in LOOKS.items():
        # Draw the 99.9th percentile instead of the last value, which is one single fault.
        times = [ns / 1e3 for ns in (*lines[side]["at"][:-1], lines[side]["p999"])]
        parts = [*range(len(times) - 1), 99.9]
        ax.plot(times, parts, color=colour, marker=mark, markevery=20, label=label)
    ax.set_xscale("log")
    ax.set_xlabel("us from touch to bytes, a fault of 4 KiB (logarithmic)")
    ax.set_ylabel("% of faults that take no longer")
    ax.legend()
    return figure


def pauses(found: Found) -> Any | None:
    """How long a program stands still when a trace starts, by the amount written before."""
    raw = found.get("gc", {}).get("start-pause", {}).get("raw", {})
    if not raw.get("pauses_ms"):
        return None
    figure, (ax,) = _panels(1)
    figure.set_size_inches(5.5, 3.4)
    for (label, values), colour, mark in zip(
        raw["pauses_ms"].items(), COLOURS[1:], MARKS, strict=False
    ):
        ax.plot(raw["written_mib"], values, color=colour, marker=mark, markersize=4, label=label)
    ax.set_xlabel("MiB written since CLEAN")
    ax.set_ylabel("ms")
    ax.set_yscale("symlog", linthresh=0.1)
    ax.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


# By name: the function that draws it, the title.
PICTURES: dict[str, tuple[Callable[[Found], Any | None], str]] = {
    "slowdown": (slowdown, "Time of programs over their time alone, by how much is direct"),
    "misses": (misses, "Misses of each policy, by how much is direct"),
    "latency": (latency, "How long faults take, as a distribution"),
    "gc-pauses": (pauses, "How long a program stands still when a trace starts"),
}


def draw(found: Found, folder: Path) -> Iterator[tuple[str, str]]:
    """Draw all pictures that there are rows for; yield the name and title of each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, title) in PICTURES.items():
        figure = make(found)
        if figure is not None:
            _save(figure, folder / f"{name}.svg")
            yield name, title
