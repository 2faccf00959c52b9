# SPDX-License-Identifier: GPL-2.0-or-later
"""A host in L1: donors, dcmfs, dcm-hostd between them, and a program that uses a file.

Donors lend over UNIX sockets (shared memory), over TCP, encrypted or plain, or over RDMA (rxe);
dcm-hostd gives what they lend to the files on a dcmfs, and `dcmfs_test use` uses such a file and
compares every byte.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.framework.donor import new_key
from tests.framework.paths import BUILD
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.job import Job
from tests.vm.conftest import seed
from tests.vm.rdma import ADDRESS, rxe

MODULE = debug.MODULE
VERBS = MODULE.with_name("kvm-dcm-verbs.ko")
TOOL = BUILD / "tests-kernel" / "dcmfs_test"
MOUNT = "/mnt/dcm"
RUN = "/run/dcm"
MIB = 1 << 20
# Of emulated processors; nothing is judged by them.
LONG = 240.0 * debug.PATIENCE


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    debug.build_modules("6.12")
    debug.make("make", "-C", "tests/kernel", f"BUILD={BUILD}")
    debug.build_programs()


def until(what: Callable[[], object], why: str | Callable[[], str], timeout: float = LONG) -> None:
    deadline = time.monotonic() + timeout
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(f"not in {timeout:.0f} s: {why if isinstance(why, str) else why()}")
        time.sleep(0.3)


# How donors are reached, and what their and dcm-hostd's configurations say of it.
PLAIN = "data-encryption = no\n"
KINDS = {
    "unix": ("", ""),
    "tcp": ("", ""),
    "plain": (PLAIN, PLAIN),
    "verbs": (PLAIN + "rdma = yes\n", PLAIN + "transport = verbs\n"),
}
# dcm-hostd's settings for copies, which are made as fast as they can be.
COPIES = "redundancy = {}\nrebuild-rate = 0\n"
# A page that is written while a connection is being made again is on one donor, and lost if that
# one dies just then. With this the write waits for the connection. On a machine that is busy with
# other work connections break at any time.
NONE_THIN = "thin_after = 10000\n"
VERBS_HOST = pytest.param("verbs", marks=pytest.mark.rdma)
SLOW_VERBS = pytest.param("verbs", marks=[pytest.mark.rdma, pytest.mark.slow])


def slow(kind: str) -> Any:
    """That way to donors in `make test-all` only."""
    return pytest.param(kind, marks=pytest.mark.slow)


# Connections are given up when nothing comes for 5 s. An emulated machine, on processors that
# others use too, may not run them for that long: so programs that use memory must not delay them.
FIRST = ["nice", "-n", "-15"]


class Donor:
    """A dcm-donord in L1."""

    def __init__(
        self, bed: Bed, name: str, port: int, capacity: str, slab: str, kind: str, more: str = ""
    ) -> None:
        self.bed, self.name, self.port = bed, name, port
        self.address = f"unix:{RUN}/{name}.sock"
        ip = ADDRESS if kind == "verbs" else "127.0.0.1"
        if kind != "unix":
            self.address = f"tcp:{ip}:{port + 1}"
        config = (
            f"[donor]\nlisten = {ip}:{port + 1}\nunix = {RUN}/{name}.sock\n"
            f"keys = {RUN}/keys\ncapacity = {capacity}\nhead-room = 16M\nslab-size = {slab}\n"
            f"spare-slabs = 0\ndrain-timeout = {LONG:.0f}s\n{KINDS[kind][0]}{more}"
            f"[http]\nlisten = 127.0.0.1:{port}\n"
        )
        path = bed.put(config.encode(), f"{RUN}/{name}.conf", 0o600)
        self.job: Job = bed.spawn([*FIRST, "/tmp/dcm-donord", "--config", path])
        until(lambda: self.said("lending up to"), f"donor {name} is up")

    def said(self, pattern: str) -> bool:
        output = self.job.output()
        assert output.rc in (-1, 0), f"donor {self.name}: {output}"
        return re.search(pattern, output.stderr) is not None

    def status(self) -> dict[str, Any]:
        """Empty if it has ended, perhaps just now."""
        if self.job.poll() is not None:
            return {}
        try:
            return self.bed.status(self.port)
        except ConnectionError:
            self.job.wait(60)
            return {}

    def used(self) -> int:
        """Bytes that are lent; none any more by one that has ended."""
        status = self.status()
        return int(status["memory"]["used_bytes"]) if status else 0


class Host:
    """An L1 with dcmfs mounted, two donors and dcm-hostd."""

    def __init__(
        self,
        bed: Bed,
        kind: str = "unix",
        *,
        slab: str = "2M",
        budget: str = "24M",
        capacity: str = "128M",
        jitter: str = "",
        patience: str = "60s",
        names: str = "near next",
        settings: str = "",
        tunables: str = "",
        files: str = "",
        donors: str = "",
        seal: str = "",
    ) -> None:
        self.bed, self.kind = bed, kind
        debug.at_work(bed)
        bed.must("ip link set lo up")
        bed.insmod(debug.JITTER if jitter else MODULE, *jitter.split())
        if kind == "verbs":
            rxe(bed)
            bed.modprobe("rdma_cm")
            bed.insmod(VERBS)
        bed.put(TOOL, "/tmp/dcmfs_test", 0o755)
        for name in ("dcm-donord", "dcm-hostd"):
            bed.put(debug.PROGRAMS / name, f"/tmp/{name}", 0o755)
        bed.put(f"test:{new_key()}\n".encode(), f"{RUN}/keys", 0o600)
        bed.must(["mkdir", "-p", MOUNT])
        options = f"extent={slab},budget={budget},on-loss=sigbus"
        bed.must(["mount", "-t", "dcmfs", "-o", options, "dcm", MOUNT])
        self.donors = [
            Donor(bed, name, 9100 + 100 * i, capacity, slab, kind, donors)
            for i, name in enumerate(names.split())
        ]
        if files:
            bed.must(["mkdir", "-p", f"{RUN}/slabs"])
            more = f"medium = file\npath = {RUN}/slabs\n"
            port = 9100 + 100 * len(self.donors)
            self.donors.append(Donor(bed, files, port, capacity, slab, kind, more))
        reached = KINDS[kind][1]
        if seal:
            # nothing is to go plain, and pages that are sealed do not
            reached = f"seal = {seal}\n" + reached.removeprefix(PLAIN)
        config = f"[host]\nmount = {MOUNT}\npatience = {patience}\n{settings}{reached}"
        config += f"[key]\nfile = {RUN}/keys\n[tunables]\n{tunables}"
        for donor in self.donors:
            config += f"[donor {donor.name}]\naddress = {donor.address}\n"
        self.config = bed.put(config.encode(), f"{RUN}/hostd.conf", 0o600)
        self.job: Job = bed.spawn([*FIRST, "/tmp/dcm-hostd", "--config", self.config])
        until(lambda: self.said(f"{MOUNT}: files there are served"), "dcm-hostd is up")

    def reconfigure(self, was: str, now: str) -> None:
        """Change dcm-hostd's file; it does not know of that before SIGHUP."""
        text = self.bed.must(["cat", self.config])
        assert text.count(was) == 1, text
        self.bed.put(text.replace(was, now).encode(), self.config, 0o600)

    def log(self) -> str:
        output = self.job.output()
        return output.stderr

    def said(self, pattern: str) -> bool:
        assert self.job.poll() in (None, 0, 1), f"dcm-hostd: {self.job.output()}"
        return re.search(pattern, self.log()) is not None

    def files(self) -> dict[str, Any]:
        """dcm-hostd's status of its files, by their paths."""
        status = self.bed.connect("/run/dcm-hostd/status.sock")
        data = b""
        while part := status.recv(1 << 16):
            data += part
        status.close()
        return {file["path"]: file for file in json.loads(data)["files"]}

    def counter(self, name: str) -> int:
        text = self.bed.must("cat /sys/kernel/debug/kvm-dcm/*/stats")
        found = re.search(rf"^{name} (\d+)$", text, re.M)
        assert found, text
        return int(found[1])

    def lost_pages(self) -> dict[str, int]:
        """Pages that it has told to be lost, of each donor."""
        pages: dict[str, int] = {}
        for donor, kib in re.findall(r"donor (\w+) \(.*\) lost: (\d+) KiB of ", self.log()):
            pages[donor] = pages.get(donor, 0) + int(kib) // 4
        return pages

    def close(self) -> None:
        """dcm-hostd ends, then the donors, with nothing left to lend; then the module goes."""
        self.job.signal(signal.SIGTERM)
        assert self.job.wait(60) == 0, self.job.output()
        for donor in self.donors:
            if donor.job.poll() is None:
                donor.job.signal(signal.SIGTERM)
                assert donor.job.wait(60) == 0, donor.job.output()
        self.bed.must(["umount", MOUNT], 60)
        if self.kind == "verbs":
            self.bed.rmmod("kvm_dcm_verbs")
        self.bed.rmmod("kvm_dcm")
        debug.no_leaks(self.bed)


class Use:
    """Processes that use a file, and know what must be in it."""

    def __init__(self, host: Host, mib: int, name: str = "vm") -> None:
        self.host = host
        self.path, self.stop = f"{MOUNT}/{name}", f"{RUN}/{name}.stop"
        self.job: Job = host.bed.spawn(
            ["/tmp/dcmfs_test", "use", self.path, str(mib), "3", seed(), self.stop]
        )
        until(self.is_using, "all is written once")

    def is_using(self) -> bool:
        output = self.job.output()
        assert output.rc == -1, f"{output}\n{self.host.log()}"
        return "using" in output.stdout

    def end(self) -> tuple[int, int]:
        """Pages found right, and lost."""
        self.host.bed.must(["touch", self.stop])
        status = self.job.wait(LONG)
        output = self.job.output()
        assert status == 0, f"{output}\n{self.host.log()}"
        found = re.search(r"use: (\d+) pages right, (\d+) lost", output.stdout)
        assert found, output
        return int(found[1]), int(found[2])
