# SPDX-License-Identifier: GPL-2.0-or-later
"""dcm-qemu: what libvirt starts in QEMU's place for a domain that libdcm pages.

It becomes QEMU, so that libvirt has its process, its descriptors and its exit status. Asked what it
can (libvirt does so before it starts any domain) it is QEMU and no more. The configuration that it
hands to libdcm the hook has written (user_session.py), by the domain's UUID, the only thing of the
domain's XML that libvirt tells QEMU and the hook alike.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path

from dcmctl.lib.errors import DcmError, reason
from dcmctl.libvirt import domain, user_session
from dcmctl.pager import preflight, qemu
from dcmctl.pager.run import environment, inherited

QEMU = "qemu-system-x86_64"


def find_qemu() -> Path:
    """The only QEMU that is started: libvirt asks it what it can without naming a domain."""
    found = shutil.which(QEMU, path=f"/usr/bin:/usr/local/bin:{os.environ.get('PATH', '')}")
    if found is None:
        raise DcmError(f"{QEMU} is not found: apt install qemu-system-x86")
    return Path(found)


def _uuid(args: list[str]) -> str | None:
    for name, value in pairwise(args):
        if name in ("-uuid", "--uuid"):
            if not domain.UUID.fullmatch(value.lower()):
                raise DcmError("QEMU's -uuid is none")
            return value.lower()
    return None


def paged(args: list[str], uuid: str) -> dict[str, str]:
    """What is added to QEMU's environment, once nothing speaks against it."""
    found = qemu.inspect(args)
    if found.problems:
        raise DcmError(found.problems[0])
    conf = user_session.conf_path(uuid)
    if not conf.is_file():
        raise DcmError(
            f"{conf} is missing, which the hook writes: is it there "
            "(dcmctl vm check --connect qemu:///session), and was it when libvirtd was started?"
        )
    shim = preflight.find_preload()
    return environment(conf, [str(shim)])


def main(argv: list[str]) -> int:
    """Becomes QEMU, or says in a line why not."""
    try:
        program = find_qemu()
        env = inherited()
        uuid = _uuid(argv[1:])
        if uuid is not None:
            env |= paged(argv[1:], uuid)
        # Python ignores these, and what is ignored stays so.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(program, [str(program), *argv[1:]], env)
    except DcmError as exc:
        print(f"kvm-dcm: {exc}", file=sys.stderr)
    except OSError as exc:
        print(f"kvm-dcm: cannot start {QEMU}: {reason(exc)}", file=sys.stderr)
    return 1
