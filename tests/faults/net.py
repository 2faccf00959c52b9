# SPDX-License-Identifier: GPL-2.0-or-later
"""A network of namespaces: leaves, each with an address of its own, around a router that can fail.

Leaves are joined to the router by veth. What is cut is dropped in the router, in silence, as a
switch that fails does: neither end is told. netem, where the kernel has it, makes the ways slow,
lossy and out of order. All goes with the block; sweep() takes away what a killed run left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

NAMES = Path("/run/netns")
PREFIX = "dcm-f"
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NetError(Exception):
    """The network can't be made; the text says why."""


def ip(*words: str, tool: str = "ip", text: str | None = None) -> None:
    """Run ip(8) or tc(8), with `text` as its input."""
    done = subprocess.run([tool, *words], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetError(f"{tool} {' '.join(words)}: {done.stderr.strip()}")


def sweep() -> None:
    """Namespaces of runs that are no more."""
    for path in NAMES.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(NetError):
                ip("netns", "del", path.name)


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """This thread is in a namespace; the sockets that it makes stay there."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(NAMES / name, os.O_RDONLY)
    try:
        if _libc.setns(there, CLONE_NEWNET):
            raise NetError(f"setns({name}): {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if _libc.setns(before, CLONE_NEWNET):
                os._exit(70)  # whatever this thread did next would be done elsewhere
    finally:
        os.close(there)
        os.close(before)


class Leaf:
    """A namespace at the end of a way."""

    def __init__(self, router: str, number: int, name: str) -> None:
        self.router, self.number = router, number
        self.name = name  # the namespace's
        self.port = f"n{number}"  # the router's end of the way
        self.address = f"10.77.{number}.2"
        self.qdisc = False
        self.undo: list[str] = []  # what heal() has ip(8) do, for each cut

    def make(self) -> None:
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.router, "link", "add", self.port, "type", "veth",
           "peer", "name", "up0", "netns", self.name)  # fmt: skip
        ip("-n", self.router, "address", "add", f"10.77.{self.number}.1/24", "dev", self.port)
        ip("-n", self.name, "address", "add", f"{self.address}/24", "dev", "up0")
        ip("-n", self.router, "link", "set", self.port, "up")
        ip("-n", self.name, "link", "set", "up0", "up")
        ip("-n", self.name, "route", "add", "default", "via", f"10.77.{self.number}.1")

    def cut_from(self) -> None:
        """Nothing comes from it any more."""
        self._cut("rule {} pref 10 iif {} blackhole", "add", "del", self.port)

    def cut_to(self) -> None:
        """Nothing gets to it any more."""
        self._cut("route {} blackhole {}/32", "add", "del", self.address)

    def down(self) -> None:
        """The way's link is down, which both ends see."""
        self._cut("link set {1} {0}", "down", "up", self.port)

    def _cut(self, form: str, do: str, undo: str, what: str) -> None:
        ip("-n", self.router, *form.format(do, what).split())
        self.undo.append(form.format(undo, what))

    def heal(self) -> None:
        """As it was. One process for all cuts: in L1 each takes long to start."""
        if self.undo:
            ip("-n", self.router, "-batch", "-", text="\n".join(self.undo))
        self.undo.clear()

    def netem(self, *how: str) -> None:
        """Both ways are like this: "loss", "5%", "delay", "50ms"; nothing: as they were."""
        for name, port in ((self.router, self.port), (self.name, "up0")):
            if how:
                ip("-n", name, "qdisc", "replace", "dev", port, "root", "netem", *how, tool="tc")
            elif self.qdisc:
                ip("-n", name, "qdisc", "del", "dev", port, "root", tool="tc")
        self.qdisc = bool(how)


class Net:
    """The router and its leaves; as a context manager, gone with the block."""

    count = 0

    def __init__(self, *leaves: str) -> None:
        self._base = f"{PREFIX}{os.getpid()}-{Net.count}"
        Net.count += 1
        self.router = f"{self._base}-r"
        self.leaves = {
            leaf: Leaf(self.router, number, f"{self._base}-{leaf}")
            for number, leaf in enumerate(leaves, 1)
        }

    def __getitem__(self, leaf: str) -> Leaf:
        return self.leaves[leaf]

    def __enter__(self) -> Net:
        try:
            ip("netns", "add", self.router)
            ip("-n", self.router, "link", "set", "lo", "up")
            with entered(self.router):
                # /proc/sys/net is that of the thread's namespace
                Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            for leaf in self.leaves.values():
                leaf.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Links go with their namespaces."""
        for name in (*(leaf.name for leaf in self.leaves.values()), self.router):
            if (NAMES / name).exists():
                with contextlib.suppress(NetError):
                    ip("netns", "del", name)

