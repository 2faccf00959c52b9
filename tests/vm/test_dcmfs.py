# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel pager in L1: dcmfs under programs, and a small guest of real KVM.

After each test the file system is unmounted and the module unloaded, which it refuses while
anything of it is left; the L1's kernel log is judged by the fixture.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.framework.paths import BUILD, TOP
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.conftest import NewBed, seed
from tests.vm.rdma import ADDRESS, rxe

MODULE = debug.MODULE
HOG = TOP / "tests" / "framework" / "hog.py"
TOOL = BUILD / "tests-kernel" / "dcmfs_test"
MOUNT = "/mnt/dcm"
PAGE = 4096
MIB = 1 << 20
SECONDS = os.environ.get("KERNEL_TEST_SECONDS", "15")

Mounted = Callable[..., "Dcmfs"]
# Of a module built for it: at one point in thirty something else happens first, and one frame in a
# hundred is not there.
UNSTEADY = "jitter_delay=300 jitter_fail=100"
STEADY_OR_NOT = [
    pytest.param("", marks=pytest.mark.slow, id="steady"),
    pytest.param(UNSTEADY, id="jitter"),
]


class Dcmfs:
    """dcmfs, mounted in an L1."""

    def __init__(self, bed: Bed, options: str, jitter: str = "") -> None:
        self.bed = bed
        self.jitter = jitter
        debug.at_work(bed)
        if jitter:
            jitter += f" jitter_seed={seed()}"
        self.module = bed.insmod(debug.JITTER if jitter else MODULE, *jitter.split())
        bed.put(TOOL, "/tmp/dcmfs_test", 0o755)
        bed.must(["mkdir", "-p", MOUNT])
        bed.must(["mount", "-t", "dcmfs", "-o", f"{options},on-loss=sigbus", "dcm", MOUNT])

    def close(self) -> None:
        told = ""
        if self.jitter:
            parameters = "/sys/module/kvm_dcm/parameters"
            told = self.bed.must(f"cd {parameters}; cat jitter_delays jitter_fails")
            print("delays at each point, and failures:", told.replace("\n", " "))
        self.bed.must(["umount", MOUNT], 60)
        self.bed.rmmod(self.module)
        debug.no_leaks(self.bed)
        if self.jitter:
            times = [int(n) for n in re.split(r"[,\s]+", told.strip())]
            assert sum(times[:-1]) > 10 and times[-1] > 0, "nothing was done at random"

    def tool(self, *args: str, timeout: float = 120) -> str:
        """Run dcmfs_test; what it printed."""
        return self.bed.must(["/tmp/dcmfs_test", *args], timeout)

    def stats(self) -> dict[str, int]:
        """Every counter of the one file there is."""
        text = self.bed.must("cat /sys/kernel/debug/kvm-dcm/*/stats")
        lines = [line.rsplit(" ", 1) for line in text.splitlines()]
        names = [name for name, _ in lines]
        assert len(set(names)) == len(names), "more than one file"
        return {name: int(value) for name, value in lines}


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    debug.build_modules("6.12", "jitter")
    debug.make("make", "-C", "tests/kernel", f"BUILD={BUILD}")


@pytest.fixture
def dcmfs(bed: Bed) -> Iterator[Mounted]:
    """Mount it: dcmfs("budget=32M"); unmounted, and the module out, with the test."""
    mounted: list[Dcmfs] = []

    def mount(options: str, jitter: str = "") -> Dcmfs:
        mounted.append(Dcmfs(bed, options, jitter))
        return mounted[-1]

    yield mount
    for fs in mounted:
        fs.close()


def test_calls(dcmfs: Mounted) -> None:
    """Sizes, holes, several mappers, wrong requests, paging, loss, death; one by one."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("basics", MOUNT)
    assert said.count(": right\n") == len(said.splitlines()) == 10


def test_freeze(dcmfs: Mounted) -> None:
    """Pages for GC workers: synced, frozen, thawed; moved, killed and refused meanwhile."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("freeze", MOUNT, timeout=250)
    assert said.count(": right\n") == len(said.splitlines()) == 14


