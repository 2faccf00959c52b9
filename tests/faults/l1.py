# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows in L1 (tests/vm): a kernel of our own, with netem, dcmfs, and settings that are ours.

This same program is put there and runs the rows as it does here. What L1's kernel complains of is
a cell that is not met; that it ends hogs for want of memory is their wish. With DCM_DEBUG_KERNEL
(tests/vm/debug.py) it is the kernel that finds bugs, and all takes longer.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence

from tests.faults.cell import Cell, unknown
from tests.faults.table import Fault
from tests.framework.paths import BUILD, TOP
from tests.guest.vmharness import GuestError
from tests.vm import debug
from tests.vm.bed import Bed, Spec
from tests.vm.rdma import rxe

THERE = "/tmp/kvm-dcm"
SOURCES = ("tests/faults", "tests/framework", "tests/donor", "bench/dcmbench", "tests/__init__.py")
PROGRAMS = ("dcm-donord", "dcm-hostd", "dcm-gc-worker")
VICTIM = "tests-faults/victim"
MODULES = ("veth", "sch_netem", "tls")
LIMIT_S = 780.0 * debug.PATIENCE
START_S = 60.0 * debug.PATIENCE
MEMORY_MIB = 2048 if debug.TREE else 1024  # KASAN takes an eighth, and more
# Lines of the kernel when it ends a hog. The last is a function in these traces.
OOM = ("invoked oom-killer", "Call Trace:", "oom-kill:", "Out of memory",
       "? lockdep_hardirqs_on_prepare+")  # fmt: skip
# And when an access to a lost page gets SIGBUS, which the victim counts.
LOST = "MCE: Killing victim"


def archive() -> bytes:
    """What L1 needs of the tree and the build."""
    with io.BytesIO() as data:
        with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as tar:
            for name in SOURCES:
                if (TOP / name).exists():
                    tar.add(TOP / name, name, filter=_plain)
            for name in PROGRAMS:
                tar.add(debug.PROGRAMS / name, f"build/bin/{name}")
            tar.add(debug.KERNEL_BUILD / VICTIM, f"build/{VICTIM}")
        return data.getvalue()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def prepare() -> str:
    """The module and L1's image; why there can be none."""
    if debug.TREE:
        debug.build_modules()
        debug.build_programs()
        debug.make("make", "-C", "tests/faults", "all", f"BUILD={debug.KERNEL_BUILD}",
                   f"CFLAGS={debug.LIMITS}")  # fmt: skip
    module = [] if debug.TREE else [["scripts/kernel-check", "6.12"]]
    for words in (*module, ["scripts/vm-image"]):
        done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{words[0]}: {(done.stdout + done.stderr)[-300:]}"
    return ""


def spec() -> Spec:
    """An L1 for them."""
    return Spec(MEMORY_MIB, 2, kvm=False, guest=False, kernel=debug.KERNEL,
                patience=debug.PATIENCE)  # fmt: skip


def run(chosen: Sequence[Fault]) -> dict[str, list[Cell]]:
    """Their cells, by row."""
    if why := prepare():
        return {fault.id: [unknown("L1", f"there is no L1: {why}")] for fault in chosen}
    try:
        with Bed(spec(), keep=BUILD / "test" / "vm" / "faults") as bed:
            return _inside(bed, chosen)
    except (GuestError, OSError) as err:
        return {fault.id: [unknown("L1", str(err)[:300])] for fault in chosen}


def furnish(bed: Bed) -> None:
    """Modules, RDMA, and what is needed of the tree, in THERE."""
    debug.at_work(bed)
    bed.must("ip link set lo up")
    bed.modprobe(*MODULES)
    rxe(bed)
    bed.modprobe("rdma_cm")
    for name in ("kvm-dcm", "kvm-dcm-verbs"):
        bed.insmod(debug.MODULE.with_name(f"{name}.ko"))
    bed.must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup")
    bed.put(archive(), "/tmp/faults.tar.gz")
    bed.must(f"mkdir -p {THERE} && tar -xz -C {THERE} -f /tmp/faults.tar.gz")


def _inside(bed: Bed, chosen: Sequence[Fault]) -> dict[str, list[Cell]]:
    furnish(bed)
    words = " ".join(f"--only {fault.id}" for fault in chosen)
    program = f"python3 {THERE}/tests/faults/run --inside --json /tmp/cells"
    # Donors want descriptors for all the connections that they may have.
    patience = f"DCM_FAULTS_PATIENCE={debug.PATIENCE}"
    job = bed.spawn(f"ulimit -n 20000; {patience} exec {program} {words}")
    deadline = time.monotonic() + LIMIT_S
    shown = 0
    while job.poll() is None and time.monotonic() < deadline:
        time.sleep(3)
        said = job.output().stderr
        shown = tell(said, shown)
    status = job.end(30)
    tell(job.output().stderr, shown)
    found: dict[str, list[Cell]] = {}
    if bed.run("test -s /tmp/cells").rc == 0:
        for name, cells in json.loads(bed.get("/tmp/cells")).items():
            found[name] = [Cell.read(cell) for cell in cells]
    for fault in chosen:
        found.setdefault(fault.id, [unknown("L1", f"not done, status {status}")])
    wrong = [line for line in bed.complaints() if not any(word in line for word in (*OOM, LOST))]
    if wrong:
        for cells in found.values():
            cells.append(unknown("L1's kernel", " / ".join(wrong)[:300]))
    return {
        name: [Cell(f"L1 {c.name}", c.value, c.ok, c.note) for c in cells]
        for name, cells in found.items()
    }


def tell(said: str, shown: int) -> int:
    """Pass on whole lines that were not shown yet."""
    end = said.rfind("\n") + 1
    for line in said[shown:end].splitlines():
        print(f"L1 {line}", file=sys.stderr, flush=True)
    return max(shown, end)

