# SPDX-License-Identifier: GPL-2.0-or-later
"""The misses with another budget, foretold from a sample of pages, against exact LRU."""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict

import pytest

from dcmctl.lib.errors import DcmError
from dcmctl.pager.advise import Cost
from dcmctl.pager.away import Away
from dcmctl.pager.reuse import Reuse, fetched_used, rate
from dcmctl.pager.status import Fields
from dcmctl.pager.why import CAUSES, Times, Waits
from tests.dcmctl.test_dcmctl_away import BUDGET, SEED, floor, mixed, skewed, uniform

RATE = 16  # one page of 16 is watched
WARM = 50_000


def misses(pages: list[int], budget: int) -> int:
    """Of exact LRU, after some time."""
    here: OrderedDict[int, None] = OrderedDict()
    n = 0
    for at, page in enumerate(pages):
        if page in here:
            here.move_to_end(page)
            continue
        n += at >= WARM
        here[page] = None
        if len(here) > budget:
            here.popitem(last=False)
    return n


def sampled(pages: list[int]) -> Reuse:
    """The core's counts of pages that a hash chooses, if it sees each touch of them."""
    order: OrderedDict[int, None] = OrderedDict()
    touches: dict[int, int] = {}
    for at, page in enumerate(pages):
        if page * 0x9E3779B1 % (1 << 32) >= (1 << 32) // RATE:
            continue
        if page in order and at >= WARM:
            distance = next(n for n, other in enumerate(reversed(order)) if other == page)
            key = floor(distance * RATE)
            touches[key] = touches.get(key, 0) + RATE
        order[page] = None
        order.move_to_end(page)
    return Reuse(len(order), len(order) * RATE, 0, 0, touches)


@pytest.mark.parametrize("program", [uniform, skewed])
def test_forecast(program: object) -> None:
    """Where LRU's curve is convex."""
    assert callable(program)
    pages = list(itertools.islice(program(random.Random(SEED)), 200_000))
    seen, now = sampled(pages), misses(pages, BUDGET)
    for factor in (0.5, 0.75, 1.25, 1.5):
        said = seen.ratio(BUDGET, int(BUDGET * factor))
        assert said is not None
        real = misses(pages, int(BUDGET * factor)) / now
        assert abs(said - real) < 0.05 + 0.05 * real, (program, factor, said, real)


