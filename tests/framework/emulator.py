# SPDX-License-Identifier: GPL-2.0-or-later
"""What QEMU's emulated processor gets wrong: how L1 avoids it, and how a console tells of it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

# What QEMU's emulated processor has, but L1 shall not see. For cmpxchg16b see vmharness.py. la57
# only makes each emulated walk of the page tables longer. The rest: what KVM makes of this
# processor's XSAVE for L2 is inconsistent (a warning at L2's boot), and all of these need XSAVE.
WITHOUT = ("cx16", "la57", "xsave", "avx", "avx2", "f16c", "fma", "vaes", "vpclmulqdq")
# Another feature that is slow on an emulated processor, and that no test needs. With erms kernels
# and libc clear and copy memory by instructions that are emulated byte by byte. With
# init_on_alloc=0 the kernel clears only memory that has to be zero.
QUICK_WITHOUT = ("erms",)
QUICK = "mitigations=off init_on_alloc=0 nokaslr audit=0"
# Where KVM may run in L1: on any processor but the first. Whenever one of them restores its FPU
# (every change of task), QEMU clears a flag of the *first* processor's, unlocked: "hflags2 &=
# ~IGNNE" (cpu_clear_ignne(); 7.2, and newer ones). That word also holds what VMRUN, #VMEXIT, CLGI
# and STGI change on the first processor, and such a change is lost now and then. GIF stays clear:
# it halts for good, deaf to interrupts and NMIs. Nested paging stays on: L2 dies, or L1 panics.
# A processor that runs no guest has nothing to lose there.
FIRST_KVM_CPU = 1
END = "---[ end trace"
# An interrupt's entry, not begun, with interrupts off (bit 9 of EFLAGS).
TWICE = re.compile(
    r"RIP: 0010:asm_(?:sysvec|common)_\w+\+0x0/.*\n(?:.*\bCode: .*\n)?"
    r".*\bRSP: .* EFLAGS: ([0-9a-f]{8})"
)
GHOST = re.compile(r"Oops: int3.*?\bCode: (?:[0-9a-f]{2} )*?([0-9a-f]{2}) <[0-9a-f]{2}>", re.S)


def ghost_breakpoint(console: str) -> bool:
    """Has a kernel died of a breakpoint where its code, which it shows, has none?

    The emulator's: it went on with what it had made of code that the kernel has changed since. Only
    the first trace counts: what a kernel says that has died of something else proves nothing.
    """
    found = GHOST.search(console.partition(END)[0])
    return found is not None and found[1] != "cc"


def wrong_clock(console: str) -> bool:
    """Does a kernel take its processor's TSC for one of another frequency?

    A busy host lets the emulated PIT lag while the kernel counts TSC ticks against it. Its clocks
    then run many times too fast: it sees lockups, and times out, where nothing has stopped.
    """
    return "tsc: PIT calibration deviates from" in console


def stopped_timer(console: str) -> bool:
    """Does a kernel find that the timer of one of its processors no longer interrupts it?

    The emulator's, if nothing but the kernel's own boot has run (docs/testing.md).
    """
    return "rcu: \tPossible timer handling issue on cpu=" in console


def interrupted_twice(console: str) -> bool:
    """Was a kernel interrupted where it had just been, and takes no interrupts?

    The emulator's: it keeps the vector of an interrupt that KVM has injected, and delivers it once
    more if it stops before L2's next exit (docs/testing.md). Here too only the first trace counts.
    """
    first = console.partition(END)[0]
    return any(not int(flags, 16) & 0x200 for flags in TWICE.findall(first))


def crashed_by_itself(status: int, said: str) -> bool:
    """Has QEMU died while a guest's memory map changed, as its kernel looked for PCI devices?

    The emulator's: another processor goes on with a section of the map before (docs/testing.md).
    It meets memory that is gone, or an assertion that it says.
    """
    if status == -signal.SIGABRT:
        return "iotlb_to_section: Assertion `section_index < d->map.sections_nb' failed" in said
    return status == -signal.SIGSEGV


def killed_by_emulator(l1: str, l2s: Iterable[str]) -> bool:
    """Has the emulator killed L1, or a guest in it? By their consoles."""
    guests = list(l2s)
    return any(map(ghost_breakpoint, [l1, *guests])) or any(map(interrupted_twice, guests))
