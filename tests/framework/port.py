# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports of 127.0.0.1 for daemons that end and come back on the same port."""

from __future__ import annotations

import random
import socket

# Below net.ipv4.ip_local_port_range, from which the kernel takes ports of outgoing connections:
# such a connection could take the port of a daemon that is restarting.
PORTS = range(10000, 32000)


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
