# SPDX-License-Identifier: GPL-2.0-or-later
"""Print values on standard output as JSON, for programs."""

from __future__ import annotations

import json


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))
