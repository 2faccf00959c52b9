# SPDX-License-Identifier: GPL-2.0-or-later
"""A crowd of connections: run as a program, it floods a donor until its input ends.

    flood.py idle  ADDRESS COUNT FIRST SOURCES SAY   COUNT connections open at all times, from
                                                     FIRST and the addresses after it; each says
                                                     SAY (hexadecimal) and then nothing
    flood.py endless ADDRESS COUNT NAME KEY          COUNT connections that are refused for what
                                                     they said, and send on without end
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.donor.rawtls import HELLO, Tls, dial, hello, pack


JUNK = 16 << 20


def ended() -> bool:
    """The test has closed our input."""
    return bool(select.select([0], [], [], 0)[0])


def opened(address: str, source: str) -> socket.socket:
    """A connection under way."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        target: object = address[5:]
    else:
        sock = socket.socket()
        # many ports of one address are wanted: the pair must be new, not the port
        sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        sock.bind((source, 0))
        host, port = address.removeprefix("tcp:").rsplit(":", 1)
        target = (host, int(port))
    sock.setblocking(False)
    try:
        sock.connect(target)  # type: ignore[arg-type]
    except BlockingIOError:
        pass
    return sock


def idle(address: str, count: int, first: str, sources: int, say: bytes) -> None:
    start = int(ipaddress.IPv4Address(first))
    poll = select.epoll()
    live: dict[int, socket.socket] = {}
    made = 0
    complete = False
    while not ended():
        for _ in range(200):
            if len(live) >= count:
                break
            source = str(ipaddress.IPv4Address(start + made % sources))
            try:
                sock = opened(address, source)
            except OSError:
                break  # a full backlog of a unix socket, no port left: again in a moment
            made += 1
            live[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN | select.EPOLLOUT)
        for fd, events in poll.poll(0.001, 400):
            if events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLIN):
                poll.unregister(fd)
                live.pop(fd).close()
                continue
            poll.modify(fd, select.EPOLLIN)
            if say:
                try:
                    live[fd].send(say)
                except OSError:
                    pass
        if made >= count and not complete:
            complete = True
            print("made", flush=True)
    print(made, flush=True)


def talk(address: str, name: str, key: bytes, made: threading.Semaphore) -> None:
    """A host of another version sends on after it was refused; again after it is cut off."""
    # without a limit here, sending faster than the donor reads never ends
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
    if sys.argv[1] == "idle":
        idle(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]),
             bytes.fromhex(sys.argv[6]))
    else:
        endless(sys.argv[2], int(sys.argv[3]), sys.argv[4], bytes.fromhex(sys.argv[5]))
