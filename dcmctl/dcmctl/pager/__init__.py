# SPDX-License-Identifier: GPL-2.0-or-later
"""This host's two pagers: what is configured for them, how they are asked, `dcmctl run`."""
