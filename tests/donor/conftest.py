# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors under AddressSanitizer, and proof after each test that nothing leaked."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from tests.donor.rawtls import TCP, Control, Tls, dial
from tests.framework.donor import Donor, DonorError
from tests.framework.paths import BUILD, TOP
from tests.framework.slabs import open_files, slab_memfds

KEYS = {"alice": "11" * 32, "bob": "22" * 32}
SANITIZER = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99:quarantine_size_mb=2:malloc_context_size=6",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "LSAN_OPTIONS": "exitcode=99",
}


@pytest.fixture(scope="session")
def asan_donord() -> Path:
    """The daemon with sanitizers, built when it is not there yet."""
    out = BUILD / "asan"
    made = subprocess.run(
        ["make", "-C", str(TOP / "donor-daemon"), f"O={out}", "SAN=address,undefined",
         "OPT=-O1 -g"],
        capture_output=True, text=True, check=False,
        env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "BUILD")},
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return out / "bin" / "dcm-donord"


class Lab(Donor):
    """A donor with clients, and the state it must return to after they are gone."""

    baseline_fds: int = 0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.controls: WeakSet[Control] = WeakSet()

    def start(self) -> Lab:
        super().start()
        # the first HTTP connection and the spare slab are part of the picture
        self.wait(lambda s: s["memory"]["slabs_spare"] == self.spare(), "spare slabs")
        self.baseline_fds = self.fds()
        return self

    def spare(self) -> int:
        return int(self.sections["donor"].get("spare-slabs", 1))

    def fds(self) -> int:
        """Open descriptors, those of HTTP connections apart."""
        return len(open_files(self.pid))

    def memfds(self) -> int:
        return len(slab_memfds(self.pid))

    def rss(self) -> int:
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096

    def wait(self, good: Callable[[dict[str, Any]], bool], what: str,
             seconds: float = 15.0) -> dict[str, Any]:
        """Until the status satisfies @good."""
        end = time.monotonic() + seconds
        while True:
            status = self.status()
            if good(status):
                return status
            if time.monotonic() > end:
                raise AssertionError(f"not reached: {what}: {status}\n{self.tail(40)}")
            time.sleep(0.03)

    def logged(self, text: str, times: int | None = None, mark: int = 0) -> None:
        """Until the log from @mark on has @text, exactly @times if that is given: a thread writes
        the log, a moment after the event."""

        def good(_: Any) -> bool:
            n = self.log.read_text(errors="replace")[mark:].count(text)
            return n > 0 if times is None else n == times

        self.wait(good, text)

    def wait_empty(self) -> None:
        """Nothing of any client is left, and a new one is served."""
        self.wait(
            lambda s: not s["sessions"] and not s["connections"]
            and s["memory"]["slabs_mapped"] == 0 and s["memory"]["slabs_evicting"] == 0
            and s["memory"]["slabs_releasing"] == 0
            and all(not t["bytes"] and not t["connections"] and not t["sessions"]
                    for t in s["tenants"]),
            "all gone")
        self.wait(lambda s: self.fds() <= self.baseline_fds
                  and self.memfds() <= self.spare(), "descriptors closed")
        self.served()

    def served(self, tenant: str = "bob") -> None:
        """A stranger to the test maps a slab, writes it and reads it back."""
        c = self.control(tenant)
        try:
            slab = c.map(TCP)
            d = c.data()
            assert d.read(slab.id, 0) == bytes(4096)
            d.write(slab.id, 8192, b"\x5a" * 4096)
            assert d.read(slab.id, 8192) == b"\x5a" * 4096
            d.close()
        finally:
            c.goodbye()

    def key(self, tenant: str) -> bytes:
        return bytes.fromhex(self.keys[tenant])

    def control(self, tenant: str = "alice", unix: bool = False, **more: Any) -> Control:
        address = self.unix_address if unix else self.tcp_address
        c = Control(address, tenant, self.key(tenant), **more)
        self.controls.add(c)
        return c

    def tls(self, tenant: str = "alice", **more: Any) -> Tls:
        return Tls(dial(self.tcp_address), tenant, self.key(tenant), **more)

    def finish(self) -> None:
        """The end of the fixture: drained, and the sanitizers have nothing to say. Connections that
        a failed test left open are closed: the next test would be failed for them."""
        for c in set(self.controls):
            c.close()
        status = self.stop()
        text = self.log.read_text(errors="replace")
        assert "Sanitizer" not in text and "runtime error" not in text, text[-6000:]
        if status not in (0, 1):
            raise DonorError(f"status {status}:\n{self.tail()}")


MakeLab = Callable[..., Lab]


@pytest.fixture
def make_lab(asan_donord: Path, short_tmp: Path) -> Iterator[MakeLab]:
    """Donors of this test alone: make_lab(donor={...}, limits={...})."""
    labs: list[Lab] = []

    def make(start: bool = True, **sections: Any) -> Lab:
        lab = Lab(short_tmp / f"d{len(labs)}", keys=KEYS, binary=asan_donord,
                  environment=SANITIZER, **sections)
        labs.append(lab)
        return lab.start() if start else lab

    yield make
    for lab in labs:
        if lab.process is not None:
            lab.finish()


@pytest.fixture(scope="module")
def shared_lab(asan_donord: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One donor for the tests of a module."""
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="dcm-") as folder:
        lab = Lab(Path(folder), keys=KEYS, binary=asan_donord, environment=SANITIZER,
                  limits={"handshake-timeout": "1s"}, donor={"data-encryption": "no"})
        lab.start()
        yield lab
        lab.finish()


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """The module's donor; whatever the test does to it, it comes back clean."""
    yield shared_lab
    shared_lab.wait_empty()


__all__ = ["KEYS", "Lab", "MakeLab"]
