# SPDX-License-Identifier: GPL-2.0-or-later
"""Plain tables and bars, in text that is the same with and without a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dcmctl.status import BLOCK_SIZES

# One letter a block size, so that the mix can be read without colours.
MIX_LETTERS = dict(zip(BLOCK_SIZES, "48136", strict=True))
MIX_LEGEND = "blocks: 4=4K 8=8K 1=16K 3=32K 6=64K, share of pages brought in"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table; the first `left` columns are text, the others numbers.

    A header that ends in '<' is a column of text wherever it stands.
    """
    names = [h.rstrip("<") for h in header]
    is_text = [i < left or h.endswith("<") for i, h in enumerate(header)]
    widths = [
        max(len(names[i]), *(len(row[i]) for row in rows)) if rows else len(names[i])
        for i in range(len(names))
    ]
    lines = []
    for row in [names, *rows]:
        cells = [
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(row, widths, is_text, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def bar(part: int, whole: int, width: int) -> str:
    """`[####----]`; over-full shows as full."""
    filled = 0 if whole <= 0 else min(width, round(part * width / whole))
    return "[" + "#" * filled + "-" * (width - filled) + "]"


def mix_bar(mix: Mapping[str, int], width: int = 10) -> str:
    """Block sizes by their share of the pages: `4444886666`.

    Largest remainders, so that the letters always add up to the width.
    """
    total = sum(mix.values())
    if total <= 0:
        return "-" * width
    exact = {size: mix[size] * width / total for size in BLOCK_SIZES}
    cells = {size: int(value) for size, value in exact.items()}
    rest = sorted(BLOCK_SIZES, key=lambda size: exact[size] - cells[size], reverse=True)
    for size in rest[: width - sum(cells.values())]:
        cells[size] += 1
    return "".join(MIX_LETTERS[size] * cells[size] for size in BLOCK_SIZES)
