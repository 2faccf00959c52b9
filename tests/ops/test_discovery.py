# SPDX-License-Identifier: GPL-2.0-or-later
"""Donors announced in a real etcd, while a VM runs."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dcmctl.cluster import discover
from dcmctl.cluster.etcd import Access, Etcd, EtcdError, encode
from dcmctl.lib.address import Address
from dcmctl.lib.errors import DcmError
from dcmctl.pager import settings
from hypothesis import given
from hypothesis import strategies as st

from tests.dcmctl.paging import TOUCH, Running, lent, until
from tests.dcmctl.support import Cli
from tests.framework.donor import Donor, write_private
from tests.framework.paths import DONORD, PRELOAD
from tests.ops.conftest import StartEtcd
from tests.ops.etcd import Server

PREFIX = "/kvm-dcm/donors/"
KEY = {"lab": "7b" * 32}
# Seconds; longer than a busy machine keeps `dcmctl announce` from renewing it.
STEADY_LEASE = 60
real = pytest.mark.skipif(
    not (PRELOAD.exists() and DONORD.exists()), reason="build/ has no pager or no donor: run make"
)


class Daemon:
    """A running `dcmctl announce` or `dcmctl discover`, and its output."""

    def __init__(self, cli: Cli, log: Path, *args: object) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = cli.start(*args, stderr=out, stdout=out)

    def said(self) -> str:
        return self.log.read_text()

    def end(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


@pytest.fixture
def daemon(dcmctl: Cli, short_tmp: Path) -> Iterator[Callable[..., Daemon]]:
    with contextlib.ExitStack() as stack:

        def start(what: str, name: str, text: str) -> Daemon:
            conf = short_tmp / f"{name}.conf"
            conf.write_text(text)
            made = Daemon(dcmctl, short_tmp / f"{name}.log", what, "--config", conf)

            def over() -> None:
                made.process.kill()
                made.process.wait()

            stack.callback(over)
            return made

        yield start


def announce_conf(etcd: Server, donor: Donor, name: str, lease: int = 5) -> str:
    return (
        f"[etcd]\nendpoints = {etcd.url}\n[announce]\nname = {name}\n"
        f"address = {donor.tcp_address}\nstatus = 127.0.0.1:{donor.http_port}\n"
        f"show-status = 127.0.0.1:{donor.http_port}\nlease = {lease}\n"
    )


class Lab:
    """An etcd, `dcmctl discover`, and a program that uses the donors that it finds."""

    def __init__(
        self,
        etcd: Server,
        start_donor: Callable[..., Donor],
        daemon: Callable[..., Daemon],
        dcmctl: Cli,
        directory: Path,
    ) -> None:
        self.etcd, self.start_donor, self.daemon, self.dcmctl = etcd, start_donor, daemon, dcmctl
        self.file = directory / "donors.conf"
        self.conf = directory / "found.conf"
        host = directory / "host.conf"
        key = directory / "lab.keys"
        write_private(key, "".join(f"{tenant}:{k}\n" for tenant, k in KEY.items()))
        host.write_text(f"[vm]\ndonors = {self.file}\n[key]\nfile = {key}\n")
        dcmctl.env |= {"DCM_LIBDIR": str(PRELOAD.parent), "DCM_HOST_CONF": str(host)}
        dcmctl.env["DCM_HOSTD_CONF"] = str(directory / "none")
        self.found = self.discover()

    def discover(self) -> Daemon:
        text = f"[etcd]\nendpoints = {self.etcd.url}\n[discover]\nfile = {self.file}\n"
        return self.daemon("discover", "found", text)

    def donor(self, name: str) -> Donor:
        options = {"slab-size": "16M", "capacity": "512M"}
        return self.start_donor(name, keys=KEY, donor=options)

    def announce(self, name: str, donor: Donor, lease: int = STEADY_LEASE) -> Daemon:
        return self.daemon("announce", name, announce_conf(self.etcd, donor, name, lease))

    @contextlib.contextmanager
    def program(self) -> Iterator[Running]:
        """One that has written all its memory."""
        stop = self.dcmctl.runtime / "stop"
        process = self.dcmctl.start(
            "run", "--budget", "64M", "--name", "e2e", "--", sys.executable, "-c", TOUCH,
            stop, stderr=subprocess.STDOUT,
        )  # fmt: skip
        running = Running(self.dcmctl, process, stop)
        try:
            running.line("filled")
            yield running
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()

    def known(self) -> set[str]:
        return {d.name for d in settings.load_donors(self.file)}


def states(vm: Running) -> dict[str, str]:
    return {d["name"]: d["state"] for d in vm.status()["donors"]}


@pytest.fixture
def lab(
    start_etcd: StartEtcd,
    start_donor: Callable[..., Donor],
    daemon: Callable[..., Daemon],
    dcmctl: Cli,
    short_tmp: Path,
) -> Lab:
    return Lab(start_etcd(), start_donor, daemon, dcmctl, short_tmp)


@real
def test_donors_come_and_go(lab: Lab, dcmctl: Cli) -> None:
    one, two = lab.donor("one"), lab.donor("two")
    found, etcd, known = lab.found, lab.etcd, lab.known
    first = lab.announce("one", one)
    until("one is found", lambda: known() == {"one"}, lambda: first.said() + found.said())
    shown = dcmctl("discover", "--once", "--config", lab.conf)
    assert shown.stdout == f"one {one.tcp_address}\n"

    with lab.program() as vm:
        assert states(vm) == {"one": "up"}
        # A new donor is used without a restart: memory can move to it.
        second = lab.announce("two", two)
        until("two is used", lambda: states(vm).get("two") == "up", found.said)
        # A draining donor is no longer announced, and its memory is moved.
        assert one.stop() == 0
        until("one has gone", lambda: set(states(vm)) == {"two"}, found.said)
        until("nor is it found", lambda: known() == {"two"}, first.said)
        assert vm.status()["lost_pages"] == 0
        assert lent(two) > 0

        # etcd ends: all goes on, and the log says so.
        etcd.kill()
        until("said", lambda: "going on with the 1 donors that are known" in found.said())
        assert known() == {"two"}
        assert states(vm) == {"two": "up"}, found.said()
        etcd.start()
        # The lease may have ended meanwhile: it is made again.
        third = lab.donor("three")
        lab.announce("three", third, lease=5)
        until("three is used", lambda: states(vm).get("three") == "up", found.said)
        until("two is known", lambda: known() == {"two", "three"}, second.said)

        # A killed donor disappears when its lease ends; its memory is lost.
        third.kill()
        until("three dropped out", lambda: known() == {"two"}, found.said)
        until("nobody has it", lambda: set(states(vm)) == {"two"}, found.said)
        # Later VMs find the donors in the file.
        assert f"address = {two.tcp_address}" in lab.file.read_text()
    assert found.end() == 0
    assert second.end() == 0
    with contextlib.suppress(EtcdError):
        keys, _ = Etcd(Access((etcd.url,))).get_all(10)
        assert [name for name, _ in keys] == []


@real
def test_a_donor_that_is_announced_again_is_used_again(lab: Lab, dcmctl: Cli) -> None:
    """Its lease ended, and programs that use it had nowhere to move their memory to."""
    one, found = lab.donor("one"), lab.found
    announcer = lab.announce("one", one, lease=5)
    until("one is found", lambda: lab.known() == {"one"}, announcer.said)
    with lab.program() as vm:
        assert announcer.end(signal.SIGKILL) == -signal.SIGKILL
        until("one is left", lambda: states(vm) == {"one": "draining"}, found.said)
        lab.announce("one", one)
        until("one is used again", lambda: states(vm) == {"one": "up"}, found.said)
        # One that an operator drains stays drained, though it is announced.
        drained = dcmctl("donor", "drain", "one", "--no-config", "--no-wait")
        assert drained.returncode == 0, drained
        lab.etcd.put(PREFIX + "wrong", "[]")
        until("looked", lambda: "donor wrong is left out" in found.said(), found.said)
        assert states(vm) == {"one": "draining"}
        assert vm.status()["lost_pages"] == 0


@real
def test_discover_that_starts_again_knows_which_donors_vms_leave(lab: Lab, dcmctl: Cli) -> None:
    """It told a program to leave a donor, and ended; then the donor is announced again."""
    one = lab.donor("one")
    announcer = lab.announce("one", one, lease=5)
    until("one is found", lambda: lab.known() == {"one"}, announcer.said)
    with lab.program() as vm:
        assert announcer.end(signal.SIGKILL) == -signal.SIGKILL
        until("one is left", lambda: states(vm) == {"one": "draining"}, lab.found.said)
        until("nor is it known", lambda: not lab.known(), lab.found.said)
        assert lab.found.end(signal.SIGKILL) == -signal.SIGKILL
        lab.announce("one", one)
        again = lab.discover()
        until("one is used again", lambda: states(vm) == {"one": "up"}, again.said)
        # One that an operator drains stays drained.
        assert again.end() == 0
        drained = dcmctl("donor", "drain", "one", "--no-config", "--no-wait")
        assert drained.returncode == 0, drained
        lab.etcd.put(PREFIX + "wrong", "[]")
        last = lab.discover()
        until("looked", lambda: last.said().count("donor wrong is left out") == 1, last.said)
        assert states(vm) == {"one": "draining"}
        assert vm.status()["lost_pages"] == 0


def test_one_name_is_one_donors(
    start_etcd: StartEtcd, start_donor: Callable[..., Donor], daemon: Callable[..., Daemon]
) -> None:
    etcd = start_etcd()
    one, two = start_donor("one"), start_donor("two")
    first = daemon("announce", "one", announce_conf(etcd, one, "same"))
    until("announced", lambda: "announced" in first.said(), first.said)
    second = daemon("announce", "two", announce_conf(etcd, two, "same"))
    until("refused", lambda: "another donor announces this name" in second.said(), second.said)
    access = Access((etcd.url,))
    assert [d.address for d in discover.read(Etcd(access))[0]] == [Address.parse(one.tcp_address)]
    # announce is killed and started again before the lease ends: it takes its key over.
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    again = daemon("announce", "one", announce_conf(etcd, one, "same"))
    until("announced again", lambda: again.said().count("announced as ") == 2, again.said)
    assert again.end() == 0
    until("now it may", lambda: "announced as " in second.said(), second.said)


HOSTILE = [
    ("a", "not JSON"), ("b", "[]"), ("c", '{"address": 1}'), ("d", '{"address": "unix:/etc"}'),
    ("e", '{"address": "tcp:h:0"}'), ("g", '{"address": "tcp:g:1", "group": "a b"}'),
    ("f", '{"address": "tcp:h:1", "status": "x y"}'),
    ("../g", '{"address": "tcp:h:2"}'), ("h i", '{"address": "tcp:h:3"}'), ("", "{}"),
    ("j", '{"address": "tcp:h:4\\n[key]\\nfile = /etc/shadow"}'), ("k", "x" * 100_000),
    ("l" * 64, '{"address": "tcp:h:5"}'), ("m", '{"address": "tcp:good:1"}'), ("n", "[" * 5000),
]  # fmt: skip


def test_hostile_contents(start_etcd: StartEtcd, dcmctl: Cli, tmp_path: Path) -> None:
    """Wrong values are left out, each with a line in the log; right ones are used."""
    etcd = start_etcd()
    good = {"address": "tcp:good:1", "status": "good:2", "group": "rack1"}
    for name, value in [*HOSTILE, ("good", json.dumps(good))]:
        etcd.put(PREFIX + name, value)
    etcd.put("/elsewhere", '{"address": "tcp:other:1"}')
    etcd.ask("/v3/kv/put", {"key": encode(PREFIX + "raw"), "value": "//79"})
    conf = tmp_path / "discovery.conf"
    conf.write_text(f"[etcd]\nendpoints = {etcd.url}\n")
    done = dcmctl("discover", "--once", "--json", "--config", conf)
    assert done.returncode == 0, done
    assert json.loads(done.stdout) == [{"name": "good", **good}]
    assert done.stderr.count("is left out") == len(HOSTILE) + 1
    assert all(c.isprintable() or c == "\n" for c in done.stderr)
    # more donors than allowed: the first ones are used, and the log says so
    for i in range(300):
        etcd.put(f"{PREFIX}many{i:03}", f'{{"address": "tcp:many:{i + 1}"}}')
    done = dcmctl("discover", "--once", "--json", "--config", conf)
    assert len(json.loads(done.stdout)) == settings.DONORS_MAX
    assert "more than 256 keys" in done.stderr


def test_tls_and_passwords(start_etcd: StartEtcd, short_tmp: Path, dcmctl: Cli) -> None:
    cert, key = short_tmp / "cert.pem", short_tmp / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=etcd", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    etcd = start_etcd(tls={"ca": cert, "cert": cert, "key": key})
    etcd.put(PREFIX + "far", '{"address": "tcp:far:1"}')
    etcd.ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
    etcd.ask("/v3/auth/role/add", {"name": "root"})
    etcd.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
    etcd.ask("/v3/auth/enable", {})
    password = short_tmp / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    conf = short_tmp / "discovery.conf"

    def look(*more: str) -> Any:
        conf.write_text("\n".join([f"[etcd]\nendpoints = {etcd.url}", *more, ""]))
        return dcmctl("discover", "--once", "--config", conf)

    right = (f"ca = {cert}", "user = root", f"password-file = {password}")
    assert look(*right).stdout == "far tcp:far:1\n"
    assert "certificate" in look(*right[1:]).stderr  # without a CA
    refused = look(right[0])
    assert refused.returncode == 1
    assert refused.stdout == ""
    password.write_text("wrong\n")
    refused = look(*right)
    assert refused.returncode == 1
    assert "refuses user root" in refused.stderr
    assert "wrong" not in refused.stderr
    password.chmod(0o644)
    assert "other users may read" in look(*right).stderr
    conf.write_text(f"[etcd]\nendpoints = http://127.0.0.1:1\n{right[1]}\n{right[2]}\n")
    assert "over https:// only" in dcmctl.fails("discover", "--once", "--config", conf, status=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "[etcd] endpoints = is missing"),
        ("[etcd]\nendpoints =\n", "1 to 16"),
        ("[etcd]\nendpoints = ftp://h:1\n", "is not http(s)://HOST:PORT"),
        ("[etcd]\nendpoints = http://h\n", "is not http(s)://HOST:PORT"),
        ("[etcd]\nendpoints = http://h:1\nprefx = /\n", "has no setting 'prefx'"),
        ("[etcd]\nendpoints = http://h:1\ncert = /c\n", "come together"),
        ("[other]\n", "no section [other]"),
    ],
)
def test_configurations(text: str, says: str, dcmctl: Cli, tmp_path: Path) -> None:
    conf = tmp_path / "discovery.conf"
    conf.write_text(text)
    assert says in dcmctl.fails("discover", "--once", "--config", conf, status=2)


def test_announce_configurations(dcmctl: Cli, tmp_path: Path) -> None:
    conf = tmp_path / "discovery.conf"
    for text, says in (
        ("", "name, address"),
        ("name = a b\naddress = tcp:h:1\n", "name, address"),
        ("name = a\naddress = unix:/x\n", "name, address"),
        ("name = a\naddress = tcp:h:1\nlease = 1\n", "lease is not"),
        ("name = a\naddress = tcp:h:1\nlasting = 1\n", "no setting 'lasting'"),
    ):
        conf.write_text(f"[etcd]\nendpoints = http://127.0.0.1:1\n[announce]\n{text}")
        assert says in dcmctl.fails("announce", "--config", conf, status=2)


@given(st.text(max_size=80), st.one_of(st.none(), st.text(max_size=300), st.binary().map(str)))
def test_any_key_is_a_donor_or_an_error(name: str, value: str | None) -> None:
    try:
        donor = discover.check(name, value)
    except DcmError as exc:
        assert "\n" not in str(exc)
    else:
        assert donor.address.kind == "tcp"
