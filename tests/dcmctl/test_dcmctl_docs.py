# SPDX-License-Identifier: GPL-2.0-or-later
"""Help, man page and completion have the commands and options of the parser; benchmarks.md has
each figure once."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dcmctl.cli import build_parser
from tests.dcmctl.support import TOP, Cli
from tests.dcmctl.vm_server import VmServer
from tests.dcmctl.zsh import Zsh

MAN = TOP / "dcmctl" / "dcmctl.1"
COMPLETION = TOP / "dcmctl" / "completion" / "dcmctl"


def commands(
    parser: argparse.ArgumentParser, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command with its parser, including those of donor and vm."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield (*above, name), sub
                yield from commands(sub, (*above, name))


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))


def test_man_page_has_it_all() -> None:
    text = MAN.read_text().replace("\\-", "-")
    for names, parser in commands(build_parser()):
        assert "dcmctl " + " ".join(names) in text, names
        for option in options(parser):
            if option not in ("--help", "--json"):
                assert option in text, (names, option)
    known = {o for _, parser in commands(build_parser()) for o in options(parser)} | {"--version"}
    for option in set(re.findall(r"--[a-z][a-z-]+", text)):
        assert option in known, f"{option} is in the man page only"


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_man_page_is_clean() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(MAN)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def complete(cli: Cli, *words: str) -> list[str]:
    """The completions of bash for the last word."""
    line = " ".join(f"'{w}'" for w in words)
    script = (
        f"source '{COMPLETION}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        '_dcmctl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], env=cli.env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


def test_completion(dcmctl: Cli, tmp_path: Path) -> None:
    me = str(TOP / "bin" / "dcmctl")
    top = {names[0] for names, _ in commands(build_parser())}
    assert set(complete(dcmctl, me, "")) == top | {"--help", "--version"}
    for names, parser in commands(build_parser()):
        if names in (("donor",), ("vm",)):
            continue
        offered = complete(dcmctl, me, *names, "--")
        assert set(offered) - {"--"} == set(options(parser)), names
    assert complete(dcmctl, me, "run", "--on-loss", "s") == ["sigbus"]
    conf = tmp_path / "host.conf"
    conf.write_text("[donor near]\naddress = unix:/n\n[donor far]\naddress = tcp:h:1\n")
    dcmctl.env["DCM_HOST_CONF"] = str(conf)
    dcmctl.env["DCM_HOSTD_CONF"] = str(tmp_path / "none")
    assert complete(dcmctl, me, "donor", "drain", "f") == ["far"]
    assert complete(dcmctl, me, "donor", "remove", "") == ["far", "near"]
    assert complete(dcmctl, me, "donor", "add", "x", "t") == ["tcp:"]
    (tmp_path / "my.key").write_text("")
    assert complete(dcmctl, me, "run", "--keys", f"{tmp_path}/m") == [f"{tmp_path}/my.key"]
    assert "true" in complete(dcmctl, me, "run", "--", "tru")


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh: scripts/deps.sh test")
def test_completion_of_zsh(dcmctl: Cli, tmp_path: Path) -> None:
    """The completions of a real zsh, by compinit, on a terminal."""
    conf = tmp_path / "host.conf"
    conf.write_text("[donor near]\naddress = unix:/n\n[donor far]\naddress = tcp:h:1\n")
    (tmp_path / "my.key").write_text("")
    work = tmp_path / "zsh"
    work.mkdir()
    env = {**dcmctl.env, "DCM_HOST_CONF": str(conf), "DCM_HOSTD_CONF": str(tmp_path / "none")}
    env["PATH"] = f"{TOP / 'bin'}:{env['PATH']}"
    top = {names[0] for names, _ in commands(build_parser())}
    with Zsh(COMPLETION.parent, env, work) as zsh:
        assert set(zsh.complete("dcmctl ")) == top
        assert zsh.complete("dcmctl --v") == ["--version"]
        for names, parser in commands(build_parser()):
            line = f"dcmctl {' '.join(names)} "
            if names in (("donor",), ("vm",)):
                assert set(zsh.complete(line)) == {n[1] for n, _ in commands(parser, names)}
                continue
            assert set(zsh.complete(f"{line}--")) == set(options(parser)), names
        assert zsh.complete("dcmctl run --on-loss s") == ["sigbus"]
        assert zsh.complete("dcmctl donor drain f") == ["far"]
        assert zsh.complete("dcmctl donor remove ") == ["far", "near"]
        assert zsh.complete("dcmctl donor add x t") == ["tcp:"]
        assert zsh.complete("dcmctl vm list --connect qemu:///ses") == ["qemu:///session"]
        assert zsh.complete(f"dcmctl run --keys {tmp_path}/my") == ["my.key"]
        assert "true" in zsh.complete("dcmctl run --budget 1G -- tru")


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh: scripts/deps.sh test")
def test_completion_of_zsh_knows_what_runs(dcmctl: Cli, runtime: Path, tmp_path: Path) -> None:
    with VmServer(runtime / "vm"), Zsh(
        COMPLETION.parent, {**dcmctl.env, "PATH": f"{TOP / 'bin'}:{dcmctl.env['PATH']}"}, tmp_path
    ) as zsh:
        for command in ("status", "budget", "tunable"):
            assert zsh.complete(f"dcmctl {command} ") == ["vm1"]
        assert zsh.complete("dcmctl tunable vm1 el") == ["elastic"]


def test_help(dcmctl: Cli) -> None:
    assert dcmctl().returncode == 2
    assert dcmctl("donor").returncode == dcmctl("vm").returncode == 2
    assert dcmctl("--version").stdout == f"dcmctl {(TOP / 'VERSION').read_text().strip()}\n"
    for names, _ in commands(build_parser()):
        done = dcmctl(*names, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("usage: dcmctl")


def test_launcher_from_elsewhere(dcmctl: Cli, tmp_path: Path) -> None:
    """dcmctl runs by a symbolic link, and as installed."""
    link = tmp_path / "dcmctl"
    link.symlink_to(TOP / "bin" / "dcmctl")
    subprocess.run([link, "list", "-q"], env=dcmctl.env, check=True)
    prefix = tmp_path / "usr"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(TOP / "bin" / "dcmctl", prefix / "bin" / "dcmctl")
    broken = subprocess.run(
        [prefix / "bin" / "dcmctl"], env=dcmctl.env, capture_output=True, text=True, check=False
    )
    assert broken.returncode == 1
    assert "install it again" in broken.stderr
    package = prefix / "share" / "kvm-dcm" / "dcmctl"
    shutil.copytree(TOP / "dcmctl" / "dcmctl", package)
    shutil.copy(TOP / "VERSION", package / "VERSION")
    done = subprocess.run(
        [prefix / "bin" / "dcmctl", "--version"],
        env=dcmctl.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"dcmctl {(TOP / 'VERSION').read_text().strip()}\n"


def test_a_figure_is_in_the_document_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows in docs/benchmarks.md those that were measured again are replaced, each alone."""
    monkeypatch.syspath_prepend(TOP / "bench")
    from dcmbench import document

    text = (
        "<!-- details-memory -->\n- `a`: one\n  two\n- `b`: three\n- `c`: four\n<!-- end -->\n"
    )
    rows: dict[str, dict[str, Mapping[str, Any]]] = {
        "memory": {"b": {"detail": "five"}, "d": {"detail": "six"}}
    }
    new = document.filled(text, rows)
    assert new == text.replace("three", "five").replace("four\n", "four\n- `d`: six\n")
    assert document.filled(new, rows) == new


def test_a_row_measured_alone_drops_the_others_from_the_table_of_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table by way to the donor keeps the lines of rows that were not measured again."""
    monkeypatch.syspath_prepend(TOP / "bench")
    from dcmbench import document

    kept = "| `scale-2`, two threads over one | 2.039 | 1.065 | 1.715 | 1.714 |  |\n"
    text = (
        "<!-- columns -->\n"
        "| row | all direct | shm | TCP | TLS | zram |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        f"| `rand-vs-zram`, us a page | 1 | 2 | 3 | 4 | 5 |\n{kept}<!-- end -->\n"
    )
    columns = {"direct": 9, "shm": 8, "tcp": 7, "tls": 6, "zram": 5}
    rows: dict[str, dict[str, Mapping[str, Any]]] = {
        "memory": {"rand-vs-zram": {"raw": {"unit": "us a page", "columns": columns}}}
    }
    new = document.filled(text, rows)
    assert new == text.replace("| 1 | 2 | 3 | 4 | 5 |", "| 9 | 8 | 7 | 6 | 5 |")
