# SPDX-License-Identifier: GPL-2.0-or-later
"""Real programs from Debian: start each, plain or under dcmctl run, and return its result.

The inputs are in the page cache beforehand, charged to no cgroup; the output is hashed as it comes.
dcmctl preloads tcmalloc for most programs. So the plain run is done with the program's own
allocator and with tcmalloc, and the faster of the two counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from dcmbench import donors, host, inputs
from dcmbench.context import Context
from dcmbench.host import BenchError
from dcmbench.report import median

PLAIN_MAX_S = 120.0
PYTHON = "/usr/bin/python3"  # Debian's, which is the one with python3-scipy


@dataclasses.dataclass(frozen=True)
class App:
    """A program, the command that starts it, and the Debian package that has it."""

    name: str
    what: str
    package: str
    argv: tuple[str, ...]
    stdin: str = ""
    server: bool = False


def _redis(ctx: Context) -> str:
    """The path of a link called redis-server to Debian's Redis binary, which acts by its name.

    That binary is in redis-tools. The package redis-server has only such a link, and a service
    that would be started."""
    link = ctx.build / "bench" / "redis-server"
    if not link.is_symlink():
        link.symlink_to("/usr/bin/redis-check-rdb")
    return os.fspath(link)


def catalogue(ctx: Context, size: inputs.Size) -> list[App]:
    """All programs: servers, tables, sorting, graphs, compilers."""
    count = '{ n[$2 " " $3]++; s[$1] += $4 } END { for (k in n) t += n[k] * length(k); print t }'
    group = (
        ". as $rows | range($passes) | $rows | group_by(.b) | "
        "map({b: .[0].b, n: length, most: (map(.c) | max)}) | sort_by(-.n)"
    )
    order = ("-k2,2", "-k4,4n") if size.passes == 1 else ("-R", "-k2,2", "--random-source=lines")
    graph, rows = (os.fspath(inputs.APPS / name) for name in ("graph.py", "rows.xsl"))
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
            ("sort", "--parallel=1", "-S", "1G", *order, "lines"),
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
        App(
            "xz",
            "xz: compress text, dictionary of 64 MiB",
            "xz-utils",
            ("xz", "-T1", "-9", "-c", "part"),
        ),
        App(
            "mawk",
            "mawk: count words and sum by key",
            "mawk",
            ("mawk", count, *["lines"] * (size.passes // 2 or 1)),
        ),
        App(
            "jq",
            "jq: group and sort JSON",
            "jq",
            ("jq", "-c", "-s", "--argjson", "passes", str(size.passes), group, "rows.json"),
        ),
        App(
            "xsltproc",
            "libxslt: sort and count the elements of a document",
            "xsltproc",
            ("xsltproc", "--huge", "--param", "passes", str(size.passes), rows, "rows.xml"),
        ),
        App(
            "cc1plus",
            "GCC's C++ compiler, -O2, of generated templates",
            "g++",
            (*_cc1plus(), "-O2", "-o", "-", "large.cc"),
        ),
    ]


def _cc1plus() -> list[str]:
    """The command of the compiler itself, cc1plus, as g++ would start it."""
    if not shutil.which("g++"):
        return ["cc1plus"]

    def ask(what: str) -> str:
        return subprocess.run(["g++", what], check=True, capture_output=True, text=True).stdout

    return [
        ask("-print-prog-name=cc1plus").strip(),
        *("-quiet", "-imultiarch", ask("-print-multiarch").strip(), "-D_GNU_SOURCE"),
    ]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of one program."""

    seconds: float
    result: str
    peak: int  # of anonymous memory, sampled from outside
    rss: int
    note: str = ""  # the pager's counters, as text


