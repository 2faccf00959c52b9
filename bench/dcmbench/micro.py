# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows measured with the access program: faults, elastic blocks, swap on zram, two threads."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dcmbench import donors, host
from dcmbench.context import MIB, WAYS, Context, Raw
from dcmbench.host import BenchError
from dcmbench.report import Row, median, row

TIMEOUT = 60.0

# Where threads may run. The bare round trips and the pager are measured with each placement; of
# both, the best one counts.
PLACEMENTS = ("default", "same", "spin")
PAGER_CPUS: dict[str, set[int] | None] = {"default": None, "same": {0}, "spin": {0, 1}}
DONOR_CPUS: dict[str, set[int] | None] = {"default": None, "same": {0}, "spin": {1}}
# A donor's threads may spin for a request before they sleep, as raw_tcp's do under "spin".
DONOR_SPIN_US = {"default": 0, "same": 0, "spin": 200}


def raw(ctx: Context) -> Raw:
    """Measure bare round trips in each placement (medians of runs' medians), and AES of a page."""
    aes: list[float] = []
    seen: dict[str, dict[str, list[float]]] = {"raw_uffd": {}, "raw_tcp": {}}
    placements = PLACEMENTS if (os.cpu_count() or 1) > 1 else ("default", "same")
    for _ in range(ctx.repeat):
        for name, by_placement in seen.items():
            for p in placements:
                done = host.run([ctx.program(name), p], timeout=TIMEOUT).json()
                ns: Any = done["ns"]
                by_placement.setdefault(p, []).append(float(ns["p50"]))
        sealed: Any = host.run([ctx.program("raw_aes")], timeout=TIMEOUT).json()
        aes.append(max(float(sealed[end]["p50"]) for end in ("seal", "open")))
    found = Raw(
        {p: median(v) for p, v in seen["raw_uffd"].items()},
        {p: median(v) for p, v in seen["raw_tcp"].items()},
        median(aes),
    )
    ctx.progress.say(found.text())
    return found


def access(
    ctx: Context,
    *arguments: str,
    config: Path | None = None,
    cgroup: host.Cgroup | None = None,
    cpus: set[int] | None = None,
) -> dict[str, Any]:
    """Run bench/access.c; return its figures."""
    argv: list[str | os.PathLike[str]] = [ctx.program("access"), *arguments]
    if config:
        argv += ["--pager", config]
    done = host.run(argv, timeout=TIMEOUT, cgroup=cgroup, cpus=cpus, env=ctx.environment)
    try:
        return done.json()
    except BenchError as e:
        raise BenchError(f"access {' '.join(arguments)}: {e}") from e


def profile(
    ctx: Context, argv: Sequence[str | os.PathLike[str]], cpus: set[int] | None = None
) -> str:
    """A text with a program's CPU profile, for a row that missed its target; needs perf."""
    perf = shutil.which("perf")
    if not perf:
        return " No profile: perf is not installed."
    data = ctx.scratch / "perf.data"
    try:
        host.run(
            [perf, "record", "-q", "-F", "1999", "-o", data, "--", *argv],
            timeout=TIMEOUT,
            env=ctx.environment,
            cpus=cpus,
        ).json()
        report = host.run(
            [perf, "report", "-i", data, "--stdio", "--no-children", "-q", "--sort", "symbol"],
            timeout=TIMEOUT,
        )
    except BenchError as e:
        return f" No profile: {e}."
    found = re.findall(r"^ *([0-9.]+)% +\[(.)\] +([^ \n]+)", report.output.decode(), re.MULTILINE)
    data.unlink(missing_ok=True)
    kernel = sum(float(share) for share, where, _ in found if where == "k")
    top = ", ".join(f"{name} {float(share):.0f} %" for share, _, name in found[:8])
    return f" Profile (kernel {kernel:.0f} %): {top}." if found else " No profile: no samples."


