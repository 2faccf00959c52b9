# SPDX-License-Identifier: GPL-2.0-or-later
"""The test bed itself: that L1 is what it should be, and that what judges it can say no."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.guest import workload
from tests.guest.vmharness import TOP, GuestError, GuestGone
from tests.vm.bed import Bed, Spec
from tests.framework.emulator import (
    crashed_by_itself,
    ghost_breakpoint,
    interrupted_twice,
    killed_by_emulator,
    stopped_timer,
    wrong_clock,
)
from tests.vm.job import CommandTimeout
from tests.vm.conftest import LOGS, NewBed
from tests.vm.kmod import build_module, kernel_root
from tests.vm.l2 import L2
from tests.vm.rdma import rxe

MODULE = """\
#include <linux/init.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <generated/utsrelease.h>

static int word;
module_param(word, int, 0444);

static int __init probe_init(void)
{
	pr_info("bed_probe: word %d on %s\\n", word, UTS_RELEASE);
	return word < 0 ? -EINVAL : 0;
}

static void __exit probe_exit(void)
{
	pr_info("bed_probe: gone\\n");
}

module_init(probe_init);
module_exit(probe_exit);
MODULE_DESCRIPTION("Loads, says so, goes");
MODULE_LICENSE("GPL");
"""


OOPS = """\
[   17.611555] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI
[   17.612224] RIP: 0010:vcpu_run+0x562/0x1870 [kvm]
[   17.612881] Code: 00 00 48 8b 83 20 02 00 00 0f 1f 44 00 00 %s <1f> 44 00 00 48 89
"""


def test_breakpoints_that_are_not_there() -> None:
    """The instruction pointer is behind an int3: the byte before tells whether there is one."""
    assert ghost_breakpoint(OOPS % "0f")
    assert not ghost_breakpoint(OOPS % "cc")
    assert not ghost_breakpoint(OOPS.replace("int3", "0000") % "0f")
    assert not ghost_breakpoint("")
    other = "[   10.100000] ---[ end trace 0000000000000000 ]---\n"
    assert ghost_breakpoint(OOPS % "0f" + other)
    assert not ghost_breakpoint(other + OOPS % "0f"), "it had died of something else"


def test_a_guest_dies_of_a_breakpoint_that_is_not_there() -> None:
    """One of L2's counts as one of L1's; an interrupt that comes twice is a guest's only."""
    assert killed_by_emulator("", [OOPS % "cc", OOPS % "0f"])
    assert killed_by_emulator("", ["", TRACE % (0, 0x46)])
    assert killed_by_emulator(OOPS % "0f", [])
    assert not killed_by_emulator(OOPS % "cc", [OOPS % "cc"])
    assert not killed_by_emulator(TRACE % (0, 0x46), [])


# An L1 whose clocks ran 28 times too fast; in the other the PIT was found useless, as it often is.
WRONG_CLOCK = """\
[    0.000000] tsc: Fast TSC calibration failed
[    0.048000] tsc: PIT calibration deviates from HPET: 92770 2594211
[    0.048000] tsc: Using PIT calibration value
[    0.048000] tsc: Detected 92.770 MHz processor
"""
RIGHT_CLOCK = """\
[    0.052000] tsc: Unable to calibrate against PIT
[    0.052000] tsc: using HPET reference calibration
[    0.052000] tsc: Detected 2594.949 MHz processor
"""


@pytest.mark.slow
def test_an_l1_whose_clock_is_wrong_is_not_used(tmp_path: Path) -> None:
    """Its kernel would complain of lockups that are none. It boots once more, then is given up."""
    assert wrong_clock(WRONG_CLOCK)
    assert not wrong_clock(RIGHT_CLOCK)
    words = "tsc: PIT calibration deviates from HPET"  # each of its boots says so
    bed = Bed(Spec(512, 1, kvm=False, guest=False, append=f'bed.say="{words}"'), keep=tmp_path)
    try:
        with pytest.raises(GuestError, match="clock is wrong, twice"):
            bed.start()
    finally:
        bed.close()
    assert bed.closed and not bed.running()


