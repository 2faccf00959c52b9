# SPDX-License-Identifier: GPL-2.0-or-later
"""Forecast how many fetches a larger budget would save.

The core notes when each page is evicted. When an access fetches pages, the core counts them by the
number of pages that were evicted between their own eviction and the fetch (`struct dcm_lane`,
away). Look at the pages of the last n evictions: a larger budget would still hold those of them
that were not fetched again. If a share F(s) of evicted pages is fetched again before s more pages
are evicted, their number is the integral of 1 - F(s) from 0 to n. So a budget larger by this number
of pages saves the fetches of all pages that come back within n evictions.

For LRU the forecast is exact, because the evicted pages, in the order of eviction, continue the LRU
list of the resident pages. It costs nothing: fetches are counted anyway. There is no such forecast
for a smaller budget, because a pager doesn't see accesses to resident pages (see reuse.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dcmctl.lib.errors import DcmError
from dcmctl.pager.status import Fields

BUCKETS_MAX = 512
ENOUGH = 1000  # a forecast needs at least this number of fetched pages


def bucket_width(floor: int) -> int:
    """The width of the bucket that begins at `floor`: eight buckets an octave (core/hist.h)."""
    return 1 if floor < 16 else 1 << (floor.bit_length() - 4)


def histogram(rows: object, name: str) -> dict[int, int]:
    """Check the rows [floor, count] of a status answer, and return them as a dict."""
    rows = rows or []
    if not isinstance(rows, list) or len(rows) > BUCKETS_MAX:
        raise DcmError(f"{name} is not a short list")
    counts: dict[int, int] = {}
    for row in rows:
        if not (
            isinstance(row, list)
            and len(row) == 2
            and all(type(n) is int and 0 <= n < 1 << 64 for n in row)
        ):
            raise DcmError(f"{name}: a row is not a pair of counts")
        counts[row[0]] = row[1]
    return counts


@dataclass(frozen=True)
class Away:
    """Fetched pages, by the number of pages evicted between their eviction and their fetch."""

    evicted: int
    fetched: dict[int, int]

    @classmethod
    def of_status(cls, status: Fields) -> Away:
        """Read them from libdcm's status answer."""
        return cls(status.number("evicted_pages"), histogram(status.raw("away"), "away"))

    @classmethod
    def of_stats(cls, stats: Mapping[str, int]) -> Away:
        """Read them from the statistics of a dcmfs file (dcmfs.stats())."""
        rows = {key.split()[1]: n for key, n in stats.items() if key.startswith("away ")}
        return cls(
            stats.get("evicted_pages", 0),
            {int(floor): n for floor, n in rows.items() if floor.isdigit()},
        )

    def since(self, old: Away) -> Away:
        """The counts since `old`."""
        fetched = {floor: n - old.fetched.get(floor, 0) for floor, n in self.fetched.items()}
        return Away(self.evicted - old.evicted, {f: n for f, n in fetched.items() if n > 0})

    def still_fetched(self, more_pages: int) -> float | None:
        """The share of these fetches that a budget larger by `more_pages` would still need.

        None if there were too few fetches for a forecast.
        """
        total = sum(self.fetched.values())
        if total < ENOUGH or self.evicted <= 0:
            return None
        back = 0.0  # pages that came back within the evictions so far
        held = 0.0  # pages of these evictions that did not come back
        at = 0
        for floor, n in sorted(self.fetched.items()):
            away = 1 - min(1.0, back / self.evicted)
            if away > 0 and held + (floor - at) * away >= more_pages:
                return 1 - back / total
            held += max(0, floor - at) * away
            width = bucket_width(floor)
            later = 1 - min(1.0, (back + n) / self.evicted)
            room = width * (away + later) / 2
            if room > 0 and held + room >= more_pages:
                return 1 - (back + n * (more_pages - held) / room) / total
            back += n
            held += room
            at = floor + width
        return 0.0
