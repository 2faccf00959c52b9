# SPDX-License-Identifier: GPL-2.0-or-later
"""The package of our libjvm: what is in it, that it is the same each time, and that it runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.framework.paths import TOP
from tests.jvm.conftest import WHOLE
from tests.jvm.support import libjvm

pytestmark = pytest.mark.timeout(900)
FOLDER = "/usr/lib/jvm/java-25-openjdk-amd64/lib/dcm"
DOC = "/usr/share/doc/openjdk-25-dcm"
# In a root that others use: what is installed goes into a tmpfs above it.
INSIDE = """
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay -o lowerdir="$1",upperdir=/mnt/up,workdir=/mnt/work root /mnt/root
mount --rbind /proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
cp "$2" /mnt/root/tmp/ours.deb
exec chroot /mnt/root /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 sh -c "$3"
"""


def script(name: str, *args: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of scripts/, if need be with another cache."""
    return subprocess.run(
        [str(TOP / "scripts" / name), *args],
        env={**os.environ, **({"DCM_CACHE": str(cache)} if cache else {})},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def field(deb: Path, name: str) -> str:
    """One field of the package's control file."""
    command = ["dpkg-deb", "-f", str(deb), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, made new: it is made only if lintian finds nothing."""
    if isinstance(why := libjvm(), str):
        pytest.fail(why) if WHOLE else pytest.skip(why)
    done = script("jdk-package", str(tmp_path_factory.mktemp("package")))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--nonsense"], "no option '--nonsense'; see --help"),
        (["--libjvm"], "--libjvm needs a value"),
        (["--libjvm", "/nonexistent"], "/nonexistent has no libjvm.so: it is no folder of "),
        (["a", "b"], "more than one folder: 'a', 'b'"),
    ],
)
def test_wrong_arguments(args: list[str], says: str) -> None:
    """One line, and nothing is made."""
    done = script("jdk-package", *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith(f"jdk-package: {says}")


def test_debian_version_unknown(tmp_path: Path) -> None:
    """It is not guessed which of Debian's packages a libjvm belongs to.

    jdk-package looked for the tree that the libjvm was built in, and did not find it when the
    source had come from the mirror.
    """
    made = tmp_path / "jdk-1-mirror"
    made.mkdir()
    for name in ("libjvm.so", ".complete"):
        (made / name).touch()
    (made / "version").write_text("25.0.3+9\n")
    done = script("jdk-package", "--libjvm", str(made), cache=tmp_path)
    assert done.returncode == 1 and " has no debian-version: " in done.stderr
    for wrong in ("25.0.3+9", "25.0.4+9-1", "25.0.3+9-1, evil"):
        (made / "debian-version").write_text(f"{wrong}\n")
        done = script("jdk-package", "--libjvm", str(made), cache=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"jdk-package: '{wrong}' is not a version of Debian's")


@pytest.mark.slow
def test_contents(deb: Path) -> None:
    """A libjvm and its papers, no file of Debian's; it depends on exactly one version."""
    listed = subprocess.run(
        ["dpkg-deb", "-c", str(deb)], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split() for line in listed.splitlines()]
    files = {words[5].removeprefix("."): words[0] for words in lines if words[0][0] != "d"}
    assert files == {
        f"{FOLDER}/libjvm.so": "-rw-r--r--",
        f"{DOC}/changelog.Debian.gz": "-rw-r--r--",
        f"{DOC}/copyright": "-rw-r--r--",
    }
    assert {words[1] for words in lines} == {"root/root"}
    found = libjvm()
    assert isinstance(found, Path)
    made_from = (found / "version").read_text().strip()
    jre, ours = field(deb, "Version").split("+dcm")
    assert jre.startswith(f"{made_from}-") and ours == (TOP / "VERSION").read_text().strip()
    depends = field(deb, "Depends").split(", ")
    assert f"openjdk-25-jre-headless (= {jre})" in depends
    assert [d.split()[0] for d in depends] == ["libc6", "openjdk-25-jre-headless"]
    papers = subprocess.run(
        ["sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -xO ".$1"', str(deb), f"{DOC}/copyright"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "License: GPL-2.0-only with Classpath exception" in papers
    assert "As a special exception, the copyright holders" in papers


@pytest.mark.slow
def test_same_each_time(deb: Path, tmp_path: Path) -> None:
    """The same libjvm gives the same bytes, in another folder and later."""
    done = script("jdk-package", str(tmp_path))
    assert done.returncode == 0, done.stderr
    again = Path(done.stdout.strip())
    assert again.read_bytes() == deb.read_bytes()
    # Made already: nothing is built.
    before = again.stat().st_ino
    assert script("jdk-package", str(tmp_path)).stderr == ""
    assert again.stat().st_ino == before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap makes the Debian 13")
def test_beside_debians_own(deb: Path) -> None:
    """In a Debian 13 with its own JRE: chosen by flag or environment, and gone without a trace."""
    done = script("jdk-root", field(deb, "Version").split("+dcm")[0])
    assert done.returncode == 0, done.stderr
    root = done.stdout.strip()
    steps = f"""
    set -e
    find /etc /usr/lib/jvm -type f | sort | xargs sha256sum >/tmp/before
    dpkg -i /tmp/ours.deb >/dev/null
    java -version; echo ==
    java -XXaltjvm=dcm -version; echo ==
    JDK_ALTERNATE_VM=dcm java -version; echo ==
    java -XXaltjvm=dcm -XX:+PrintFlagsFinal -version | grep -c ' Donor' || true; echo ==
    java -XXaltjvm=dcm -XX:DonorHeap=/dev/vgc0 -Xmx64m -version || echo status $?; echo ==
    java -XXaltjvm=dcm -Xshare:dump >/dev/null
    ls {FOLDER} | tr '\\n' ' '; echo ==
    dpkg -r openjdk-25-dcm >/dev/null
    ls -d {FOLDER} || true; echo ==
    find /etc /usr/lib/jvm -type f | sort | xargs sha256sum | diff /tmp/before - && echo same
    """
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, "-"]
    ran = subprocess.run(
        [*command, root, str(deb), f"exec 2>&1; {steps}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
    )  # fmt: skip
    print(shlex.quote(ran.stdout), ran.returncode)
    said = ran.stdout.split("==\n")
    assert ran.returncode == 0 and len(said) == 8, ran.stdout
    stock, flag, environment, flags, device, archives, folder, rest = said
    assert "-dcm" not in stock and re.search(r"25\.\d.*-Debian", stock)
    for ours in (flag, environment):
        assert re.search(r"OpenJDK 64-Bit Server VM \(build .*-dcm", ours), ours
    assert int(flags.splitlines()[-1]) > 0
    assert "status 1" in device and "libvgc cannot be loaded" in device
    assert "classes.jsa" in archives and "libjvm.so" in archives
    assert "No such file or directory" in folder
    assert rest.strip() == "same"
