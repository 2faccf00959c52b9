# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows: what is run on which side, and what is made of the counts."""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel import l1
from tests.guest.vmharness import GuestError, GuestGone
from tests.vm.bed import Bed, Spec
from tests.vm.job import CommandTimeout

Say = Callable[[str], None]
Raw = dict[str, Any]

# For each row: what it measures, and the target.
WHAT = {
    "fault-insns": (
        "L1 kernel instructions per 4 KiB major fault, eviction included, random, over swap on brd",
        "<= 0.35 x",
    ),
    "seq-insns": ("the same per page brought in, sequential", "<= 0.08 x"),
    "faults-bytes": (
        "major faults over those of the best swap; the worst of all loads",
        "< 1 x, and bytes moved <= 1.3 x",
    ),
    "exits": (
        "KVM exits per page brought in, sequential, elastic",
        "as stock KVM allows: 1 violation, 5 % for those it repeats",
    ),
    "huge": (
        "part of a guest's memory in KVM's 2 MiB entries, all of it direct",
        ">= 0.95, and <= 0.01 exits a page at first touch",
    ),
    "scale-vcpu": (
        "faults a second with 1, 2, 4 threads over those of swap on brd; the lowest",
        "> 1 at every count, and rising",
    ),
    "metadata": ("bytes of metadata for a page in use, of a 1 TiB sparse file", "<= 9"),
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
    faults = ran.rose["FAULT_MISSING"] if ours else ran.figures["majflt"]
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
HUGE_PAGES = 512


def _side(swaps: l1.Swaps, name: str, size: int, limit: int) -> AbstractContextManager[l1.Side]:
    """That side, with `limit` bytes of memory; `size` in MiB is the file's on dcmfs."""
    if name == "dcmfs":
        return l1.dcmfs(swaps.bed, size, limit)
    return l1.swap(swaps, name, limit)


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
        swaps = l1.Swaps(bed, 4 * SIZE)
        for seed in range(1, repeat + 1):
            for case in cases:
                for name in ("brd", "dcmfs"):
                    with _side(swaps, name, SIZE, LIMIT * l1.MIB) as side:
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
            f"({copied:.3f} when each repetition of a string instruction counts; "
            f"{_shares(runs, case)})"
        )
    value = max(ratios)
    detail = f"the worse of: {'; '.join(texts)}; {SIZE} MiB, {LIMIT} MiB direct, one processor"
    return row(id_, value, value <= most, {"runs": runs}, repeat, detail)


def _judge(bed: Bed) -> None:
    """An L1 whose kernel complains has measured nothing."""
    wrong = bed.finish()
    if wrong:
        raise RuntimeError(f"L1 complains: {wrong[:5]}")


def fault_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "rand", 50, 16384), Case("only read", "rand", 0, 16384)]
    return _insns("fault-insns", cases, 0.35, say, repeat)


def seq_insns(say: Say, repeat: int) -> Row:
    cases = [Case("half written", "seq", 50, 32768), Case("only read", "seq", 0, 32768)]
    return _insns("seq-insns", cases, 0.08, say, repeat)


# -- metadata --------------------------------------------------------------

# In L1, by its Python: of the file argv[1], and what the kernel has besides. Looks thrice: nothing
# is in it; pages far apart are; 256 MiB together are.
METADATA = """
import fcntl, json, mmap, os, struct, sys
def look(fd):
    with open("/proc/meminfo") as f:
        words = dict(line.split(":") for line in f)
    found = {"VmallocUsed": int(words["VmallocUsed"].split()[0]) * 1024}
    if fd is not None:
        raw = bytearray(128)
        fcntl.ioctl(fd, 0x8080DC01, raw)
        n = struct.unpack_from("=2I11Q", raw)
        found |= {"pages": n[2], "metadata_bytes": n[10]}
    return found
size, far, dense = 1 << 40, 1024, 256 << 20
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
out = {"far_pages": far, "dense_pages": dense // 4096, "start": look(None)}
os.ftruncate(fd, size)
out["new"] = look(fd)
m = mmap.mmap(fd, size)
for i in range(far):
    m[i * (size // far)] = 1
out["far"] = look(fd)
for at in range(size // 2 + size // far // 2, size // 2 + size // far // 2 + dense, 4096):
    m[at] = 1
out["dense"] = look(fd)
print(json.dumps(out))
"""


