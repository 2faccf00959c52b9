# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that know nothing of libdcm, under the shim."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.process import threads
from tests.pager.support import (
    BUILD,
    LIMIT_S,
    StartDonor,
    ask,
    built,
    configure,
    run,
    start,
    under_pager,
)

SHIM_TEST = BUILD / "tests-pager" / "shim_test"

pytestmark = built


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


def huge_pages_whole() -> bool:
    """Before Linux 6.14 an empty page table stays, in whose place no huge page can come."""
    major, minor = (int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    return (major, minor) >= (6, 14) and "[never]" not in setting


FILL = """
b = bytearray(96 << 20)
for i in range(0, len(b), 4096):
    b[i] = (i >> 12) % 251
print("filled", flush=True)
input()
assert all(b[i] == (i >> 12) % 251 and not b[i + 4095] for i in range(0, len(b), 4096))
"""


@contextlib.contextmanager
def filled(config: Path, short_tmp: Path) -> Iterator[subprocess.Popen[str]]:
    """FILL under libdcm, idle in the block; then it looks at all of its memory, and ends well."""
    env = {**os.environ, **under_pager(config, heap=True)}
    env["DCM_RUNTIME_DIR"] = str(short_tmp / "run")
    command = ["/usr/bin/python3", "-c", FILL]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout and program.stdout.readline() == "filled\n"
        yield program
        program.communicate("\n", timeout=LIMIT_S)
    assert program.returncode == 0


def cut_budget(short_tmp: Path, size: int) -> None:
    """The budget of the program, which is idle; returns when its direct memory is no more."""
    assert ask(short_tmp, {"cmd": "budget", "bytes": size})["ok"]
    deadline = time.monotonic() + LIMIT_S
    while ask(short_tmp, {"cmd": "status"})["direct_bytes"] > size:
        assert time.monotonic() < deadline, "nothing is evicted"
        time.sleep(0.05)


def pauses(pid: int, name: str) -> int:
    """How often the thread of that name has gone to sleep."""
    (task,) = threads(pid, name)
    text = (task / "status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)$", text, re.M)[0])


def test_an_idle_programs_memory_leaves_slowly(
    start_donor: StartDonor, short_tmp: Path
) -> None:
    """The pager's thread went to sleep after every 32 blocks, for a tenth of a second."""
    config = configure(short_tmp, [start(start_donor)], budget="256M")
    with filled(config, short_tmp) as program:
        before = pauses(program.pid, "dcm-pager")
        cut_budget(short_tmp, 16 << 20)
        slept = pauses(program.pid, "dcm-pager") - before
        status = ask(short_tmp, {"cmd": "status"})
    print(f"{slept} pauses for {status['counters']['DEMOTED']} blocks")
    # 80 MiB and more in blocks of at most 64 KiB
    assert slept < 30, slept


def test_new_memory_has_few_huge_pages(start_donor: StartDonor, short_tmp: Path) -> None:
    """One fault in a span, or a huge page that was split, and all others came as single pages."""
    if not huge_pages_whole():
        pytest.skip("this kernel has no huge pages here, or splits them")
    config = configure(short_tmp, [start(start_donor)], budget="256M")
    with filled(config, short_tmp) as program:
        status = ask(short_tmp, {"cmd": "status"})
        huge = [
            int(found[1])
            for found in re.finditer(
                r"^AnonHugePages: +(\d+) kB$",
                Path(f"/proc/{program.pid}/smaps").read_text(),
                re.M,
            )
        ]
        # each is taken apart when a part of it is evicted
        cut_budget(short_tmp, 32 << 20)
    # 48 spans, the first of them in steps
    assert sum(lane["huge"] for lane in status["lanes"]) >= 40, status["lanes"]
    assert sum(huge) >= 40 << 11, huge
    assert status["counters"]["FAULTS"] < 200, status["counters"]


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
                if path.exists() and ask(short_tmp, {"cmd": "status"})["direct_bytes"] > 1 << 19:
                    break
                time.sleep(0.1)
            ranges = ask(short_tmp, {"cmd": "status"})["ranges"]
            guest = [r for r in ranges if r["what"] == "guest"]
            assert sum(r["to"] - r["from"] for r in guest) == 512 << 20
        finally:
            process.terminate()
            process.wait(30)
    assert donor.status()["sessions"] in (0, []) or not donor.status().get("sessions")
