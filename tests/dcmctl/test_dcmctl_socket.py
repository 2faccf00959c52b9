# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands with a VM's socket that answers, sends garbage, is silent or dead."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.dcmctl.support import DCMCTL, Cli
from tests.dcmctl.vm_server import STATUS, VmServer


def age(*paths: Path) -> None:
    """Make files old enough to be stale: dcmctl leaves new ones alone."""
    deadline = time.time() + 10
    while any(time.time() - p.lstat().st_ctime < 2.2 for p in paths):
        assert time.time() < deadline
        time.sleep(0.1)


def test_status(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms):
        done = dcmctl("status")
        assert done.returncode == 0, done
        for said in (
            "vm1: pid 4242, mode qemu, up 2m05s",
            "128M of 256M budget",
            "hit ratio   75.0%",
            "p50 17us",
            "p99.9 900us",
            "90.0% of the 500 observed were used",
            "16: 4 mapped, 1 moving, 0 lost",
            "draining",
            "tcp, file ",
            "tcp:127.0.0.1:7400",
        ):
            assert said in done.stdout, done.stdout
        assert "LOST" not in done.stdout
        assert json.loads(dcmctl("status", "vm1", "--json").stdout) == STATUS


def test_lost_pages_are_shouted(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        server.status["lost_pages"] = 256
        assert "LOST        256 pages (1M)" in dcmctl("status", "vm1").stdout
        assert "! vm1: 256 pages lost" in dcmctl("top", "--once", "--interval", "0.1").stdout


def test_copies_are_shown(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        assert "copies " not in dcmctl("status", "vm1").stdout
        server.status["copies"] = 2
        said = "copies      each page on 2 donors; nothing exposed"
        assert said in dcmctl("status", "vm1").stdout
        assert "copies" not in dcmctl("top", "--once", "--interval", "0.1").stdout
        server.status["exposed_bytes"] = 3 << 20
        assert "3M exposed to one donor's death" in dcmctl("status", "vm1").stdout
        assert "sealed" not in dcmctl("status", "vm1").stdout
        server.status["seal"] = True
        said = "each page is encrypted on this host"
        assert said in dcmctl("status", "vm1").stdout
        assert f"vm1: {said}" in dcmctl("top", "--once", "--interval", "0.1").stdout
        assert "at risk" not in dcmctl("status", "vm1").stdout
        server.status["near_bytes"] = 2 << 20
        said = "; copies of 2M are on one host or in one group"
        assert said in dcmctl("status", "vm1").stdout
        server.status["lag_bytes"] = 1 << 20
        assert "; 1M is not in files yet" in dcmctl("status", "vm1").stdout
        top = dcmctl("top", "--once", "--interval", "0.1").stdout
        assert "vm1: 1M is not in files yet" in top
        server.status["donors"][0]["alone_bytes"] = 5 << 20
        server.status["together"] = [
            {"donors": "near+far", "bytes": 1 << 20},
            {"donors": "near+third", "bytes": 7 << 20},
        ]
        said = dcmctl("status", "vm1").stdout
        assert "at most 5M if " in said
        assert "; at most 7M if near and third die at once" in said
        said = "! vm1: 3M have fewer than 2 copies"
        assert said in dcmctl("top", "--once", "--interval", "0.1").stdout


def test_a_silent_donor_is_shown(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        server.status["donors"][1] |= {"state": "silent", "silent_ms": 31400,
                                       "patience_ms": 60000, "why": "does not answer"}
        said = "! d2: silent for 31s, patience is 1m00s: does not answer"
        assert said in dcmctl("status", "vm1").stdout.splitlines()
        assert "silent for 31s" in dcmctl("top", "--once", "--interval", "0.1").stdout
        donors = json.loads(dcmctl("status", "vm1", "--json").stdout)["donors"]
        assert (donors[1]["silent_ms"], donors[1]["patience_ms"]) == (31400, 60000)


def test_slabs_that_outlived_their_donor_are_shown(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        donor = server.status["donors"][1]
        donor |= {"state": "lost", "why": "connection refused", "orphans": 3, "orphans_waiting": 3}
        said = "! d2: connection refused; 3 slabs outlived it and are used on this host: "
        assert said + "no other donor has room for them yet" in dcmctl("status", "vm1").stdout
        donor["orphans_waiting"] = 1
        assert said + "they are moved to other donors" in dcmctl("status", "vm1").stdout


def test_what_a_donor_says_about_itself_is_shown(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        assert "lends" not in dcmctl("status", "vm1").stdout
        server.status["donors"][0] |= {"capacity_bytes": 8 << 30, "lent_bytes": 3 << 30,
                                       "head_room_bytes": 1 << 30, "sessions": 4}
        said = "d1: lends 3G of 8G in 4 sessions, keeps 1G head room"
        assert said in dcmctl("status", "vm1").stdout
        assert said in dcmctl("top", "--once", "--interval", "0.1").stdout
        told = json.loads(dcmctl("status", "vm1", "--json").stdout)["donors"][0]
        assert (told["sessions"], told["head_room_bytes"]) == (4, 1 << 30)


def test_which_vm(dcmctl: Cli, vms: Path) -> None:
    assert "no VM is running" in dcmctl.fails("status")
    assert "no VM 'x' is running (running: none)" in dcmctl.fails("status", "x")
    assert "not a VM's name" in dcmctl.fails("status", "\x1b[31m")
    with VmServer(vms, "a") as a, VmServer(vms, "b"):
        assert "2 VMs are running" in dcmctl.fails("status")
        assert "running: a, b" in dcmctl.fails("status", "c")
        assert dcmctl("status", "b").returncode == 0
        assert dcmctl("status", a.path).returncode == 0
        assert dcmctl("list", "-q").stdout == "a\nb\n"
        table = dcmctl("list").stdout.splitlines()
        assert table[0].split()[:2] == ["VM", "PID"]
        assert len(table) == 3
        listed = json.loads(dcmctl("list", "--json").stdout)
        assert [vm["name"] for vm in listed] == ["a", "b"]
        assert listed[0]["donors"] == ["d1", "d2"]


def test_redundancy(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        assert dcmctl("redundancy", "vm1").stdout == "vm1: redundancy none\n"
        done = dcmctl("redundancy", "vm1", "replica:2")
        assert done.stdout == "vm1: redundancy none -> replica:2\n"
        assert {"cmd": "redundancy", "value": "replica:2"} in server.requests
        server.status["exposed_bytes"] = 3 << 20
        said = dcmctl("redundancy", "vm1", "replica:3").stdout
        assert said.startswith("vm1: redundancy replica:2 -> replica:3; 3M has fewer copies yet")
        said = dcmctl("redundancy", "vm1", "replica:2+disk").stdout
        assert said.startswith("vm1: redundancy replica:3 -> replica:2+disk; 3M has fewer"), said
        assert json.loads(dcmctl("redundancy", "vm1", "none", "--json").stdout) == {
            "name": "vm1",
            "old_redundancy": "replica:2+disk",
            "redundancy": "none",
            "old_copies": 3,
            "copies": 1,
            "exposed_bytes": 3 << 20,
        }
        assert "invalid choice" in dcmctl.fails("redundancy", "vm1", "replica:4", status=2)
        server.status["waiting"] = 101
        assert "collect garbage" in dcmctl.fails("redundancy", "vm1", "replica:2")


def test_budget(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        done = dcmctl("budget", "vm1", "64M")
        assert done.stdout == "vm1: budget 256M -> 64M, 128M direct now\n"
        assert {"cmd": "budget", "bytes": 64 << 20} in server.requests
        assert json.loads(dcmctl("budget", "vm1", "1G", "--json").stdout) == {
            "name": "vm1",
            "old_budget_bytes": 64 << 20,
            "budget_bytes": 1 << 30,
            "direct_bytes": 128 << 20,
        }
        assert dcmctl.fails("budget", "vm1", "1M") == "VM vm1: budget: at least 4M"
        assert "is not a size" in dcmctl.fails("budget", "vm1", "lots", status=2)


def test_tunables(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms) as server:
        assert json.loads(dcmctl("tunable", "vm1", "--json").stdout) == {
            "epsilon": {"value": 100},
            "elastic": {"value": 1},
        }
        assert "epsilon" in dcmctl("tunable", "vm1").stdout
        assert dcmctl("tunable", "vm1", "epsilon").stdout == "100\n"
        assert dcmctl("tunable", "vm1", "epsilon", "7").stdout == "vm1: epsilon 100 -> 7\n"
        assert dcmctl("tunable", "vm1", "elastic", "off").stdout == "vm1: elastic 1 -> 0\n"
        assert server.status["tunables"] == {"epsilon": 7, "elastic": 0}
        assert "has no tunable 'other'" in dcmctl.fails("tunable", "vm1", "other", "1")
        assert "out of range" in dcmctl.fails("tunable", "vm1", "epsilon", "10M")
        assert "not a number" in dcmctl.fails("tunable", "vm1", "epsilon", "few", status=2)


def test_tunables_with_reasons(dcmctl: Cli, vms: Path) -> None:
    entry = {"name": "epsilon", "value": 1, "unit": "bp", "default": 100, "min": 0, "max": 10000}
    answer = json.dumps({"ok": True, "tunables": [entry]}).encode() + b"\n"
    with VmServer(vms, answer=lambda _: answer):
        out = dcmctl("tunable", "vm1").stdout
        assert out.splitlines()[1].split() == ["epsilon", "1", "bp", "100", "0..10000"]


# ---- top ----


def test_top_rates(dcmctl: Cli, vms: Path) -> None:
    """Two readings: 400 faults between them, 100 of them missing, 8 MB out, 2 MB in."""
    with VmServer(vms) as server:
        server.step = {
            "faults.total": 400,
            "faults.missing": 100,
            "written_bytes": 8_000_000,
            "fetched_bytes": 2_000_000,
            "block_mix.64K": 100,
        }
        sample = json.loads(dcmctl("top", "--once", "--json", "--interval", "0.5").stdout)
        (vm,) = sample["vms"]
        rates = vm["rates"]
        assert rates["hit_ratio"] == 0.75
        assert rates["block_mix"] == {"4K": 0, "8K": 0, "16K": 0, "32K": 0, "64K": 100}
        # Counts over the same time have exact quotients, whatever the time was.
        assert rates["written_bytes_per_s"] / rates["faults_per_s"] == pytest.approx(20000)
        assert rates["fetched_bytes_per_s"] / rates["faults_per_s"] == pytest.approx(5000)
        assert sample["errors"] == []
        done = dcmctl("top", "--once", "--interval", "0.2")
        assert "\x1b" not in done.stdout
        assert "75.0%" in done.stdout
        assert "6666666666" in done.stdout
        assert "128M" in done.stdout


def test_top_lines_of_json(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms):
        process = dcmctl.start("top", "--json", "--interval", "0.1")
        assert process.stdout is not None
        objects = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert all(o["vms"][0]["name"] == "vm1" for o in objects)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")


def test_top_without_vms(dcmctl: Cli) -> None:
    assert "no VM is running" in dcmctl("top", "--once").stdout
    assert "0.1 to 3600" in dcmctl.fails("top", "--interval", "0", status=2)
    assert "0.1 to 3600" in dcmctl.fails("top", "--interval", "nan", status=2)


def test_top_vm_restarted_or_gone(dcmctl: Cli, vms: Path) -> None:
    """A counter that went back is a new process, not a huge rate."""
    with VmServer(vms) as server:
        server.step = {"faults.total": -400, "pid": 1}
        sample = json.loads(dcmctl("top", "--once", "--json", "--interval", "0.1").stdout)
        assert sample["vms"][0]["rates"]["faults_per_s"] == 0
        assert sample["vms"][0]["rates"]["hit_ratio"] is None


def _read_until(fd: int, wanted: bytes, seconds: float = 30) -> bytes:
    seen = b""
    deadline = time.monotonic() + seconds
    while wanted not in seen:
        left = deadline - time.monotonic()
        assert left > 0, seen
        if select.select([fd], [], [], left)[0]:
            seen += os.read(fd, 65536)
    return seen


def test_top_on_a_terminal(dcmctl: Cli, vms: Path) -> None:
    """The alternate screen is drawn again, q ends it, and the terminal is restored."""
    master, slave = pty.openpty()
    with VmServer(vms):
        process = subprocess.Popen(
            [str(DCMCTL), "top", "--interval", "0.2"],
            env=dcmctl.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        try:
            os.close(slave)
            seen = _read_until(master, b"q ends it")
            assert b"\x1b[?1049h" in seen
            assert b"vm1" in seen
            _read_until(master, b"q ends it")
            os.write(master, b"q")
            _read_until(master, b"\x1b[?1049l")
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
            os.close(master)


# ---- stale ----


def test_stale_socket_is_cleaned(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms, "alive"):
        dead = VmServer(vms, "dead")
        dead.__enter__()
        dead.stop()
        (vms / "dead.conf").write_text("")
        (vms / "alone.conf").write_text("")
        (vms / "unrelated").write_text("")
        assert dead.path.exists()
        age(dead.path, vms / "alone.conf")
        assert dcmctl("list", "-q").stdout == "alive\n"
        assert dcmctl.vm_files() == ["alive.sock", "unrelated"]


def test_newborn_and_locked_are_left(dcmctl: Cli, vms: Path) -> None:
    """A refused connection alone does not mean a dead VM: it may be starting."""
    starting = VmServer(vms, "starting")
    starting.__enter__()
    starting.stop()
    conf = vms / "starting.conf"
    with conf.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert dcmctl("list", "-q").stdout == ""
        age(starting.path)
        assert dcmctl("list", "-q").stdout == ""
        assert dcmctl.vm_files() == ["starting.conf", "starting.sock"]
    assert dcmctl("list", "-q").stdout == ""
    assert dcmctl.vm_files() == []


def test_not_sockets(dcmctl: Cli, vms: Path) -> None:
    (vms / "file.sock").write_text("x")
    (vms / "dir.sock").mkdir()
    (vms / "loop.sock").symlink_to("loop.sock")
    (vms / "bad name.sock").write_text("x")
    assert dcmctl("list", "-q").stdout == ""
    assert len(dcmctl.vm_files()) == 4
    assert "dcmctl" not in dcmctl("top", "--once").stderr


# ---- hostile ----


def reply(**change: Any) -> bytes:
    return json.dumps({"ok": True, **STATUS, **change}).encode() + b"\n"


GARBAGE: list[bytes] = [
    b"\n",
    b"hello\n",
    b"\x00\xff\xfe\n",
    b"[]\n",
    b"null\n",
    b"12\n",
    b'"ok"\n',
    b"{}\n",
    b'{"ok": 1}\n',
    b'{"ok": "yes"}\n',
    b'{"ok": false}\n',
    b'{"ok": false, "error": {"a": 1}}\n',
    b'{"ok": true',
    b'{"ok": true, "pid": NaN}\n',
    b'{"ok": true, "pid": ' + b"9" * 5000 + b"}\n",
    b"[" * 200_000 + b"\n",
    b'{"a":' * 50_000 + b"\n",
    b"x" * (2 << 20),
    b"\xff" * (2 << 20) + b"\n",
    reply(pid="1"),
    reply(pid=-1),
    reply(pid=1.5),
    reply(pid=True),
    reply(pid=1 << 64),
    reply(uptime_s="long"),
    reply(uptime_s=1e300),
    reply(name=5),
    reply(name="n" * 1000),
    reply(faults=[]),
    reply(faults={"total": None}),
    reply(block_mix="4K"),
    reply(latency_ns={"fault": 5}),
    reply(donors={}),
    reply(donors=[1]),
    reply(donors=[{"name": []}]),
    reply(donors=[{}] * 5000),
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage(dcmctl: Cli, vms: Path, data: bytes) -> None:
    """Any answer gives at most one error line, which names the VM, and no traceback."""
    with VmServer(vms, answer=lambda _: data):
        if data.endswith(b"\n"):
            message = dcmctl.fails("status", "vm1")
        else:  # no end of line: dcmctl waits for the timeout or the limit
            process = dcmctl("status", "vm1")
            assert process.returncode == 1
            message = process.stderr.strip().removeprefix("dcmctl: ")
        assert message.startswith("VM vm1"), message
        assert message.isprintable()
        assert len(message) < 300


def test_random_garbage(dcmctl: Cli, vms: Path) -> None:
    """A changed answer is still accepted, or gives one clean error line."""
    seed = int(os.environ.get("SEED", "1"))
    rng = random.Random(seed)
    good = reply()

    def mutate(_: dict[str, Any]) -> bytes:
        data = bytearray(good)
        for _i in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) - 1)
            kind = rng.randrange(3)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 40)]
            else:
                data[at:at] = rng.choice([b"{", b"}", b"\x1b[2J", b"1e999", b'"', b"\n", b"-"])
        return bytes(data) + (b"" if data.endswith(b"\n") else b"\n")

    from dcmctl import show
    from dcmctl.lib.errors import DcmError
    from dcmctl.pager import vmsock
    from dcmctl.pager.status import Status

    with VmServer(vms, answer=mutate) as server:
        vm = vmsock.Vm("vm1", server.path)
        refused = 0
        for _ in range(500):
            try:
                status = Status.read(vm.ask({"cmd": "status"}), "VM vm1")
                text = show.status_lines("vm1", status)
                assert all(line.isprintable() for line in text), f"seed {seed}"
            except DcmError as exc:
                refused += 1
                assert str(exc).isprintable(), f"seed {seed}"
        assert 0 < refused < 500


def test_control_characters_are_not_shown(dcmctl: Cli, vms: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\n"
    donors = [{**STATUS["donors"][0], "name": evil, "state": evil}]
    with VmServer(vms, answer=lambda _: reply(version=evil, mode=evil, donors=donors)):
        for args in (("status", "vm1"), ("top", "--once", "--interval", "0.1"), ("list",)):
            out = dcmctl(*args).stdout
            assert out
            assert all(c == "\n" or c.isprintable() for c in out)
    with VmServer(vms, answer=lambda _: json.dumps({"ok": False, "error": evil}).encode() + b"\n"):
        assert dcmctl.fails("status", "vm1").isprintable()


def test_silence(dcmctl: Cli, vms: Path) -> None:
    """A VM that accepts the request and is silent; a VM that answers byte by byte."""
    stop = threading.Event()

    def silent(_: dict[str, Any]) -> bytes:
        stop.wait(30)
        return b""

    with VmServer(vms, answer=silent):
        assert "does not answer within" in dcmctl.fails("status", "vm1")
        stop.set()


def test_dripping(dcmctl: Cli, vms: Path) -> None:
    """The timeout is for the whole answer, not for each byte of it."""
    path = vms / "drip.sock"
    stop = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(4)

        def drip() -> None:
            while not stop.is_set():
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    try:
                        while not stop.wait(0.2):
                            peer.sendall(b" ")
                    except OSError:
                        pass

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        try:
            assert "does not answer within" in dcmctl.fails("status", "drip")
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_one_bad_vm_does_not_hide_the_good(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms, "good"), VmServer(vms, "bad", answer=lambda _: b"junk\n"):
        done = dcmctl("list")
        assert done.returncode == 1
        assert "good" in done.stdout
        assert done.stderr == "dcmctl: VM bad answered with something that is not JSON\n"
        sample = json.loads(dcmctl("top", "--once", "--json", "--interval", "0.1").stdout)
        assert [vm["name"] for vm in sample["vms"]] == ["good"]
        assert [e["vm"] for e in sample["errors"]] == ["bad"]
        assert "! VM bad answered" in dcmctl("top", "--once", "--interval", "0.1").stdout


def test_closed_pipe(dcmctl: Cli, vms: Path) -> None:
    with VmServer(vms):
        done = subprocess.run(
            ["sh", "-c", f"'{DCMCTL}' top --interval 0.1 | head -n 1"],
            env=dcmctl.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.startswith("dcmctl top")
        assert done.stderr == ""
