# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests inside the debug kernel: kvm-dcm-kunit.ko (tests/kernel/kunit)."""

from __future__ import annotations

import re

import pytest

from tests.guest.vmharness import TOP
from tests.vm import debug
from tests.vm.bed import Bed

SOURCES = TOP / "tests" / "kernel" / "kunit"
RESULT = re.compile(r"^ +(ok|not ok) \d+ (\w+)(.*)$", re.M)


@pytest.mark.skipif(not debug.TREE, reason="no kernel with KUnit (make test-kernel-debug)")
@pytest.mark.timeout(1200)
def test_units_in_the_kernel(bed: Bed) -> None:
    """Every case there is has run and passed, without a leak; some of them without memory."""
    debug.make_modules(str(SOURCES))
    text = "".join(path.read_text() for path in SOURCES.glob("*_test.c"))
    suites = set(re.findall(r'\.name = "(dcmfs_\w+)"', text))
    cases = re.findall(r"KUNIT_CASE(?:_SLOW)?\(\s*(\w+)\)", text)
    assert len(suites) == 4 and len(cases) > 15

    module = debug.KERNEL_BUILD / "kunit" / "kunit" / "kvm-dcm-kunit.ko"
    debug.at_work(bed)
    path = bed.put(module, f"/run/bed/modules/{module.name}")
    with debug.failing(bed, 100):
        # They run before it is loaded.
        bed.must(["insmod", path], 900)
    told = {suite: bed.must(f"cat /sys/kernel/debug/kunit/{suite}/results") for suite in suites}
    bed.rmmod("kvm_dcm_kunit")
    ran = [case for said in told.values() for case in RESULT.findall(said)]
    wrong = [case for case in ran if case[0] != "ok" or "SKIP" in case[2]]
    assert not wrong, "".join(told.values())
    assert sorted(name for _, name, _ in ran) == sorted(cases)
    debug.no_leaks(bed)
