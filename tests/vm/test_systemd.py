# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemons as services: what `make install` lays out, under Debian's systemd, in L1.

As docs/kernel-pager.md has it, step by step, on this host or over RDMA.

systemd runs on the stock guest's disk, in namespaces of its own, so that the sandbox of each unit
is the real one. Its kernel is L1's, which has dcmfs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.framework.donor import new_key
from tests.framework.paths import BUILD, TOP
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.job import Job, Ran
from tests.vm.conftest import NewBed
from tests.vm.rdma import ADDRESS, rxe
from tests.vm.host import MODULE, MOUNT, TOOL, VERBS, until
from tests.vm.host import built as built

ROOT = "/systemd/root"
STAGE = BUILD / "test" / "systemd-stage"
BOOT = f"""
mkdir -p /systemd/disk /systemd/changes {ROOT}
mount -o ro /run/disk/guest-root.img /systemd/disk
mount -t tmpfs changes /systemd/changes
mkdir /systemd/changes/up /systemd/changes/work
mount -t overlay -o lowerdir=/systemd/disk,upperdir=/systemd/changes/up \
	-o workdir=/systemd/changes/work root {ROOT}
tar -x -C {ROOT} --keep-directory-symlink -f /tmp/stage.tar
# What Debian's packages would bring; L1 has them.
for file in $(ldd {ROOT}/usr/sbin/dcm-* | awk '$3 {{print $3}}'); do
	[ -e {ROOT}$file ] || cp -L $file {ROOT}$file
done
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup
"""
START = f"""
mount -t sysfs sysfs {ROOT}/sys
mount -t cgroup2 cgroup {ROOT}/sys/fs/cgroup
mount --rbind /dev {ROOT}/dev
mount -t tmpfs run {ROOT}/run
exec env container=test chroot {ROOT} /lib/systemd/systemd --unit=sysinit.target --show-status=0
"""
DONOR = """[donor]
unix = /run/kvm-dcm/donor.sock
keys = /etc/kvm-dcm/keys
capacity = 64M
head-room = 16M
slab-size = 2M
[http]
listen = 127.0.0.1:9100
"""
# In docs/kernel-pager.md, but for the address and the size.
FAR_DONOR = f"""[donor]
listen = {ADDRESS}:9740
keys = /etc/kvm-dcm/keys
capacity = 64M
head-room = 16M
slab-size = 2M
data-encryption = no
rdma = yes
[http]
listen = 127.0.0.1:9100
"""
FAR_HOST = f"""[host]
data-encryption = no
transport = verbs
[key]
file = /etc/kvm-dcm/keys
[donor far]
address = tcp:{ADDRESS}:9740
"""
HOST = """[key]
file = /etc/kvm-dcm/keys
[donor near]
address = unix:/run/kvm-dcm/donor.sock
"""
# A runtime on libdcm, its heap twice its budget.
RUNTIME = HOST.replace("[key]", "[vm]\nname = lists\nbudget = 4M\nsize = 16M\n[key]\ntenant = lab")
LISTS = BUILD / "test" / "systemd-lists"


