# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of a benchmark: which rows to measure, how often, from which build."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import report

ROOT = Path(__file__).resolve().parent.parent.parent
# Makes the functions that measure rows, by id. Arguments: the build directory, the number of runs
# for a median, --tiny, and a temporary folder.
Measures = Callable[[Path, int, bool, Path], Mapping[str, Callable[[], report.Row]]]


def run(about: str, name: str, ids: Sequence[str], measures: Measures) -> int:
    """Measure rows, print them, write them to build/bench/NAME.json; return the exit status."""
    file = f"{name}.json"
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build directory")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(ids),
        metavar="ID",
        help="measure this row only, several times for several; the others stay as they are in "
        f"{file} (rows: {', '.join(ids)})",
    )
    parser.add_argument(
        "--resume", action="store_true", help=f"measure only what {file} does not have"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs a median is taken of (3)")
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="try that everything runs, with sizes whose figures mean nothing; into "
        "build/bench/tiny/",
    )
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="then write docs/benchmarks.md's tables and docs/pictures/ from all rows that are "
        "there",
    )
    given = parser.parse_args()
    if given.repeat < 1:
        parser.error("--repeat: at least 1")
    if given.tiny and given.write_docs:
        parser.error("--tiny: no figures for the documents")
    build = given.build.resolve()
    out = build / "bench" / ("tiny" if given.tiny else ".")
    store = report.Store(out / file, list(ids))
    wanted = [i for i in ids if not given.only or i in given.only]
    if given.resume:
        wanted = [i for i in wanted if not store.measured(i)]
    report.write_machine(out)
    with tempfile.TemporaryDirectory(prefix=f"dcm-bench-{name}-") as folder:
        by_id = measures(build, given.repeat, given.tiny, Path(folder))
        rows = report.measure(wanted, by_id, store, report.Progress())
    print(report.table(rows))
    print(f"written: {store.path}")
    if given.write_docs:
        report.write_docs(ROOT, out)
    return 0
