# SPDX-License-Identifier: GPL-2.0-or-later
"""The modules of bench/run and of the other benchmarks' programs."""