def missed(
    ctx: Context,
    by: float,
    arguments: str,
    way: str = "shm",
    placement: str = "default",
    tunables: Mapping[str, int] | None = None,
) -> str:
    """A text: by how much a target was missed, and the profile of one more run."""
    with paged(ctx, way, placement=placement, tunables=tunables) as config:
        return f" Missed by {by * 100:.0f} %." + profile(
            ctx,
            [ctx.program("access"), *arguments.split(), "--pager", config],
            PAGER_CPUS[placement],
        )


@contextlib.contextmanager
def paged(
    ctx: Context,
    way: str = "shm",
    *,
    placement: str = "default",
    tunables: Mapping[str, int] | None = None,
    lanes: int = 2,
    budget: int = 0,
) -> Any:
    """Run a donor until the end of the block; yield a pager's configuration for it."""
    spin = DONOR_SPIN_US[placement] if way != "shm" else 0
    with donors.donor(
        ctx.donord,
        ctx.scratch / "donor",
        cpus=DONOR_CPUS[placement] if way != "shm" else None,
        options={"poll-us": spin, "data-encryption": "yes" if way == "tls" else "no"},
    ) as d:
        yield donors.pager_config(
            ctx.scratch / "pager.ini",
            d.unix if way == "shm" else d.tcp,
            d.keys,
            budget or ctx.budget,
            4 * ctx.footprint,
            lanes=lanes,
            encrypt=way == "tls",
            tunables=tunables,
        )


def pager_note(figures: Mapping[str, Any]) -> str:
    return donors.pager_note(figures.get("pager"))


# ---- one fault ----


def _fault(ctx: Context, way: str, placement: str, write: int) -> Any:
    """Measure random 4 KiB faults with a full budget; return percentiles of latency in ns."""
    pages = ctx.pages if way == "shm" else ctx.pages // 2
    with paged(
        ctx,
        way,
        placement=placement,
        tunables={"largest_block": 4096},
    ) as config:
        return access(
            ctx,
            *f"--pages {pages} --pattern cycle --write {write}".split(),
            *f"--warm {pages // 2} --ops {1000 if ctx.tiny else 30000}".split(),
            config=config,
            cpus=PAGER_CPUS[placement],
        )


