# SPDX-License-Identifier: GPL-2.0-or-later
"""Compile a kernel module for L1, with the headers and compiler of scripts/kernel-headers.sh."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.guest.vmharness import TOP

# In a mount namespace of its own, as scripts/kernel-check does.
INSIDE = """
set -e
mount --bind "$1" "$2/src"
cd "$2"
kdir=$(echo usr/src/linux-headers-*-amd64)
exec chroot "$2" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C \
    make --no-print-directory -C "/$kdir" M=/src modules
"""


def kernel_root() -> Path:
    done = subprocess.run(
        [str(TOP / "scripts" / "kernel-headers.sh")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def build_module(folder: Path, name: str, source: str) -> Path:
    """NAME.ko of that source, made in `folder`."""
    (folder / f"{name}.c").write_text(source)
    (folder / "Kbuild").write_text(f"obj-m := {name}.o\n")
    namespace = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        namespace.append("--map-root-user")
    done = subprocess.run(
        [*namespace, "/bin/sh", "-c", INSIDE, "-", str(folder), str(kernel_root())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=250,
    )
    if done.returncode:
        raise RuntimeError(f"{name} does not compile:\n{done.stdout[-3000:]}")
    return folder / f"{name}.ko"
