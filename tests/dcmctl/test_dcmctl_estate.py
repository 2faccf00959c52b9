# SPDX-License-Identifier: GPL-2.0-or-later
"""The estate of a host, compared with the status of each donor and VM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dcmctl.cluster import estate
from dcmctl.pager import settings

from tests.dcmctl.support import Cli
from tests.dcmctl.paging import MIB, Running, until
from tests.framework.donor import Donor
from tests.framework.paths import DONORD, PRELOAD

pytestmark = pytest.mark.skipif(
    not (PRELOAD.exists() and DONORD.exists()), reason="build/ has no pager or no donor: run make"
)


@pytest.fixture
def host_conf(tmp_path: Path, donors: tuple[Donor, Donor], monkeypatch: pytest.MonkeyPatch) -> Path:
    """host.conf: `near` has a status address, `far` has none, `gone` does not run."""
    near, far = donors
    path = tmp_path / "host.conf"
    path.write_text(
        f"[key]\nfile = {near.key_file}\n"
        f"[donor near]\naddress = {near.unix_address}\nstatus = 127.0.0.1:{near.http_port}\n"
        f"[donor far]\naddress = {far.tcp_address}\n"
        "[donor gone]\naddress = tcp:127.0.0.1:1\nstatus = 127.0.0.1:1\n"
    )
    monkeypatch.setattr(settings, "HOST_CONF", path)
    monkeypatch.setenv("DCM_HOSTD_CONF", str(tmp_path / "no-hostd.conf"))
    return path


def agreement(donors: tuple[Donor, Donor]) -> tuple[estate.Estate, list[dict[str, Any]]] | None:
    """The estate and what its donors say of their memory, unless slabs were lent in between."""
    seen = estate.look()
    known = [seen.donor(name) for name in ("near", "far")]
    said = [donor.status()["memory"] for donor in donors]
    used = [memory["used_bytes"] for memory in said]
    if used != [d.lent_bytes for d in known if d] or used != [d.here_bytes for d in known if d]:
        return None
    return seen, said


def test_estate(
    running: Running,
    donors: tuple[Donor, Donor],
    host_conf: Path,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DCM_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("DCM_HOSTD_STATUS", str(runtime / "no-hostd"))
    running.line("filled")
    # While slabs are being lent, two readings can't be of the same moment.
    seen, memories = until("the VM and its donors say the same", lambda: agreement(donors))
    assert seen.problems == ()
    assert not seen.hostd
    assert [d.name for d in seen.donors] == ["near", "far", "gone"]
    vm = seen.vm("e2e")
    assert vm is not None
    assert (vm.pager, vm.running, vm.budget_bytes) == ("user", True, 64 * MIB)
    assert vm.indirect_bytes is not None
    assert vm.indirect_bytes >= 100 * MIB
    assert vm.counters is not None
    assert vm.counters["FETCHES"] > 0
    for said, name in zip(memories, ("near", "far"), strict=True):
        known = seen.donor(name)
        assert known is not None
        assert known.state == "up"
        assert known.capacity_bytes == said["capacity_bytes"] == 512 * MIB
        assert known.slab_bytes == 16 * MIB
        assert known.medium == said["medium"] == "memory"
        assert known.lent_bytes == said["used_bytes"] == known.here_bytes
        assert known.free_bytes == said["slabs_free"] * said["slab_bytes"]
        assert [(use.vm, use.state) for use in known.uses] == [("e2e", "up")]
    near, far, gone = seen.donors
    # near is asked at its second address too; far has said it in the VM's session
    assert near.sessions == far.sessions == 1
    assert near.head_room_bytes == far.head_room_bytes == 64 * MIB
    assert (gone.state, gone.capacity_bytes) == ("unused", None)
    assert "refused" in gone.error
    shown = seen.to_json()
    assert shown["donors"][0]["uses"][0]["vm"] == "e2e"


def test_donors_of_files_are_told_apart(
    start_donor: Callable[..., Donor], dcmctl: Cli, tmp_path: Path
) -> None:
    slabs = tmp_path / "slabs"
    slabs.mkdir()
    memory, files = start_donor("memory"), start_donor(
        "files", donor={"medium": "file", "path": str(slabs)}
    )
    conf = tmp_path / "host.conf"
    conf.write_text(
        f"[key]\nfile = {memory.key_file}\n"
        + "".join(
            f"[donor {d.folder.name}]\naddress = {d.tcp_address}\n"
            f"status = 127.0.0.1:{d.http_port}\n"
            for d in (memory, files)
        )
    )
    shown = dcmctl("donor", "list", "--config", conf).stdout.splitlines()
    assert [line.split()[-1] for line in shown[:3]] == ["LENDS", "memory", "file"], shown