def _latencies(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures for the picture of the distribution: 0th to 100th percentile, 99.9th, in ns."""
    return {"at": figures["ns"]["at"], "p999": figures["ns"]["p999"]}


@dataclasses.dataclass(frozen=True)
class Floor:
    """A lower bound for the time of a fault, and how many times as long a fault may take."""

    name: str
    limit: float
    parts: Callable[[Raw], float]


FLOORS = {
    "shm": Floor("RAW", 1.15, lambda raw: raw.best_uffd),
    "tcp": Floor("(RAW + raw TCP)", 1.15, lambda raw: raw.best_uffd + raw.best_tcp),
    "tls": Floor(
        "(RAW + raw TCP + AES of a page)", 1.2, lambda raw: raw.best_uffd + raw.best_tcp + raw.aes
    ),
}


def _faults(ctx: Context, way: str) -> dict[str, list[dict[str, Any]]]:
    """Measure faults; return the figures of all runs, by placement."""
    assert ctx.raw
    runs: dict[str, list[dict[str, Any]]] = {p: [] for p in PLACEMENTS if p in ctx.raw.uffd}
    for _ in range(ctx.repeat):
        for p, figures in runs.items():
            figures.append(_fault(ctx, way, p, 0))
    return runs


def fault(ctx: Context, way: str) -> Row:
    """The rows fault-shm, fault-tcp and fault-tls."""
    assert ctx.raw
    id_, floor = f"fault-{way}", FLOORS[way]
    unit = floor.parts(ctx.raw)
    runs = _faults(ctx, way)
    last = {p: figures[-1] for p, figures in runs.items()}
    medians = {p: median([f["ns"]["p50"] for f in figures]) for p, figures in runs.items()}
    place = min(medians, key=lambda p: medians[p])
    ns = last[place]["ns"]
    mixed = _fault(ctx, way, place, 50)["ns"]
    inside = last[place]["pager"]["latency_ns"]
    ratio = medians[place] / unit
    raw_figures: dict[str, Any] = {
        "unit_ns": unit,
        "placement": place,
        "p50_ns": {p: round(v) for p, v in medians.items()},
        "latency_ns": {way: _latencies(last[place])},
    }
    ctx.notes[id_] = "\n".join(
        [ctx.raw.text()]
        + [
            f"{p:<8} p50 {medians[p] / 1e3:.2f} us, p90 {last[p]['ns']['p90'] / 1e3:.2f}, "
            f"p99 {last[p]['ns']['p99'] / 1e3:.2f}"
            for p in medians
        ]
        + [pager_note(last[place])]
    )
    detail = (
        f"value is the ratio: median {medians[place] / 1e3:.2f} us over {floor.name} "
        f"{unit / 1e3:.2f} us, each in its best placement of the same list (ours: {place}). "
        + "; ".join(f"{p} {medians[p] / 1e3:.1f} us" for p in medians)
        + f". p90 {ns['p90'] / 1e3:.1f}, p99 {ns['p99'] / 1e3:.1f} us; half of the touches "
        f"writing: p50 {mixed['p50'] / 1e3:.1f}, p90 {mixed['p90'] / 1e3:.1f}, "
        f"p99 {mixed['p99'] / 1e3:.1f} us; inside libdcm, fault taken to block installed: p50 "
        f"{inside['fault']['p50'] / 1e3:.1f} us, fetch {inside['fetch']['p50'] / 1e3:.1f} us, the "
        f"rest is kernel entry and wake-ups. {ctx.raw.text()}."
    )
    if ratio > floor.limit:
        detail += missed(
            ctx,
            ratio / floor.limit - 1,
            f"--pages {ctx.pages} --pattern cycle --ops {ctx.pages}",
            way,
            place,
            {"largest_block": 4096},
        )
    return row(id_, ratio, ratio <= floor.limit, detail, raw_figures)


TAIL = 4


def fault_tail(ctx: Context) -> Row:
    """The row fault-tail: the slowest of a hundred faults over TCP, compared with the others."""
    runs = {p: [f["ns"] for f in figures] for p, figures in _faults(ctx, "tcp").items()}
    last = {p: ns[-1] for p, ns in runs.items()}
    medians = {p: median([ns["p99"] / ns["p50"] for ns in each]) for p, each in runs.items()}
    place = min(runs, key=lambda p: median([ns["p50"] for ns in runs[p]]))
    value = medians[place]
    detail = (
        "value is p99 over p50 of faults of 4 KiB, one thread, tcp in the clear, budget full, "
        f"in the placement with the shortest median ({place}): elsewhere a slow median flatters. "
        + "; ".join(
            f"{p} {medians[p]:.1f} (last run: p50 {last[p]['p50'] / 1e3:.1f}, p90 "
            f"{last[p]['p90'] / 1e3:.1f}, p99 {last[p]['p99'] / 1e3:.1f}, p99.9 "
            f"{last[p]['p999'] / 1e3:.1f} us)"
            for p in medians
        )
        + "."
    )
    return row("fault-tail", value, value <= TAIL, detail)


# ---- sequential ----


def elastic_seq(ctx: Context) -> Row:
    """The time of a page in sequential accesses: elastic blocks over fixed blocks of 4 KiB."""
    times: dict[str, list[float]] = {"elastic": [], "fixed": []}
    note = ""
    for _ in range(ctx.repeat):
        for name, tunables in (
            ("elastic", {}),
            ("fixed", {"elastic": 0, "largest_block": 4096}),
        ):
            with paged(ctx, tunables=tunables) as config:
                figures = access(
                    ctx,
                    *f"--pages {ctx.pages} --pattern seq".split(),
                    *f"--warm {2 * ctx.pages} --ops {2 * ctx.pages}".split(),
                    config=config,
                )
            times[name].append(figures["ns_per_touch"])
            if name == "elastic":
                note = pager_note(figures)
    elastic, fixed = median(times["elastic"]), median(times["fixed"])
    ratio = elastic / fixed
    ctx.notes["elastic-seq"] = note
    detail = (
        f"value is the ratio: {elastic / 1e3:.2f} us a page with elastic blocks over "
        f"{fixed / 1e3:.2f} us with fixed 4 KiB; two passes over {ctx.footprint // MIB} MiB after "
        f"two to warm up, budget {ctx.budget // MIB} MiB, nothing pinned. {note}."
    )
    if ratio > 0.25:
        arguments = f"--pages {ctx.pages} --pattern seq --ops {4 * ctx.pages}"
        detail += missed(ctx, ratio / 0.25 - 1, arguments)
    return row("elastic-seq", ratio, ratio <= 0.25, detail)


# ---- against swap on zram ----


def fastest_zram(ctx: Context) -> str:
    """The compressor with which swap on zram is fastest on this machine."""
    times: dict[str, float] = {}
    for algorithm in host.zram_algorithms():
        with (
            host.zram(ctx.ledger, 2 * ctx.footprint, algorithm),
            host.cgroup(ctx.ledger, ctx.budget) as group,
        ):
            figures = access(
                ctx,
                *f"--pages {ctx.pages} --pattern rand --ops {ctx.pages // 2}".split(),
                cgroup=group,
            )
        times[algorithm] = figures["ns_per_touch"]
    best = min(times, key=lambda a: times[a])
    ctx.progress.say(
        "zram: "
        + ", ".join(f"{a or 'default'} {t / 1e3:.1f} us a touch" for a, t in times.items())
        + f"; {best or 'default'} is the peer"
    )
    return best


def _on_zram(ctx: Context, algorithm: str, arguments: Sequence[str]) -> tuple[Any, float]:
    """Run bench/access.c on swap on zram; return its figures and the compression ratio."""
    with (
        host.zram(ctx.ledger, 2 * ctx.footprint, algorithm) as z,
        host.cgroup(ctx.ledger, ctx.budget) as group,
    ):
        sampler = host.RatioSampler(z)
        sampler.start()
        try:
            done = access(ctx, *arguments, cgroup=group)
        finally:
            packed = sampler.stop()
    return done, packed


def against_zram(ctx: Context, id_: str, pattern: str, algorithm: str) -> Row:
    """The rows seq-vs-zram and rand-vs-zram: the same program, size and contents on both.

    The row judges the donor on this host against zram. The other columns are for information, with
    one load each: donors over the network, and all of the memory direct.
    """
    variants = [("mixed", 0), ("random", 0), ("mixed", 50)]
    first = variants[0]
    ours: dict[tuple[str, int], list[float]] = {v: [] for v in variants}
    peer: dict[tuple[str, int], list[float]] = {v: [] for v in variants}
    others: dict[str, list[float]] = {"direct": [], "tcp": [], "tls": []}
    latency: dict[str, Any] = {}
    packed: dict[str, float] = {}
    note = ""

    def words(content: str, write: int) -> list[str]:
        return (
            f"--pages {ctx.pages} --pattern {pattern} --content {content} --write {write} "
            f"--warm {ctx.pages} --ops {ctx.pages}"
        ).split()

    for _ in range(ctx.repeat):
        for v in variants:
            done, packed[v[0]] = _on_zram(ctx, algorithm, words(*v))
            peer[v].append(done["ns_per_touch"])
            with paged(ctx) as config:
                figures = access(ctx, *words(*v), config=config)
            ours[v].append(figures["ns_per_touch"])
            if v == first:
                note = pager_note(figures)
                if done["ns"]["count"]:
                    latency["zram"] = _latencies(done)
        for name, times in others.items():
            direct = name == "direct"
            budget = 2 * ctx.footprint if direct else 0
            with paged(ctx, "shm" if direct else name, budget=budget) as config:
                times.append(access(ctx, *words(*first), config=config)["ns_per_touch"])
    ctx.notes[id_] = note
    texts = []
    ratios: dict[tuple[str, int], float] = {}
    for v in variants:
        a, b = median(ours[v]), median(peer[v])
        ratios[v] = b / a if pattern == "seq" else a / b
        texts.append(
            f"{'compressible' if v[0] == 'mixed' else 'incompressible'}"
            f"{', half writes' if v[1] else ''}: {a / 1e3:.2f} us a page, zram {b / 1e3:.2f} us "
            f"({ratios[v]:.2f})"
        )
    columns = {
        "direct": median(others["direct"]),
        "shm": median(ours[first]),
        "tcp": median(others["tcp"]),
        "tls": median(others["tls"]),
        "zram": median(peer[first]),
    }
    reads = [ratios[v] for v in variants if not v[1]]
    value = min(reads) if pattern == "seq" else max(reads)
    ok = value >= 8 if pattern == "seq" else value <= 0.8
    detail = (
        f"value is of a donor on this host by shared memory, in the clear, and is the worse of "
        f"compressible ({packed['mixed']:.1f}:1 on zram) and incompressible "
        f"({packed['random']:.1f}:1) contents, reading. "
        f"{'; '.join(texts)}. Compressible, reading, by TCP {columns['tcp'] / 1e3:.2f} us a page, "
        f"under TLS {columns['tls'] / 1e3:.2f} us, with all memory direct (a budget of twice the "
        f"memory) {columns['direct'] / 1e3:.3f} us. {ctx.footprint // MIB} MiB in a cgroup, or a "
        f"budget, of {ctx.budget // MIB} MiB; zram with {algorithm or 'its default compressor'}; "
        f"nothing pinned. {note}."
    )
    if not ok:
        by = 8 / value - 1 if pattern == "seq" else value / 0.8 - 1
        detail += missed(ctx, by, f"--pages {ctx.pages} --pattern {pattern} --ops {2 * ctx.pages}")
    raw_figures = {
        "unit": "us a page",
        "columns": {k: round(v / 1e3, 3) for k, v in columns.items()},
        "latency_ns": latency if pattern == "rand" else {},
    }
    return row(id_, value, ok, detail, raw_figures)


STEPS = (1, 2, 5, 13, 33)  # pages
STRIDE_TARGET = 2


def stride_against_zram(ctx: Context, algorithm: str) -> Row:
    """The row stride-vs-zram: touch every N-th page, over and over."""
    ours: dict[int, list[float]] = {n: [] for n in STEPS}
    peer: dict[int, list[float]] = {n: [] for n in STEPS}
    notes: dict[int, str] = {}
    for _ in range(ctx.repeat):
        for n in STEPS:
            words = (
                f"--pages {ctx.pages} --pattern stride --step {n} --content mixed "
                f"--warm {ctx.pages} --ops {ctx.pages}"
            ).split()
            peer[n].append(_on_zram(ctx, algorithm, words)[0]["ns_per_touch"])
            with paged(ctx) as config:
                figures = access(ctx, *words, config=config)
            ours[n].append(figures["ns_per_touch"])
            notes[n] = pager_note(figures)
    ratios = {n: median(peer[n]) / median(ours[n]) for n in STEPS}
    worst = min(STEPS, key=lambda n: ratios[n])
    texts = [
        f"{n}: {median(ours[n]) / 1e3:.2f} us, zram {median(peer[n]) / 1e3:.2f} us "
        f"({ratios[n]:.2f})"
        for n in STEPS
    ]
    ok = ratios[worst] >= STRIDE_TARGET
    detail = (
        f"value is the worst step's, of a donor on this host by shared memory, in the clear. Every "
        f"N-th page is read, then the same from one page further on; timed is one touch for each "
        f"page of memory, after as many to warm up. By N, a touch: {'; '.join(texts)}. "
        f"{ctx.footprint // MIB} MiB in a cgroup, or a budget, of {ctx.budget // MIB} MiB; "
        f"contents compressible; zram with {algorithm or 'its default compressor'}; nothing "
        f"pinned. {notes[worst]}."
    )
    if not ok:
        arguments = f"--pages {ctx.pages} --pattern stride --step {worst} --ops {2 * ctx.pages}"
        detail += missed(ctx, STRIDE_TARGET / ratios[worst] - 1, arguments)
    return row("stride-vs-zram", ratios[worst], ok, detail)


# ---- two threads ----


def raw_scale(ctx: Context) -> dict[str, float]:
    """The rate of bare faults of two threads over that of one; a handler on each thread's CPU."""
    found: dict[str, list[float]] = {"one": [], "apart": [], "striped": [], "shared": []}
    for _ in range(ctx.repeat):
        for way, rates in found.items():
            more = ("1", "apart") if way == "one" else ("2", way)
            argv: list[str | os.PathLike[str]] = [ctx.program("raw_uffd"), "same"]
            argv += [str(ctx.pages), *more]
            rates.append(float(str(host.run(argv, timeout=TIMEOUT).json()["faults_per_s"])))
    one = median(found.pop("one"))
    return {way: median(rates) / one for way, rates in found.items()}


def scale(ctx: Context) -> Row:
    """The rate of faults of two threads over that of one; of touches, if all memory is direct."""
    if (os.cpu_count() or 1) < 2:
        raise BenchError("needs two CPUs")
    ways = ("direct", *WAYS)
    rates: dict[str, dict[int, list[float]]] = {w: {1: [], 2: []} for w in ways}
    busy: dict[int, float] = {}
    cost: dict[int, float] = {}
    for _ in range(ctx.repeat):
        for way in ways:
            direct = way == "direct"
            for threads in (1, 2):
                budget = 2 * ctx.footprint if direct else 0
                with paged(ctx, "shm" if direct else way, lanes=2, budget=budget) as config:
                    figures = access(
                        ctx,
                        *f"--pages {ctx.pages} --pattern rand --threads {threads}".split(),
                        *f"--warm {ctx.pages // threads}".split(),
                        *f"--seconds {0.3 if ctx.tiny else 2}".split(),
                        config=config,
                    )
                rates[way][threads].append(figures["touches_per_s" if direct else "faults_per_s"])
                if way == "shm":
                    busy[threads] = figures["cpu_ns"] / figures["elapsed_ns"]
                    cost[threads] = figures["cpu_ns"] / max(figures["faults"], 1) / 1e3
    of = {way: {n: median(v) for n, v in by.items()} for way, by in rates.items()}
    ratios = {way: v[2] / v[1] for way, v in of.items()}
    one, two, ratio = of["shm"][1], of["shm"][2], ratios["shm"]
    bare = raw_scale(ctx)
    detail = (
        f"value is the ratio: {two:.0f} faults a second with two threads, {one:.0f} with one, "
        f"donor on this host by shared memory, in the clear, reads, nothing pinned, "
        f"{os.cpu_count()} CPUs. CPU time a fault {cost[1]:.1f} "
        f"us with one thread ({busy[1]:.2f} CPUs busy), {cost[2]:.1f} us with two "
        f"({busy[2]:.2f} busy). By TCP {ratios['tcp']:.2f} ({of['tcp'][2]:.0f} over "
        f"{of['tcp'][1]:.0f}), under TLS {ratios['tls']:.2f} ({of['tls'][2]:.0f} over "
        f"{of['tls'][1]:.0f}); with all memory direct, touches a second, {ratios['direct']:.2f}. "
        f"Limits: RAW of two threads over one's, pages installed and nothing else, each thread "
        f"and its handler on a CPU of their own: {bare['shared']:.2f} on one userfaultfd that "
        f"both handlers read, as here; {bare['striped']:.2f} with one for each half of the "
        f"memory, since a fault then often wakes the handler on the other CPU; "
        f"{bare['apart']:.2f} with one for each thread, if no thread touches the other's memory. "
        f"Here evictions add TLB flushes, which interrupt the other CPU."
    )
    if ratio < 1.6:
        detail += missed(
            ctx,
            1.6 / ratio - 1,
            f"--pages {ctx.pages} --pattern rand --threads 2 --ops {ctx.pages}",
        )
    raw_figures = {
        "unit": "two threads over one",
        "columns": {k: round(v, 3) for k, v in ratios.items()},
        "per_second": {way: {str(n): round(r) for n, r in v.items()} for way, v in of.items()},
        "raw": {way: round(v, 3) for way, v in bare.items()},
    }
    return row("scale-2", ratio, ratio >= 1.6, detail, raw_figures)


def core_cpu(ctx: Context) -> Row:
    """The CPU time of the core alone, with a guest and donors that cost nothing."""
    shapes = {
        "256 MiB of 1 GiB": (262144, 65536, 2_000_000, 0),
        "256 MiB of 1 GiB, half writes": (262144, 65536, 2_000_000, 50),
        "4 GiB of 16 GiB": (4194304, 1048576, 4_000_000, 0),
    }
    found: dict[str, float] = {}
    faults = 0
    if ctx.tiny:
        shapes = {name: (8192, 2048, 20_000, n[3]) for name, n in shapes.items()}
    for name, numbers in shapes.items():
        runs = []
        for _ in range(ctx.repeat if "4 GiB" not in name else 1):
            done = host.run([ctx.program("core_cpu"), *map(str, numbers)], timeout=TIMEOUT).json()
            runs.append(float(str(done["ns_per_fault"])))
            faults = int(str(done["faults"]))
        found[name] = median(runs)
    value = found["256 MiB of 1 GiB"] / 1e3
    detail = (
        "value in us. The real core, compiled as in libdcm, behind ops that make no system call "
        "and move no bytes: uniformly random faults with the budget full, each with a fetch, a "
        "victim unmapped and evicted; CPU time of the thread (CLOCK_THREAD_CPUTIME_ID) over "
        f"millions of them ({faults} in the last), less the same loop with the core left out, "
        "over the faults counted; the ops' own memory accesses are thus counted as the core's. "
        "Budgets: "
        + "; ".join(f"{n}: {v / 1e3:.3f} us" for n, v in found.items())
        + ". Larger ones miss the CPU's caches and TLB in the descriptor table (16 bytes a page)."
    )
    if value > 0.5:
        shape = map(str, shapes["256 MiB of 1 GiB"])
        detail += f" Missed by {(value / 0.5 - 1) * 100:.0f} %." + profile(
            ctx, [ctx.program("core_cpu"), *shape]
        )
    return row("core-cpu", value, value <= 0.5, detail)


def round_cpu(ctx: Context) -> Row:
    """Blocks that go round by system calls alone: libdcm's way beside frames that keep memory."""
    ways = {
        "ours": "round of 64K: COPY in, memcpy and DONTNEED out",
        "clean": "round of 64K: read, MOVE in, protect, compare, MOVE out",
        "written": "round of 64K, writable: read, MOVE in and out",
    }
    seen: dict[str, list[float]] = {side: [] for side in ways}
    for _ in range(ctx.repeat):
        done = host.run([ctx.program("uffd_ways")], timeout=TIMEOUT).json()
        for side, way in ways.items():
            if way not in done:
                raise BenchError("this kernel has no UFFDIO_MOVE: Linux 6.8 and later have")
            seen[side].append(float(str(done[way])))
    ns = {side: median(values) for side, values in seen.items()}
    value = ns["written"] / ns["ours"]
    detail = (
        "value is the ratio of CPU time, of system calls and copies alone: no fault, no core. "
        f"libdcm's way: COPY in from a slab of shm, memcpy to a frame and DONTNEED of four blocks "
        f"out, {ns['ours']:.0f} ns a page. Frames that keep their memory: read into one, MOVE in, "
        f"MOVE out, {ns['written']:.0f} ns if the block is mapped writable; if it is clean, and "
        f"so has to be protected and compared after MOVE, {ns['clean']:.0f} ns "
        f"({ns['clean'] / ns['ours']:.2f}). libdcm keeps the first way."
    )
    if value > 0.5:
        detail += (
            f" Missed by {(value / 0.5 - 1) * 100:.0f} %: a MOVE changes the page tables of both "
            "sides and flushes the TLB, which costs as much as allocating and zeroing."
        )
    return row("round-cpu", value, value <= 0.5, detail)
