# SPDX-License-Identifier: GPL-2.0-or-later
"""What any budget would give, from how far apart the touches of a sample of pages are.

The core notes, for each touch of a page of its sample, how many other pages were touched since the
last one (core/reuse.c). With LRU and a budget of c pages, touches farther apart than c need a
fetch. LRU-3 is not LRU, and a part of the budget has pages that were fetched with others and are
not used. So the present budget is as good as another for LRU, about the one with which LRU would
miss what is measured now; any other budget is taken to be as good in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dcmctl.lib.errors import DcmError
from dcmctl.pager.away import BUCKETS_MAX, bucket_width, histogram
from dcmctl.pager.status import Fields

ENOUGH = 200  # touches of the sample that a forecast is made from
STEPS = 32  # of a budget, that are looked at
RESTED_MAX_MS = 50  # of a time of which all touches are taken to be counted
LOST_MAX = 0.99  # of the time: some work is done in the rest
AHEAD = 0.5  # of the pages fetched ahead and used: as much as fits what was measured best
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
    rested_ms: int = 0  # for how long no touches were counted

    @property
    def rested(self) -> bool:
        return self.rested_ms > RESTED_MAX_MS

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
            f.number("rested_ms"),
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
            stats.get("reuse_rested_ms", 0),
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
            max(0, self.rested_ms - old.rested_ms),
        )

    def beyond(self, pages: float) -> float:
        """Touches at this distance or more: LRU's misses with so large a budget."""
        n = 0.0
        for floor, touches in self.touches.items():
            width = bucket_width(floor)
            n += touches * min(1.0, max(0.0, (floor + width - pages) / width))
        return n

    def worth(self, now: int, fetched: float) -> float:
        """By which factor LRU's budget would be smaller, or larger, than the present one.

        `fetched`: pages that were fetched, and used. Where the curve is flat that says little,
        and a factor far from 1 has to be worth it.
        """
        if self.rested or fetched <= 0:
            return 1.0

        def off(factor: float) -> float:
            misses = max(self.beyond(now * factor), 1.0)
            return abs(math.log(misses / fetched)) + abs(math.log(factor)) / 2

        return min((step / STEPS for step in range(STEPS // 2, STEPS + STEPS // 4 + 1)), key=off)

    def ratio(self, now: int, other: int, fetched: float = 0) -> float | None:
        """Misses with another budget over those with the present one; None: not known.

        `fetched` as for worth(). Touches within NEAR of the present budget are not all seen.
        """
        if not self.pages or self.blind > BLIND_MAX * self.pages or other < now * NEAR:
            return None
        worth = self.worth(now, fetched)
        misses = self.beyond(now * worth)
        if misses * self.watched / self.pages < ENOUGH:
            return None
        return self.beyond(other * worth) / misses


def rate(now: float, ratio: float, lost: float) -> float:
    """Fetches a second, of `now`, when there are `ratio` times as many for the same work.

    `lost`: the share of the time that threads do not work now because of fetches. It grows or
    shrinks with them.
    """
    return now * ratio / (1 + min(lost, LOST_MAX) * (ratio - 1))


def fetched_used(old: Mapping[str, int], new: Mapping[str, int]) -> float:
    """Pages that were fetched between two readings of a VM's counters, and used."""
    names = ("FAULT_MISSING", "PREFETCHED", "PREFETCH_SEEN", "PREFETCH_HIT")
    missing, ahead, seen, hit = (new.get(n, 0) - old.get(n, 0) for n in names)
    return missing + ahead * AHEAD * (hit / seen if seen > 0 else 1.0)
