# SPDX-License-Identifier: GPL-2.0-or-later
"""Plain tables and bars, in text that is the same with and without a terminal."""

from __future__ import annotations

from collections.abc import Sequence


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
