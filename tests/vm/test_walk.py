# SPDX-License-Identifier: GPL-2.0-or-later
"""A newcomer's walk through docs/first-vm.md on a fresh Debian 13, and what an operator does then.

The packages are installed and set up as the page says, each command as printed; libvirt is
Debian's, with its own units and AppArmor's profiles enforced, QEMU is stock, KVM is L1's. The tests
are in the order of a host's life, on one machine: each begins where the one before it ended.
"""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator

import pytest

from tests.framework.donor import new_key
from tests.framework.paths import BUILD, TOP
from tests.guest import workload
from tests.vm.bed import Bed, Spec
from tests.vm.conftest import LOGS, boot, judge
from tests.vm.debian import ROOT, Debian, build, disks
from tests.vm.host import MIB, TOOL, until
from tests.vm.host import built as built
from tests.vm.test_libvirt import APPEND, DOMAIN, NAME, UUID, Domain, work
from tests.vm.walk import WalkError, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PAGE = TOP / "docs" / "first-vm.md"
IMAGES = "/var/lib/libvirt/images"
RAM = f"/mnt/dcm/libvirt/libvirt-{UUID}"
DISCOVERY = """[etcd]
endpoints = http://127.0.0.1:2379
[announce]
name = near
address = tcp:127.0.0.1:9740
"""


class Guest(Domain):
    """web1, which the page has started."""

    def __init__(self, m: Debian, keep: str) -> None:
        super().__init__(m, LOGS / keep)  # type: ignore[arg-type]
        self.m = m
        self.far = f"{ROOT}{IMAGES}"

    def start(self) -> None:
        self._started = time.monotonic()
        self._shell = self._connect("shell")

    @property
    def pid(self) -> int:
        return int(self.m.must(f"cat /run/libvirt/qemu/{NAME}.pid"))

    def destroy(self) -> None:
        self.m.must(f"virsh -q destroy {NAME}", 120)


class Host:
    """The machine, as often as it is started."""

    def __init__(self) -> None:
        self.extra = disks("walk")
        self.starts = 0
        self.m = self._start()

    def _start(self) -> Debian:
        self.starts += 1
        bed = boot(Spec(cpus=3, memory_mib=3072, extra=self.extra), f"walk-{self.starts}")
        try:
            return Debian(bed)
        except BaseException:
            bed.close()
            raise

    def close(self) -> list[str]:
        """Switched off; what was wrong."""
        bed = self.m.bed
        try:
            self.m.end()
            return bed.finish()
        finally:
            bed.close()

    def reboot(self) -> None:
        judge(self.close(), self.m.bed)
        self.m = self._start()


def define(m: Debian, name: str = NAME, uuid: str = UUID, mib: int = 256) -> None:
    """A VM as somebody has it: the stock guest."""
    text = DOMAIN.format(name=name, uuid=uuid, mib=mib, append=APPEND)
    text = text.replace("/run/guest", IMAGES).replace("changes.qcow2", "web1.img")
    text = text.replace("type='qcow2'", "type='raw'")
    m.bed.put(text.encode(), f"{ROOT}/root/{name}.xml")
    m.must(f"virsh -q define /root/{name}.xml", 240)


def guest_files(bed: Bed) -> None:
    for name in ("vmlinuz", "initrd.img"):
        bed.must(["cp", f"/run/disk/guest-{name}", f"{ROOT}{IMAGES}/{name}"], 120)
    disk = ["/run/disk/guest-root.img", f"{ROOT}{IMAGES}/web1.img"]
    bed.must(["cp", "--sparse=always", *disk], 300)
    tarball = BUILD / "test" / "walk-payload.tar"
    with tarfile.open(tarball, "w") as tar:
        for path in workload.PAYLOAD:
            tar.add(path, arcname=path.name)
    bed.put(tarball, f"{ROOT}{IMAGES}/payload.tar")


