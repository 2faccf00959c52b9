# SPDX-License-Identifier: GPL-2.0-or-later
"""The attacks of strangers and tenants on a donor or a page: a program of its own.

attack.py WHAT ADDRESS COUNT [TENANT HEXKEY]

It says "at it" when all of its connections were there once, and goes on until its standard input
ends. A connection that is ended by the other side is made again.

    idle     connections without a byte
    junk     a key is shown, HELLO is refused, then bytes without end
    keepalive  requests of a web page, again and again, without a token
    write    data connections of one session each, which write as fast as they can
    knock    TLS connections that show the key and end, as fast as they can

When it ends, write says how many bytes were written meanwhile.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.donor.rawtls import (  # noqa: E402
    CONTROL_ROLE,
    HELLO,
    Closed,
    Control,
    Refused,
    Tls,
    TlsError,
    dial,
    hello,
    pack,
)

FAILED = (OSError, Closed, Refused, TlsError, AssertionError)
JUNK = os.urandom(1 << 16)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(address: str) -> socket.socket:
    """It does not wait, not even for the connection."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.connect(address[5:])
        return sock
    host, port = address.removeprefix("tcp:").rsplit(":", 1)
    sock = socket.socket()
    sock.setblocking(False)
    if host == "127.0.0.1":
        sock.bind(("127.0.0.2", 0))  # not the operator's
    sock.connect_ex((host, int(port)))
    return sock


def at_it() -> None:
    print("at it", flush=True)


def idle(address: str, count: int, send: bytes = b"") -> None:
    """Hold `count` connections; with `send`, send that every second."""
    poll = select.epoll()
    held: dict[int, socket.socket] = {}
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    complete, beat, made = False, 0.0, 0
    while True:
        burst = 0
        # Once all were there, those that were ended are made again more slowly.
        while len(held) < count and burst < (10 if complete else 200):
            burst += 1
            made += 1
            try:
                sock = connect(address)
            except OSError:
                break  # a full queue of a UNIX socket: later
            held[sock.fileno()] = sock
            poll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        if made >= count and not complete:
            complete = True
            at_it()
        if send and time.monotonic() > beat:
            beat = time.monotonic() + 1
            for sock in held.values():
                try:
                    sock.send(send)
                except OSError:
                    pass
        for fd, event in poll.poll(0.02):
            if fd == sys.stdin.fileno():
                return
            try:
                gone = not held[fd].recv(1 << 16) or event & (select.EPOLLERR | select.EPOLLHUP)
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                poll.unregister(fd)
                held.pop(fd).close()


class Many:
    """A thread for each connection, until standard input ends."""

    def __init__(self, count: int) -> None:
        self.count, self.over = count, False
        self.begun = threading.Semaphore(0)

    def forever(self, number: int) -> None:
        first = True
        while not self.over:
            try:
                self.once(number)
            except FAILED:
                time.sleep(0.01)
            if first:
                first = False
                self.begun.release()

    def once(self, number: int) -> None:
        raise NotImplementedError

    def run(self) -> None:
        for number in range(self.count):
            threading.Thread(target=self.forever, args=(number,), daemon=True).start()
        for _ in range(self.count):
            self.begun.acquire()
        before = self.said()
        at_it()
        sys.stdin.read()
        self.over = True
        print(self.said() - before, flush=True)
        os._exit(0)

    def said(self) -> int:
        """Bytes written so far, if this attack writes."""
        return 0


class Junk(Many):
    """Sends on after a refusal, and reads nothing."""

    def __init__(self, count: int, address: str, name: str, key: bytes) -> None:
        super().__init__(count)
        self.who = (address, name, key)

    def once(self, number: int) -> None:
        address, name, key = self.who
        tls = Tls(dial(address, 2), name, key)
        try:
            tls.send(pack(HELLO, 1, hello(CONTROL_ROLE, versions=(99, 99))))
            self.begun.release()
            end = time.monotonic() + 20
            while not self.over and time.monotonic() < end:
                tls.sock.send(JUNK)
        finally:
            tls.close()


class Knock(Many):
    """Handshakes, which cost the donor more than most."""

    def __init__(self, count: int, address: str, name: str, key: bytes) -> None:
        super().__init__(count)
        self.who = (address, name, key)

    def once(self, number: int) -> None:
        Tls(dial(self.who[0], 2), *self.who[1:]).close()


class Write(Many):
    """Data connections, eight writes of 64 KiB on their way on each."""

    def __init__(self, count: int, address: str, name: str, key: bytes) -> None:
        super().__init__(count)
        self.control = Control(address, name, key, timeout=20)
        self.slab = self.control.map()
        self.written = [0] * count
        threading.Thread(target=self.beats, daemon=True).start()

    def said(self) -> int:
        return sum(self.written)

    def beats(self) -> None:
        while not self.over:
            self.control.beat()
            time.sleep(0.5)

    def once(self, number: int) -> None:
        data = self.control.data()
        data.tls.sock.settimeout(None)
        one = data.write_bytes(self.slab.id, (number % 16) << 16, JUNK)
        self.begun.release()
        try:
            for _ in range(7):
                data.tls.send(one)
            while not self.over:
                data.tls.send(one)
                data.answer(51)
                self.written[number] += len(JUNK)
        finally:
            data.close()


def main() -> None:
    what, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if what in ("idle", "keepalive"):
        idle(address, count, GET if what == "keepalive" else b"")
        return
    kinds = {"junk": Junk, "knock": Knock, "write": Write}
    kinds[what](count, address, sys.argv[4], bytes.fromhex(sys.argv[5])).run()


if __name__ == "__main__":
    main()
