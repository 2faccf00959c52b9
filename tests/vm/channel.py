# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests' half of the protocol that payload/agent.py speaks."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.guest.vmharness import GuestError, GuestGone

SEND_LIMIT_S = 60
Answer = tuple[dict[str, Any], bytes]


class Channel:
    """Questions to the agent, from any thread; each answer finds its asker."""

    def __init__(self, sock: socket.socket, alive: Callable[[], str], least: float = 0) -> None:
        """`alive` says why L1 can't answer any more, or nothing; `least`: waited for any answer."""
        self._sock = sock
        self._least = least
        self._alive = alive
        # An agent that reads no more must not hang a test that writes.
        limit = struct.pack("@ll", SEND_LIMIT_S, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Answer | None]] = {0: queue.SimpleQueue()}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(10)
        self._sock.close()

    def hello(self, timeout: float) -> dict[str, Any]:
        """The agent's message when it starts."""
        return self._wait(0, timeout, "start")[0]

    def ask(self, do: str, timeout: float, body: bytes = b"", /, **head: Any) -> Answer:
        number = next(self._numbers)
        self._answers[number] = queue.SimpleQueue()
        try:
            self._send({"id": number, "do": do, **head}, body)
            reply, data = self._wait(number, timeout, do)
        finally:
            del self._answers[number]
        if "error" in reply:
            raise GuestError(f"{do}: {reply['error']}")
        return reply, data

    def stream(self, path: str, timeout: float) -> socket.socket:
        """A UNIX socket in L1; close it as any other."""
        number = next(self._numbers)
        answers = self._answers[number] = queue.SimpleQueue()
        try:
            self._send({"id": number, "do": "stream", "path": path}, b"")
            reply, _ = self._wait(number, timeout, f"connect to {path}")
            if "error" in reply:
                raise ConnectionError(f"{path} in L1: {reply['error']}")
        except BaseException:
            del self._answers[number]
            raise
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._from, args=(number, theirs), daemon=True).start()
        threading.Thread(target=self._into, args=(number, theirs, answers), daemon=True).start()
        return ours

    def _from(self, number: int, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, GuestError):
            while data := sock.recv(65536):
                self._send({"id": number, "do": "data"}, data)
        with contextlib.suppress(OSError, GuestError):
            self._send({"id": number, "do": "data"}, b"")

    def _into(
        self, number: int, sock: socket.socket, answers: queue.SimpleQueue[Answer | None]
    ) -> None:
        with contextlib.suppress(OSError):
            while (answer := answers.get()) and "end" not in answer[0]:
                sock.sendall(answer[1])
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        self._answers.pop(number, None)

    def _send(self, head: dict[str, Any], body: bytes) -> None:
        head["n"] = len(body)
        try:
            with self._lock:
                self._sock.sendall(json.dumps(head).encode() + b"\n" + body)
        except BlockingIOError:
            raise GuestError(f"L1 took nothing for {SEND_LIMIT_S} s") from None
        except OSError as err:
            raise GuestGone(self._alive() or f"the agent's port: {err}") from None

    def _wait(self, number: int, timeout: float, what: str) -> Answer:
        answers = self._answers[number]
        timeout = max(timeout, self._least)
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = answers.get(timeout=0.5)
            except queue.Empty:
                if why := self._alive():
                    raise GuestGone(why) from None
                if time.monotonic() > deadline:
                    raise GuestError(f"no answer from L1 in {timeout:.0f} s: {what}") from None
                continue
            if answer is not None:
                return answer
            # QEMU closed the port: it is ending, and will soon have a status.
            answers.put(None)
            deadline = min(deadline, time.monotonic() + 10)
            while not (why := self._alive()) and time.monotonic() < deadline:
                time.sleep(0.05)
            raise GuestGone(why or "QEMU closed the agent's port")

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._sock.makefile("rb") as port:
            while line := port.readline():
                head = json.loads(line)
                body = port.read(head["n"])
                if (found := self._answers.get(head["id"])) is not None:
                    found.put((head, body))
        for waiting in list(self._answers.values()):
            waiting.put(None)
