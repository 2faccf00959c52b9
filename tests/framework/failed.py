# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a test has failed so far, for fixtures that tell more then: item.stash[FAILED]."""

import pytest

FAILED = pytest.StashKey[bool]()
