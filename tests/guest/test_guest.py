# SPDX-License-Identifier: GPL-2.0-or-later
"""A stock Debian guest on the memory of real donors.

While programs with known results run in it, its budget is changed, a donor is
drained, a donor is killed. Judged from outside: results by the host's own
calculation, direct memory by the kernel's account of QEMU's mappings, health
by the guest's kernel log.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor, new_key
from tests.guest import workload
from tests.guest.paged import DCMCTL, MIB, Pager, Sampler, dcmctl_run
from tests.guest.vmharness import Accel, Guest, GuestError, Image, choose_accel, get_image

LOGS = Path(__file__).resolve().parents[2] / "build" / "test" / "guest"
StartDonor = Callable[..., Donor]


@pytest.fixture(scope="session")
def image() -> Image:
    return get_image()


@pytest.fixture(scope="session")
def accel(image: Image) -> Accel:
    chosen = choose_accel(image)
    print(f"guests run under {chosen.name}: {chosen.why}")
    return chosen


class Work(threading.Thread):
    """Jobs one after the other in the guest, while the test does other things."""

    def __init__(self, guest: Guest, jobs: Sequence[workload.Job]) -> None:
        super().__init__(daemon=True)
        self.guest = guest
        self.jobs = list(jobs)
        self.done: list[workload.Done] = []
        self.error: GuestError | OSError | None = None
        self._begun = {job.name: threading.Event() for job in jobs}
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            for job in self.jobs:
                self._begun[job.name].set()
                ran = self.guest.sh(job.command, job.timeout)
                wrong = job.check(ran.output) if ran.status == 0 else ran.output[-500:]
                if ran.status and not wrong:
                    wrong = f"status {ran.status}"
                self.done.append(workload.Done(job.name, job.what, not wrong, wrong, ran.seconds))
                print(f"{job.name}: {wrong or 'right'} ({ran.seconds:.0f} s)", flush=True)
        except (GuestError, OSError) as err:
            self.error = err
        finally:
            self._ended.set()

    def wait_begun(self, name: str) -> None:
        """Until that job runs; an error if it never will."""
        while not self._begun[name].wait(0.2):
            if self._ended.is_set():
                raise AssertionError(f"{name} never began: {self.error or self.done}")

    def finish(self) -> None:
        self.join()
        if self.error is not None:
            raise AssertionError(f"{self.error}; so far {self.done}") from self.error
        wrong = [f"{d.name}: {d.detail}" for d in self.done if not d.ok]
        assert not wrong
        assert len(self.done) == len(self.jobs)


class PagedVm:
    """A guest under dcmctl run, and what looks at it."""

    def __init__(self, guest: Guest, pager: Pager, sampler: Sampler, env: dict[str, str]) -> None:
        self.guest = guest
        self.pager = pager
        self.sampler = sampler
        self.env = env

    def dcmctl(self, *args: str) -> str:
        done = subprocess.run(
            [str(DCMCTL), *args], env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"dcmctl {args}: {done.stderr}"
        return done.stdout

    def set_budget(self, mib: int) -> None:
        with self.sampler.changing(mib * MIB):
            self.dcmctl("budget", "vm", f"{mib}M")
        assert self.pager.status()["budget_bytes"] == mib * MIB

    def stderr_lines(self, pattern: str) -> list[str]:
        return [x for x in self.guest.stderr_text().splitlines() if re.search(pattern, x)]


@contextmanager
def paged_vm(
    name: str,
    folder: Path,
    image: Image,
    accel: Accel,
    budget_mib: int,
    keys: Path,
    donors: dict[str, str],
    extra: Sequence[str] = (),
    **options: Any,
) -> Iterator[PagedVm]:
    runtime = folder / "run"
    runtime.mkdir(mode=0o755)
    env = {**os.environ, "DCM_RUNTIME_DIR": str(runtime)}
    wrap = dcmctl_run(name="vm", budget=f"{budget_mib}M", keys=keys, donors=donors, extra=extra)
    with Guest(
        image,
        accel,
        payload=workload.PAYLOAD,
        wrap=wrap,
        env=env,
        keep=LOGS / name,
        **options,
    ) as guest:
        pager = Pager(runtime / "vm" / "vm.sock")
        sampler = Sampler(guest.pid, pager)
        sampler.start()
        try:
            guest.wait_shell()
            yield PagedVm(guest, pager, sampler, env)
        finally:
            sampler.stop()


def two_donors(start_donor: StartDonor, **donor: str) -> tuple[Donor, Donor]:
    keys = {"test": new_key()}
    options = {"slab-size": "64M", "capacity": "1536M", "drain-timeout": "3min", **donor}
    return start_donor("a", keys=keys, donor=options), start_donor("b", keys=keys, donor=options)


@pytest.mark.timeout(900)
def test_right_while_budget_changes_and_a_donor_drains(
    image: Image, accel: Accel, start_donor: StartDonor, short_tmp: Path
) -> None:
    """Every byte right, the budget held, the kernel content, whatever happens below."""
    a, b = two_donors(start_donor)
    donors = {"a": a.unix_address, "b": b.tcp_address}
    with paged_vm("drain", short_tmp, image, accel, 256, a.key_file, donors, scratch_mib=64) as vm:
        jobs = [
            workload.hold(280),
            workload.stress("zero-one", 400, 4),
            workload.sort(400_000),
            workload.stress("rand-set", 400, 5),
            workload.sqlite(),
            workload.redis(10_000),
            workload.scratch(24),
            workload.held(280),
        ]
        work = Work(vm.guest, jobs)
        work.start()

        work.wait_begun("sort")
        vm.sampler.phase = "128M"
        vm.set_budget(128)
        work.wait_begun("stress-ng rand-set")
        time.sleep(3)
        vm.sampler.phase = "320M"
        vm.set_budget(320)

        work.wait_begun("sqlite3")
        used = vm.pager.status()
        assert all(d["slabs"] > 0 for d in used["donors"]), "both donors must hold memory"
        vm.sampler.phase = "drain"
        assert a.process is not None
        a.signal(signal.SIGTERM)
        # Moving takes as long as it takes; the donor itself has a limit.
        assert a.process.wait(240) == 0, a.tail()
        work.finish()

        vm.sampler.stop()
        status = vm.pager.status()
        assert not vm.sampler.broken
        assert vm.sampler.over() == []
        assert len(vm.sampler.samples) > 20
        # The measured memory is the memory that the budget bounds: the budget was used up.
        assert max(s.direct for s in vm.sampler.samples) > 250 * MIB
        assert status["lost_pages"] == 0
        assert status["extents"]["lost"] == 0
        assert next(d for d in status["donors"] if d["name"] == "a")["slabs"] == 0
        assert vm.guest.complaints() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_that_the_guest_frees_goes_to_no_donor(
    image: Image, accel: Accel, start_donor: StartDonor, short_tmp: Path
) -> None:
    """Freed by the guest, then evicted by a smaller budget: not written; without reports it is."""
    a, b = two_donors(start_donor)
    donors = {"a": a.unix_address, "b": b.tcp_address}
    held = 200 * MIB
    # Linux reports what is free in pieces of 2 MiB and more: of a file's pages a quarter to a half.
    reported = held // 8
    written: dict[str, int] = {}
    for reports in ("yes", "no"):
        folder = short_tmp / reports
        folder.mkdir()
        extra = () if reports == "yes" else ("--free-page-reporting", "no")
        with paged_vm(
            f"freed-{reports}", folder, image, accel, 640, a.key_file, donors, extra=extra
        ) as vm:
            vm.guest.must("modprobe virtio_balloon", 60)
            vm.guest.must(workload.hold(held // MIB).command, 240)
            before = vm.pager.status()
            vm.guest.must("sh work.sh unhold", 60)
            deadline = time.monotonic() + 120
            while reports == "yes":
                now = vm.pager.status()
                if now["direct_bytes"] < before["direct_bytes"] - reported:
                    break
                assert time.monotonic() < deadline, "freed memory is not reported"
                time.sleep(0.2)
            vm.sampler.phase = "96M"
            vm.set_budget(96)
            after = vm.pager.status()
            written[reports] = after["written_bytes"] - before["written_bytes"]
            counted = [s["counters"]["DISCARDED_PAGES"] * 4096 for s in (before, after)]
            print(f"{reports}: {written[reports] >> 20} MiB written, {counted} discarded")
            if reports == "yes":
                assert counted[1] - counted[0] > reported
            else:
                assert counted[1] == counted[0]
            # Discarded memory can be used as any other.
            work = Work(vm.guest, [workload.hold(100), workload.held(100)])
            work.start()
            work.finish()
            vm.sampler.stop()
            assert not vm.sampler.broken
            assert vm.sampler.over() == []
            assert vm.guest.complaints() == []
    assert written["no"] - written["yes"] > reported // 2, written


@pytest.mark.timeout(400)
@pytest.mark.parametrize("on_loss", [pytest.param("pause", marks=pytest.mark.slow), "sigbus"])
def test_donor_killed(
    on_loss: str, image: Image, accel: Accel, start_donor: StartDonor, short_tmp: Path
) -> None:
    """Memory that went with its donor: the access stops, it never reads as zeroes."""
    a, b = two_donors(start_donor)
    donors = {"a": a.unix_address, "b": b.tcp_address}
    with paged_vm(
        f"killed-{on_loss}", short_tmp, image, accel, 160, a.key_file, donors,
        extra=("--on-loss", on_loss),
    ) as vm:  # fmt: skip
        before = Work(vm.guest, [workload.hold(320)])
        before.start()
        before.finish()
        held = {d["name"]: d["slabs"] for d in vm.pager.status()["donors"]}
        assert held["b"] > 0, f"the donor to be killed holds nothing: {held}"

        b.kill()
        # Reads all of it: much was on the donor that is gone.
        after = Work(vm.guest, [workload.held(320)])
        after.start()
        deadline = time.monotonic() + 200
        stopped: list[str] = []
        while not stopped and not after.done:
            stopped = vm.stderr_lines("access to lost memory")
            assert (
                time.monotonic() < deadline
            ), f"neither stopped nor done: {vm.guest.stderr_text()}"
            time.sleep(0.2)
        assert not after.done, f"the read came back: {after.done}"

        if on_loss == "sigbus":
            status = vm.guest.wait_exit(60)
            assert status in (-signal.SIGBUS, 128 + signal.SIGBUS), status
        else:
            # It stays stopped: nothing is answered, QEMU is there to be looked at.
            after.join(5)
            assert not after.done
            assert vm.guest.running()
            said = vm.pager.status()
            assert next(d for d in said["donors"] if d["name"] == "b")["state"] == "lost"
            assert next(d for d in said["donors"] if d["name"] == "a")["state"] == "up"
        # One line has the donor and every extent that was there.
        lines = vm.stderr_lines(r"donor b .* is lost: .*extents? [0-9, ]+$")
        assert len(lines) == 1, vm.guest.stderr_text()
        named = re.findall(r"\d+", lines[0].rpartition("extent")[2])
        # A slab may still have been bound between the look and the kill.
        assert len(set(named)) == len(named) >= held["b"], lines[0]
        if on_loss == "pause":
            assert said["extents"]["lost"] == len(named), lines[0]
        after.join(0)
        if after.done:
            raise AssertionError(f"the read came back: {after.done}")
