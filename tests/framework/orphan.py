# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that end when the process that started them is killed: no orphans."""

from __future__ import annotations

import os

# setpriv asks for the signal. A parent that was dead by then sends none: the shell, which begins
# after that, looks whether its parent is still the one that started it.
_SHELL = '[ "$PPID" = "$0" ] && exec "$@"'


def no_orphan(signal: str) -> list[str]:
    """What to put before a command, so that the program gets this signal when we end.

    Its parent is the thread that starts it: the signal comes when that thread ends.
    """
    return ["setpriv", "--pdeathsig", signal, "sh", "-c", _SHELL, str(os.getpid())]
