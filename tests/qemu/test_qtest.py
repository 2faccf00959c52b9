# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own tests of what we add to it, with real donors; and that our patches can be sent."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.framework.paths import TOP
from tests.guest.paged import Pager
from tests.guest.vmharness import Qmp
from tests.qemu.conftest import Qemu, StartDonor, two_donors, wait_returned, write_config


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["hostmem-dcm-test", "virtio-gc-test"])
def test_qtest(name: str, qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Every test of the program runs, none is skipped, and each QEMU takes leave of its donors."""
    a, b = two_donors(start_donor)
    config = write_config(short_tmp / "vm.ini", a, b, {"name": "vm", "budget": "32M"})
    env = qemu.environment(short_tmp)
    env["QTEST_QEMU_BINARY"] = str(qemu.binary)
    env["QTEST_DCM_CONFIG"] = str(config)
    done = subprocess.run(
        [str(qemu.folder / name), "--tap", "-k"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=360,
        check=False,
    )
    print(done.stdout)
    lines = done.stdout.splitlines()
    plan = next(int(m[1]) for x in lines if (m := re.fullmatch(r"1\.\.(\d+)", x)))
    passed = [x for x in lines if re.match(r"ok \d+ ", x)]
    assert done.returncode == 0
    assert not [x for x in passed if "SKIP" in x]
    assert len(passed) == plan > 0
    wait_returned((a, b))
    for donor, name in ((a, "a"), (b, "b")):
        events = donor.status()["events"]
        # A pager that ends before a donor has welcomed it has no session to take leave of.
        connected = len(re.findall(rf"donor {name} \(.*\): connected", done.stdout))
        assert events["sessions_goodbye"] == connected > 0
        assert events["sessions_gone"] <= events["sessions_made"] - connected


def test_daemonized(qemu: Qemu, start_donor: StartDonor, short_tmp: Path) -> None:
    """Unlike the shim the backend starts its pager in the process that stays."""
    donors = two_donors(start_donor)
    config = write_config(short_tmp / "vm.ini", *donors, {"name": "vm", "budget": "32M"})
    command = [str(qemu.binary), "-M", "pc,memory-backend=ram", "-m", "64M", "-S"]
    command += ["-object", f"memory-backend-dcm,id=ram,size=64M,config={config}"]
    command += ["-nodefaults", "-display", "none", "-daemonize"]
    command += ["-pidfile", str(short_tmp / "pid")]
    command += ["-qmp", f"unix:{short_tmp}/qmp,server=on,wait=off"]
    subprocess.run(command, env=qemu.environment(short_tmp), check=True, timeout=60)
    pid = int((short_tmp / "pid").read_text())
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(f"{short_tmp}/qmp")
    qmp = Qmp(sock)
    try:
        said = json.loads(qmp.command("qom-get", path="/objects/ram", property="status"))
        assert said["budget_bytes"] == 32 << 20
        assert {d["state"] for d in said["donors"]} <= {"up", "connecting"}
        assert Pager(short_tmp / "vm" / "vm.sock").status()["budget_bytes"] == 32 << 20
    finally:
        qmp.command("quit")
        qmp.close()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.05)
    wait_returned(donors)


def git(folder: Path, *args: str) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", "-C", str(folder), *who, *args]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_series_applies(short_tmp: Path) -> None:
    """The series is what the build applies, and `git am` takes it on QEMU's own source."""
    build = str(TOP / "scripts" / "qemu-build")
    series = short_tmp / "series"
    subprocess.run([build, "--git-series", str(series)], check=True)
    patches = sorted(series.glob("*.patch"))
    names = [x.split()[0] for x in (TOP / "qemu-patches/series").read_text().splitlines()
             if x and not x.startswith("#")]  # fmt: skip
    assert len(patches) == len(names) > 0

    tarball = subprocess.run(
        [build, "--source", "qemu_10.0.13+ds.orig.tar.xz"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    tree = short_tmp / "tree"
    tree.mkdir()
    # only the files that the series changes: all of QEMU takes git half a minute
    changed = {name for x in patches for name in re.findall(r"^--- a/(.+)$", x.read_text(), re.M)}
    unpack = ["tar", "-xJf", tarball, "-C", str(tree), "--strip-components=1", "--wildcards"]
    unpack += ["--no-wildcards-match-slash", *(f"*/{name}" for name in changed)]
    subprocess.run(unpack, check=True)
    git(tree, "init", "-q")
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "pristine")
    git(tree, "am", "-q", *map(str, patches))
    for source in (TOP / "qemu-patches/src").rglob("*.[ch]"):
        applied = tree / source.relative_to(TOP / "qemu-patches/src")
        assert applied.read_bytes() == source.read_bytes()