def walk(m: Debian, sections: str) -> int:
    """Do these sections of the page; how many commands there were."""

    def shell(command: str) -> tuple[int, str, str]:
        began = time.monotonic()
        ran = m.run(f"export DEBIAN_FRONTEND=noninteractive; cd /pkg\n{command}", 2400)
        print(f"$ {command}\n{ran.stdout[-3000:]}({time.monotonic() - began:.0f} s)", flush=True)
        return ran.rc, ran.stdout, ran.stderr

    found = [step for step in steps(PAGE.read_text()) if step.section[:1] in sections]
    for step in found:
        try:
            step.run(shell)
        except WalkError as err:
            pytest.fail(f"docs/first-vm.md, {err}\n{m.log()[-3000:]}")
    return len(found)


def lent(m: Debian) -> int:
    status = json.loads(m.must("dcmctl donor status 127.0.0.1:9750 --json"))
    return int(status["memory"]["used_bytes"])


def refused(m: Debian, name: str = NAME) -> str:
    """Why a start is refused, as virsh shows it; nothing is left of it."""
    ran = m.virsh("start", name, timeout=300)
    assert ran.rc != 0, f"it has started: {ran}"
    assert m.run("ls /run/kvm-dcm-libvirt/*.json").stdout == ""
    return ran.stderr


def well(m: Debian) -> None:
    """No unit has failed, and nobody has said anything that is wrong."""
    assert m.failed() == []
    said = m.must("journalctl -b --no-pager -p warning -o cat -u 'dcm-*' -t kvm-dcm-hook")
    assert said == "", said
    assert "Traceback" not in m.log()
    denied = [line for line in m.bed.dmesg().splitlines() if 'apparmor="DENIED"' in line]
    assert [line for line in denied if "dcm" in line or f"libvirt-{UUID}" in line] == []


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    packages = build((TOP / "VERSION").read_text().strip(), BUILD / "packages")
    host = Host()
    try:
        m = host.m
        assert m.failed() == []
        m.bring(packages)
        guest_files(m.bed)
        define(m)
        yield host
        wrong = host.close()
    finally:
        host.m.bed.close()
    judge(wrong, host.m.bed)


@pytest.fixture(scope="module")
def walked(host: Host) -> Host:
    """All of the page but its end."""
    assert walk(host.m, "12345") > 20
    return host


def test_libvirtd_and_the_vm_come_and_go(walked: Host) -> None:
    """web1 works with most of its memory on the donor, while libvirtd is restarted; and again."""
    m = walked.m
    with Guest(m, "walk-first") as guest:
        guest.wait_shell(900)
        work(guest, workload.hold(90))
        assert lent(m) >= 128 * MIB
        pid = guest.pid
        assert m.must(f"cat /proc/{pid}/attr/current") == f"libvirt-{UUID} (enforce)\n"
        m.must("systemctl restart libvirtd", 240)
        assert m.must("systemctl is-active libvirtd") == "active\n"
        assert (guest.state(), guest.pid) == ("running", pid)
        work(guest, workload.held(90))
        guest.destroy()
    until(lambda: not lent(m), m.log)
    m.must(f"virsh -q start {NAME}", 300)
    with Guest(m, "walk-again") as guest:
        guest.wait_shell(900)
        work(guest, workload.sort(20_000, 16))
    until(lambda: not lent(m), m.log)
    well(m)


def test_the_other_daemons_are_services(walked: Host) -> None:
    """Exporter, announcement and discovery, with Debian's etcd."""
    m = walked.m
    m.must("systemctl unmask -q etcd; systemctl start etcd", 240)
    m.bed.put(DISCOVERY.encode(), f"{ROOT}/etc/kvm-dcm/discovery.conf", 0o644)
    units = "dcm-exporter dcm-announce dcm-discover"
    m.must(f"systemctl enable --now {units}", 120)
    until(lambda: m.run("dcmctl discover --once").stdout == "near tcp:127.0.0.1:9740\n", m.log)
    until(lambda: "[donor near]" in m.run("cat /run/dcm-discover/donors.conf").stdout, m.log)
    # Of donors the exporter tells what VMs here know of them; somebody has to use one.
    m.bed.put(TOOL, f"{ROOT}/root/dcmfs_test", 0o755)
    m.must("systemd-run -q --unit=some /root/dcmfs_test use /mnt/dcm/some 32 1 3 /run/stop-some")
    url = "http://127.0.0.1:9751/metrics"
    program = f"import urllib.request as u; print(u.urlopen('{url}', timeout=60).read().decode())"
    wanted = ("dcm_host_hostd_up 1\n", 'dcm_host_donor_capacity_bytes{donor="near"}')
    pages = [""]

    def scraped() -> bool:
        pages.append(m.must(f'python3 -c "{program}"', 120))
        return all(text in pages[-1] for text in wanted)

    # A VM or donor that is too slow to answer, as all are here at times, is not in the scrape.
    until(scraped, lambda: pages[-1])
    m.must("touch /run/stop-some")
    until(lambda: "pages right, 0 lost" in m.log("some"), m.log)
    m.must("rm /mnt/dcm/some")
    until(lambda: not lent(m), m.log)
    for unit in f"{units} dcm-donord dcm-hostd".split():
        assert m.run(f"systemctl is-active {unit}").stdout == "active\n", m.log()
    well(m)


