# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays systemd's descriptor store for a daemon under test.

The protocol is systemd's own and documented: sd_notify(3) for FDSTORE=1, FDSTOREREMOVE=1 and
FDNAME=; sd_listen_fds(3) for LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES and descriptors from 3 on.
As with NotifyAccess=main, messages of other processes than the daemon's own are ignored; as with
systemd, messages that the daemon sent before its death are handled before it counts as dead.
tests/vm has the same tests under a real systemd.

As a program, with the arguments FDS NAMES PID|- COMMAND..., this file executes the command as
systemd does.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import sys
import threading
from pathlib import Path

FIRST = 3
ROOM = 64 * 4
CREDENTIALS = "3i"


class Store:
    """One unit's store, and the socket that NOTIFY_SOCKET names."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.held: list[tuple[str, int]] = []
        self.main = 0  # the daemon's process id; 0: not known yet
        self.lines: list[str] = []  # other messages
        self.most = 1 << 16  # FileDescriptorStoreMax=
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(str(self.path))
        self.said = threading.Condition()
        self.marks = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            text, rest, _, _ = self.socket.recvmsg(4096, 4096)
            fds: list[int] = []
            pid = 0
            for level, kind, data in rest:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    got = array.array("i")
                    got.frombytes(data[: len(data) - len(data) % 4])
                    fds.extend(got)
                elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                    pid = struct.unpack(CREDENTIALS, data)[0]
            with self.said:
                if text == b"END":
                    return
                if text == b"MARK":
                    self.marks += 1
                elif self.main in (0, pid):
                    fds = self._take(text.decode(), fds)
                for fd in fds:
                    os.close(fd)
                self.said.notify_all()

    def _take(self, text: str, fds: list[int]) -> list[int]:
        """Handle one message; return those of its descriptors that are not stored."""
        said = dict(line.partition("=")[::2] for line in text.splitlines())
        name = said.get("FDNAME", "stored")
        if said.get("FDSTOREREMOVE") == "1":
            for n, fd in self.held:
                if n == name:
                    os.close(fd)
            self.held = [(n, fd) for n, fd in self.held if n != name]
        elif said.get("FDSTORE") == "1":
            room = max(0, self.most - len(self.held))
            self.held += [(name, fd) for fd in fds[:room]]
            return fds[room:]
        else:
            self.lines += text.splitlines()
        return fds

    def settle(self) -> None:
        """Wait until all messages that were sent before this call are handled."""
        with self.said:
            mark = self.marks + 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"MARK", str(self.path))
        with self.said:
            assert self.said.wait_for(lambda: self.marks >= mark, 60)

    def names(self) -> list[str]:
        self.settle()
        with self.said:
            return [name for name, _ in self.held]

    def slabs(self) -> int:
        return sum(name.startswith("dcm-slab-") for name in self.names())

    def fd(self, name: str) -> int:
        self.settle()
        with self.said:
            return next(fd for n, fd in self.held if n == name)

    def put(self, name: str, fd: int) -> None:
        """Store a descriptor as if the daemon had sent it; the store owns @fd from now on."""
        with self.said:
            self.held.append((name, fd))

    def drop(self, name: str) -> None:
        with self.said:
            self._take(f"FDSTOREREMOVE=1\nFDNAME={name}", [])

    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.path)}

    def command(self, pid: str = "-") -> tuple[list[str], list[int]]:
        """The command prefix that starts the daemon with its descriptors; these descriptors.

        `pid`: the process that LISTEN_PID names, if not the daemon.
        """
        self.settle()
        with self.said:
            fds = [fd for _, fd in self.held]
            names = ":".join(name for name, _ in self.held)
            self.main = 0
        # -IS makes Python start fast: hosts wait for the donor meanwhile
        return [sys.executable, "-IS", __file__, ",".join(map(str, fds)), names, pid], fds

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"END", str(self.path))
        self.thread.join()
        self.socket.close()
        for _, fd in self.held:
            os.close(fd)
        self.held = []


def execute(words: list[str]) -> None:
    """Execute the command, with the descriptors at the numbers from 3 on."""
    listed, names, pid, *command = words
    high = FIRST + len(listed) + 64
    given = [int(fd) for fd in listed.split(",") if fd]
    fds = [fcntl.fcntl(fd, fcntl.F_DUPFD, high) for fd in given]
    for fd in given:
        os.close(fd)
    if "--ready-fd" in command:
        at = command.index("--ready-fd") + 1
        ready = fcntl.fcntl(int(command[at]), fcntl.F_DUPFD, high)
        os.close(int(command[at]))
        command[at] = str(ready)
    for at, fd in enumerate(fds):
        os.dup2(fd, FIRST + at)
        os.close(fd)
    if fds:
        os.environ["LISTEN_PID"] = str(os.getpid()) if pid == "-" else pid
        os.environ["LISTEN_FDS"] = str(len(fds))
        os.environ["LISTEN_FDNAMES"] = names
    os.execvp(command[0], command)


if __name__ == "__main__":
    execute(sys.argv[1:])
