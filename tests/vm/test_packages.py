# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian packages, on a Debian 13 with systemd in L1: installed, used, upgraded, removed.

DKMS builds the modules for L1's kernel, whose headers the machine has (debian.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.framework.paths import BUILD, TOP
from tests.vm.conftest import NewBed
from tests.vm.debian import ROOT, Debian, build, disks
from tests.vm.host import TOOL, until
from tests.vm.host import built as built
from tests.vm.test_systemd import DONOR, HOST

OLD = (TOP / "VERSION").read_text().strip()
NEW = f"{OLD}+test"
MOUNT = "/mnt/dcm"
KEPT = ("donor.conf", "donor.keys", "host.conf", "hostd.conf", "hostd.keys")
# All that a package could leave behind. Logs, dpkg's own and DKMS's key are not ours.
LOOK = r"""
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
	-o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path '/var/lib/systemd/*' \
	-o -path /root -o -path /pkg -o -path '/var/lib/dkms/mok.*' -o -path '/var/tmp/*' \) -prune \
	-o -printf '%y %m %u %g %p %l\n' | grep -v -e __pycache__ -e ' /etc/.*-$' | LC_ALL=C sort
find /usr/lib/modules -xdev -name '*.ko*' | LC_ALL=C sort
getent passwd; getent group
systemctl list-unit-files --no-legend --no-pager | grep -v ^run-
dkms status
lsmod | grep -e dcm -e virtio_gc
"""


def look(m: Debian) -> list[str]:
    return m.run(LOOK, 120).stdout.splitlines()


def dpkg(m: Debian, *words: str) -> None:
    command = f"DEBIAN_FRONTEND=noninteractive dpkg {' '.join(words)} 2>&1"
    print(m.must(command, 1800)[-3000:], flush=True)


def names(m: Debian) -> list[str]:
    command = "dpkg-query -W -f '${Package} ${Source}\n' | awk '/dcm|vgc|virtio-gc/ {print $1}'"
    return m.must(f"{command} | grep -v libvirt-").split()


def kept(m: Debian) -> str:
    return m.must("cd /etc/kvm-dcm && sha256sum * && stat -c '%a %U %n' *")


@pytest.fixture(scope="module")
def packages() -> tuple[Path, Path]:
    """Those of this tree, and the same of a later version."""
    return build(OLD, BUILD / "packages"), build(NEW, BUILD / "test" / "packages-new")


@pytest.fixture
def machine(packages: tuple[Path, Path], new_bed: NewBed) -> Debian:
    return Debian(new_bed(kvm=False, memory_mib=2048, extra=disks("packages")))