def metadata(say: Say, repeat: int) -> Row:
    """Once: it is counted, not timed. Judged by what a page costs where all are used."""
    spec = Spec(quick=False, memory_mib=2048, cpus=2, kvm=False, guest=False)
    with Bed(spec, keep=l1.OUT / "metadata") as bed:
        bed.insmod(l1.MODULE)
        bed.must(f"mkdir -p {l1.MOUNT}; mount -t dcmfs -o budget=512M,extent=64M dcm {l1.MOUNT}")
        bed.put(METADATA.encode(), "/tmp/metadata.py")
        ran = bed.run(f"python3 /tmp/metadata.py {l1.FILE}", 400)
        if ran.rc:
            raise RuntimeError(f"1 TiB: {ran.stderr[-300:]}")
        found: Raw = json.loads(ran.stdout)
        bed.must(f"rm {l1.FILE}; umount {l1.MOUNT}")
        bed.rmmod("kvm_dcm")
        _judge(bed)
    new, far, dense = found["new"], found["far"], found["dense"]
    pages, used = new["pages"], found["dense_pages"]
    # Each page's share of what there is before any is used, and what using them has added.
    fixed = new["metadata_bytes"] / pages
    each = fixed + (dense["metadata_bytes"] - far["metadata_bytes"]) / used
    taken = new["VmallocUsed"] - found["start"]["VmallocUsed"]
    detail = (
        f"bytes a page of {used} pages one after another, all used, with their share of what the "
        f"whole file takes. Of the 1 TiB file ({pages} pages): {fixed:.4f} bytes a page when it is "
        f"made ({new['metadata_bytes'] >> 10} KiB in all; L1's vmalloc rose by {taken >> 10} KiB), "
        f"{far['metadata_bytes'] / pages:.4f} "
        f"after {found['far_pages']} pages far apart were used "
        f"({(far['metadata_bytes'] - new['metadata_bytes']) / found['far_pages']:.0f} bytes for "
        f"each of those), {dense['metadata_bytes'] / pages:.4f} after the {used} as well"
    )
    return row("metadata", each, each <= 9, found, 1, detail)


# -- scale-vcpu ------------------------------------------------------------

THREADS = (1, 2, 4)
# Interrupts that one processor sends another: a count, which no load of this host changes.
IPIS = r"""#!/bin/sh
awk '$1 ~ /^(CAL|TLB|RES):$/ { n = 0; for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i; print $1, n }' \
    /proc/interrupts
"""


