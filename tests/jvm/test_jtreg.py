# SPDX-License-Identifier: GPL-2.0-or-later
"""OpenJDK's own tests of G1, with the heap on donors that mark and compact."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.framework.orphan import no_orphan
from tests.framework.paths import BUILD, TOP
from tests.jvm.conftest import two_donors
from tests.jvm.support import configure, jdk, libjvm
from tests.jvm.test_real import DONORS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

LIMIT_S = 3000
# Tests have heaps of up to 1 GiB; those that say nothing have a quarter of the memory.
SIZE, HEAP = "2G", "-Xmx512m"
GROUPS = {
    "references": (
        "gc/TestReferenceClearDuringMarking.java",
        "gc/TestReferenceClearDuringReferenceProcessing.java",
        "gc/TestReferenceRefersTo.java",
        "gc/TestReferenceRefersToDuringConcMark.java",
        "gc/TestConcurrentGCBreakpoints.java",
        "gc/TestSoftReferencesBehaviorOnOOME.java",
    ),
    "classes": ("gc/class_unloading",),
    "cycles": (
        "gc/g1/TestVerificationInConcurrentCycle.java",
        "gc/g1/TestRemarkCleanupMXBean.java",
        "gc/g1/mixedgc",
        "gc/stress/TestMultiThreadStressRSet.java",
        # The others go on for 27 minutes each, however fast the machine.
        *(f"gc/stress/TestStressRSetCoarsening.java#id{n}" for n in range(4)),
    ),
    "humongous": (
        "gc/g1/TestGreyReclaimedHumongousObjects.java",
        "gc/g1/TestEagerReclaimHumongousRegions.java",
        "gc/g1/TestEagerReclaimHumongousRegionsClearMarkBits.java",
        "gc/g1/humongousObjects",
        "gc/stress/TestStressG1Humongous.java",
    ),
    "stress": (
        "gc/stress/gcbasher/TestGCBasherWithG1.java",
        "gc/stress/gcold/TestGCOldWithG1.java",
        "gc/stress/TestReclaimStringsLeaksMemory.java",
    ),
    "stacks": ("jdk/internal/vm/Continuation", "java/lang/Thread/virtual/stress"),
}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JDK whose only libjvm is ours."""
    stock, ours = jdk(), libjvm()
    if isinstance(stock, str) or isinstance(ours, str):
        pytest.fail(f"{stock} {ours}")
    made = tmp_path_factory.mktemp("jtreg") / "jdk"
    (made / "lib" / "server").mkdir(parents=True)
    for entry in [*stock.iterdir(), *(stock / "lib").iterdir()]:
        if entry.name not in ("bin", "lib", "server"):
            (made / entry.relative_to(stock)).symlink_to(entry)
    # Tools look for the rest beside their own files.
    shutil.copytree(stock / "bin", made / "bin")
    shutil.copy2(ours / "libjvm.so", made / "lib" / "server")
    return made


@pytest.fixture(scope="session")
def natives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries in C that tests load, which OpenJDK's own build makes elsewhere."""
    stock, ours = jdk(), libjvm()
    assert isinstance(stock, Path) and isinstance(ours, Path)
    made, include = tmp_path_factory.mktemp("natives"), stock / "include"
    flags = [f"-I{include}", f"-I{include / 'linux'}", f"-I{ours / 'test' / 'lib' / 'native'}"]
    for folder in ("lib", "jdk"):
        for source in (ours / "test" / folder).rglob("lib*.c"):
            out = made / f"{source.stem}.so"
            subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", out, source], check=True)
    return made


def run_jtreg(
    home: Path, natives: Path, folder: Path, config: Path, suite: Path, tests: list[Path]
) -> str:
    """jtreg's output, with these tests' results; all processes that it started end with it."""
    stock, jtreg = jdk(), subprocess.check_output([str(TOP / "scripts" / "jtreg")], text=True)
    options = [f"-XX:DonorHeap=dcm:{config}", "-XX:+IgnoreUnrecognizedVMOptions", HEAP, *DONORS]
    command = [*no_orphan("KILL"), "unshare", "--kill-child", "--pid", "--mount-proc"]
    command += [f"{stock}/bin/java", "-jar", f"{jtreg.strip()}/lib/jtreg.jar", f"-jdk:{home}"]
    command += [f"-compilejdk:{stock}", f"-w:{folder / 'work'}", f"-r:{folder / 'report'}"]
    command += ["-verbose:summary", "-noreport", "-timeoutFactor:8", "-ignore:quiet"]
    command += ["-k:!headful", "-conc:1", "-a", f"-nativepath:{natives}"]
    command += [f"-e:LD_LIBRARY_PATH={BUILD / 'lib'}"]
    command += [f"-e:JAVA_TOOL_OPTIONS={' '.join(options)}", f"-e:DCM_RUNTIME_DIR={folder / 'run'}"]
    with subprocess.Popen(
        [*command, *map(str, tests)],
        cwd=suite,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            return program.communicate(timeout=LIMIT_S)[0]
        finally:
            program.kill()


@pytest.fixture
def roomy_donors(short_tmp: Path) -> Iterator[list[Donor]]:
    """A region is on one slab, and some tests have regions of 32 MiB."""
    with two_donors(short_tmp, **{"slab-size": "32M", "capacity": "2G"}) as donors:
        yield donors


@pytest.mark.parametrize("group", GROUPS)
def test_tests_pass(
    home: Path, natives: Path, roomy_donors: list[Donor], short_tmp: Path, group: str
) -> None:
    """As they do with the heap in memory."""
    ours = libjvm()
    assert isinstance(ours, Path)
    suite = ours / "test" / ("jdk" if group == "stacks" else "hotspot/jtreg")
    # Some tests start a second JVM.
    config = configure(short_tmp, roomy_donors, "shm", name=None, size=SIZE)
    tests = [suite / name for name in GROUPS[group]]
    said = run_jtreg(home, natives, short_tmp, config, suite, tests)
    found = re.search(r"^Test results: (.*)$", said, re.M)
    assert found and re.fullmatch(r"passed: [\d,]+(; did not meet .*)?", found[1]), said
