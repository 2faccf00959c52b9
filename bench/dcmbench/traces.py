# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy row: page traces of real programs, recorded once and kept, and replayed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from dcmbench import host, inputs, programs
from dcmbench.context import Context
from dcmbench.host import BenchError
from dcmbench.report import Row, geomean, row

PROGRAMS = ("redis", "sqlite", "sort", "minimap2")
SHARES = (50, 25)  # judged
SIZES = (90, 75, 50, 35, 25, 15, 10)  # of the picture
POLICIES = {
    "opt": "Belady",
    "lru": "LRU",
    "clock": "CLOCK",
    "s3fifo": "S3-FIFO",
    "lru3_4k": "LRU-3, 4 KiB",
    "lru3_elastic": "LRU-3, blocks",
}
RECORDS_MAX = 40_000_000
RECORD_S = 120.0


def _tool(ctx: Context) -> tuple[Path, dict[str, str]]:
    folder = ctx.build / "bench" / "valgrind"
    if not (folder / "pagetrace-amd64-linux").exists():
        raise BenchError("pagetrace is not built: make -C bench (needs the valgrind package)")
    return folder, {"VALGRIND_LIB": os.fspath(folder), "LC_ALL": "C"}


def _record(ctx: Context, app: programs.App, folder: Path, size: inputs.Size, out: Path) -> None:
    _, env = _tool(ctx)
    valgrind = ["valgrind", "-q", "--tool=pagetrace", f"--out={out}", f"--records={RECORDS_MAX}"]
    if not app.server:
        done = host.run(
            [*valgrind, *app.argv],
            timeout=RECORD_S,
            env=env,
            cwd=folder,
            stdin=folder / app.stdin if app.stdin else None,
        )
        if done.status or done.timed_out:
            raise BenchError(f"recording {app.name}: {done.error.strip()[-200:]}")
        return
    sock = ctx.scratch / "trace.sock"
    server = host.spawn(
        [*valgrind, *app.argv, "--unixsocket", sock, "--save", ""], env=env, cwd=ctx.scratch
    )
    try:
        deadline = time.monotonic() + 30
        while not sock.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"recording {app.name}: the server did not start")
            time.sleep(0.05)
        done = host.run(
            [ctx.program("zipf"), sock, str(size.keys), "1000", str(size.requests), "10"],
            timeout=RECORD_S,
        )
        if done.status or done.timed_out:
            raise BenchError(f"recording {app.name}: {done.error.strip()[-200:]}")
        server.send_signal(signal.SIGTERM)  # the tool writes its last buffer at exit
        server.wait(20)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.kill_group(server)


def traces(ctx: Context) -> dict[str, Path]:
    """Trace files by program; recorded if they are not in the cache."""
    size = inputs.SMALL
    folder = inputs.make(ctx.cache, size)
    tool, _ = _tool(ctx)
    digest = hashlib.sha256((folder.name + str(RECORDS_MAX)).encode())
    digest.update((Path(__file__).parent.parent / "pagetrace.c").read_bytes())
    found: dict[str, Path] = {}
    for app in programs.catalogue(ctx, size):
        if app.name not in PROGRAMS:
            continue
        key = digest.copy()
        key.update(repr((app.name, app.argv[1:])).encode())
        binary = shutil.which(app.argv[0])
        if not binary:
            raise BenchError(f"{app.argv[0]} is missing: apt install {app.package}")
        key.update(Path(binary).read_bytes())
        path = ctx.cache / f"bench-trace-{app.name}-{key.hexdigest()[:16]}"
        if not path.exists():
            ctx.progress.say(f"policy: recording {app.name} (once; kept in {ctx.cache})")
            temporary = path.with_suffix(".tmp")
            _record(ctx, app, folder, size, temporary)
            temporary.rename(path)
        found[app.name] = path
    assert tool
    return found


def replay(ctx: Context, path: Path, share: int) -> dict[str, Any]:
    return host.run([ctx.program("policy"), path, str(share)], timeout=120.0).json()


def _encode(pages: list[tuple[int, bool]]) -> bytes:
    """A trace as pagetrace writes it."""
    out, last = bytearray(), 0
    for page, write in pages:
        delta = page - last
        value = (2 * delta if delta >= 0 else -2 * delta - 1) << 1 | write
        last = page
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def _naive(pages: list[int], frames: int) -> dict[str, int]:
    """LRU's and Belady's misses, the slow and obvious way."""
    following: list[int] = [0] * len(pages)
    last: dict[int, int] = {}
    for i in reversed(range(len(pages))):
        following[i] = last.get(pages[i], len(pages))
        last[pages[i]] = i
    found = {"lru": 0, "opt": 0}
    for name in found:
        resident: dict[int, int] = {}  # page: what makes it a victim, if it is largest
        seen: set[int] = set()
        for i, page in enumerate(pages):
            if page not in resident:
                found[name] += page in seen
                seen.add(page)
                if len(resident) == frames:
                    del resident[max(resident, key=lambda p: resident[p])]
            resident[page] = following[i] if name == "opt" else -i
    return found