@pytest.mark.parametrize("seal", ["", "seal"])
def test_copies(dcmfs: Mounted, seal: str) -> None:
    """Extents with two and three slabs: written, filled, one is lost and one detached. Of a sealed
    file also: no slab has a plain page, and wrong bytes are read from another slab, or are lost."""
    fs = dcmfs("extent=2M,budget=24M,metadata=128M")
    said = fs.tool("copies", MOUNT, *seal.split(), timeout=250)
    assert said.count(": right\n") == len(said.splitlines()) == (10 if seal else 5)
    assert ("gave wrong bytes" in fs.bed.dmesg()) is bool(seal)
    stats = fs.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*")
    assert stats.rc != 0, "the file's memory is still there"


def test_spread(dcmfs: Mounted) -> None:
    """What GC workers change where there are copies: spread, reverted, kept; killed in between."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("spread", MOUNT, timeout=250)
    assert said.count(": right\n") == len(said.splitlines()) == 7


@pytest.mark.parametrize(("mode", "checks"), [("mapping", 19), ("access", 7)])
def test_mapped_file(dcmfs: Mounted, mode: str, checks: int) -> None:
    """A shared mapping behaves as one of any other file does, also for accesses by others."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool(mode, MOUNT, timeout=250)
    assert said.count(": right\n") == len(said.splitlines()) == checks


def test_fsx(dcmfs: Mounted) -> None:
    """A file that is written, cut, extended and punched, against a buffer."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("fsx", MOUNT, "6000", seed(), timeout=250)
    print(said, end="")
    assert re.fullmatch(r"fsx: 6000 operations, \d{8,} bytes right\n", said)
    stats = fs.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*")
    assert stats.rc != 0, "the file's memory is still there"


def test_refused_requests(dcmfs: Mounted, bed: Bed) -> None:
    """Every ioctl with everything wrong about it, while the file is in use: it holds."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("ioctls", MOUNT, SECONDS, seed(), timeout=int(SECONDS) + 100)
    print(said, end="")
    assert said.count(": right\n") == 7
    found = re.search(r"random: (\d+) requests refused, (\d+) pages right", said)
    assert found and all(int(n) > 1000 for n in found.groups())
    assert bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "a file's memory is still there"


def test_mount_options(dcmfs: Mounted) -> None:
    """Right ones, wrong ones, random ones, by mount() and by fsconfig()."""
    fs = dcmfs("extent=2M,budget=24M")
    fs.bed.must("mkdir -p /mnt/fuzz")
    said = fs.tool("mounts", "/mnt/fuzz", "300", seed(), timeout=250)
    assert said == "options: right\nremounts: right\nmetadata: right\nat random: right\n"


@pytest.mark.slow
@pytest.mark.parametrize("slabs", ["memfd", "tcp"])
def test_pages_that_many_write(dcmfs: Mounted, slabs: str) -> None:
    """Threads, processes and system calls write words of the same pages: none is overwritten."""
    fs = dcmfs("extent=2M,budget=24M", UNSTEADY)
    env = f"DCMFS_TEST_TCP={int(slabs == 'tcp')}"
    tool = ["env", env, "/tmp/dcmfs_test", "words"]
    said = fs.bed.must([*tool, MOUNT, SECONDS, seed()], 300)
    print(said, end="")
    found = re.fullmatch(r"words: (\d+) written by 6, all there\n", said)
    assert found and int(found[1]) >= 6 * 4096  # each wrote each page


