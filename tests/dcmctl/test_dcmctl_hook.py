# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's hook, called as libvirt calls it; tests that need the module are in tests/vm."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcmctl.lib.errors import DcmError
from dcmctl.libvirt import domain, record, room, system_session
from dcmctl.libvirt.domain import Memory
from dcmctl.pager import dcmfs, hostd, settings
from dcmctl.pager.hostd import HostDonor, HostFile
from tests.dcmctl.support import TOP
from tests.framework.paths import BUILD

HOOK = TOP / "libvirt-hooks" / "50-kvm-dcm"
UUID = "3c7d5a52-6f3e-4f0c-9c3f-5a1d7f6f0001"
# The XML that libvirt 11 passes for a VM that is being started.
PLAIN = f"""<domain type='kvm' id='1'>
  <name>web1</name>
  <uuid>{UUID}</uuid>
  <memory unit='KiB'>262144</memory>
  <vcpu placement='static'>1</vcpu>
  <os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
""".encode()
OURS = domain.enable(PLAIN, 96 << 20)
PHASES = [
    ("prepare", "begin"), ("start", "begin"), ("started", "begin"), ("stopped", "end"),
    ("release", "end"), ("reconnect", "begin"), ("migrate", "begin"), ("restore", "begin"),
    ("attach", "begin"), ("what-comes", "later"),
]  # fmt: skip
BEFORE = {"prepare", "start", "started", "migrate", "restore"}


class Called:
    def __init__(self, folder: Path) -> None:
        # As libvirt calls the hook, but with another folder for its records.
        self.env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            "DCM_LIBVIRT_STATE": str(folder / "state"),
            "DCM_HOSTD_STATUS": str(folder / "none.sock"),
        }
        self.hook = HOOK

    def __call__(
        self, data: bytes, *words: str, wrap: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*wrap, str(self.hook), "web1", *words, "-"],
            input=data,
            env=self.env,
            capture_output=True,
            timeout=60,
            check=False,
        )
        # libvirt would take standard output for the VM's XML.
        assert done.stdout == b"", done
        return done


@pytest.fixture
def call(tmp_path: Path) -> Called:
    return Called(tmp_path)


@pytest.mark.parametrize(("operation", "phase"), PHASES)
def test_other_vms_are_left_alone(call: Called, operation: str, phase: str) -> None:
    for data in (PLAIN, b"", b"nonsense", PLAIN.replace(b"<uuid>", b"<uuid")):
        done = call(data, operation, phase)
        assert (done.returncode, done.stderr) == (0, b"")
    assert not Path(call.env["DCM_LIBVIRT_STATE"]).exists()


@pytest.mark.skipif(bool(dcmfs.mounts()), reason="there is a dcmfs here")
@pytest.mark.parametrize(("operation", "phase"), PHASES)
def test_without_a_module(call: Called, operation: str, phase: str) -> None:
    """Phases before a VM runs are refused with a line; phases that would end it are not."""
    done = call(OURS, operation, phase)
    refused = operation in BEFORE - {"restore"}
    assert done.returncode == (1 if refused else 0), done
    lines = done.stderr.decode().splitlines()
    assert len(lines) <= 1 and all(line.startswith("kvm-dcm: ") for line in lines)
    if operation == "prepare":
        assert "kvm-dcm is not loaded" in lines[0] or "no dcmfs is mounted" in lines[0]
    if operation == "migrate":
        assert "can't be migrated yet" in lines[0]


