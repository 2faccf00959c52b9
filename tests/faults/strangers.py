# SPDX-License-Identifier: GPL-2.0-or-later
"""Strangers and hostile tenants at a donor's door and the operator's page: how long others wait."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.donor.rawtls import HEARTBEAT, Control
from tests.faults.cell import Cell, CannotRun, at_most, unknown
from tests.faults.net import Leaf, Net, entered
from tests.faults.paged import Victim, donor_in, inside, libdcm_config
from tests.faults.place import Place
from tests.faults.sessions import PATIENCE_S, REFUSED, Sessions, keys, session, timed
from tests.framework.donor import Donor
from tests.framework.paths import DCMCTL

ATTACK = Path(__file__).with_name("attack.py")
LIMIT_S = 1.0


@contextlib.contextmanager
def attack(what: str, address: str, count: int, donor: Donor | None = None, *,
           leaf: Leaf | None = None, tenant: str = "mallory",
           prefix: Sequence[str] = ()) -> Iterator[None]:  # fmt: skip
    """It goes on for the block."""
    words = [*prefix, *inside(leaf), "nice", "-n", "5", sys.executable, "-IS", str(ATTACK)]
    words += [what, address, str(count)]
    if donor is not None:
        words += [tenant, donor.keys[tenant]]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"at it\n":
                raise CannotRun(f"the attack {what} ended by itself")
            yield
        finally:
            process.kill()


def doors(donor: Donor, leaf: Leaf, rounds: int) -> list[Cell]:
    """How long a new session takes, and going on with one that has a slab: the longest."""
    cells = []
    for way, address in (("tcp", donor.tcp_address), ("unix", donor.unix_address)):
        new, again, note, lost = 0.0, 0.0, "", ""
        for _ in range(rounds):
            with entered(leaf.name):
                took, first, note = timed(lambda: session(donor, address))  # noqa: B023
                new = max(new, took)
                if first is None:
                    break
                old = first
                with contextlib.suppress(*REFUSED):
                    old.map()
                old.tls.sock.close()
                took, second, lost = timed(lambda: session(donor, address, old=old))  # noqa: B023
                again = max(again, took)
                if second is None:
                    break
                with contextlib.suppress(*REFUSED):
                    second.goodbye()
            time.sleep(0.3)
        cells.append(at_most(f"new session over {way}", new, LIMIT_S, note))
        if not note:
            cells.append(at_most(f"session resumed over {way}", again, LIMIT_S, lost))
    return cells


def flood(place: Place) -> list[Cell]:
    """Six thousand connections without a byte."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(Net("host", "stranger", "donor"))
        donor = donor_in(place.folder("d"), net["donor"], keys=keys())
        stack.enter_context(donor)
        stack.enter_context(attack("idle", donor.tcp_address, 6000, leaf=net["stranger"]))
        time.sleep(2)
        place.say("6000 connections are held")
        return doors(donor, net["host"], 3 if place.quick else 8)


def beats(control: Control, seconds: float) -> float:
    """The largest gap between two heartbeats of a session."""
    last = time.monotonic()
    end, gap, beat = last + seconds, 0.0, 0.0
    control.tls.sock.settimeout(None)
    while last < end:
        if time.monotonic() > beat:
            control.beat()
            beat = time.monotonic() + 0.3
        message = control.tls.message()
        now = time.monotonic()
        if message.type == HEARTBEAT:
            gap, last = max(gap, now - last), now
    return gap


def linger(place: Place) -> list[Cell]:
    """Sixty connections that send without end after they were refused."""
    cells = []
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(Net("host", "stranger", "donor"))
        donor = donor_in(place.folder("d"), net["donor"], keys=keys())
        stack.enter_context(donor)
        for way, address in (("tcp", donor.tcp_address), ("unix", donor.unix_address)):
            with entered(net["host"].name):
                other = session(donor, donor.tcp_address)
            with attack("junk", address, 60, donor, leaf=net["stranger"]):
                place.say(f"60 connections send over {way}")
                try:
                    gap, note = beats(other, 6 if place.quick else 12), ""
                except REFUSED as err:
                    gap, note = PATIENCE_S, f"the session ended: {type(err).__name__}"
            with contextlib.suppress(*REFUSED):
                other.goodbye()
            cells.append(at_most(f"gap of heartbeats, junk over {way}", gap, LIMIT_S, note))
    return cells


@contextlib.contextmanager
def stuck(path: Path) -> Iterator[int]:
    """A pipe that is full, and that nobody reads."""
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(fd, b"x" * 512)
        yield fd
    finally:
        os.close(fd)


