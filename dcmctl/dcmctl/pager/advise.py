# SPDX-License-Identifier: GPL-2.0-or-later
"""Which budget makes a VM only so much slower than with all of its memory direct.

A larger one than now, or the smallest that is still enough.

Slower by: the time that its accesses waited, over the CPU time that its own threads ran. All of it
is measured over an interval. With a larger budget, the waits shrink as the fetches do (away.py):
faults without a fetch, like the first write to a page that came back clean, come of evictions too.
Only the share of faults on pages that were never there stays. With a smaller budget they grow, as
a sample of pages says (reuse.py). Waiting for a CPU is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcmctl.pager.away import Away
from dcmctl.pager.reuse import Reuse
from dcmctl.pager.why import Waits

STEPS = 16  # budgets looked at, to the next doubling
LARGEST = 8  # times the present budget


@dataclass(frozen=True)
class Cost:
    """The time that a VM's faults cost in an interval."""

    budget_pages: int
    back_ns: float  # that accesses waited for pages that had left
    new_ns: float  # for new pages
    ran_ns: int  # CPU time of its threads, without the pager's
    away: Away
    reuse: Reuse | None = None
    fetched: float = 0.0  # pages, and used

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
        """This host's own work is shared out evenly among faults."""
        new = waits.ns["here"] * zero / faults if faults else 0.0
        return cls(budget_pages, waits.total - new, new, ran_ns, away, reuse, fetched)

    def slower(self, pages: int | None = None) -> float | None:
        """By which share it is slower than all direct, now or with so large a budget.

        None if that is not known.
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
        """The smallest budget, in pages, for a slowdown of at most `share`; None: none is known.

        At least `smallest`; the present one if it is enough and no smaller one is known to be.
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
