# SPDX-License-Identifier: GPL-2.0-or-later
"""item.stash[FAILED]: whether a test has failed so far. Fixtures print more if it has."""

import pytest

FAILED = pytest.StashKey[bool]()
