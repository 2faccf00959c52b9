# SPDX-License-Identifier: GPL-2.0-or-later
"""Databases, indexes, graphs and caches give the stock JVM's answers with their heap on donors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.jvm.real import PROGRAMS, RealProgram, class_path, compile_programs
from tests.jvm.support import COLLECTORS, HEAP_MIB, Jvm, configure, on_donors
from tests.jvm.test_mark import marked

pytestmark = pytest.mark.slow

# Cycles begin often, so that there are some.
OFTEN = ("-Xmn24m", "-XX:-G1UseAdaptiveIHOP", "-XX:InitiatingHeapOccupancyPercent=20")
DONORS = ("-XX:+DonorMark", "-XX:+DonorRebuild", "-XX:+DonorCompact")
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@pytest.fixture(scope="session")
def real(jvm: Jvm) -> Jvm:
    """Our JVM, with the programs among its classes."""
    compile_programs(jvm.home / "bin" / "javac", jvm.classes)
    return jvm


@pytest.fixture(scope="session")
def stock_answer(
    real: Jvm, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[RealProgram], str]:
    """The answer of the stock JVM, with all of its heap in memory."""

    @functools.cache
    def answer(program: RealProgram) -> str:
        folder = tmp_path_factory.mktemp("stock")
        flags = ["-cp", class_path(real.classes), f"-Xmx{HEAP_MIB}m"]
        return answer_of(real.run(folder, *flags, program.name, *program.args, ours=False).stdout)

    return answer


def answer_of(said: str) -> str:
    """The last line, which says that the program has found itself right."""
    lines = re.findall(r"^ok \S+$", said, re.M)
    assert len(lines) == 1, said
    return str(lines[0])


def run(real: Jvm, folder: Path, flags: list[str], program: RealProgram) -> str:
    """The program's output."""
    path = ["-cp", class_path(real.classes)]
    return real.run(folder, *flags, *path, program.name, *program.args).stdout


@each_program
def test_donors_help(
    real: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    stock_answer: Callable[[RealProgram], str],
    program: RealProgram,
) -> None:
    """They mark, find cards and compact, and the answer is the same."""
    config = configure(short_tmp, donors, "tcp")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *OFTEN, *DONORS]
    said = run(real, short_tmp, flags, program)
    assert answer_of(said) == stock_answer(program)
    assert marked(said), said
    assert "cannot read the heap" not in said and "not right" not in said, said


@pytest.mark.parametrize("collector", COLLECTORS)
def test_each_collector(
    real: Jvm,
    donors: list[Donor],
    short_tmp: Path,
    stock_answer: Callable[[RealProgram], str],
    collector: str,
) -> None:
    """A database whose heap a collector keeps on donors without their help."""
    config = configure(short_tmp, donors, "shm")
    said = run(real, short_tmp, on_donors(config, collector), PROGRAMS[0])
    assert answer_of(said) == stock_answer(PROGRAMS[0])


@each_program
def test_workers_that_are_killed(
    real: Jvm,
    own_donors: list[Donor],
    short_tmp: Path,
    stock_answer: Callable[[RealProgram], str],
    program: RealProgram,
) -> None:
    """Whatever donors are doing for it when their workers die, the answer is the same."""
    config = configure(short_tmp, own_donors, "shm")
    flags = [*on_donors(config, "G1", "gc", "gc+donor"), *OFTEN, *DONORS]
    path = ["-cp", class_path(real.classes)]
    _, said = real.run_while_workers_die(
        short_tmp, own_donors, 12, 1, *flags, *path, program.name, *program.args
    )
    assert answer_of(said) == stock_answer(program)
