# SPDX-License-Identifier: GPL-2.0-or-later
"""The row why: compare the forecasts of `dcmctl why` for other budgets with measurements.

Each program runs with a budget of half of its memory, and `dcmctl why` forecasts its fetching
faults a second with 0.5, 0.75 and 1.5 times that budget. Then it runs with these budgets. Two
programs touch memory in a known order, two are real ones. The row also has the cost of hiding pages
for this forecast: the CPU time of each fetch with the tunable `reuse` on, over that with it off, in
turns of the same run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dcmbench import donors, host, inputs, programs
from dcmbench.context import MIB, Context
from dcmbench.host import BenchError
from dcmbench.report import Row, row

FACTORS = (0.5, 0.75, 1.5)
PATTERNS = {"uniform": "rand", "skewed": "skew"}
REAL = ("redis", "mawk")
# A program first fills its memory, a real one until it has hardly any new pages (_grown()). It is
# measured when it has run for SETTLE_S more, as a page's first touch after it is watched tells no
# distance: for LOOK_S, and where a forecast is made for FORECAST_S, as about 150 touches a second
# are seen.
SETTLE_S, LOOK_S, FORECAST_S = 15.0, 12.0, 40.0
LONGER = 8  # times the requests of a server that is timed
GROW_MAX_S = 900.0
ALIKE = 0.95  # with this share of another run's pages a program is at the same work
GROWTH = 1000  # a program whose fetches are so many times its new pages has stopped growing
START_S = 8.0  # until dcmctl runs, on a busy machine
# Two turns next to each other differ by 4 % without a reason, so there are many.
TURNS, TURN_S, FILL_S = 120, 1.5, 10.0
COST_MAX = 0.01
LOW, HIGH = 0.8, 1.25
Why = dict[str, Any]


def _dcmctl(ctx: Context, *words: str) -> Why:
    done = subprocess.run(
        [ctx.root / "bin" / "dcmctl", *words, "--json"],
        env=programs.environment(ctx),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"dcmctl {' '.join(words)}: {done.stderr.strip()[-200:]}")
    found: Why = json.loads(done.stdout)
    return found


def _socket(ctx: Context, running: threading.Thread) -> str:
    """Wait for the socket of the one pager that runs; return its path."""
    folder = Path(ctx.environment["DCM_RUNTIME_DIR"]) / "vm"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and running.is_alive():
        for path in folder.glob("*.sock"):
            return os.fspath(path)
        time.sleep(0.05)
    raise BenchError("the program has no pager, or has ended")


@contextlib.contextmanager
def _beside(ctx: Context, run: Callable[[], object]) -> Iterator[str]:
    """Run a program in a thread; yield its pager's socket; wait for the program's end."""
    failed: list[BaseException] = []
    # A pager that was killed has left its own.
    for path in (Path(ctx.environment["DCM_RUNTIME_DIR"]) / "vm").glob("*.sock"):
        path.unlink()

    def target() -> None:
        try:
            run()
        except (BenchError, OSError) as e:
            failed.append(e)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield _socket(ctx, thread)
    except (BenchError, OSError) as e:
        failed.append(e)
    thread.join()
    if failed:
        raise BenchError("; ".join(str(e) for e in failed))


@contextlib.contextmanager
def _access(ctx: Context, pattern: str, budget: int, seconds: float) -> Iterator[str]:
    with donors.donor(ctx.donord, ctx.scratch / "donor") as d:
        config = donors.pager_config(
            ctx.scratch / "why.ini", d.unix, d.keys, budget, 2 * ctx.footprint
        )
        argv: list[str | os.PathLike[str]] = [ctx.program("access"), "--pager", config]
        argv += ["--pages", str(ctx.pages), "--pattern", pattern, "--write", "20"]
        argv += ["--seconds", str(seconds)]

        def run() -> None:
            host.run(argv, timeout=seconds + 60, env=ctx.environment).json()

        with _beside(ctx, run) as socket:
            yield socket


def _synthetic(ctx: Context, pattern: str, budget: int, seconds: float) -> Why:
    warm, look = (1.0, 1.0) if ctx.tiny else (SETTLE_S, seconds)
    with _access(ctx, pattern, budget, warm + look + START_S) as socket:
        time.sleep(warm)
        return _dcmctl(ctx, "why", socket, "--seconds", str(look))


def _new_pages(counters: Mapping[str, int]) -> int:
    """How many pages a program has touched. Faults are fewer: a first touch brings in a block."""
    made = sum(n for name, n in counters.items() if name.startswith("MIX_"))
    return made - counters["FETCHED_PAGES"]


def _read_bytes(pid: int) -> int:
    """How much the first thread of a program has read, of files and sockets."""
    text = Path(f"/proc/{pid}/task/{pid}/io").read_text(encoding="ascii")
    return int(text.partition("rchar:")[2].split()[0])


def _grown(pager: Path, pid: int, timeout: float, least: float) -> int:
    """Wait until a program has hardly any new pages, though it goes on reading its input.

    From then on it does the same work. A forecast made while its memory grows is about the memory
    that it has until then. mawk grows in steps: it touches few new pages while it moves its keys to
    a larger table, which takes the longer the smaller its budget is. So with another budget it has
    to have as much memory, `least` pages, or it is measured at other work. Return its pages.
    """
    deadline = time.monotonic() + timeout
    calm, old, had_read = 0, donors.ask_pager(pager)["counters"], _read_bytes(pid)
    while calm < 2 or _new_pages(old) < least:
        if time.monotonic() > deadline:
            raise BenchError(f"its memory still grows after {timeout:.0f} s")
        time.sleep(1.0)
        new, has_read = donors.ask_pager(pager)["counters"], _read_bytes(pid)
        fresh = _new_pages(new) - _new_pages(old)
        fetched = new["FAULT_MISSING"] - old["FAULT_MISSING"]
        same = fetched > 100 and fresh < fetched / GROWTH and has_read > had_read
        calm = calm + 1 if same else 0
        old, had_read = new, has_read
    return _new_pages(old)


def _real(
    ctx: Context,
    app: programs.App,
    size: inputs.Size,
    budget: int,
    seconds: float,
    least: float,
) -> Why:
    folder, env = inputs.make(ctx.cache, size), programs.environment(ctx)
    grow, settle, look = (0.0, 0.0, 0.5) if ctx.tiny else (GROW_MAX_S, SETTLE_S, seconds)
    longer = size if ctx.tiny else dataclasses.replace(size, requests=LONGER * size.requests)
    looked = threading.Event()
    with programs.paged(ctx, "shm", budget) as prefix:

        def run() -> None:
            try:
                programs.run(
                    ctx,
                    app,
                    folder,
                    longer,
                    prefix=prefix,
                    env=env,
                    timeout=grow + settle + look + START_S,
                    cgroup=None,
                )
            except BenchError:
                # It need not come to its end.
                if not looked.is_set():
                    raise

        with _beside(ctx, run) as socket:
            pid: int = donors.ask_pager(Path(socket))["pid"]
            try:
                pages = 0 if ctx.tiny else _grown(Path(socket), pid, grow, least)
                time.sleep(settle)
                found = _dcmctl(ctx, "why", socket, "--seconds", str(look))
                found["pages"] = pages
                looked.set()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            return found


def _ratios(now: Why, others: Mapping[float, Why]) -> dict[float, float]:
    """Forecast divided by measurement, by the factor of the budget."""
    found = {}
    for factor, other in others.items():
        told = now["fetches_per_s"][str(factor)]
        if told is None:
            raise BenchError(f"nothing is foretold for {factor:g} x")
        found[factor] = told / max(other["missing"] / other["seconds"], 1.0)
    return found


def _cpu_ns(pid: int) -> int:
    """The CPU time of all threads of a process; /proc/PID/stat counts in units of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(t.read_text(encoding="ascii").split()[0]) for t in tasks)


