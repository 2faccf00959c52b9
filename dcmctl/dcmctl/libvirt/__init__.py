# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of libvirt whose memory is on donors: the hook, dcm-qemu and `dcmctl vm`."""
