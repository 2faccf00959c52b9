# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and bars in plain text; the same whether output is a terminal or not."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table: text is aligned left, numbers right.

    The first `left` columns, and those whose header ends in '<', are text; the others are numbers.
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
    """`[####----]`; more than `whole` is drawn as full."""
    filled = 0 if whole <= 0 else min(width, round(part * width / whole))
    return "[" + "#" * filled + "-" * (width - filled) + "]"
