# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on libraries that nobody here wrote; each checks its own answers."""

from __future__ import annotations

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.framework.paths import TOP

SOURCES = TOP / "tests" / "jvm" / "programs"
FETCH_S = 1800


@dataclass(frozen=True)
class RealProgram:
    """A program and its arguments: half or more of a heap of 256 MiB is alive, or of 96."""

    name: str
    args: tuple[str, ...]
    tiny: tuple[str, ...]


PROGRAMS = (
    RealProgram("Tpcc", ("10", "40000", "1"), ("3", "2000", "1")),
    RealProgram("Search", ("40000", "6", "1"), ("3000", "1", "1")),
    RealProgram("Graphs", ("60000", "1000", "1"), ("8000", "300", "1")),
    RealProgram("Cluster", ("700000", "12", "1"), ("20000", "5", "1")),
    RealProgram("Cached", ("100", "600000", "1"), ("30", "50000", "1")),
)


@functools.cache
def libraries() -> tuple[Path, ...]:
    """Their jars, which are fetched if they are not in the cache."""
    done = subprocess.run(
        [str(TOP / "scripts" / "java-libs")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=FETCH_S,
        check=True,
    )
    return tuple(sorted(Path(done.stdout.strip()).glob("*.jar")))


def class_path(classes: Path) -> str:
    """The class path for programs that are compiled in this folder."""
    return os.pathsep.join(map(os.fspath, (classes, *libraries())))


def compile_programs(javac: Path, classes: Path) -> None:
    """All of them, into this folder."""
    command = [str(javac), "-Xlint:all", "-Werror", "-cp", class_path(classes), "-d", str(classes)]
    subprocess.run(
        [*command, *(str(path) for path in sorted(SOURCES.glob("*.java")))],
        check=True,
        timeout=FETCH_S,
    )
