# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors: those that this host uses, those in etcd, and the state of all VMs and donors."""
