# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl donor list, add, drain, remove`: configurations, and a running VM."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from dcmctl.cluster import confedit
from dcmctl.lib.address import Address, Donor
from dcmctl.lib.errors import DcmError
from dcmctl.pager import settings, vmsock
from hypothesis import given
from hypothesis import strategies as st

from tests.dcmctl.paging import MIB, TIMEOUT, Running, lent, until
from tests.dcmctl.support import Cli
from tests.framework.donor import Donor as RealDonor
from tests.framework.paths import DONORD, PRELOAD

real = pytest.mark.skipif(
    not (PRELOAD.exists() and DONORD.exists()), reason="build/ has no pager or no donor: run make"
)

CONF = """\
; what people write
[key]
file = /etc/kvm-dcm/lab.key ; of lab

# the rack upstairs
[donor near]
; by its socket
address = unix:/run/near.sock

[donor far]
address = tcp:far:9740
status = far:9750
; the last word
[tunables]
epsilon = 7
"""

# ---- the editor ----


def test_add() -> None:
    donor = Donor("new", Address.parse("tcp:new:1"), "new:2", group="rack1")
    text = confedit.added(CONF, donor)
    assert text == CONF + "\n[donor new]\naddress = tcp:new:1\nstatus = new:2\ngroup = rack1\n"


def test_remove_keeps_comments() -> None:
    assert confedit.removed(CONF, "near") == CONF.replace(
        "[donor near]\n; by its socket\naddress = unix:/run/near.sock\n", "; by its socket\n"
    )
    assert confedit.removed(CONF, "far") == CONF.replace(
        "\n[donor far]\naddress = tcp:far:9740\nstatus = far:9750\n", ""
    )
    assert confedit.removed(CONF, "fa") == CONF


def test_drain_and_back() -> None:
    text = confedit.drained(CONF, "near", True)
    assert text == CONF.replace("near.sock\n", "near.sock\ndrain = yes\n")
    assert confedit.drained(text, "near", True) == text
    assert confedit.drained(text, "near", False) == CONF


@pytest.mark.parametrize(
    "line", ["[ donor near ]", "[donor near ]", " [donor near]", "[donor\tnear]", "[donor near];x"]
)
def test_only_sections_of_the_c_reader(line: str) -> None:
    """hostconf_test and test_ini_refused have the same lines: both readers refuse them."""
    text = CONF.replace("[donor near]", line)
    assert confedit.removed(text, "near") == text
    assert confedit.drained(text, "near", True) == text


def test_sections_with_spaces_and_comments() -> None:
    for line in ("[donor  near]", "[donor near] ; x", "[donor near] \r"):
        text = CONF.replace("[donor near]", line)
        assert line not in confedit.removed(text, "near")


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
noise = st.sampled_from(["", "; a comment", "# another", "; [donor x]", "; address = tcp:no:1"])


@given(st.lists(st.tuples(names, noise, noise), min_size=1, max_size=6, unique_by=lambda t: t[0]))
def test_edits_are_what_was_asked_for(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str, str]]
) -> None:
    """After any changes the donors are right, and every comment is still there."""
    path = tmp_path_factory.mktemp("conf") / "host.conf"
    text = "[vm]\nbudget = 1M\n"
    for i, (name, before, within) in enumerate(parts):
        text += f"{before}\n[donor {name}]\n{within}\naddress = tcp:{name}:{i + 1}\n"

    def donors(now: str) -> list[Donor]:
        path.write_text(now)
        return list(settings.load(path).donors)

    def comments(now: str) -> list[str]:
        return [line for line in now.splitlines() if line.startswith((";", "#"))]

    have = donors(text)
    first = have[0]
    for changed, want in (
        (confedit.removed(text, first.name), have[1:]),
        (confedit.added(text, Donor("zz-new", Address.parse("tcp:h:99"))),
         [*have, Donor("zz-new", Address.parse("tcp:h:99"))]),
        (confedit.drained(text, first.name, True),
         [Donor(first.name, first.address, None, True), *have[1:]]),
    ):  # fmt: skip
        assert donors(changed) == want
        assert comments(changed) == comments(text)


