# SPDX-License-Identifier: GPL-2.0-or-later
"""Sizes, addresses, key files, configurations: accepted and refused values."""

from __future__ import annotations

import ast
import os
import random
import re
import stat
from pathlib import Path

import pytest

from dcmctl import show
from dcmctl.lib import keyfile, units
from dcmctl.lib.address import Address, parse_donors
from dcmctl.lib.errors import DcmError, UsageError
from dcmctl.pager import dcmfs, settings
from dcmctl.pager.settings import Settings
from tests.framework.paths import TOP


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64K", 65536),
        ("256M", 256 << 20),
        ("256m", 256 << 20),
        ("256MiB", 256 << 20),
        ("1.5G", 3 << 29),
        ("1 G", 1 << 30),
        ("0.25T", 1 << 38),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert units.parse_size(text) == value


@pytest.mark.parametrize(
    "text", ["", "M", "-1M", "1.5", "1..5G", "1X", "1e9", "0x10", "99999999T", "1G1", "\u0661M"]
)
def test_sizes_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("value", "short", "exact"),
    [
        (0, "0", "0"),
        (4096, "4K", "4K"),
        (256 << 20, "256M", "256M"),
        (3 << 29, "1.5G", "1536M"),
        ((256 << 20) + 4096, "256M", "262148K"),
        (1023 << 20, "1023M", "1023M"),
        ((1 << 30) - 1, "1G", str((1 << 30) - 1)),
        (1 << 46, "64T", "64T"),
    ],
)
def test_sizes_written(value: int, short: str, exact: str) -> None:
    assert units.format_size(value) == short
    assert units.exact_size(value) == exact
    assert units.parse_size(exact) == value


def test_files_of_the_kernel_pager_can_be_read() -> None:
    """dcmctl knows the version of the module that it comes with."""
    header = (TOP / "kvm-dcm" / "include" / "dcmfs.h").read_text(encoding="utf-8")
    found = re.search(r"^#define DCMFS_VERSION (\d+)$", header, re.M)
    assert found and int(found[1]) == dcmfs.VERSION


def test_times_and_counts() -> None:
    assert [units.format_ns(n) for n in (0, 17, 999, 1500, 17000, 1_200_000, 4 * 10**9)] == [
        "-", "17ns", "999ns", "1.5us", "17us", "1.2ms", "4.0s",
    ]  # fmt: skip
    assert [units.format_count(n) for n in (0, 3.2, 950, 12_300, 4_500_000)] == [
        "0", "3.2", "950", "12.3k", "4.5M",
    ]  # fmt: skip
    assert [units.format_duration(n) for n in (3, 185, 7800, 356_400)] == [
        "3s", "3m05s", "2h10m", "4d03h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["tcp:127.0.0.1:7400", "tcp:host-1.example:1", "tcp:[::1]:65535", "unix:/run/d.sock"],
)
def test_addresses(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:7400",
        "tcp:",
        "tcp:host",
        "tcp:host:",
        "tcp:host:0",
        "tcp:host:65536",
        "tcp:host:7400x",
        "tcp:::1:7400",
        "tcp:[::1:7400",
        "tcp:[nonsense]:7400",
        "tcp:a b:7400",
        "tcp:" + "h" * 200 + ":1",
        "unix:relative",
        "unix:/" + "x" * 107,
        "unix:/a;b",
        "unix:/a\nb",
        "udp:host:1",
    ],
)
def test_addresses_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        Address.parse(text)
    assert "\n" not in str(error.value)


def test_donors() -> None:
    donors = parse_donors(["unix:/run/a=b.sock", "far=tcp:10.0.0.1:7400"])
    assert [(d.name, str(d.address)) for d in donors] == [
        ("d1", "unix:/run/a=b.sock"),
        ("far", "tcp:10.0.0.1:7400"),
    ]
    for twice in (["unix:/a", "unix:/a"], ["x=unix:/a", "x=unix:/b"], ["d2=unix:/a", "unix:/b"]):
        with pytest.raises(UsageError):
            parse_donors(twice)


# ---- key files ----


