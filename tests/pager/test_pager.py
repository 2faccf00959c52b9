# SPDX-License-Identifier: GPL-2.0-or-later
"""The user pager with real donors: libdcm used directly, and programs under the shim."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor, write_private
from tests.framework.relay import LateRelay

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DCM_BUILD", ROOT / "build"))
PAGER_TEST = BUILD / "tests-pager" / "pager_test"
LATE_TEST = BUILD / "tests-pager" / "late_test"
LOSS_TEST = BUILD / "tests-pager" / "loss_test"
HEAP_CHECK = BUILD / "tests-pager" / "heap_check"
SHIM_TEST = BUILD / "tests-pager" / "shim_test"
PRELOAD = BUILD / "lib" / "libdcm-preload.so"
JEMALLOC = next(Path("/usr/lib").glob("*/libjemalloc.so.2"), None)
SECONDS = os.environ.get("PAGER_TEST_SECONDS", "5")
HEAPS = os.environ.get("PAGER_TEST_HEAPS", "3")
LIMIT_S = 240

pytestmark = pytest.mark.skipif(not PAGER_TEST.exists(), reason="run make -C tests/pager")

StartDonor = Callable[..., Donor]
OLD_KERNELS = ["", "move", "vector", "move,vector,poison"]
TORTURED_KERNELS = [
    pytest.param(without, marks=[pytest.mark.slow] * (without in ("move", "vector")))
    for without in OLD_KERNELS
]
LATER_STEPS = ("update", "compact", "another")
SLOW_SHM = pytest.param("shm", marks=pytest.mark.slow)


def start(
    start_donor: StartDonor, name: str = "a", slab: str = "16M", capacity: str = "2G"
) -> Donor:
    """A donor with room for all pages that these tests page out."""
    return start_donor(name, donor={"slab-size": slab, "capacity": capacity})


def start_group(start_donor: StartDonor, names: str, **kw: str) -> list[Donor]:
    """Several, which share a key."""
    donors = [start(start_donor, name, **kw) for name in names]
    for other in donors[1:]:
        other.keys = donors[0].keys
        other.reload()
    return donors


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


def configure(folder: Path, donors: list[Donor], transport: str = "shm", **vm: str) -> Path:
    """A libdcm configuration for these donors, which share a key."""
    values = {"name": "test", "budget": "16M", "size": "1G", "mode": "program"}
    values |= {"threshold": "1M", "on-loss": "sigbus"}
    values |= {k.replace("_", "-"): v for k, v in vm.items()}
    text = "[vm]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    for donor in donors:
        address = donor.unix_address if transport == "shm" else donor.tcp_address
        text += f"[donor {donor.folder.name}]\naddress = {address}\n"
    text += f"[key]\ntenant = test\nfile = {donors[0].key_file}\n"
    path = folder / "libdcm.ini"
    write_private(path, text)
    return path


def run(
    folder: Path, *command: str | Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; nothing here may hang."""
    env = {**os.environ, "DCM_RUNTIME_DIR": str(folder / "run"), **environment}
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def under_pager(config: Path, *, heap: bool = False) -> dict[str, Any]:
    """Environment that puts a program under a pager."""
    preload = str(PRELOAD)
    if heap and JEMALLOC:
        preload += f" {JEMALLOC}"
    return {"DCM_CONFIG": str(config), "LD_PRELOAD": preload}


def ask(folder: Path, request: Mapping[str, Any], name: str = "test") -> dict[str, Any]:
    """One request on a pager's status socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(folder / "run" / "vm" / f"{name}.sock"))
        sock.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(sock.makefile().readline())
        return answer


@pytest.mark.parametrize("without", TORTURED_KERNELS)
def test_torture(start_donor: StartDonor, short_tmp: Path, without: str) -> None:
    """Four threads over four times the budget, by the ways of several kernels."""
    config = configure(short_tmp, [start(start_donor)])
    seed = str(random.SystemRandom().randrange(1 << 30))
    print(f"seed {seed}")
    done = run(
        short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", seed, DCM_WITHOUT=without
    )
    assert "every byte right" in done.stdout, seed


@pytest.mark.slow
@pytest.mark.parametrize("tunables", ["sample_bp = 10000", "sample_bp = 0", "elastic = 0"])
def test_torture_blocks(start_donor: StartDonor, short_tmp: Path, tunables: str) -> None:
    """A page of every block left out, none, and blocks of one size."""
    config = configure(short_tmp, [start(start_donor)])
    write_private(config, config.read_text() + f"[tunables]\n{tunables}\n")
    run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "7")


def test_torture_tcp(start_donor: StartDonor, short_tmp: Path) -> None:
    """Two donors over TCP."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, "tcp")
    run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "5")


