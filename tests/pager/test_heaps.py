# SPDX-License-Identifier: GPL-2.0-or-later
"""Heaps of a runtime under libdcm, which donors trace and move."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pager.support import (
    BUILD,
    LIMIT_S,
    ROOT,
    StartDonor,
    ask,
    built,
    configure,
    hostile,
    run,
    start_group,
)

HEAP_CHECK = BUILD / "tests-pager" / "heap_check"
HEAPS = os.environ.get("PAGER_TEST_HEAPS", "3")
LATER_STEPS = ("update", "compact", "another")

pytestmark = built


@contextlib.contextmanager
def heap_in_steps(
    folder: Path, mode: str, config: Path, *args: str
) -> Iterator[subprocess.Popen[str]]:
    """heap_check, run in step with a test; its output can be read line by line."""
    seed = str(random.SystemRandom().randrange(1 << 16))
    print(f"seed {seed}")
    env = {**os.environ, "DCM_RUNTIME_DIR": str(folder / "run")}
    command = [str(HEAP_CHECK), mode, f"dcm:{config}", seed, *args]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as heap:
        try:
            yield heap
        finally:
            heap.kill()


@pytest.mark.parametrize(
    ("transport", "way"),
    [
        ("shm", "good"),
        ("tcp", "hostile"),
        pytest.param("tcp", "good", marks=pytest.mark.slow),
        pytest.param("shm", "hostile", marks=pytest.mark.slow),
    ],
)
def test_gc(start_donor: StartDonor, short_tmp: Path, transport: str, way: str) -> None:
    """Three donors trace and move a heap of twice the budget, while all of it is touched."""
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, transport, budget="9M")
    # each takes several times as long on hostile ways
    heaps, env = ("1", hostile()) if way == "hostile" else (HEAPS, {})
    seed = str(random.SystemRandom().randrange(1 << 16)) if env else "0"
    print(f"heaps from seed {seed}")
    done = run(short_tmp, HEAP_CHECK, "check", f"dcm:{config}", seed, heaps, **env)
    assert done.stdout.count("regions evacuated") == int(heaps), done.stdout
    print(done.stderr)
    if transport == "shm" and way == "good":
        # a heap whose first root is null: heap_check once died of a signal with it
        done = run(short_tmp, HEAP_CHECK, "check", f"dcm:{config}", "13787")
        assert "regions evacuated" in done.stdout


@pytest.mark.parametrize(
    ("transport", "way"),
    [
        ("tcp", "good"),
        pytest.param("shm", "good", marks=pytest.mark.slow),
        pytest.param("tcp", "hostile", marks=pytest.mark.slow),
    ],
)
def test_gc_with_copies(
    start_donor: StartDonor, short_tmp: Path, transport: str, way: str
) -> None:
    """The same with each page on two donors: what a worker changed is on both."""
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, transport, budget="9M", redundancy="replica:2")
    env = hostile() if way == "hostile" else {}
    seed = str(random.SystemRandom().randrange(1 << 16))
    print(f"heap from seed {seed}")
    done = run(short_tmp, HEAP_CHECK, "check", f"dcm:{config}", seed, "1", **env)
    assert done.stdout.count("regions evacuated") == 1, done.stdout
    print(done.stdout, done.stderr)


@pytest.mark.slow
def test_gc_writes_that_nobody_waits_for(start_donor: StartDonor, short_tmp: Path) -> None:
    """A trace that ended early leaves no page on its way for ever."""
    donors = start_group(start_donor, "ab", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="9M")
    with heap_in_steps(short_tmp, "stall", config, str(short_tmp)) as heap:
        assert heap.stdout is not None
        try:
            assert heap.stdout.readline() == "at stopped\n"
            os.kill(donors[1].pid, signal.SIGSTOP)
            (short_tmp / "stopped").touch()
            assert heap.stdout.readline() == "at going\n"
            assert ask(short_tmp, {"cmd": "status"})["in_flight_bytes"] > 0
            os.kill(donors[1].pid, signal.SIGCONT)
            deadline = time.monotonic() + 30
            while ask(short_tmp, {"cmd": "status"})["in_flight_bytes"]:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            (short_tmp / "going").touch()
            assert heap.stdout.readline() == "ok\n"
            assert heap.wait(60) == 0
        finally:
            os.kill(donors[1].pid, signal.SIGCONT)


def test_gc_while_donors_drain(start_donor: StartDonor, short_tmp: Path) -> None:
    """Slabs move between donors all the time: traces are right, moved objects are whole."""
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="9M")
    with heap_in_steps(short_tmp, "drain", config, str(short_tmp)) as heap:
        assert heap.stdout is not None
        assert heap.stdout.readline() == "up\n"
        deadline = time.monotonic() + 120
        for turn in itertools.count():
            assert heap.poll() is None, heap.stdout.read()
            status = ask(short_tmp, {"cmd": "status"})
            if status["counters"]["MOVED_PAGES"] > 20000:
                break
            assert time.monotonic() < deadline, status
            one = {"cmd": "donor", "name": donors[turn // 2 % 3].folder.name}
            assert ask(short_tmp, {**one, "op": "keep" if turn % 2 else "drain"})["ok"]
            time.sleep(0.2)
        (short_tmp / "enough").touch()
        said = heap.stdout.read()
        print(said)
        assert heap.wait(120) == 0, said


@pytest.mark.slow
def test_gc_while_workers_die(start_donor: StartDonor, short_tmp: Path) -> None:
    """A worker killed at any moment: an error status, and the runtime finishes the collection."""
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="9M")
    with heap_in_steps(short_tmp, "kill", config, os.environ.get("PAGER_TEST_KILLS", "8")) as heap:
        assert heap.stdout is not None
        assert heap.stdout.readline() == "up\n"
        deadline = time.monotonic() + LIMIT_S
        for turn in itertools.count():
            if heap.poll() is not None:
                break
            assert time.monotonic() < deadline
            # at last there is time for a whole round
            time.sleep(random.random() * (0.3 + turn / 100))
            children = Path(f"/proc/{random.choice(donors).pid}/task")
            for pid in " ".join(path.read_text() for path in children.glob("*/children")).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        said = heap.stdout.read()
        print(said)
        assert heap.returncode == 0, said


@pytest.mark.parametrize(
    "step", ["evacuate", *(pytest.param(s, marks=pytest.mark.slow) for s in LATER_STEPS)]
)
def test_gc_outlives_a_donor(start_donor: StartDonor, short_tmp: Path, step: str) -> None:
    """A donor is killed in each step: the others' memory is whole, and is collected further."""
    if step == "another":
        step = random.choice(("start", "roots", "finish", "results", "forward", "release"))
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="9M")
    with heap_in_steps(short_tmp, "outlive", config, step, str(donors[1].pid)) as heap:
        said, _ = heap.communicate(timeout=LIMIT_S)
        print(said)
        assert heap.returncode == 0, said