def _host_cpu(pid: int) -> float:
    """Seconds of processor time of a process of this host."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def scale(say: Say, repeat: int) -> Row:
    spec = Spec(quick=False, memory_mib=1024, cpus=4, kvm=False, guest=False)
    runs: list[Raw] = []
    with Bed(spec, keep=l1.OUT / "scale") as bed:
        l1.prepare(bed)
        bed.put(IPIS.encode(), "/tmp/ipis", 0o755)
        swaps = l1.Swaps(bed, 4 * SIZE)
        for seed, n, name in itertools.product(range(repeat), THREADS, ("brd", "dcmfs")):
            with _side(swaps, name, SIZE, LIMIT * l1.MIB) as side:
                side.look += "; /tmp/ipis"
                begin = _host_cpu(bed.pid)
                ran = side.touch(f"{SIZE} rand 50 4000 {n} {seed}", 900)
                cpu = _host_cpu(bed.pid) - begin
            faults = ran.rose["FAULT_MISSING"] if name == "dcmfs" else ran.figures["majflt"]
            rate = faults * 1e9 / ran.figures["ns"]
            runs.append(
                {
                    "side": name,
                    "threads": n,
                    "faults": faults,
                    "faults_per_s": round(rate),
                    "host_cpu_s": round(cpu, 2),
                    "ipis_per_fault": {
                        k: round(ran.rose[f"{k}:"] / faults, 2) for k in ("CAL", "TLB", "RES")
                    },
                }
            )
            say(f"scale-vcpu: {n} threads, {name}: {rate:.0f} faults a second")
        swaps.close()
        _judge(bed)

    def rate_of(name: str, n: int) -> float:
        return median(r["faults_per_s"] for r in runs if (r["side"], r["threads"]) == (name, n))

    ratios = [rate_of("dcmfs", n) / rate_of("brd", n) for n in THREADS]
    ours = [rate_of("dcmfs", n) for n in THREADS]
    rising = all(a < b for a, b in itertools.pairwise(ours))
    table = "; ".join(
        f"{n}: {rate_of('dcmfs', n):.0f} against {rate_of('brd', n):.0f} = {r:.2f}"
        for n, r in zip(THREADS, ratios, strict=True)
    )
    detail = (
        f"medians of faults a second in L1 with 4 emulated processors, on {os.cpu_count()} of this "
        f"host that others use too: {table}; over one thread: "
        + ", ".join(f"{n}: {r / ours[0]:.2f}" for n, r in zip(THREADS[1:], ours[1:], strict=True))
        + "; swap: "
        + ", ".join(f"{n}: {rate_of('brd', n) / rate_of('brd', 1):.2f}" for n in THREADS[1:])
    )
    for name in ("dcmfs", "brd"):
        said = [
            f"{n}: " + "/".join(f"{v:.2f}" for v in one["ipis_per_fault"].values())
            for n in THREADS
            for one in [next(r for r in runs if (r["side"], r["threads"]) == (name, n))]
        ]
        detail += f"; interrupts between processors a fault (CAL/TLB/RES), {name}: "
        detail += ", ".join(said)
    ok = min(ratios) > 1 and rising
    return row("scale-vcpu", min(ratios), ok, {"runs": runs}, repeat, detail)


# -- exits -----------------------------------------------------------------

TRIES = 3  # L1s, of which all but one may end or hang: told in the row
KVM_COUNTS = ("exits", "pf_taken", "pf_fixed", "irq_exits", "pages_2m")
KVM_LOOK = "; ".join(f"echo {x} $(cat /sys/kernel/debug/kvm/{x})" for x in KVM_COUNTS)


def _exits(keep: str, runs: list[Raw], say: Say, repeat: int) -> None:
    spec = Spec(quick=False, memory_mib=1024, cpus=1, guest=False)
    with Bed(spec, keep=l1.OUT / keep) as bed:
        l1.prepare(bed)
        bed.put(l1.VCPU, "/tmp/vcpu", 0o755)
        bed.must("modprobe kvm_amd")
        swaps = l1.Swaps(bed, 4 * SIZE)
        for _ in range(repeat):
            for name in ("brd", "dcmfs"):
                with _side(swaps, name, SIZE, LIMIT * l1.MIB) as side:
                    side.look = f"{side.look}; {KVM_LOOK}"
                    ran = side.touch(f"{SIZE} 2", program="/tmp/vcpu")
                ours = name == "dcmfs"
                pages = ran.rose["FETCHED_PAGES" if ours else "pswpin"]
                one = {
                    "side": name,
                    "pages_in": pages,
                    "major_faults": ran.rose["FAULT_MISSING"] if ours else ran.figures["majflt"],
                    **{k: ran.rose[k] for k in KVM_COUNTS},
                }
                runs.append(one)
                say(f"exits: {name}: {one}")
        swaps.close()
        _judge(bed)


def exits(say: Say, repeat: int) -> Row:
    """An L1 that ends or hangs is thrown away, and the row says so; one that complains is not."""
    runs: list[Raw] = []
    thrown: list[str] = []
    while True:
        runs.clear()
        try:
            _exits(f"exits-{len(thrown) + 1}", runs, say, repeat)
            break
        except (GuestGone, CommandTimeout) as err:
            thrown.append(f"after {len(runs)} of {2 * repeat} runs: {str(err).splitlines()[0]}")
            say(f"exits: L1 {len(thrown)} is thrown away {thrown[-1]}")
            if len(thrown) == TRIES:
                raise

    def figure(name: str, what: str) -> float:
        return median(r[what] / r["pages_in"] for r in runs if r["side"] == name)

    ours, peer = figure("dcmfs", "exits"), figure("brd", "exits")
    violations, fetches = figure("dcmfs", "pf_taken"), figure("dcmfs", "major_faults")
    peers = figure("brd", "pf_taken")
    detail = (
        f"{ours:.3f} exits a page, {peer:.3f} with swap on brd; of them violations: "
        f"{violations:.3f}, {peers:.3f}, of which repeated, since pages left during them: "
        f"{violations - figure('dcmfs', 'pf_fixed'):.3f}, "
        f"{peers - figure('brd', 'pf_fixed'):.3f}. Major faults a page: {fetches:.3f}, "
        f"{figure('brd', 'major_faults'):.3f}: a block is in the process's page table after the "
        f"first, but KVM's own gets one entry a violation. A KVM that maps what is present around "
        f"a violation would need {fetches:.3f} a page: {1 - fetches / violations:.0%} less"
        f". L1s thrown away, of {TRIES} at most: {'; '.join(thrown) or 'none'}"
    )
    raw: Raw = {"runs": runs, "thrown_away": thrown}
    return row("exits", ours, violations <= 1.05, raw, repeat, detail)


# -- huge ------------------------------------------------------------------


class Plain(l1.Side):
    """Anonymous memory, of which there is enough."""

    name = "anonymous"
    memory = "anon"
    look = KVM_LOOK


def _first_touch(side: l1.Side) -> Raw:
    """A guest touches each of its pages once; what KVM's tables are made of afterwards."""
    ran = side.touch(f"{SIZE} 0", program="/tmp/vcpu")
    pages = ran.figures["pages"]
    return {
        "side": side.name,
        "large": ran.rose["pages_2m"] * HUGE_PAGES / pages,
        "exits": ran.rose["exits"] / pages,
    }


