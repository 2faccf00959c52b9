# SPDX-License-Identifier: GPL-2.0-or-later
"""What a crowd does to a donor's door: run as a program, it floods until its input ends.

    flood.py endless ADDRESS COUNT NAME KEY          COUNT connections that are refused for what
                                                     they said, and send on without end
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.donor.rawtls import HELLO, Tls, dial, hello, pack


JUNK = 16 << 20


def talk(address: str, name: str, key: bytes, made: threading.Semaphore) -> None:
    """A host of another version, refused and told so, that sends on; again when it is cut off."""
    # what is sent faster than it is read has no end
    junk = os.memfd_create("junk")
    os.ftruncate(junk, JUNK)
    text = bytes(JUNK)
    while True:
        tls = Tls(dial(address), name, key)
        tls.send(pack(HELLO, 1, hello(1, versions=(7, 8))))
        # much is on its way at any time: reading it to the end never ends
        tls.sock.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)  # SO_SNDBUFFORCE
        made.release()
        try:
            while True:
                if tls.sock.family == socket.AF_UNIX:
                    tls.sock.sendall(text)
                else:
                    os.sendfile(tls.sock.fileno(), junk, 0, JUNK)
        except OSError:
            tls.close()


def endless(address: str, count: int, name: str, key: bytes) -> None:
    made = threading.Semaphore(0)
    for _ in range(count):
        threading.Thread(target=talk, args=(address, name, key, made), daemon=True).start()
    for _ in range(count):
        made.acquire()
    print("made", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    os.nice(8)  # a crowd does not come from the donor's own processors
    endless(sys.argv[2], int(sys.argv[3]), sys.argv[4], bytes.fromhex(sys.argv[5]))