def modules_are(m: Debian, version: str) -> None:
    release = m.bed.image.kernel
    for name in ("kvm-dcm", "virtio-gc"):
        assert m.must(f"dkms status {name}") == f"{name}/{version}, {release}, x86_64: installed\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_packages(machine: Debian, packages: tuple[Path, Path]) -> None:
    m = machine
    old, new = packages
    # libvirtd makes directories some time after systemd takes it for started.
    m.must("virsh -q list")
    before = look(m)
    assert len(before) > 10000

    # Installed: nothing runs yet, all is there.
    m.bring(old)
    dpkg(m, "-i", "/pkg/*.deb")
    assert names(m) == [
        "dcm-donor", "kvm-dcm", "kvm-dcm-dkms", "kvm-dcm-libvirt", "libdcm-dev", "libdcm0",
        "libvgc-dev", "libvgc0", "virtio-gc-dkms",
    ]  # fmt: skip
    assert m.must("dpkg --audit") == ""
    assert m.must("dcmctl --version") == f"dcmctl {OLD}\n"
    modules_are(m, OLD)
    for unit in ("dcm-donord", "dcm-hostd"):
        assert m.run(f"systemctl is-enabled {unit}").stdout == "disabled\n"
        assert m.run(f"systemctl is-active {unit}").stdout == "inactive\n"
        m.must(f"systemd-analyze --man=no verify /usr/lib/systemd/system/{unit}.service")
    assert "kvm" in m.must("id -nG dcm-donor").split()
    m.must("man -w dcm-donord dcm-hostd dcmctl || ls /usr/share/man/man[18]/dcm*")
    example = "/usr/share/doc/libvgc-dev/examples/lists.c*"
    m.must(f"pkg-config --libs libdcm; zcat -f {example} | gcc-14 -xc - -o /tmp/lists -lvgc")
    hook = "/etc/libvirt/hooks/qemu.d/50-kvm-dcm"
    m.must(f"test -x {hook}; echo '<domain/>' | {hook} web1 prepare begin -")
    m.must("test -s /etc/apparmor.d/abstractions/libvirt-qemu.d/kvm-dcm")
    m.must("grep -q kvm /usr/lib/udev/rules.d/60-kvm-dcm.rules; udevadm verify --no-summary "
           "/usr/lib/udev/rules.d/60-kvm-dcm.rules")  # fmt: skip

    # Configured, as docs/packages.md has it.
    m.must("dcmctl keygen /etc/kvm-dcm/donor.keys lab")
    m.must("cp -p /etc/kvm-dcm/donor.keys /etc/kvm-dcm/hostd.keys")
    files = {
        "donor.conf": DONOR.replace("/keys", "/donor.keys"),
        "hostd.conf": HOST.replace("/keys", "/hostd.keys"),
        "host.conf": "; mine\n",
    }
    for name, text in files.items():
        m.bed.put(text.encode(), f"{ROOT}/etc/kvm-dcm/{name}", 0o640)
    m.must("chown dcm-donor: /etc/kvm-dcm/donor.*")
    # The file system's name loads the module, which has TLS loaded before.
    m.must(f"mkdir {MOUNT}; mount -t dcmfs -o extent=2M,budget=12M,on-loss=sigbus dcm {MOUNT}")
    assert m.must("cat /sys/module/tls/initstate") == "live\n"
    m.must("systemctl enable --now dcm-donord dcm-hostd", 120)
    m.bed.put(TOOL, f"{ROOT}/root/dcmfs_test", 0o755)
    m.must(f"systemd-run -q --unit=vm /root/dcmfs_test use {MOUNT}/vm 32 2 7 /run/stop")
    until(lambda: m.lent() > 0 and "using" in m.log("vm"), m.log, 300)
    pids = [m.show(unit, "MainPID") for unit in ("dcm-donord", "dcm-hostd")]
    was = kept(m)
    assert all(name in was for name in KEPT)

    # Upgraded, while memory is lent and used: configuration, donor and VM stay, the host's
    # daemon is the new one.
    m.bring(new)
    dpkg(m, "-i", "/pkg/*.deb")
    assert m.must("dcmctl --version") == f"dcmctl {NEW}\n"
    modules_are(m, NEW)
    assert not m.must("find /usr/src -maxdepth 1 -name '*-" + OLD + "'")
    assert kept(m) == was
    for unit in ("dcm-donord", "dcm-hostd"):
        assert m.must(f"systemctl is-enabled {unit}") == "enabled\n"
        assert m.show(unit, "ActiveState") == "active"
    assert [m.show(unit, "MainPID") for unit in ("dcm-donord", "dcm-hostd")] == pids
    until(lambda: "reached again, nothing lost" in m.log("dcm-hostd"), m.log, 120)
    assert "deleted" not in m.must(f"readlink /proc/{pids[1]}/exe")
    m.must("touch /run/stop")
    until(lambda: "pages right, 0 lost" in m.log("vm"), m.log, 300)
    m.must(f"rm {MOUNT}/vm")
    until(lambda: not m.lent(), m.log, 120)

    # Removed: what ran has ended, the configuration is there. Again installed, it is taken.
    m.must(f"umount {MOUNT}; rmdir {MOUNT}; rm /tmp/lists")
    dpkg(m, "--remove", *names(m))
    assert m.run("pgrep -l dcm-").stdout == ""
    assert m.run("lsmod | grep -e dcm -e virtio_gc").stdout == ""
    assert m.must("dkms status") == ""
    assert kept(m) == was
    assert m.run(f"test -e {hook}").rc != 0
    m.must("getent passwd dcm-donor")
    dpkg(m, "-i", "/pkg/dcm-donor_*.deb")
    assert kept(m) == was
    m.must("dcm-donord --check-config")

    # Purged: as if they had never been there.
    dpkg(m, "--purge", *names(m))
    m.must("rm -rf /pkg; systemctl daemon-reload; systemctl reset-failed")
    after = look(m)
    assert sorted(set(after) - set(before)) == []
    assert sorted(set(before) - set(after)) == []
    m.job.end()
