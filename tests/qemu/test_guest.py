# SPDX-License-Identifier: GPL-2.0-or-later
"""A stock Debian guest whose RAM is a memory-backend-dcm: no preload, no wrapper.

Judged from outside, as in tests/guest: results by the host's own calculation, direct memory by
the kernel's account of QEMU's mappings, health by the guest's kernel log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor
from tests.framework.paths import BUILD
from tests.guest import workload
from tests.guest.paged import MIB, Pager, Sampler
from tests.guest.test_guest import PagedVm, Work
from tests.guest.vmharness import Accel, Guest, GuestError, Image, choose_accel, get_image
from tests.qemu.conftest import Qemu, StartDonor, lent, two_donors, wait_returned, write_config

LOGS = BUILD / "test" / "qemu"
RAM_MIB = 768


@pytest.fixture(scope="session")
def image() -> Image:
    return get_image()


@pytest.fixture(scope="session")
def accel(image: Image) -> Accel:
    return choose_accel(image)


class BackendGuest(Guest):
    """The guest of tests/guest on the built QEMU, its RAM the backend's."""

    def __init__(
        self,
        image: Image,
        accel: Accel,
        qemu: Qemu,
        backend: str,
        env: Mapping[str, str],
        keep: Path,
        **options: Any,
    ) -> None:
        super().__init__(
            image, accel, ram_mib=RAM_MIB, payload=workload.PAYLOAD, env=env, keep=keep, **options
        )
        self.qemu = qemu
        self.backend = backend

    def command_line(self) -> list[str]:
        cmd = super().command_line()
        cmd[0] = str(self.qemu.binary)
        cmd[cmd.index("-M") + 1] += ",memory-backend=ram"
        return [*cmd, "-object", f"memory-backend-dcm,id=ram,size={RAM_MIB}M,{self.backend}"]

    def ask(self, command: str, **arguments: Any) -> Any:
        """A QMP command."""
        assert self._qmp is not None
        return self._qmp.command(command, **arguments)


class BackendVm(PagedVm):
    """It, running, and what looks at it."""

    guest: BackendGuest


@contextmanager
def backend_vm(
    name: str,
    folder: Path,
    image: Image,
    accel: Accel,
    qemu: Qemu,
    budget_mib: int,
    donors: tuple[Donor, Donor],
    **options: Any,
) -> Iterator[BackendVm]:
    config = write_config(folder / "vm.ini", *donors, {"name": "vm", "budget": "1G"})
    env = qemu.environment(folder)
    backend = f"config={config},budget={budget_mib}M"
    with BackendGuest(image, accel, qemu, backend, env, LOGS / name, **options) as guest:
        pager = Pager(folder / "vm" / "vm.sock")
        sampler = Sampler(guest.pid, pager)
        sampler.start()
        try:
            guest.wait_shell()
            yield BackendVm(guest, pager, sampler, env)
        finally:
            sampler.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_right_while_budget_changes(
    image: Image, accel: Accel, qemu: Qemu, start_donor: StartDonor, short_tmp: Path
) -> None:
    """Every byte right, the budget held, nothing left with donors after a power-off."""
    donors = two_donors(start_donor, **{"slab-size": "16M"})
    with backend_vm(
        "budget", short_tmp, image, accel, qemu, 192, donors, scratch_mib=64
    ) as vm:  # fmt: skip
        jobs = [
            workload.hold(280),
            workload.stress("zero-one", 240, 6),
            workload.sort(400_000),
            workload.stress("rand-set", 240, 6),
            workload.scratch(24),
            workload.held(280),
        ]
        work = Work(vm.guest, jobs)
        work.start()
        work.wait_begun("sort")
        vm.sampler.phase = "128M, by the status socket"
        vm.set_budget(128)
        work.wait_begun("stress-ng rand-set")
        vm.sampler.phase = "224M, by QMP"
        with vm.sampler.changing(224 * MIB):
            vm.guest.ask("qom-set", path="/objects/ram", property="budget", value=224 * MIB)
        work.finish()

        vm.sampler.stop()
        status = vm.pager.status()
        assert status["budget_bytes"] == 224 * MIB
        assert vm.guest.ask("qom-get", path="/objects/ram", property="budget") == 224 * MIB
        assert not vm.sampler.broken
        assert vm.sampler.over() == []
        # Most of what the guest holds is not here: more than twice the smallest budget.
        assert max(s.said["indirect_bytes"] for s in vm.sampler.samples) > 256 * MIB
        assert all(d["slabs"] > 0 for d in status["donors"]), "both donors must hold memory"
        assert min(lent(donors)) > 0
        assert status["lost_pages"] == 0
        assert vm.guest.complaints() == []
        with pytest.raises(GuestError, match="on donors"):
            vm.guest.ask("migrate", uri="exec:cat >/dev/null")

        vm.guest._send("poweroff -f\n")
        assert vm.guest.wait_exit(60) == 0
        assert not (short_tmp / "vm" / "vm.sock").exists()
        wait_returned(donors)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_balloon_gives_back(
    image: Image, accel: Accel, qemu: Qemu, start_donor: StartDonor, short_tmp: Path
) -> None:
    """Memory that the guest gives up with its balloon leaves this host and the donors."""
    donors = two_donors(start_donor, **{"slab-size": "16M"})
    extra = ["-device", "virtio-balloon-pci"]
    with backend_vm(
        "balloon", short_tmp, image, accel, qemu, 128, donors, extra=extra
    ) as vm:  # fmt: skip
        vm.guest.must("sh work.sh hold 100000000 131000000 && rm -rf /dev/shm/*", 240)
        before = vm.pager.status()["indirect_bytes"]
        vm.guest.must("modprobe virtio_balloon", 60)
        vm.guest.ask("balloon", value=(RAM_MIB - 352) * MIB)
        deadline = time.monotonic() + 120
        while vm.guest.ask("query-balloon")["actual"] > (RAM_MIB - 352) * MIB:
            assert time.monotonic() < deadline, "the guest's balloon does not grow"
            time.sleep(0.2)
        after = vm.pager.status()["indirect_bytes"]
        assert after < before - 64 * MIB, f"{before >> 20} MiB with donors, now {after >> 20}"
        job = workload.stress("zero-one", 120, 4)
        ran = vm.guest.sh(job.command, job.timeout)
        assert job.check(ran.output) == ""
        assert vm.guest.complaints() == []
