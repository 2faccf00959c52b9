# SPDX-License-Identifier: GPL-2.0-or-later
"""Stock guests under L1's real KVM, on memory that dcm-hostd has from donors.

What the guest computes is verified, or every page it writes is, while budgets change, donors
drain and stop, and QEMU is killed. The donors' address is the parameter of each test.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.guest import workload
from tests.vm import debug
from tests.vm.conftest import LOGS, NewBed, seed
from tests.vm.l2 import L2, Work
from tests.vm.host import MIB, MOUNT, TOOL, Host, until
from tests.vm.host import built as built


RAM = f"{MOUNT}/ram"
PAGE = 4096


# `make test` has a stock guest that libvirt starts, test_libvirt.py.
pytestmark = pytest.mark.slow


def each_kind(*more: str) -> pytest.MarkDecorator:
    """How the donors are reached: each transport of the kernel pager's."""
    verbs = pytest.param("verbs", marks=pytest.mark.rdma)
    return pytest.mark.parametrize("kind", ["unix", "tcp", verbs, *more])


# As in test_dcmfs.py, but that not as much is held up: a guest has to get to its shell.
UNSTEADY = "jitter_delay=50 jitter_fail=100"


@pytest.fixture
def host(new_bed: NewBed, kind: str) -> Host:
    """Two donors, of which either can hold all of a guest of 256 MiB, 96 of them direct."""
    jitter = ""
    if kind == "jitter":
        kind, jitter = "unix", f"{UNSTEADY} jitter_seed={seed()}"
        debug.build_modules("jitter")
    return Host(
        new_bed(cpus=3), slab="16M", budget="96M", capacity="320M", kind=kind, jitter=jitter
    )