def hostile() -> dict[str, Any]:
    """Environment that puts donors behind the worst transport; see hostile.c."""
    seed = str(random.SystemRandom().randrange(1 << 30))
    print(f"hostile with seed {seed}")
    return {"PAGER_TEST_HOSTILE": seed}


@pytest.mark.parametrize("transport", [SLOW_SHM, "tcp"])
def test_torture_hostile(start_donor: StartDonor, short_tmp: Path, transport: str) -> None:
    """Operations that fail, come late and in pieces, connections that die: no byte is wrong."""
    config = configure(short_tmp, [start(start_donor)], transport)
    done = run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "9", **hostile())
    assert "every byte right" in done.stdout
    print(done.stderr)


def test_writes_that_land_late(start_donor: StartDonor, short_tmp: Path) -> None:
    """WRITEs of a broken connection reach the donor after the pages were written again."""
    donor = start(start_donor, slab="2M")
    with contextlib.ExitStack() as stack:
        relay = stack.enter_context(LateRelay(donor.port))
        config = configure(short_tmp, [donor], "tcp", budget="8M", lanes="2")
        text = config.read_text().replace(donor.tcp_address, f"tcp:127.0.0.1:{relay.port}")
        # pages used again must be written back again, not kept here
        write_private(config, text + "[tunables]\nproactive_share = 0\n")
        env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")}
        program = stack.enter_context(
            subprocess.Popen(
                [str(LATE_TEST), str(config)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        )
        stack.callback(program.kill)
        # a program that hangs says nothing more, and the test fails
        limit = threading.Timer(LIMIT_S / 2, program.kill)
        limit.start()
        stack.callback(limit.cancel)
        assert program.stdin is not None and program.stdout is not None

        def done(step: str) -> None:
            assert program.stdout is not None
            assert program.stdout.readline() == step + "\n"

        done("first")
        # a connection that is held with something under way would be given up too
        deadline = time.monotonic() + 20
        while (status := ask(short_tmp, {"cmd": "status"}))["in_flight_bytes"]:
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        assert status["extents"]["mapped"] == 16
        relay.hold()
        program.stdin.write("\n")
        done("squeezed")
        deadline = time.monotonic() + 20
        while relay.held() < 1 << 20:
            assert time.monotonic() < deadline, relay.held()
            time.sleep(0.1)
        assert relay.cut() == 1
        program.stdin.write("\n")
        done("second")
        assert relay.release() >= 1 << 20
        time.sleep(1)
        relay.open()
        program.stdin.write("\n")
        done("checked")
        assert program.wait(LIMIT_S) == 0


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


def test_lane_makes_way_for_its_faulter(start_donor: StartDonor, short_tmp: Path) -> None:
    """A lane is SCHED_IDLE while one thread faults densely, SCHED_OTHER afterwards."""
    config = configure(short_tmp, [start(start_donor)])
    command = [str(PAGER_TEST.with_name("yield_test")), str(config)]
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode == 77:
        pytest.skip("needs two CPUs and the right to leave SCHED_IDLE")
    assert done.returncode == 0, done.stderr
    assert "ordinary again" in done.stdout


@pytest.mark.parametrize("what", ["pin", "remap"])
@pytest.mark.parametrize("without", ["", "move"])
def test_api(start_donor: StartDonor, short_tmp: Path, what: str, without: str) -> None:
    """Pins hold; holes, adoption and protection of parts of blocks."""
    config = configure(short_tmp, [start(start_donor)])
    run(short_tmp, PAGER_TEST, what, config, DCM_WITHOUT=without)


def lose_donor(
    start_donor: StartDonor, short_tmp: Path, without: str, what: str, *args: str
) -> tuple[str, str]:
    """Run loss_test with a donor that is killed when the memory is full; its output."""
    donor = start(start_donor, slab="2M")
    donors = [donor]
    if what == "discard":  # what is written after needs somewhere to go
        options = {"slab-size": "2M", "capacity": "2G"}
        donors.append(start_donor("b", donor=options, keys=donor.keys))
    config = configure(short_tmp, donors)
    fifo = short_tmp / "fifo"
    os.mkfifo(fifo)
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run"), "DCM_WITHOUT": without}
    with subprocess.Popen(
        [LOSS_TEST, what, config, fifo, *args],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        donor.kill()
        deadline = time.monotonic() + 60
        while not ask(short_tmp, {"cmd": "status"})["extents"]["lost"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        fifo.write_text("go")
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    return out, err


@pytest.mark.parametrize("without", ["", "poison"])
def test_loss(start_donor: StartDonor, short_tmp: Path, without: str) -> None:
    """A donor dies: errors for pages that only it had, one log line, never zeroes."""
    out, err = lose_donor(start_donor, short_tmp, without, "look")
    assert "lost" in out
    (line,) = [x for x in err.splitlines() if "had no other copy" in x]
    assert "donor a (unix:" in line and "KiB of VM test in extents 0,1,2" in line


@pytest.mark.parametrize("without", ["", "poison"])
def test_loss_killed_by_signal_7(
    start_donor: StartDonor, short_tmp: Path, without: str
) -> None:
    """Lost pages discarded under use: only threads that access them get SIGBUS."""
    out, _ = lose_donor(start_donor, short_tmp, without, "discard", SECONDS)
    assert "to lost pages" in out


@pytest.mark.parametrize("without", ["", "move,vector"])
def test_shim(start_donor: StartDonor, short_tmp: Path, without: str) -> None:
    """Programs' calls on mappings have the same result as without a pager."""
    run(short_tmp, SHIM_TEST)
    config = configure(short_tmp, [start(start_donor)])
    run(short_tmp, SHIM_TEST, DCM_WITHOUT=without, **under_pager(config))


@pytest.mark.parametrize("without", ["", "move,vector"])
def test_mmap_that_fails_zeroes_memory(
    start_donor: StartDonor, short_tmp: Path, without: str
) -> None:
    """mmap(), mremap() and munmap() that fail on paged memory leave the memory as it was."""
    run(short_tmp, SHIM_TEST, "failures")
    config = configure(short_tmp, [start(start_donor)])
    run(short_tmp, SHIM_TEST, "failures", DCM_WITHOUT=without, **under_pager(config))


def test_shim_paged_heap(start_donor: StartDonor, short_tmp: Path) -> None:
    """The same when malloc() memory is paged too."""
    config = configure(short_tmp, [start(start_donor)])
    run(short_tmp, SHIM_TEST, SHIM_TEST_PAGED_HEAP="1", **under_pager(config, heap=True))


def test_log_reader_that_stalls_stops_the_program(start_donor: StartDonor, short_tmp: Path) -> None:
    """Paging goes on while nobody reads standard error, where libdcm logs."""
    config = configure(short_tmp, [start(start_donor)])
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run"), **under_pager(config)}
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb") as stuck:
        # fill the pipe; the program's end stays without O_NONBLOCK
        full = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, bytes(4096))
        os.close(full)
        done = subprocess.run(
            [str(SHIM_TEST)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=stuck,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "all right\n")


def test_child_is_told(start_donor: StartDonor, short_tmp: Path) -> None:
    """A child of fork() that touches paged memory dies with a line that says why."""
    config = configure(short_tmp, [start(start_donor)])
    done = run(short_tmp, SHIM_TEST, "child", **under_pager(config))
    assert "which fork() does not copy" in done.stderr


def test_sort(start_donor: StartDonor, short_tmp: Path) -> None:
    """sort(1) of more than its memory, compared with the same sort without."""
    rng = random.Random(4)
    text = short_tmp / "text"
    with text.open("w") as file:
        for _ in range(600_000):
            file.write(f"{rng.getrandbits(120):030x} {rng.random()}\n")
    command = ["/usr/bin/sort", "-S", "120M", "--parallel=2", str(text)]
    env = {**os.environ, "LC_ALL": "C"}
    want = subprocess.run(command, env=env, capture_output=True, check=True, timeout=LIMIT_S)
    config = configure(short_tmp, [start(start_donor)])
    env |= under_pager(config, heap=True) | {"DCM_RUNTIME_DIR": str(short_tmp / "run")}
    got = subprocess.run(command, env=env, capture_output=True, check=True, timeout=LIMIT_S)
    assert hashlib.sha256(got.stdout).digest() == hashlib.sha256(want.stdout).digest()


PYTHON = """
import hashlib, subprocess
numbers = [i * 7 for i in range(1_500_000)]
words = {i: str(i) for i in range(150_000)}
assert sum(numbers) == 7 * 1_500_000 * 1_499_999 // 2
assert all(words[i] == str(i) for i in words)
print(hashlib.sha256(b"".join(n.to_bytes(8, "little") for n in numbers)).hexdigest())
print(subprocess.run(["/bin/echo", "child"], capture_output=True, text=True).stdout)
"""


def test_python(start_donor: StartDonor, short_tmp: Path) -> None:
    """An interpreter whose heap is paged, and which runs another program."""
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("no /usr/bin/python3")
    want = run(short_tmp, python, "-c", PYTHON)
    config = configure(short_tmp, [start(start_donor)])
    got = run(short_tmp, python, "-c", PYTHON, **under_pager(config, heap=True))
    assert got.stdout == want.stdout


def test_redis(start_donor: StartDonor, short_tmp: Path) -> None:
    """A key-value store: every value set comes back."""
    server, client = shutil.which("redis-server"), shutil.which("redis-cli")
    if not server or not client:
        pytest.skip("no redis-server")
    config = configure(short_tmp, [start(start_donor)])
    sock = short_tmp / "redis.sock"
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")}
    with subprocess.Popen(
        [server, "--port", "0", "--unixsocket", sock, "--save", "", "--dir", short_tmp],
        env=env | under_pager(config, heap=True),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not sock.exists():
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            value = {i: hashlib.sha256(str(i).encode()).hexdigest() * 16 for i in range(40_000)}
            text = "".join(f"SET {k} {v}\n" for k, v in value.items())
            cli = [client, "-s", str(sock)]
            subprocess.run(
                cli, input=text, text=True, capture_output=True, check=True, timeout=LIMIT_S
            )
            text = "".join(f"GET {k}\n" for k in value)
            got = subprocess.run(
                cli, input=text, text=True, capture_output=True, check=True, timeout=LIMIT_S
            )
            assert [line.strip('"') for line in got.stdout.split()] == list(value.values())
            status = ask(short_tmp, {"cmd": "status"})
            assert status["indirect_bytes"] > 16 << 20
        finally:
            process.terminate()
            process.wait(30)


SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def test_qemu_daemonize_is_refused(start_donor: StartDonor, short_tmp: Path) -> None:
    """A guest whose RAM would not be paged does not run."""
    qemu = shutil.which("qemu-system-x86_64")
    if not qemu:
        pytest.skip("no qemu-system-x86_64")
    config = configure(short_tmp, [start(start_donor)], mode="qemu", threshold="64M")
    command = [qemu, "-daemonize", "-accel", "tcg", "-m", "256", "-display", "none"]
    done = run(short_tmp, *command, status=1, **under_pager(config))
    assert "run QEMU without -daemonize" in done.stderr


@pytest.mark.parametrize("extra", [[], ["-sandbox", SANDBOX]])
def test_qemu_ram_is_adopted(start_donor: StartDonor, short_tmp: Path, extra: list[str]) -> None:
    """QEMU's guest RAM is paged, TCG's code buffer is not, and the donor is told at the end."""
    qemu = shutil.which("qemu-system-x86_64")
    if not qemu:
        pytest.skip("no qemu-system-x86_64")
    donor = start(start_donor)
    config = configure(short_tmp, [donor], mode="qemu", threshold="64M", size="4G")
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")} | under_pager(config)
    with subprocess.Popen(
        [qemu, "-accel", "tcg", "-m", "512", "-display", "none", "-serial", "none"]
        + ["-monitor", "none", "-net", "none", *extra],
        env=env,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            deadline = time.monotonic() + 60
            path = short_tmp / "run" / "vm" / "test.sock"
            while True:
                assert time.monotonic() < deadline and process.poll() is None
                if path.exists() and ask(short_tmp, {"cmd": "status"})["faults"]["zero"] > 50:
                    break
                time.sleep(0.1)
            ranges = ask(short_tmp, {"cmd": "status"})["ranges"]
            guest = [r for r in ranges if r["what"] == "guest"]
            assert sum(r["to"] - r["from"] for r in guest) == 512 << 20
        finally:
            process.terminate()
            process.wait(30)
    assert donor.status()["sessions"] in (0, []) or not donor.status().get("sessions")


def test_socket_protocol(start_donor: StartDonor, short_tmp: Path) -> None:
    """Requests, wrong requests, and a second pager of the same name."""
    config = configure(short_tmp, [start(start_donor)])
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")} | under_pager(config)
    with subprocess.Popen(["/bin/cat"], env=env, stdin=subprocess.PIPE) as process:
        try:
            path = short_tmp / "run" / "vm" / "test.sock"
            deadline = time.monotonic() + 30
            while not path.exists():
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            assert path.stat().st_mode & 0o777 == 0o600
            status = ask(short_tmp, {"cmd": "status"})
            assert status["ok"] and status["budget_bytes"] == 16 << 20
            while status["donors"][0]["state"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.05)
                status = ask(short_tmp, {"cmd": "status"})
            assert ask(short_tmp, {"cmd": "budget", "bytes": 8 << 20})["ok"]
            assert ask(short_tmp, {"cmd": "status"})["budget_bytes"] == 8 << 20
            assert "the smallest" in ask(short_tmp, {"cmd": "budget", "bytes": 1})["error"]
            assert ask(short_tmp, {"cmd": "set", "name": "epsilon", "value": 7})["ok"]
            names = {t["name"]: t["value"] for t in ask(short_tmp, {"cmd": "tunables"})["tunables"]}
            assert names["epsilon"] == 7
            for wrong in ({}, {"cmd": 3}, {"cmd": "x"}, {"cmd": "set"}, {"cmd": "budget"}):
                assert not ask(short_tmp, wrong)["ok"]
            second = run(short_tmp, PAGER_TEST, "open", config, status=3)
            assert "a VM named test is running already" in second.stderr
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(30)


def test_no_permission(start_donor: StartDonor, short_tmp: Path) -> None:
    """Without the right to userfaultfd: one line that says how to get it."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() or not setpriv:
        pytest.skip("needs root and setpriv")
    if Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() != "0":
        pytest.skip("everybody may")
    config = configure(short_tmp, [start(start_donor)])
    drop = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    short_tmp.chmod(0o755)
    program = short_tmp / "pager_test"
    shutil.copy(PAGER_TEST, program)
    os.chown(config, 65534, 65534)
    for path in (short_tmp / "a", short_tmp / "a" / "donor.keys"):
        os.chown(path, 65534, 65534)
    done = run(short_tmp, *drop, program, "open", config, status=3)
    assert "no permission for userfaultfd: as root run `setfacl" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_wrong_configuration(short_tmp: Path) -> None:
    """A program under a pager that can't be made does not run."""
    config = short_tmp / "bad.ini"
    write_private(config, "[vm]\nname = test\nbudget = 1\n")
    done = run(short_tmp, "/bin/true", status=125, **under_pager(config))
    assert done.stderr.startswith("libdcm: ")
