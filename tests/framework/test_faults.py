# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/faults: the report on a row that hangs, and how rows end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.faults import schedule
from tests.framework.leftovers import kill, processes
from tests.framework.paths import TOP
from tests.framework.until import until

# A row that waits for a program that never answers, as if its fault were not served.
ASKS = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {top!r})
from tests.faults import stuck
scratch = Path(sys.argv[-1])
stuck.note_at_end(scratch)
(scratch / "d").mkdir()
(scratch / "d" / "donor.log").write_text("a line\\nthe donor's last word\\n")
sys.path.insert(0, sys.argv[1])
import row
row.step("second")
"""
ROW = """
import subprocess
def step(name):
    with subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE) as program:
        try:
            program.stdout.readline()
        finally:
            program.kill()
"""


def test_a_row_that_stands_still_says_what_it_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "tests"  # the report names lines only in code in a folder "tests"
    folder.mkdir()
    (folder / "row.py").write_text(ROW)
    words = [sys.executable, "-IS", "-c", ASKS.format(top=str(TOP)), str(folder)]
    quick = schedule.Task("quick", [sys.executable, "-IS", "-c", "pass"], True, 60)
    outcome = schedule.run([schedule.Task("stands", words, True, 3), quick])
    [cell] = outcome.cells["stands"]
    assert not cell.ok and cell.value is None
    assert "took longer than 3 s" in cell.note
    assert "row.py:6 `program.stdout.readline()`" in cell.note, cell.note
    said = outcome.end()
    assert "sleep 1000: sleep S" in said, said
    assert "d/donor.log: the donor's last word" in said
    assert outcome.seconds["stands"] < 30 and "quick" in outcome.seconds
    assert "quick" not in outcome.stood
    assert not processes(f"faults-{os.getpid()}-stands")


KILLED = """
import sys
sys.path.insert(0, {top!r})
from tests.faults import schedule
row = [sys.executable, "-IS", "-c", "import time; time.sleep(1000)"]
schedule.run([schedule.Task("lives", row, True, 600)])
"""


def test_a_row_lives_on_after_make_is_killed() -> None:
    """The row's process is in a session of its own, so signals to make do not reach it."""
    words = [sys.executable, "-IS", "-c", KILLED.format(top=str(TOP))]
    with subprocess.Popen(words) as make:
        run_id = f"faults-{make.pid}-lives"
        try:
            row = until(lambda: processes(run_id))
            line = Path(f"/proc/{row[0][0]}/cmdline").read_text().split("\0")
            scratch = Path(line[line.index("--scratch") + 1])
            assert scratch.name.startswith("dcm-f-") and scratch.is_dir()
        finally:
            make.kill()
    try:
        until(lambda: not processes(run_id))
    finally:
        kill(run_id)
        shutil.rmtree(scratch)
