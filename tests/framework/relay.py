# SPDX-License-Identifier: GPL-2.0-or-later
"""A TCP relay in front of a donor. It can hold a host's bytes, cut, and deliver the bytes late."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

READ_BYTES = 1 << 16
T = TypeVar("T")


class _Way:
    """One connection through the relay; the host's bytes are forwarded or held."""

    def __init__(self, host: socket.socket, held: bool) -> None:
        self.host = host
        self.donor = socket.socket()
        self.donor.setblocking(False)
        self.holding = held
        self.cut = False
        self.held = b""
        self.change = asyncio.Event()

    async def from_host(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run until the host closes the connection, or it is cut and held bytes are delivered."""
        while not self.cut:
            try:
                data = await asyncio.wait_for(loop.sock_recv(self.host, READ_BYTES), 0.05)
            except TimeoutError:
                data = None
            if data == b"" and not self.cut:
                break
            self.held += data or b""
            if not self.holding and self.held:
                out, self.held = self.held, b""
                await loop.sock_sendall(self.donor, out)
        while self.cut and self.holding:
            await self.change.wait()
            self.change.clear()
        if self.held:
            await loop.sock_sendall(self.donor, self.held)
        self.donor.shutdown(socket.SHUT_WR)

    async def from_donor(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forward the donor's answers, which are never held."""
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self.donor, READ_BYTES):
                if not self.cut:
                    await loop.sock_sendall(self.host, data)
            self.host.shutdown(socket.SHUT_WR)

    def reset(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reset the host's side of the connection, and keep the bytes that it sent."""
        with contextlib.suppress(BlockingIOError, OSError):
            while data := self.host.recv(READ_BYTES):
                self.held += data
        self.cut = True
        # Otherwise the loop would take the next socket with this number for the closed one.
        loop.remove_reader(self.host)
        loop.remove_writer(self.host)
        self.close_host()

    def close_host(self) -> None:
        """Close the host's side with RST."""
        with contextlib.suppress(OSError):
            self.host.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.host.close()


class LateRelay(threading.Thread):
    """Forwards connections on loopback to `target`; a context manager.

    hold() keeps the bytes that hosts send from now on, on present and later connections. cut()
    resets the host's side of connections that hold many bytes, and forwards those of the others.
    release() delivers the bytes of cut connections, long after the host has given them up. open()
    forwards later connections too. A network with deep buffers, or a middlebox, behaves like this.
    """

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ways: list[_Way] = []
        self._holding = False
        self._main: asyncio.Task[None] | None = None
        self._up = threading.Event()

    def __enter__(self) -> LateRelay:
        self.start()
        self._up.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._main is not None:
            self._loop.call_soon_threadsafe(self._main.cancel)
        self.join()
        self._listener.close()

    def run(self) -> None:
        """The thread."""
        self._main = self._loop.create_task(self._accept())
        self._loop.call_soon(self._up.set)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _call(self, function: Callable[[], T]) -> T:
        async def wrapped() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(10)

    def hold(self) -> None:
        """Hold the bytes that hosts send from now on."""

        def hold() -> None:
            self._holding = True
            for way in self._ways:
                way.holding = True

        self._call(hold)

    def held(self) -> int:
        """The number of bytes held of connections that are not cut."""
        return self._call(lambda: sum(len(way.held) for way in self._ways if not way.cut))

    def cut(self, large: int = READ_BYTES) -> int:
        """Reset connections that hold `large` bytes or more; forward others.

        Return the number of connections that were reset.
        """

        def cut() -> int:
            chosen = [way for way in self._ways if len(way.held) >= large]
            for way in chosen:
                way.reset(self._loop)
            for way in self._ways:
                if not way.cut:
                    way.holding = False
            return len(chosen)

        return self._call(cut)

    def release(self) -> int:
        """Deliver the held bytes of cut connections; return the number of bytes."""

        def release() -> int:
            late = [way for way in self._ways if way.cut]
            for way in late:
                way.holding = False
                way.change.set()
            return sum(len(way.held) for way in late)

        return self._call(release)

    def open(self) -> None:
        """Forward bytes from now on, on later connections too."""

        def opened() -> None:
            self._holding = False
            for way in self._ways:
                way.holding = False
                way.change.set()

        self._call(opened)

    async def _accept(self) -> None:
        while True:
            host, _ = await self._loop.sock_accept(self._listener)
            host.setblocking(False)
            host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._relay(_Way(host, self._holding)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, way: _Way) -> None:
        self._ways.append(way)
        back: asyncio.Task[None] | None = None
        try:
            await self._loop.sock_connect(way.donor, ("127.0.0.1", self.target))
            way.donor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = self._loop.create_task(way.from_donor(self._loop))
            with contextlib.suppress(OSError):
                await way.from_host(self._loop)
            await back
        finally:
            if back is not None:
                back.cancel()
            way.close_host()
            way.donor.close()
            self._ways.remove(way)
