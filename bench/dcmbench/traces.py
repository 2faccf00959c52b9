# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy rows: page traces of real programs and of a guest (record.py), replayed."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dcmbench import host
from dcmbench.context import Context
from dcmbench.host import BenchError
from dcmbench.record import RECORDS_MAX, Recorder
from dcmbench.report import Row, geomean, row

SHARES = (50, 25)  # the shares of memory that are judged
SIZES = (90, 75, 50, 35, 25, 15, 10)  # the shares in the picture
POLICIES = {
    "opt": "Belady",
    "lru": "LRU",
    "clock": "CLOCK",
    "s3fifo": "S3-FIFO",
    "arc": "ARC",
    "lru3_4k": "LRU-3, 4 KiB",
    "lru3_elastic": "LRU-3, blocks",
}
CLASSIC = ("lru", "clock", "s3fifo", "arc")
REPLAY_S = 900.0


def replay(ctx: Context, path: Path, share: int) -> dict[str, Any]:
    return host.run([ctx.program("policy"), path, str(share)], timeout=REPLAY_S).json()


def _encode(pages: list[tuple[int, bool]]) -> bytes:
    """Encode a trace in the format of pagetrace."""
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
    """The misses of LRU and of Belady's optimum, computed in a slow and obvious way."""
    following: list[int] = [0] * len(pages)
    last: dict[int, int] = {}
    for i in reversed(range(len(pages))):
        following[i] = last.get(pages[i], len(pages))
        last[pages[i]] = i
    found = {"lru": 0, "opt": 0}
    for name in found:
        resident: dict[int, int] = {}  # by page: a key; the largest is the victim's
        seen: set[int] = set()
        for i, page in enumerate(pages):
            if page not in resident:
                found[name] += page in seen
                seen.add(page)
                if len(resident) == frames:
                    del resident[max(resident, key=lambda p: resident[p])]
            resident[page] = following[i] if name == "opt" else -i
    return found


