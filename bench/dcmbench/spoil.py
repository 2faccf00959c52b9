# SPDX-License-Identifier: GPL-2.0-or-later
"""Change the memory of a running donor behind its back, as a broken module or program would."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

from tests.framework.slabs import slab_memfds

PAGE = 4096


class Spoiler:
    """Spoils a donor's slabs: flips bits, copies pages over others, or brings back old contents."""

    def __init__(self, pid: int, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._slabs = [_mapped(link) for link in slab_memfds(pid)]
        self._before = [bytes(slab) for slab in self._slabs]
        self.changed = {"flip": 0, "swap": 0, "replay": 0}

    def spoil(self) -> None:
        """Spoil each page whose first 64 bytes are not all zero, in one of the three ways."""
        for slab, before in zip(self._slabs, self._before, strict=True):
            for at in range(0, len(slab), PAGE):
                now = slab[at : at + PAGE]
                if not any(now[:64]):
                    continue
                how = self._rng.choice(list(self.changed))
                if how == "flip":
                    bit = self._rng.randrange(PAGE * 8)
                    slab[at + bit // 8] ^= 1 << bit % 8
                else:
                    other = self._rng.randrange(len(slab) // PAGE) * PAGE
                    source = slab[other : other + PAGE] if how == "swap" else before[at : at + PAGE]
                    if source == now:
                        continue
                    slab[at : at + PAGE] = source
                self.changed[how] += 1

    def close(self) -> None:
        for slab in self._slabs:
            slab.close()


def _mapped(link: Path) -> mmap.mmap:
    fd = os.open(link, os.O_RDWR)
    try:
        return mmap.mmap(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
