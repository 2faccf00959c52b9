# SPDX-License-Identifier: GPL-2.0-or-later
"""The apps row: real programs from Debian, plain, under dcmctl run, and with swap on zram.

What is the same for both sides: the limit (a share of the program's peak RSS when it has all
memory), the inputs (in the page cache beforehand, charged to nobody), the output (hashed on
the fly, compared with the plain run's), the CPUs (all). dcmctl preloads jemalloc where it has
to; so the plain run is made with the program's own allocator and with jemalloc, and the
faster of the two is what counts as plain and what swap on zram gets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from dcmbench import donors, host, inputs
from dcmbench.context import MIB, Context
from dcmbench.host import BenchError
from dcmbench.report import Row, geomean, median, row

SHARES = (75, 50, 25)
PLAIN_MAX_S = 120.0
SLOW_MAX = 9.0  # a run slower than this many times the plain one is ended
ZRAM_TRIES = 2  # the kernel's OOM killer strikes now and then with swap still free
PYTHON = "/usr/bin/python3"  # Debian's, which is the one with python3-scipy


@dataclasses.dataclass(frozen=True)
class App:
    """A program, how it is started, what it needs from Debian."""

    name: str
    what: str
    package: str
    argv: tuple[str, ...]
    stdin: str = ""
    server: bool = False


def _redis(ctx: Context) -> str:
    """The server under its name. Debian's redis-server package has only the link, and a service
    that would run; the binary itself is in redis-tools, and does what it is called as."""
    link = ctx.build / "bench" / "redis-server"
    if not link.is_symlink():
        link.symlink_to("/usr/bin/redis-check-rdb")
    return os.fspath(link)


def catalogue(ctx: Context, size: inputs.Size) -> list[App]:
    graph = os.fspath(inputs.APPS / "graph.py")
    return [
        App(
            "redis",
            "Redis, zipfian 95 % GET of 1 KB values",
            "redis-tools",
            (_redis(ctx), *"--port 0 --appendonly no --loglevel warning".split()),
            server=True,
        ),
        App(
            "sqlite",
            "SQLite in memory: joins, index, scans",
            "sqlite3",
            ("sqlite3", ":memory:"),
            stdin="shop.sql",
        ),
        App(
            "sort",
            "GNU sort of text",
            "coreutils",
            ("sort", "--parallel=1", "-S", "1G", "-k2,2", "-k4,4n", "lines"),
        ),
        App(
            "graph",
            "SciPy: PageRank, components, BFS",
            "python3-scipy",
            (PYTHON, graph, str(size.nodes), str(size.edges), str(size.rounds)),
        ),
        App(
            "minimap2",
            "minimap2: index a genome, map reads",
            "minimap2",
            ("minimap2", "-t", "1", "-a", "-x", "map-ont", "genome.fa", "reads.fa"),
        ),
    ]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of one program."""

    seconds: float
    result: str
    peak: int  # of anonymous memory, seen from outside
    rss: int
    note: str = ""  # what the pager counted


