# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the smallest budget with which a VM is at most a given share slower than all direct.

The slowdown is the time that the VM's accesses waited, divided by the CPU time of its own threads,
both measured over an interval. For a larger budget, the time waited is scaled by the forecast of
fetches in away.py: faults without a fetch, such as the first write to a page that was fetched
clean, are caused by evictions too, so they shrink with the fetches. Only the time for pages that
were never written before stays the same. For a smaller budget, the time is scaled by the forecast
from a sample of pages (reuse.py). The time that threads wait for a CPU is not included.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcmctl.pager.away import Away
from dcmctl.pager.reuse import Reuse
from dcmctl.pager.why import Waits

STEPS = 16  # the step between budgets tried is 1/STEPS of the present budget
LARGEST = 8  # the largest budget tried, in present budgets


@dataclass(frozen=True)
class Cost:
    """The time that a VM's faults cost in an interval."""

    budget_pages: int
    back_ns: float  # time that accesses waited, except for new pages
    new_ns: float  # time that accesses waited for new pages
    ran_ns: int  # CPU time of its threads, without the pager's
    away: Away
    reuse: Reuse | None = None
    fetched: float = 0.0  # pages that were fetched and then used

    @classmethod
    def of(
        cls,
        budget_pages: int,
        waits: Waits,
        faults: int,
        zero: int,
        ran_ns: int,
        away: Away,
        reuse: Reuse | None = None,
        fetched: float = 0.0,
    ) -> Cost:
        """Split the time waited; each fault is taken to need the same work on this host."""
        new = waits.ns["here"] * zero / faults if faults else 0.0
        return cls(budget_pages, waits.total - new, new, ran_ns, away, reuse, fetched)

    def slower(self, pages: int | None = None) -> float | None:
        """The slowdown against all memory direct: now, or with a budget of `pages`.

        0.1 is 10 % slower; None: not known.
        """
        still: float | None = 1.0
        if pages is not None and pages > self.budget_pages:
            still = self.away.still_fetched(pages - self.budget_pages)
        elif pages is not None and pages < self.budget_pages:
            seen = self.reuse
            still = seen.ratio(self.budget_pages, pages, self.fetched) if seen else None
        if still is None or self.ran_ns <= 0:
            return None
        return (self.back_ns * still + self.new_ns) / self.ran_ns

    def budget_for(self, share: float, smallest: int = 1) -> int | None:
        """The smallest budget, in pages, with a slowdown of at most `share`; None: none is known.

        A smaller budget than the present one is at least `smallest`. If none is known to be
        enough, but the present one is, the present one is returned.
        """
        now = self.slower(self.budget_pages)
        if now is not None and now <= share:
            pages = self.budget_pages
            for step in range(STEPS - 1, 0, -1):
                smaller = self.budget_pages * step // STEPS
                slower = self.slower(smaller)
                if slower is None or slower > share or smaller < smallest:
                    break
                pages = smaller
            return pages
        for step in range((LARGEST - 1) * STEPS + 1):
            pages = self.budget_pages + self.budget_pages * step // STEPS
            slower = self.slower(pages)
            if slower is None:
                return None
            if slower <= share:
                return pages
        return None
