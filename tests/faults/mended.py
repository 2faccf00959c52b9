# SPDX-License-Identifier: GPL-2.0-or-later
"""Single things that went wrong once: each is done again, and what came of it is counted."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import threading
import time
from collections.abc import Callable

from tests.donor.rawgc import MOVED, REGION, Worker
from tests.donor.rawtls import Control
from tests.faults.cell import Cell, CannotRun, at_most, unknown
from tests.faults.paged import donor_in, libdcm_config
from tests.faults.place import Place
from tests.faults.sessions import MIB, REFUSED, keys, session
from tests.faults.tenants import children
from tests.framework.donor import write_private
from tests.framework.pager import wait_idle
from tests.framework.paths import BUILD, PRELOAD, TOP
from tests.framework.relay import LateRelay

LATE_TEST = BUILD / "tests-pager" / "late_test"

# Runs under libdcm-preload.so: 8 MiB are paged and written; then each way of mapping something else
# there that fails, and how many bytes have changed since.
MAPFIXED = r"""
import ctypes, os, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
SIZE, RW, PRIVATE, SHARED, FIXED, ANON = 8 << 20, 3, 2, 1, 0x10, 0x20
FAILED = ctypes.c_void_p(-1).value
at = libc.mmap(None, SIZE, RW, PRIVATE | ANON, -1, 0)
assert at != FAILED
reads = os.open(sys.argv[1], os.O_RDONLY)
writes = os.open(sys.argv[1], os.O_WRONLY)
ways = {
    "no descriptor": (RW, PRIVATE | FIXED, -1, 0),
    "write to what is read-only": (RW, SHARED | FIXED, reads, 0),
    "read what is write-only": (RW, PRIVATE | FIXED, writes, 0),
    "offset within a page": (RW, PRIVATE | FIXED, reads, 512),
    "a directory": (RW, PRIVATE | FIXED, os.open("/", os.O_RDONLY), 0),
    "no kind": (RW, FIXED | ANON, -1, 0),
}
for name, (prot, flags, fd, offset) in ways.items():
    ctypes.memset(at, 0x5a, SIZE)
    got = libc.mmap(at, SIZE, prot, flags, fd, offset)
    if got != FAILED:
        print(f"{name}: worked", flush=True)
        at = libc.mmap(at, SIZE, RW, PRIVATE | ANON | FIXED, -1, 0)
        continue
    left = ctypes.string_at(at, SIZE).count(b"\x5a")
    print(f"{name}: {SIZE - left} changed", flush=True)
