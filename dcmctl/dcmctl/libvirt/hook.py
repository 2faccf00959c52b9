# SPDX-License-Identifier: GPL-2.0-or-later
"""The qemu hook of libvirt: one call for each phase of a domain's life.

The phases are in system_session.py (qemu:///system, kernel pager) and in user_session.py
(qemu:///session, libdcm); the domain's XML says which of them to use. Migration is refused: it is
not supported yet.

Each phase writes down for the domain what it has done (record.py). Each can be run twice, and each
works if an earlier one did not run, because libvirt may have been killed at any point. The total
time that one call waits is bounded. The hook never calls libvirt, which would be a deadlock:
libvirt waits for the hook.
"""

from __future__ import annotations

import signal
import sys
import syslog
from typing import Any

from dcmctl.lib.errors import DcmError, reason
from dcmctl.libvirt import domain, system_session
from dcmctl.libvirt.xmltree import Element

ALL_MAX = 40  # seconds for one phase
# If the hook fails in one of these operations, libvirt gives the operation up.
REFUSING = ("prepare", "start", "started", "migrate", "restore")


class _TooLong(Exception):
    pass


def _module(root: Element) -> Any:
    """The module with the phases of the domain's pager; works with a wrong <dcm:memory> too."""
    if all(e.attributes.get("pager") != "user" for e in root.all("metadata", domain.MEMORY)):
        return system_session
    from dcmctl.libvirt import user_session  # most hosts never load it

    return user_session


def _on_alarm(*_: Any) -> None:
    raise _TooLong


def main(argv: list[str], data: bytes) -> int:
    """Serve one call by libvirt for a domain with <dcm:memory>; return the exit status."""
    operation, phase = (argv + ["", "", ""])[2:4] if len(argv) > 2 else ("", "")
    syslog.openlog("kvm-dcm-hook")
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(ALL_MAX)
    try:
        root = domain.read_domain(data)
        if (operation, phase) == ("release", "end"):
            _module(root).release(root)
            return 0
        memory = domain.find_memory(root)
        if memory is not None and (operation, phase) == ("migrate", "begin"):
            raise DcmError(
                "a VM with memory on donors can't be migrated yet: shut it down, and start it on "
                "the other host"
            )
        action = None if memory is None else _module(root).PHASES.get((operation, phase))
        if memory is not None and action is not None:
            action(root, memory)
        return 0
    except _TooLong:
        why = f"{operation} was not done within {ALL_MAX} s"
    except DcmError as exc:
        why = str(exc)
    except OSError as exc:
        why = f"{exc.filename or operation}: {reason(exc)}"
    finally:
        signal.alarm(0)
    print(f"kvm-dcm: {why}", file=sys.stderr)
    syslog.syslog(syslog.LOG_ERR, f"{operation}: {why}")
    return 1 if operation in REFUSING else 0
