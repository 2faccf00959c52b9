# SPDX-License-Identifier: GPL-2.0-or-later
"""`faults-bytes`: programs and patterns, their faults and the bytes moved."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from kernel import l1
from kernel.row import Raw, Row, Say, row
from tests.guest.vmharness import GuestError
from tests.vm.bed import Bed, Spec

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
                with l1.side(swaps, name, HEAP, allowed) as side:
                    with nullcontext() if name == "dcmfs" else _watched(bed, resident):
                        one |= _moved(side, load, right)
                if resident:
                    one["resident"] = resident[0]
                runs.append(one)
                say(f"faults-bytes: {one}")
        swaps.close()
        l1.judge(bed)
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
