# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks of guests must be able to fail: wrong results, complaints, too much memory."""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest import workload
from tests.guest.paged import MIB, Pager, PagerError, Sampler, resident
from tests.guest.vmharness import GuestGone, Qmp, find_complaints

STRESS = """\
stress-ng: metrc: [513] vm                {ops}      4.09      6.23      1.52      9521.35
stress-ng: info:  [513] passed: {passed}: vm (2)
stress-ng: info:  [513] failed: {failed}
"""


@pytest.mark.parametrize(
    "line",
    [
        "[   20.5] WARNING: CPU: 1 PID: 329 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca",
        "[    7.3] Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI",
        "[    9.0] BUG: unable to handle page fault for address: ffffb0d0",
        "[   99.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[  120.0] INFO: task kworker/0:1:12 blocked for more than 120 seconds.",
        "[   50.0] WARNING: possible circular locking dependency detected",
        "[   60.0] Out of memory: Killed process 400 (stress-ng-vm)",
        "[   61.0] sort[412]: segfault at 0 ip 00007f error 4 in libc.so.6",
        "[   62.0] EXT4-fs error (device vda): ext4_lookup:1787",
        "[   63.0] refcount_t: underflow; use-after-free.",
        "[   64.0] list_add corruption. prev->next should be next",
        "[   65.0] rcu: INFO: rcu_sched self-detected stall on CPU",
        "[   66.0] Oops: general protection fault, probably for non-canonical address 0xdead",
        "[   67.0] BUG: KASAN: slab-use-after-free in dcm_drop+0x1/0x2",
        "[   68.0] BUG: Bad page state in process qemu  pfn:12345",
        "[   69.0] say Command line: BUG: not at the beginning",
    ],
)
def test_complaints_are_found(line: str) -> None:
    assert find_complaints(f"[    1.0] Linux version 6.12\n{line}\n") == [line.strip()]


def test_a_healthy_log_has_none() -> None:
    log = (
        "[    0.0] Kernel command line: root=/dev/vda rcupdate.rcu_cpu_stall_timeout=60\n"
        "[    0.1] \tRCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).\r\n"
        "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled\n"
        "[    0.3] rcu: Hierarchical RCU implementation.\n"
        "[    1.0] EXT4-fs (vda): mounted filesystem\n"
    )
    assert find_complaints(log) == []


def test_wrong_results_are_wrong() -> None:
    job = workload.sort(1000)
    good = workload.seq_sha256(workload.BASE, workload.BASE + 999)
    assert job.check(f"{good}  -") == ""
    assert job.check(f"{'0' * 64}  -") != ""
    assert job.check("") != ""
    assert workload.sqlite().check(workload.sqlite_answer()) == ""
    assert workload.sqlite().check(workload.sqlite_answer().replace("ok\n", "", 1)) != ""
    assert "ok" in workload.sqlite_answer().splitlines()


@pytest.mark.parametrize(
    ("ops", "passed", "failed", "right"), [(9, 2, 0, True), (9, 1, 1, False), (0, 2, 0, False)]
)
def test_stressor_must_have_worked(ops: int, passed: int, failed: int, right: bool) -> None:
    check = workload.stress("incdec", 64, 1).check
    output = STRESS.format(ops=ops, passed=passed, failed=failed)
    assert (check(output) == "") is right
    assert check(output + "stress-ng: fail:  [9] vm: detected 8 bit errors\n") != ""
    assert check("") != ""


@pytest.fixture
def pager(short_tmp: Path) -> Iterator[Pager]:
    """Something that says it has a budget of 8 MiB and nothing in flight."""
    path = short_tmp / "vm.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        answer = {"ok": True, "budget_bytes": 8 * MIB, "in_flight_max_bytes": 0}

        def serve() -> None:
            while True:
                try:
                    conn, _ = listener.accept()
                except OSError:
                    return
                with conn:
                    if not conn.recv(4096):
                        return
                    conn.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield Pager(path)
        with socket.socket(socket.AF_UNIX) as last:  # wakes accept()
            last.connect(str(path))
        thread.join()


def test_too_much_direct_memory_is_seen(pager: Pager) -> None:
    """A child holds more than the budget in a mapping that is looked for by its size."""
    size = 24 * MIB + 5 * mmap.PAGESIZE  # a size nothing else has
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for mib in (6, 18):
            area[: mib * MIB] = b"x" * (mib * MIB)
            os.write(ready[1], b".")
            os.read(go[0], 1)
        os._exit(0)
    try:
        sampler = Sampler(child, pager)
        sampler.ram = size
        os.read(ready[0], 1)
        sampler._look()
        assert 6 * MIB <= sampler.samples[-1].direct < 7 * MIB
        assert sampler.over() == []
        os.write(go[1], b".")
        os.read(ready[0], 1)
        sampler._look()
        assert len(sampler.over()) == 1
        assert resident(child, size).ranges == 1
    finally:
        os.write(go[1], b"..")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


def test_a_pager_that_is_gone_is_an_error(short_tmp: Path) -> None:
    with pytest.raises(PagerError, match="no answer"):
        Pager(short_tmp / "none.sock").status()


def test_a_qemu_that_dies_at_its_greeting_leaves_no_socket() -> None:
    """The next test was blamed for it, when that was looked at."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises((GuestGone, OSError)):
            Qmp(ours)
    assert ours.fileno() == -1
