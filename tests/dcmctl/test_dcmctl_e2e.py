# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl run` with libdcm and real donors: a program is shown and changed while it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dcmctl.paging import MIB, TIMEOUT, TOUCH, Running, lent, until
from tests.dcmctl.support import TOP, Cli
from tests.framework.donor import Donor
from tests.framework.paths import BUILD, DONORD, PRELOAD

pytestmark = pytest.mark.skipif(
    not (PRELOAD.exists() and DONORD.exists()), reason="build/ has no pager or no donor: run make"
)


def rss_anon(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", text)
    assert match
    return int(match[1]) << 10


def test_run_look_change_end(running: Running, donors: tuple[Donor, Donor], runtime: Path) -> None:
    cli = running.cli
    pid = int(running.line("filled")[1])
    status = running.status()
    assert status["pid"] == pid
    assert status["name"] == "e2e"
    assert status["mode"] == "program"
    assert status["budget_bytes"] == 64 * MIB
    assert status["direct_bytes"] <= status["budget_bytes"] + status["in_flight_max_bytes"]
    assert status["in_flight_max_bytes"] <= 16 * MIB
    assert status["indirect_bytes"] >= 100 * MIB
    assert status["faults"]["missing"] + status["faults"]["zero"] > 1000
    assert status["lost_pages"] == 0
    assert {d["name"]: d["state"] for d in status["donors"]} == {"near": "up", "far": "up"}
    assert [d["transport"] for d in status["donors"]] == ["shm", "tcp"]
    assert sum(lent(d) for d in donors) * 16 * MIB >= 100 * MIB

    # The process also has Python itself, small mappings and libdcm's tables beside the
    # budget, but certainly not 200 MiB.
    assert rss_anon(pid) < (64 + 40) * MIB

    human = cli("status").stdout
    assert f"e2e: pid {pid}, mode program" in human
    assert re.search(r"near +up +shm", human)
    assert re.search(r"far +up +tcp", human)
    assert json.loads(cli("list", "--json").stdout)[0]["pid"] == pid
    sample = json.loads(cli("top", "--once", "--json", "--interval", "1").stdout)
    rates = sample["vms"][0]["rates"]
    assert rates["faults_per_s"] > 0
    assert 0 <= rates["hit_ratio"] <= 1
    assert rates["fetched_bytes_per_s"] > 0
    assert "e2e" in cli("top", "--once", "--interval", "0.5").stdout

    why = json.loads(cli("why", "e2e", "--seconds", "1", "--json").stdout)
    waited = why["waited_ns"]
    assert why["missing"] > 0
    assert waited["donor"] > 0
    assert waited["here"] > 0
    assert waited["retry"] == 0
    # One thread uses the memory: it can't wait for longer than there is time.
    assert sum(waited.values()) < (why["seconds"] + 0.5) * 1e9, why
    assert why["cpu_waited_ns"] is not None
    assert why["advice"]

    done = cli("budget", "e2e", "32M")
    assert done.returncode == 0, done
    assert "budget 64M -> 32M" in done.stdout
    until(
        "direct memory stays above a smaller budget",
        lambda: running.status()["direct_bytes"] <= 32 * MIB + status["in_flight_max_bytes"],
        lambda: cli("status", "e2e").stdout,
    )
    assert "smallest is" in cli.fails("budget", "e2e", "4K")
    assert running.status()["budget_bytes"] == 32 * MIB

    listed = json.loads(cli("tunable", "e2e", "--json").stdout)
    assert {"epsilon", "elastic", "largest_block"} <= set(listed)
    assert all({"value", "unit", "default", "min", "max", "why"} <= set(t) for t in listed.values())
    assert cli("tunable", "e2e", "epsilon", "321").returncode == 0
    assert cli("tunable", "e2e", "epsilon").stdout == "321\n"
    assert cli("tunable", "e2e", "elastic", "off").returncode == 0
    assert "out of range" in cli.fails("tunable", "e2e", "epsilon", "10001")

    near, far = donors
    shown = cli("donor", "status", f"127.0.0.1:{far.http_port}")
    assert shown.returncode == 0, shown
    assert "alive" in shown.stdout
    assert re.search(r"^lab ", shown.stdout, re.MULTILINE)

    running.stop.touch()
    assert int(running.line("verified")[1]) >= 1
    running.process.communicate(timeout=TIMEOUT)
    assert running.process.returncode == 7
    assert cli.vm_files() == []
    until("slabs stay lent", lambda: lent(near) + lent(far) == 0)


def test_killed(running: Running, donors: tuple[Donor, Donor]) -> None:
    """The program gets SIGKILL: so does dcmctl; files and slabs are gone."""
    pid = int(running.line("filled")[1])
    assert sum(lent(d) for d in donors) > 0
    os.kill(pid, signal.SIGKILL)
    running.process.communicate(timeout=TIMEOUT)
    assert running.process.returncode == -signal.SIGKILL
    assert running.cli.vm_files() == []
    until("slabs stay lent", lambda: sum(lent(d) for d in donors) == 0)


@pytest.mark.slow
def test_terminated(running: Running, donors: tuple[Donor, Donor]) -> None:
    running.line("filled")
    running.process.terminate()
    running.process.communicate(timeout=TIMEOUT)
    assert running.process.returncode == -signal.SIGTERM
    assert running.cli.vm_files() == []
    until("slabs stay lent", lambda: sum(lent(d) for d in donors) == 0)


@pytest.mark.slow
def test_name_taken_by_a_running_vm(running: Running, args: list[str]) -> None:
    running.line("filled")
    args += ["--budget", "64M", "--name", "e2e"]
    assert "is running already" in running.cli.fails(*args, "--", "true")
    assert running.status()["name"] == "e2e"


@pytest.mark.slow
def test_wrong_key(dcmctl: Cli, args: list[str], tmp_path: Path) -> None:
    """A key that donors do not have: the donor's row says so, and nothing is lent."""
    wrong = tmp_path / "wrong"
    wrong.write_text("lab:" + "00" * 32 + "\n")
    wrong.chmod(0o600)
    args[args.index("--keys") + 1] = str(wrong)
    process = dcmctl.start(
        *args, "--budget", "64M", "--name", "wrong", "--",
        sys.executable, "-c", "m = bytearray(40 << 20); print('up', flush=True); input()",
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    assert process.returncode != 0
    assert re.search(r"near|far|key|donor", err), (out, err)
    assert dcmctl.vm_files() == []


def test_donor_drains_then_the_other_dies(
    dcmctl: Cli, args: list[str], donors: tuple[Donor, Donor], runtime: Path
) -> None:
    """A drained donor's memory is moved; a dead one's is lost, reported, and gives SIGBUS."""
    near, far = donors
    process = dcmctl.start(
        *args, "--budget", "64M", "--name", "e2e", "--on-loss", "sigbus", "--",
        sys.executable, "-c", TOUCH, runtime / "stop", stderr=subprocess.STDOUT,
    )  # fmt: skip
    vm = Running(dcmctl, process, runtime / "stop")
    try:
        vm.line("filled")
        until("near got no slab", lambda: lent(near) > 0)
        assert near.stop() == 0
        # its status may be a tenth of a second old
        until("near has slabs", lambda: vm.status()["donors"][0]["slabs"] == 0)
        status = vm.status()
        assert status["lost_pages"] == 0
        human = dcmctl("status").stdout
        assert re.search(r"^! near: ", human, re.MULTILINE), human
        before = status["faults"]["missing"]
        until("no fault since", lambda: vm.status()["faults"]["missing"] > before + 1000)
        assert process.poll() is None  # it checks all pages that it reads

        far.kill()
        out, _ = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGBUS, out
    assert "WRONG" not in out
    assert re.search(r"donor far \(tcp:.*\) is lost", out), out
    assert "SIGBUS" in out
    assert dcmctl.vm_files() == []


@pytest.mark.parametrize("malloc", ["auto", pytest.param("jemalloc", marks=pytest.mark.slow)])
def test_small_objects_are_paged_too(dcmctl: Cli, args: list[str], malloc: str) -> None:
    """Mappings of 1 MiB of an allocator are paged too; children can be started."""
    program = (
        "import re, subprocess\n"
        "x = [str(i) * 12 for i in range(1_200_000)]\n"
        "print(re.search(r'RssAnon:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n"
        "assert x == [str(i) * 12 for i in range(1_200_000)]\n"
    )
    done = dcmctl(
        *args, "--budget", "32M", "--malloc", malloc, "--", sys.executable, "-c", program,
        timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done
    rss, child = done.stdout.split()
    assert int(rss) << 10 < (32 + 40) * MIB  # without a pager it is 165 MiB
    assert child == "child"


def test_ordinary_programs(dcmctl: Cli, args: list[str], tmp_path: Path) -> None:
    """Stock programs whose results can be checked."""
    lines = [f"{(i * 2654435761) % 1000003:07}" for i in range(300_000)]
    source = tmp_path / "in"
    source.write_text("\n".join(lines) + "\n")
    done = dcmctl(
        *args, "--budget", "8M", "--set", "reserve_pages=16", "--",
        "sort", "--parallel=1", "-S", "64M", source, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(lines)
    assert dcmctl.vm_files() == []


@pytest.mark.skipif(TOP / "build" != BUILD, reason="built elsewhere")
def test_dry_run_of_this_tree(dcmctl: Cli, args: list[str]) -> None:
    """Without DCM_LIBDIR the tree's own build is found."""
    del dcmctl.env["DCM_LIBDIR"]
    shown = json.loads(dcmctl(*args, "--budget", "64M", "--dry-run", "--json", "--", "true").stdout)
    assert shown["environment"]["LD_PRELOAD"].startswith(f"{TOP}/build/lib/libdcm-preload.so")