@pytest.mark.parametrize("slabs", [pytest.param("memfd", marks=pytest.mark.slow), "tcp"])
@pytest.mark.parametrize("jitter", STEADY_OR_NOT)
def test_torture(dcmfs: Mounted, slabs: str, jitter: str) -> None:
    """Processes on one file, budgets, moves, holes; every byte checked."""
    fs = dcmfs("extent=2M,budget=24M", jitter)
    path = f"{MOUNT}/torture"
    env = f"DCMFS_TEST_TCP={int(slabs == 'tcp')}"
    tool = ["env", env, "/tmp/dcmfs_test", "torture"]
    print(fs.bed.must([*tool, path, "48", SECONDS, "4", seed()], 300), end="")
    stats = fs.stats()
    assert stats["FAULT_MISSING"] > 1000 and stats["WRITTEN_PAGES"] > 1000
    assert stats["ILLEGAL"] == stats["LOST_PAGES"] == stats["WRITE_ERRORS"] == 0
    assert stats["direct"] <= stats["budget"] + stats["in_flight_max"]
    assert stats["MOVED_PAGES"] > 0
    fs.bed.must(["rm", path])
    assert fs.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "its memory is still there"


@pytest.mark.parametrize("jitter", STEADY_OR_NOT)
def test_torture_of_spans(dcmfs: Mounted, jitter: str) -> None:
    """The same with a budget that holds the file: its memory comes in spans first."""
    fs = dcmfs("extent=2M,budget=64M", jitter)
    path = f"{MOUNT}/torture"
    print(fs.tool("torture", path, "48", SECONDS, "4", seed(), timeout=300), end="")
    stats = fs.stats()
    assert stats["huge_apart"] >= 12, "half of 24 spans"
    assert stats["FAULT_MISSING"] > 1000
    assert stats["ILLEGAL"] == stats["LOST_PAGES"] == stats["WRITE_ERRORS"] == 0
    fs.bed.must(["rm", path])
    assert fs.bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "its memory is still there"


@pytest.mark.slow
def test_links(dcmfs: Mounted) -> None:
    """Donors at the other end of a socket: one that lies, hangs up, says nothing, is not there."""
    said = dcmfs("extent=2M,budget=8M").tool("links", MOUNT)
    assert said.count("passed: ") == len(said.splitlines()) == 7


@pytest.mark.rdma
def test_a_donor_that_lies(dcmfs: Mounted, bed: Bed) -> None:
    """Keys, addresses and lengths that are wrong, queue pairs that end: no page is another's."""
    rxe(bed)
    dcmfs("extent=2M,budget=8M")
    bed.modprobe("rdma_cm")
    verbs = bed.insmod(MODULE.with_name("kvm-dcm-verbs.ko"))
    try:
        bed.put(BUILD / "tests-vm" / "rdma_liar", "/tmp/rdma_liar", 0o755)
        said = bed.must(["/tmp/rdma_liar", MOUNT, ADDRESS, "7999"], 250)
        assert said.count("passed: ") == len(said.splitlines()) == 8
        assert bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "a file's memory is there"
    finally:
        bed.rmmod(verbs)


@pytest.mark.rdma
@pytest.mark.slow
def test_links_to_nobody(dcmfs: Mounted, bed: Bed) -> None:
    """Every link over RDMA is wrong, refused or leads nowhere: memory does not notice."""
    rxe(bed)
    fs = dcmfs("extent=2M,budget=8M")
    bed.modprobe("rdma_cm")
    verbs = bed.insmod(MODULE.with_name("kvm-dcm-verbs.ko"))
    try:
        said = fs.tool("pairs", MOUNT, ADDRESS, SECONDS, seed(), timeout=int(SECONDS) + 100)
        print(said, end="")
        found = re.search(r"(\d+) begun, (\d+) seen to end, (\d+) refused, (\d+) pages", said)
        assert found and all(int(n) > 50 for n in found.groups())
    finally:
        bed.rmmod(verbs)


@pytest.mark.parametrize("jitter", STEADY_OR_NOT)
def test_chaos(dcmfs: Mounted, bed: Bed, jitter: str) -> None:
    """Everything that can be done to files, at random, by processes that are killed: it ends."""
    fs = dcmfs("extent=2M,budget=4M", jitter)
    print(fs.tool("chaos", MOUNT, SECONDS, seed(), timeout=int(SECONDS) + 60), end="")
    assert bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "a file's memory is still there"