class Machine:
    """Debian with systemd in L1, and the project installed."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        bed.must("ip link set lo up; modprobe -a overlay tls")
        bed.insmod(MODULE)
        bed.put(STAGE.with_suffix(".tar"), "/tmp/stage.tar")
        bed.must(BOOT, 120)
        # In a cgroup of its own, which is then the root of all that it sees.
        bed.must("mkdir /sys/fs/cgroup/systemd")
        inside = ["unshare", "-pmfCi", f"--mount-proc={ROOT}/proc", "sh", "-e", "-c", START]
        join = 'echo $$ >/sys/fs/cgroup/systemd/cgroup.procs; exec "$@"'
        self.job: Job = bed.spawn(["sh", "-c", join, "-", *inside])
        until(lambda: self.run("true").rc == 0, "systemd is there")
        # It waits there: each question costs the emulated processor what the start needs.
        ask = "systemctl is-system-running --wait"
        until(lambda: "running" in self.run(ask, 120).stdout, self.log, 120)

    def run(self, command: str, timeout: float = 60) -> Ran:
        find = f"pgrep -P {self.job.pid} -f unit=sysinit.target"
        enter = f'nsenter -t $({find} || echo 0) -m -p -C -i -r -w sh -c "$0"'
        return self.bed.run(["sh", "-c", enter, command], timeout)

    def must(self, command: str, timeout: float = 60) -> str:
        ran = self.run(command, timeout)
        assert ran.rc == 0, f"{command}: {ran}\n{self.log()}"
        return ran.stdout

    def log(self, unit: str = "dcm-*") -> str:
        return self.run(f"journalctl --no-pager -o short-monotonic -u '{unit}'").stdout

    def said(self, unit: str, text: str, times: int) -> bool:
        """Or memory was lost, and there is nothing to wait for."""
        log = self.log(unit)
        return log.count(text) >= times or ") is lost: " in log

    def configure(self, **files: str) -> None:
        """In /etc/kvm-dcm, by name, with a key for the donor and its hosts."""
        for name, text in {"keys": f"lab:{new_key()}\n", **files}.items():
            self.bed.put(text.encode(), f"{ROOT}/etc/kvm-dcm/{name}", 0o600)
        self.must("systemd-sysusers; getent passwd dcm-donor")
        self.must("chown -R dcm-donor: /etc/kvm-dcm")

    def start_unit(self, unit: str) -> None:
        self.must(f"systemd-analyze --man=no verify /usr/lib/systemd/system/{unit}.service")
        self.must(f"systemctl start {unit}", 120)
        assert self.show(unit, "SubState") == "running"

    def start(self, donor: str, host: str) -> None:
        """Both configured, then started, with a file system between them."""
        self.configure(**{"donor.conf": donor, "hostd.conf": host})
        options = "extent=2M,budget=12M,on-loss=sigbus"
        self.must(f"mkdir -p {MOUNT}; mount -t dcmfs -o {options} dcm {MOUNT}")
        for unit in ("dcm-donord", "dcm-hostd"):
            self.start_unit(unit)
        self.bed.put(TOOL, f"{ROOT}/usr/bin/dcmfs_test", 0o755)

    def stop(self) -> None:
        """The last VM has gone: nothing is lent, and all can stop."""
        self.stop_unit("dcm-hostd")
        self.stop_unit("dcm-donord")
        self.end()

    def end(self) -> None:
        """Both daemons are stopped."""
        self.must(f"umount {MOUNT}")
        self.job.end()

    def stop_unit(self, unit: str) -> None:
        until(lambda: not self.lent(), self.log)
        self.must(f"systemctl stop {unit}", 120)
        assert self.show(unit, "Result") == "success"

    def show(self, unit: str, what: str) -> str:
        return self.must(f"systemctl show -P {what} {unit}").strip()

    def status(self, pid: str) -> dict[str, str]:
        """What /proc says of a process; nothing of one that is gone."""
        text = self.run(f"cat /proc/{pid}/status").stdout
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def donor(self) -> dict[str, Any]:
        return self.bed.status(9100)

    def lent(self) -> int:
        return int(self.donor()["memory"]["used_bytes"])


@pytest.fixture(scope="module", autouse=True)
def built_lists() -> None:
    """The example for authors of runtimes, beside libdcm."""
    include = [f"-I{TOP / 'guest-virtio-gc' / part}" for part in ("lib", "include")]
    source = TOP / "guest-virtio-gc" / "examples" / "lists.c"
    libraries = [f"-L{BUILD / 'lib'}", "-lvgc", "-Wl,--no-as-needed", "-ldcm"]
    LISTS.parent.mkdir(parents=True, exist_ok=True)
    debug.make("cc", "-O1", *include, "-o", str(LISTS), str(source), *libraries)


@pytest.fixture
def machine(new_bed: NewBed) -> Iterator[Machine]:
    subprocess.run(["rm", "-rf", STAGE], check=True)
    done = subprocess.run(
        ["make", "install", "PREFIX=/usr", f"DESTDIR={STAGE}", f"BUILD={BUILD}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    owned = ["--owner=0", "--group=0", "-C", str(STAGE)]
    subprocess.run(["tar", "-cf", STAGE.with_suffix(".tar"), *owned, "."], check=True)
    yield Machine(new_bed(kvm=False, memory_mib=1024))


@pytest.mark.timeout(900)
def test_the_daemons_are_services(machine: Machine) -> None:
    """They start, serve, start again when killed or told to, and stop; nothing is lost."""
    m = machine
    m.start(DONOR, HOST)
    m.must(f"systemd-run -q --unit=vm dcmfs_test use {MOUNT}/vm 32 2 7 /run/stop")
    until(lambda: m.lent() > 0 and "using" in m.log("vm"), m.log)
    first = m.show("dcm-hostd", "MainPID")
    m.must("systemctl reload dcm-hostd")
    until(lambda: "reached again, nothing lost" in m.log("dcm-hostd"), m.log)
    assert m.show("dcm-hostd", "MainPID") == first
    m.must("systemctl kill -s KILL dcm-hostd")
    until(lambda: m.log("dcm-hostd").count("going on with") == 2, m.log)
    assert m.show("dcm-hostd", "MainPID") != first
    until(lambda: m.show("dcm-hostd", "SubState") == "running", m.log)
    until(lambda: m.log("dcm-hostd").count("donor near (unix") > 2, m.log)
    m.must("touch /run/stop")
    until(lambda: "pages right" in m.log("vm"), m.log)
    # A donor on this host waits 5 s, which are few in an emulated machine that others use as well.
    late = "did not come back" in m.log("dcm-donord")
    assert (", 0 lost" in m.log("vm")) != late, m.log()
    assert (") lost: " in m.log("dcm-hostd")) == late, m.log()
    m.must(f"rm {MOUNT}/vm")
    assert m.show("dcm-hostd", "NRestarts") == "1" and m.show("dcm-donord", "NRestarts") == "0"
    m.stop()
    m.bed.rmmod("kvm_dcm")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_donor_that_is_killed_keeps_its_memory(machine: Machine) -> None:
    """systemd keeps the descriptors of its slabs, and the next process goes on with them; a stop
    leaves none."""
    m = machine
    m.start(DONOR, HOST)
    donor_id = m.donor()["donor_id"]
    m.must(f"systemd-run -q --unit=vm dcmfs_test use {MOUNT}/vm 32 2 7 /run/stop")
    until(lambda: m.lent() > 0 and "using" in m.log("vm"), m.log)
    for n in range(1, 4):
        # of each slab, and of the state
        assert int(m.show("dcm-donord", "NFileDescriptorStore")) > 1
        m.must("systemctl kill -s KILL dcm-donord")
        until(partial(m.said, "dcm-donord", "going on after a restart", n), m.log)
        until(partial(m.said, "dcm-hostd", "reached again, nothing lost", n), m.log)
    assert m.donor()["donor_id"] == donor_id
    assert m.lent() > 0
    m.must("touch /run/stop")
    until(lambda: "pages right" in m.log("vm"), m.log)
    # A host waits 5 s, which are few in an emulated machine that others use as well.
    late = "nothing listens at its address" in m.log("dcm-hostd")
    assert (", 0 lost" in m.log("vm")) != late, m.log()
    m.must(f"rm {MOUNT}/vm")
    assert m.show("dcm-donord", "NRestarts") == "3"
    m.stop_unit("dcm-hostd")
    m.stop_unit("dcm-donord")
    assert m.show("dcm-donord", "NFileDescriptorStore") == "0"
    m.end()
    m.bed.rmmod("kvm_dcm")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_collects_in_the_donors_sandbox(machine: Machine) -> None:
    """A heap is traced and moved by a GC worker: within the unit's sandbox, and its own in that."""
    m = machine
    m.configure(**{"donor.conf": DONOR, "gc.ini": RUNTIME})
    m.start_unit("dcm-donord")
    m.bed.put(LISTS, f"{ROOT}/usr/bin/lists", 0o755)
    donor = m.show("dcm-donord", "MainPID")
    run = "systemd-run -q --unit=lists -E VGC_DEVICE=dcm:/etc/kvm-dcm/gc.ini"
    # again and again, until a worker was seen while it lived
    m.must(f"{run} sh -c 'until [ -e /run/seen ]; do lists; done'")
    unit, worker = m.status(donor), dict[str, str]()

    def seen() -> bool:
        for pid in re.findall(r"GC worker (\d+) starts", m.log("dcm-donord"))[-1:]:
            worker.update(m.status(pid))
        return bool(worker)

    until(seen, m.log)
    m.must("touch /run/seen")
    assert worker["Uid"] == unit["Uid"] and "0" not in worker["Uid"].split(), worker
    assert int(worker["CapEff"], 16) == int(worker["CapBnd"], 16) == 0, worker
    assert worker["NoNewPrivs"] == "1" and worker["Seccomp"] == "2", worker
    assert int(worker["Seccomp_filters"]) == int(unit["Seccomp_filters"]) + 1 > 1, worker
    until(lambda: m.run("systemctl is-active -q lists").rc != 0, m.log)
    said = m.log("lists")
    assert re.search(r"collected [1-9]\d* times by donors, .*; [1-9]\d* regions moved", said), said
    assert m.show("dcm-donord", "MainPID") == donor
    assert "GC worker ended" not in m.log("dcm-donord"), m.log("dcm-donord")
    m.stop_unit("dcm-donord")
    m.job.end()
    m.bed.rmmod("kvm_dcm")