def _naive_arc(pages: list[int], frames: int) -> int:
    """The misses of ARC, computed in a slow and obvious way: with lists, oldest first."""
    t1: list[int] = []
    t2: list[int] = []
    b1: list[int] = []
    b2: list[int] = []
    aim, misses = 0.0, 0
    seen: set[int] = set()

    def replace(in_b2: bool) -> None:
        if t1 and (not t2 or len(t1) > aim or (in_b2 and len(t1) == aim)):
            b1.append(t1.pop(0))
        else:
            b2.append(t2.pop(0))

    for page in pages:
        misses += page in seen and page not in t1 and page not in t2
        seen.add(page)
        if page in t1 or page in t2:
            (t1 if page in t1 else t2).remove(page)
            t2.append(page)
            continue
        if page in b1:
            aim = min(frames, aim + max(len(b2) // len(b1), 1))
            replace(False)
            b1.remove(page)
            t2.append(page)
            continue
        if page in b2:
            aim = max(0, aim - max(len(b1) // len(b2), 1))
            replace(True)
            b2.remove(page)
            t2.append(page)
            continue
        if len(t1) + len(b1) == frames:
            if len(t1) < frames:
                b1.pop(0)
                replace(False)
            else:
                t1.pop(0)
        elif len(t1) + len(t2) + len(b1) + len(b2) >= frames:
            if len(t1) + len(t2) + len(b1) + len(b2) == 2 * frames:
                b2.pop(0)
            replace(False)
        t1.append(page)
    return misses


def self_check(ctx: Context) -> None:
    """Compare the fast replay with the slow one on a small trace; an error if they differ."""
    r = random.Random(5)
    pages = [(0x7F0000000 + int(300 * r.random() ** 2), r.random() < 0.3) for _ in range(6000)]
    path = ctx.scratch / "check.trace"
    path.write_bytes(_encode(pages))
    fast = replay(ctx, path, 50)
    slow = _naive([p for p, _ in pages], fast["frames"])
    slow["arc"] = _naive_arc([p for p, _ in pages], fast["frames"])
    if slow != {k: fast[k] for k in slow}:
        raise BenchError(f"replay is wrong: {fast} is not {slow}")


def _misses(r: dict[str, Any]) -> dict[str, int]:
    """The misses of each policy; for our own, also the number of fetched pages."""
    found = {p: r[p] if isinstance(r[p], int) else r[p]["misses"] for p in POLICIES}
    return found | {"pages": r["lru3_elastic"]["pages"]}


def _replays(ctx: Context) -> dict[str, dict[int, dict[str, Any]]]:
    """Replay the traces of programs and guest with each share; done once, for both rows."""
    if ctx.replays:
        return ctx.replays
    self_check(ctx)
    recorder, sizes = Recorder(ctx), SHARES if ctx.tiny else SIZES
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # in parallel, as nothing is timed
        for name in recorder.names:
            path = recorder.trace(name)
            done = list(pool.map(lambda share, path=path: replay(ctx, path, share), sizes))
            ctx.replays[name] = dict(zip(sizes, done, strict=True))
            ctx.progress.say(f"policy: {name} replayed")
    return ctx.replays


def _table(replays: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    columns = ("opt", *CLASSIC)
    lines = [
        f"{'program':<10} {'share':>5} {'frames':>8} "
        + " ".join(f"{POLICIES[c]:>9}" for c in columns)
        + f" {'LRU-3 4K':>9} {'blocks':>9} {'(pages)':>9} {'acc.bits':>9} {'(pages)':>9}"
    ]
    for name, by_share in replays.items():
        for share in SHARES:
            r = by_share[share]
            elastic, exact = r["lru3_elastic"], r["lru3_elastic_accessed_bits"]
            lines.append(
                f"{name:<10} {share:4d}% {r['frames']:8d} "
                + " ".join(f"{r[c]:9d}" for c in columns)
                + f" {r['lru3_4k']['misses']:9d} {elastic['misses']:9d} {elastic['pages']:9d}"
                f" {exact['misses']:9d} {exact['pages']:9d}"
            )
    return lines


def _judged(replays: dict[str, dict[int, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    return {
        f"{name} at {share} %": by_share[share]
        for name, by_share in replays.items()
        for share in SHARES
    }


def _pressed(r: dict[str, Any]) -> bool:
    """Whether the optimum has enough misses (1 % of the footprint) for a ratio to mean anything."""
    return r["opt"] * 100 >= r["footprint"]


SEEN = (
    "The real core behind a guest that costs nothing, use of pages known by sampling as in libdcm; "
    "a miss is a fetch an access waits for, first touches count for nobody; the others work with "
    "fixed 4 KiB and see every access, LRU-3 sees its faults only."
)


def policy_4k(ctx: Context) -> Row:
    """Judge replacement alone: with blocks of 4 KiB, and without fetching ahead."""
    judged = _judged(_replays(ctx))
    best = {case: min(CLASSIC, key=lambda c: r[c]) for case, r in judged.items()}
    over = {
        case: max(r["lru3_4k"]["misses"], 1) / max(r[best[case]], 1) for case, r in judged.items()
    }
    value, worst = geomean(list(over.values())), max(over, key=lambda case: over[case])
    ok = value <= 1.0 and over[worst] <= 1.1
    means = ", ".join(
        f"{geomean([max(r['lru3_4k']['misses'], 1) / max(r[c], 1) for r in judged.values()]):.2f} "
        f"over {POLICIES[c]}'s"
        for c in CLASSIC
    )
    each = "; ".join(f"{case} {over[case]:.2f} ({POLICIES[best[case]]})" for case in judged)
    detail = (
        f"value is LRU-3's misses with blocks of 4 KiB, and nothing fetched ahead, over those of "
        f"the best of {', '.join(POLICIES[c] for c in CLASSIC)} on each trace, geometric mean of "
        f"{len(judged)}; the worst is {over[worst]:.2f}, {worst}. {means}. By trace, and the best "
        f"there: {each}. {SEEN}"
    )
    return row("policy-4k", value, ok, detail)


def policy(ctx: Context) -> Row:
    """Judge elastic blocks and fetching ahead too, against the optimum, which has neither."""
    replays = _replays(ctx)
    every, lines = _judged(replays), _table(replays)
    judged = {case: r for case, r in every.items() if _pressed(r)}
    easy = ", ".join(case for case in every if case not in judged)
    ctx.notes["policy"] = "\n".join(lines)
    raw = {
        name: {str(share): _misses(r) for share, r in by_share.items()}
        for name, by_share in replays.items()
    }

    def mean(ours: str, figure: str, other: str) -> float:
        return geomean([max(r[ours][figure], 1) / max(r[other], 1) for r in judged.values()])

    value, pages = mean("lru3_elastic", "misses", "opt"), mean("lru3_elastic", "pages", "lru")
    exact = "lru3_elastic_accessed_bits"
    lru = geomean([r["lru"] / max(r["opt"], 1) for r in judged.values()])
    detail = (
        f"value is the misses of LRU-3 with blocks of up to 64 KiB, and with what is fetched "
        f"ahead, over Belady's with fixed 4 KiB, geometric mean of {len(judged)} "
        f"({', '.join(replays)}; room for 50 and 25 % of the footprint"
        + (f"; not {easy}, where the optimum misses next to nothing" if easy else "")
        + "). Pages fetched over "
        f"LRU's, which are its misses: {pages:.2f}. With a kernel's accessed bits "
        f"{mean(exact, 'misses', 'opt'):.2f} and {mean(exact, 'pages', 'lru'):.2f}; with blocks of "
        f"4 KiB and nothing fetched ahead {mean('lru3_4k', 'misses', 'opt'):.2f} of Belady's "
        f"misses, LRU {lru:.2f}. {SEEN} Misses; for LRU-3 also pages fetched: "
        + " | ".join(" ".join(line.split()) for line in lines)
        + "."
    )
    ok = value <= 1.1 and pages <= 1.15
    cut = [name for name, by_share in replays.items() if _is_cut(by_share)]
    if cut:
        detail += f" Of {', '.join(cut)} the first {RECORDS_MAX / 1e6:.0f} million records."
    return row("policy", value, ok, detail, {"misses": raw, "names": POLICIES, "cut": cut})


def _is_cut(by_share: dict[int, dict[str, Any]]) -> bool:
    return any(r["records"] >= RECORDS_MAX for r in by_share.values())
