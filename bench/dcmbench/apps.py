# SPDX-License-Identifier: GPL-2.0-or-later
"""The apps row: real programs from Debian, plain, under dcmctl run, and with swap on zram.

Under dcmctl run each way to a donor is measured: shared memory and TCP in the clear, and TCP under
TLS. Judged is shared memory, as zram is on this host too. One run more has a budget over the
program's peak: what the pager costs when nothing has to leave.

What is the same for both sides: the limit (a share of the program's peak RSS when it has all
memory), the inputs (in the page cache beforehand, charged to nobody), the output (hashed on
the fly, compared with the plain run's), the CPUs (all), and the allocator of the plain run
(programs.py), which swap on zram gets too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcmbench import host, inputs, programs
from dcmbench.context import MIB, WAYS, Context
from dcmbench.host import BenchError
from dcmbench.report import Row, Store, geomean, now, row

NAMES = ("redis", "sqlite", "sort", "graph", "minimap2")
SHARES = (75, 50, 25)
DIRECT = 150  # percent of the peak: a budget that holds all
SIDES = (*WAYS, "zram")
SLOW_MAX = 9.0  # a run slower than this many times the plain one is ended
ZRAM_TRIES = 2  # the kernel's OOM killer strikes now and then with swap still free


@dataclasses.dataclass
class Results:
    """Of one program, as memory.json has it.

    @seconds: by share, then by side (shm, tcp, tls, zram); a run that failed is not there
    @direct: with all memory direct; @problems: of ours, by shared memory or direct; @others: of
    the other sides; @kills: of runs on zram, by the OOM killer
    """

    name: str
    plain: float
    peak_mib: int
    when: str = dataclasses.field(default_factory=now)
    direct: float | None = None
    seconds: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    others: list[str] = dataclasses.field(default_factory=list)
    counted: list[str] = dataclasses.field(default_factory=list)
    kills: int = 0

    def slowdown(self, side: str, share: int) -> float | None:
        seconds = self.seconds.get(str(share), {}).get(side)
        return seconds / self.plain if seconds is not None else None


def _peer(
    ctx: Context,
    app: programs.App,
    folder: Path,
    size: inputs.Size,
    limit: int,
    timeout: float,
    preload: str,
    algorithm: str,
) -> programs.Outcome:
    ctx.check_time()
    with host.zram(ctx.ledger, 1024 * MIB, algorithm), host.cgroup(ctx.ledger, limit) as group:
        return programs.run(
            ctx,
            app,
            folder,
            size,
            prefix=[],
            env=programs.environment(ctx, preload),
            timeout=timeout,
            cgroup=group,
        )


def _over_budget(done: programs.Outcome, limit: int) -> bool:
    """What is not paged (stacks, libdcm's own) is no part of the budget: bounded."""
    return done.peak > limit + limit // 10 + 32 * MIB


class Measuring:
    """One program: all of its runs."""

    def __init__(
        self, ctx: Context, app: programs.App, folder: Path, size: inputs.Size, algorithm: str
    ) -> None:
        self.ctx, self.app, self.folder, self.size = ctx, app, folder, size
        self.algorithm = algorithm

    def all(self) -> Results:
        plain, first, preload, note = programs.plain(self.ctx, self.app, self.folder, self.size)
        found = Results(self.app.name, plain, first.rss // MIB)
        self.ctx.progress.say(
            f"apps: {self.app.name} plain {plain:.2f} s (own / jemalloc: {note}), "
            f"peak RSS {first.rss // MIB} MiB"
        )
        limit_s = max(plain * SLOW_MAX, 40.0)
        self._direct(found, first, limit_s)
        for share in (50,) if self.ctx.tiny else SHARES:
            limit = first.rss * share // 100 & ~0xFFFF
            found.seconds[str(share)] = {}
            for way in WAYS:
                self._paged(found, first, way, share, limit, limit_s)
            self._swapped(found, first, share, limit, limit_s, preload)
            self.ctx.progress.say(
                f"apps: {self.app.name} {share} %: "
                + ", ".join(f"{s} {t:.2f} s" for s, t in found.seconds[str(share)].items())
            )
        return found

    def _ours(self, way: str, limit: int, limit_s: float) -> programs.Outcome:
        return programs.ours(self.ctx, self.app, self.folder, self.size, way, limit, limit_s)

    def _direct(self, found: Results, first: programs.Outcome, limit_s: float) -> None:
        try:
            done = self._ours("shm", first.rss * DIRECT // 100 & ~0xFFFF, limit_s)
        except BenchError as e:
            found.problems.append(f"{self.app.name}, all direct: {e}")
            return
        if done.result != first.result:
            found.problems.append(f"{self.app.name}, all direct: WRONG RESULT")
            return
        found.direct = round(done.seconds, 3)
        found.counted.append(f"{self.app.name}, all direct: {done.note}")

    def _paged(
        self,
        found: Results,
        first: programs.Outcome,
        way: str,
        share: int,
        limit: int,
        limit_s: float,
    ) -> None:
        where = f"{self.app.name} at {share} % ({way})"
        problems = found.problems if way == "shm" else found.others
        try:
            done = self._ours(way, limit, limit_s)
        except BenchError as e:
            problems.append(f"{where}: {e}")
            return
        if done.result != first.result:
            found.problems.append(f"{where}: WRONG RESULT")
            return
        if _over_budget(done, limit):
            found.problems.append(
                f"{where}: {done.peak // MIB} MiB of anonymous memory seen "
                f"with a budget of {limit // MIB} MiB"
            )
        found.seconds[str(share)][way] = round(done.seconds, 3)
        found.counted.append(f"{where}: {done.note}")

    def _swapped(
        self,
        found: Results,
        first: programs.Outcome,
        share: int,
        limit: int,
        limit_s: float,
        preload: str,
    ) -> None:
        where = f"{self.app.name} at {share} % (zram)"
        for attempt in range(ZRAM_TRIES):
            try:
                done = _peer(
                    self.ctx,
                    self.app,
                    self.folder,
                    self.size,
                    limit,
                    limit_s,
                    preload,
                    self.algorithm,
                )
            except programs.Killed as e:
                found.kills += 1
                if attempt + 1 == ZRAM_TRIES:
                    found.others.append(f"{where}: {e}")
                continue
            except BenchError as e:
                found.others.append(f"{where}: {e}")
                return
            if done.result != first.result:
                found.others.append(f"{where}: WRONG RESULT")
            else:
                found.seconds[str(share)]["zram"] = round(done.seconds, 3)
            return


def _factor(value: float | None) -> str:
    return "-" if value is None else f"x{value:.2f}"


def text(results: Sequence[Results]) -> str:
    lines = [
        f"{'program':<10} {'plain':>7} {'peak':>8} {'direct':>7}"
        + "".join(f" {f'{side} {s}%':>9}" for s in SHARES for side in SIDES)
    ]
    for r in results:
        direct = _factor(None if r.direct is None else r.direct / r.plain)
        line = f"{r.name:<10} {r.plain:6.2f}s {r.peak_mib:5d}MiB {direct:>7}"
        line += "".join(f" {_factor(r.slowdown(side, s)):>9}" for s in SHARES for side in SIDES)
        lines.append(line)
    return "\n".join(lines)


def _average(results: Sequence[Results], side: str, share: int) -> float:
    """Percent slower than plain, geometric mean of those that finished."""
    seen = [v for r in results if (v := r.slowdown(side, share)) is not None]
    return (geomean(seen) - 1) * 100 if seen else float("nan")


def _averages(results: Sequence[Results], share: int) -> str:
    """Of each side, and of both that are compared where both finished."""
    parts = []
    for side in SIDES:
        done = [r for r in results if r.slowdown(side, share) is not None]
        if done:
            parts.append(f"{side} {_average(done, side, share):+.0f} % ({len(done)})")
    both = _both(results, share)
    if both:
        parts.append(
            f"where both finished shm {_average(both, 'shm', share):+.0f} %, zram "
            f"{_average(both, 'zram', share):+.0f} % ({len(both)})"
        )
    return ", ".join(parts)


def _both(results: Sequence[Results], share: int) -> list[Results]:
    return [
        r
        for r in results
        if r.slowdown("shm", share) is not None and r.slowdown("zram", share) is not None
    ]


def _better(results: Sequence[Results], share: int) -> bool:
    """One that the peer could not finish does not count for it, nor against us."""
    both = _both(results, share)
    won = not both or _average(both, "shm", share) < _average(both, "zram", share)
    return won and all(r.slowdown("shm", share) is not None for r in results)


def judge(results: Sequence[Results], absent: Sequence[str], algorithm: str) -> Row:
    """The row, of the programs that there are; @absent: why others are not."""
    problems = [*absent, *(p for r in results for p in r.problems)]
    others = [p for r in results for p in r.others]
    missing = [n for n in NAMES if n not in {r.name for r in results}]
    if missing:
        problems.append(f"not measured: {', '.join(missing)}")
    half = [r for r in results if r.slowdown("shm", 50) is not None]
    at_half = _average(half, "shm", 50) if half else None
    better = all(_better(results, share) for share in (50, 25))
    ok = not problems and at_half is not None and at_half <= 10 and better
    directs = [r.direct / r.plain for r in results if r.direct is not None]
    detail = (
        "value is the average slowdown in percent at 50 % direct, geometric mean over "
        f"{len(half)} programs against all memory, by shared memory in the clear. "
        + " ".join(f"{s} %: {_averages(results, s)}." for s in SHARES)
        + (
            f" All memory direct, a budget of {DIRECT} % of the peak: "
            f"{(geomean(directs) - 1) * 100:+.0f} %."
            if directs
            else ""
        )
        + " Every output compared with the plain run's. zram with "
        + f"{algorithm or 'its default compressor'}."
    )
    if kills := sum(r.kills for r in results):
        detail += f" Runs on zram killed by the kernel's OOM killer: {kills}."
    if problems:
        detail += " Problems: " + "; ".join(problems) + "."
    if others:
        detail += " Without a result: " + "; ".join(others) + "."
    if at_half is not None and at_half > 10:
        detail += f" Missed by {at_half - 10:.0f} points."
    raw = {
        "programs": {r.name: dataclasses.asdict(r) for r in results},
        "zram": algorithm,
    }
    return row("apps", at_half, ok, detail, raw)


def stored(found: Mapping[str, Any] | None) -> dict[str, Results]:
    """Programs of a row in memory.json."""
    programs = (found or {}).get("raw", {}).get("programs", {})
    return {name: Results(**fields) for name, fields in programs.items()}


def apps(ctx: Context, algorithm: str, store: Store) -> Row:
    """Each program is stored as soon as it is measured; others stay as they are in memory.json."""
    size = inputs.SMALL if ctx.tiny else inputs.FULL
    folder = inputs.make(ctx.cache, size)
    inputs.warm(folder)
    results = stored(store.row("apps"))
    chosen = ctx.programs or tuple(n for n in NAMES if not ctx.resume or n not in results)
    absent: list[str] = []

    def so_far() -> Row:
        return judge([results[n] for n in NAMES if n in results], absent, algorithm)

    for app in programs.catalogue(ctx, size):
        if app.name not in chosen:
            continue
        try:
            results[app.name] = Measuring(ctx, app, folder, size, algorithm).all()
        except (BenchError, OSError) as e:
            absent.append(f"{app.name}: {e} (package {app.package})")
        store.put(dataclasses.asdict(dataclasses.replace(so_far(), when=now())))
    found = [results[n] for n in NAMES if n in results]
    ctx.notes["apps"] = "\n".join([text(found), *(c for r in found for c in r.counted)])
    return so_far()
