# SPDX-License-Identifier: GPL-2.0-or-later
"""dcm-qemu: libvirt starts it in place of QEMU for a domain that libdcm pages.

dcm-qemu becomes QEMU by execve(), so libvirt keeps its process, its descriptors and its exit
status. libvirt also starts it without a domain, to find out what QEMU can do: then QEMU runs
unchanged. For a domain, libdcm gets the configuration that the hook has written (user_session.py).
Its file is named by the domain's UUID, because both QEMU and the hook get this UUID from libvirt.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path

from dcmctl.lib.errors import DcmError, printable, reason
from dcmctl.libvirt import domain, user_session
from dcmctl.pager import preflight, qemu
from dcmctl.pager.run import environment, inherited

QEMU = "qemu-system-x86_64"


def find_qemu() -> Path:
    """The path of QEMU: one for all domains, as libvirt also starts dcm-qemu without a domain."""
    found = shutil.which(QEMU, path=f"/usr/bin:/usr/local/bin:{os.environ.get('PATH', '')}")
    if found is None:
        raise DcmError(f"{QEMU} is not installed: apt install qemu-system-x86")
    return Path(found)


def _uuid(args: list[str]) -> str | None:
    for name, value in pairwise(args):
        if name in ("-uuid", "--uuid"):
            if not domain.UUID.fullmatch(value.lower()):
                raise DcmError(f"QEMU's -uuid {printable(value, 60)} is not a UUID")
            return value.lower()
    return None


def paged(args: list[str], uuid: str) -> dict[str, str]:
    """The variables to add to QEMU's environment; DcmError if its arguments prevent paging."""
    found = qemu.inspect(args)
    if found.problems:
        raise DcmError(found.problems[0])
    conf = user_session.conf_path(uuid)
    if not conf.is_file():
        raise DcmError(
            f"{conf} is missing, so libvirt did not run the hook: install it (dcmctl vm check "
            "--connect qemu:///session), then start libvirtd again"
        )
    shim = preflight.find_preload()
    return environment(conf, [str(shim)])


def main(argv: list[str]) -> int:
    """Execute QEMU, or print one line with the reason why it can't be."""
    try:
        program = find_qemu()
        env = inherited()
        uuid = _uuid(argv[1:])
        if uuid is not None:
            env |= paged(argv[1:], uuid)
        # Python ignores these signals, and execve() would pass that on to QEMU.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(program, [str(program), *argv[1:]], env)
    except DcmError as exc:
        print(f"kvm-dcm: {exc}", file=sys.stderr)
    except OSError as exc:
        print(f"kvm-dcm: cannot start {QEMU}: {reason(exc)}", file=sys.stderr)
    return 1
