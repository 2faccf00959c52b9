# SPDX-License-Identifier: GPL-2.0-or-later
"""The user pager with real donors: torture, donors lost, its socket, what it needs."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.framework.donor import write_private
from tests.framework.pager import wait_idle
from tests.framework.relay import LateRelay
from tests.pager.support import (
    BUILD,
    LIMIT_S,
    PAGER_TEST,
    SECONDS,
    StartDonor,
    ask,
    built,
    configure,
    hostile,
    run,
    socket_of,
    start,
    start_group,
    under_pager,
)

AHEAD_TEST = BUILD / "tests-pager" / "ahead_test"
LATE_TEST = BUILD / "tests-pager" / "late_test"
LOSS_TEST = BUILD / "tests-pager" / "loss_test"
OLD_KERNELS = ["", "move", "vector", "move,vector,poison"]
TORTURED_KERNELS = [
    pytest.param(without, marks=[pytest.mark.slow] * (without in ("move", "vector")))
    for without in OLD_KERNELS
]
SLOW_WITHOUT = pytest.param("move,vector", marks=pytest.mark.slow)
SLOW_SHM = pytest.param("shm", marks=pytest.mark.slow)

pytestmark = built


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


@pytest.mark.parametrize("without", ["", SLOW_WITHOUT])
def test_torture_hidden(start_donor: StartDonor, short_tmp: Path, without: str) -> None:
    """As many pages as can be are hidden, with their bytes, to see their next touch."""
    config = configure(short_tmp, [start(start_donor)])
    write_private(config, config.read_text() + "[tunables]\nreuse = 1000000\n")
    done = run(
        short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "11", DCM_WITHOUT=without
    )
    assert "every byte right" in done.stdout
    said = re.search(r"(\d+) pages hidden", done.stdout)
    assert said and int(said[1]) > 1000, done.stdout


def test_torture_tcp(start_donor: StartDonor, short_tmp: Path) -> None:
    """Two donors over TCP."""
    donors = start_group(start_donor, "ab")
    config = configure(short_tmp, donors, "tcp")
    run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "5")


@pytest.mark.parametrize("transport", [SLOW_SHM, "tcp"])
def test_torture_hostile(start_donor: StartDonor, short_tmp: Path, transport: str) -> None:
    """Operations that fail, come late and in pieces, connections that die: no byte is wrong."""
    config = configure(short_tmp, [start(start_donor)], transport)
    done = run(short_tmp, PAGER_TEST, "torture", config, "64", SECONDS, "4", "9", **hostile())
    assert "every byte right" in done.stdout
    print(done.stderr)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_fetched_ahead(start_donor: StartDonor, short_tmp: Path, transport: str) -> None:
    """Pages that a program asks for come before it reads them, as far as there is room."""
    config = configure(short_tmp, start_group(start_donor, "ab"), transport)
    done = run(short_tmp, AHEAD_TEST, config, "64", "16")
    print(done.stdout)
    assert "every byte right" in done.stdout


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
        status = wait_idle(socket_of(short_tmp), program.pid)
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
    donors = [donor]  # over TCP: slabs of shm outlive their donor
    if what == "discard":  # what is written after needs somewhere to go
        options = {"slab-size": "2M", "capacity": "2G"}
        donors.append(start_donor("b", donor=options, keys=donor.keys))
    config = configure(short_tmp, donors, "tcp")
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
    assert "donor a (tcp:" in line and "KiB of VM test in extents 0,1,2" in line


@pytest.mark.parametrize("without", [pytest.param("", marks=pytest.mark.slow), "poison"])
def test_loss_killed_by_signal_7(
    start_donor: StartDonor, short_tmp: Path, without: str
) -> None:
    """Lost pages discarded under use: only threads that access them get SIGBUS."""
    out, _ = lose_donor(start_donor, short_tmp, without, "discard", SECONDS)
    assert "to lost pages" in out


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


def test_second_program_of_a_configuration_is_refused(
    start_donor: StartDonor, short_tmp: Path
) -> None:
    """A configuration names no VM: each process that reads it has a name of its own."""
    config = configure(short_tmp, [start(start_donor)], name=None)
    env = {**os.environ, "DCM_RUNTIME_DIR": str(short_tmp / "run")} | under_pager(config)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(["/bin/cat"], env=env, stdin=subprocess.PIPE)
            )
            assert process.stdin
            stack.callback(process.stdin.close)
            name = f"cat-{process.pid}"
            deadline = time.monotonic() + 30
            while not (short_tmp / "run" / "vm" / f"{name}.sock").exists():
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            status = ask(short_tmp, {"cmd": "status"}, name)
            assert status["ok"] and status["name"] == name


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
