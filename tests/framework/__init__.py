# SPDX-License-Identifier: GPL-2.0-or-later
"""For all tests: paths, real donors, relays, and the search for what a test left behind."""
