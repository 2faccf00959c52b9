# SPDX-License-Identifier: GPL-2.0-or-later
"""HTTP servers: the operator's page and the exporter for Prometheus."""