def test_files_change_together(tmp_path: Path) -> None:
    """All files change or none; mode, links and other files stay."""
    one, two = tmp_path / "one.conf", tmp_path / "two.conf"
    one.write_text("1")
    one.chmod(0o640)
    two.write_text("2")
    link = tmp_path / "link.conf"
    link.symlink_to(two)

    def refuse(new: Path, path: Path) -> None:
        assert new.read_text() == {one: "one", link: "two"}[path]
        if path == link:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        confedit.replace({one: "one", link: "two"}, refuse)
    assert (one.read_text(), two.read_text()) == ("1", "2")
    confedit.replace({one: "one", link: "two"}, lambda *_: None)
    assert (one.read_text(), two.read_text()) == ("one", "two")
    assert link.is_symlink()
    assert stat.S_IMODE(one.stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.conf", "one.conf", "two.conf"]


# ---- bad input ----


@pytest.fixture
def conf(tmp_path: Path, dcmctl: Cli) -> Path:
    path = tmp_path / "host.conf"
    path.write_text(CONF)
    dcmctl.env["DCM_HOST_CONF"] = str(path)
    dcmctl.env["DCM_HOSTD_CONF"] = str(tmp_path / "no-hostd.conf")
    return path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "near", "tcp:h:1"], "has a donor near with another address"),
        (["add", "other", "tcp:far:9740"], "has this address already, as donor far"),
        (["add", "a b", "tcp:h:1"], "is not a name"),
        (["add", "x", "udp:h:1"], "neither tcp:HOST:PORT nor unix:/path"),
        (["add", "x", "tcp:127.0.0.1:1", "--status", "nowhere"], "is not HOST:PORT"),
        (["add", "x", "tcp:no.such.host.invalid:1"], "no.such.host.invalid"),
        (["add", "x", "tcp:h:1", "--config", "/no/such/file"], "No such file"),
        (["drain", "nobody"], "there is no donor nobody"),
        (["drain", "../near"], "is not a name"),
        (["drain", "near", "--timeout", "soon"], "is not a number of seconds"),
        (["remove", "nobody"], "there is no donor nobody"),
        (["remove", "near", "--no-config"], "there is no donor near"),
    ],
)
def test_bad_input_changes_nothing(words: list[str], says: str, dcmctl: Cli, conf: Path) -> None:
    done = dcmctl("donor", *words)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("dcmctl: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert conf.read_text() == CONF
    assert [p.name for p in conf.parent.iterdir() if p.name.startswith(".")] == []


def test_the_last_one_stays(dcmctl: Cli, conf: Path) -> None:
    assert dcmctl("donor", "remove", "far").returncode == 0
    assert "the only one" in dcmctl.fails("donor", "remove", "near")
    assert [d.name for d in settings.load(conf).donors] == ["near"]


def test_a_file_that_is_wrong_is_not_made_worse(dcmctl: Cli, conf: Path) -> None:
    conf.write_text(CONF + "[donor far]\naddress = tcp:h:1\n")
    before = conf.read_text()
    assert "twice" in dcmctl.fails("donor", "add", "x", "tcp:127.0.0.1:1", status=2)
    assert conf.read_text() == before


def test_two_at_once(dcmctl: Cli, conf: Path) -> None:
    """Of changes at the same time none is lost."""
    jobs = [dcmctl.start("donor", "add", f"n{i}", f"tcp:127.0.0.1:{i + 1}") for i in range(6)]
    for job in jobs:
        out, err = job.communicate(timeout=TIMEOUT)
        assert job.returncode == 0, (out, err)
    have = {d.name for d in settings.load(conf).donors}
    assert have == {"near", "far", *(f"n{i}" for i in range(6))}


# ---- a VM that runs ----


NONSENSE: list[dict[str, object]] = [
    {}, {"op": "add"}, {"op": "add", "name": "x"}, {"op": "add", "name": "x", "address": "x"},
    {"op": "add", "name": "x" * 64, "address": "tcp:h:1"}, {"op": 1, "name": "near"},
    {"op": "drain", "name": "x"}, {"op": "burn", "name": "near"}, {"op": "drain", "name": ""},
    {"op": "add", "name": "../x", "address": "tcp:h:1"},
    {"op": "add", "name": "x", "address": "tcp:" + "h" * 300 + ":1"},
]  # fmt: skip


@real
def test_a_running_vm(
    running: Running,
    donors: tuple[RealDonor, RealDonor],
    start_donor: Callable[..., RealDonor],
    tmp_path: Path,
) -> None:
    """A donor is drained, used again, removed and added while a VM checks its memory."""
    cli = running.cli
    near, far = donors
    conf = tmp_path / "host.conf"
    conf.write_text(
        f"; ours\n[key]\nfile = {near.key_file}\n[donor near]\naddress = {near.unix_address}\n"
        f"status = 127.0.0.1:{near.http_port}\n; over there\n"
        f"[donor far]\naddress = {far.tcp_address}\n"
    )
    before = conf.read_text()
    cli.env["DCM_HOST_CONF"] = str(conf)
    cli.env["DCM_HOSTD_CONF"] = str(tmp_path / "none")
    running.line("filled")

    def listed() -> dict[str, dict[str, object]]:
        done = cli("donor", "list", "--json")
        assert done.returncode == 0, done
        return {d["name"]: d for d in json.loads(done.stdout)}

    def slabs(name: str) -> int:
        return int(next(d["slabs"] for d in running.status()["donors"] if d["name"] == name))

    def states() -> dict[str, str]:
        return {d["name"]: d["state"] for d in running.status()["donors"]}

    all_of_it = listed()
    assert set(all_of_it) == {"near", "far"}
    assert all_of_it["near"]["capacity_bytes"] == 512 * MIB
    assert all_of_it["near"]["sessions"] == 1
    human = cli("donor", "list").stdout.splitlines()
    assert human[0].split()[:4] == ["DONOR", "STATE", "CAPACITY", "LENT"]
    assert human[1].split()[:3] == ["near", "up", "512M"]
    assert "e2e" in human[1].split()

    vm = vmsock.Vm("e2e", cli.runtime / "vm" / "e2e.sock")
    for request in NONSENSE:
        with pytest.raises(DcmError, match="donor: "):
            vm.ask({"cmd": "donor", **request})
    assert states() == {"near": "up", "far": "up"}

    assert slabs("far") > 0
    done = cli("donor", "drain", "far", timeout=TIMEOUT)
    assert done.returncode == 0, done
    assert "far: drained; nothing is on it" in done.stdout
    assert slabs("far") == 0
    until("it has all back", lambda: lent(far) == 0)
    assert conf.read_text() == before + "drain = yes\n"
    assert states() == {"near": "up", "far": "draining"}
    # A VM that is started later does not use it either.
    assert (
        "far"
        not in cli("run", "--config", conf, "--budget", "64M", "--dry-run", "--", "true").stdout
    )

    assert cli("donor", "drain", "far", "--undo").returncode == 0
    assert conf.read_text() == before
    until("it is up again", lambda: states()["far"] == "up")

    # Without another donor the memory stays, and the VM goes on.
    assert cli("donor", "drain", "far", "--no-wait").returncode == 0
    late = cli("donor", "drain", "near", "--timeout", "2", timeout=TIMEOUT)
    assert late.returncode == 1
    assert "near:" in late.stdout
    assert "left after 2 s" in late.stderr
    assert "add a donor" in late.stdout
    assert running.process.poll() is None

    third = start_donor("third", keys={"lab": "7b" * 32}, donor={"slab-size": "16M"})
    done = cli(
        "donor", "add", "third", third.tcp_address, "--status", f"127.0.0.1:{third.http_port}"
    )
    assert done.returncode == 0, done
    assert "used by e2e" in done.stdout
    until("all has moved", lambda: lent(near) == 0, lambda: cli("status").stdout)
    assert lent(third) > 0

    done = cli("donor", "remove", "near", "--json", timeout=TIMEOUT)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["left_bytes"] == 0
    assert set(states()) == {"far", "third"}
    near.kill()  # no VM uses it
    done = cli("donor", "drain", "far", "--undo")
    assert done.returncode == 0, done
    assert conf.read_text() == (
        f"; ours\n[key]\nfile = {near.key_file}\n; over there\n"
        f"[donor far]\naddress = {far.tcp_address}\n"
        f"\n[donor third]\naddress = {third.tcp_address}\nstatus = 127.0.0.1:{third.http_port}\n"
    )
    assert running.status()["lost_pages"] == 0
    running.stop.touch()
    assert int(running.line("verified")[1]) >= 1
    running.process.communicate(timeout=TIMEOUT)
    assert running.process.returncode == 7
