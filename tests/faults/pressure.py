# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that are full: disks, tmpfs, cgroups, all of memory. Nothing is lost, nobody dies."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.cell import Cell, CannotRun, unknown
from tests.faults.cgroup import Cgroup
from tests.faults.dcmfs import Dcmfs
from tests.faults.network import OVER_TCP, rig
from tests.faults.paged import WAYS, Victim, donor_in, libdcm_config
from tests.faults.place import Place
from tests.framework.donor import Donor
from tests.framework.paths import TOP

MIB = 1 << 20
HOG = TOP / "tests" / "framework" / "hog.py"


def mount_tmpfs(path: Path, size: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "dcm-f", str(path)], check=True)


@contextlib.contextmanager
def small(path: Path, size: str = "1M") -> Iterator[Path]:
    """A disk for logs and state that is soon full."""
    mount_tmpfs(path, size)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def fill(path: Path) -> None:
    """Not a byte is left there, and no inode."""
    with open(path / "filler", "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    try:
        with open(path / "probe", "wb", buffering=0) as probe:
            probe.write(b"x" * 4096)
    except OSError as err:
        if err.errno == errno.ENOSPC:
            return
    raise CannotRun(f"{path} can't be filled")


def disk_full(place: Place) -> list[Cell]:
    """Logs and state of donors, libdcm and dcm-hostd are on a disk without a free byte."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(small(place.folder("full")))
        victims = []
        donors = {}
        keys = None
        for way in WAYS:
            donor = donor_in(full / f"d-{way}", way=way, keys=keys)
            keys = donor.keys
            donors[way] = stack.enter_context(donor)
            folder = full / f"v-{way}"
            config = libdcm_config(folder, [(donor, way)])
            if not place.vm:
                victims.append(Victim(f"{way} libdcm", f"dcm:{config}", folder, nap_us=3000))
        if place.vm:
            dcmfs = stack.enter_context(Dcmfs(place, None, donors, budget="4M"))
            for way, donor in donors.items():
                path, folder = f"file:{dcmfs.file(donor)}", place.folder(f"k-{way}")
                victims.append(Victim(f"{way} dcmfs", path, folder, mib=8, nap_us=9000))
        for victim in victims:
            stack.enter_context(victim)
        for victim in victims:
            victim.ready()
        folder = full / "late"
        late = Victim("started then", f"dcm:{libdcm_config(folder, [(donors['tls'], 'tls')])}",
                      folder, mib=16)  # fmt: skip
        fill(full)
        if place.vm and dcmfs.process is not None:
            fill(Path(f"/proc/{dcmfs.process.pid}/root/run/dcm-hostd"))
        place.say("full")
        for donor in donors.values():
            donor.signal(signal.SIGHUP)  # it has something to log
        stack.enter_context(late)
        # It may say that it can't have its control socket; it may not hang, or die of a signal.
        cells = []
        try:
            late.ready(20)
            cells.append(late.judge())
        except TimeoutError:
            cells.append(unknown(late.name, "hangs"))
        except CannotRun:
            assert late.process is not None
            status = late.process.wait(20)
            cells.append(Cell(late.name, 0, status == 1, f"does not start, status {status}"))
        # The donors' log and the victims' go on being written to.
        for donor in donors.values():
            donor.signal(signal.SIGSTOP)
        time.sleep(1)
        for donor in donors.values():
            donor.signal(signal.SIGCONT)
        time.sleep(2)
        return [victim.judge() for victim in victims] + cells


def tmpfs_full(place: Place) -> list[Cell]:
    """The donor gets no memory for slabs: another program fills the donor's cgroup."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(Cgroup("donor"))
        small_donor = donor_in(place.folder("near"), donor={"head-room": "16M"})
        small_donor.prefix = group.prefix
        group.limit(96 * MIB)
        stack.enter_context(small_donor)
        large = donor_in(place.folder("far"), keys=small_donor.keys)
        stack.enter_context(large)
        victims = []
        for way in WAYS:
            folder = place.folder(f"v-{way}")
            config = libdcm_config(folder, [(small_donor, way), (large, way)])
            victims.append(
                stack.enter_context(
                    Victim(f"{way} libdcm", f"dcm:{config}", folder, mib=32, nap_us=3000)
                )
            )
        for victim in victims:
            victim.ready()
        # A file on a tmpfs, which no reclaim gives back, takes the rest.
        file = stack.enter_context(small(place.folder("tmpfs"), "64M"))
        words = ["dd", "if=/dev/zero", f"of={file}/filler", "bs=1M", "oflag=append", "conv=notrunc"]
        for _ in range(24):
            if group.usage() > 88 * MIB:
                break
            subprocess.run([*group.prefix, *words, "count=1"], capture_output=True, check=False)
            time.sleep(0.2)
        place.say(f"the donor's cgroup has {group.usage() >> 20} of 96 MiB")
        time.sleep(8)
        cells = [victim.judge() for victim in victims]
        killed = group.kills()
        cells.append(Cell("processes killed in the donor's cgroup", killed, killed == 0))
        return cells


def pager_pressure(place: Place) -> list[Cell]:
    """Each victim's cgroup is at its limit: every page has to be taken from a file's pages."""
    with contextlib.ExitStack() as stack:
        donors = []
        keys = None
        victims = []
        groups = []
        big = place.scratch / "big"
        with big.open("wb") as file:
            for _ in range(48):
                file.write(os.urandom(MIB))
        for way in WAYS:
            donor = donor_in(place.folder(f"d-{way}"), way=way, keys=keys)
            keys = donor.keys
            donors.append(stack.enter_context(donor))
            group = stack.enter_context(Cgroup(way))
            folder = place.folder(f"v-{way}")
            config = libdcm_config(folder, [(donor, way)])
            victim = Victim(f"{way} libdcm", f"dcm:{config}", folder, prefix=group.prefix,
                            nap_us=2000)  # fmt: skip
            groups.append(group)
            victims.append(stack.enter_context(victim))
        for victim in victims:
            victim.ready()
        time.sleep(2)
        for group in groups:
            group.limit(group.usage() + 4 * MIB)
            words = ["sh", "-c", f"while :; do cat {big} >/dev/null; done"]
            reader = subprocess.Popen([*group.prefix, *words], start_new_session=True)
            stack.callback(reader.wait)
            stack.callback(os.killpg, reader.pid, signal.SIGKILL)
        place.say("at the limits")
        time.sleep(8 if place.quick else 20)
        cells = [victim.judge() for victim in victims]
        killed = sum(group.kills() for group in groups)
        return cells + [Cell("processes killed", killed, killed == 0)]


# ---- in L1, where all memory and the kernel's settings are ours ----


def spare(pids: Sequence[int]) -> None:
    """The kernel ends others for want of memory."""
    for pid in pids:
        Path(f"/proc/{pid}/oom_score_adj").write_text("-1000")


def starved(place: Place, pager: str) -> list[Cell]:
    """All memory of the machine is taken, again and again, while victims of that pager page."""
    seconds = 20.0
    with contextlib.ExitStack() as stack:
        # The donors are on the victims' machine, and not what is tried: with head room to keep
        # they would ask for slabs that no victim has room for, and in the end take them.
        made = stack.enter_context(
            rig(place, OVER_TCP, mib=16, pagers=(pager,), options={"head-room": 0})
        )
        pids = [donor.pid for donor in made.donors.values()]
        pids += [v.process.pid for v in made.victims if v.process]
        if made.dcmfs is not None and made.dcmfs.process is not None:
            pids.append(made.dcmfs.process.pid)
        spare([*pids, os.getpid(), os.getppid()])
        hog = subprocess.Popen(["python3", "-IS", str(HOG), "0.1"], start_new_session=True)
        stack.callback(hog.wait)
        stack.callback(os.killpg, hog.pid, signal.SIGKILL)
        before = kills()
        deadline = time.monotonic() + 120
        while kills() == before and time.monotonic() < deadline:
            time.sleep(0.5)
        place.say(f"no memory is left, for {seconds:.0f} s")
        time.sleep(seconds)
        count = kills() - before
        os.killpg(hog.pid, signal.SIGKILL)
        cells = made.judge(f"; {count} times without memory")
        if not count:
            cells.append(unknown("all", "memory was never used up"))
        return cells


def kills() -> int:
    """How often the kernel has ended a process for want of memory."""
    text = Path("/proc/vmstat").read_text()
    return int(text.split("oom_kill ")[1].split()[0])


def pager_starved(place: Place) -> list[Cell]:
    return starved(place, "libdcm")


def kernel_starved(place: Place) -> list[Cell]:
    return starved(place, "dcmfs")


# Donors are without CAP_SYS_ADMIN, whose processes have a reserve.
ORDINARY = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--"]
# How much memory victims get, and how long they are refused more. They want only twice as much:
# each of their pages goes to a donor and comes back, at an emulated processor's pace.
LEFT_MIB = 24
REFUSED_S = 5.0


def refused(donors: Sequence[Donor]) -> bool:
    """Has one of them found no memory for a slab?"""
    text = "no memory for a slab"
    return any(text in donor.log.read_text(errors="replace") for donor in donors)


def overcommit(place: Place) -> list[Cell]:
    """vm.overcommit_memory=2: donors can't have pages for slabs that they have lent."""
    names = ("overcommit_memory", "overcommit_kbytes", "admin_reserve_kbytes")
    knobs = {name: Path(f"/proc/sys/vm/{name}") for name in names}
    before = {name: path.read_text() for name, path in knobs.items()}
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(rig(place, OVER_TCP, prefix=ORDINARY))
        assert made.dcmfs is not None
        more = []
        for label, donor in made.donors.items():
            path = f"file:{made.dcmfs.file(donor)}-more"
            victim = Victim(f"{label} dcmfs, more", path, place.folder(f"m{donor.folder.name}"),
                            mib=LEFT_MIB, threads=1)  # fmt: skip
            more.append(victim)

        def restore() -> None:
            for name in names:
                if name != "overcommit_kbytes":  # which can't be made what it was, a ratio
                    knobs[name].write_text(before[name])

        stack.callback(restore)
        committed = int(Path("/proc/meminfo").read_text().split("Committed_AS:")[1].split()[0])
        # The rest of L1 has something in reserve.
        knobs["admin_reserve_kbytes"].write_text(str(128 << 10))
        knobs["overcommit_kbytes"].write_text(str(committed + ((128 + LEFT_MIB) << 10)))
        knobs["overcommit_memory"].write_text("2")
        place.say(f"no more than {LEFT_MIB} MiB may be had")
        for victim in more:
            stack.enter_context(victim)
        donors = list(made.donors.values())
        deadline = time.monotonic() + 60
        while not refused(donors) and time.monotonic() < deadline:
            time.sleep(0.2)
        tried = refused(donors)
        time.sleep(REFUSED_S if tried else 0)
        dead = [
            label
            for label, donor in made.donors.items()
            if donor.process is not None and donor.process.poll() is not None
        ]
        restore()
        place.say("all may be had again")
        cells = made.judge()
        if not tried:
            cells.append(unknown("all", "no donor ever found no memory for a slab"))
        for victim in more:
            try:
                cells.append(victim.ready().judge())
            except (CannotRun, TimeoutError) as err:
                cells.append(unknown(victim.name, str(err)))
        cells.append(Cell("donors that died", len(dead), not dead, " ".join(dead)))
        return cells
