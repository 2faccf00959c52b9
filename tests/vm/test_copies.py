# SPDX-License-Identifier: GPL-2.0-or-later
"""Files with copies of their pages, in L1: donors die and stop while memory is used, and dcm-hostd
too, and not a page is lost."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest

from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.host import COPIES, FIRST, LONG, NONE_THIN, PLAIN, SLOW_VERBS, Host, Use, slow, until
from tests.vm.host import built as built

SLAB = 2 << 20
SIZE_MIB = 24  # of a file; a third is in this host
BUDGET_MIB = 8
STEADY_S = 2.0


def copied(
    host_bed: Bed,
    kind: str,
    names: str = "near next third",
    tunables: str = NONE_THIN,
    redundancy: str = "replica:2",
    files: str = "",
    seal: str = "",
) -> Host:
    """An L1 whose files have two copies of each page."""
    return Host(
        host_bed, kind, budget=f"{BUDGET_MIB}M",
        names=names, settings=COPIES.format(redundancy), tunables=tunables, files=files, seal=seal,
    )  # fmt: skip


class File:
    """A file as dcm-hostd tells of it."""

    def __init__(self, host: Host, use: Use) -> None:
        self.host, self.use = host, use

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.host.files()[self.use.path]
        return status

    def whole(self) -> bool:
        """Each extent that has slabs has two, and none lacks a page."""
        try:
            s = self.status()
        except (ConnectionError, KeyError):
            return False  # a daemon that has just been started
        slabs = sum(d["slabs"] for d in s["donors"])
        return bool(
            slabs == 2 * s["extents"]
            and not (s["exposed_bytes"] or s["filling"] or s["wanted"])
            and self.use.is_using()
        )

    def state(self, donor: int) -> str:
        return str(self.status()["donors"][donor]["state"])

    def until_whole(self, why: str) -> None:
        """Also a while later: a lane may be about to connect."""
        deadline = time.monotonic() + LONG
        since = time.monotonic()
        while time.monotonic() - since < STEADY_S * debug.PATIENCE:
            if not self.whole():
                since = time.monotonic()
                assert since < deadline, f"{why}\n{self.host.log()}"
            time.sleep(0.3)

    def end(self) -> None:
        """Not a page is lost, and donors have all back."""
        right, lost = self.use.end()
        assert right > SIZE_MIB * 256 and lost == 0, self.host.log()
        assert self.host.counter("LOST_PAGES") == self.host.counter("ILLEGAL") == 0
        assert "had no other copy" not in self.host.log()
        self.host.bed.must(["rm", self.use.path])
        until(lambda: self.host.said(f"{self.use.path}: gone"), self.host.log)
        until(lambda: not any(d.used() for d in self.host.donors), "donors have all back")
        self.host.close()


def reads(host: Host) -> dict[str, int]:
    """READs that each donor has answered, as it says."""
    return {donor.name: donor.status()["data"]["reads"] for donor in host.donors}


@pytest.mark.parametrize("kind", ["tcp", slow("plain"), slow("unix"), SLOW_VERBS])
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_donors_die_one_by_one(host_bed: Bed, kind: str) -> None:
    """With two copies and a third donor a second death loses nothing either."""
    host = copied(host_bed, kind)
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("two slabs for each extent")
    assert all(d["slabs"] for d in file.status()["donors"])
    assert file.status()["copies"] == 2
    for n in range(2):
        host.donors[n].job.signal(signal.SIGKILL)
        host.donors[n].job.wait(60)
        until(lambda n=n: file.state(n) == "lost", host.log)  # type: ignore[misc]
        if not n:
            file.until_whole("copied to the donors that are left")
            assert host.counter("FILLED_PAGES") > 0
    # one donor is left, and the status says what its death would take
    extents = file.status()["extents"]
    until(lambda: file.status()["exposed_bytes"] == extents * SLAB, lambda: str(file.status()))
    until(lambda: host.said("no other donor can lend a slab"), host.log)
    file.end()


@pytest.mark.slow
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_all_donors_of_memory_die(host_bed: Bed) -> None:
    """With `disk` each page is on a donor of files too; it is read from there only then."""
    host = copied(host_bed, "tcp", "near next", redundancy="disk", files="disk")
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("a slab of memory and one of files for each extent")
    status = file.status()
    assert [d["medium"] for d in status["donors"]] == ["memory", "memory", "file"]
    assert status["donors"][2]["slabs"] == status["extents"]
    read = reads(host)
    # On a busy machine a donor of memory may answer so late that the other one is asked.
    late = host.counter("FAILOVERS")
    assert read["disk"] <= late + sum(read.values()) / 100, (read, late)
    for donor in host.donors[:2]:
        donor.job.signal(signal.SIGKILL)
    for n, donor in enumerate(host.donors[:2]):
        donor.job.wait(60)
        until(lambda n=n: file.state(n) == "lost", host.log)  # type: ignore[misc]
    fetches = host.counter("FETCHES")
    until(lambda: host.counter("FETCHES") > fetches + 500, "it goes on")
    file.end()


# A process that reads a word of each page of a file's last MiB, time and again.
READ = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
while True:
    for at in range(len(memory) - (int(sys.argv[2]) << 20), len(memory), 4096):
        memory[at]
"""


