# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel that finds bugs (scripts/debug-kernel), and what it is asked beside its log.

DCM_DEBUG_KERNEL is its build tree; without it every L1 has Debian's kernel. It has no modules of
its own: what tests need is built in (debug.config).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.framework.paths import BUILD
from tests.vm.bed import Bed

TREE = os.environ.get("DCM_DEBUG_KERNEL")
KERNEL = Path(TREE) / "arch" / "x86" / "boot" / "bzImage" if TREE else None
# Where modules for the kernel under test are built, with delays at random for the debug kernel.
KERNEL_BUILD = BUILD / "debug-kernel" if TREE else BUILD
MODULE = KERNEL_BUILD / "kernel" / "linux" / "kvm-dcm.ko"
# With delays and failures at random (kvm-dcm/linux/jitter.c); for the debug kernel always.
JITTER = MODULE if TREE else BUILD / "kernel-jitter" / "linux" / "kvm-dcm.ko"
# All that KASAN and lockdep do is emulated too; only limits are longer for it.
PATIENCE = 5 if TREE else 1


# So is the silence after which donors, hosts and links give each other up, as a program may not run
# for that long there; and the longest time that a GC command may take.
LIMITS = (
    f"-DDCM_WIRE_SILENCE_MS={5000 * PATIENCE}u -DDCM_GC_DEADLINE_MAX_MS={10000 * PATIENCE}u "
    f"-DDCM_CLIENT_LATE_MS={100 * PATIENCE}u"
    if TREE
    else ""
)
# Where the daemons for that kernel are built.
PROGRAMS = KERNEL_BUILD / "bin"


def make(*command: str) -> None:
    """Build something, without a warning."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "warning:" not in said, said


def make_modules(folder: str, *more: str) -> None:
    """For the debug kernel. KASAN puts room between what is on a stack."""
    flags = f"KFLAGS=KCFLAGS='-Wframe-larger-than=2048 {LIMITS}'"
    make("make", "-C", folder, f"KDIR={TREE}", f"BUILD={KERNEL_BUILD}", flags, *more)


def build_modules(*flavours: str) -> None:
    """kvm-dcm.ko and kvm-dcm-verbs.ko for the kernel under test."""
    if TREE:
        make_modules("kvm-dcm/linux", "DCM_JITTER=1")
    for flavour in flavours if not TREE else ():
        make("scripts/kernel-check", flavour)


def build_programs() -> None:
    """The daemons, with the patience of the kernel under test."""
    make("make", "programs", f"BUILD={KERNEL_BUILD}", *([f"CFLAGS={LIMITS}"] if TREE else []))


def at_work(bed: Bed) -> None:
    """If it is to be the debug kernel, then what that is for is there."""
    if TREE:
        console = bed.console()
        assert "KernelAddressSanitizer initialized" in console
        assert "RCU lockdep checking is enabled" in console


def no_leaks(bed: Bed) -> None:
    """After a module has gone: nothing it allocated is left (kmemleak)."""
    if not TREE:
        return
    # kmemleak does not look at allocations younger than 5 s.
    leaks = "/sys/kernel/debug/kmemleak"
    bed.must("sleep 6; " + f"echo scan >{leaks}; " * 2, 300)
    assert bed.must(f"cat {leaks}") == ""


@contextmanager
def failing(bed: Bed, percent: int) -> Iterator[None]:
    """`percent` percent of the allocations of processes with make-it-fail set fail.

    At the end some must have failed. Where vmalloc() fails the kernel logs a trace: these are no
    complaints, everything else is one.
    """
    debugfs, times = "/sys/kernel/debug", 99999999
    for name in ("failslab", "fail_page_alloc"):
        knobs = {"task-filter": "Y", "ignore-gfp-wait": "N", "verbose": 0, "times": times}
        knobs["probability"] = percent
        for key, value in knobs.items():
            bed.must(f"echo {value} >{debugfs}/{name}/{key}")
    # Also what may be tried again by the allocator, and single pages.
    bed.must(f"cd {debugfs}/fail_page_alloc; echo N >ignore-gfp-highmem; echo 0 >min-order")
    bed.must(f"echo N >{debugfs}/failslab/cache-filter")
    begin = len(bed.console())
    with bed.provoked() as found:
        try:
            yield
            left = bed.must(f"cat {debugfs}/fail*/times")
        finally:
            bed.must(f"for f in {debugfs}/fail*/probability; do echo 0 >$f; done")
    traces = [line for line in found if line.endswith("Call Trace:")]
    assert traces == found, found
    assert len(traces) == bed.console()[begin:].count(" vmalloc error: size "), found
    assert all(int(n) < times for n in left.split()), "nothing failed"
