# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows apps-shm and apps-tls: real programs, plain, under dcmctl run, and on swap on zram.

Under dcmctl run, donors are on this host; they are reached through shared memory without
encryption, or over TCP with TLS. One more run has a budget above the program's peak: it shows what
the pager costs when no page has to leave.

Each result is shown with its bound, the slowdown that a perfect pager would have: the time alone,
plus, for each miss of Belady's optimum with 4 KiB pages, the least time of a fault (the bare
userfaultfd round trip in Raw; for TLS also the TCP round trip and AES of a page). The misses are
those of the row policy. That row replays a shorter run of the program, so the bound is computed
for that run, as a ratio.

Both sides have the same limit (a share of the peak RSS of the program with all memory), the same
inputs (in the page cache beforehand, charged to no cgroup), the same CPUs (all), and the allocator
of the plain run (programs.py). Their output is hashed as it comes and compared with the plain
run's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcmbench import host, inputs, programs
from dcmbench.context import MIB, Context
from dcmbench.host import BenchError
from dcmbench.report import Row, Store, geomean, now, row

NAMES = (
    *("redis", "sqlite", "sort", "graph", "minimap2"),
    *("xz", "mawk", "jq", "xsltproc", "cc1plus"),
)
SHARES = (75, 50, 25)
AIMS = {50: 10, 25: 40}  # percent slower, on average, at most
WAYS = ("shm", "tls")
IDS = {way: f"apps-{way}" for way in WAYS}
DIRECT = 150  # percent of the peak: with this budget no page has to leave
SIDES = (*WAYS, "zram")
SLOW_MAX = 5.0  # a run slower than this many times the plain one is ended
ZRAM_TRIES = 2  # the OOM killer sometimes ends a program though swap is free


@dataclasses.dataclass
class Results:
    """The results of one program, in the form of memory.json.

    @seconds: times by share, then by side (shm, tls, zram); a failed run has none
    @direct: time with all memory direct; @short: time alone of the shorter run that was traced
    @problems: by side; those with all memory direct are under shm
    @kills: number of runs on zram that the OOM killer ended
    """

    name: str
    plain: float
    peak_mib: int
    when: str = dataclasses.field(default_factory=now)
    direct: float | None = None
    short: float | None = None
    seconds: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    problems: dict[str, list[str]] = dataclasses.field(
        default_factory=lambda: {side: [] for side in SIDES}
    )
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
    """Whether a run used more than its budget and a bounded rest that is not paged (stacks)."""
    return done.peak > limit + limit // 10 + 32 * MIB