def huge(say: Say, repeat: int) -> Row:
    runs: list[Raw] = []
    spec = Spec(quick=False, memory_mib=1024, cpus=1, guest=False)
    with Bed(spec, keep=l1.OUT / "huge") as bed:
        l1.prepare(bed)
        bed.put(l1.VCPU, "/tmp/vcpu", 0o755)
        bed.must("modprobe kvm_amd")
        for _ in range(repeat):
            with l1.dcmfs(bed, SIZE, SIZE * l1.MIB) as ours:
                ours.look = f"{ours.look}; {KVM_LOOK}"
                runs += [_first_touch(ours), _first_touch(Plain(bed))]
            say(f"huge: {runs[-2:]}")
        _judge(bed)

    def figure(name: str, what: str) -> float:
        return median(r[what] for r in runs if r["side"] == name)

    large, exits_a_page = figure("dcmfs", "large"), figure("dcmfs", "exits")
    detail = (
        f"value is the part of {SIZE} MiB that KVM maps by entries of 2 MiB after the guest has "
        f"touched each page once, in order; {exits_a_page:.4f} exits a page. Anonymous memory with "
        f"transparent huge pages: {figure('anonymous', 'large'):.3f}, "
        f"{figure('anonymous', 'exits'):.4f}. The file's budget is its size"
    )
    ok = large >= 0.95 and exits_a_page <= 0.01
    return row("huge", large, ok, {"runs": runs}, repeat, detail)


# -- faults-bytes ----------------------------------------------------------

PEERS = ("brd", "nvme", "nbd")
# A machine that others use too may take long; loads that are not begun by then are not measured.
LONGEST_S = 480
HEAP = 16  # MiB: the memory of touch, and the most that a program's heap can be
BESIDE = 1  # MiB: about what a program has besides