def _cost(ctx: Context) -> tuple[float, float, float]:
    """How much more CPU time a fetch takes with hiding (0.1: 10 %), with its standard error.

    And pages hidden a second. Of four turns the outer two hide pages, so that a drift cancels.
    """
    turns = 8 if ctx.tiny else TURNS
    used: list[float] = []
    hidden = 0
    fill = 1.0 if ctx.tiny else FILL_S
    with _access(ctx, "rand", ctx.footprint // 2, fill + turns * (TURN_S + 0.6) + START_S) as path:
        pager = Path(path)
        time.sleep(fill)
        most: int = donors.ask_pager(pager)["tunables"]["reuse"]
        for turn in range(turns):
            donors.tune(pager, "reuse", most if turn % 4 in (0, 3) else 0)
            time.sleep(0.3)
            before = donors.ask_pager(pager)
            cpu = _cpu_ns(before["pid"])
            time.sleep(TURN_S)
            after = donors.ask_pager(pager)
            cpu = _cpu_ns(before["pid"]) - cpu
            old, new = before["counters"], after["counters"]
            used.append(cpu / max(new["FAULT_MISSING"] - old["FAULT_MISSING"], 1))
            hidden += new["REUSE_HIDDEN"] - old["REUSE_HIDDEN"]
    fours = [used[i : i + 4] for i in range(0, turns, 4)]
    more = [(on + last) / (off + next_off) - 1 for on, off, next_off, last in fours]
    error = statistics.stdev(more) / math.sqrt(len(more))
    return statistics.mean(more), error, hidden / (turns / 2 * TURN_S)


def why(ctx: Context) -> Row:
    size = inputs.SMALL if ctx.tiny else inputs.LONG
    inputs.warm(inputs.make(ctx.cache, size))
    ratios: dict[str, dict[float, float]] = {}
    said: list[str] = []

    def judge(name: str, budget: int, look: Callable[[int, float, float], Why]) -> None:
        try:
            now = look(budget, FORECAST_S, 0)
            least = now.get("pages", 0) * ALIKE
            others = {f: look(int(budget * f) & ~0xFFFF, LOOK_S, least) for f in FACTORS}
            ratios[name] = _ratios(now, others)
            pace = now["missing"] / now["seconds"]
            text = f"{pace:.0f} a second with {budget // MIB} MiB: " + ", ".join(
                f"{r:.2f} at {f:g} x ({others[f]['missing'] / others[f]['seconds']:.0f})"
                for f, r in ratios[name].items()
            )
        except (BenchError, OSError, subprocess.SubprocessError) as e:
            text = f"not measured: {e}"
        said.append(f"{name} {text}")
        ctx.progress.say(f"why: {said[-1]}")

    for name, pattern in PATTERNS.items():
        judge(name, ctx.footprint // 2, lambda b, s, _, p=pattern: _synthetic(ctx, p, b, s))  # type: ignore[misc]
    for app in programs.catalogue(ctx, size):
        if app.name not in REAL:
            continue
        plain = programs.alone(
            ctx, app, inputs.make(ctx.cache, size), size, programs.environment(ctx)
        )
        half = plain.rss // 2 & ~0xFFFF
        judge(app.name, half, lambda b, s, n, a=app: _real(ctx, a, size, b, s, n))  # type: ignore[misc]
    cost, error, hidden = _cost(ctx)
    every = [r for found in ratios.values() for r in found.values()]
    if not every:
        raise BenchError("; ".join(said))
    worst = max(every, key=lambda r: max(r, 1 / max(r, 1e-9)))
    ok = len(ratios) == len(said) and all(LOW <= r <= HIGH for r in every) and cost <= COST_MAX
    detail = (
        "foretold over measured: " + "; ".join(said) + f". Hiding {hidden:.0f} pages a second took "
        f"{cost * 100:.1f} % of the CPU time (uniform; standard error {error * 100:.1f}), the "
        f"target is at most {COST_MAX * 100:.0f} %. A donor on this host by shared memory."
    )
    raw = {name: {str(f): r for f, r in found.items()} for name, found in ratios.items()}
    more = {"ratios": raw, "cost": cost, "cost_error": error, "hidden_per_s": hidden}
    return row("why", worst, ok, detail, more)
