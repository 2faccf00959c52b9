# SPDX-License-Identifier: GPL-2.0-or-later
"""The L1 (a VM with a kernel to test) that tests share, fresh ones for tests that need one, and the
checks after each test.

An L1's kernel log is looked at after every test: a test that leaves a complaint there fails,
whatever else it found. After a test that failed, for any reason, the next one gets another L1.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.framework.again import GHOST
from tests.framework.emulator import ghost_breakpoint, killed_by_emulator
from tests.framework.failed import FAILED
from tests.vm import debug
from tests.vm.bed import Bed, Spec

LOGS = debug.KERNEL_BUILD / "test" / "vm"
NewBed = Callable[..., Bed]


def seed() -> str:
    """The seed of a random test: from the environment's SEED, else a new one; printed."""
    number = os.environ.get("SEED") or str(secrets.randbelow(1 << 31))
    print(f"SEED={number}")
    return number


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Why a test failed is told at once: all of them can take an hour."""
    outcome: Any = yield
    report = outcome.get_result()
    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    if report.failed and reporter is not None:
        reporter.write_line(f"\n{item.name}, {report.when}: {report.longreprtext}", red=True)


def emulators(bed: Bed) -> bool:
    """Has the emulator killed it, or a guest in it?"""
    return killed_by_emulator(bed.console(), bed.l2_consoles)


class Shared:
    """An L1 of the session's; another one after something went wrong in it."""

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.bed: Bed | None = None
        self.count = 0

    def get(self) -> Bed:
        if self.bed is not None and not self.bed.running():
            self.drop()
        if self.bed is None:
            self.count += 1
            self.bed = boot(self.spec, f"{self.name}-{self.count}")
        return self.bed

    def drop(self) -> None:
        if self.bed is not None:
            self.bed.close()
            self.bed = None


def boot(spec: Spec, name: str) -> Bed:
    keep = LOGS / re.sub(r"[^\w.-]+", "-", name).strip("-")
    for again in (True, False):
        bed = Bed(spec, keep=keep)
        try:
            bed.start()
            break
        except BaseException as err:
            bed.close()
            # docs/testing.md; nothing that is tested is there yet.
            if not again or not ghost_breakpoint(bed.console()):
                raise
            print(f"L1 {name} ran into a breakpoint that is not there: {err}", flush=True)
    print(f"L1 {name} is up after {bed.boot_seconds:.0f} s", flush=True)
    return bed


def judge(wrong: list[str], bed: Bed) -> None:
    if wrong:
        text = "\n".join(wrong[:40])
        pytest.fail(f"L1 complains (its console is in {bed.keep}):\n{text}", pytrace=False)


@contextlib.contextmanager
def ended(shared: Shared) -> Iterator[Shared]:
    """Its last L1 is judged by how it powers off, too."""
    try:
        yield shared
        if shared.bed is not None:
            judge(shared.bed.finish(), shared.bed)
    finally:
        shared.drop()


@pytest.fixture(scope="session")
def shared_bed() -> Iterator[Shared]:
    spec = Spec(cpus=3, kernel=debug.KERNEL, patience=debug.PATIENCE)
    with ended(Shared("shared", spec)) as shared:
        yield shared


@pytest.fixture(scope="session")
def shared_host_bed() -> Iterator[Shared]:
    # a debug kernel needs some for itself, and donors keep room for the rest of L1
    memory = 1792 if debug.TREE else 1280
    spec = Spec(memory, kvm=False, guest=False, kernel=debug.KERNEL, patience=debug.PATIENCE)
    with ended(Shared("host", spec)) as shared:
        yield shared


def lent(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """That L1, judged after the test."""
    bed = shared.get()
    begin = time.monotonic()
    bed.l2_consoles.clear()
    bed.mark(f"begin {request.node.name}")
    try:
        yield bed
    finally:
        wrong = bed.complaints(f"end {request.node.name}")
        request.node.stash[GHOST] = emulators(bed)
        print(f"{request.node.name}: {time.monotonic() - begin:.0f} s", flush=True)
        if not wrong and "kvm_dcm " in bed.get("/proc/modules").decode():
            wrong.append("left in L1: kvm-dcm.ko")
        if wrong or request.node.stash.get(FAILED, False):
            shared.drop()
    judge(wrong, bed)


@pytest.fixture
def bed(shared_bed: Shared, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The L1 that all tests share."""
    yield from lent(shared_bed, request)


@pytest.fixture
def host_bed(shared_host_bed: Shared, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The smaller one that all tests of host.Host share, with nothing of theirs in it."""
    for bed in lent(shared_host_bed, request):
        bed.must("dmesg --clear; rm -rf /run/dcm /run/dcm-hostd /tmp/*")
        yield bed


@pytest.fixture
def new_bed(request: pytest.FixtureRequest) -> Iterator[NewBed]:
    """L1s of a test's own: new_bed(memory_mib=512, kvm=False); judged and ended with the test.

    One that the test ended itself (close()) is not judged: what it died of was the test's wish.
    """
    with contextlib.ExitStack() as stack:
        beds: list[Bed] = []

        def make(**spec: object) -> Bed:
            name = f"{request.node.name}-{len(beds) + 1}"
            if "kernel" not in spec:
                spec |= {"kernel": debug.KERNEL, "patience": debug.PATIENCE}
            bed = boot(Spec(**spec), name)  # type: ignore[arg-type]
            stack.callback(bed.close)
            beds.append(bed)
            return bed

        yield make
        wrong = [(line, bed) for bed in beds if not bed.closed for line in bed.finish()]
        request.node.stash[GHOST] = any(map(emulators, beds))
    if wrong:
        judge([line for line, _ in wrong], wrong[0][1])
