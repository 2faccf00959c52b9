# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/vm/walk.py, which runs the commands of a page of docs/; tests/vm runs the page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.framework.paths import TOP
from tests.vm.walk import WalkError, steps

PAGE = """# A page

Text, and `$ not a command`.

## One

    $ cat >file <<'END'
    a  b
    $ no command
    END
    $ cat file
    a b
    ...

Between.

    $ printf '%s\\n' \\
        x y
    x
    y

## Two

    $ echo  1.5 of   2M
    ... of 2M
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shell(command: str) -> tuple[int, str, str]:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_runs_as_printed() -> None:
    found = steps(PAGE)
    assert [step.section for step in found] == ["One", "One", "One", "Two"]
    assert found[0].command == "cat >file <<'END'\na  b\n$ no command\nEND"
    for step in found:
        step.run(shell)
    assert Path("file").read_text() == "a  b\n$ no command\n"


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        ("cat file", "cat fil", "ends with 1"),
        ("    a b\n", "    a c\n", "and not"),
        ("    a b\n", "    a b\n    $ no command\n    more\n", "and not"),
        ("    x\n    y\n", "    y\n    x\n", "and not"),
        ("... of 2M", "... of 2G", "and not"),
        ("Between.", "    Between.", "and not"),
        ("Text", "    a command without its sign\n\nText", "belongs to no command"),
        ("    END\n", "\nThe end.\n\n", "does not end"),
    ],
)
def test_what_is_wrong_in_a_page_fails(right: str, wrong: str, why: str) -> None:
    page = PAGE.replace(right, wrong, 1)
    assert page != PAGE
    with pytest.raises(WalkError, match=why):
        for step in steps(page):
            step.run(shell)


def test_all_of_the_page_is_run() -> None:
    """Each line of a code block is a command, or output of one."""
    text = (TOP / "docs" / "first-vm.md").read_text()
    found = steps(text)
    assert len(found) == text.count("\n    $ ") > 20
    assert {step.section[:1] for step in found} == set("123456")