PROGRAM_INPUT = """
import random
r = random.Random(7)
words = [''.join(r.choices('abcdefghijklmnopqrstuvwxyz', k=r.randint(3, 9))) for _ in range(4000)]
with open('/var/tmp/lines', 'w') as f:
    for i in range(50000):
        print(i, *r.choices(words, k=12), file=f)
"""
SQLITE = """
import sqlite3, random, hashlib
r = random.Random(5)
db = sqlite3.connect(':memory:')
db.execute('pragma temp_store=memory')
db.execute('create table item(id integer primary key, shop int, price int, name text)')
db.executemany('insert into item(shop, price, name) values(?,?,?)', ((r.randrange(500),
    r.randrange(10000), 'item %d ' % i + 'x' * r.randrange(120)) for i in range(24000)))
db.execute('create index by_shop on item(shop, price)')
h = hashlib.sha256()
for n in range(60):
    row = db.execute('select count(*), sum(length(name)), max(price) from item where shop=?',
                     (r.randrange(500),)).fetchone()
    h.update(repr(row).encode())
for row in db.execute('select shop, avg(price) from item group by shop order by 2'):
    h.update(repr(row).encode())
print(h.hexdigest())
"""
# In L1: how much of the heap of whoever is in the group argv[1] is in memory, the median of when
# not all of it was. The heap is the mapping of argv[2] bytes.
RESIDENT = """
import pathlib, re, statistics, sys, time
group, size, found = pathlib.Path(sys.argv[1]), int(sys.argv[2]), []
print("watching", flush=True)
while not pathlib.Path("/tmp/resident.stop").exists():
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            maps = pathlib.Path("/proc", pid, "smaps").read_text()
        except OSError:
            continue
        for a, b, rest in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (.*?)^VmFlags", maps, re.M | re.S):
            kib = dict(re.findall(r"^(Rss|Swap): *(\\d+)", rest, re.M))
            if int(b, 16) - int(a, 16) == size and int(kib["Swap"]):
                found.append(int(kib["Rss"]))
    time.sleep(0.05)
print("resident", int(statistics.median(found)) * 1024 if found else 0)
"""
PROGRAMS = {
    "sort": "sort --parallel=1 -S 12M -k2,2 -k5,5 /var/tmp/lines | sha256sum",
    "sqlite": "PYTHONMALLOC=malloc python3 /var/tmp/shop.py",
}


def _run_load(side: l1.Side, load: str) -> l1.Ran:
    if load in PROGRAMS:
        return side.program(PROGRAMS[load], HEAP)
    return side.touch(f"{HEAP} {load} 50 {10240 if load == 'seq' else 8192} 1 1", 400)


def _moved(side: l1.Side, load: str, right: str) -> Raw:
    """Major faults and bytes; or, of swap, that the kernel ended it for want of memory."""
    try:
        ran = _run_load(side, load)
    except GuestError as err:
        if side.name == "dcmfs" or "ended with -9" not in str(err):
            raise
        return {"killed": True}
    if load in PROGRAMS and ran.said != right:
        raise RuntimeError(f"{load} on {side.name}: wrong result {ran.said}")
    rose = ran.rose
    if side.name == "dcmfs":
        pages = rose["FETCHED_PAGES"] + rose["WRITTEN_PAGES"]
        return {"faults": rose["FAULT_MISSING"], "bytes": 4096 * pages}
    faults = ran.figures.get("majflt", rose["pgmajfault"])
    return {"faults": faults, "bytes": 4096 * (rose["pswpin"] + rose["pswpout"])}


def faults_bytes(say: Say, repeat: int) -> Row:
    """Once each: a load makes the same accesses each time."""
    spec = Spec(quick=False, memory_mib=1536, cpus=2, kvm=False, guest=False)
    runs: list[Raw] = []
    left: list[str] = []
    until = time.monotonic() + LONGEST_S
    with Bed(spec, keep=l1.OUT / "faults-bytes") as bed:
        l1.prepare(bed)
        bed.put(l1.ARENA, "/tmp/arena.so", 0o755)
        # Else a heap has more in memory than was touched, on the one side only.
        bed.must("echo never >/sys/kernel/mm/transparent_hugepage/enabled")
        bed.put(PROGRAM_INPUT.encode(), "/var/tmp/lines.py")
        bed.put(SQLITE.encode(), "/var/tmp/shop.py")
        bed.put(RESIDENT.encode(), "/tmp/resident.py")
        bed.must("python3 /var/tmp/lines.py; cat /var/tmp/lines >/dev/null", 300)
        swaps = l1.Swaps(bed, 3 * HEAP)
        for load in ("seq", "zipf", *PROGRAMS):
            if time.monotonic() > until:
                left.append(load)
                continue
            heap, beside, right = _needs(swaps, load)
            say(f"faults-bytes: {load}: heap {heap >> 10} KiB, beside it {beside >> 10} KiB")
            # Two devices behind the same read-ahead differ in time, not in counts: one is enough.
            sides = ("dcmfs", *(PEERS if load not in PROGRAMS else PEERS[:2]))
            for share, name in itertools.product((50, 25), sides):
                limit = heap * share // 100
                allowed = limit if name == "dcmfs" else limit + beside
                one: Raw = {"side": name, "load": load, "share": share, "limit": allowed}
                resident: list[int] = []
                with _side(swaps, name, HEAP, allowed) as side:
                    with nullcontext() if name == "dcmfs" else _watched(bed, resident):
                        one |= _moved(side, load, right)
                if resident:
                    one["resident"] = resident[0]
                runs.append(one)
                say(f"faults-bytes: {one}")
        swaps.close()
        _judge(bed)
    return _faults_row(runs, left)


