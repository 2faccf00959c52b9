# SPDX-License-Identifier: GPL-2.0-or-later
"""Heaps on the kernel pager, collected by the donors that hold them.

tests/gc's runtime in L1, on libvgc, on a file of a dcmfs; dcm-hostd has real donors' workers trace
and move it. It compares every bit with a collector of its own (tests/qemu/heap_check.c), while a
thread touches all of it and half of it is on donors. Without a VMM: what a device adds to this is
a queue.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time

import pytest

from tests.framework.paths import BUILD
from tests.vm import debug
from tests.vm.conftest import seed
from tests.vm.job import Job
from tests.vm.bed import Bed
from tests.vm.host import COPIES, FIRST, LONG, MOUNT, NONE_THIN, Host, slow, until

TOOL = BUILD / "tests-pager" / "heap_check"
FILE = f"{MOUNT}/heap"
SIZE = "24M"
# Of emulated processors, on which donors' workers run as well.
LIMIT = 3 * LONG
pytestmark = pytest.mark.timeout(4 * LIMIT)


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    debug.build_modules("6.12")
    debug.make("make", "-C", "tests/kernel", f"BUILD={BUILD}")
    debug.make("make", "-C", "tests/pager", f"BUILD={BUILD}")
    debug.build_programs()


def heaps(bed: Bed, kind: str, **more: str) -> Host:
    """A file that is half a heap, and all there is to collect it."""
    # donors look for it when they start
    bed.put(debug.PROGRAMS / "dcm-gc-worker", "/tmp/dcm-gc-worker", 0o755)
    host = Host(bed, kind, budget="9M", capacity="96M", **more)
    bed.put(TOOL, "/tmp/heap_check", 0o755)
    bed.must(["truncate", "-s", SIZE, FILE])
    until(lambda: host.said(f"{FILE}: served"), host.log)
    return host


@pytest.fixture
def host(host_bed: Bed, request: pytest.FixtureRequest) -> Host:
    return heaps(host_bed, getattr(request, "param", "unix"))


@pytest.fixture
def copied(host_bed: Bed) -> Host:
    """Each page is on two of three donors, over TCP; encrypting takes an emulator too long."""
    settings = COPIES.format("replica:2")
    return heaps(host_bed, "plain", names="near next third", settings=settings, tunables=NONE_THIN)


def heap(host: Host, mode: str, number: int, *args: str) -> Job:
    """heap_check, which has a thread that never rests: daemons and workers come first."""
    command = ["/tmp/heap_check", mode, f"dcmfs:{FILE}", str(number), *args]
    return host.bed.spawn(["nice", "-n", "10", *command])


def finished(host: Host, job: Job) -> str:
    """It ends well; what it said."""
    try:
        status = job.wait(LIMIT)
    except subprocess.TimeoutExpired:
        where = "for t in /proc/$(pidof %s)/task/*; do head -3 $t/status; cat $t/stack; done"
        stacks = [host.bed.run(where % name).stdout for name in ("heap_check", "dcm-hostd")]
        pytest.fail(f"not in {LIMIT:.0f} s: {job.output()}\n{host.log()}\n" + "\n".join(stacks))
    output = job.output()
    assert status == 0 and output.stdout.endswith("ok\n"), f"{output}\n{host.log()}"
    job.end()
    return output.stdout


def said(host: Host, job: Job, word: str) -> None:
    def there() -> bool:
        output = job.output()
        assert output.rc == -1, f"{output}\n{host.log()}"
        return word in output.stdout

    until(there, f"no {word!r}")


def random_number() -> int:
    number = int(seed()) % (1 << 16)
    print(f"seed {number}")
    return number


def close(host: Host) -> None:
    """Nothing is left of the file, nor of workers."""
    host.bed.must(["rm", FILE])
    until(lambda: host.said(f"{FILE}: gone"), host.log)
    until(lambda: host.bed.run(["pgrep", "-f", "dcm-gc-worker"]).rc == 1, "workers are left")
    host.close()


@pytest.mark.parametrize("host", ["unix", slow("plain")], indirect=True)
def test_collected(host: Host) -> None:
    """Traces, also while it runs, evacuation and compaction: the same bits, the same graph."""
    text = finished(host, heap(host, "check", random_number(), "1"))
    print(text)
    found = re.search(r"(\d+) regions evacuated, (\d+) compacted", text)
    assert found and all(int(n) > 0 for n in found.groups())
    # half of it was on donors all the time
    assert host.counter("FETCHED_PAGES") * 4096 > 9 << 20
    close(host)


@pytest.mark.slow
def test_workers_are_killed(host: Host) -> None:
    """At any moment: a status, the heap as it was, and then it works again."""
    rand = random.Random(random_number())
    job = heap(host, "kill", rand.randrange(1 << 16), "4")
    said(host, job, "up\n")
    killed = 0
    while job.poll() is None and killed < 40:
        time.sleep(rand.random() * 2)
        killed += host.bed.run(["pkill", "-9", "-n", "-f", "dcm-gc-worker"]).rc == 0
    text = finished(host, job)
    print(text, f"{killed} workers killed")
    found = re.search(r"(\d+) rounds, (\d+) failed", text)
    assert found and int(found[2]) >= 4
    close(host)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["plain"], indirect=True)
def test_a_donor_dies(host: Host) -> None:
    """DONOR_LOST; what the other has is right, and collected on.

    Over the UNIX socket its memory outlives it, and nothing is lost.
    """
    job = heap(host, "lose", random_number(), "1")
    said(host, job, "up\n")
    host.donors[1].job.signal(signal.SIGKILL)
    host.donors[1].job.wait(10)
    text = finished(host, job)
    assert "lost: " in text
    finished(host, heap(host, "check", 3, "1"))
    close(host)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["plain"], indirect=True)
@pytest.mark.parametrize("step", ["evacuate", "update", "compact"])
def test_outlives_a_donor(host: Host, step: str) -> None:
    """One is killed in the middle of it: what the other holds is whole, and collected on.

    Over the UNIX socket its memory would outlive it.
    """
    job = heap(host, "outlive", random_number(), step, str(host.donors[1].job.pid))
    text = finished(host, job)
    print(text)
    assert f"{step}: status" in text
    assert host.counter("ILLEGAL") == 0
    host.donors[1].job.wait(10)
    close(host)


@pytest.mark.slow
def test_the_daemon_starts_again(host: Host) -> None:
    """Commands end while it does; then all goes on with the next trace, and no byte was lost."""
    job = heap(host, "kill", random_number(), "2")
    said(host, job, "up\n")
    for _ in range(3):
        time.sleep(2)
        before = len(re.findall("starting again", host.log()))
        host.job.signal(signal.SIGHUP)
        until(lambda n=before: len(re.findall("starting again", host.log())) > n, host.log)  # type: ignore[misc]
    print(finished(host, job))
    close(host)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["unix", "plain"], indirect=True)
def test_donors_drain(host: Host) -> None:
    """Slabs go from one to the other all the time: what is traced is right, what moves is whole."""
    config = host.bed.must(["cat", host.config])
    job = heap(host, "drain", random_number(), "/tmp")
    said(host, job, "up\n")
    turn, deadline = 0, time.monotonic() + LIMIT
    while host.counter("MOVED_PAGES") < 12000:
        assert time.monotonic() < deadline, host.log()
        address = f"address = {host.donors[turn % 2].address}\n"
        drained = config.replace(address, address + "drain = yes\n")
        assert drained != config
        for text in (drained, config):
            host.bed.put(text.encode(), host.config, 0o600)
            host.job.signal(signal.SIGUSR1)
            time.sleep(2)
            said(host, job, "up\n")
        turn += 1
    host.bed.must(["touch", "/tmp/enough"])
    print(finished(host, job), f"{turn} drained")
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    close(host)


@pytest.mark.slow
def test_killed_while_collecting(host: Host) -> None:
    """A runtime that dies at any moment leaves nothing held, and the next has all of the file."""
    rand = random.Random(random_number())
    for _ in range(4):
        job = heap(host, "loop", rand.randrange(1 << 16))
        time.sleep(1 + 6 * rand.random())
        assert job.poll() is None, job.output()
        job.signal(signal.SIGKILL)
        job.wait(30)
        job.end()
    # its connection's end is heard of, or it would be refused
    until(lambda: host.bed.run(["pgrep", "-f", "dcm-gc-worker"]).rc == 1, "workers are left")
    finished(host, heap(host, "check", rand.randrange(1 << 16), "1"))
    close(host)


def survived(host: Host, job: Job, step: str) -> None:
    """A death at that step cost no region, and no page; the heap was collected afterwards."""
    text = finished(host, job)
    print(text)
    assert f"{step}: status" in text and " 0 regions lost" in text
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    assert host.counter("SPREAD_PAGES") > 0


@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT)
def test_collected_with_copies(copied: Host) -> None:
    """Workers' changes are on two donors when a command is answered."""
    text = finished(copied, heap(copied, "check", random_number(), "1"))
    print(text)
    found = re.search(r"(\d+) regions evacuated, (\d+) compacted", text)
    assert found and all(int(n) > 0 for n in found.groups())
    assert copied.counter("SPREAD_PAGES") > 0 and copied.counter("LOST_PAGES") == 0
    close(copied)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["evacuate", "update", "compact"])
def test_copies_outlive_a_donor(copied: Host, step: str) -> None:
    """One is killed in the middle of it: every object is right, and it is collected on."""
    pid = str(copied.donors[1].job.pid)
    survived(copied, heap(copied, "survive", random_number(), step, pid), step)
    copied.donors[1].job.wait(10)
    close(copied)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["evacuate", "update", "compact"])
def test_copies_outlive_the_daemon(copied: Host, step: str) -> None:
    """It is killed in the middle of it: the kernel reverts, and another one goes on."""
    pid = str(copied.job.pid)
    wait = f"while [ -d /proc/{pid} ]; do sleep 0.1; done; "
    command = [*FIRST, "/tmp/dcm-hostd", "--config", copied.config]
    after = copied.bed.spawn(["sh", "-c", wait + "exec " + " ".join(command)])
    job = heap(copied, "survive", random_number(), step, pid)
    until(lambda: copied.job.poll() is not None or job.poll() is not None, copied.log, LIMIT)
    assert copied.job.poll() is not None, f"{step}: it was not killed: {job.output()}"
    copied.job = after
    survived(copied, job, step)
    assert copied.said(rf"{FILE}: going on with \d+ slabs"), copied.log()
    close(copied)