def test_keygen(tmp_path: Path) -> None:
    path = tmp_path / "k"
    keyfile.generate(path, "lab", 32, append=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keyfile.tenants(path) == ["lab"]
    with pytest.raises(DcmError, match="exists"):
        keyfile.generate(path, "two", 32, append=False)
    keyfile.generate(path, "two", 16, append=True)
    assert keyfile.tenants(path) == ["lab", "two"]
    with pytest.raises(DcmError, match="already"):
        keyfile.generate(path, "two", 16, append=True)
    lines = path.read_text().splitlines()
    assert [len(line.split(":")[1]) for line in lines] == [64, 32]
    with pytest.raises(UsageError, match="--tenant"):
        keyfile.pick_tenant(path, None)
    assert keyfile.pick_tenant(path, "two") == "two"
    with pytest.raises(DcmError, match="no key of tenant"):
        keyfile.pick_tenant(path, "three")


@pytest.mark.parametrize(
    "content",
    [
        "lab",
        "lab:",
        "lab:zz" + "0" * 30,
        "lab:" + "0" * 31,
        "lab:" + "0" * 30,
        "lab:" + "0" * 130,
        ":" + "0" * 32,
        "a b:" + "0" * 32,
        "lab:" + "0" * 32 + "\nlab:" + "1" * 32,
        " lab:" + "0" * 32,
        "a@b:" + "0" * 32,
        "\n".join(f"t{i}:{'0' * 32}" for i in range(keyfile.TENANTS_MAX + 1)),
        "x" * (keyfile.FILE_MAX + 1),
    ],
    ids=range(13),
)
def test_key_files_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "k"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(DcmError) as error:
        keyfile.tenants(path)
    assert "0000" not in str(error.value), "a key in an error message"


NAMES = Path(__file__).parents[1] / "unit" / "tenant_names.h"


def test_tenant_names(tmp_path: Path) -> None:
    """The daemons' list of names (tests/unit/readers_test.c) is dcmctl's too."""
    names = [
        (kind == "GOOD", ast.literal_eval(name))
        for kind, name in re.findall(r"^(GOOD|BAD)\((.*)\)$", NAMES.read_text(), re.MULTILINE)
    ]
    assert {good for good, _ in names} == {True, False}
    for good, name in names:
        path = tmp_path / "k"
        path.write_bytes(f"# keys\n{name}:{'0' * 32}\n".encode("latin-1"))
        path.chmod(0o600)
        if good:
            assert keyfile.check_tenant(name) == name
            assert keyfile.tenants(path) == [name]
            continue
        with pytest.raises(UsageError, match=keyfile.TENANT_RULE):
            keyfile.check_tenant(name)
        if name.isascii() and not name.startswith("#") and ":" not in name:
            with pytest.raises(DcmError) as error:
                keyfile.tenants(path)
            assert str(error.value) == f"key file {path}, line 2: {keyfile.TENANT_RULE}"


def test_key_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text("lab:" + "0" * 32)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(DcmError, match="chmod 600"):
            keyfile.tenants(path)
    path.chmod(0o600)
    assert keyfile.tenants(path) == ["lab"]
    with pytest.raises(DcmError, match="regular file"):
        keyfile.tenants(tmp_path)


# ---- the INI ----

FULL = """\
; a comment
[vm]
name = web1
budget = 256M
size = 1G            ; what may be paged
threshold = 1M
mode = qemu
lanes = 4
on-loss = sigbus
redundancy = replica:3
rebuild-rate = 50M
disk-lag = 64M
scatter = 6
cold-after = 30s
extent = 2M
data-encryption = no
seal = yes
transport = verbs
patience = 2min

[key]
tenant = lab
file = keys

[donor near]
address = unix:/run/near.sock
[donor far]
address = tcp:10.0.0.1:7400

[tunables]
epsilon = 50
largest_block = 16K
elastic = off
"""


def test_ini(tmp_path: Path) -> None:
    path = tmp_path / "host.conf"
    path.write_text(FULL)
    s = settings.load(path)
    assert (s.name, s.budget, s.size, s.threshold) == ("web1", 256 << 20, 1 << 30, 1 << 20)
    assert (s.mode, s.lanes, s.on_loss, s.extent) == ("qemu", 4, "sigbus", 2 << 20)
    assert (s.redundancy, s.rebuild_rate, s.disk_lag) == ("replica:3", 50 << 20, 64 << 20)
    assert s.scatter == 6 and "disk-lag = 64M\nscatter = 6\ncold-after = 30s\n" in s.to_ini()
    assert s.data_encryption is False and s.transport == "verbs"
    assert s.seal is True and "seal = yes\n" in s.to_ini()
    assert s.patience == "2min" and "patience = 2min\n" in s.to_ini()
    path.write_text(FULL.replace("rebuild-rate = 50M", "rebuild-rate = 0"))
    assert settings.load(path).rebuild_rate == 0
    for bad in ("", "60", "999ms", "1441min", "1 s", "-1s", "1h"):
        path.write_text(FULL.replace("2min", bad))
        with pytest.raises(UsageError, match="patience"):
            settings.load(path)
    assert (s.tenant, s.keys) == ("lab", tmp_path / "keys")
    assert [d.name for d in s.donors] == ["near", "far"]
    assert s.tunables == {"epsilon": "50", "largest_block": "16384", "elastic": "0"}
    # A written configuration is read back with the same values.
    again = tmp_path / "again.conf"
    again.write_text(s.to_ini())
    assert settings.load(again) == s


def test_command_line_over_ini(tmp_path: Path) -> None:
    path = tmp_path / "host.conf"
    path.write_text(FULL)
    donors = tuple(parse_donors(["unix:/only"]))
    over = Settings(budget=1 << 20, donors=donors, tunables={"epsilon": "1"})
    s = settings.load(path).merged(over)
    assert (s.budget, s.size, s.donors) == (1 << 20, 1 << 30, donors)
    assert s.tunables == {"epsilon": "1", "largest_block": "16384", "elastic": "0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 1G\n", "line 1"),
        ("[vm]\nbudget\n", "line 2"),
        ("[vm]\nbudget = 1G\nbudget = 2G\n", "line 3"),
        ("[vm]\n[vm]\n", "line 2"),
        ("[vm]\nbudget = lots\n", "not a size"),
        ("[vm]\nbudget = 5\n", "less than a page"),
        ("[vm]\nbudget =\n", "has no value"),
        ("[vm]\nbugdet = 1G\n", "no setting 'bugdet'"),
        ("[wm]\n", "no section [wm]"),
        ("[donor]\naddress = unix:/a\n", "no section [donor]"),
        ("[donor a]\n", "has no address"),
        ("[donor a]\naddress = unix:/a\nport = 1\n", "no setting 'port'"),
        ("[donor a/b]\naddress = unix:/a\n", "is not a name"),
        ("[donor a]\naddress = unix:/a\n[donor b]\naddress = unix:/a\n", "same address"),
        ("[vm]\nname = ../x\n", "is not a name"),
        ("[vm]\nname = a\n  b\n", "line 3 begins with white space"),
        (" [donor a]\naddress = unix:/a\n", "line 1 begins with white space"),
        ("[ donor a ]\naddress = unix:/a\n", "write [donor a]"),
        ("[donor a ]\naddress = unix:/a\n", "write [donor a]"),
        ("[donor\ta]\naddress = unix:/a\n", "no section"),
        ("[donor a];b\naddress = unix:/a\n", "line 1"),
        ("[vm]\nname = a\x1b[31m\n", "one line"),
        ("[vm]\nmode = xen\n", "is not one of"),
        ("[vm]\nlanes = 0\n", "1 to 64"),
        ("[vm]\ndata-encryption = maybe\n", "neither yes nor no"),
        ("[vm]\nseal = aes\n", "neither yes nor no"),
        ("[tunables]\nEPS-1 = 5\n", "not the name of a tunable"),
        ("[tunables]\nepsilon = few\n", "not a number"),
        ("[tunables]\neps\x10ilon = few\n", "not the name"),
        ("; " + "x" * 70000, "larger than"),
    ],
)
def test_ini_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "host.conf"
    path.write_text(text)
    with pytest.raises(DcmError) as error:
        settings.load(path)
    message = str(error.value)
    assert said in message
    assert str(path) in message
    assert message.isprintable()


