# SPDX-License-Identifier: GPL-2.0-or-later
"""How a JVM with a heap on donors starts, or says why it does not; and without the flag."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import COLLECTORS, HEAP_MIB, Jvm, configure, on_donors

HEAP = f"-Xmx{HEAP_MIB}m"
CONNECTED = re.compile(r"libdcm: donor \w+ \(.*\): connected")


def refused(jvm: Jvm, folder: Path, *flags: str, more: Mapping[str, str] | None = None) -> str:
    """The one line that a JVM prints which does not start."""
    done = jvm.run(folder, *flags, "Plain", status=1, more=more)
    lines = [line for line in done.stderr.splitlines() if not CONNECTED.fullmatch(line)]
    assert len(lines) == 1 and not done.stdout, f"{done.stdout}{done.stderr}"
    return lines[0]


def test_no_device(jvm: Jvm, short_tmp: Path) -> None:
    """Without the device there is one line and status 1."""
    line = refused(jvm, short_tmp, "-XX:DonorHeap=dcm:/nonexistent/vm.conf", HEAP)
    assert line.startswith("Error: -XX:DonorHeap=dcm:/nonexistent/vm.conf: ")
    assert "/nonexistent/vm.conf: No such file or directory" in line
    line = refused(jvm, short_tmp, "-XX:DonorHeap=/dev/vgc77", HEAP)
    assert "/dev/vgc77: no such device: load virtio_gc.ko" in line
    line = refused(jvm, short_tmp, "-XX:DonorHeap=/dev/null", HEAP)
    assert line.startswith("Error: -XX:DonorHeap=/dev/null: ")
    line = refused(jvm, short_tmp, "-XX:DonorHeap=dcmfs:/nonexistent/file", HEAP)
    assert "/nonexistent/file: No such file or directory" in line
    line = refused(jvm, short_tmp, "-XX:DonorHeap=env", HEAP)
    assert line == "Error: -XX:DonorHeap=env: VGC_DEVICE is not in the environment"
    line = refused(jvm, short_tmp, "-XX:DonorHeap=env", HEAP, more={"VGC_DEVICE": ""})
    assert "no device is named" in line
    none = {"LD_LIBRARY_PATH": "/nonexistent"}
    line = refused(jvm, short_tmp, "-XX:DonorHeap=/dev/vgc0", HEAP, more=none)
    assert "libvgc cannot be loaded" in line
    line = refused(jvm, short_tmp, "-XX:DonorHeap=dcm:x", HEAP, more=none)
    assert "libdcm cannot be loaded" in line


def test_heaps_that_do_not_fit(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """A heap beyond the window, or in a file too, is refused in one line."""
    flag = f"-XX:DonorHeap=dcm:{configure(short_tmp, donors, 'shm')}"
    line = refused(jvm, short_tmp, flag, "-Xmx1g")
    assert line.endswith(
        "a heap of 1024 MiB does not fit in the device's window of 512 MiB; lower -Xmx"
    )
    line = refused(jvm, short_tmp, flag, HEAP, f"-XX:AllocateHeapAt={short_tmp}")
    assert "the heap cannot lie in a file of -XX:AllocateHeapAt too" in line


def test_large_heap(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """A heap of more regions than a space can have gets larger ones."""
    config = configure(short_tmp, donors, "shm", size="20G")
    flags = [f"-XX:DonorHeap=dcm:{config}", "-XX:+UseSerialGC", "-Xmx18g", "-Xlog:gc+donor"]
    for more in ([], ["-XX:-UseCompressedOops"]):
        said = jvm.run(short_tmp, *flags, *more, "Plain").stdout
        assert "18432 MiB, 2 donors" in said and said.endswith("ours\n")


def test_from_the_environment(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """The device's name can be in VGC_DEVICE, the flag in JDK_JAVA_OPTIONS."""
    config = configure(short_tmp, donors, "shm")
    more = {"VGC_DEVICE": f"dcm:{config}", "JDK_JAVA_OPTIONS": "-XXaltjvm=dcm -XX:DonorHeap=env"}
    done = jvm.run(short_tmp, HEAP, "-Xlog:gc+donor", "Plain", ours=False, more=more)
    assert "Heap on donors: env, 256 MiB, 2 donors" in done.stdout
    assert done.stdout.splitlines()[-1] == "ours"


def test_flags_that_are_turned_off(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """Flags that would bring the whole heap in are off, also where a collector sets them."""
    config = configure(short_tmp, donors, "shm")
    off = ("UseNUMA", "AlwaysPreTouch", "UseTransparentHugePages", "UseStringDeduplication")
    asked = [f"-XX:+{flag}" for flag in off]
    for collector, flags in (("Shenandoah", []), ("Shenandoah", asked), ("Parallel", asked)):
        given = [*on_donors(config, collector), *flags, "-XX:+PrintFlagsFinal"]
        done = jvm.run(short_tmp, *given, "Plain")
        for flag in off:
            assert re.search(rf"\b{flag} +=  *false\b", done.stdout), flag
            warned = f"{flag} is turned off: the heap is on donors" in done.stdout + done.stderr
            assert warned == bool(flags), done.stderr


def test_without_the_flag(jvm: Jvm, short_tmp: Path) -> None:
    """Our JVM without the flag has the stock one's flags, output and libraries."""
    assert jvm.run(short_tmp, HEAP, "Plain", more={"VGC_DEVICE": "/x"}).stdout == "plain\n"
    for collector in COLLECTORS:
        flags = [f"-XX:+Use{collector}GC", HEAP, "-Xshare:off", "-XX:+PrintFlagsFinal", "Plain"]
        ours, stock = (
            {
                line.split()[1]: line
                for line in jvm.run(short_tmp, *flags, ours=ours).stdout.splitlines()
                if re.match(r" +\w+ +\w+ +=", line)
            }
            for ours in (True, False)
        )
        assert ours.pop("DonorHeap").split()[:3] == ["ccstr", "DonorHeap", "="]
        for flag in ("DonorMark", "DonorRebuild", "DonorCompact"):
            assert ours.pop(flag).split()[:4] == ["bool", flag, "=", "false"]
        # of use with these only, and with DonorHeap
        assert ours.pop("DonorPrefetch").split()[3] == "true"
        assert ours.pop("DonorYoungPercent").split()[3] == "50"
        # Features that our build leaves out have no flags.
        different = {name for name in ours if ours[name] != stock.get(name)}
        assert not different, {name: (ours[name], stock.get(name)) for name in different}


@pytest.mark.parametrize("collector", COLLECTORS)
def test_archive(jvm: Jvm, donors: list[Donor], short_tmp: Path, collector: str) -> None:
    """Classes and objects of a CDS archive are used; the objects are copied into the heap."""
    archive = short_tmp / "ours.jsa"
    jvm.run(short_tmp, "-Xshare:dump", f"-XX:SharedArchiveFile={archive}", HEAP)
    config = configure(short_tmp, donors, "shm")
    flags = [*on_donors(config, collector, "cds", "aot", "gc+init"), "-Xshare:on"]
    said = jvm.run(short_tmp, *flags, f"-XX:SharedArchiveFile={archive}", "Plain").stdout
    assert said.splitlines()[-1] == "ours"
    # G1 maps them where it can; here it reads them into the same place.
    assert ("Heap data mapped at" if collector == "G1" else "Loaded heap    region") in said