def test_a_stopped_timer_fails_a_boot() -> None:
    """The kernel says that one of its processors gets no timer interrupts; a stall is not that."""
    stall = "[   22.831575] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"
    timer = "[   22.883761] rcu: \tPossible timer handling issue on cpu=1 timer-softirq=2\n"
    assert stopped_timer(stall + timer)
    assert not stopped_timer(stall)


def test_an_assertion_of_the_emulator_fails_a_boot() -> None:
    """This one is QEMU's own; another, and one that a signal stands for, are not known."""
    said = "qemu: ../tree/system/physmem.c:2671: iotlb_to_section: Assertion `{}' failed."
    known = said.format("section_index < d->map.sections_nb")
    assert crashed_by_itself(-signal.SIGABRT, f"libdcm: connected\n{known}\n")
    assert not crashed_by_itself(-signal.SIGABRT, said.format("other"))
    assert not crashed_by_itself(-signal.SIGABRT, "")
    assert not crashed_by_itself(-signal.SIGKILL, known)


@pytest.mark.slow
def test_an_l1_whose_emulator_crashes_at_its_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a test is in it yet: it boots once more. One that is ended is not."""
    for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT):
        bed = Bed(Spec(512, 1, kvm=False, guest=False), keep=tmp_path / str(int(number)))

        def crash(bed: Bed = bed, number: int = number) -> None:
            while not bed.running() or not bed.console_path.exists():
                time.sleep(0.05)
            os.kill(bed.pid, number)

        killer = threading.Thread(target=crash)
        killer.start()
        try:
            if number != signal.SIGSEGV:
                with pytest.raises(GuestGone):
                    bed.start()
                continue
            bed.start()
            assert "ended with status -11" in capsys.readouterr().err
            assert bed.must("echo there") == "there\n"
        finally:
            killer.join()
            bed.close()


TRACE = """\
[   26.284094]  asm_sysvec_apic_timer_interrupt+0x1a/0x20
[   26.284138] RIP: 0010:asm_sysvec_apic_timer_interrupt+0x%x/0x20
[   26.284152] Code: f6 e7 ea ff e9 41 07 00 00 90 f3 0f 1e fa 0f 01 ca fc 6a ff e8 c1 <f3> 0f 1e fa
[   26.284159] RSP: 0000:fffffe303fee1fd8 EFLAGS: %08x
[   26.284169] RAX: 00007f397ed7b000 RBX: 00007f397ed7b000 RCX: 00000000e311ee51
"""


def test_interrupts_that_come_twice() -> None:
    """At the first instruction of an interrupt's entry there are none."""
    assert interrupted_twice(TRACE % (0, 0x46))
    assert not interrupted_twice(TRACE % (0, 0x246))
    assert not interrupted_twice(TRACE % (0x1A, 0x46))
    assert not interrupted_twice("")
    other = "[   20.100000] ---[ end trace 0000000000000000 ]---\n"
    assert interrupted_twice(TRACE % (0, 0x46) + other)
    assert not interrupted_twice(other + TRACE % (0, 0x46)), "it had died of something else"


def test_logs_of_two_l1s_are_not_mixed(tmp_path: Path) -> None:
    """One that is not closed has its folder to itself."""
    first, second = Bed(keep=tmp_path / "same"), Bed(keep=tmp_path / "same")
    first.claim()
    with pytest.raises(GuestError, match="another L1, which is not closed"):
        second.start()
    first.close()
    second.claim()
    second.close()


def test_the_kernel_is_the_one_whose_headers_we_have(bed: Bed) -> None:
    headers = [path.name for path in kernel_root().glob("usr/src/linux-headers-*-amd64")]
    assert headers == [f"linux-headers-{bed.must('uname -r').strip()}"]
    assert bed.must("nproc").strip() == str(bed.spec.cpus)


