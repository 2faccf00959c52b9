# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests share: paths, donors to talk to, and the search for what a test left behind."""