@pytest.mark.rdma
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_daemons_over_rdma(machine: Machine) -> None:
    """With its drop-in the donor has RDMA in its sandbox; the kernel pager reaches it so."""
    m = machine
    rxe(m.bed)
    m.bed.modprobe("rdma_cm")
    m.bed.insmod(VERBS)
    # Files that libibverbs loads by itself.
    for folder in ("/usr/lib/x86_64-linux-gnu/libibverbs", "/etc/libibverbs.d"):
        m.bed.must(f"mkdir -p {ROOT}{folder}; cp -L {folder}/* {ROOT}{folder}/")
    m.must(
        "mkdir -p /etc/systemd/system/dcm-donord.service.d; "
        "cp /usr/share/doc/kvm-dcm/dcm-donord-rdma.conf "
        "/etc/systemd/system/dcm-donord.service.d/rdma.conf; systemctl daemon-reload"
    )
    m.start(FAR_DONOR, FAR_HOST)
    m.must(f"systemd-run -q --unit=vm dcmfs_test use {MOUNT}/vm 32 2 7 /run/stop")
    until(lambda: m.lent() > 0 and "using" in m.log("vm"), m.log)
    assert "reached by RDMA" in m.log("dcm-hostd"), m.log()
    m.must("touch /run/stop")
    until(lambda: "pages right, 0 lost" in m.log("vm"), m.log)
    m.must(f"rm {MOUNT}/vm")
    m.stop()
    m.bed.rmmod("kvm_dcm_verbs")
    m.bed.rmmod("kvm_dcm")
