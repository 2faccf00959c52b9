# SPDX-License-Identifier: GPL-2.0-or-later
"""The savings of a larger budget, foretold under a smaller one, against exact LRU."""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Iterator

import pytest

from dcmctl.lib.errors import DcmError
from dcmctl.pager.away import Away
from dcmctl.pager.status import Fields

BUDGET = 2000
SEED = 20


def uniform(rng: random.Random) -> Iterator[int]:
    while True:
        yield rng.randrange(8000)


def skewed(rng: random.Random) -> Iterator[int]:
    while True:
        yield int(12000 * rng.random() ** 3)


def loop(_: random.Random) -> Iterator[int]:
    return itertools.cycle(range(3500))


def mixed(rng: random.Random) -> Iterator[int]:
    """A loop, and random pages beside it."""
    for page in itertools.cycle(range(1500)):
        yield page
        yield 10000 + int(6000 * rng.random() ** 2)


def floor(value: int) -> int:
    """Of the core's bucket for a value."""
    step = max(0, value.bit_length() - 4)
    return value >> step << step


def lru(pages: list[int], budget: int, warm: int) -> tuple[int, Away]:
    """Misses after `warm` accesses, and what the core would count of them."""
    here: OrderedDict[int, None] = OrderedDict()
    gone: dict[int, int] = {}
    away = Away(0, {})
    evicted = misses = began = 0
    for at, page in enumerate(pages):
        if at == warm:
            began = evicted
        if page in here:
            here.move_to_end(page)
            continue
        if page in gone and at >= warm:
            misses += 1
            key = floor(evicted - gone[page])
            away.fetched[key] = away.fetched.get(key, 0) + 1
        here[page] = None
        if len(here) > budget:
            out, _ = here.popitem(last=False)
            evicted += 1
            gone[out] = evicted
    return misses, Away(evicted - began, away.fetched)


@pytest.mark.parametrize("program", [uniform, skewed, loop, mixed])
def test_forecast(program: object) -> None:
    assert callable(program)
    pages = list(itertools.islice(program(random.Random(SEED)), 150_000))
    warm = 50_000
    misses, away = lru(pages, BUDGET, warm)
    for factor in (1.25, 1.5, 2.0):
        said = away.still_fetched(int(BUDGET * (factor - 1)))
        assert said is not None
        real = lru(pages, int(BUDGET * factor), warm)[0] / misses
        assert abs(said - real) < 0.03, (program, factor, said, real)


def test_too_little_to_tell() -> None:
    assert Away(500, {100: 400}).still_fetched(100) is None
    assert Away(0, {100: 4000}).still_fetched(100) is None
    whole, half = Away(9000, {64: 5000, 128: 100}), Away(4000, {64: 3000})
    assert whole.since(half) == Away(5000, {64: 2000, 128: 100})


def test_read() -> None:
    status = Fields({"away": [[0, 3], [64, 5]], "evicted_pages": 9}, "vm")
    assert Away.of_status(status) == Away(9, {0: 3, 64: 5})
    stats = {"away 0": 3, "away 64": 5, "evicted_pages": 9, "latency fault p50": 7}
    assert Away.of_stats(stats) == Away(9, {0: 3, 64: 5})
    for wrong in (7, [7], [[1, -1]], [[1, True]], [[1, 2, 3]], [[0, 0]] * 513):
        with pytest.raises(DcmError):
            Away.of_status(Fields({"away": wrong}, "vm"))