class Measuring:
    """Measures one program: does all of its runs."""

    def __init__(
        self, ctx: Context, app: programs.App, folder: Path, size: inputs.Size, algorithm: str
    ) -> None:
        self.ctx, self.app, self.folder, self.size = ctx, app, folder, size
        self.algorithm = algorithm

    def all(self) -> Results:
        plain, first, preload, note = programs.plain(self.ctx, self.app, self.folder, self.size)
        found = Results(self.app.name, plain, first.rss // MIB)
        self.ctx.progress.say(
            f"apps: {self.app.name} plain {plain:.2f} s (own / tcmalloc: {note}), "
            f"peak RSS {first.rss // MIB} MiB"
        )
        found.short = self._short()
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

    def _short(self) -> float:
        """Seconds alone of the shorter run of the program, which the row policy has traced."""
        ctx, size = self.ctx, inputs.SMALL if self.ctx.tiny else inputs.FULL
        app = next(a for a in programs.catalogue(ctx, size) if a.name == self.app.name)
        folder = inputs.make(ctx.cache, size)
        env = programs.environment(ctx, programs.preloaded(app))
        return round(programs.alone(ctx, app, folder, size, env).seconds, 3)

    def _ours(self, way: str, limit: int, limit_s: float) -> programs.Outcome:
        return programs.ours(self.ctx, self.app, self.folder, self.size, way, limit, limit_s)

    def _direct(self, found: Results, first: programs.Outcome, limit_s: float) -> None:
        try:
            done = self._ours("shm", first.rss * DIRECT // 100 & ~0xFFFF, limit_s)
        except BenchError as e:
            found.problems["shm"].append(f"{self.app.name}, all direct: {e}")
            return
        if done.result != first.result:
            found.problems["shm"].append(f"{self.app.name}, all direct: WRONG RESULT")
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
        problems = found.problems[way]
        try:
            done = self._ours(way, limit, limit_s)
        except BenchError as e:
            problems.append(f"{where}: {e}")
            return
        if done.result != first.result:
            problems.append(f"{where}: WRONG RESULT")
            return
        if _over_budget(done, limit):
            problems.append(
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
                    found.problems["zram"].append(f"{where}: {e}")
                continue
            except BenchError as e:
                found.problems["zram"].append(f"{where}: {e}")
                return
            if done.result != first.result:
                found.problems["zram"].append(f"{where}: WRONG RESULT")
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


def _mean(values: Sequence[float]) -> float | None:
    """Percent slower than alone: the geometric mean of these ratios; None if there are none."""
    return (geomean(values) - 1) * 100 if values else None


def _average(results: Sequence[Results], side: str, share: int) -> float | None:
    """Percent slower than alone, the mean over the programs that finished."""
    return _mean([v for r in results if (v := r.slowdown(side, share)) is not None])


def _slower(results: Sequence[Results], way: str) -> list[str]:
    """Programs that finish on zram, but are slower or were ended as too slow on donors."""
    found = []
    for r in results:
        for share in SHARES:
            ours, swap = r.slowdown(way, share), r.slowdown("zram", share)
            if swap is not None and (ours is None or ours > swap):
                found.append(f"{r.name} at {share} % ({_factor(ours)}, {_factor(swap)})")
    return found


def bounds(
    results: Sequence[Results], policy: Mapping[str, Any] | None, floor_ns: float
) -> dict[str, dict[str, float]]:
    """By program and share: the bound, as time over time alone (see the top of this file)."""
    raw = (policy or {}).get("raw", {})
    return {
        r.name: {
            str(share): round(1 + by_share[str(share)]["opt"] * floor_ns / 1e9 / r.short, 3)
            for share in SHARES
            if str(share) in by_share
        }
        for r in results
        if r.short and r.name not in raw.get("cut", [])
        if (by_share := raw.get("misses", {}).get(r.name))
    }


def _share_text(
    results: Sequence[Results], way: str, share: int, bound: Mapping[str, Mapping[str, float]]
) -> str:
    parts = []
    for side in (way, "zram"):
        done = [r for r in results if r.slowdown(side, share) is not None]
        if done:
            parts.append(f"{side} {_average(done, side, share):+.0f} % ({len(done)})")
    both = [r for r in results if None not in (r.slowdown(way, share), r.slowdown("zram", share))]
    if both:
        parts.append(
            f"where both finished {way} {_average(both, way, share):+.0f} %, zram "
            f"{_average(both, 'zram', share):+.0f} % ({len(both)})"
        )
    limits = [b[str(share)] for b in bound.values() if str(share) in b]
    if limits:
        parts.append(f"bound {_mean(limits):+.0f} % ({len(limits)})")
    return f"{share} %: " + ", ".join(parts) + "." if parts else ""


def judge(
    way: str,
    results: Sequence[Results],
    absent: Sequence[str],
    algorithm: str,
    bound: Mapping[str, Mapping[str, float]],
) -> Row:
    """Make the row from the programs with results; @absent: why other programs have none."""
    problems = [*absent, *(p for r in results for p in r.problems[way])]
    swapped = [p for r in results for p in r.problems["zram"]]
    missing = [n for n in NAMES if n not in {r.name for r in results}]
    if missing:
        problems.append(f"not measured: {', '.join(missing)}")
    means = {share: _average(results, way, share) for share in SHARES}
    slower = _slower(results, way)
    over = {s: m - AIMS[s] for s in AIMS if (m := means[s]) is not None and m > AIMS[s]}
    ok = not problems and not over and not slower
    directs = [r.direct / r.plain for r in results if r.direct is not None]
    what = {
        "shm": "a donor on this host by shared memory, in the clear",
        "tls": "a donor on this host by TCP under TLS",
    }
    detail = (
        f"value is the average slowdown in percent at 50 % direct, geometric mean over "
        f"{len(results)} programs, of those that finished, against all memory; {what[way]}. "
        + " ".join(_share_text(results, way, s, bound) for s in SHARES)
        + " The bound is what Belady's misses at 4 KiB and the floor of a fault take."
        + (
            f" All memory direct, a budget of {DIRECT} % of the peak: {_mean(directs):+.0f} %."
            if directs and way == "shm"
            else ""
        )
        + " Every output compared with the plain run's. zram with "
        + f"{algorithm or 'its default compressor'}."
    )
    if kills := sum(r.kills for r in results):
        detail += f" Runs on zram killed by the kernel's OOM killer: {kills}."
    if slower:
        detail += f" Slower than on zram: {', '.join(slower)}."
    if problems:
        detail += " Problems: " + "; ".join(problems) + "."
    if swapped:
        detail += " On zram without a result: " + "; ".join(swapped) + "."
    if over:
        detail += " Missed by " + ", ".join(f"{o:.0f} points at {s} %" for s, o in over.items())
        detail += "."
    raw = {"programs": {r.name: dataclasses.asdict(r) for r in results}, "bound": bound}
    return row(IDS[way], means[50], ok, detail, raw | {"zram": algorithm})


def stored(found: Mapping[str, Any] | None) -> dict[str, Results]:
    """Read the programs' results from a row of memory.json."""
    programs = (found or {}).get("raw", {}).get("programs", {})
    return {name: Results(**fields) for name, fields in programs.items()}


def apps(ctx: Context, algorithm: str, store: Store) -> dict[str, Row]:
    """Make both rows. Each program is stored once it is measured; others stay as they are."""
    assert ctx.raw
    raw, size = ctx.raw, inputs.SMALL if ctx.tiny else inputs.LONG
    folder = inputs.make(ctx.cache, size)
    inputs.warm(folder)
    inputs.warm(inputs.make(ctx.cache, inputs.SMALL if ctx.tiny else inputs.FULL))
    results = stored(store.row(IDS["shm"]))
    chosen = ctx.programs or tuple(n for n in NAMES if not ctx.resume or n not in results)
    absent: list[str] = []
    floors = {"shm": raw.best_uffd, "tls": raw.best_uffd + raw.best_tcp + raw.aes}

    def so_far() -> dict[str, Row]:
        found, policy = [results[n] for n in NAMES if n in results], store.row("policy")
        return {
            IDS[way]: judge(way, found, absent, algorithm, bounds(found, policy, floors[way]))
            for way in WAYS
        }

    for app in programs.catalogue(ctx, size):
        if app.name not in chosen:
            continue
        ctx.row_start = ctx.progress.elapsed()  # the time limit holds for each program
        try:
            results[app.name] = Measuring(ctx, app, folder, size, algorithm).all()
        except (BenchError, OSError) as e:
            absent.append(f"{app.name}: {e} (package {app.package})")
        for one in so_far().values():
            store.put(dataclasses.asdict(dataclasses.replace(one, when=now())))
    found = [results[n] for n in NAMES if n in results]
    ctx.notes["apps"] = "\n".join([text(found), *(c for r in found for c in r.counted)])
    return so_far()
