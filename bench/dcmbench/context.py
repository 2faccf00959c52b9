# SPDX-License-Identifier: GPL-2.0-or-later
"""What every measurement needs to know."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from dcmbench.host import BenchError, Ledger
from dcmbench.report import Progress

MIB = 1 << 20
RUN_MAX_S = 14 * 60.0  # the whole run takes less than a quarter of an hour


@dataclasses.dataclass
class Context:
    """Paths, the ledger, and how much to repeat."""

    root: Path
    build: Path
    cache: Path
    scratch: Path
    ledger: Ledger
    progress: Progress
    repeat: int
    raw: Raw | None = None
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def program(self, name: str) -> Path:
        return self.build / "bench" / "bin" / name

    def check_time(self) -> None:
        """Before anything long: is there time for it?"""
        if self.progress.elapsed() > RUN_MAX_S:
            raise BenchError(f"no time left: the run is limited to {RUN_MAX_S / 60:.0f} minutes")

    @property
    def donord(self) -> Path:
        return self.build / "bin" / "dcm-donord"

    @property
    def libdir(self) -> Path:
        return self.build / "lib"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that load libdcm or are started by dcmctl."""
        runtime = self.scratch / "run"
        runtime.mkdir(exist_ok=True)
        return {
            "LD_LIBRARY_PATH": os.fspath(self.libdir),
            "DCM_LIBDIR": os.fspath(self.libdir),
            "DCM_RUNTIME_DIR": os.fspath(runtime),
        }


@dataclasses.dataclass(frozen=True)
class Raw:
    """The machine's own round trips, in ns: medians by placement."""

    uffd: dict[str, float]
    tcp: dict[str, float]

    @property
    def best_uffd(self) -> float:
        return min(self.uffd.values())

    @property
    def best_tcp(self) -> float:
        return min(self.tcp.values())

    def text(self) -> str:
        def one(values: dict[str, float]) -> str:
            return ", ".join(f"{k} {v / 1e3:.1f}" for k, v in values.items())

        return f"RAW us by placement: {one(self.uffd)}; raw TCP us: {one(self.tcp)}"
