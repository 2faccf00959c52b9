# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian packages, on a Debian 13 with systemd in L1: installed, used, upgraded, removed.

The disk is of scripts/package-image, and is never written; systemd runs on it in namespaces of
its own, under L1's kernel, whose headers it has: DKMS builds the modules there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.paths import BUILD, TOP
from tests.vm.bed import Bed, Job
from tests.vm.conftest import NewBed
from tests.vm.test_hostd import TOOL, until
from tests.vm.test_hostd import built as built
from tests.vm.test_systemd import DONOR, HOST, ROOT, START, Machine

OLD = (TOP / "VERSION").read_text().strip()
NEW = f"{OLD}+test"
MOUNT = "/mnt/dcm"
KEPT = ("donor.conf", "donor.keys", "host.conf", "hostd.conf", "hostd.keys")
BOOT = f"""
mkdir -p /systemd/disk /systemd/changes {ROOT}
mount -o ro /run/disk/packages /systemd/disk
mount -t tmpfs -o size=1500M changes /systemd/changes
mkdir /systemd/changes/up /systemd/changes/work
mount -t overlay -o lowerdir=/systemd/disk,upperdir=/systemd/changes/up \
	-o workdir=/systemd/changes/work root {ROOT}
# The headers are there, the modules L1's; what DKMS makes goes to memory.
mkdir /systemd/changes/modules /systemd/changes/modules-work
mount -t overlay \
	-o lowerdir=/systemd/disk/usr/lib/modules:/usr/lib/modules,upperdir=/systemd/changes/modules \
	-o workdir=/systemd/changes/modules-work modules {ROOT}/usr/lib/modules
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup
"""
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


class Debian(Machine):
    """A Debian 13 with systemd and nothing of ours."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        bed.must("ip link set lo up; modprobe -a overlay")
        bed.must(BOOT, 120)
        bed.must("mkdir /sys/fs/cgroup/systemd")
        inside = ["unshare", "-pmfCi", f"--mount-proc={ROOT}/proc", "sh", "-e", "-c", START]
        join = 'echo $$ >/sys/fs/cgroup/systemd/cgroup.procs; exec "$@"'
        self.job: Job = bed.spawn(["sh", "-c", join, "-", *inside])
        until(lambda: self.run("true").rc == 0, "systemd is there")
        until(lambda: "running" in self.run("systemctl is-system-running").stdout, self.log, 120)

    def look(self) -> list[str]:
        return self.run(LOOK, 120).stdout.splitlines()

    def bring(self, folder: Path) -> None:
        """The packages, but for debug symbols, to /pkg."""
        self.must("rm -rf /pkg; mkdir /pkg")
        for deb in sorted(folder.glob("*.deb")):
            if "-dbgsym" not in deb.name:
                self.bed.put(deb, f"{ROOT}/pkg/{deb.name}")

    def dpkg(self, *words: str) -> str:
        command = f"DEBIAN_FRONTEND=noninteractive dpkg {' '.join(words)} 2>&1"
        said = self.must(command, 1200)
        print(said[-3000:], flush=True)
        return said

    def names(self) -> list[str]:
        return self.must("dpkg-query -W -f '${Package} ${Source}\n' | awk '/dcm|vgc|virtio-gc/ "
                         "{print $1}' | grep -v libvirt-").split()  # fmt: skip

    def kept(self) -> str:
        return self.must("cd /etc/kvm-dcm && sha256sum * && stat -c '%a %U %n' *")


def build(version: str, folder: Path) -> Path:
    """As `make packages` does."""
    done = subprocess.run(
        [str(TOP / "scripts" / "packages"), version, str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def packages() -> tuple[Path, Path]:
    """Those of this tree, and the same of a later version."""
    return build(OLD, BUILD / "packages"), build(NEW, BUILD / "test" / "packages-new")


@pytest.fixture
def machine(packages: tuple[Path, Path], new_bed: NewBed) -> Iterator[Debian]:
    done = subprocess.run(
        [str(TOP / "scripts" / "package-image")], stdout=subprocess.PIPE, text=True, check=True
    )
    disk = f"file={done.stdout.strip()},format=raw,if=none,id=packages,readonly=on"
    extra = ("-drive", disk, "-device", "virtio-blk-pci,drive=packages,serial=packages")
    yield Debian(new_bed(kvm=False, memory_mib=3072, extra=extra))


def modules_are(m: Debian, version: str) -> None:
    release = m.bed.image.kernel
    for name in ("kvm-dcm", "virtio-gc"):
        assert m.must(f"dkms status {name}") == f"{name}/{version}, {release}, x86_64: installed\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_packages(machine: Debian, packages: tuple[Path, Path]) -> None:
    m = machine
    old, new = packages
    before = m.look()
    assert len(before) > 10000

    # Installed: nothing runs yet, all is there.
    m.bring(old)
    m.dpkg("-i", "/pkg/*.deb")
    assert m.names() == [
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
    m.must(f"mkdir {MOUNT}; mount -t dcmfs -o extent=2M,budget=12M dcm {MOUNT}")
    assert m.must("cat /sys/module/tls/initstate") == "live\n"
    m.must("systemctl enable --now dcm-donord dcm-hostd", 120)
    m.bed.put(TOOL, f"{ROOT}/run/dcmfs_test", 0o755)
    m.must(f"systemd-run -q --unit=vm /run/dcmfs_test use {MOUNT}/vm 32 2 7 /run/stop")
    until(lambda: m.lent() > 0 and "using" in m.log("vm"), m.log, 300)
    pids = [m.show(unit, "MainPID") for unit in ("dcm-donord", "dcm-hostd")]
    kept = m.kept()
    assert all(name in kept for name in KEPT)

    # Upgraded, while memory is lent and used: configuration, donor and VM stay, the host's
    # daemon is the new one.
    m.bring(new)
    m.dpkg("-i", "/pkg/*.deb")
    assert m.must("dcmctl --version") == f"dcmctl {NEW}\n"
    modules_are(m, NEW)
    assert not m.must("find /usr/src -maxdepth 1 -name '*-" + OLD + "'")
    assert m.kept() == kept
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
    m.dpkg("--remove", *m.names())
    assert m.run("pgrep -l dcm-").stdout == ""
    assert m.run("lsmod | grep -e dcm -e virtio_gc").stdout == ""
    assert m.must("dkms status") == ""
    assert m.kept() == kept
    assert m.run(f"test -e {hook}").rc != 0
    m.must("getent passwd dcm-donor")
    m.dpkg("-i", "/pkg/dcm-donor_*.deb")
    assert m.kept() == kept
    m.must("dcm-donord --check-config")

    # Purged: as if they had never been there.
    m.dpkg("--purge", *m.names())
    m.must("rm -rf /pkg; systemctl daemon-reload; systemctl reset-failed")
    after = m.look()
    assert sorted(set(after) - set(before)) == []
    assert sorted(set(before) - set(after)) == []
    m.job.end()