@pytest.mark.parametrize(("operation", "phase"), PHASES)
def test_a_package_that_is_gone(call: Called, tmp_path: Path, operation: str, phase: str) -> None:
    """Only the hook is left: other VMs start, ours are refused, no running one is ended."""
    call.hook = tmp_path / "hooks" / "qemu.d" / "50-kvm-dcm"
    call.hook.parent.mkdir(parents=True)
    shutil.copy(HOOK, call.hook)
    installed = (Path(p, "kvm-dcm/dcmctl") for p in ("/usr/share", "/usr/local/share"))
    if any((package / "libvirt" / "hook.py").exists() for package in installed):
        pytest.skip("it is installed on this machine")
    assert call(PLAIN, operation, phase).returncode == 0
    done = call(OURS, operation, phase)
    assert done.returncode == (1 if operation in BEFORE - {"started"} else 0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (OURS.replace(b'direct="96M"', b'direct="lots"'), "not a size"),
        (OURS.replace(b'direct="96M"', b'direct="96M" redundancy="2"'), "is not one of"),
        (OURS.replace(b'direct="96M"', b'direct="256M"'), "nothing would be on donors"),
        (OURS.replace(b"<source type='file'/>", b""), "dcmctl vm enable"),
        (OURS.replace(b"'shared'/>", b"'private'/>"), "must be 'shared'"),
        (OURS.replace(b"<vcpu", b"<maxMemory/><vcpu"), "plugged in"),
        (OURS.replace(UUID.encode(), b"../../etc/passwd"), "no UUID"),
        (OURS.replace(b"262144", b"1e9"), "not a size"),
        (OURS[:-20], "not XML"),
        (b"<!DOCTYPE a [<!ENTITY e 'e'>]>" + OURS, "document type"),
    ],
)
def test_what_can_not_be_is_refused(call: Called, data: bytes, why: str) -> None:
    done = call(data, "prepare", "begin")
    assert done.returncode == 1 and why in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert call(data, "reconnect", "begin").returncode == 0
    assert call(data, "release", "end").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_users_own_libvirt(call: Called) -> None:
    """qemu:///session runs the hook as the user."""
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if call(PLAIN, "prepare", "begin", wrap=other).returncode:
        pytest.skip("another user can't read this tree")
    done = call(OURS, "prepare", "begin", wrap=other)
    assert done.returncode == 1 and b"qemu:///system" in done.stderr


# ---- what donors can be promised ----

PATH = Path("/mnt/dcm/libvirt/libvirt-a")


def a_file(path: str, extents: int, slabs: int, donors: tuple[HostDonor, ...] = ()) -> HostFile:
    return HostFile(path, extents, 16 << 20, slabs, True, donors)


def a_donor(
    name: str, free: int, state: str = "up", why: str = "", group: str = ""
) -> HostDonor:
    return HostDonor(name, f"tcp:{name}:1", state, 0, free, why, group=group)


donor_lists = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(["up", "connecting", "lost", "draining"])),
    min_size=1,
    max_size=4,
)


@given(
    extents=st.integers(1, 64),
    others=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 50)), max_size=4),
    lent=donor_lists,
)
def test_no_slab_is_promised_twice(
    extents: int, others: list[tuple[int, int]], lent: list[tuple[int, str]]
) -> None:
    """There is room if and only if each file could have a slab for each extent at once."""
    donors = tuple(a_donor(f"d{i}", free, state) for i, (free, state) in enumerate(lent))
    files = [a_file(str(PATH), extents, 0, donors)]
    files += [a_file(f"/mnt/dcm/o{i}", e, s, donors[:1]) for i, (e, s) in enumerate(others)]
    free = sum(n for n, state in lent if state == "up")
    need = extents + sum(max(0, e - s) for e, s in others)
    why = room.shortage(files, PATH, Memory(1 << 20))
    assert (why is None) == (need <= free)
    assert why is None or ("no room" in why and "\n" not in why)


def test_what_is_promised_elsewhere_is_free_here() -> None:
    """A VM with other donors takes no room from this VM."""
    near, far = a_donor("near", 16), a_donor("far", 100)
    mine = a_file(str(PATH), 16, 0, (near,))
    other = a_file("/mnt/dcm/other", 90, 0, (far,))
    assert room.shortage([mine, other], PATH, Memory(1 << 20, ("near",))) is None
    other = a_file("/mnt/dcm/other", 90, 0, (far, near))
    assert "promised" in (room.shortage([mine, other], PATH, Memory(1 << 20, ("near",))) or "")


