# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of a stock libvirt on donor memory: `dcmctl vm`, the hook, real KVM.

libvirtd and QEMU are Debian's, on a disk of their own (scripts/libvirt-image) that L1 changes root
to; kernel, dcmfs, dcm-hostd and donors are L1's. The guest is the stock one of the other tests.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import new_key
from tests.framework.paths import BUILD, TOP
from tests.guest import workload
from tests.guest.vmharness import GuestError
from tests.vm.bed import Bed
from tests.vm.job import Job, Ran
from tests.vm.conftest import LOGS, NewBed
from tests.framework.emulator import QUICK
from tests.vm.l2 import L2
from tests.vm.host import MIB, MOUNT, Donor, Host, until
from tests.vm.host import built as built

ROOT = "/libvirt/root"
STAGE = BUILD / "test" / "libvirt-stage"
UUID = "3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001"
RAM = f"{MOUNT}/libvirt/libvirt-{UUID}"
NAME = "web1"

BOOT = f"""
mkdir -p /libvirt/disk /libvirt/changes {ROOT}
mount -o ro /run/disk/libvirt /libvirt/disk
mount -t tmpfs changes /libvirt/changes
mkdir /libvirt/changes/up /libvirt/changes/work
mount -t overlay -o lowerdir=/libvirt/disk,upperdir=/libvirt/changes/up \
	-o workdir=/libvirt/changes/work root {ROOT}
tar -x -C {ROOT} --keep-directory-symlink -f /tmp/stage.tar
for dir in dev proc sys; do mount --rbind /$dir {ROOT}/$dir; done
mount -t tmpfs run {ROOT}/run
mkdir -p {ROOT}{MOUNT} {ROOT}/run/dcm-hostd {ROOT}/run/dcm {ROOT}/run/lock {ROOT}/run/guest
chmod 777 {ROOT}/run/guest
mount --bind {MOUNT} {ROOT}{MOUNT}
mount --bind /run/dcm-hostd {ROOT}/run/dcm-hostd
mount --bind /run/dcm {ROOT}/run/dcm
"""
PIVOT = f"""
mount --rbind {ROOT} {ROOT}
cd {ROOT}
pivot_root . media
umount -l /media
exec "$@"
"""
DOMAIN = """<domain type='kvm'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>{mib}</memory>
  <vcpu placement='static' cpuset='1-2'>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/run/guest/vmlinuz</kernel>
    <initrd>/run/guest/initrd.img</initrd>
    <cmdline>{append}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='host-passthrough'/>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/run/guest/changes.qcow2'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/run/guest/payload.tar'/>
      <target dev='vdb' bus='virtio'/>
      <readonly/>
    </disk>
    <controller type='usb' model='none'/>
    <rng model='virtio'><backend model='builtin'/></rng>
    <serial type='file'><source path='/run/guest/console.log'/><target port='0'/></serial>
    <serial type='unix'>
      <source mode='bind' path='/run/guest/shell'/><target port='1'/>
    </serial>
    <memballoon model='virtio'/>
  </devices>
</domain>
"""
APPEND = (
    "root=/dev/vda rw console=ttyS0 panic=-1 systemd.debug_shell=ttyS1 "
    "rcupdate.rcu_cpu_stall_timeout=60 watchdog_thresh=60 "
    f"systemd.unit=local-fs.target systemd.show_status=0 loglevel=5 {QUICK}"
)


ENABLE = ("dcmctl", "vm", "enable", NAME, "--direct")