@contextmanager
def _watched(bed: Bed, found: list[int]) -> Iterator[None]:
    """Appends how much of the heap was in memory meanwhile."""
    bed.must("rm -f /tmp/resident.stop")
    job = bed.spawn(f"exec python3 /tmp/resident.py {l1.GROUP} {HEAP * l1.MIB}")
    try:
        l1.until(job, "watching")
        yield
    finally:
        bed.must("touch /tmp/resident.stop")
        job.wait(60)
    found.append(int(job.output().stdout.split()[-1]))


def _needs(swaps: l1.Swaps, load: str) -> tuple[int, int, str]:
    """How many bytes a load uses of its heap, and in its cgroup besides the heap; its result.

    Of a limit the heap gets only the rest: locked memory, page tables and charges in stock count
    as well.
    """
    with l1.dcmfs(swaps.bed, HEAP, HEAP * l1.MIB) as side:
        ran = _run_load(side, load)
        stats = swaps.bed.must(f"cat {l1.STATS}")
        found = re.search(r"^direct (\d+)$", stats, re.M)
        assert found, stats
        heap = int(found[1]) * 4096
    limit, resident = heap // 2 + BESIDE * l1.MIB, [0]
    with l1.swap(swaps, "brd", limit) as side, _watched(swaps.bed, resident):
        _run_load(side, load)
    if not resident[-1]:
        raise RuntimeError(f"{load}: all of it fits into {limit} bytes")
    return heap, max(limit - resident[-1], 0), ran.said if load in PROGRAMS else ""


def _faults_row(runs: list[Raw], left: list[str]) -> Row:
    texts, worst, more = [], 0.0, 0.0
    for load, share in dict.fromkeys((r["load"], r["share"]) for r in runs):
        by = {r["side"]: r for r in runs if (r["load"], r["share"]) == (load, share)}
        there = [s for s in ("dcmfs", *PEERS) if s in by]
        peers = [by[p] for p in there[1:] if "faults" in by[p]]
        if not peers:
            raise RuntimeError(f"{load} at {share} %: no swap could run it")
        ours = by["dcmfs"]
        faults = max(ours["faults"] / max(p["faults"], 1) for p in peers)
        moved = max(ours["bytes"] / max(p["bytes"], 1) for p in peers)
        worst, more = max(worst, faults), max(more, moved)
        texts.append(
            f"{load} {share} %: faults "
            + "/".join(str(by[s].get("faults", "killed")) for s in there)
            + ", KiB "
            + "/".join(str(by[s]["bytes"] >> 10 if "bytes" in by[s] else "-") for s in there)
            + f" = {faults:.2f} x faults, {moved:.2f} x bytes"
        )
    detail = f"dcmfs/{'/'.join(PEERS)}: {'; '.join(texts)}; bytes at worst {more:.2f} x"
    if left:
        detail += f"; NOT MEASURED, no time left: {', '.join(left)}"
    ok = worst < 1 and more <= 1.3 and not left
    return row("faults-bytes", worst, ok, {"runs": runs}, 1, detail)


MEASURES: dict[str, Callable[[Say, int], Row]] = {
    "fault-insns": fault_insns,
    "seq-insns": seq_insns,
    "faults-bytes": faults_bytes,
    "exits": exits,
    "huge": huge,
    "scale-vcpu": scale,
    "metadata": metadata,
}
