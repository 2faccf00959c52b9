# SPDX-License-Identifier: GPL-2.0-or-later
"""hog.py SECONDS - use up all memory of the machine, again and again, until killed

Each child takes 64 MiB and keeps it; the OOM killer ends children when no memory is left. The next
child starts after SECONDS. With a short interval the OOM killer would choose a second victim while
the first one is still freeing its memory.
"""

from __future__ import annotations

import mmap
import os
import sys
import time

AT_ONCE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE


def take(parent: int) -> None:
    """Run the child: take memory and keep it as long as the parent lives."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    kept = [mmap.mmap(-1, 2 << 20, flags=AT_ONCE) for _ in range(32)]
    while kept and os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def main() -> None:
    parent, pause = os.getpid(), float(sys.argv[1])
    while True:
        if not os.fork():
            take(parent)
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        time.sleep(pause)


if __name__ == "__main__":
    main()
