# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths of the tree, the build and the cache."""

from __future__ import annotations

import os
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD") or TOP / "build")
DONORD = BUILD / "bin" / "dcm-donord"
LIBDCM = BUILD / "lib" / "libdcm.so"
PRELOAD = BUILD / "lib" / "libdcm-preload.so"
DCMCTL = TOP / "bin" / "dcmctl"


def cache() -> Path:
    """The cache: the folder for results that are slow to make; the scripts use it too."""
    if "DCM_CACHE" in os.environ:
        return Path(os.environ["DCM_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kvm-dcm"