def stderr_stuck(place: Place) -> list[Cell]:
    """Whoever reads the log of a donor, or of a VM, stopped reading."""
    cells = []
    with contextlib.ExitStack() as stack:
        donor = donor_in(place.folder("d"), keys=keys())
        pipe = place.scratch / "pipe"
        full = stack.enter_context(stuck(pipe))
        os.set_blocking(full, True)
        writing = stack.enter_context(open(os.open(pipe, os.O_WRONLY), "wb"))
        donor.stderr = writing.fileno()
        try:
            stack.enter_context(donor)
        except Exception as err:
            cells.append(unknown("donor starts", f"{type(err).__name__}: {err}"))
        else:
            longest, note = 0.0, ""
            for _ in range(10 if place.quick else 30):
                took, made, note = timed(lambda: session(donor, donor.unix_address))
                longest = max(longest, took)
                if made is None:
                    break
                with contextlib.suppress(*REFUSED):
                    made.goodbye()
            cells.append(at_most("donor: new session", longest, LIMIT_S, note))
        reads = stack.enter_context(donor_in(place.folder("e")))
        folder = place.folder("v")
        config = libdcm_config(folder, [(reads, "tls")])
        victim = Victim("tls libdcm", f"dcm:{config}", folder, stderr=writing.fileno())
        with victim:
            try:
                victim.ready(20)
                cell = victim.judge()
                said = float(cell.note.split()[2])
                cells.append(Cell("libdcm: longest wait", said, cell.ok and said <= LIMIT_S,
                                  cell.note))  # fmt: skip
            except TimeoutError:
                cells.append(at_most("libdcm: longest wait", 20, LIMIT_S, "it did not start"))
    return cells


def fds(place: Place) -> list[Cell]:
    """A tenant maps slabs until it gets no more; another goes on with its session."""
    with contextlib.ExitStack() as stack:
        donor = donor_in(
            place.folder("d"), keys=keys(), donor={"capacity": "2G", "slab-size": "2M"},
            limits={"connections": 64, "handshakes": 16},
        )  # fmt: skip
        donor.prefix = ["prlimit", "--nofile=640:640", "--"]
        stack.enter_context(donor)
        mine = session(donor, donor.unix_address)
        theirs = stack.enter_context(Sessions(donor, "mallory"))
        theirs.connections(16)
        place.say(f"the other has {theirs.all_slabs()} slabs")
        cells = []
        mine.tls.sock.close()
        for what, old in (("session resumed", mine), ("new session", None)):
            seconds, made, note = timed(lambda: session(donor, donor.unix_address, old=old))  # noqa: B023
            if made is not None:
                try:
                    made.data().close()
                except REFUSED as err:
                    seconds, note = PATIENCE_S, f"no data connection: {type(err).__name__}: {err}"
            cells.append(at_most(what, seconds, LIMIT_S, note))
        return cells


def page(place: Place) -> list[Cell]:
    """Forty connections without a token are kept alive; the operator asks."""
    env = {**os.environ, "DCM_RUNTIME_DIR": str(place.folder("run"))}
    for name in ("DCM_HOST_CONF", "DCM_HOSTD_CONF", "DCM_HOSTD_STATUS"):
        env[name] = "/nonexistent"
    cells = []
    with contextlib.ExitStack() as stack:

        def serve(*words: str) -> int:
            process = subprocess.Popen([str(DCMCTL), *words, "--listen", "127.0.0.1:0"], env=env,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
            assert process.stdout is not None
            url = process.stdout.readline()
            if "http" not in url:
                raise CannotRun(f"dcmctl {words[0]} did not start")
            return int(url.split("http://")[1].split("/")[0].rpartition(":")[2])

        def get(port: int, **headers: str) -> tuple[float, int]:
            begin = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            try:
                connection.request("GET", "/", headers=headers)
                answer = connection.getresponse()
                answer.read()
                return time.monotonic() - begin, answer.status
            finally:
                connection.close()

        port = serve("dashboard")
        with attack("keepalive", f"tcp:127.0.0.1:{port}", 40):
            time.sleep(1)
            longest, note = 0.0, ""
            for _ in range(3 if place.quick else 5):
                try:
                    took, status = get(port)
                except OSError as err:
                    took, status = PATIENCE_S, 0
                    note = f"{type(err).__name__}: {err}"
                longest = max(longest, took)
                if status not in (0, 200):
                    note = f"status {status}"
                if note:
                    break
            cells.append(Cell("the page", round(longest, 3), longest <= LIMIT_S and not note, note))
        port = serve("exporter")
        _, status = get(port, Host="evil.example")
        cells.append(Cell("exporter, another's Host", 0.0, status != 200, f"status {status}"))
    return cells
