# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook's record of each domain: a JSON file named by its UUID; it lasts until release."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path

from dcmctl.lib.errors import DcmError
from dcmctl.libvirt.domain import Memory
from dcmctl.pager import vmsock


def state_folder() -> Path:
    given = os.environ.get("DCM_LIBVIRT_STATE")
    if given or not os.geteuid():
        return Path(given or "/run/kvm-dcm-libvirt")
    return vmsock.runtime_dir({}) / "libvirt"


def make_folder() -> Path:
    folder = state_folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise DcmError(f"{folder} is not a directory of ours: remove it")
    return folder


def write_down(uuid: str, name: str, phase: str, path: Path, memory: Memory, size: int) -> None:
    """Write the record of a domain to a new file, and rename it to the old one's name."""
    folder = make_folder()
    record = {
        "name": name,
        "uuid": uuid,
        "phase": phase,
        "file": str(path),
        "memory_bytes": size,
        "direct_bytes": memory.direct,
        "time": int(time.time()),
    }
    new = folder / f".{uuid}.{os.getpid()}"
    new.write_text(json.dumps(record) + "\n")
    new.replace(folder / f"{uuid}.json")


def forget(uuid: str) -> None:
    (state_folder() / f"{uuid}.json").unlink(missing_ok=True)