@pytest.mark.parametrize(
    "step", ["evacuate", "update", "compact", pytest.param("another", marks=pytest.mark.slow)]
)
def test_gc_with_copies_outlives_a_donor(
    start_donor: StartDonor, short_tmp: Path, step: str
) -> None:
    """A donor is killed in each step: no region is lost, every object is right; it goes on."""
    if step == "another":
        step = random.choice(("start", "roots", "finish", "results", "forward", "release"))
    donors = start_group(start_donor, "abc", slab="2M", capacity="64M")
    tunables = {"thin_after": 10000}  # on both donors, or a page waits
    config = configure(
        short_tmp, donors, "tcp", tunables, budget="9M", redundancy="replica:2"
    )
    with heap_in_steps(short_tmp, "survive", config, step, str(donors[1].pid)) as heap:
        said, _ = heap.communicate(timeout=LIMIT_S)
        print(said)
        assert heap.returncode == 0, said
    assert " 0 regions lost" in said


def test_gc_example(start_donor: StartDonor, short_tmp: Path) -> None:
    """The example for authors of runtimes, compiled and run as its first comment says."""
    donors = start_group(start_donor, "ab", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="4M", size="16M")
    include = [f"-I{ROOT / part}" for part in ("guest-virtio-gc/lib", "guest-virtio-gc/include")]
    program = short_tmp / "lists"
    command = ["cc", "-Wall", "-Werror", "-O1", *include, "-o", str(program)]
    command += [str(ROOT / "guest-virtio-gc" / "examples" / "lists.c"), f"-L{BUILD / 'lib'}"]
    subprocess.run([*command, "-lvgc", "-Wl,--no-as-needed", "-ldcm"], check=True)
    library = str(BUILD / "lib")
    done = run(short_tmp, program, VGC_DEVICE=f"dcm:{config}", LD_LIBRARY_PATH=library)
    print(done.stdout)
    found = re.search(r"collected (\d+) times by donors, 0 by itself; (\d+) regions", done.stdout)
    assert found and int(found[1]) > 3 and int(found[2]) > 20
    # without libdcm, and without a device, the program says what is missing
    subprocess.run([*command, "-lvgc"], check=True)
    for device, why in ((f"dcm:{config}", "not linked with -ldcm"), ("/dev/x", "no such device")):
        done = run(short_tmp, program, status=1, VGC_DEVICE=device, LD_LIBRARY_PATH=library)
        assert why in done.stderr


def test_gc_over_reserved(start_donor: StartDonor, short_tmp: Path) -> None:
    """A heap over a range that the program has reserved, and what libvgc refuses."""
    donors = start_group(start_donor, "ab", slab="2M", capacity="64M")
    config = configure(short_tmp, donors, "tcp", budget="4M", size="16M")
    done = run(short_tmp, HEAP_CHECK.parent / "libvgc_check", f"dcm:{config}", "over")
    assert done.stdout == "ok\n"