def test_kvm_with_nested_paging(bed: Bed) -> None:
    bed.must("modprobe kvm_amd")
    assert bed.must("cat /sys/module/kvm_amd/parameters/npt").strip() == "Y"
    assert "kvm_amd: Nested Paging enabled" in bed.dmesg()
    assert bed.run("test -c /dev/kvm").rc == 0


def test_a_module_of_ours_loads(bed: Bed, tmp_path: Path) -> None:
    module = build_module(tmp_path, "bed_probe", MODULE)
    name = bed.insmod(module, "word=4711")
    assert bed.must(f"cat /sys/module/{name}/parameters/word").strip() == "4711"
    bed.rmmod(name)
    said = [line.partition("bed_probe: ")[2] for line in bed.dmesg().splitlines()]
    assert [line for line in said if line][-2:] == [f"word 4711 on {bed.image.kernel}", "gone"]
    with pytest.raises(GuestError, match="Invalid parameters"):
        bed.insmod(module, "word=-1")
    assert bed.run(["rmmod", name]).rc != 0


def test_files_go_there_and_back(bed: Bed) -> None:
    data = os.urandom((3 << 20) + 17)
    bed.put(data, "/tmp/deep/er/file", 0o600)
    assert bed.must("stat -c '%a %s' /tmp/deep/er/file").split() == ["600", str(len(data))]
    assert bed.get("/tmp/deep/er/file") == data
    assert bed.run("sha256sum; echo odd >&2; exit 3", stdin=b"x").rc == 3
    with pytest.raises(GuestError, match="No such file"):
        bed.get("/tmp/none")


def test_a_hung_command_is_ended(bed: Bed) -> None:
    with pytest.raises(CommandTimeout, match=r"it said 'so far(?s:.*) were in:\n(?s:.*)sleep\n"):
        # The shell itself ends at once; what it leaves keeps the session alive.
        bed.run("echo so far; sleep 4711 & sleep 4711", 2)
    assert bed.run(["pgrep", "sleep"]).stdout == ""
    job = bed.spawn("trap '' TERM; sleep 4712; sleep 4712")
    assert job.poll() is None
    assert job.end(1) < 0
    assert bed.run(["pgrep", "sleep"]).stdout == ""


def test_complaints_are_found(bed: Bed) -> None:
    with bed.provoked() as found:
        bed.must("echo '<4>BUG: sleeping function called from the test bed' >/dev/kmsg")
        bed.must("echo '<4>nothing of interest' >/dev/kmsg")
    assert len(found) == 1
    assert found[0].endswith("BUG: sleeping function called from the test bed")
    with bed.provoked() as found:
        bed.spawn("sleep 4713")
    assert len(found) == 1
    assert found[0].startswith("left running in L1: ['/bin/sh', '-c', 'sleep 4713']")
    with bed.provoked() as found:
        pass
    assert found == []


