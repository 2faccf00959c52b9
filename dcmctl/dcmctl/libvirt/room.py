# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether donors have room for all of a VM's memory, before it starts.

The VM's pager knows how many slabs each donor would lend. A file that has fewer slabs than its
extents need will ask for the others later, so these slabs count as promised to it: they are not
free for another file.
"""

from __future__ import annotations

from pathlib import Path

from dcmctl.lib.units import format_size
from dcmctl.libvirt.domain import Memory
from dcmctl.pager import hostd
from dcmctl.pager.hostd import HostDonor, HostFile

HOSTD_CONF = Path("/etc/kvm-dcm/hostd.conf")


def _others(files: list[HostFile], mine: HostFile) -> int:
    """Slabs that other files with a donor in common with this file may still ask for."""
    donors = {donor.name for donor in mine.donors}
    return sum(
        file.outstanding
        for file in files
        if file.path != mine.path and donors & {donor.name for donor in file.donors}
    )


def _apart(file: HostFile, up: list[HostDonor]) -> int:
    """Slabs that the file can get from these donors: at most one for each extent from a donor."""
    return sum(min(donor.slabs_free, max(0, file.extents - donor.slabs)) for donor in up)


def _room(file: HostFile, up: list[HostDonor], promised: int) -> bool:
    """Whether the donors have room for all slabs of the file, those that must be on disk included.

    `promised`: slabs that other files may still ask for.
    """
    files = [donor for donor in up if donor.medium == "file"]
    return (
        sum(donor.slabs_free for donor in up) - promised >= file.outstanding
        and _apart(file, up) >= file.outstanding
        and _apart(file, files) >= file.outstanding_files
    )


def shortage(
    files: list[HostFile], path: Path, memory: Memory, conf: Path = HOSTD_CONF
) -> str | None:
    """The reason why the donors in `conf` have no room for a file; None if they have."""
    file = hostd.file_at(files, path)
    if file is None:
        return f"dcm-hostd does not serve {path}: its log says why (journalctl -u dcm-hostd)"
    known = {donor.name: donor for donor in file.donors}
    for name in memory.donors:
        if name not in known:
            return f"the VM needs donor {name}, which is not in {conf}"
        if known[name].state != "up":
            state = known[name].state
            return f"the VM needs donor {name}, which is {state}: {known[name].why or '?'}"
    for group in memory.groups:
        members = [donor for donor in file.donors if donor.group == group]
        if not members:
            return f"the VM needs a donor of group {group}, and {conf} has none"
        if all(donor.state != "up" for donor in members):
            each = [f"{d.name} is {d.state} ({d.why or '?'})" for d in members]
            return f"the VM needs a donor of group {group}: {', '.join(each)}"
    if not file.donors:
        return f"there are no donors: add some to {conf}"
    promised = _others(files, file)
    up = [donor for donor in file.donors if donor.state == "up"]
    if _room(file, up, promised):
        return None
    each = []
    for donor in file.donors:
        said = f"{donor.name} is {donor.state}"
        if donor.state == "up":
            said = f"{donor.name} has {format_size(donor.slabs_free * file.extent_bytes)}"
            said += " of files" if donor.medium == "file" else ""
        each.append(f"{said} ({donor.why})" if donor.why and donor.state != "up" else said)
    need = format_size(file.outstanding * file.extent_bytes)
    text = (
        f"donors have no room for the VM: it can need {need} in slabs of "
        f"{format_size(file.extent_bytes)}; {', '.join(each)}"
    )
    if file.copies > 1:
        text += f"; each page is to be on {file.copies} donors"
    if file.outstanding_files:
        text += ", one of them of files (medium = file)"
    if promised:
        text += f"; {format_size(promised * file.extent_bytes)} of that is promised to other VMs"
    return text