def libvirt_disk() -> Path:
    done = subprocess.run(
        [str(TOP / "scripts" / "libvirt-image")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


class Libvirt:
    """An L1 whose VMs are libvirt's, and the project installed there."""

    run_folder = "/run/libvirt/qemu"

    def __init__(self, bed: Bed, **host: str) -> None:
        self.bed = bed
        self.host = Host(bed, **host)
        bed.must("modprobe -a overlay tls")
        bed.put(STAGE.with_suffix(".tar"), "/tmp/stage.tar")
        bed.must(BOOT, 120)
        bed.must(["mkdir", "-p", f"{ROOT}/etc/kvm-dcm"])
        bed.must(["ln", "-s", self.host.config, f"{ROOT}/etc/kvm-dcm/hostd.conf"])
        self._disks()
        self.daemons: dict[str, Job] = {}
        self._begin()

    def _begin(self) -> None:
        self.start_daemon("virtlogd")
        self.start_daemon("libvirtd")
        until(lambda: self.virsh("version").rc == 0, self.log)

    def _disks(self) -> None:
        """The guest's, with its changes in a file; made here, as the VM has no qemu-img."""
        bed = self.bed
        for name in ("vmlinuz", "initrd.img"):
            bed.must(["cp", f"/run/disk/guest-{name}", f"{ROOT}/run/guest/{name}"], 120)
        disk = bed.must(["readlink", "-f", "/run/disk/guest-root.img"]).strip()
        size = int(bed.must(["blockdev", "--getsize64", disk]))
        file = STAGE.with_name("changes.qcow2")
        command = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", disk]
        subprocess.run([*command, str(file), str(size)], check=True)
        self.changes = file
        tarball = STAGE.with_name("payload.tar")
        with tarfile.open(tarball, "w") as tar:
            for path in workload.PAYLOAD:
                tar.add(path, arcname=path.name)
        bed.put(tarball, f"{ROOT}/run/guest/payload.tar")

    def start_daemon(self, name: str) -> None:
        """On the processors that KVM may run on; it makes a /dev of QEMU's own, so no chroot."""
        command = ["unshare", "-m", "sh", "-ec", PIVOT, "-", f"/usr/sbin/{name}"]
        self.daemons[name] = self.bed.spawn(self.bed.with_kvm(command))
        # As udev has it. Without, libvirt looks at QEMU's abilities again and again.
        self.bed.must(["chroot", ROOT, "sh", "-c", "chgrp kvm /dev/kvm && chmod 660 /dev/kvm"])

    def restart(self, name: str) -> None:
        self.daemons[name].end()
        self.start_daemon(name)
        until(lambda: self.virsh("version").rc == 0, self.log)

    def run(self, *words: str, timeout: float = 120) -> Ran:
        return self.bed.run(["chroot", ROOT, "env", "LC_ALL=C.UTF-8", *words], timeout)

    def virsh(self, *words: str, timeout: float = 120) -> Ran:
        return self.run("virsh", "-q", *words, timeout=timeout)

    def must(self, *words: str, timeout: float = 120) -> str:
        ran = self.run(*words, timeout=timeout)
        assert ran.rc == 0, f"{words}: {ran}\n{self.log()}"
        return ran.stdout

    def log(self) -> str:
        said = [job.output().stderr[-3000:] for job in self.daemons.values()]
        qemu = self.bed.run(f"tail -n 20 {ROOT}/var/log/libvirt/qemu/*.log").stdout
        return "\n".join([*said, qemu, self.host.log()[-3000:]])

    def define(self, mib: int = 256, name: str = NAME, uuid: str = UUID) -> None:
        text = DOMAIN.format(name=name, uuid=uuid, mib=mib, append=APPEND)
        self.bed.put(text.encode(), f"{ROOT}/run/{name}.xml")
        self.must("virsh", "-q", "define", f"/run/{name}.xml")

    def refused(self, name: str = NAME) -> str:
        """Why a start is refused, as virsh shows it."""
        ran = self.virsh("start", name)
        assert ran.rc != 0, f"it has started: {ran}"
        return ran.stderr

    def end(self) -> None:
        """They have mounts of their own, which keep the module."""
        for job in self.daemons.values():
            job.end()
        self.daemons.clear()

    def close(self) -> None:
        """All ends, with nothing left to lend; the module goes."""
        self.end()
        self.bed.must(f"umount {ROOT}{MOUNT} {ROOT}/run/dcm")
        self.host.close()


class Session(Libvirt):
    """The same for a user, whose libvirtd is started by asking it: no module, no root."""

    pids = f"{ROOT}/run/user/1000/libvirt"
    run_folder = "/run/user/1000/libvirt/qemu/run"

    def _begin(self) -> None:
        bed, host = self.bed, self.host
        made = ["chroot", ROOT, "sh", "-ec"]
        bed.must([*made, "useradd -m -u 1000 lab; usermod -aG kvm lab"])
        bed.must([*made, "mkdir -p /run/user/1000 /home/lab/.config/kvm-dcm"])
        # as udev has them, once there is KVM
        bed.with_kvm([])
        for name in ("kvm", "userfaultfd"):
            bed.must([*made, f"chgrp kvm /dev/{name}; chmod 660 /dev/{name}"])
        bed.must("chmod o+r $(readlink -f /run/disk/guest-root.img)")
        folder = f"{ROOT}/home/lab/.config/kvm-dcm"
        bed.put(bed.get("/run/dcm/keys"), f"{folder}/keys", 0o600)
        conf = "[key]\nfile = keys\n"
        for donor in host.donors:
            conf += f"[donor {donor.name}]\naddress = {donor.address}\n"
        bed.put(f"{conf}group = rack1\n".encode(), f"{folder}/host.conf")
        bed.must([*made, "chown -R lab:lab /home/lab /run/user/1000 /run/guest"])

    def run(self, *words: str, timeout: float = 120) -> Ran:
        user = ["setpriv", "--reuid=lab", "--regid=lab", "--init-groups", "env", "-i"]
        env = ["PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8", "HOME=/home/lab", "USER=lab"]
        env += ["XDG_RUNTIME_DIR=/run/user/1000", "LIBVIRT_DEFAULT_URI=qemu:///session"]
        # libvirtd inherits the environment if this command is the first to start it.
        return self.bed.run(
            self.bed.with_kvm(["chroot", ROOT, *user, *env, *words]), timeout
        )

    def log(self) -> str:
        qemu = self.bed.run(f"tail -n 20 {ROOT}/home/lab/.cache/libvirt/qemu/log/*.log").stdout
        return f"{qemu}\n{self.host.log()[-3000:]}"

    def end_daemon(self, name: str) -> None:
        """It would end by itself, in two minutes."""
        self.bed.must(f"kill $(cat {self.pids}/{name}.pid)")
        until(lambda: self.bed.run(["test", "-e", f"{self.pids}/{name}.pid"]).rc != 0, self.log)

    def end(self) -> None:
        for name in ("libvirtd", "virtlogd"):
            self.end_daemon(name)


class Domain(L2):
    """The stock guest, as libvirt's."""

    def __init__(self, libvirt: Libvirt, keep: Path) -> None:
        super().__init__(libvirt.bed, RAM, keep=keep)
        self.libvirt = libvirt
        self.far = f"{ROOT}/run/guest"

    def start(self) -> None:
        self.bed.put(self.libvirt.changes, f"{self.far}/changes.qcow2", 0o666)
        self._started = time.monotonic()
        self.libvirt.must("virsh", "-q", "start", NAME, timeout=300)
        self._shell = self._connect("shell")

    @property
    def pid(self) -> int:
        return int(self.bed.must(["cat", f"{ROOT}{self.libvirt.run_folder}/{NAME}.pid"]))

    def state(self) -> str:
        return self.libvirt.virsh("domstate", NAME).stdout.strip()

    def running(self) -> bool:
        return self.state() == "running"

    def _check_alive(self) -> None:
        if not self.running():
            raise GuestError(f"the domain is {self.state()}: {self.libvirt.log()}")

    def reconnect(self) -> None:
        """QEMU is another process with the same guest: its shell is at the same place."""
        assert self._shell is not None
        self._shell.close()
        self._pending = b""
        self._shell = self._connect("shell")

    def destroy(self) -> None:
        self.libvirt.must("virsh", "-q", "destroy", NAME, timeout=120)

    def _end(self) -> None:
        self.destroy()

    def close(self) -> None:
        try:
            if self._shell is not None and self.running():
                self._end()
            self.wrong = self.complaints()
        finally:
            if self._shell is not None:
                self._shell.close()
                self._shell = None
            if self.keep is not None:
                self.keep.mkdir(parents=True, exist_ok=True)
                (self.keep / "libvirt.log").write_text(self.libvirt.log())
                (self.keep / "console.log").write_text(self.kernel_log())
            shutil.rmtree(self._dir, ignore_errors=True)


@pytest.fixture(scope="module")
def stage() -> Path:
    subprocess.run(["rm", "-rf", STAGE], check=True)
    done = subprocess.run(
        ["make", "install", "install-libvirt", "PREFIX=/usr", f"DESTDIR={STAGE}", f"BUILD={BUILD}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    owned = ["--owner=0", "--group=0", "-C", str(STAGE)]
    subprocess.run(["tar", "-cf", STAGE.with_suffix(".tar"), *owned, "."], check=True)
    return STAGE


def libvirt_bed(new_bed: NewBed) -> Bed:
    disk = f"file={libvirt_disk()},format=raw,if=none,id=libvirt,readonly=on"
    extra = ("-drive", disk, "-device", "virtio-blk-pci,drive=libvirt,serial=libvirt")
    return new_bed(cpus=3, memory_mib=1792, extra=extra)


@pytest.fixture
def libvirt(new_bed: NewBed, stage: Path) -> Libvirt:
    return Libvirt(libvirt_bed(new_bed), slab="16M", budget="200M", capacity="320M")


@pytest.fixture
def users(new_bed: NewBed, stage: Path) -> Session:
    return Session(libvirt_bed(new_bed), kind="tcp", slab="16M", budget="200M", capacity="320M")


def listed(v: Libvirt) -> dict[str, Any]:
    entries = json.loads(v.must("dcmctl", "vm", "list", "--json"))
    return next(e for e in entries if e["name"] == NAME)


def sealed(v: Libvirt) -> bool:
    """Are the running domain's pages encrypted before they leave?"""
    return "its pages are encrypted before they leave" in v.must(
        "dcmctl", "vm", "redundancy", NAME
    )


def record(v: Libvirt) -> dict[str, Any]:
    return json.loads(v.bed.must(["cat", f"{ROOT}/run/kvm-dcm-libvirt/{UUID}.json"]))


def nothing_is_left(v: Libvirt) -> None:
    nothing_is_left_of(v, v.host.donors)


def nothing_is_left_of(v: Libvirt, donors: list[Donor]) -> None:
    """Of domains that do not run: no file, no memory of donors, nothing written down."""
    assert v.bed.must(f"find {MOUNT}/libvirt -type f") == ""
    assert v.bed.must(f"find {ROOT}/run/kvm-dcm-libvirt -name '*.json'") == ""
    until(lambda: not any(donor.used() for donor in donors), v.log)


def work(guest: Domain, job: workload.Job) -> None:
    ran = guest.sh(job.command, job.timeout * 3)
    assert ran.status == 0 and job.check(ran.output) == "", f"{job.name}: {ran}"
    print(f"{job.name}: done ({ran.seconds:.0f} s)", flush=True)


def is_copied(v: Libvirt) -> bool:
    """Each page that is not here is on two donors."""
    file = v.host.files()[record(v)["file"]]
    assert file["copies"] == 2
    return not (file["exposed_bytes"] or file["filling"] or file["wanted"])


def works(v: Libvirt, guest: Domain, lent: int, donors: list[str]) -> None:
    """Booted under KVM with 96 MiB here, it holds 90 that it will know again."""
    guest.wait_shell(600)
    print(f"the guest's shell is there after {guest.boot_seconds:.0f} s")
    assert guest.must("systemd-detect-virt", 60) == "kvm"
    work(guest, workload.hold(90))
    entry = listed(v)
    assert entry["state"] == "running" and entry["direct_bytes"] <= 96 * MIB
    assert entry["lent_bytes"] >= lent and entry["donors"] == donors


@pytest.mark.timeout(1800)
def test_a_domain_on_donors(libvirt: Libvirt) -> None:
    """Enabled, started, working, ended; libvirtd goes and comes meanwhile."""
    v = libvirt
    v.define()
    said = v.must(*ENABLE, "96M")
    assert "+    <source type='file'/>" in said and 'freePageReporting="on"' in said
    checked = v.must("dcmctl", "vm", "check", NAME)
    assert "FAIL" not in checked and "pass  donor next" in checked
    assert "its guest frees: reported" in checked
    with Domain(v, LOGS / "libvirt-domain") as guest:
        works(v, guest, 128 * MIB, ["near", "next"])
        assert record(v)["phase"] == "running"
        # libvirtd ends and is there again; QEMU goes on, and so does what is known of it.
        pid = guest.pid
        v.bed.must(["rm", f"{ROOT}/run/kvm-dcm-libvirt/{UUID}.json"])
        v.restart("libvirtd")
        assert (guest.state(), guest.pid) == ("running", pid)
        assert record(v)["phase"] == "running"
        # Another budget, now and for the next start.
        assert "budget 64M" in v.must("dcmctl", "vm", "budget", NAME, "64M")
        until(lambda: listed(v)["direct_bytes"] <= 64 * MIB, v.log)
        # Copies of its memory, which a donor's death then does not take.
        said = v.must("dcmctl", "vm", "redundancy", NAME, "replica:2")
        assert said.startswith(f"{NAME}: redundancy replica:2; "), said
        assert 'redundancy="replica:2"' in v.must("virsh", "dumpxml", "--inactive", NAME)
        time.sleep(3)  # dcm-hostd looks once a second
        until(lambda: is_copied(v), v.log)
        said = v.must("dcmctl", "vm", "redundancy", NAME)
        assert "nothing has fewer copies; at most " in said and "if near and next die" in said
        v.host.donors[0].job.signal(signal.SIGKILL)
        until(lambda: v.host.said("donor near .* is lost"), v.log)
        work(guest, workload.held(90))
        # Memory that the guest frees is discarded.
        guest.must("modprobe virtio_balloon", 60)
        discarded = v.host.counter("DISCARDED_PAGES")
        guest.must("sh work.sh unhold", 60)
        until(lambda: v.host.counter("DISCARDED_PAGES") > discarded + 5000, v.log)
        assert v.host.counter("FETCHED_PAGES") > 3000
        assert v.host.counter("LOST_PAGES") == v.host.counter("ILLEGAL") == 0
        guest.destroy()
    assert not guest.wrong
    nothing_is_left(v)
    v.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_domain_is_saved(libvirt: Libvirt) -> None:
    """On the donors of a group, which see no plain page; restored it goes on, disabled it is as
    before."""
    v = libvirt
    v.define()
    config = v.bed.must(["cat", v.host.config]) + "group = rack1\n"
    v.bed.put(config.encode(), v.host.config, 0o600)
    v.host.job.signal(signal.SIGHUP)
    v.must(*ENABLE, "64M", "--group", "rack1", "--seal", "yes")
    with Domain(v, LOGS / "libvirt-saved") as guest:
        assert listed(v)["budget_bytes"] == 64 * MIB
        v.must("dcmctl", "vm", "budget", NAME, "128M")
        guest.wait_shell(600)
        print(f"the guest's shell is there after {guest.boot_seconds:.0f} s")
        work(guest, workload.sort(50_000, 16))
        # Saved and restored: libvirt reads all memory, and QEMU writes it into a new file.
        work(guest, workload.hold(60))
        assert v.host.donors[1].used() and not v.host.donors[0].used()
        assert listed(v)["donors"] == ["next"]
        assert sealed(v)
        v.must("virsh", "-q", "managedsave", NAME, timeout=400)
        nothing_is_left(v)
        assert "saved state" in v.run("dcmctl", "vm", "disable", NAME).stderr
        print("saved", flush=True)
        v.must("virsh", "-q", "start", NAME, timeout=400)
        guest.reconnect()
        work(guest, workload.held(60))
        assert sealed(v)
    nothing_is_left(v)
    v.must("dcmctl", "vm", "disable", NAME)
    assert "kvm-dcm" not in v.must("virsh", "dumpxml", "--inactive", NAME)
    v.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_starts_that_are_refused(libvirt: Libvirt) -> None:
    """Each with its reason, which virsh shows; nothing is left, and other VMs start."""
    v, bed = libvirt, libvirt.bed
    v.define(mib=768)
    v.must(*ENABLE, "96M")
    said = v.refused()
    assert "donors have no room for the VM: it can need 768M in slabs of 16M" in said
    assert "near has 3" in said and "next has 3" in said
    nothing_is_left(v)

    v.define()
    v.must(*ENABLE, "96M", "--donor", "far")
    assert "needs donor far, which is not in" in v.refused()
    nothing_is_left(v)

    v.define()
    v.must(*ENABLE, "96M", "--donor", "next")
    donor = v.host.donors[1]
    donor.job.signal(signal.SIGTERM)
    assert donor.job.wait(60) == 0
    assert "needs donor next, which is connecting: " in v.refused()
    nothing_is_left_of(v, v.host.donors[:1])

    # Metadata that is not what it must be, as somebody may write it by hand.
    xml = v.must("virsh", "dumpxml", "--inactive", NAME)
    bed.put(xml.replace('direct="96M"', 'direct="a lot"').encode(), f"{ROOT}/run/{NAME}.xml")
    v.must("virsh", "-q", "define", f"/run/{NAME}.xml")
    assert "is not a size" in v.refused()

    # A key that the donors do not have.
    v.define()
    v.must(*ENABLE, "96M")
    key = bed.get("/run/dcm/keys")
    v.host.job.signal(signal.SIGTERM)
    assert v.host.job.wait(60) == 0
    assert "dcm-hostd does not run" in v.refused()
    bed.put(f"test:{new_key()}\n".encode(), "/run/dcm/keys", 0o600)
    v.host.job = bed.spawn(["/tmp/dcm-hostd", "--config", v.host.config])
    until(lambda: v.host.said("files there are served"), v.log)
    assert "the key or the tenant is not one it knows" in v.refused()
    v.host.job.signal(signal.SIGTERM)
    assert v.host.job.wait(60) == 0
    bed.put(key, "/run/dcm/keys", 0o600)
    nothing_is_left_of(v, v.host.donors[:1])

    # A VM that is none of ours is started whatever is missing.
    v.define(name="other", uuid=UUID.replace("0001", "0002"))
    bed.put(v.changes, f"{ROOT}/run/guest/changes.qcow2")
    v.must("virsh", "-q", "start", "other", "--paused", timeout=300)
    assert bed.must(f"find {MOUNT}/libvirt -type f") == ""
    v.must("virsh", "-q", "destroy", "other")

    # The call of the hook on a host that takes in a migration.
    hook = ["chroot", ROOT, "/etc/libvirt/hooks/qemu.d/50-kvm-dcm"]
    ran = bed.run([*hook, NAME, "migrate", "begin", "-"], stdin=xml.encode())
    assert ran.rc == 1 and ran.stdout == "" and "can't be migrated yet" in ran.stderr

    # No dcmfs, no module.
    v.host.job = bed.spawn(["/tmp/dcm-hostd", "--config", v.host.config])
    until(lambda: v.host.said("files there are served"), v.log)
    v.close()
    v.start_daemon("libvirtd")
    until(lambda: v.virsh("version").rc == 0, v.log)
    assert "kvm-dcm is not loaded" in v.refused()
    v.end()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_users_domain(users: Session) -> None:
    """qemu:///session: paged by libdcm, with no use of the module; and what refuses a start."""
    v, bed = users, users.bed
    state = f"{ROOT}/run/user/1000/kvm-dcm"
    v.define()
    assert "/usr/lib/kvm-dcm/dcm-qemu" in v.must(*ENABLE, "96M", "--group", "rack1")
    assert "FAIL" not in v.must("dcmctl", "vm", "check", NAME)
    with Domain(v, LOGS / "libvirt-session") as guest:
        works(v, guest, 64 * MIB, ["next"])
        # Its libvirtd ends, as it does when nothing asks it; QEMU goes on.
        pid = guest.pid
        bed.must(["rm", f"{state}/libvirt/{UUID}.json"])
        v.end_daemon("libvirtd")
        assert (guest.state(), guest.pid) == ("running", pid)
        until(lambda: bed.run(["test", "-e", f"{state}/libvirt/{UUID}.json"]).rc == 0, v.log)
        assert "budget 64M" in v.must("dcmctl", "vm", "budget", NAME, "64M")
        until(lambda: listed(v)["direct_bytes"] <= 64 * MIB, v.log)
        work(guest, workload.held(90))
        # Saved by QEMU's reading all of it, and restored.
        v.must("virsh", "-q", "managedsave", NAME, timeout=400)
        assert bed.must(f"find {state} -type f -o -type s") == ""
        v.must("virsh", "-q", "start", NAME, timeout=400)
        guest.reconnect()
        work(guest, workload.held(90))
        guest.destroy()
    assert not guest.wrong
    assert bed.must(f"find {state} -type f -o -type s") == ""
    until(lambda: not any(donor.used() for donor in v.host.donors), v.log)

    bed.must(["chmod", "600", "/dev/userfaultfd"])
    assert "no permission for userfaultfd" in v.refused()
    bed.must(["chmod", "660", "/dev/userfaultfd"])
    donor = v.host.donors[1]
    donor.job.signal(signal.SIGTERM)
    assert donor.job.wait(60) == 0
    assert "the VM needs a donor of group rack1: next" in v.refused()
    v.must("dcmctl", "vm", "disable", NAME)
    v.must(*ENABLE, "96M", "--pager", "kernel")
    assert "--connect qemu:///session" in v.refused()
    v.must("dcmctl", "vm", "disable", NAME)
    assert "kvm-dcm" not in v.must("virsh", "dumpxml", "--inactive", NAME)
    assert bed.must(f"find {state} -type f -o -type s") == ""
    v.close()