def environment(ctx: Context, preload: str = "") -> dict[str, str]:
    env = {**ctx.environment, "LC_ALL": "C", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env.pop("LD_LIBRARY_PATH")
    if preload:
        env |= {"LD_PRELOAD": preload, "TCMALLOC_SKIP_SBRK": "1"}  # as dcmctl run has it
    return env


def tcmalloc() -> str:
    found = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return os.fspath(found[0]) if found else ""


def allocators(app: App) -> list[str]:
    """Libraries to preload: none, and tcmalloc; Debian's Redis brings jemalloc."""
    return [""] if app.server or not tcmalloc() else ["", tcmalloc()]


def preloaded(app: App) -> str:
    """The allocator that dcmctl run preloads, if it preloads one."""
    return allocators(app)[-1]


class Killed(BenchError):
    """The OOM killer ended the program."""


def _failed(done: host.Ran, limit: float) -> BenchError:
    if done.timed_out:
        return BenchError(f"slower than {limit:.0f} s, ended")
    if done.status == -signal.SIGKILL:
        return Killed("killed by the kernel's OOM killer")
    return BenchError(f"status {done.status}: {done.error.strip()[-160:]}")


def run(
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
    """Run a Redis server under the limit, and a load outside of it; the load is timed."""
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
def _donor(ctx: Context, way: str) -> Iterator[donors.Donor]:
    encryption = "yes" if way == "tls" else "no"
    with donors.donor(
        ctx.donord, ctx.scratch / "donor", options={"data-encryption": encryption}
    ) as found:
        yield found


def _dcmctl(ctx: Context, d: donors.Donor, way: str, budget: int) -> list[str]:
    return [
        os.fspath(ctx.root / "bin" / "dcmctl"),
        *("run", "--mode", "program", "--budget", str(budget), "--size", "16G"),
        *("--threshold", "1M"),  # so that all of the allocator's memory is paged
        *("--donor", d.unix if way == "shm" else d.tcp, "--keys", os.fspath(d.keys)),
        *(() if way == "tls" else ("--no-encrypt-data",)),
        "--",
    ]


@contextlib.contextmanager
def paged(ctx: Context, way: str, budget: int) -> Iterator[list[str]]:
    """Run a donor until the end of the block; yield the command prefix for a paged program."""
    with _donor(ctx, way) as d:
        yield _dcmctl(ctx, d, way, budget)


def alone(
    ctx: Context, app: App, folder: Path, size: inputs.Size, env: dict[str, str]
) -> Outcome:
    """Run a program without the pager and without a memory limit."""
    ctx.check_time()
    return run(
        ctx, app, folder, size, prefix=[], env=env, timeout=PLAIN_MAX_S, cgroup=None
    )


def plain(
    ctx: Context, app: App, folder: Path, size: inputs.Size
) -> tuple[float, Outcome, str, str]:
    """Do plain runs: median seconds, outcome with its own allocator, fastest preload, a note."""
    times: dict[str, list[float]] = {preload: [] for preload in allocators(app)}
    first: Outcome | None = None

    def once(preload: str) -> None:
        nonlocal first
        done = alone(ctx, app, folder, size, environment(ctx, preload))
        times[preload].append(done.seconds)
        first = first or done
        if done.result != first.result:
            raise BenchError("two plain runs differ: not a usable program")

    for preload in times:
        once(preload)
    for _ in range(0 if ctx.tiny else 2):
        once(min(times, key=lambda p: min(times[p])))
    assert first
    best = min(times, key=lambda p: median(times[p]))
    note = " / ".join(f"{min(v):.2f}" for v in times.values())
    return median(times[best]), first, best, note


def ours(
    ctx: Context, app: App, folder: Path, size: inputs.Size, way: str, limit: int, timeout: float
) -> Outcome:
    ctx.check_time()
    env = environment(ctx)
    sampler = donors.StatusSampler(Path(env["DCM_RUNTIME_DIR"]))
    sampler.start()
    try:
        with _donor(ctx, way) as d:
            done = run(
                ctx,
                app,
                folder,
                size,
                prefix=_dcmctl(ctx, d, way, limit),
                env=env,
                timeout=timeout,
                cgroup=None,
            )
    finally:
        note = donors.pager_note(sampler.stop())
    return dataclasses.replace(done, note=note)
