# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors: those this host uses, those that etcd names, and what all VMs and donors tell."""
