# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point of `python3 -m dcmctl` and of the launcher, which runs this file.

A Python older than 3.11 must be able to parse this one file, which then executes the
python3 on PATH if that is another one, or else prints that Python is too old.
"""

from __future__ import annotations

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this file
    import shutil

    other = shutil.which("python3")
    tried = os.environ.pop("DCMCTL_PYTHON_TRIED", None)
    if other and not tried and os.path.realpath(other) != os.path.realpath(sys.executable):
        os.environ["DCMCTL_PYTHON_TRIED"] = "1"
        os.execv(other, [other, "-I", *sys.argv])
    sys.exit("dcmctl: needs Python 3.11 or later as /usr/bin/python3 or as python3 on PATH")

os.environ.pop("DCMCTL_PYTHON_TRIED", None)

if not __package__:
    # The launcher runs this file with -I: sys.path lacks the package's parent folder then.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from dcmctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
