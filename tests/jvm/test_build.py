# SPDX-License-Identifier: GPL-2.0-or-later
"""The messages and status of scripts/jdk-build without a libjvm, or without a source of one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.framework.paths import TOP
from tests.jvm import support

NOWHERE = "http://127.0.0.1:9"


def jdk_build(
    cache: Path, *flags: str, top: Path = TOP, mirror: str = NOWHERE
) -> subprocess.CompletedProcess[str]:
    """Run it with a cache of its own."""
    env = {**os.environ, "DCM_CACHE": str(cache), "DCM_MIRROR": mirror}
    env.pop("DCM_JDK_SOURCE", None)
    return subprocess.run(
        [str(top / "scripts" / "jdk-build"), *flags],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("there", [False, True])
def test_none_is_cached(tmp_path: Path, there: bool) -> None:
    """Without a libjvm --cached ends with 77 and one line, and makes nothing."""
    cache = tmp_path / "cache"
    if there:
        cache.mkdir()
    done = jdk_build(cache, "--cached")
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr.splitlines() == [
        f"jdk-build: no libjvm with this series is in {cache}: run make test-jvm, or "
        "scripts/jdk-build"
    ]
    assert cache.exists() == there and not (there and any(cache.iterdir()))


def test_the_newest_that_is_cached(tmp_path: Path) -> None:
    """Of two with this series --cached takes the one made last; none that is not whole."""
    first = Path(jdk_build(tmp_path, "--where").stdout.strip())
    second, torn = first.with_name(f"{first.name}2"), first.with_name(f"{first.name}3")
    for age, folder in enumerate((torn, second, first)):
        folder.mkdir()
        if folder != torn:
            (folder / ".complete").touch()
            os.utime(folder / ".complete", (1e9 - age, 1e9 - age))
    done = jdk_build(tmp_path, "--cached")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{second}\n", "")


def test_tests_are_skipped_for_77_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no libjvm is a reason to skip; any other failure is one of the tests."""
    monkeypatch.setenv("DCM_CACHE", str(tmp_path))
    found = support.libjvm.__wrapped__()
    assert isinstance(found, str) and found.startswith("jdk-build: no libjvm with this series")
    monkeypatch.setenv("DCM_JOBS", "none")
    with pytest.raises(AssertionError, match="jdk-build: DCM_JOBS is 'none'"):
        support.libjvm.__wrapped__()


def test_check_without_a_source(tmp_path: Path) -> None:
    """With no source here and no mirror --check ends with 77 and says what to do."""
    done = jdk_build(tmp_path, "--check")
    assert (done.returncode, done.stdout) == (77, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"jdk-build: the mirror {NOWHERE} does not give openjdk-25_")
    assert last.endswith("name one that does in DCM_MIRROR, or a folder with --source")


def archives(folder: Path, flag: str) -> Path:
    """A source of the file that the series changes for its first patch, as Debian's archives."""
    tree, debian = folder / "openjdk-25-1", folder / "debian" / "patches"
    changed = tree / "src" / "flags.hpp"
    changed.parent.mkdir(parents=True)
    changed.write_text(flag)
    (tree / "unchanged").write_text("no patch names this\n")
    debian.mkdir(parents=True)
    (debian / "series").write_text("# a comment\none.diff\n")
    (debian / "one.diff").write_text(
        "--- a/src/flags.hpp\n+++ b/src/flags.hpp\n@@ -1 +1 @@\n-one\n+two\n"
    )
    source = folder / "source"
    source.mkdir()
    for name, top in (("1.orig", tree.name), ("1-1.debian", "debian")):
        archive = source / f"openjdk-25_{name}.tar.xz"
        subprocess.run(["tar", "-cJf", archive, "-C", folder, top], check=True, timeout=60)
    return source


@pytest.mark.parametrize(
    ("flag", "ours", "status", "says"),
    [
        ("one\n", "two", 0, "the series applies to OpenJDK 1"),
        ("one\n", "three", 1, "the series does not apply to the source in {source}"),
        ("other\n", "two", 1, "the series does not apply to the source in {source}"),
    ],
)
def test_check_of_a_source(tmp_path: Path, flag: str, ours: str, status: int, says: str) -> None:
    """Both series have to apply, Debian's and then ours; nothing that is unpacked is kept."""
    top, cache = tmp_path / "top", tmp_path / "cache"
    openjdk = top / "guest-virtio-gc" / "openjdk"
    (openjdk / "patches").mkdir(parents=True)
    (openjdk / "series").write_text("ours.patch src/new.hpp\n")
    (openjdk / "src" / "src").mkdir(parents=True)
    (openjdk / "src" / "src" / "new.hpp").write_text("new\n")
    (openjdk / "patches" / "ours.patch").write_text(
        "ours: Change a flag\n\n---\ndiff --git a/src/flags.hpp b/src/flags.hpp\n"
        f"--- a/src/flags.hpp\n+++ b/src/flags.hpp\n@@ -1 +1 @@\n-{ours}\n+four\n"
    )
    for needed in ("guest-virtio-gc/include", "guest-virtio-gc/lib"):
        shutil.copytree(TOP / needed, top / needed)
    (top / "scripts").mkdir()
    shutil.copy2(TOP / "scripts" / "jdk-build", top / "scripts")
    source = archives(tmp_path, flag)
    done = jdk_build(cache, "--check", "--source", str(source), top=top)
    assert done.returncode == status, done.stderr
    assert done.stderr.splitlines()[-1] == f"jdk-build: {says.format(source=source)}"
    assert sorted(path.name for path in cache.iterdir()) == ["jdk-check.log", "jdk.lock"]