def test_copies_need_room_on_different_donors() -> None:
    """Twice the slabs, and no donor counts for more than one slab of each extent."""
    near, far, third = a_donor("near", 100), a_donor("far", 15), a_donor("third", 1)

    def why(copies: int, *donors: HostDonor) -> str | None:
        file = replace(a_file(str(PATH), 16, 0, donors), copies=copies)
        return room.shortage([file], PATH, Memory(1 << 20))

    assert why(1, near) is None
    said = why(2, near)
    assert said is not None and "each page is to be on 2 donors" in said and "512M" in said
    assert "no room" in (why(2, near, far) or "")
    assert why(2, near, far, third) is None
    assert "on 3 donors" in (why(3, near, far, third) or "")


def test_a_copy_on_disk_needs_donors_of_files() -> None:
    near, far = a_donor("near", 16), a_donor("far", 100)
    files = replace(a_donor("files", 16), medium="file")

    def why(redundancy: str, *donors: HostDonor) -> str | None:
        file = a_file(str(PATH), 16, 0, donors)
        copies = settings.REDUNDANCY[redundancy][0]
        file = replace(file, redundancy=redundancy, copies=copies)
        return room.shortage([file], PATH, Memory(1 << 20))

    assert "one of them of files" in (why("disk", near, far) or "")
    assert why("disk", near, files) is None
    assert "files has 240M of files" in (why("disk", near, replace(files, slabs_free=15)) or "")
    assert "one of them of files" in (why("disk:lazy", near, far) or "")
    assert why("disk:lazy", near, files) is None
    assert why("replica:2", near, files) is None
    assert "no room" in (why("replica:2+disk", far, files) or "")
    assert why("replica:2+disk", near, far, files) is None


def test_a_choice_is_written_for_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCM_HOSTD_STATUS", str(tmp_path / "status.sock"))
    hostd.choose(PATH, Memory(1 << 20, ("near",), (), ("far",)).chosen)
    choice = tmp_path / "donors" / f"{PATH.name}.donors"
    assert choice.read_text() == "near\n@far\n"
    assert choice.parent.stat().st_mode & 0o777 == 0o700
    hostd.choose(PATH, ("far",))
    assert choice.read_text() == "far\n"
    hostd.choose(PATH, ("far",), "replica:2")
    assert choice.read_text() == "far\nredundancy = replica:2\n"
    hostd.choose(PATH, (), "none")
    assert choice.read_text() == "*\nredundancy = none\n"
    hostd.choose(PATH, (), "", "yes")
    assert choice.read_text() == "*\nseal = yes\n"
    hostd.choose(PATH, ("@far",), "replica:2", "no")
    assert choice.read_text() == "@far\nredundancy = replica:2\nseal = no\n"
    for _ in range(2):
        hostd.choose(PATH, ())
        assert list(choice.parent.iterdir()) == []


def test_one_donor_of_each_group_is_up() -> None:
    one = a_donor("one", 100, group="rack1")
    two = a_donor("two", 100, "connecting", "Connection refused", group="rack1")
    lone = a_donor("lone", 100, "lost", "it died", group="rack2")
    memory = Memory(1 << 20, groups=("rack1",))
    both = Memory(1 << 20, groups=("rack1", "rack2"))
    assert room.shortage([a_file(str(PATH), 16, 0, (one, two))], PATH, memory) is None
    why = room.shortage([a_file(str(PATH), 16, 0, (two,))], PATH, memory)
    assert why is not None and "rack1" in why and "two is connecting (Connection refused)" in why
    why = room.shortage([a_file(str(PATH), 16, 0, (one, lone))], PATH, both)
    assert why is not None and "rack2" in why and "lone is lost (it died)" in why
    why = room.shortage([a_file(str(PATH), 16, 0, (one,))], PATH, both)
    assert why is not None and "rack2" in why and "hostd.conf" in why


