# SPDX-License-Identifier: GPL-2.0-or-later
"""A page of docs/ as a program: its commands, and what it says that they print.

Commands are in indented blocks, behind "$ "; a here document and what ends in a backslash go on.
What follows up to the next command is what it prints to its standard output. "..." stands for
anything in a line, or, alone in a line, for any lines; how many spaces there are does not count.
Each line of each such block belongs to one of them: no command is there that nobody runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

INDENT = "    "
Shell = Callable[[str], tuple[int, str, str]]  # exit status, output, errors


class WalkError(Exception):
    """The page is wrong: in what it is, or in what it says."""


@dataclass
class Step:
    """One command."""

    line: int
    section: str
    command: str
    prints: list[str] = field(default_factory=list)

    def run(self, shell: Shell) -> str:
        """The line's output; an error if the command fails, or prints something else."""
        status, out, err = shell(self.command)
        if status:
            raise WalkError(f"line {self.line}: '{self.command}' ends with {status}: {out}{err}")
        if self.prints and not re.fullmatch(_pattern(self.prints), _plain(out.splitlines())):
            want = "\n".join(self.prints)
            raise WalkError(f"line {self.line}: '{self.command}' prints\n{out}\nand not\n{want}")
        return out


def _plain(lines: list[str]) -> str:
    """Without blank lines, and what aligns columns."""
    squeezed = (re.sub(r"\s+", " ", line).strip() for line in lines)
    return "".join(f"{line}\n" for line in squeezed if line)


def _pattern(lines: list[str]) -> str:
    parts = []
    for line in _plain(lines).splitlines():
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(part) for part in line.split("...")) + r"\n")
    return "".join(parts)


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Those of blocks: number, section, text without its indentation; between blocks a ''."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith(INDENT):
            yield number, section, line[len(INDENT) :]
        elif line:
            yield number, section, ""


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    now: Step | None = None
    until = ""  # a line that ends the here document
    for number, section, line in _lines(text):
        if until or (now is not None and now.command.endswith("\\")):
            if not line:
                raise WalkError(f"line {number}: the command before it does not end")
            assert now is not None
            now.command += f"\n{line}"
            if line == until:
                until = ""
        elif line.startswith("$ "):
            now = Step(number, section, line[2:])
            found.append(now)
        elif not line:
            now = None
            continue
        elif now is None:
            raise WalkError(f"line {number}: '{line}' belongs to no command")
        else:
            now.prints.append(line)
        assert now is not None
        here = re.search(r"<<'?(\w+)'?$", line)
        if here and line.startswith("$ "):
            until = here[1]
    if until:
        raise WalkError(f"a here document does not end with {until}")
    return found
