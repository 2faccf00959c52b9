# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel pager by DKMS: what `make install-dkms` lays out is built, used in L1, and removed.

DKMS runs in the root of scripts/kernel-headers.sh, which has the headers, in a mount namespace
where everything that it writes is in a temporary directory.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.framework.paths import BUILD
from tests.guest.vmharness import TOP
from tests.vm.bed import Bed
from tests.vm.kmod import kernel_root

INSIDE = """
set -e
mount --bind "$1" "$2/src"
mount --bind "$1/modules" "$2/usr/lib/modules"
mount --rbind /proc "$2/proc"
root=$2
shift 2
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C \
    dkms --sourcetree /src/usr/src --dkmstree /src/dkms "$@"
"""


def dkms(folder: Path, *args: str) -> str:
    namespace = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        namespace.append("--map-root-user")
    done = subprocess.run(
        [*namespace, "/bin/sh", "-c", INSIDE, "-", str(folder), str(kernel_root()), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=250,
    )
    logs = "".join(p.read_text()[-2000:] for p in folder.glob("dkms/**/make.log"))
    assert done.returncode == 0, f"dkms {args}:\n{done.stdout}\n{logs}"
    return done.stdout


@pytest.mark.slow
def test_dkms(bed: Bed, tmp_path: Path) -> None:
    """Added, built, installed, loaded by mount(), used, unloaded, removed; nothing is left."""
    version = (TOP / "VERSION").read_text().strip()
    release = bed.image.kernel
    modules = tmp_path / "modules" / release
    modules.mkdir(parents=True)
    (tmp_path / "dkms").mkdir()
    (modules / "build").symlink_to(f"/usr/src/linux-headers-{release}")
    subprocess.run(["make", "install-dkms", f"DESTDIR={tmp_path}"], check=True)
    subprocess.run(["make", "-C", "tests/kernel", f"BUILD={BUILD}"], check=True)
    name = f"kvm-dcm/{version}"
    dkms(tmp_path, "add", name)
    dkms(tmp_path, "build", name, "-k", release)
    dkms(tmp_path, "install", name, "-k", release)
    assert f"{release}, x86_64: installed" in dkms(tmp_path, "status", name)
    built = sorted(modules.glob("updates/dkms/kvm-dcm*.ko*"))
    assert [p.name.split(".")[0] for p in built] == ["kvm-dcm-verbs", "kvm-dcm"]

    there = f"/lib/modules/{release}/updates/dkms"
    bed.must(["mkdir", "-p", there, "/mnt/dkms"])
    for module in built:
        bed.put(module, f"{there}/{module.name}")
    bed.put(BUILD / "tests-kernel" / "dcmfs_test", "/tmp/dcmfs_test", 0o755)
    bed.must(["depmod", release])
    assert bed.must(["modinfo", "-F", "filename", "kvm-dcm"]).startswith(f"{there}/kvm-dcm.ko")
    # The file system's name is enough.
    bed.must("mount -t dcmfs -o extent=2M,budget=24M,on-loss=sigbus dcm /mnt/dkms")
    assert "6 operations" in bed.must("/tmp/dcmfs_test fsx /mnt/dkms 6 1", 120)
    bed.must("umount /mnt/dkms; rmdir /mnt/dkms")
    bed.must("modprobe kvm-dcm-verbs; modprobe -r kvm-dcm-verbs; ! grep kvm_dcm /proc/modules")
    bed.must(f"rm -r {there}; depmod {release}")
    assert bed.run(["modinfo", "kvm-dcm"]).rc != 0

    dkms(tmp_path, "remove", name, "--all")
    assert dkms(tmp_path, "status", name) == ""
    assert not list((tmp_path / "modules").rglob("*kvm-dcm*"))
    assert not [p for p in (tmp_path / "dkms").rglob("*") if not p.is_dir() and "kvm-dcm" in str(p)]