def _environment(ctx: Context, preload: str = "") -> dict[str, str]:
    env = {**ctx.environment, "LC_ALL": "C", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env.pop("LD_LIBRARY_PATH")
    if preload:
        env["LD_PRELOAD"] = preload
    return env


def jemalloc() -> str:
    found = sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    return os.fspath(found[0]) if found else ""


class Killed(BenchError):
    """By the kernel, for want of memory."""


def _failed(done: host.Ran, limit: float) -> BenchError:
    if done.timed_out:
        return BenchError(f"slower than {limit:.0f} s, ended")
    if done.status == -signal.SIGKILL:
        return Killed("killed by the kernel's OOM killer")
    return BenchError(f"status {done.status}: {done.error.strip()[-160:]}")


def _program(
    ctx: Context,
    app: App,
    folder: Path,
    size: inputs.Size,
    *,
    prefix: list[str],
    env: dict[str, str],
    timeout: float,
    cgroup: host.Cgroup | None,
) -> Outcome:
    if app.server:
        return _served(ctx, app, size, prefix=prefix, env=env, timeout=timeout, cgroup=cgroup)
    done = host.run(
        [*prefix, *app.argv],
        timeout=timeout,
        env=env,
        cgroup=cgroup,
        stdin=folder / app.stdin if app.stdin else None,
        cwd=folder,
        sample=True,
    )
    if done.status or done.timed_out:
        raise _failed(done, timeout)
    return Outcome(done.seconds, done.sha256, done.anon_peak, done.maxrss)


def _served(
    ctx: Context,
    app: App,
    size: inputs.Size,
    *,
    prefix: list[str],
    env: dict[str, str],
    timeout: float,
    cgroup: host.Cgroup | None,
) -> Outcome:
    """A Redis server under the limit; its load comes from outside and is what is timed."""
    sock = ctx.scratch / "redis.sock"
    sock.unlink(missing_ok=True)
    log = ctx.scratch / "redis.log"
    argv = [*prefix, *app.argv, "--unixsocket", os.fspath(sock), "--save", ""]
    with log.open("wb") as out:
        server = host.spawn(
            argv,
            env=env,
            cgroup=cgroup,
            cwd=ctx.scratch,
            stdout=out.fileno(),
            stderr=subprocess.STDOUT,
        )
    sampler = host.Sampler(server.pid)
    try:
        deadline = time.monotonic() + 20
        while not sock.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace").strip()[-160:]
                raise BenchError(f"the server did not start: {tail}")
            time.sleep(0.02)
        sampler.start()
        done = host.run(
            [ctx.program("zipf"), sock, str(size.keys), "1000", str(size.requests)],
            timeout=timeout,
        )
        rss = max(host.rss_peak(p) for p in host.children(server.pid))
        if done.status or done.timed_out:
            raise _failed(done, timeout)
        figures = done.json()
        return Outcome(done.seconds, str(figures["checksum"]), sampler.stop(), rss)
    finally:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                server.wait(10)
        host.kill_group(server)


@contextlib.contextmanager
def _donor(ctx: Context) -> Iterator[donors.Donor]:
    with donors.donor(
        ctx.donord, ctx.scratch / "donor", options={"data-encryption": "no"}
    ) as found:
        yield found


def _dcmctl(ctx: Context, d: donors.Donor, budget: int) -> list[str]:
    return [
        os.fspath(ctx.root / "bin" / "dcmctl"),
        *("run", "--mode", "program", "--budget", str(budget), "--size", "16G"),
        *("--threshold", "1M"),  # so that all of the allocator's memory is paged
        *("--donor", d.unix, "--keys", os.fspath(d.keys), "--no-encrypt-data", "--"),
    ]


@dataclasses.dataclass
class Results:
    """Of one program: seconds, plain and by share and side; what went wrong."""

    app: App
    plain: float
    rss: int
    ours: dict[int, float] = dataclasses.field(default_factory=dict)
    peer: dict[int, float] = dataclasses.field(default_factory=dict)
    peaks: dict[int, int] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    counted: list[str] = dataclasses.field(default_factory=list)
    kills: int = 0  # of runs on zram, by the OOM killer


def _plain(
    ctx: Context, app: App, folder: Path, size: inputs.Size
) -> tuple[float, Outcome, str, str]:
    """Seconds, an outcome of its own allocator, and what to preload to be that fast."""
    times: dict[str, list[float]] = {"": []}
    if jemalloc() and app.name != "redis":  # Debian's Redis is built with jemalloc
        times[jemalloc()] = []
    first: Outcome | None = None

    def once(preload: str) -> None:
        nonlocal first
        ctx.check_time()
        done = _program(
            ctx,
            app,
            folder,
            size,
            prefix=[],
            env=_environment(ctx, preload),
            timeout=PLAIN_MAX_S,
            cgroup=None,
        )
        times[preload].append(done.seconds)
        first = first or done
        if done.result != first.result:
            raise BenchError("two plain runs differ: not a usable program")

    for preload in times:
        once(preload)
    for _ in range(2):
        once(min(times, key=lambda p: min(times[p])))
    assert first
    best = min(times, key=lambda p: median(times[p]))
    note = " / ".join(f"{min(v):.2f}" for v in times.values())
    return median(times[best]), first, best, note


def _ours(
    ctx: Context, app: App, folder: Path, size: inputs.Size, limit: int, timeout: float
) -> Outcome:
    ctx.check_time()
    env = _environment(ctx)
    sampler = donors.StatusSampler(Path(env["DCM_RUNTIME_DIR"]))
    sampler.start()
    try:
        with _donor(ctx) as d:
            done = _program(
                ctx,
                app,
                folder,
                size,
                prefix=_dcmctl(ctx, d, limit),
                env=env,
                timeout=timeout,
                cgroup=None,
            )
    finally:
        note = donors.pager_note(sampler.stop())
    return dataclasses.replace(done, note=note)


def _peer(
    ctx: Context,
    app: App,
    folder: Path,
    size: inputs.Size,
    limit: int,
    timeout: float,
    preload: str,
    algorithm: str,
) -> Outcome:
    ctx.check_time()
    with host.zram(ctx.ledger, 1024 * MIB, algorithm), host.cgroup(ctx.ledger, limit) as group:
        return _program(
            ctx,
            app,
            folder,
            size,
            prefix=[],
            env=_environment(ctx, preload),
            timeout=timeout,
            cgroup=group,
        )


def measure(ctx: Context, app: App, folder: Path, size: inputs.Size, algorithm: str) -> Results:
    plain, first, preload, note = _plain(ctx, app, folder, size)
    found = Results(app, plain, first.rss)
    ctx.progress.say(
        f"apps: {app.name} plain {plain:.2f} s (own / jemalloc: {note}), "
        f"peak RSS {first.rss // MIB} MiB"
    )
    limit_s = max(plain * SLOW_MAX, 40.0)
    for share in SHARES:
        limit = first.rss * share // 100 & ~0xFFFF
        sides: dict[str, Outcome] = {}
        try:
            sides["dcm"] = _ours(ctx, app, folder, size, limit, limit_s)
        except BenchError as e:
            found.problems.append(f"{app.name} at {share} %: {e}")
        for attempt in range(ZRAM_TRIES):
            try:
                sides["zram"] = _peer(ctx, app, folder, size, limit, limit_s, preload, algorithm)
                break
            except Killed as e:
                found.kills += 1
                if attempt + 1 == ZRAM_TRIES:
                    found.problems.append(f"{app.name} on zram at {share} %: {e}")
            except BenchError as e:
                found.problems.append(f"{app.name} on zram at {share} %: {e}")
                break
        for side, store in (("dcm", found.ours), ("zram", found.peer)):
            done = sides.get(side)
            if not done:
                continue
            if done.result != first.result:
                found.problems.append(f"{app.name} at {share} % ({side}): WRONG RESULT")
            else:
                store[share] = done.seconds
        if done := sides.get("dcm"):
            found.peaks[share] = done.peak
            found.counted.append(f"{app.name} {share} %: {done.note}")
            # What is not paged (stacks, libdcm's own) is no part of the budget: bounded.
            if done.peak > limit + limit // 10 + 32 * MIB:
                found.problems.append(
                    f"{app.name} at {share} %: {done.peak // MIB} MiB of anonymous memory seen "
                    f"with a budget of {limit // MIB} MiB"
                )
        ctx.progress.say(
            f"apps: {app.name} {share} %: "
            + ", ".join(f"{s} {o.seconds:.2f} s" for s, o in sides.items())
        )
    return found


def text(results: list[Results]) -> str:
    lines = [
        f"{'program':<10} {'plain':>7} {'peak':>8}"
        + "".join(f" {f'dcm {s}%':>9} {f'zram {s}%':>9}" for s in SHARES)
    ]
    for r in results:
        line = f"{r.app.name:<10} {r.plain:6.2f}s {r.rss // MIB:5d}MiB"
        for s in SHARES:
            for side in (r.ours, r.peer):
                line += f" {f'x{side[s] / r.plain:.2f}' if s in side else '-':>9}"
        lines.append(line)
    return "\n".join(lines)


def apps(ctx: Context, algorithm: str) -> Row:
    size = inputs.FULL
    folder = inputs.make(ctx.cache, size)
    inputs.warm(folder)
    results: list[Results] = []
    problems: list[str] = []
    for app in catalogue(ctx, size):
        try:
            results.append(measure(ctx, app, folder, size, algorithm))
        except (BenchError, OSError) as e:
            problems.append(f"{app.name}: {e} (package {app.package})")
    problems += [p for r in results for p in r.problems]
    ctx.notes["apps"] = "\n".join([text(results), *(c for r in results for c in r.counted)])

    def average(side: str, share: int, among: list[Results]) -> float:
        """Percent slower than plain, geometric mean."""
        seen = [getattr(r, side)[share] / r.plain for r in among]
        return (geomean(seen) - 1) * 100 if seen else float("nan")

    parts = []
    better = True
    for share in SHARES:
        done = [r for r in results if share in r.ours]
        both = [r for r in done if share in r.peer]
        parts.append(
            f"{share} %: dcm {average('ours', share, done):+.0f} % ({len(done)} programs)"
            f", where both finished dcm {average('ours', share, both):+.0f} %, "
            f"zram {average('peer', share, both):+.0f} % ({len(both)})"
        )
        if share in (50, 25):
            # One that the peer could not finish does not count for it, nor against us.
            won = not both or average("ours", share, both) < average("peer", share, both)
            better = better and won and len(done) == len(results)
    half = [r for r in results if 50 in r.ours]
    at_half = average("ours", 50, half) if half else None
    ok = (
        len(results) >= 5
        and not [p for p in problems if " on zram " not in p]
        and at_half is not None
        and at_half <= 10
        and better
    )
    kills = sum(r.kills for r in results)
    detail = (
        f"value is the average slowdown in percent at 50 % direct, geometric mean over "
        f"{len(results)} programs against all memory ({'; '.join(parts)}). "
        + "; ".join(
            f"{r.app.name} {r.plain:.1f} s {r.rss // MIB} MiB, at 75/50/25 %: dcm "
            + "/".join(f"x{r.ours[s] / r.plain:.2f}" if s in r.ours else "-" for s in SHARES)
            + " zram "
            + "/".join(f"x{r.peer[s] / r.plain:.2f}" if s in r.peer else "-" for s in SHARES)
            for r in results
        )
        + ". Every output compared with the plain run's. zram with "
        + f"{algorithm or 'its default compressor'}; shm donor."
    )
    if kills:
        detail += f" Runs on zram killed by the kernel's OOM killer and tried again: {kills}."
    if problems:
        detail += " Problems: " + "; ".join(problems) + "."
    if at_half is not None and at_half > 10:
        detail += f" Missed by {at_half - 10:.0f} points."
    return row("apps", at_half, ok, detail)