@pytest.mark.skipif(
    not debug.TREE, reason="no kernel with fault injection (make test-kernel-debug)"
)
def test_allocations_fail(dcmfs: Mounted, bed: Bed) -> None:
    """Chaos, while in a hundredth of cases the kernel gives its processes no memory of any kind."""
    fs = dcmfs("extent=2M,budget=4M", UNSTEADY)
    with debug.failing(bed, 1):
        print(fs.tool("chaos", MOUNT, SECONDS, seed(), timeout=int(SECONDS) + 60), end="")
    assert bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "a file's memory is still there"


def test_no_memory_to_be_had(dcmfs: Mounted, bed: Bed) -> None:
    """Frames are charged; where the kernel has none, a VM pages with what it has.

    A cgroup whose limit is below the budget is a host without a free page that stays so.
    """
    fs = dcmfs("extent=2M,budget=24M")
    bed.must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup")
    bed.must("cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir dcm")
    group = "/sys/fs/cgroup/dcm"
    path = f"{MOUNT}/charged"
    tool = ["env", f"DCMFS_TEST_CGROUP={group}", "/tmp/dcmfs_test", "torture", path, "48"]
    limit = 14 * MIB
    bed.must(f"echo {limit} >{group}/memory.max; echo max >{group}/memory.swap.max || true")
    print(bed.must([*tool, "8", "3", "11"], 240), end="")
    events = dict(line.split() for line in bed.must(f"cat {group}/memory.events").splitlines())
    assert int(events["max"]) > 0, "the limit was never met"
    assert int(events["oom_kill"]) == 0
    stats = fs.stats()
    assert stats["FETCHED_PAGES"] > 500 and stats["LOST_PAGES"] == stats["ILLEGAL"] == 0
    # Frames held at the end are charged to the cgroup (those from before it was made are not).
    charged = int(bed.must(f"cat {group}/memory.current"))
    assert limit // 2 < charged <= limit
    bed.must(["rm", path])
    assert int(bed.must(f"cat {group}/memory.current")) < charged // 4
    bed.must(["rmdir", group])


@pytest.mark.slow
def test_a_host_without_a_free_page(new_bed: NewBed) -> None:
    """All memory of the host is taken, again and again, under torture: it is right, and ends.

    The kernel ends whoever took it; nobody else, and nothing hangs or is left.
    """
    bed = new_bed(kvm=False, guest=False, memory_mib=768 if debug.TREE else 512)
    fs = Dcmfs(bed, "extent=2M,budget=32M")
    path = f"{MOUNT}/starved"
    bed.put(HOG, "/tmp/hog")
    with bed.provoked() as found:
        seconds = str(int(SECONDS) * debug.PATIENCE)
        torture = bed.spawn(["/tmp/dcmfs_test", "torture", path, "48", seconds, "3", seed()])
        hog = bed.spawn(["python3", "-IS", "/tmp/hog", "0.5"])
        try:
            assert torture.wait(240) == 0, torture.output()
        finally:
            hog.end()
        print(torture.output().stdout, end="")
        stats = fs.stats()
    killed = [line for line in found if "Out of memory" in line]
    print(f"{len(killed)} times without memory")
    assert killed and all("(python3)" in line for line in killed), found
    told = ["invoked oom-killer", "Call Trace:", "oom-kill:", "Out of memory"]
    function = re.compile(r"\] +\? lockdep_\w+\+0x")  # in these traces
    other = [x for x in found if not any(w in x for w in told) and not function.search(x)]
    assert not other, other
    assert stats["FETCHED_PAGES"] > 500 and stats["LOST_PAGES"] == stats["ILLEGAL"] == 0
    bed.must(["rm", path])
    assert bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc != 0, "its memory is still there"
    fs.close()


