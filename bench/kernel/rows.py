# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows: what is run on which side, and what is made of the counts."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import l1

from tests.vm.bed import Spec

Say = Callable[[str], None]
Raw = dict[str, Any]

# What it is, the target.
WHAT = {
    "fault-insns": (
        "L1 kernel instructions per 4 KiB major fault, eviction included, random, over swap on brd",
        "<= 0.5 x",
    ),
    "seq-insns": ("the same per page brought in, sequential", "<= 0.15 x"),
}


@dataclass(frozen=True)
class Row:
    """One line of kernel.json."""

    id: str
    what: str
    value: float | None
    target: str
    ok: bool
    repeat: int
    command: str
    detail: str
    raw: Raw  # of each side, run by run


def row(id_: str, value: float | None, ok: bool, raw: Raw, repeat: int, detail: str) -> Row:
    what, target = WHAT[id_]
    command = f"scripts/py python bench/kernel/run --only {id_}"
    number = None if value is None else round(value, 3)
    return Row(id_, what, number, target, ok, repeat, command, detail, raw)


def median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


# -- fault-insns, seq-insns ------------------------------------------------

# Where instructions go, by function; the first that fits.
PARTS = {
    "core": r"^dcm_|^(fetch|evict|queue|block|extent|place|fifo|habit|eblk|pd)_.*\[kvm_dcm\]",
    "dcmfs": r"\[kvm_dcm\]",
    "allocating and freeing frames": r"alloc_page|rmqueue|free_unref|free_page|freelist|prep_new"
    r"|free_frozen|__free_one|mempool|alloc_pages|free_pages|zone_|pcp",
    "memory cgroup and statistics": r"memcg|mem_cgroup|lruvec|rstat|node_page_state|zone_state"
    r"|obj_cgroup|charge|count_vm",
    "slab's or swap's pages": r"shmem|filemap|xa_|xas_|brd|swap|bio|blk|submit|zswap|cluster",
    "page tables": r"pte|pmd|unmap|zap|tlb|rmap|vm_insert|insert_page|mas_|mt_|mmap|vma|flush"
    r"|page_vma|interval_tree|try_to_",
    "LRU and reclaim": r"lru|shrink|isolate|folio|reclaim|workingset|kswapd|scan",
    "entering the kernel": r"fault|entry|exc_|irq|restore_regs|error_",
    "locks and RCU": r"lock|rcu|preempt|mutex|up_|down_|barrier|atomic",
    "clock": r"tick|time|hrtimer|sched|clock|rt_|update_",
}


def parts(where: collections.Counter[str], per: int) -> dict[str, float]:
    """Instructions of each part, per `per`."""
    found: collections.Counter[str] = collections.Counter()
    for name, count in where.items():
        part = next((p for p, r in PARTS.items() if re.search(r, name)), "else")
        found[part] += count
    return {name: round(count / per, 1) for name, count in found.most_common()}


@dataclass(frozen=True)
class Case:
    """One load of the instruction rows."""

    name: str
    pattern: str
    writes: int
    accesses: int


def _counted(side: l1.Side, case: Case, size: int, seed: int) -> Raw:
    ran = side.touch(f"{size} {case.pattern} {case.writes} {case.accesses} 1 {seed}")
    ours = side.name == "dcmfs"
    faults = ran.rose["FAULT_MISSING"] if ours else ran.told["majflt"]
    pages = ran.rose["FETCHED_PAGES"] if ours else ran.rose["pswpin"]
    out = ran.rose["WRITTEN_PAGES"] if ours else ran.rose["pswpout"]
    per = pages if case.pattern == "seq" else faults
    return {
        "side": side.name,
        "load": case.name,
        "faults": faults,
        "pages_in": pages,
        "pages_out": out,
        "kernel_insns": ran.kernel,
        "insns_per": round(ran.kernel / per, 1),
        "with_repeats_per": round((ran.kernel + ran.repeated) / per, 1),
        "parts_per": parts(ran.where, per),
        "most": {name: round(n / per, 1) for name, n in ran.where.most_common(24)},
    }


SIZE, LIMIT = 64, 32


def _pair(bed: l1.Bed, ours: bool, size: int, limit: int) -> AbstractContextManager[l1.Side]:
    if ours:
        return l1.dcmfs(bed, size, limit)
    return l1.swap(bed, "brd", 4 * size, limit)


def _insns(id_: str, cases: list[Case], most: float, say: Say, repeat: int) -> Row:
    spec = Spec(memory_mib=1024, cpus=1, kvm=False, guest=False)
    runs: list[Raw] = []
    with l1.CountedBed(spec, keep=l1.OUT / id_) as bed:
        l1.prepare(bed)
        for seed in range(1, repeat + 1):
            for case in cases:
                for ours in (False, True):
                    with _pair(bed, ours, SIZE, LIMIT) as side:
                        runs.append(_counted(side, case, SIZE, seed))
                    done = runs[-1]
                    say(f"{id_}: {case.name}, {done['side']}: {done['insns_per']}")
        _judge(bed)

    def figure(side: str, case: Case, what: str = "insns_per") -> float:
        return median(r[what] for r in runs if r["side"] == side and r["load"] == case.name)

    texts, ratios = [], []
    for case in cases:
        ours, peer = figure("dcmfs", case), figure("brd", case)
        ratios.append(ours / peer)
        copied = figure("dcmfs", case, "with_repeats_per") / figure("brd", case, "with_repeats_per")
        texts.append(
            f"{case.name}: {ours:.0f} against {peer:.0f} = {ours / peer:.3f} "
            f"({copied:.3f} when each repetition of a string instruction counts)"
        )
    value = max(ratios)
    detail = f"the worse of: {'; '.join(texts)}; {SIZE} MiB, {LIMIT} MiB direct, one processor"
    return row(id_, value, value <= most, {"runs": runs}, repeat, detail)


def _judge(bed: l1.Bed) -> None:
    """An L1 whose kernel complains has measured nothing."""
    wrong = bed.finish()
    if wrong:
        raise RuntimeError(f"L1 complains: {wrong[:5]}")


def fault_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "rand", 50, 20000), Case("only read", "rand", 0, 20000)]
    return _insns("fault-insns", cases, 0.5, say, repeat)


def seq_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "seq", 50, 49152), Case("only read", "seq", 0, 49152)]
    return _insns("seq-insns", cases, 0.15, say, repeat)


MEASURES: dict[str, Callable[[Say, int], Row]] = {
    "fault-insns": fault_insns,
    "seq-insns": seq_insns,
}
