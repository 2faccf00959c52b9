# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands in L1: what came of one, and one that goes on."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from tests.guest.vmharness import GuestError
from tests.vm.channel import Channel

Command = str | Sequence[str]


class CommandTimeout(GuestError):
    """A command took too long and was ended; what it said is in the message."""


class Ran(NamedTuple):
    """The result of a command."""

    rc: int
    stdout: str
    stderr: str

    @classmethod
    def of(cls, status: int, out: int, data: bytes) -> Ran:
        """From the agent's answer: `out` bytes of the data are standard output's."""
        return cls(status, data[:out].decode(errors="replace"), data[out:].decode(errors="replace"))


class Job:
    """A command in L1 that goes on; asked like subprocess.Popen."""

    def __init__(self, channel: Channel, number: int, pid: int, command: Command) -> None:
        self.command = command
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel
        self._number = number

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        limit = 3600.0 if timeout is None else timeout
        status = self._wait(limit)
        if status is None:
            raise subprocess.TimeoutExpired(str(self.command), limit)
        return status

    def _wait(self, timeout: float) -> int | None:
        if self.returncode is None:
            reply, _ = self._channel.ask("wait", timeout + 30, job=self._number, timeout=timeout)
            self.returncode = reply["status"]
        return self.returncode

    def signal(self, number: int) -> None:
        """To the process and all that it started (but for new sessions)."""
        self._channel.ask("signal", 30, job=self._number, signal=number)

    def end(self, timeout: float = 10) -> int:
        """End it and all that it started, the polite way first; its status."""
        if self.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(timeout)
        self._channel.ask("kill", 30, job=self._number)
        return self.wait(1)

    def output(self) -> Ran:
        """The command's output so far; rc is -1 while it runs."""
        reply, data = self._channel.ask("output", 60, job=self._number)
        status = self.poll()
        return Ran.of(-1 if status is None else status, reply["out"], data)