WRITTEN = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    mem = mmap.mmap(file.fileno(), 0)
mem[5 * 4096] = 1
print("written", flush=True)
time.sleep(1000)
"""


def test_a_page_is_looked_at(dcmfs: Mounted, bed: Bed) -> None:
    """debugfs tells the state of a page: written, never used, no such page."""
    dcmfs("extent=2M,budget=24M")
    path = f"{MOUNT}/looked"
    bed.put(WRITTEN.encode(), "/tmp/written")
    bed.must(["truncate", "-s", "64M", path])
    job = bed.spawn(["python3", "-IS", "/tmp/written", path])
    try:
        deadline = time.monotonic() + 60 * debug.PATIENCE
        while "written" not in job.output().stdout:
            assert job.poll() is None and time.monotonic() < deadline, job.output()
            time.sleep(0.1)
        look = "exec 3<>$(ls /sys/kernel/debug/kvm-dcm/*/page); echo {} >&3 && cat <&3"
        shown = bed.must(look.format(5))
        # A new page is Active; by the tunable epsilon, one in a hundred is Proactive.
        written = re.fullmatch(
            r"gfn 5 head (\d+) size (\d+)K (?:Active|Proactive)( \w+)*\n", shown
        )
        assert written and int(written[1]) <= 5 < int(written[1]) + int(written[2]) // 4, shown
        for gfn in (1000, 0x3FFF):
            assert bed.must(look.format(gfn)).startswith(f"gfn {gfn} head {gfn} size 4K NotDirect")
        for none in (64 * 256, 1 << 40, -1, "x", ""):
            assert bed.run(look.format(f"'{none}'")).rc != 0, none
    finally:
        assert job.end() != 0
    bed.must(["rm", path])


# As the table of core/pd.c has them; and those that paging can't do without.
LEGAL = {
    "NotDirect": {"Active"},
    "Active": {"Proactive", "Inactive", "NotDirect"},
    "Proactive": {"Active", "NotDirect"},
    "Inactive": {"Proactive", "Writeback", "NotDirect"},
    "Writeback": {"NotDirect", "Proactive", "Inactive"},
}
PAGING = {
    ("NotDirect", "Active"),
    ("Active", "Inactive"),
    ("Inactive", "Writeback"),
    ("Writeback", "NotDirect"),
}


def test_every_transition_is_traced(dcmfs: Mounted, bed: Bed) -> None:
    """The tracepoints' events add up to the counters."""
    fs = dcmfs("extent=2M,budget=8M")
    tracing = "/sys/kernel/tracing"
    bed.must(f"mountpoint -q {tracing} || mount -t tracefs trace {tracing}")
    bed.must(f"cd {tracing}; echo 65536 >buffer_size_kb; echo >trace; echo 1 >events/dcm/enable")
    path = f"{MOUNT}/traced"
    try:
        fs.tool("torture", path, "12", "1", "2", "7")
        stats = fs.stats()
    finally:
        bed.must(f"echo 0 >{tracing}/events/dcm/enable")
    bed.must(["rm", path])
    trace = bed.must(f"cat {tracing}/trace; echo >{tracing}/trace")
    assert re.search(r"entries-in-buffer/entries-written: (\d+)/\1 ", trace), "events were lost"
    moves = Counter(re.findall(r"dcm_state: ino=\d+ gfn=\d+ pages=\d+ (\w+)->(\w+)", trace))
    assert all(there in LEGAL[here] for here, there in moves), moves
    assert set(moves) >= PAGING, moves
    brought = stats["FETCHES"] + stats["FAULT_ZERO"]
    assert moves["NotDirect", "Active"] == brought, (moves, stats)
    assert moves["Inactive", "Writeback"] == stats["WRITEBACKS"], (moves, stats)
    faults = re.findall(r"dcm_fault: ino=\d+ gfn=\d+ write=[01] result=(\w+) ns=(\d+)", trace)
    assert len(faults) >= stats["FAULT_MISSING"]
    assert all(int(ns) > 0 for _, ns in faults)


def test_spans(dcmfs: Mounted) -> None:
    """Memory that fits the budget comes in huge pages; parts of these leave, or are discarded."""
    said = dcmfs("extent=2M,budget=24M").tool("huge", MOUNT, timeout=250)
    assert said.count(": right\n") == len(said.splitlines()) == 9


