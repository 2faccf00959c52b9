# SPDX-License-Identifier: GPL-2.0-or-later
"""Text and values that every other package uses: addresses, keys, sizes, tables, errors."""
