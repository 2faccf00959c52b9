# SPDX-License-Identifier: GPL-2.0-or-later
"""A Debian 13 with systemd in L1: a machine to install packages on, and to start again.

Its disk is scripts/package-image's, and is never written: what changes is on another, which is
kept from one start to the next. systemd is the first process of namespaces of its own, whose root
is that disk, so AppArmor's profiles have the names of files that they expect. The kernel is L1's.
When it needs a module it runs modprobe in L1's root: this has the machine's modules and settings.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.framework.paths import BUILD, TOP
from tests.vm.bed import Bed
from tests.vm.job import Job, Ran
from tests.vm.host import until
from tests.vm.test_systemd import Machine

ROOT = "/systemd/root"
CHANGES_MIB = 6144
BOOT = f"""
mkdir -p /systemd/disk /systemd/changes {ROOT}
mount -o ro /run/disk/packages /systemd/disk
mount /run/disk/changes /systemd/changes
mkdir -p /systemd/changes/up /systemd/changes/work
mount -t overlay -o lowerdir=/systemd/disk,upperdir=/systemd/changes/up \
	-o workdir=/systemd/changes/work root {ROOT}
# The headers are there, the modules L1's.
mkdir -p /systemd/changes/modules /systemd/changes/modules-work
mount -t overlay \
	-o lowerdir=/systemd/disk/usr/lib/modules:/usr/lib/modules,upperdir=/systemd/changes/modules \
	-o workdir=/systemd/changes/modules-work modules /usr/lib/modules
mount --bind /usr/lib/modules {ROOT}/usr/lib/modules
mkdir -p /usr/lib/modprobe.d
mount --bind {ROOT}/usr/lib/modprobe.d /usr/lib/modprobe.d
mkdir /sys/fs/cgroup/systemd
cd {ROOT}/etc/systemd/system
if [ ! -e apparmor.service.d ]; then
	# Units that do not work in namespaces, or are slow and of no use.
	ln -s /dev/null systemd-binfmt.service
	ln -s /dev/null proc-sys-fs-binfmt_misc.automount
	ln -s /dev/null console-getty.service
	ln -s /dev/null getty.target
	ln -s /dev/null systemd-udev-trigger.service
	ln -s /dev/null etcd.service
	# Files that these write at midnight would be taken for files that packages leave.
	for name in apt-daily apt-daily-upgrade dpkg-db-backup fstrim logrotate; do
		ln -s /dev/null $name.timer
	done
	# Its script does nothing in a container.
	mkdir apparmor.service.d
	cat >apparmor.service.d/profiles.conf <<-END
		[Service]
		ExecStart=
		ExecStart=/usr/sbin/apparmor_parser -r /etc/apparmor.d/usr.sbin.libvirtd
		ExecStart=/usr/sbin/apparmor_parser -r /etc/apparmor.d/usr.lib.libvirt.virt-aa-helper
	END
fi
"""
START = f"""
mount -t sysfs sysfs {ROOT}/sys
mount -t securityfs securityfs {ROOT}/sys/kernel/security
mount -t cgroup2 cgroup {ROOT}/sys/fs/cgroup
mount --rbind /dev {ROOT}/dev
mount -t tmpfs -o mode=755 run {ROOT}/run
cd {ROOT}
pivot_root . media
umount -l /media
# As systemd has it where it is in no container: what is unmounted is so for services too.
mount --make-rshared /
exec env container=test /lib/systemd/systemd --unit=multi-user.target --show-status=0
"""


class Debian(Machine):
    """Started with the bed given; nothing of ours is in it until it is installed."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        bed.must("ip link set lo up; modprobe -a overlay")
        bed.must(BOOT, 120)
        inside = ["unshare", "-pmfCi", f"--mount-proc={ROOT}/proc", "sh", "-e", "-c", START]
        if bed.spec.kvm:
            inside = bed.with_kvm(inside)
            # As udev has it, which is not told of what was there before.
            group = f"$(grep ^kvm: {ROOT}/etc/group | cut -d: -f3)"
            bed.must(f"chgrp {group} /dev/kvm && chmod 660 /dev/kvm")
        join = 'echo $$ >/sys/fs/cgroup/systemd/cgroup.procs; exec "$@"'
        self.job: Job = bed.spawn(["sh", "-c", join, "-", *inside])
        until(lambda: self.run("true").rc == 0, lambda: f"no systemd: {self.job.output()}")
        until(self.started, self.why_not_started, 400)

    def run(self, command: str, timeout: float = 60) -> Ran:
        # Its name is another one once systemd has changed it.
        find = f"pgrep -P {self.job.pid}"
        enter = f'nsenter -t $({find} || echo 0) -m -p -C -i -r -w sh -c "$0"'
        return self.bed.run(["sh", "-c", enter, command], timeout)

    def started(self) -> bool:
        # It waits there: each question costs the emulated processor what the start needs.
        said = self.run("systemctl is-system-running --wait", 400).stdout.strip()
        return said in ("running", "degraded")

    def why_not_started(self) -> str:
        return self.run("systemctl list-jobs; systemctl --failed").stdout

    def failed(self) -> list[str]:
        """Units that are."""
        said = self.must("systemctl list-units --failed --no-legend --plain --no-pager")
        return [line.split()[0] for line in said.splitlines()]

    def virsh(self, *words: str, timeout: float = 120) -> Ran:
        return self.run(f"virsh -q {' '.join(words)}", timeout)

    def bring(self, folder: Path) -> None:
        """The packages, but for debug symbols, to /pkg."""
        self.must("rm -rf /pkg; mkdir /pkg")
        for deb in sorted(folder.glob("*.deb")):
            if "-dbgsym" not in deb.name:
                self.bed.put(deb, f"{ROOT}/pkg/{deb.name}")

    def end(self) -> None:
        """As a machine is switched off."""
        self.run("systemctl poweroff")
        assert self.job.wait(300) is not None
        self.bed.must(
            f"umount {ROOT}/usr/lib/modules /usr/lib/modprobe.d /usr/lib/modules {ROOT} "
            "/systemd/changes /systemd/disk",
            120,
        )


def build(version: str, folder: Path) -> Path:
    """As `make packages` does."""
    done = subprocess.run(
        [str(TOP / "scripts" / "packages"), version, str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


def disks(name: str) -> tuple[str, ...]:
    """QEMU's arguments for the machine's two, the second one new."""
    done = subprocess.run(
        [str(TOP / "scripts" / "package-image")], stdout=subprocess.PIPE, text=True, check=True
    )
    changes = BUILD / "test" / "vm" / f"{name}.img"
    changes.parent.mkdir(parents=True, exist_ok=True)
    changes.unlink(missing_ok=True)
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", str(changes), f"{CHANGES_MIB}m"],
        check=True,
    )
    found: list[str] = []
    for serial, path, how in (
        ("packages", done.stdout.strip(), "readonly=on"),
        ("changes", changes, "cache=unsafe,discard=unmap"),
    ):
        found += ["-drive", f"file={path},format=raw,if=none,id={serial},{how}"]
        found += ["-device", f"virtio-blk-pci,drive={serial},serial={serial}"]
    return tuple(found)


NewDebian = Callable[..., Debian]
