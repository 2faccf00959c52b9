# SPDX-License-Identifier: GPL-2.0-or-later
"""Helpers for all tests: paths, real donors, relays, and the search for leftovers of a test."""