@pytest.mark.slow
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_cold_memory_makes_room_for_busy(host_bed: Bed) -> None:
    """The donor of memory has room for eight of twelve extents: in the end for those in use."""
    host = Host(
        host_bed, "tcp", budget=f"{BUDGET_MIB}M", capacity="16M", names="near", files="disk",
        settings="cold-after = 1s\nrebuild-rate = 0\n",
    )  # fmt: skip
    use = Use(host, SIZE_MIB)

    def slabs() -> list[int]:
        return [d["slabs"] for d in host.files()[use.path]["donors"]]

    until(lambda: slabs() == [8, 4], lambda: f"{slabs()}\n{host.log()}")
    use.job.signal(signal.SIGSTOP)
    reader = host.bed.spawn(["python3", "-c", READ, use.path, "12"])

    def from_memory() -> bool:
        """All that is read for a while comes from memory, or is not busy (client/tier.c)."""
        read, begin = reads(host), time.monotonic()
        until(lambda: reads(host)["near"] > read["near"] + 5000, "it goes on")
        not_busy = 20 * (time.monotonic() - begin)
        return reads(host)["disk"] - read["disk"] < max(500, not_busy)

    # How many go there depends on which were written first, and on how fast this machine is.
    until(from_memory, lambda: f"{reads(host)}\n{host.log()}")
    until(lambda: slabs() == [8, 4], lambda: f"{slabs()}\n{host.log()}")
    moved = re.findall(r"extent (\d+) has not been used .* and extent (\d+), which", host.log())
    assert moved and all(int(cold) < 6 <= int(busy) for cold, busy in moved), moved
    reader.end()
    use.job.signal(signal.SIGCONT)
    File(host, use).end()


@pytest.mark.slow
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_donor_that_is_stopped_holds_nobody_up(host_bed: Bed) -> None:
    """Pages are read from the other one meanwhile; afterwards it gets what it missed."""
    host = copied(host_bed, "tcp", "near next", tunables="")
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("two slabs for each extent")
    host.donors[0].job.signal(signal.SIGSTOP)
    until(lambda: host.counter("FAILOVERS") > 0 and host.counter("THIN_PAGES") > 0, host.log)
    # Why is said of one connection in a minute, and on a busy machine others break, too.
    until(lambda: host.said(r"donor near \(.*\): (data connection|not heard of)"), host.log)
    fetches = host.counter("FETCHES")
    until(lambda: host.counter("FETCHES") > fetches + 500, "it goes on")
    until(lambda: file.status()["exposed_bytes"] > 0, "it is exposed")
    assert file.state(0) != "lost"
    host.donors[0].job.signal(signal.SIGCONT)
    file.until_whole("whole again")
    file.end()


@pytest.mark.slow
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_file_gets_copies_while_it_is_used(host_bed: Bed) -> None:
    """Its choice says so, and takes them away again; a new daemon keeps to it."""
    host = Host(host_bed, "tcp", budget=f"{BUDGET_MIB}M")
    choices = "/run/dcm-hostd/donors"
    file = File(host, Use(host, SIZE_MIB))
    until(lambda: sum(d.used() for d in host.donors) >= (SIZE_MIB - BUDGET_MIB) << 20, "both lend")

    def choose(value: str) -> None:
        host.bed.must(f"mkdir -p {choices} && printf '*\\nredundancy = {value}\\n' "
                      f">{choices}/vm.donors")  # fmt: skip
        host.job.signal(signal.SIGUSR1)

    choose("replica:2")
    until(lambda: host.said("redundancy is replica:2 now, it was none"), host.log)
    file.until_whole("two slabs for each extent")
    assert host.counter("FILLED_PAGES") > 0
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said(r"going on with \d+ slabs of the dcm-hostd before"), host.log)
    file.until_whole("still two")
    host.donors[0].job.signal(signal.SIGKILL)
    host.donors[0].job.wait(60)
    until(lambda: file.state(0) == "lost", host.log)
    choose("none")
    until(lambda: host.said("redundancy is none now, it was replica:2"), host.log)
    until(lambda: file.status()["exposed_bytes"] == 0, host.log)
    file.end()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", SLOW_VERBS])
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_the_daemon_is_killed_in_a_rebuild(host_bed: Bed, kind: str) -> None:
    """Another one goes on with the slabs, and with the copying."""
    host = copied(host_bed, kind)
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("two slabs for each extent")
    filled = host.counter("FILLED_PAGES")
    host.donors[0].job.signal(signal.SIGKILL)
    host.donors[0].job.wait(60)
    until(lambda: host.counter("FILLED_PAGES") > filled + 256, "a rebuild has begun")
    host.job.signal(signal.SIGKILL)
    host.job.wait(60)
    host.job = host.bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", host.config])
    until(lambda: host.said(rf"{file.use.path}: going on with \d+ slabs"), host.log)
    file.until_whole("copied to the donors that are left")
    file.end()