"""


def mapfixed(place: Place) -> list[Cell]:
    """mmap(MAP_FIXED) over paged memory, in ways that fail."""
    with donor_in(place.folder("d")) as donor:
        config = libdcm_config(place.folder("v"), [(donor, "shm")], budget="4M")
        file = place.scratch / "file"
        file.write_bytes(bytes(16 * MIB))
        env = {**os.environ, "DCM_CONFIG": str(config), "LD_PRELOAD": str(PRELOAD)}
        env["DCM_RUNTIME_DIR"] = str(place.folder("run"))
        done = subprocess.run(
            ["/usr/bin/python3", "-IS", "-c", MAPFIXED, str(file)], env=env, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
    found = dict(re.findall(r"^(.*): (\d+) changed$", done.stdout, re.M))
    cells = [at_most(name, int(changed), 0) for name, changed in found.items()]
    if done.returncode or not found:
        cells.append(unknown("all", f"status {done.returncode}: {done.stderr[-300:]}"))
    return cells


def late_write(place: Place) -> list[Cell]:
    """WRITEs of a broken connection reach the donor after their pages were written again."""
    if not LATE_TEST.exists():
        raise CannotRun("no late_test: make -C tests/pager")
    with contextlib.ExitStack() as stack:
        donor = stack.enter_context(donor_in(place.folder("d"), donor={"slab-size": "2M"}))
        relay = stack.enter_context(LateRelay(donor.port))
        config = libdcm_config(place.folder("v"), [(donor, "tls")], lanes="2")
        text = config.read_text().replace(donor.tcp_address, f"tcp:127.0.0.1:{relay.port}")
        write_private(config, text + "[tunables]\nproactive_share = 0\n")
        env = {**os.environ, "DCM_RUNTIME_DIR": str(place.folder("run"))}
        program = stack.enter_context(
            subprocess.Popen([str(LATE_TEST), str(config)], env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        )  # fmt: skip
        stack.callback(program.kill)
        # a program that hangs says nothing more, and the row is not met
        limit = threading.Timer(40, program.kill)
        limit.start()
        stack.callback(limit.cancel)

        def step(name: str, go: bool = True) -> None:
            assert program.stdout is not None and program.stdin is not None
            if go:
                program.stdin.write("\n")
            if (line := program.stdout.readline()) != f"{name}\n":
                assert program.stderr is not None
                raise CannotRun(f"not {name}: {line}{program.stderr.read()[-300:]}")

        step("first", go=False)
        # a fault thread's connection with a write under way would be cut too, and its next one held
        wait_idle(place.folder("run") / "vm" / "v.sock", program.pid)
        relay.hold()
        step("squeezed")
        deadline = time.monotonic() + 20
        while relay.held() < MIB:
            if time.monotonic() > deadline:
                raise CannotRun("nothing was on its way")
            time.sleep(0.1)
        if (cut := relay.cut()) != 1:
            raise CannotRun(f"{cut} connections held bytes, not one")
        step("second")
        late = relay.release()
        time.sleep(1)
        relay.open()
        try:
            step("checked")
        except CannotRun as err:
            pages = re.search(r"(\d+) pages are not", str(err))
            return [at_most("tls libdcm", int(pages[1]) * 4096 if pages else 1, 0, str(err))]
        return [at_most("tls libdcm", 0, 0, f"{late >> 10} KiB came late")]


def disorder(place: Place) -> list[Cell]:
    """GC_SLAB with a used number, MOVED for a region placed nowhere, in every order."""
    with contextlib.ExitStack() as stack:
        donor = stack.enter_context(donor_in(place.folder("d"), keys=keys(), gc={"threads": 1}))
        mine = session(donor, donor.unix_address)
        slab, other = mine.map(), mine.map()

        def used_number(worker: Worker) -> None:
            worker.slab(slab.id, 5)
            worker.create(8)
            worker.place([(r, 0, 5, r * REGION) for r in range(8)])
            worker.slab(other.id, 5)

        def moved_nowhere(worker: Worker) -> None:
            worker.create(8)
            for region in (0, 7, 8, 1 << 20, (1 << 32) - 1):
                worker.say(MOVED, struct.pack("<IIQQ", region, 0, 0, 0), n=1, epoch=1)

        def unplaced(worker: Worker) -> None:
            worker.slab(slab.id, 0)
            worker.create(8)
            worker.trace_start(1, [REGION] * 8)
            worker.say(MOVED, struct.pack("<IIQQ", 3, 0, 0, 0), n=1, epoch=1)

        return [
            _survives(place, name, mine, donor.pid, do)
            for name, do in (
                ("slab's number used twice", used_number),
                ("moved to nowhere", moved_nowhere),
                ("traced where nothing is", unplaced),
            )
        ]


def _survives(
    place: Place, name: str, mine: Control, donor: int, do: Callable[[Worker], None]
) -> Cell:
    """A worker that is told nonsense refuses; it does not end by a signal."""
    worker = Worker(mine)
    [pid] = children(donor)
    end = ""
    try:
        do(worker)
        worker.tls.sock.settimeout(3)
        while True:
            worker.tls.message()
    except REFUSED as err:
        end = f"{type(err).__name__}: {err}"
    log = (place.scratch / "d" / "donor.log").read_text(errors="replace")
    worker.close()
    deadline = time.monotonic() + 5
    while pid in children(donor) and time.monotonic() < deadline:
        time.sleep(0.05)
    died = re.findall(rf"worker {pid}\b.*signal.*", log)
    return Cell(name, len(died), not died, f"{end} {' '.join(died)}".strip())


def unit(name: str) -> list[Cell]:
    """Checks of a unit test that fail; for what needs a part that runs alone."""
    words = ["make", "-C", str(TOP / "tests" / "unit"), "run", f"T={name}", f"O={BUILD}"]
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=200)
    said = done.stdout + done.stderr
    if not (found := re.search(r"(\d+) passed, (\d+) failed", said)):
        return [unknown(name, f"status {done.returncode}: {said[-300:]}")]
    passed, failed = int(found[1]), int(found[2])
    return [Cell(name, failed, done.returncode == 0 and not failed, f"{passed} passed")]


def fuse(place: Place) -> list[Cell]:
    """A local user's files that never close, locks that wait, connections without end."""
    place.say("dcm-hostd's socket, driven by hostd_gc_test")
    return unit("hostd_gc")