def test_starts_that_are_refused(walked: Host) -> None:
    """Each with its reason, which virsh shows; and then it starts."""
    m = walked.m
    # More than any donor has.
    define(m, "web2", UUID.replace("0001", "0002"), mib=768)
    m.must("dcmctl vm enable web2 --direct 96M")
    assert "donors have no room for the VM: it can need 768M in slabs of 16M" in refused(m, "web2")
    m.must("virsh -q undefine web2")
    # A donor that somebody else has filled.
    m.must("systemd-run -q --unit=fill /root/dcmfs_test use /mnt/dcm/fill 400 1 3 /run/stop")
    until(lambda: "using" in m.log("fill"), m.log, 600)
    said = refused(m)
    assert "donors have no room for the VM: it can need 256M" in said and "near has " in said
    m.must("touch /run/stop")
    until(lambda: "pages right, 0 lost" in m.log("fill"), m.log, 600)
    m.must("rm /mnt/dcm/fill")
    until(lambda: not lent(m), m.log)
    # A key that the donor does not have.
    m.must("systemctl stop dcm-hostd; cp -p /etc/kvm-dcm/hostd.keys /root/keys", 120)
    assert "dcm-hostd does not run" in refused(m)
    m.bed.put(f"lab:{new_key()}\n".encode(), f"{ROOT}/etc/kvm-dcm/hostd.keys", 0o600)
    m.must("systemctl start dcm-hostd", 120)
    assert "the key or the tenant is not one it knows" in refused(m)
    m.must("systemctl stop dcm-hostd; cp -p /root/keys /etc/kvm-dcm/hostd.keys", 120)
    # No module.
    m.must("umount /mnt/dcm; modprobe -r kvm-dcm")
    assert "the kernel module kvm-dcm is not loaded" in refused(m)
    m.must("mount /mnt/dcm; systemctl start dcm-hostd", 120)
    m.must(f"virsh -q start {NAME}", 300)
    assert lent(m) or m.must(f"test -f {RAM}") == ""


def test_the_host_is_rebooted(walked: Host) -> None:
    """All is there again by itself, and the VM, which is one that libvirt starts."""
    m = walked.m
    assert m.virsh("domstate", NAME).stdout.strip() == "running"
    m.must(f"virsh -q autostart {NAME}")
    # As libvirt-guests ends those that answer; what boots so little as this one does not.
    m.must(f"virsh -q destroy {NAME}", 120)
    walked.reboot()
    m = walked.m
    units = "dcm-donord dcm-hostd dcm-exporter libvirtd"
    until(lambda: m.run(f"systemctl is-active {units}").stdout == "active\n" * 4, m.log)
    until(lambda: m.virsh("domstate", NAME).stdout.strip() == "running", m.log, 300)
    with Guest(m, "walk-rebooted") as guest:
        guest.wait_shell(900)
        work(guest, workload.hold(60))
        assert lent(m) > 0
        work(guest, workload.held(60))
        well(m)


def test_the_end_of_the_page(walked: Host) -> None:
    m = walked.m
    m.must(f"virsh -q start {NAME}", 300)
    assert walk(m, "6") > 5
    assert m.run("pgrep -l dcm-; lsmod | grep dcm").stdout == ""
    m.must(f"virsh -q start {NAME} --paused; virsh -q destroy {NAME}", 300)