# All of a donor's slabs get other bytes.
SPOIL = """
for fd in /proc/{pid}/fd/*; do
    case $(readlink $fd) in *memfd:dcm-slab*) ;; *) continue ;; esac
    dd if=/dev/urandom of=$fd bs=$(stat -Lc %s $fd) count=1 iflag=fullblock conv=notrunc status=none
done
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", SLOW_VERBS])
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_a_donor_gives_wrong_bytes(host_bed: Bed, kind: str) -> None:
    """All that is read comes from the other donor, and the kernel's log names the bad one."""
    host = copied(host_bed, kind, "near next")
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("two slabs for each extent")
    host.bed.must(SPOIL.format(pid=host.donors[1].job.pid))
    until(lambda: host.counter("WRONG_PAGES") > 200, "noticed")
    right, lost = file.use.end()
    assert right > SIZE_MIB * 256 and lost == 0, host.log()
    assert host.counter("LOST_PAGES") == host.counter("ILLEGAL") == 0
    assert "donor 1 gave wrong bytes" in host.bed.dmesg()
    assert "donor 0 gave wrong bytes" not in host.bed.dmesg()
    host.close()


# The pages on a donor's slabs, and how many of them are plain: `dcmfs_test use` has one word in
# 584 bytes, the others are zero.
LOOK = """
import os, sys
there = plain = 0
for link in os.scandir(f"/proc/{sys.argv[1]}/fd"):
    try:
        if "memfd:dcm-slab" not in os.readlink(link.path):
            continue
    except FileNotFoundError:
        continue  # a connection that has just ended
    with open(link.path, "rb") as slab:
        while page := slab.read(4096):
            there += any(page)
            plain += any(page) and bytes(64) in page
print(there, plain)
"""


def pages_on(host: Host, donor: int) -> tuple[int, int]:
    pid = host.donors[donor].job.pid
    there, plain = host.bed.must(["python3", "-c", LOOK, str(pid)], LONG).split()
    return int(there), int(plain)


@pytest.mark.parametrize(
    ("kind", "seal"),
    [
        ("plain", True),
        pytest.param("plain", False, marks=pytest.mark.slow),
        pytest.param("verbs", True, marks=[pytest.mark.rdma, pytest.mark.slow]),
    ],
)
@pytest.mark.timeout(900 * debug.PATIENCE)
def test_donors_see_no_plain_page(host_bed: Bed, kind: str, seal: bool) -> None:
    """Of a sealed file, also over RDMA and connections that are not encrypted. The file stays
    sealed when the configuration changes. Pages that a donor changed are read from the other."""
    host = copied(host_bed, kind, "near next", seal="yes" if seal else "")
    file = File(host, Use(host, SIZE_MIB))
    file.until_whole("two slabs for each extent")
    status = file.status()
    assert status["seal"] is seal
    assert {d["transport"] for d in status["donors"]} == {"verbs" if kind == "verbs" else "tcp"}
    for donor in range(2):
        there, plain = pages_on(host, donor)
        assert there > (SIZE_MIB - BUDGET_MIB) * 256 // 2
        assert plain == 0 if seal else plain > there * 0.9
    if seal:
        host.reconfigure("seal = yes\n", PLAIN)
    else:
        host.reconfigure("[host]\n", "[host]\nseal = yes\n")
    host.job.signal(signal.SIGHUP)
    until(lambda: host.said(r"going on with \d+ slabs of the dcm-hostd before"), host.log)
    assert host.said("its pages are not sealed: donors have some already") is not seal
    file.until_whole("served by the daemon that has started again")
    assert file.status()["seal"] is seal
    if seal:
        host.bed.must(SPOIL.format(pid=host.donors[1].job.pid))
        until(lambda: host.counter("WRONG_PAGES") > 200, "noticed")
        assert "donor 1 gave wrong bytes" in host.bed.dmesg()
        assert "donor 0 gave wrong bytes" not in host.bed.dmesg()
    file.end()