def test_reasons_name_the_donor() -> None:
    donors = (a_donor("near", 100), a_donor("far", 0, "connecting", "Connection refused"))
    files = [a_file(str(PATH), 16, 0, donors)]
    assert room.shortage(files, PATH, Memory(1 << 20, ("near",))) is None
    why = room.shortage(files, PATH, Memory(1 << 20, ("far",)))
    assert why is not None and "far" in why and "Connection refused" in why
    why = room.shortage(files, PATH, Memory(1 << 20, ("other",)))
    assert why is not None and "hostd.conf" in why
    why = room.shortage([a_file(str(PATH), 101, 0, donors)], PATH, Memory(1 << 20))
    assert why is not None and "far is connecting (Connection refused)" in why
    assert "does not serve" in (room.shortage([], PATH, Memory(1 << 20)) or "")
    assert "no donors" in (room.shortage([a_file(str(PATH), 1, 0)], PATH, Memory(1)) or "")


# ---- asking dcm-hostd ----


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """The real dcm-hostd. Without a dcmfs it serves no file."""
    (tmp_path / "key").write_text("lab:" + "5a" * 32 + "\n")
    (tmp_path / "key").chmod(0o600)
    config = tmp_path / "hostd.conf"
    config.write_text(
        f"[key]\nfile = {tmp_path}/key\n[donor near]\naddress = unix:{tmp_path}/near.sock\n"
    )
    path = tmp_path / "status.sock"
    read, write = os.pipe()
    command = [str(BUILD / "bin" / "dcm-hostd"), f"--config={config}", f"--status={path}"]
    with subprocess.Popen(
        [*command, f"--ready-fd={write}"], pass_fds=[write], stderr=subprocess.PIPE
    ) as process:
        os.close(write)
        try:
            with os.fdopen(read) as ready:
                assert "READY=1" in ready.read()
            yield path
        finally:
            process.terminate()
            assert process.wait(30) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
    assert "Sanitizer" not in said and not path.exists()


def test_the_daemon_answers(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCM_HOSTD_STATUS", str(daemon))
    assert daemon.stat().st_mode & 0o777 == 0o600
    assert hostd.ask() == []
    # Clients that send bytes, do not read, or have many connections disturb no others.
    idle = []
    for _ in range(20):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(daemon))
        idle.append(sock)
    with contextlib.suppress(OSError):
        idle[0].send(b"x" * 100_000)
    for sock in idle:
        sock.close()
    assert hostd.ask() == []


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"[]", b"{}x", b'{"files":{}}', b'{"files":[1]}',
        b'{"files":[{"path":"/a","extents":-1}]}',
        b'{"files":[{"path":"/a","donors":[{"name":1}]}]}', b"\xff\xfe", b'{"files":' + b"[" * 500,
    ],
)  # fmt: skip
def test_nonsense_instead_of_an_answer(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.sock"
    monkeypatch.setenv("DCM_HOSTD_STATUS", str(path))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        pid = os.fork()
        if not pid:
            there, _ = listening.accept()
            there.sendall(answer)
            os._exit(0)
        try:
            with pytest.raises(DcmError) as caught:
                hostd.ask()
        finally:
            os.waitpid(pid, 0)
    assert "\n" not in str(caught.value)


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCM_HOSTD_STATUS", str(tmp_path / "none.sock"))
    with pytest.raises(DcmError, match="systemctl start dcm-hostd"):
        hostd.ask()


# ---- what is written down ----


def test_records_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state"
    monkeypatch.setenv("DCM_LIBVIRT_STATE", str(folder))
    for phase in ("prepared", "running"):
        record.write_down(UUID, "web1", phase, PATH, Memory(1 << 20), 2 << 20)
    assert [p.name for p in folder.iterdir()] == [f"{UUID}.json"]
    assert '"phase": "running"' in (folder / f"{UUID}.json").read_text()
    assert folder.stat().st_mode & 0o777 == 0o700
    system_session.release(domain.read_domain(OURS))
    system_session.release(domain.read_domain(OURS))
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)
    folder.symlink_to("/tmp")
    with pytest.raises(DcmError, match="not a directory of ours"):
        record.write_down(UUID, "web1", "prepared", PATH, Memory(1 << 20), 2 << 20)