def set_budget(host: Host, mib: int) -> None:
    host.bed.must(["/tmp/dcmfs_test", "budget", RAM, str(mib * MIB // PAGE)])


def pause(host: Host, guest: L2) -> None:
    """QEMU stops wherever its threads are, in a fault perhaps; memory leaves meanwhile."""
    pid = str(guest.pid)
    host.bed.must(["kill", "-STOP", pid])
    set_budget(host, 40)
    time.sleep(0.5)
    host.bed.must(["kill", "-CONT", pid])


@contextmanager
def a_guest(host: Host, name: str, cpus: int = 1) -> Iterator[L2]:
    """A guest on the file RAM, with the tests' programs; its shell may not be there yet."""
    host.bed.must(["truncate", "-s", "256M", RAM])
    payload = [*workload.PAYLOAD, TOOL]
    keep = (host.bed.keep or LOGS) / name
    guest = L2(host.bed, RAM, cpus=cpus, payload=payload, keep=keep)
    with guest:
        yield guest


def drain(host: Host, meanwhile: Callable[[int], None]) -> None:
    """The first donor wants its memory back: it gets all, and the other has it then."""
    near, far = host.donors
    until(lambda: near.used() and far.used(), "both lend")
    moved = host.counter("MOVED_PAGES")
    near.job.signal(signal.SIGTERM)
    rounds = 0
    while near.job.poll() is None:
        meanwhile(rounds)
        rounds += 1
    assert near.job.wait(1) == 0, f"{near.job.output()}\n{host.log()}"
    assert "every slab is back" in near.job.output().stderr
    assert host.counter("MOVED_PAGES") > moved and not host.counter("LOST_PAGES")


def all_is_back(host: Host) -> None:
    """The file is removed and nobody has it open: the kernel and the donors have nothing of it."""
    gone = host.log().count(f"{RAM}: gone")
    host.bed.must(["rm", RAM])
    until(lambda: host.log().count(f"{RAM}: gone") > gone, host.log)
    assert host.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "its memory is still there"
    until(lambda: not any(donor.used() for donor in host.donors), "donors have all back")


@each_kind()
@pytest.mark.timeout(900)
def test_a_guest_works(host: Host) -> None:
    """Its programs' results are right, with budgets that change and a donor that drains."""
    jobs = [
        workload.hold(90),
        workload.stress("zero-one", 64, 200, ops=3000),
        workload.sort(40_000, 32),
        workload.held(90),
    ]
    with a_guest(host, "l2-works") as guest:
        guest.wait_shell(400)
        print(f"L2's shell is there after {guest.boot_seconds:.0f} s")
        assert guest.must("systemd-detect-virt", 60) == "kvm"
        work = Work(guest, jobs)
        work.start()
        drain(host, lambda n: set_budget(host, (64, 112, 80)[n % 3]))
        rounds = 0
        while work.is_alive() or rounds < 3:
            set_budget(host, (112, 64, 96)[rounds % 3])
            rounds += 1
            work.join(2)
        assert not work.wrong
    assert host.counter("FETCHED_PAGES") > 3000
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    all_is_back(host)
    host.close()


@each_kind("jitter")
@pytest.mark.timeout(900)
def test_torture_in_a_guest(host: Host) -> None:
    """Two processors write and check pages, while all that can be changed outside is.

    Once with a module that yields, sleeps and has no frames at random, and the donors near.
    """
    with a_guest(host, "l2-torture", cpus=2) as guest:
        guest.wait_shell(400)
        print(f"L2's shell is there after {guest.boot_seconds:.0f} s")
        assert guest.must("nproc", 60) == "2"
        use = f"/var/tmp/dcmfs_test use /dev/shm/it 80 4 {seed()} stop"
        # Nothing may be executed where the payload is.
        guest.must("cp dcmfs_test /var/tmp", 60)
        guest.must(f"({use}; echo ended with $?) >said 2>&1 &", 60)
        assert "using" in guest.must("until grep -E 'using|ended' said; do sleep 0.5; done", 240)

        def disturb(n: int) -> None:
            set_budget(host, (48, 112, 64, 96)[n % 4])
            if n % 3 == 2:
                pause(host, guest)

        for n in range(6):
            disturb(n)
        print("budgets and pauses: done")
        drain(host, disturb)
        print("drained")
        for n in range(6):
            disturb(n)
        # The last of these left little: to compare all that is there may take its time.
        set_budget(host, 96)
        said = guest.must("touch stop; until grep ended said; do sleep 0.5; done; cat said", 240)
        found = re.search(r"use: (\d+) pages right, 0 lost", said)
        assert found and "ended with 0" in said, said
        print(said)
        assert int(found[1]) > 80 * 256
    assert host.counter("FETCHED_PAGES") > 10_000
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    all_is_back(host)
    parameters = "/sys/module/kvm_dcm/parameters"
    if host.bed.run(f"ls {parameters}/jitter_seed").rc == 0:
        done = host.bed.must(f"cd {parameters}; cat jitter_delays jitter_fails")
        print("delays at each point, and failures:", done.replace("\n", " "))
        assert all(int(n) > 0 for n in (done.split(",")[0], done.split()[-1]))
    host.close()


def killed_at_the_start(host: Host, guest: L2) -> None:
    """Before it has much memory."""


def killed_while_it_boots(host: Host, guest: L2) -> None:
    until(lambda: host.counter("WRITTEN_PAGES") > 2000, "memory leaves", 240)


def killed_with_a_small_budget(host: Host, guest: L2) -> None:
    until(lambda: host.counter("WRITTEN_PAGES") > 2000, "memory leaves", 240)
    set_budget(host, 24)


def killed_while_stopped(host: Host, guest: L2) -> None:
    until(lambda: host.counter("FETCHED_PAGES") > 500, "memory comes back", 240)
    pause(host, guest)
    guest.pause()


def killed_while_a_donor_drains(host: Host, guest: L2) -> None:
    until(lambda: all(donor.used() for donor in host.donors), "both lend")
    until(lambda: host.counter("WRITTEN_PAGES") > 10_000, "memory leaves", 240)
    moved = host.counter("MOVED_PAGES")
    host.donors[0].job.signal(signal.SIGTERM)
    until(lambda: host.counter("MOVED_PAGES") > moved, "memory moves")


def free_mib(host: Host) -> int:
    """Memory of L1 that nothing holds."""
    host.bed.must("sync; echo 3 >/proc/sys/vm/drop_caches")
    return int(host.bed.must("grep MemFree /proc/meminfo").split()[1]) >> 10


@each_kind()
@pytest.mark.timeout(1200)
def test_qemu_killed_at_any_moment(host: Host) -> None:
    """SIGKILL at five moments: each time nothing is left, and no page of L1 is gone for good."""
    free: list[int] = []
    for moment in (
        killed_at_the_start,
        killed_while_it_boots,
        killed_with_a_small_budget,
        killed_while_stopped,
        killed_while_a_donor_drains,
    ):
        print(moment.__name__, flush=True)
        with a_guest(host, moment.__name__.replace("_", "-")) as guest:
            until(lambda: host.said(f"{RAM}: served"), host.log)
            moment(host, guest)
            host.bed.run(["kill", "-9", str(guest.pid)])
            guest.wait_exit(60)
        all_is_back(host)
        free.append(free_mib(host))
        # After the first run L1 keeps memory: QEMU's file, modules, slabs. Memory that is freed
        # after a grace period is free a moment later.
        until(lambda: free_mib(host) > free[0] - 48, lambda: f"free afterwards: {free} MiB")
    print(f"free afterwards: {free} MiB")
    host.close()
