# SPDX-License-Identifier: GPL-2.0-or-later
"""This host's two pagers: their configurations, requests to them, and `dcmctl run`."""
