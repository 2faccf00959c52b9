# SPDX-License-Identifier: GPL-2.0-or-later
"""`fault-insns`, `seq-insns`: the kernel's instructions, counted by a plugin of QEMU."""

from __future__ import annotations

import collections
import re
from dataclasses import dataclass

from kernel import l1
from kernel.row import Raw, Row, Say, median, row
from tests.vm.bed import Spec

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
    faults, pages = side.faults(ran), side.pages_in(ran)
    out = ran.rose["WRITTEN_PAGES" if side.name == "dcmfs" else "pswpout"]
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


def _shares(runs: list[Raw], case: Case) -> str:
    """Where our instructions are: a row can't get below what is the kernel's own."""
    ours = [r for r in runs if r["side"] == "dcmfs" and r["load"] == case.name]
    core, dcmfs = (median(r["parts_per"].get(p, 0.0) for r in ours) for p in ("core", "dcmfs"))
    rest = median(r["insns_per"] for r in ours) - core - dcmfs
    return f"{core:.0f} are the core's, {dcmfs:.0f} dcmfs's, {rest:.0f} the kernel's own"


def _insns(id_: str, cases: list[Case], most: float, say: Say, repeat: int) -> Row:
    spec = Spec(quick=False, memory_mib=1024, cpus=1, kvm=False, guest=False)
    runs: list[Raw] = []
    with l1.CountedBed(spec, keep=l1.OUT / id_) as bed:
        l1.prepare(bed)
        swaps = l1.Swaps(bed, 4 * l1.SIZE)
        for seed in range(1, repeat + 1):
            for case in cases:
                for name in ("brd", "dcmfs"):
                    with l1.side(swaps, name, l1.SIZE, l1.LIMIT * l1.MIB) as side:
                        runs.append(_counted(side, case, l1.SIZE, seed))
                    done = runs[-1]
                    say(f"{id_}: {case.name}, {done['side']}: {done['insns_per']}")
        l1.judge(bed)

    def figure(side: str, case: Case, what: str = "insns_per") -> float:
        return median(r[what] for r in runs if r["side"] == side and r["load"] == case.name)

    texts, ratios = [], []
    for case in cases:
        ours, peer = figure("dcmfs", case), figure("brd", case)
        ratios.append(ours / peer)
        copied = figure("dcmfs", case, "with_repeats_per") / figure("brd", case, "with_repeats_per")
        texts.append(
            f"{case.name}: {ours:.0f} against {peer:.0f} = {ours / peer:.3f} "
            f"({copied:.3f} when each repetition of a string instruction counts; "
            f"{_shares(runs, case)})"
        )
    value = max(ratios)
    detail = (
        f"the worse of: {'; '.join(texts)}; "
        f"{l1.SIZE} MiB, {l1.LIMIT} MiB direct, one processor"
    )
    return row(id_, value, value <= most, {"runs": runs}, repeat, detail)


def fault_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "rand", 50, 16384), Case("only read", "rand", 0, 16384)]
    return _insns("fault-insns", cases, 0.35, say, repeat)


def seq_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "seq", 50, 32768), Case("only read", "seq", 0, 32768)]
    return _insns("seq-insns", cases, 0.08, say, repeat)
