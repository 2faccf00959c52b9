# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that libdcm pages: the hook's phases and dcm-qemu, with a real donor and QEMU.

libvirt itself, as a user's, is in tests/vm/test_libvirt.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dcmctl.lib.errors import DcmError
from dcmctl.libvirt import domain, emulator, hook, system_session, user_session
from dcmctl.libvirt.domain import Memory
from dcmctl.libvirt.xmltree import Element
from dcmctl.pager import preflight, settings, vmsock
from tests.dcmctl.support import TOP
from tests.framework.donor import Donor
from tests.framework.paths import BUILD

UUID = "3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0002"
PROGRAM = TOP / "libvirt-hooks" / "dcm-qemu"
MIB = 1 << 20

def root_of(mib: int = 64, chosen: tuple[str, ...] = (), name: str = "web1") -> Element:
    data = f"""<domain type='kvm' id='1'>
  <name>{name}</name>
  <uuid>{UUID}</uuid>
  <memory unit='MiB'>{mib}</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
"""
    return domain.read_domain(
        domain.enable(data.encode(), 16 * MIB, chosen, emulator=str(PROGRAM))
    )

def memory_of(root: Element) -> Memory:
    memory = domain.find_memory(root)
    assert memory is not None
    return memory

@pytest.fixture
def host(
    start_donor: Any, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Donor]:
    """A donor, and a user with this donor in host.conf."""
    try:
        preflight.check_userfaultfd()
    except DcmError as exc:
        pytest.skip(str(exc))
    donor = start_donor("near", donor={"slab-size": "16M", "capacity": "128M"})
    keys = short_tmp / "keys"
    keys.write_text("".join(f"{name}:{key}\n" for name, key in donor.keys.items()))
    keys.chmod(0o600)
    conf = short_tmp / "host.conf"
    address = f"address = {donor.tcp_address}"
    conf.write_text(f"[key]\nfile = keys\n[donor near]\n{address}\ngroup = rack1\n")
    monkeypatch.setattr(settings, "HOST_CONF", conf)
    monkeypatch.setattr(user_session, "top", lambda: short_tmp / "run")
    monkeypatch.setenv("DCM_LIBVIRT_STATE", str(short_tmp / "run" / "libvirt"))
    monkeypatch.setenv("DCM_LIBDIR", str(BUILD / "lib"))
    monkeypatch.setattr(user_session, "is_the_systems", lambda: False)
    yield donor