@pytest.mark.slow
def test_spans_when_memory_fails(dcmfs: Mounted) -> None:
    """The same while frames are not there, and threads are delayed, at random."""
    said = dcmfs("extent=2M,budget=24M", UNSTEADY).tool("huge", MOUNT, "storm", timeout=250)
    assert said == "many at once: right\n"


def test_guest_in_huge_pages(dcmfs: Mounted, bed: Bed) -> None:
    """A guest that is all direct runs in entries of 2 MiB, with an exit for each at first touch."""
    fs = dcmfs("extent=2M,budget=80M")
    path = f"{MOUNT}/spans"
    # Other tests have left this L1's memory in pieces.
    bed.must("echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory")
    said = bed.must(bed.with_kvm(["/tmp/dcmfs_test", "spans", path, "64"]), 250)
    print(said, end="")
    found = re.search(r"spans: (\d+) of 2 MiB, (\d+) of 4 KiB, (\d+) exits, (\d+) pages", said)
    assert found
    large, small, exits, pages = (int(n) for n in found.groups())
    assert large * 512 >= 0.95 * pages and small < 0.05 * pages
    assert exits < 0.01 * pages
    stats = fs.stats()
    assert stats["huge"] == 0 and stats["huge_apart"] == pages // 512
    bed.must(["rm", path])


def test_written_by_the_guest_only(dcmfs: Mounted) -> None:
    """Pages that only a guest wrote, or only this host's process, come back as they were."""
    fs = dcmfs("extent=2M,budget=24M")
    path = f"{MOUNT}/guest"
    said = fs.bed.must(fs.bed.with_kvm(["/tmp/dcmfs_test", "guest", path, "48"]), 120)
    assert said == "guest: 12288 pages right both ways\n"
    stats = fs.stats()
    # Two rounds write each page once: what was only read, by either, is not written again.
    assert stats["CLEAN_DROPS"] > 5000
    assert stats["WRITTEN_PAGES"] < 2 * 12288 + 1000
    assert stats["FETCHED_PAGES"] > 30_000
    fs.bed.must(["rm", path])


def test_written_by_vhost_only(dcmfs: Mounted, bed: Bed) -> None:
    """Pages that only vhost's kernel thread wrote come back as it wrote them."""
    fs = dcmfs("extent=2M,budget=12M")
    bed.modprobe("tun", "vhost_net")
    path = f"{MOUNT}/vhost"
    assert fs.tool("vhost", path) == "vhost: 2048 pages right, 4 times\n"
    stats = fs.stats()
    # Each round they left and were fetched to be compared, but for a few that stayed; what was
    # only looked at was not written again.
    most = 4 * 2048 * 15 // 16
    assert most < stats["WRITTEN_PAGES"] < 5 * 2048
    assert stats["FETCHED_PAGES"] > most and stats["CLEAN_DROPS"] > 0
    assert stats["ILLEGAL"] == stats["LOST_PAGES"] == stats["WRITE_ERRORS"] == 0
    bed.must(["rm", path])
    if not debug.TREE:
        bed.must("rmmod vhost_net tun")


def test_sparse(dcmfs: Mounted) -> None:
    """1 TiB on a host of 1.5 GiB: only what is used is described, and only while it is."""
    fs = dcmfs("extent=2M,budget=24M")
    said = fs.tool("sparse", MOUNT, timeout=300)
    assert said.count(": right\n") == len(said.splitlines()) == 5


def test_killed_while_kvm_waits(dcmfs: Mounted, bed: Bed) -> None:
    """A kernel thread of KVM's that waits for a donor gives up: the memory of a dead guest goes."""
    dcmfs("extent=2M,budget=8M")
    assert bed.must(bed.with_kvm(["/tmp/dcmfs_test", "silent", MOUNT]), 120) == "silent: ended\n"
    deadline = time.monotonic() + 60
    while bed.run("ls -d /sys/kernel/debug/kvm-dcm/*").rc == 0:
        assert time.monotonic() < deadline, "its memory is still there"
        time.sleep(0.2)
