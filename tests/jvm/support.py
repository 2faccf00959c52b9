# SPDX-License-Identifier: GPL-2.0-or-later
"""A JDK with our libjvm, compiled test programs, and runs of them on donors."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.framework.donor import Donor, write_private
from tests.framework.paths import BUILD, TOP
from tests.guest.paged import Pager

NARROW = "-XX:+UseCompressedOops"
WIDE = "-XX:-UseCompressedOops"
COMPACT_HEADERS = "-XX:+UseCompactObjectHeaders"
LAYOUTS = (NARROW, WIDE, COMPACT_HEADERS)
JAVA = TOP / "tests" / "jvm" / "java"
COLLECTORS = ("G1", "Parallel", "Serial", "Shenandoah")
BUDGET_MIB = 64
HEAP_MIB = 256  # four times the budget
LIMIT_S = 280
NONE_CACHED = 77  # exit status of scripts/jdk-build --cached
JAVAC = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
# Two times the pages of the heap, for what is being moved.
DONOR = {"slab-size": "16M", "capacity": "1G"}


@functools.cache
def libjvm() -> Path | str:
    """The folder with our libjvm.so, or why none of these patches is cached."""
    done = subprocess.run(
        [str(TOP / "scripts" / "jdk-build"), "--cached"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == NONE_CACHED:
        return done.stderr.strip()
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@functools.cache
def jdk() -> Path | str:
    """A JDK of exactly the version of our libjvm, or why there is none."""
    found = libjvm()
    if isinstance(found, str):
        return found
    version = (found / "version").read_text().strip()
    line = re.compile(rf'^JAVA_RUNTIME_VERSION="{re.escape(version)}\b', re.M)
    named = os.environ.get("DCM_JDK")
    for home in [Path(named)] if named else sorted(Path("/usr/lib/jvm").glob("*")):
        release = home / "release"
        whole = (home / "bin" / "javac").exists() and release.exists()
        if whole and line.search(release.read_text()):
            return home.resolve()
    return f"no JDK {version} below {named or '/usr/lib/jvm'}: install one, or name it in DCM_JDK"


def missing() -> str | None:
    """Why nothing can be tested, or None."""
    found = jdk()
    return found if isinstance(found, str) else None


def make_home(folder: Path) -> Path:
    """A JDK whose lib/dcm has our libjvm; all else is that of the JDK."""
    stock, ours = jdk(), libjvm()
    assert isinstance(stock, Path) and isinstance(ours, Path)
    home = folder / "jdk"
    for part in (home / "bin", home / "lib" / "dcm"):
        part.mkdir(parents=True)
    for entry in [*stock.iterdir(), *(stock / "lib").iterdir()]:
        if entry.name not in ("bin", "lib"):
            (home / entry.relative_to(stock)).symlink_to(entry)
    # The launcher looks for the rest beside its own file.
    for name in ("java", "javac"):
        shutil.copy2(stock / "bin" / name, home / "bin" / name)
    shutil.copy2(ours / "libjvm.so", home / "lib" / "dcm" / "libjvm.so")
    return home


def compile_java(home: Path, folder: Path) -> Path:
    """All programs of tests/jvm/java, as classes in a folder."""
    subprocess.run(
        [str(home / "bin" / "javac"), "-Xlint:all", "-Werror", "-d", str(folder)]
        + [str(path) for path in sorted(JAVA.glob("*.java"))],
        check=True,
        timeout=LIMIT_S,
    )
    return folder


def large_source(methods: int) -> str:
    """Source of a class with `methods` generic methods, for javac: Large."""
    lines = [
        f"  static <T extends Comparable<T>> int m{n}(java.util.List<T> a) {{"
        f" return (int) a.stream().map(x -> x.toString() + {n}).filter(x -> x.length() > {n % 7})"
        f".sorted().distinct().count() + m{max(n - 1, 0)}(a.subList(0, a.size() / 2)); }}"
        for n in range(methods)
    ]
    return "\n".join(["class Large {", *lines, "}", ""])


def configure(
    folder: Path,
    donors: list[Donor],
    transport: str,
    name: str | None = "jvm",
    size: str = "512M",
    redundancy: str = "none",
) -> Path:
    """A libdcm configuration for a heap on these donors, which share a key.

    Without a name, libdcm makes one for each process that reads it.
    """
    text = f"[vm]\nbudget = {BUDGET_MIB}M\nsize = {size}\nmode = program\n"
    if name:
        text += f"name = {name}\n"
    text += f"redundancy = {redundancy}\n"
    for donor in donors:
        address = donor.unix_address if transport == "shm" else donor.tcp_address
        text += f"[donor {donor.folder.name}]\naddress = {address}\n"
    text += f"[key]\ntenant = test\nfile = {donors[0].key_file}\n"
    path = folder / f"{name or 'jvm'}.conf"
    write_private(path, text)
    return path


class Jvm:
    """Our JVM beside the stock one, with what its programs need in a folder."""

    def __init__(self, folder: Path) -> None:
        self.home = make_home(folder)
        self.folder = folder
        (folder / "classes").mkdir()
        self.classes = compile_java(self.home, folder / "classes")

    def command(self, *args: str | Path, ours: bool = True) -> list[str]:
        """The command line for java with these arguments."""
        first = [str(self.home / "bin" / "java"), *(["-XXaltjvm=dcm"] if ours else [])]
        # A JVM that is killed would leave its file of counters in /tmp.
        first += ["-XX:-UsePerfData", "-cp", str(self.classes)]
        return first + [str(arg) for arg in args]

    def environment(self, runtime: Path) -> dict[str, str]:
        """Where our libraries are, and where a pager's socket goes."""
        libraries = {"LD_LIBRARY_PATH": str(BUILD / "lib")}
        return {**os.environ, **libraries, "DCM_RUNTIME_DIR": str(runtime / "run")}

    def run(
        self,
        runtime: Path,
        *args: str | Path,
        ours: bool = True,
        status: int = 0,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run java to its end, with more in its environment."""
        done = subprocess.run(
            self.command(*args, ours=ours),
            env={**self.environment(runtime), **(more or {})},
            cwd=runtime,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def run_while_workers_die(
        self,
        runtime: Path,
        donors: list[Donor],
        most: int,
        pause_s: float,
        *args: str | Path,
        after: str = "",
    ) -> tuple[int, str]:
        """Run java to its end, and kill its GC workers meanwhile: how many, and what it said.

        They are killed only while the last line that it has said matches `after`.
        """
        killed = 0
        lines = [""]
        until = time.monotonic() + LIMIT_S
        with subprocess.Popen(
            self.command(*args), env=self.environment(runtime), stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            reader = threading.Thread(target=lines.extend, args=(program.stdout,))
            reader.start()
            try:
                while program.poll() is None and killed < most and time.monotonic() < until:
                    if re.search(after, lines[-1]):
                        killed += sum(donor.kill_gc_workers() for donor in donors)
                    time.sleep(pause_s)
                program.wait(timeout=max(0, until - time.monotonic()))
            finally:
                program.kill()
                reader.join()
        said = "".join(lines)
        assert program.returncode == 0, said
        return killed, said


def run_tool(name: str, *args: str | Path) -> str:
    """The output of a tool of the JDK, as jcmd and jfr."""
    home = jdk()
    assert isinstance(home, Path)
    done = subprocess.run(
        [str(home / "bin" / name), *[str(arg) for arg in args]],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pagers(runtime: Path) -> list[Pager]:
    """Those of the JVMs that run with this environment()."""
    return [Pager(path) for path in (runtime / "run" / "vm").glob("*.sock")]


def copies_wait(runtime: Path) -> None:
    """Return when each page of the heap has its copies: a donor that was late has none of some."""
    (pager,) = pagers(runtime)
    until = time.monotonic() + LIMIT_S / 2
    while (status := pager.status())["exposed_bytes"] or status["filling"]:
        assert time.monotonic() < until, status
        time.sleep(0.05)


def lying(liar: Path, lie: str) -> dict[str, str]:
    """The environment in which a JVM's donors tell this lie."""
    return {
        "LD_LIBRARY_PATH": f"{liar}:{BUILD / 'lib'}",
        "REAL_LIBVGC": str(BUILD / "lib" / "libvgc.so.0"),
        "LIE": lie,
    }


class Asked:
    """A program that collects its heap when it is asked to, while tools look at it."""

    # No concurrent cycle because of what is used
    ONLY = ("-XX:-G1UseAdaptiveIHOP", "-XX:InitiatingHeapOccupancyPercent=100")

    def __init__(
        self, jvm: Jvm, runtime: Path, *flags: str, more: Mapping[str, str] | None = None
    ) -> None:
        self.program = subprocess.Popen(
            jvm.command(*flags, *self.ONLY, "Asked"),
            env={**jvm.environment(runtime), **(more or {})},
            cwd=runtime,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, times: int) -> None:
        """Let it begin to collect so often."""
        assert self.program.stdin
        print(times, file=self.program.stdin, flush=True)

    def wait(self) -> str:
        """Wait until it has: what it said meanwhile."""
        assert self.program.stdout
        said = ""
        for line in self.program.stdout:
            if line == "collected\n":
                return said
            said += line
        raise AssertionError(said)

    def collect(self, times: int) -> str:
        """Let it collect so often: what it said meanwhile."""
        self.ask(times)
        return self.wait()

    def jcmd(self, *args: str) -> str:
        """The output of jcmd about the program."""
        return run_tool("jcmd", str(self.program.pid), *args)

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                said, _unused = self.program.communicate(timeout=LIMIT_S)
                assert self.program.returncode == 0, said
        finally:
            self.program.kill()
            self.program.wait()


def recorded(path: Path, *events: str) -> list[dict[str, Any]]:
    """The values of such events in a recording, in the order of their ends."""
    text = run_tool("jfr", "print", "--json", "--events", ",".join(events), path)
    found = json.loads(text)["recording"]["events"]
    assert all(event["type"] in events for event in found)
    return [event["values"] for event in found]


def timespan_s(text: str) -> float:
    """Seconds of a timespan in a recording, as PT0.012S."""
    match = re.fullmatch(r"PT(?:(\d+)M)?(?:([0-9.]+)S)?", text)
    assert match, text
    return 60 * float(match[1] or 0) + float(match[2] or 0)


def on_donors(config: Path, collector: str, *log: str) -> list[str]:
    """Flags for a heap of HEAP_MIB on the donors of a configuration."""
    return [
        f"-XX:DonorHeap=dcm:{config}",
        f"-XX:+Use{collector}GC",
        f"-Xmx{HEAP_MIB}m",
        *[f"-Xlog:{what}" for what in log],
    ]


def layouts(smoke: str) -> pytest.MarkDecorator:
    """Run a test with one layout of objects, and in `make test-all` with the others too."""
    slow = [pytest.param(one, marks=pytest.mark.slow) for one in LAYOUTS if one != smoke]
    return pytest.mark.parametrize("layout", [smoke, *slow])


def each_way(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with each layout of objects, over shm and TCP; in `make test-all` only."""
    for mark in (
        pytest.mark.parametrize("layout", LAYOUTS),
        pytest.mark.parametrize("transport", ["shm", "tcp"]),
        pytest.mark.slow,
    ):
        test = mark(test)
    return test


def churned(jvm: Jvm, folder: Path, config: Path, flags: list[str], *program: str) -> str:
    """What G1 says of donors while a program runs that checks its own data, and finds it right."""
    said = jvm.run(folder, *on_donors(config, "G1", "gc", "gc+donor"), *flags, *program).stdout
    assert re.search(r"^ok ", said, re.M), said
    return said
