# SPDX-License-Identifier: GPL-2.0-or-later
"""What any budget would give, from how far apart the touches of a sample of pages are.

The core notes, for each touch of a page of its sample, how many other pages were touched since the
last one (core/reuse.c). With LRU and a budget of c pages, touches farther apart than c need a
fetch. LRU-3 is not LRU: of a loop over more than its budget LRU keeps nothing, and LRU-3 keeps what
Proactive has room for. A policy that keeps parts of loops is as good as the convex hull of LRU's
curve (Beckmann and Sanchez, Talus, HPCA'15). So a share KEEPS of what is foretold is the hull's,
the rest LRU's own. Where the curve is convex they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dcmctl.lib.errors import DcmError
from dcmctl.pager.away import BUCKETS_MAX, bucket_width, histogram
from dcmctl.pager.status import Fields

ENOUGH = 200  # touches of the sample that a forecast is made from
KEEPS = 0.7  # proactive_share
LOST_MAX = 0.99  # of the time: some work is done in the rest
NEAR = 0.25  # of the budget: nearer touches, and what goes wrong with them, are left out
BLIND_MAX = 0.25  # of all pages: with more, too many touches may go unseen


@dataclass(frozen=True)
class Reuse:
    """Touches by distance in pages; all figures but `watched` are scaled to all pages."""

    watched: int  # pages in the sample
    pages: int
    blind: int  # of these, pages whose touches may go unseen
    unknown: int  # touches of pages whose last touch is not known
    touches: dict[int, int]

    @classmethod
    def of_status(cls, status: Fields) -> Reuse | None:
        """From libdcm's status answer; None: a version that has no sample."""
        if "reuse" not in status:
            return None
        f = status.group("reuse")
        return cls(
            f.number("watched"),
            f.number("pages"),
            f.number("blind"),
            f.number("unknown"),
            histogram(f.raw("touches"), "reuse"),
        )

    @classmethod
    def of_stats(cls, stats: Mapping[str, int]) -> Reuse | None:
        """From the statistics of a dcmfs file (dcmfs.stats())."""
        if "reuse_watched" not in stats:
            return None
        rows = {key.split()[1]: n for key, n in stats.items() if key.startswith("reuse ")}
        if len(rows) > BUCKETS_MAX:
            raise DcmError("reuse is not a short list")
        return cls(
            stats["reuse_watched"],
            stats.get("reuse_pages", 0),
            stats.get("reuse_blind", 0),
            stats.get("reuse_unknown", 0),
            {int(floor): n for floor, n in rows.items() if floor.isdigit()},
        )

    def since(self, old: Reuse) -> Reuse:
        """The touches after `old`."""
        touches = {floor: n - old.touches.get(floor, 0) for floor, n in self.touches.items()}
        return Reuse(
            self.watched,
            self.pages,
            self.blind,
            max(0, self.unknown - old.unknown),
            {floor: n for floor, n in touches.items() if n > 0},
        )

    def beyond(self, pages: float) -> float:
        """Touches at this distance or more: LRU's misses with so large a budget."""
        n = 0.0
        for floor, touches in self.touches.items():
            width = bucket_width(floor)
            n += touches * min(1.0, max(0.0, (floor + width - pages) / width))
        return n

    @cached_property
    def _hull(self) -> list[tuple[float, float]]:
        """Corners of the lower convex hull of beyond()."""
        corners: list[tuple[float, float]] = []
        edges = {0, *self.touches, *(f + bucket_width(f) for f in self.touches)}
        for x, y in ((float(edge), self.beyond(edge)) for edge in sorted(edges)):
            while len(corners) > 1:
                (x1, y1), (x2, y2) = corners[-2:]
                if (y2 - y1) * (x - x1) < (y - y1) * (x2 - x1):
                    break
                corners.pop()
            corners.append((x, y))
        return corners

    def _hull_at(self, pages: float) -> float:
        for (x1, y1), (x2, y2) in zip(self._hull, self._hull[1:], strict=False):
            if x1 <= pages <= x2:
                return y1 + (y2 - y1) * (pages - x1) / (x2 - x1)
        return 0.0

    def misses(self, pages: float) -> float:
        """Touches that would need a fetch with so large a budget."""
        return KEEPS * self._hull_at(pages) + (1 - KEEPS) * self.beyond(pages)

    def ratio(self, now: int, other: int) -> float | None:
        """Misses with another budget over those with the present one; None: not known.

        Touches within NEAR of the present budget are not all seen.
        """
        if not self.pages or self.blind > BLIND_MAX * self.pages or other < now * NEAR:
            return None
        if self.beyond(now) * self.watched / self.pages < ENOUGH:
            return None
        return self.misses(other) / self.misses(now)


def rate(now: float, ratio: float, lost: float) -> float:
    """Fetches a second, of `now`, when there are `ratio` times as many for the same work.

    `lost`: the share of the time that threads do not work now because of fetches. It grows or
    shrinks with them.
    """
    return now * ratio / (1 + min(lost, LOST_MAX) * (ratio - 1))
