# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point of `python3 -m dcmctl` and of the launcher, which runs this file."""

from __future__ import annotations

import os
import sys

if not __package__:
    # Run as a file with -I: the package's parent isn't on the path then.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from dcmctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
