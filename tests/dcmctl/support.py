# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls bin/dcmctl as a user does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DCMCTL = TOP / "bin" / "dcmctl"


class Cli:
    """bin/dcmctl with a runtime folder of its own."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.env = {
            k: v
            for k, v in os.environ.items()
            if k == "DCM_TEST_RUN" or (not k.startswith(("DCM_", "PYTHON")) and k != "LD_PRELOAD")
        }
        self.env["DCM_RUNTIME_DIR"] = str(runtime)

    def start(self, *args: object, **kwargs: object) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [str(DCMCTL), *map(str, args)],
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            **options,
        )

    def __call__(self, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        process = self.start(*args)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def fails(self, *args: object, status: int = 1) -> str:
        """Run a command that must fail; return its error line without the prefix."""
        done = self(*args)
        assert done.returncode == status, done
        assert done.stdout == ""
        assert done.stderr.startswith("dcmctl: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.removeprefix("dcmctl: ").rstrip("\n")

    def vm_files(self) -> list[str]:
        directory = self.runtime / "vm"
        return sorted(p.name for p in directory.iterdir()) if directory.exists() else []