def self_check(ctx: Context) -> None:
    """The fast replay against the slow one, on a small trace; an error if they differ."""
    r = random.Random(5)
    pages = [(0x7F0000000 + int(300 * r.random() ** 2), r.random() < 0.3) for _ in range(6000)]
    path = ctx.scratch / "check.trace"
    path.write_bytes(_encode(pages))
    fast = replay(ctx, path, 50)
    slow = _naive([p for p, _ in pages], fast["frames"])
    if slow != {k: fast[k] for k in slow}:
        raise BenchError(f"replay is wrong: {fast} is not {slow}")


def _misses(r: dict[str, Any]) -> dict[str, int]:
    """Of each policy; of ours also the pages that were fetched."""
    found = {p: r[p] if isinstance(r[p], int) else r[p]["misses"] for p in POLICIES}
    return found | {"pages": r["lru3_elastic"]["pages"]}


def policy(ctx: Context) -> Row:
    self_check(ctx)
    raw: dict[str, Any] = {}
    columns = ("opt", "lru", "clock", "s3fifo")
    lines = [
        f"{'program':<10} {'share':>5} {'frames':>8} "
        + " ".join(f"{c:>9}" for c in ("Belady", "LRU", "CLOCK", "S3-FIFO"))
        + f" {'LRU-3 4K':>9} {'elastic':>9} {'(pages)':>9} {'acc.bits':>9} {'(pages)':>9}"
    ]
    worst: list[str] = []
    # LRU-3 over another policy: its misses with blocks of 4 KiB, and with blocks; then, with
    # blocks, the pages fetched over the other's, which are its misses.
    ways = ("4K", "blocks", "pages")
    over: dict[str, dict[str, list[float]]] = {
        other: {way: [] for way in ways} for other in ("lru", "clock", "s3fifo")
    }
    for name, path in traces(ctx).items():
        sizes = SHARES if ctx.tiny else SIZES
        replayed = {share: replay(ctx, path, share) for share in sizes}
        raw[name] = {str(share): _misses(r) for share, r in replayed.items()}
        for share in SHARES:
            r = replayed[share]
            elastic, exact = r["lru3_elastic"], r["lru3_elastic_accessed_bits"]
            lines.append(
                f"{name:<10} {share:4d}% {r['frames']:8d} "
                + " ".join(f"{r[c]:9d}" for c in columns)
                + f" {r['lru3_4k']['misses']:9d} {elastic['misses']:9d} {elastic['pages']:9d}"
                f" {exact['misses']:9d} {exact['pages']:9d}"
            )
            ours = dict(
                zip(
                    ways,
                    (r["lru3_4k"]["misses"], elastic["misses"], elastic["pages"]),
                    strict=True,
                )
            )
            for other, of in over.items():
                for way in ways:
                    of[way].append(max(ours[way], 1) / max(r[other], 1))
            for other in ("lru", "clock"):
                if ours["4K"] >= r[other]:
                    worst.append(
                        f"{name} at {share} %: {ours['4K']} against {other.upper()}'s {r[other]}"
                    )
        ctx.progress.say(f"policy: {name} replayed")
    ctx.notes["policy"] = "\n".join(lines)
    value = geomean(over["lru"]["4K"])
    means = "; ".join(
        f"over {other.upper()}'s " + ", ".join(f"{geomean(of[way]):.2f} ({way})" for way in ways)
        for other, of in over.items()
    )
    detail = (
        f"value is LRU-3's misses over plain LRU's, both with blocks of 4 KiB, geometric mean of "
        f"{len(over['lru']['4K'])} ({', '.join(PROGRAMS)}; room for 50 and 25 % of the footprint). "
        f"{means}: misses with blocks of 4 KiB, misses with blocks of up to 64 KiB, and the pages "
        f"that these fetch over the other's. The real core behind a guest that costs "
        f"nothing, use of pages known by sampling as in libdcm; a miss is a fetch an access "
        f"waits for, first touches count for nobody; LRU, CLOCK, S3-FIFO and Belady work with "
        f"fixed 4 KiB and see every access, LRU-3 sees its faults only. Misses; for LRU-3 also "
        f"pages fetched: " + " | ".join(" ".join(line.split()) for line in lines) + "."
    )
    if worst:
        detail += " Not below: " + "; ".join(worst) + "."
    return row("policy", value, not worst, detail, {"misses": raw, "names": POLICIES})
