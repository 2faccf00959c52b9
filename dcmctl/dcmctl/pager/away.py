# SPDX-License-Identifier: GPL-2.0-or-later
"""What a larger budget would save, from how long fetched pages had been away.

The core notes when each page is evicted. When an access fetches pages, the core counts how many
pages had been evicted since they were (`struct dcm_lane`, away). Of the pages that the last n
evictions took, those that did not come back are the ones that a larger budget would still hold. If
a share F(s) of evicted pages comes back before s more are evicted, these are the integral of
1 - F(s) from 0 to n. So a budget that is larger by that many pages saves the fetches of all pages
that come back within n evictions.

For LRU this is exact, as the pages that were evicted, in this order, continue the list of those
that are here. It costs nothing: each fetch is counted, no page is sampled. It says nothing of a
smaller budget, as a pager does not see accesses to pages that are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dcmctl.lib.errors import DcmError
from dcmctl.pager.status import Fields

BUCKETS_MAX = 512
ENOUGH = 1000  # fetched pages that a forecast is made from


def bucket_width(floor: int) -> int:
    """Of a bucket of the core's histograms: eight an octave (core/hist.h)."""
    return 1 if floor < 16 else 1 << (floor.bit_length() - 4)


def histogram(rows: object, name: str) -> dict[int, int]:
    """The rows [floor, count] of a status answer, checked."""
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
    """Fetched pages by how many pages were evicted since they were."""

    evicted: int
    fetched: dict[int, int]

    @classmethod
    def of_status(cls, status: Fields) -> Away:
        """From libdcm's status answer."""
        return cls(status.number("evicted_pages"), histogram(status.raw("away"), "away"))

    @classmethod
    def of_stats(cls, stats: Mapping[str, int]) -> Away:
        """From the statistics of a dcmfs file (dcmfs.stats())."""
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
        """The share of fetched pages that would be fetched if the budget were so much larger.

        None if too little was fetched to tell.
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
