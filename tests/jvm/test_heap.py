# SPDX-License-Identifier: GPL-2.0-or-later
"""Real programs in a JVM whose heap is four times its budget, the rest on donors."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.support import (
    BUDGET_MIB,
    COLLECTORS,
    HEAP_MIB,
    JAVAC,
    LIMIT_S,
    Jvm,
    configure,
    large_source,
    on_donors,
)
from tests.pager.support import ask

LIVE_MIB = 110
CHURN = ("Churn", str(LIVE_MIB), "300000", "11", "2", "3")
MIB = 1 << 20


@pytest.fixture
def donors(own_donors: list[Donor]) -> list[Donor]:
    """Donors of this file alone, as the tests count the slabs that they have lent."""
    return own_donors


def slabs_made(donors: list[Donor]) -> list[float]:
    """How many slabs each donor has made."""
    return [donor.metrics()["dcm_donor_slabs_made_total"] for donor in donors]


@pytest.fixture(scope="session")
def answer(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the stock JVM with all of its heap in memory."""
    said = jvm.run(tmp_path_factory.mktemp("stock"), f"-Xmx{HEAP_MIB}m", *CHURN, ours=False).stdout
    assert said.startswith("ok ")
    return said


@pytest.mark.parametrize(
    ("collector", "transport"),
    [
        ("G1", "tcp"),
        pytest.param("G1", "shm", marks=pytest.mark.slow),
        *[
            pytest.param(collector, transport, marks=pytest.mark.slow)
            for collector in COLLECTORS[1:]
            for transport in ("tcp", "shm")
        ],
    ],
)
def test_churn(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, answer: str, collector: str, transport: str
) -> None:
    """A heap that changes all the time, with humongous arrays and full collections, stays right."""
    config = configure(short_tmp, donors, transport)
    flags = on_donors(config, collector, "gc*", "gc+donor=debug")
    said = jvm.run(short_tmp, *flags, *CHURN).stdout
    assert answer.strip() in said.splitlines()
    assert f"Heap on donors: dcm:{config}, {HEAP_MIB} MiB, 2 donors" in said
    assert "Pause Full (System.gc())" in said or collector == "Shenandoah"
    assert "Discard" not in said, "a discard failed"
    # More is alive than the budget has room for.
    assert sum(slabs_made(donors)) * 16 >= LIVE_MIB - BUDGET_MIB


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-XX:+UseCompactObjectHeaders", "-XX:-UseCompressedOops"])
@pytest.mark.parametrize("collector", COLLECTORS)
def test_churn_layouts(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, answer: str, collector: str, flag: str
) -> None:
    """The same with other headers and references."""
    config = configure(short_tmp, donors, "shm")
    said = jvm.run(short_tmp, *on_donors(config, collector), flag, *CHURN).stdout
    assert said == answer


@pytest.mark.slow
@pytest.mark.parametrize("collector", COLLECTORS)
def test_verified(jvm: Jvm, donors: list[Donor], short_tmp: Path, collector: str) -> None:
    """HotSpot's own verification of the heap before and after each collection finds nothing."""
    config = configure(short_tmp, donors, "shm")
    flags = ["-XX:+UnlockDiagnosticVMOptions"]
    if collector == "Shenandoah":
        flags += ["-XX:+ShenandoahVerify"]
    else:
        flags += ["-XX:+VerifyBeforeGC", "-XX:+VerifyAfterGC", "-XX:+VerifyDuringGC"]
    churn = ("Churn", "90", "40000", "12", "2", "2")
    said = jvm.run(short_tmp, *on_donors(config, collector), *flags, *churn).stdout
    assert said.startswith("ok ")


@pytest.mark.parametrize(
    "collector",
    ["G1", *[pytest.param(one, marks=pytest.mark.slow) for one in COLLECTORS if one != "G1"]],
)
def test_garbage_is_discarded(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, collector: str
) -> None:
    """After a full collection donors do not keep what the program has dropped."""
    config = configure(short_tmp, donors, "shm")
    command = jvm.command(*on_donors(config, collector), "Drop", "150")
    with subprocess.Popen(
        command,
        env=jvm.environment(short_tmp),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        try:
            assert program.stdout.readline() == "full\n"
            full = ask(short_tmp, {"cmd": "status"}, "jvm")
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "dropped\n"
            dropped = ask(short_tmp, {"cmd": "status"}, "jvm")
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.wait(60) == 0
        finally:
            program.kill()
    # Generations keep the memory of eden and survivors, a third of the heap.
    most = HEAP_MIB // 3 + 16 if collector in ("Parallel", "Serial") else 16
    kept = dropped["direct_bytes"] + dropped["indirect_bytes"]
    assert full["direct_bytes"] + full["indirect_bytes"] >= 140 * MIB
    assert kept <= most * MIB and dropped["indirect_bytes"] < full["indirect_bytes"] / 2


@pytest.mark.slow
def test_javac(jvm: Jvm, donors: list[Donor], short_tmp: Path) -> None:
    """javac compiles a large program to the same bytes."""
    source = short_tmp / "Large.java"
    source.write_text(large_source(1500))
    config = configure(short_tmp, donors, "tcp")
    for out, flags in (("stock", [f"-Xmx{HEAP_MIB}m"]), ("ours", on_donors(config, "G1"))):
        jvm.run(short_tmp, *flags, *JAVAC, "-d", short_tmp / out, source, ours=out == "ours")
    made = sorted(path.name for path in (short_tmp / "stock").iterdir())
    assert made and made == sorted(path.name for path in (short_tmp / "ours").iterdir())
    for name in made:
        assert (short_tmp / "stock" / name).read_bytes() == (short_tmp / "ours" / name).read_bytes()


@pytest.mark.slow
def test_several_on_the_same_donors(
    jvm: Jvm, donors: list[Donor], short_tmp: Path, answer: str
) -> None:
    """Two JVMs at a time; a third is killed meanwhile, and leaves nothing on the donors."""
    running = []
    try:
        for name, collector in (("one", "G1"), ("two", "Parallel"), ("dies", "G1")):
            config = configure(short_tmp, donors, "tcp", name)
            command = jvm.command(*on_donors(config, collector), *CHURN)
            running.append(
                subprocess.Popen(
                    command, env=jvm.environment(short_tmp), stdout=subprocess.PIPE, text=True
                )
            )
        time.sleep(10)
        running[2].kill()
        running[2].wait()
        for program in running[:2]:
            said, _ = program.communicate(timeout=LIMIT_S)
            assert (program.returncode, said) == (0, answer)
    finally:
        for program in running:
            program.kill()
            program.communicate()
    deadline = time.monotonic() + 60
    while any(donor.metrics()["dcm_donor_used_bytes"] for donor in donors):
        assert time.monotonic() < deadline, "the donors still keep memory of JVMs that have ended"
        time.sleep(0.5)
