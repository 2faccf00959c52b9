# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine of the rows of bench/kernel/run: an L1, and in it the kernel pager or swap.

All memory is limited to the same: dcmfs by its budget, anonymous memory by its memory cgroup
(which also has page tables and other charged memory, so swap's limit is a little lower).
"""

from __future__ import annotations

import bisect
import collections
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.framework.paths import BUILD
from tests.vm.bed import Bed, Spec
from tests.vm.job import Job
from tests.vm.rdma import ADDRESS, rxe

OUT = BUILD / "bench" / "kernel"
TOUCH = OUT / "touch"
NBD = OUT / "nbdmem"
VCPU = OUT / "vcpu"
ARENA = OUT / "arena.so"
PLUGIN = OUT / "count.so"
TOOL = BUILD / "tests-kernel" / "dcmfs_test"
MODULE = BUILD / "kernel" / "linux" / "kvm-dcm.ko"
MOUNT = "/mnt/dcm"
FILE = f"{MOUNT}/ram"
GROUP = "/sys/fs/cgroup/bench"
MIB = 1 << 20
SIZE, LIMIT = 64, 32  # MiB of most rows: of memory, and of it direct
STATS = "/sys/kernel/debug/kvm-dcm/*/stats"


class CountedBed(Bed):
    """An L1 of one processor whose instructions are counted, and are its clock.

    With -icount time passes by a nanosecond an instruction: a clock's ticks are as many for the
    same work, whatever else this machine does. plugin.c says what was executed.
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
    """A run of a program: the figures that it printed, and by how much counters rose."""

    figures: dict[str, int]
    rose: dict[str, int] = field(default_factory=dict)
    kernel: int = 0  # instructions
    user: int = 0
    repeated: int = 0
    said: str = ""
    where: collections.Counter[str] = field(default_factory=collections.Counter)


def _numbers(text: str) -> dict[str, int]:
    """NAME NUMBER lines."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\S.*) (\d+)$", text, re.M)}


class Side:
    """A pager in an L1; the programs that run on it."""

    name = ""
    memory = ""  # the argument of touch
    look = ""  # a command that prints counters
    prefix = ""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def touch(self, args: str, timeout: float = 400, program: str = "/tmp/touch") -> Ran:
        """Run it; or another program that calls LOOK and tells what it counted as it does."""
        counts = self.bed.counts if isinstance(self.bed, CountedBed) else None
        if counts:
            counts.unlink(missing_ok=True)
        said = self.bed.must(
            f"{self.prefix} LOOK='{self.look}' exec {program} {self.memory} {args}", timeout
        )
        return self._ran(said, counts)

    def faults(self, ran: Ran) -> int:
        """The faults that brought a page in; not of program()."""
        return ran.rose["FAULT_MISSING"] if self.name == "dcmfs" else ran.figures["majflt"]

    def pages_in(self, ran: Ran) -> int:
        """The pages that were brought in."""
        return ran.rose["FETCHED_PAGES" if self.name == "dcmfs" else "pswpin"]

    def program(self, command: str, heap_mib: int, timeout: float = 400) -> Ran:
        """Run a command with its heap in this memory (arena.c): output in `said`, no figures."""
        arena = f"ARENA_MIB={heap_mib}" + ("" if self.memory == "anon" else f" ARENA={self.memory}")
        # In a group of its own from before LOOK, so that this is no part of what is counted.
        said = self.bed.must(
            f"{self.prefix} echo before; {self.look}; "
            f"{arena} LD_PRELOAD=/tmp/arena.so {command} >/tmp/said || exit; "
            f"echo after; {self.look}; echo done; sed s/^/said:/ /tmp/said",
            timeout,
        )
        return self._ran(said, None)

    def _ran(self, said: str, counts: Path | None) -> Ran:
        before, _, rest = said.partition("before\n")[2].partition("after\n")
        after, _, printed = rest.partition("done\n")
        first, last = _numbers(before), _numbers(after)
        ran = Ran(_numbers(printed), {k: last[k] - first.get(k, 0) for k in last})
        ran.said = printed
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


class Swap(Side):
    memory = "anon"
    look = f"cat {GROUP}/memory.stat; grep -e ^pswp /proc/vmstat"
    prefix = f"echo $$ >{GROUP}/cgroup.procs;"

    def __init__(self, bed: Bed, name: str) -> None:
        super().__init__(bed)
        self.name = name


def prepare(bed: Bed) -> None:
    """Install what every L1 needs, once after it has started."""
    bed.put(TOUCH, "/tmp/touch", 0o755)
    bed.put(TOOL, "/tmp/dcmfs_test", 0o755)
    bed.must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup")
    bed.must("echo +memory >/sys/fs/cgroup/cgroup.subtree_control")


def until(job: Job, word: str) -> None:
    """Wait for a job to say a word."""
    deadline = time.monotonic() + 120
    while word not in (said := job.output()).stdout:
        if said.rc != -1 or time.monotonic() > deadline:
            raise RuntimeError(f"{job.command}: {said}")
        time.sleep(0.1)


@contextmanager
def dcmfs(bed: Bed, size_mib: int, budget: int) -> Iterator[Dcm]:
    """A file on dcmfs, its slabs memfds: a donor on the same host without its daemon."""
    module = bed.insmod(MODULE)
    bed.must(f"mkdir -p {MOUNT}; rm -f /tmp/stop")
    bed.must(f"mount -t dcmfs -o extent=16M,budget={budget & ~4095} dcm {MOUNT}")
    bed.must(f"truncate -s {size_mib}M {FILE}")
    job = bed.spawn(f"exec /tmp/dcmfs_test serve {FILE} /tmp/stop </dev/null")
    try:
        until(job, "serving")
        yield Dcm(bed)
    finally:
        bed.must("touch /tmp/stop")
        job.wait(60)
        bed.must(f"rm {FILE}; umount {MOUNT}")
        bed.rmmod(module)


class Swaps:
    """Devices to swap to in an L1, each set up when it is first wanted; they go with the L1."""

    def __init__(self, bed: Bed, size_mib: int) -> None:
        self.bed = bed
        self.size_mib = size_mib
        self._device: dict[str, str] = {}
        self._job: Job | None = None
        self._controller = False
        bed.must(f"modprobe brd rd_nr=2 rd_size={size_mib * 1024}")

    def device(self, name: str) -> str:
        if name not in self._device:
            self._device[name] = {"brd": self._brd, "nbd": self._nbd, "nvme": self._nvme}[name]()
            self.bed.must(f"mkswap {self._device[name]}")
        return self._device[name]

    def _brd(self) -> str:
        return "/dev/ram0"

    def _nbd(self) -> str:
        self.bed.put(NBD, "/tmp/nbdmem", 0o755)
        self.bed.must("modprobe nbd nbds_max=1 && ip link set lo up")
        self._job = self.bed.spawn(f"exec /tmp/nbdmem /dev/nbd0 {self.size_mib}")
        until(self._job, "ready")
        time.sleep(1)  # from there to NBD_DO_IT
        return "/dev/nbd0"

    def _nvme(self) -> str:
        """NVMe over fabrics: a target whose namespace is on brd, over rxe, and its host."""
        rxe(self.bed)
        self.bed.must(
            "modprobe -a nvmet nvmet-rdma nvme-rdma; "
            "mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; "
            "cd /sys/kernel/config/nvmet && mkdir subsystems/dcm && cd subsystems/dcm && "
            "echo 1 >attr_allow_any_host && mkdir namespaces/1 && "
            "echo -n /dev/ram1 >namespaces/1/device_path && echo 1 >namespaces/1/enable && "
            "mkdir ../../ports/1 && cd ../../ports/1 && echo ipv4 >addr_adrfam && "
            f"echo rdma >addr_trtype && echo {ADDRESS} >addr_traddr && "
            "echo 4420 >addr_trsvcid && ln -s ../../subsystems/dcm subsystems/dcm"
        )
        options = f"transport=rdma,traddr={ADDRESS},trsvcid=4420,nqn=dcm,queue_size=64"
        self.bed.must(f"echo {options} >/dev/nvme-fabrics", 60)
        self._controller = True
        found = ""
        for _ in range(100):
            found = self.bed.run("ls -d /dev/nvme*n1").stdout.strip()
            if found:
                return found
            time.sleep(0.1)
        raise RuntimeError("no NVMe namespace came")

    def close(self) -> None:
        if self._controller:
            remove = "for c in /sys/class/nvme/nvme*; do echo 1 >$c/delete_controller; done"
            self.bed.must(remove, 60)
        if self._job:
            self._job.end()


@contextmanager
def swap(swaps: Swaps, name: str, limit: int) -> Iterator[Swap]:
    """Swap on that device, under a cgroup with a limit in bytes."""
    bed, device = swaps.bed, swaps.device(name)
    # Over a network writing takes longer than the kernel is ready to wait before it kills, at the
    # hard limit; what is above the other one is slowed down and reclaimed.
    which = "memory.max" if name == "brd" else "memory.high"
    bed.must(f"swapon {device} && mkdir {GROUP} && echo {limit} >{GROUP}/{which}")
    try:
        yield Swap(bed, name)
    finally:
        bed.must(f"rmdir {GROUP}; swapoff {device}", 300)


def side(swaps: Swaps, name: str, size: int, limit: int) -> AbstractContextManager[Side]:
    """That side, with `limit` bytes of memory; `size` in MiB is the file's on dcmfs."""
    if name == "dcmfs":
        return dcmfs(swaps.bed, size, limit)
    return swap(swaps, name, limit)


def judge(bed: Bed) -> None:
    """An L1 whose kernel complains has measured nothing."""
    wrong = bed.finish()
    if wrong:
        raise RuntimeError(f"L1 complains: {wrong[:5]}")