@pytest.mark.rdma
def test_one_sided_reads_and_writes(bed: Bed) -> None:
    """rping: its server reads the client's buffer, writes it into another; the client compares."""
    link = rxe(bed)
    before = link.counters()
    rounds, size, mtu = 50, 16384, 4096
    both = ["-a", link.address, "-C", str(rounds), "-S", str(size), "-V"]
    server = bed.spawn(["rping", "-s", *both])
    link.wait_listening()
    client = bed.run(["rping", "-c", *both], 120)
    assert (client.rc, server.wait(30)) == (0, 0), client.stderr + server.output().stderr
    after = link.counters()
    seen = {name: after[name] - before[name] for name in after}
    # Messages tell where the buffers are; the rest is what was read and written.
    assert seen["rcvd_pkts"] - seen["rdma_recvs"] >= rounds * 2 * size // mtu, seen
    assert seen["retry_exceeded_err"] == seen["retry_rnr_exceeded_err"] == 0, seen
    assert bed.run(["rping", "-c", *both], 60).rc != 0, "nobody listens any more"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_guest_under_real_kvm(bed: Bed) -> None:
    """Its RAM is a file in L1, its programs' results are right, all kernels are content."""
    ram = "/dev/shm/ram"
    jobs = [
        workload.hold(60),
        workload.stress("zero-one", 64, 200, ops=8000),
        workload.sort(50_000, 32),
        workload.held(60),
    ]
    with L2(bed, ram, payload=workload.PAYLOAD, keep=LOGS / "l2") as guest:
        guest.wait_shell(300)
        print(f"L2's shell is there after {guest.boot_seconds:.0f} s")
        assert guest.must("systemd-detect-virt", 60) == "kvm"
        guest.must("echo made in $(echo the guest | md5sum) >/dev/shm/word", 60)
        for job in jobs:
            ran = guest.sh(job.command, job.timeout)
            assert (ran.status, job.check(ran.output)) == (0, ""), job.name
        # The guest's memory is in the file, and KVM's own page faults brought it there.
        word = "made in " + hashlib.md5(b"the guest\n").hexdigest()
        assert bed.run(["grep", "-aqF", word, ram]).rc == 0
        assert bed.run(["grep", "-aqF", word[:-1] + "x", ram]).rc == 1
        assert int(bed.must(["stat", "-c", "%b", ram])) * 512 > 100 << 20
        assert int(bed.must("cat /sys/kernel/debug/kvm/exits")) > 10_000
        assert int(bed.must("cat /sys/kernel/debug/kvm/pf_taken")) > 10_000
        pid = guest.pid
    assert bed.run(["test", "-e", f"/proc/{pid}"]).rc == 1
    # Its kernel says there what is worse than usual only: all else is its initramfs'.
    assert "Mounting root file system" in (LOGS / "l2" / "console.log").read_text()
    bed.must(["rm", ram])


def test_a_kernel_that_dies_is_noticed(new_bed: NewBed) -> None:
    """In an L1 of another shape, which has to be what was asked for."""
    bed = new_bed(memory_mib=512, cpus=1, kvm=False, guest=False, append="bed.word=yes")
    assert bed.must("nproc").strip() == "1"
    assert "bed.word=yes" in bed.must("cat /proc/cmdline").split()
    assert " svm " not in bed.must("grep -m1 ^flags /proc/cpuinfo")
    assert int(bed.must("grep MemTotal /proc/meminfo").split()[1]) < 512 << 10
    started = time.monotonic()
    with pytest.raises(GuestGone, match="Kernel panic"):
        bed.run("echo c >/proc/sysrq-trigger; sleep 4714", 120)
    assert time.monotonic() - started < 100
    wrong = bed.complaints()
    assert any("sysrq triggered crash" in line for line in wrong), wrong
    bed.close()
    assert not bed.running()


# Whoever runs these in the background of a shell has them ignore SIGINT.
OWNER = """
import signal
from tests.vm.bed import Bed, Spec
signal.signal(signal.SIGINT, signal.default_int_handler)
with Bed(Spec(memory_mib=512, guest=False)) as bed:
    print(bed.pid, bed._dir, flush=True)
    bed.run("sleep 4715", 600)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_l1_ends_with_whoever_started_it(number: signal.Signals, short_tmp: Path) -> None:
    """Killed without a chance to end it, or interrupted while a command runs."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=TOP,
        env={**os.environ, "TMPDIR": str(short_tmp), "PYTHONPATH": str(TOP)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert Path(f"/proc/{pid}/comm").read_text().startswith("qemu-system")
        owner.send_signal(number)
        try:
            owner.wait(60)
        finally:
            owner.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "QEMU is still there"
        time.sleep(0.1)
    # Killed, it can't remove its directory; interrupted, it must.
    assert Path(folder).exists() == (number == signal.SIGKILL)
