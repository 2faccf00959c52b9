# SPDX-License-Identifier: GPL-2.0-or-later
"""All rows, by id; `metadata` and `scale-vcpu` are here."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable

from kernel import l1
from kernel.guests import exits, huge
from kernel.insns import fault_insns, seq_insns
from kernel.loads import faults_bytes
from kernel.row import Raw, Row, Say, median, row
from tests.framework.process import processor_seconds
from tests.vm.bed import Bed, Spec

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
        l1.judge(bed)
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


THREADS = (1, 2, 4)
# Accesses of a thread that are measured, as in insns.py; and of a run that ends soon after the
# memory was filled in order, when blocks are still as large as the fill made them.
ACCESSES, FIRST = 16384, 4000
# Interrupts that one processor sends another: a count, which no load of this host changes.
IPIS = r"""#!/bin/sh
awk '$1 ~ /^(CAL|TLB|RES):$/ { n = 0; for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i; print $1, n }' \
    /proc/interrupts
"""


def _rate(bed: Bed, side: l1.Side, accesses: int, threads: int, seed: int) -> Raw:
    """Faults a second of threads that touch random pages."""
    side.look += "; /tmp/ipis"
    begin = processor_seconds(bed.pid)
    ran = side.touch(f"{l1.SIZE} rand 50 {accesses} {threads} {seed}", 900)
    cpu = processor_seconds(bed.pid) - begin
    faults = side.faults(ran)
    return {
        "side": side.name,
        "threads": threads,
        "accesses": accesses,
        "faults": faults,
        "faults_per_s": round(faults * 1e9 / ran.figures["ns"]),
        "pages_per_fault": round(side.pages_in(ran) / faults, 2),
        "host_cpu_s": round(cpu, 2),
        "ipis_per_fault": {k: round(ran.rose[f"{k}:"] / faults, 2) for k in ("CAL", "TLB", "RES")},
    }


def scale(say: Say, repeat: int) -> Row:
    spec = Spec(quick=False, memory_mib=1024, cpus=4, kvm=False, guest=False)
    runs: list[Raw] = []
    with Bed(spec, keep=l1.OUT / "scale") as bed:
        l1.prepare(bed)
        bed.put(IPIS.encode(), "/tmp/ipis", 0o755)
        swaps = l1.Swaps(bed, 4 * l1.SIZE)
        for seed, accesses in itertools.product(range(repeat), (ACCESSES, FIRST)):
            for n, name in itertools.product(THREADS, ("brd", "dcmfs")):
                with l1.side(swaps, name, l1.SIZE, l1.LIMIT * l1.MIB) as side:
                    runs.append(_rate(bed, side, accesses, n, seed))
                rate = runs[-1]["faults_per_s"]
                say(f"scale-vcpu: {accesses} accesses, {n} threads, {name}: {rate} faults a second")
        swaps.close()
        l1.judge(bed)
    return _scale_row(runs, repeat)


def _scale_row(runs: list[Raw], repeat: int) -> Row:
    def rate_of(name: str, n: int, accesses: int = ACCESSES, what: str = "faults_per_s") -> float:
        which = (name, n, accesses)
        return median(r[what] for r in runs if (r["side"], r["threads"], r["accesses"]) == which)

    def table(accesses: int) -> str:
        return "; ".join(
            f"{n}: {ours:.0f} against {peer:.0f} = {ours / peer:.2f}"
            for n in THREADS
            for ours, peer in [(rate_of("dcmfs", n, accesses), rate_of("brd", n, accesses))]
        )

    ratios = [rate_of("dcmfs", n) / rate_of("brd", n) for n in THREADS]
    ours = [rate_of("dcmfs", n) for n in THREADS]
    rising = all(a < b for a, b in itertools.pairwise(ours))
    early = rate_of("dcmfs", 1, FIRST, "pages_per_fault")
    detail = (
        f"medians of faults a second in L1 with 4 emulated processors, on {os.cpu_count()} of this "
        f"host that others use too, {ACCESSES} accesses a thread: {table(ACCESSES)}; over one "
        "thread: "
        + ", ".join(f"{n}: {r / ours[0]:.2f}" for n, r in zip(THREADS[1:], ours[1:], strict=True))
        + "; swap: "
        + ", ".join(f"{n}: {rate_of('brd', n) / rate_of('brd', 1):.2f}" for n in THREADS[1:])
        + f"; not judged, {FIRST} accesses a thread, while blocks of the fill are taken apart "
        f"({early:.1f} pages a fault with one thread): {table(FIRST)}"
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


MEASURES: dict[str, Callable[[Say, int], Row]] = {
    "fault-insns": fault_insns,
    "seq-insns": seq_insns,
    "faults-bytes": faults_bytes,
    "exits": exits,
    "huge": huge,
    "scale-vcpu": scale,
    "metadata": metadata,
}
