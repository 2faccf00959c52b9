# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rows of bench/kernel/run are measured on: an L1, and in it the kernel pager or swap.

All memory is limited to the same: dcmfs by its budget, anonymous memory by its memory cgroup
(which holds the page tables and what else is charged too, so swap's limit is a little lower).
"""

from __future__ import annotations

import bisect
import collections
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.framework.paths import BUILD
from tests.vm.bed import Bed, Job, Spec

OUT = BUILD / "bench" / "kernel"
TOUCH = OUT / "touch"
NBD = OUT / "nbdmem"
PLUGIN = OUT / "count.so"
TOOL = BUILD / "tests-kernel" / "dcmfs_test"
MODULE = BUILD / "kernel" / "linux" / "kvm-dcm.ko"
MOUNT = "/mnt/dcm"
FILE = f"{MOUNT}/ram"
GROUP = "/sys/fs/cgroup/bench"
MIB = 1 << 20
STATS = "/sys/kernel/debug/kvm-dcm/*/stats"


class CountedBed(Bed):
    """An L1 of one processor whose instructions are counted, and are its clock.

    With -icount time passes by a nanosecond an instruction: a clock's ticks are as many for the
    same work, whatever else this machine does. What was executed is told by plugin.c.
    """

    def __init__(self, spec: Spec, *, keep: Path) -> None:
        super().__init__(spec, keep=keep)
        self.counts = keep / "counts"

    def command_line(self, shell: bool = False) -> list[str]:
        self.counts.unlink(missing_ok=True)
        cmd = super().command_line(shell)
        accel = cmd.index("-accel") + 1
        cmd[accel] = cmd[accel].replace("thread=multi", "thread=single")
        cmd += ["-icount", "shift=0,sleep=off", "-plugin", f"{PLUGIN},out={self.counts}"]
        return cmd


@dataclass
class Ran:
    """What one run of a program told: its own figures, and by how much counters rose."""

    told: dict[str, int]
    rose: dict[str, int] = field(default_factory=dict)
    kernel: int = 0  # instructions
    user: int = 0
    repeated: int = 0
    where: collections.Counter[str] = field(default_factory=collections.Counter)


def _numbers(text: str) -> dict[str, int]:
    """NAME NUMBER lines."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\S.*) (\d+)$", text, re.M)}


class Side:
    """A pager in an L1; the programs that run on it."""

    name = ""
    memory = ""  # as touch is told
    look = ""  # a command that prints counters
    prefix = ""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def touch(self, args: str, timeout: float = 300, program: str = "/tmp/touch") -> Ran:
        counts = self.bed.counts if isinstance(self.bed, CountedBed) else None
        if counts:
            counts.unlink(missing_ok=True)
        said = self.bed.must(
            f"{self.prefix} LOOK='{self.look}' exec {program} {self.memory} {args}", timeout
        )
        before, _, rest = said.partition("before\n")[2].partition("after\n")
        after, _, told = rest.partition("done\n")
        first, last = _numbers(before), _numbers(after)
        ran = Ran(_numbers(told), {k: last[k] - first.get(k, 0) for k in last})
        if counts:
            _read_counts(ran, counts.read_text(), Symbols(self.bed))
        return ran


class Symbols:
    """Functions of L1's kernel by address."""

    def __init__(self, bed: Bed) -> None:
        found = []
        for line in bed.must("cat /proc/kallsyms").splitlines():
            at, kind, name = line.split(None, 2)
            if kind in "tTwW":
                found.append((int(at, 16), name.replace("\t", " ")))
        found.sort()
        self._at = [at for at, _ in found]
        self._name = [name for _, name in found]

    def name(self, at: int) -> str:
        return self._name[max(bisect.bisect_right(self._at, at) - 1, 0)]


def _read_counts(ran: Ran, text: str, symbols: Symbols) -> None:
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise RuntimeError("the plugin told nothing: was the marker executed?")
    for line in lines:
        word, *numbers = line.split()
        if word == "total":
            ran.kernel, ran.user, ran.repeated = map(int, numbers)
        elif word == "at":
            ran.where[symbols.name(int(numbers[0], 16))] += int(numbers[1])


class Dcm(Side):
    name = "dcmfs"
    memory = FILE
    look = f"cat {STATS}"
    prefix = ""


class Swap(Side):
    memory = "anon"
    look = f"cat {GROUP}/memory.stat; grep -e ^pswp /proc/vmstat"
    prefix = f"echo $$ >{GROUP}/cgroup.procs;"

    def __init__(self, bed: Bed, name: str) -> None:
        super().__init__(bed)
        self.name = name


def prepare(bed: Bed) -> None:
    """What every L1 needs, once."""
    bed.put(TOUCH, "/tmp/touch", 0o755)
    bed.put(TOOL, "/tmp/dcmfs_test", 0o755)
    bed.must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup")
    bed.must("echo +memory >/sys/fs/cgroup/cgroup.subtree_control")


def _until(bed: Bed, job: Job, word: str) -> None:
    deadline = time.monotonic() + 120
    while word not in (said := job.output()).stdout:
        if said.rc != -1 or time.monotonic() > deadline:
            raise RuntimeError(f"{job.command}: {said}")
        time.sleep(0.1)


@contextmanager
def dcmfs(bed: Bed, size_mib: int, budget_mib: int, options: str = "") -> Iterator[Dcm]:
    """A file on dcmfs, its slabs memfds: a donor on the same host without its daemon."""
    module = bed.insmod(MODULE)
    bed.must(f"mkdir -p {MOUNT}; rm -f /tmp/stop")
    more = f",{options}" if options else ""
    bed.must(f"mount -t dcmfs -o extent=16M,budget={budget_mib}M{more} dcm {MOUNT}")
    bed.must(f"truncate -s {size_mib}M {FILE}")
    job = bed.spawn(f"exec /tmp/dcmfs_test serve {FILE} /tmp/stop </dev/null")
    try:
        _until(bed, job, "serving")
        yield Dcm(bed)
    finally:
        bed.must("touch /tmp/stop")
        job.wait(60)
        bed.must(f"rm {FILE}; umount {MOUNT}")
        bed.rmmod(module)


def _rise(name: str, size_mib: int, bed: Bed) -> tuple[str, Job | None]:
    """The device to swap to, and who serves it."""
    if name == "brd":
        bed.must(f"modprobe brd rd_nr=1 rd_size={size_mib * 1024}")
        return "/dev/ram0", None
    raise ValueError(name)


@contextmanager
def swap(bed: Bed, name: str, size_mib: int, limit_mib: int) -> Iterator[Swap]:
    """Swap on a device of that kind, under a cgroup with a limit."""
    device, job = _rise(name, size_mib, bed)
    bed.must(f"mkswap {device} && swapon {device} && mkdir {GROUP}")
    bed.must(f"echo {limit_mib * MIB} >{GROUP}/memory.max")
    try:
        yield Swap(bed, name)
    finally:
        bed.must(f"rmdir {GROUP}; swapoff {device}", 300)
        if job:
            job.end()
        if name == "brd":
            bed.must("rmmod brd")
