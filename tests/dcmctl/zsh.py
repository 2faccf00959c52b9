# SPDX-License-Identifier: GPL-2.0-or-later
"""A real zsh on a terminal of its own that reports its completions of a line."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

# Matches that the completion adds go to the pipe; calls that only count or filter do not.
SETUP = r"""
PROMPT=; RPROMPT=; LISTMAX=100000
fpath=({folder} $fpath)
autoload -Uz compinit && compinit -D -u || print -u $told 'no compinit'
compadd() {{
	if [[ " ${{(j: :)@}} " != *' '-(O|A|D)' '* ]]; then
		local -a hits
		builtin compadd -A hits "$@"
		(( $#hits )) && print -rlu $told -- "$hits[@]"
	fi
	builtin compadd "$@"
}}
told-all() {{ print -ru $told -- {end}; comppostfuncs=(told-all) }}
comppostfuncs=(told-all)
bindkey '^I' complete-word '^U' kill-whole-line
print -ru $told -- {end}
"""
END = "-- all --"


class Zsh:
    """Use it as a context manager."""

    def __init__(self, folder: Path, env: Mapping[str, str], work: Path) -> None:
        pipe = work / "told"
        os.mkfifo(pipe)
        setup = work / "setup.zsh"
        quoted = shlex.quote(END)
        setup.write_text(SETUP.format(folder=shlex.quote(str(folder)), end=quoted))
        self._terminal, there = pty.openpty()
        self._process = subprocess.Popen(
            ["zsh", "-fi"], stdin=there, stdout=there, stderr=there, start_new_session=True,
            env={**env, "TERM": "dumb", "ZDOTDIR": str(work)}, cwd=work,
        )  # fmt: skip
        os.close(there)
        # Drain the output, which no test reads.
        self._drain = threading.Thread(target=self._read, daemon=True)
        self._drain.start()
        self._told = os.fdopen(os.open(pipe, os.O_RDWR), encoding="utf-8")
        self._type(f"exec {{told}}>{shlex.quote(str(pipe))}; source {shlex.quote(str(setup))}\n")
        first = self._offered()
        assert first == [], first

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self._terminal, 65536):
                pass

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _offered(self) -> list[str]:
        found: list[str] = []
        while (line := self._told.readline().rstrip("\n")) != END:
            found.append(line)
        return found

    def complete(self, line: str) -> list[str]:
        """The completions of the last word, sorted."""
        self._type("\x15" + line + "\t")
        return sorted(set(self._offered()))

    def __enter__(self) -> Zsh:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
        self._told.close()