@pytest.mark.slow
def test_ini_mutated(tmp_path: Path) -> None:
    """A damaged file is still valid, or gives one printable line, never a traceback."""
    seed = int(os.environ.get("SEED", "7"))
    rng = random.Random(seed)
    path = tmp_path / "host.conf"
    insert = [
        b"[",
        b"]",
        b"=",
        b"\n",
        b"\r",
        b"\x85",
        b"\0",
        b"%(a)s",
        b"[DEFAULT]\n",
        b"\n ",
        b";",
    ]
    refused = 0
    for _ in range(2000):
        data = bytearray(FULL.encode())
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 30)]
            else:
                data[at:at] = rng.choice(insert)
        path.write_bytes(data)
        try:
            settings.load(path).to_ini()
        except DcmError as exc:
            refused += 1
            assert str(exc).isprintable(), f"seed {seed}"
    assert 0 < refused < 2000


def test_ini_not_text(tmp_path: Path) -> None:
    path = tmp_path / "host.conf"
    path.write_bytes(b"[vm]\nname = \xff\xfe\n")
    with pytest.raises(DcmError, match="UTF-8"):
        settings.load(path)
    with pytest.raises(DcmError, match="No such file"):
        settings.load(tmp_path / "none")


def test_ini_lines_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long"):
        Settings(keys=Path("/" + "k" * 200)).to_ini()


def test_mix_bar() -> None:
    assert show.mix_bar({"4K": 0, "8K": 0, "16K": 0, "32K": 0, "64K": 0}) == "-" * 10
    assert show.mix_bar({"4K": 1, "8K": 0, "16K": 0, "32K": 0, "64K": 0}) == "4" * 10
    assert show.mix_bar({"4K": 400, "8K": 100, "16K": 0, "32K": 100, "64K": 400}) == "4444836666"
    for a in range(0, 50, 7):
        mix = {"4K": a, "8K": 13, "16K": 1, "32K": 29, "64K": 3 * a}
        assert len(show.mix_bar(mix)) == 10