class Qemu:
    """QEMU as libvirt starts it: its memory exists, and the guest has not run."""

    def __init__(self, mib: int) -> None:
        args = [
            "-name", "guest=web1", "-uuid", UUID, "-machine", "q35,accel=tcg,memory-backend=pc.ram",
            "-m", f"size={mib << 10}k", "-S", "-display", "none", "-nodefaults",
            "-object", json.dumps(
                {"qom-type": "memory-backend-ram", "id": "pc.ram", "size": mib * MIB}
            ),
            "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        ]  # fmt: skip
        env = {**os.environ, **emulator.paged(args, UUID)}
        program = str(emulator.find_qemu())
        self.process = subprocess.Popen([program, *args], env=env, stderr=subprocess.PIPE)

    def __enter__(self) -> Qemu:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

def test_from_prepare_to_release(host: Donor, short_tmp: Path) -> None:
    root = root_of(chosen=("near",))
    memory = memory_of(root)
    user_session.prepare(root, memory)
    conf = user_session.conf_path(UUID)
    assert conf.stat().st_mode & 0o777 == 0o600
    text = conf.read_text()
    assert "budget = 16M\n" in text and f"address = {host.tcp_address}\n" in text
    with Qemu(64) as qemu:
        user_session.started(root, memory)
        record = json.loads((short_tmp / "run" / "libvirt" / f"{UUID}.json").read_text())
        assert record["phase"] == "running"
        live = user_session.live(root)
        assert live is not None and live.budget == 16 * MIB >= live.direct
        user_session.set_budget(root, 32 * MIB)
        live = user_session.live(root)
        assert live is not None and live.budget == 32 * MIB
        with pytest.raises(DcmError, match="is running already"):
            user_session.prepare(root, memory)
        user_session.reconnect(root, memory)
        # libdcm answers before QEMU is ready to handle signals.
        qemu.process.send_signal(signal.SIGTERM)
        assert qemu.process.wait(30) in (0, -signal.SIGTERM)
    assert user_session.live(root) is None
    user_session.release(root)
    user_session.release(root)
    assert [path.name for path in (short_tmp / "run").rglob("*") if not path.is_dir()] == []

@pytest.mark.slow
def test_donors_without_room(host: Donor) -> None:
    root = root_of(mib=256)
    user_session.prepare(root, memory_of(root))
    with Qemu(256), pytest.raises(DcmError, match="no room for the VM: it can need 256M.*near has"):
        user_session.started(root, memory_of(root))
    user_session.release(root)

def test_qemu_without_the_pager(host: Donor, monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU without libdcm is refused: its memory would be on this host."""
    monkeypatch.setattr(user_session, "PAGER_MAX", 0.5)
    root = root_of()
    user_session.prepare(root, memory_of(root))
    with pytest.raises(DcmError, match="without libdcm"):
        user_session.started(root, memory_of(root))
    user_session.release(root)

@pytest.mark.parametrize(
    ("chosen", "conf", "why"),
    [
        (("far",), "{all}", "has no donor far"),
        ((), "[key]\nfile = keys\n", "there are no donors"),
        ((), "[donor near]\naddress = tcp:127.0.0.1:1\n", "names no key file"),
        ((), "[key]\nfile = keys\n[donor near]\naddress = tcp:127.0.0.1:1\n", "no donor answers"),
        (
            ("near",),
            "[key]\nfile = keys\n[donor near]\naddress = tcp:127.0.0.1:1\n",
            "the VM needs donor near .*refused",
        ),
        ((), "nonsense", "line 1"),
        ((), None, "is missing"),
    ],
)
def test_starts_that_are_refused(
    host: Donor, chosen: tuple[str, ...], conf: str | None, why: str
) -> None:
    had = settings.HOST_CONF.read_text()
    if conf is None:
        settings.HOST_CONF.unlink()
    else:
        settings.HOST_CONF.write_text(conf.replace("{all}", had))
    root = root_of(chosen=chosen)
    with pytest.raises(DcmError, match=why):
        user_session.prepare(root, memory_of(root))
    assert not user_session.conf_path(UUID).exists()

def test_root_has_the_kernel_pager(
    host: Donor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_session, "is_the_systems", lambda: True)
    with pytest.raises(DcmError, match="qemu:///session"):
        user_session.prepare(root_of(), memory_of(root_of()))
    root = root_of()
    assert hook._module(root) is user_session
    assert hook._module(domain.read_domain(b"<domain/>")) is system_session

def test_a_users_own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's host.conf is read instead of the host's; root has only the host's."""
    monkeypatch.delenv("DCM_HOST_CONF", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".config" / "kvm-dcm" / "host.conf"
    for user, there, path in (
        (1000, False, Path("/etc/kvm-dcm/host.conf")),
        (1000, True, own),
        (0, True, Path("/etc/kvm-dcm/host.conf")),
    ):
        if there:
            own.parent.mkdir(parents=True, exist_ok=True)
            own.touch()
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert settings.host_conf() == path
    monkeypatch.setenv("DCM_HOST_CONF", "/none")
    assert settings.host_conf() == Path("/none")

def test_where_libvirt_and_a_shell_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt gives neither the hook nor QEMU the user's XDG_RUNTIME_DIR."""
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert vmsock.runtime_dir({}) == Path("/tmp/kvm-dcm-4242")
    assert vmsock.runtime_dir({"XDG_RUNTIME_DIR": "/x"}) == Path("/x/kvm-dcm")
    assert vmsock.runtime_dir({"DCM_RUNTIME_DIR": "/y"}) == Path("/y")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert vmsock.runtime_dir({}) == Path("/run/kvm-dcm-host")

def test_the_donors_user_owns_where_roots_sockets_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's VMs have another folder than the RuntimeDirectory= of a unit's user."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ours = vmsock.runtime_dir({})
    assert f'#define DCM_RUNTIME_ROOT "{ours}"\n' in (TOP / "kvm-dcm/uffd/vmsock.c").read_text()
    seen = 0
    for path in (TOP / "configs" / "systemd").glob("*.service"):
        unit = [line.partition("=") for line in path.read_text().splitlines()]
        user = [value for key, _, value in unit if key == "User"]
        for key, _, value in unit:
            if key == "RuntimeDirectory" and user not in ([], ["root"]):
                seen += 1
                assert not ours.is_relative_to(Path("/run") / value), path
    assert seen

def test_names_that_are_none() -> None:
    assert user_session.vm_name(root_of()) == "web1"
    assert user_session.vm_name(root_of(name="my vm/1")) == f"libvirt-{UUID}"

def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    began = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    return subprocess.run(
        [str(PROGRAM), *words], env={**began, **env}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip

def test_dcm_qemu_is_qemu(tmp_path: Path) -> None:
    """Without a domain dcm-qemu runs QEMU; a domain that the hook has not seen is refused."""
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith("QEMU emulator version"), done
    for words in (["-uuid", UUID, "-S"], ["-uuid", "../../etc/passwd"], ["-uuid", UUID, "-m", "x"]):
        done = run(*words)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("kvm-dcm: ")
    done = run("-uuid", UUID, "-overcommit", "mem-lock=on")
    assert done.returncode == 1 and "pins all guest memory" in done.stderr