def test_loop() -> None:
    """LRU's cliff."""
    pages = list(itertools.islice(mixed(random.Random(SEED)), 200_000))
    seen = sampled(pages)
    ratios = [seen.ratio(BUDGET, BUDGET * n // 4) for n in range(1, 9)]
    known = [r for r in ratios if r is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == 8
    loop = Reuse(500, 8000, 0, 0, {7680: 100_000})
    assert loop.beyond(6000) == loop.beyond(1000) == 100_000
    assert loop.beyond(7680 + 256) == pytest.approx(50_000)
    assert loop.beyond(9000) == 0
    assert loop.ratio(4000, 2000) == loop.ratio(4000, 6000) == 1
    # as much is fetched as with any budget: that says nothing
    assert loop.worth(4000, 50_000) == 1


def test_a_budget_is_worth_less() -> None:
    """More is fetched than LRU would: the budget is as good as a smaller one."""
    buckets: dict[int, int] = {}
    for distance in range(4096):
        buckets[floor(distance)] = buckets.get(floor(distance), 0) + 1000
    seen = Reuse(1000, 4096, 0, 0, buckets)
    exact = seen.beyond(2048)
    assert seen.worth(2048, exact) == 1
    assert seen.worth(2048, 0) == 1
    assert 0.5 < seen.worth(2048, exact * 1.3) < 1 < seen.worth(2048, exact * 0.8)
    less, same = seen.ratio(2048, 3072, exact * 1.3), seen.ratio(2048, 3072, exact)
    assert less is not None
    assert same is not None
    assert less > same
    rested = Reuse(1000, 4096, 0, 0, buckets, 1000)
    assert rested.worth(2048, exact * 1.3) == 1
    old = {"FAULT_MISSING": 5, "PREFETCHED": 0}
    new = {"FAULT_MISSING": 10, "PREFETCHED": 100, "PREFETCH_SEEN": 4, "PREFETCH_HIT": 1}
    assert fetched_used(old, new) == 5 + 100 / 4 / 2
    assert fetched_used(old, {"FAULT_MISSING": 10, "PREFETCHED": 100}) == 55


def test_as_many_pages_are_useless_with_any_budget() -> None:
    """LRU of which a part of the memory is of no use, the same with each budget.

    With a share of each budget left out, redis was foretold 1.2 times its fetches.
    """
    pages = list(itertools.islice(uniform(random.Random(SEED)), 200_000))
    seen, budget, useless = sampled(pages), 4000, 1000
    now = misses(pages, budget - useless)
    for factor in (0.6, 0.75, 1.5):
        said = seen.ratio(budget, int(budget * factor), now)
        assert said is not None
        real = misses(pages, int(budget * factor) - useless) / now
        assert abs(said - real) < 0.02, (factor, said, real)
    # the sample tells nothing of what less than a quarter would miss
    assert seen.ratio(budget, 1000, now) == seen.ratio(budget, 1900, now)


def test_too_little_to_tell() -> None:
    few = Reuse(100, 1600, 0, 0, {512: 100})
    assert few.ratio(256, 128) is None
    much = Reuse(100, 1600, 0, 0, {512: 100_000})
    assert much.ratio(256, 128) is not None
    assert much.ratio(256, 32) is None  # so near touches are not seen
    assert Reuse(100, 1600, 1000, 0, {512: 100_000}).ratio(256, 128) is None
    assert Reuse(0, 0, 0, 0, {}).ratio(256, 128) is None
    assert much.since(few).touches == {512: 99_900}


def test_rate() -> None:
    """More fetches for the same work take more time."""
    assert rate(1000, 2, 0.0) == 2000
    assert rate(1000, 2, 1.0) == pytest.approx(1000, abs=10)
    assert rate(1000, 0, 1.0) == 0
    assert rate(1000, 0.5, 0.5) == pytest.approx(667, abs=1)
    old = Times({"1": 0, "2": 0}, {"1": 0, "2": 0}, {"1": 0, "2": 0})
    new = Times({"1": 2_000_000, "2": 10}, {"1": 0, "2": 0}, {"1": 1000, "2": 50})
    # 1000 times off the CPU for 8 us each; for half of these, and 4 us more, by faults
    assert new.lost(old, 10e6, 500) == pytest.approx(0.6, abs=0.01)
    assert new.lost(old, 10e6, 1000) == 1
    assert new.lost(old, 10e6, 0) == 0
    assert Times({}, {}, {}).lost(old, 10e6, 10) is None
    assert old.lost(old, 10e6, 10) is None


def test_a_smaller_budget_is_advised() -> None:
    waits = Waits({**dict.fromkeys(CAUSES, 0), "donor": 100})
    # as many touches at each distance: misses grow evenly as the budget shrinks
    touches = {n: 100 for n in range(0, 4096, 1)}
    buckets: dict[int, int] = {}
    for distance, n in touches.items():
        buckets[floor(distance)] = buckets.get(floor(distance), 0) + n
    seen = Reuse(1000, 4096, 0, 0, buckets)
    cost = Cost.of(2048, waits, 10, 0, 10_000, Away(0, {}), seen)
    assert cost.slower() == pytest.approx(0.01)
    assert cost.slower(1024) == pytest.approx(0.015, abs=0.001)
    assert cost.budget_for(0.0151) in (1024, 1024 + 128)
    assert cost.budget_for(0.0151, smallest=1600) == 1664
    assert cost.budget_for(0.0101) == 2048
    # no more than is known
    assert cost.budget_for(1.0) == 512
    assert Cost.of(2048, waits, 10, 0, 10_000, Away(0, {})).budget_for(1.0) == 2048


def test_read() -> None:
    said = {"watched": 9, "pages": 144, "blind": 16, "unknown": 3, "rested_ms": 7}
    want = Reuse(9, 144, 16, 3, {0: 3, 64: 5}, 7)
    whole = {**said, "touches": [[0, 3], [64, 5]]}
    assert Reuse.of_status(Fields({"reuse": whole}, "vm")) == want
    assert Reuse.of_status(Fields({}, "vm")) is None
    stats = {f"reuse_{name}": n for name, n in said.items()}
    assert Reuse.of_stats({**stats, "reuse 0": 3, "reuse 64": 5, "away 0": 7}) == want
    assert Reuse.of_stats({"away 0": 7}) is None
    wrongs = (7, [7], [[1, -1]], [[1, True]], [[1, 2, 3]], [[0, 0]] * 513)
    for wrong in wrongs:
        with pytest.raises(DcmError):
            Reuse.of_status(Fields({"reuse": {**said, "touches": wrong}}, "vm"))
