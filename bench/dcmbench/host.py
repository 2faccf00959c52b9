# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes, memory cgroups and swap, on zram or a file, none of which outlives the run.

All that is made is removed in a `finally`; bench/run turns SIGINT and SIGTERM into exceptions, so
these run `finally` too. Against SIGKILL there is a ledger: before something is made, its name is
written to a file, and the next start removes what that file names.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CONTROL = Path("/sys/class/zram-control")
V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class BenchError(Exception):
    """A measurement failed; the text says why, in one line."""


# ---- the ledger ----


class Ledger:
    """A file with the names of folders, cgroups and devices of ours; written before they exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._items: list[list[str]] = []

    def sweep(self) -> None:
        """Undo what a killed run left behind."""
        try:
            items = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        for kind, name in reversed(items):
            if kind == "zram":
                _zram_remove(int(name))
            elif kind == "swap":
                _swap_off(name)
                Path(name).unlink(missing_ok=True)
            elif kind == "cgroup":
                _cgroup_remove(Path(name))
            elif kind == "folder":
                shutil.rmtree(name, ignore_errors=True)
        self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def holding(self, kind: str, name: str) -> Iterator[None]:
        self._items.append([kind, name])
        self._write()
        try:
            yield
        finally:
            self._items.remove([kind, name])
            self._write()

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Make a temporary folder, whose path is short enough for sockets."""
        path = Path(tempfile.mkdtemp(prefix="dcm-bench-"))
        with self.holding("folder", os.fspath(path)):
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._items:
            self._path.write_text(json.dumps(self._items), encoding="utf-8")
        else:
            self._path.unlink(missing_ok=True)


# ---- processes ----

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Ran:
    """A finished program."""

    seconds: float
    status: int
    output: bytes  # only its beginning; the hash is of all of it
    sha256: str
    error: str
    maxrss: int  # bytes
    user: float
    system: float
    majflt: int
    anon_peak: int  # bytes; sampled from outside
    timed_out: bool

    def json(self) -> dict[str, object]:
        if self.timed_out:
            raise BenchError("it ran into its time limit")
        if self.status:
            raise BenchError(f"it failed with status {self.status}: {self.error[-300:].strip()}")
        try:
            value = json.loads(self.output)
        except ValueError as e:
            raise BenchError(f"it printed no JSON: {e}") from e
        assert isinstance(value, dict)
        return value


def children(pid: int) -> list[int]:
    """A process and all of its descendants."""
    found = [pid]
    for p in found:
        for task in Path(f"/proc/{p}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(c) for c in task.read_text().split()]
    return found


def anon_bytes(pid: int) -> int:
    """The anonymous memory that a process has now, as the kernel counts it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def rss_peak(pid: int) -> int:
    """The peak of a running process's resident memory."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def resident_beside(pid: int, name: str) -> tuple[int, int]:
    """Resident bytes of a process, without mappings of files called `name`; bytes of page tables.

    The kernel counts them (smaps, VmPTE). Both are 0 if the process is gone.
    """
    total, tables, counted = 0, 0, True
    try:
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            word = line.split(None, 1)[0]
            if not word.endswith(":"):
                counted = name not in line
            elif word == "Rss:" and counted:
                total += int(line.split()[1]) * 1024
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmPTE:"):
                tables = int(line.split()[1]) * 1024
    except (OSError, IndexError):
        return 0, 0
    return total, tables


class Sampler(threading.Thread):
    """Samples the anonymous memory of the largest process in a process tree; keeps the maximum."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._halt = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._halt.wait(0.1):
            for p in children(self._pid):
                self.peak = max(self.peak, anon_bytes(p))

    def stop(self) -> int:
        self._halt.set()
        self.join()
        return self.peak


def kill_group(proc: subprocess.Popen[bytes]) -> None:
    """Kill a child that spawn() started, and all of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(proc.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        proc.wait(10)


def spawn(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cgroup: Cgroup | None = None,
    cpus: set[int] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a new session, in a cgroup and on these CPUs; it dies with this one."""

    parent = os.getpid()

    def child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was dead by then, and sends no signal
            os._exit(1)
        if cgroup:
            cgroup.enter()
        if cpus:
            os.sched_setaffinity(0, cpus)

    return subprocess.Popen(
        [os.fspath(a) for a in argv],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **env} if env else None,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=child,
    )


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    cgroup: Cgroup | None = None,
    cpus: set[int] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
    cwd: Path | None = None,
    sample: bool = False,
) -> Ran:
    """Run a program to its end. Its output is hashed as it comes, not written to a file."""
    with contextlib.ExitStack() as stack:
        feed = stack.enter_context(stdin.open("rb")) if stdin else None
        start = time.monotonic()
        proc = spawn(
            argv,
            cgroup=cgroup,
            cpus=cpus,
            env=env,
            stdin=feed.fileno() if feed else subprocess.DEVNULL,
            cwd=cwd,
        )
        stack.callback(kill_group, proc)
        sampler = Sampler(proc.pid)
        if sample:
            sampler.start()
        errors: list[bytes] = []
        assert proc.stdout and proc.stderr
        reader = threading.Thread(target=lambda f=proc.stderr: errors.append(f.read()), daemon=True)
        reader.start()
        late = threading.Event()

        def expire() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proc.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, expire)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        digest, kept = hashlib.sha256(), b""
        while data := os.read(proc.stdout.fileno(), 1 << 16):
            digest.update(data)
            if len(kept) < 1 << 20:
                kept += data
        _, status, usage = os.wait4(proc.pid, 0)
        seconds = time.monotonic() - start
        proc.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        reader.join(5)
        return Ran(
            seconds=seconds,
            status=proc.returncode,
            output=kept,
            sha256=digest.hexdigest(),
            error=b"".join(errors).decode(errors="replace"),
            maxrss=usage.ru_maxrss * 1024,
            user=usage.ru_utime,
            system=usage.ru_stime,
            majflt=usage.ru_majflt,
            anon_peak=sampler.stop() if sample else 0,
            timed_out=late.is_set(),
        )


# ---- a network of its own ----

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Put this thread, and what it starts, into a new network namespace until the block ends.

    The namespace has only a loopback device, which nobody else uses.
    """
    with open("/proc/thread-self/ns/net", "rb") as before:
        if _libc.unshare(CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            raise BenchError(f"needs root for a network namespace: {why}")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
            yield
        finally:
            if _libc.setns(before.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns: the network from before")


# ---- cgroups ----


def _cgroup_remove(path: Path) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            for pid in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


class Cgroup:
    """A memory cgroup with a limit on memory and none on swap; version 1 or 2."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._v1 = path.parent == V1
        path.mkdir()
        if self._v1:
            (path / "memory.limit_in_bytes").write_text(str(limit))
        else:
            (path / "memory.max").write_text(str(limit))
            with contextlib.suppress(OSError):
                (path / "memory.swap.max").write_text("max")

    def enter(self) -> None:
        """Put the calling process into the cgroup; called between fork and exec."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int:
        name = "memory.max_usage_in_bytes" if self._v1 else "memory.peak"
        try:
            return int((self.path / name).read_text())
        except (OSError, ValueError):
            return 0


@contextlib.contextmanager
def cgroup(ledger: Ledger, limit: int) -> Iterator[Cgroup]:
    if os.geteuid():
        raise BenchError("needs root for a memory cgroup")
    if (V1 / "memory.limit_in_bytes").exists() or (V1 / "memory.usage_in_bytes").exists():
        parent = V1
    elif "memory" in _text(V2 / "cgroup.subtree_control").split():
        parent = V2
    elif "memory" in _text(V2 / "cgroup.controllers").split():
        raise BenchError(
            "the memory controller is off for children of the root cgroup: "
            "echo +memory > /sys/fs/cgroup/cgroup.subtree_control"
        )
    else:
        raise BenchError("this kernel offers no memory cgroup (booted with cgroup_disable?)")
    path = parent / f"dcm-bench-{os.getpid()}"
    with ledger.holding("cgroup", os.fspath(path)):
        try:
            yield Cgroup(path, limit)
        finally:
            _cgroup_remove(path)


# ---- swap ----


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _swap_off(device: str) -> None:
    if any(line.split()[0] == device for line in _text(Path("/proc/swaps")).splitlines()[1:]):
        subprocess.run(["swapoff", device], check=False)


def _swap_on(device: str) -> None:
    """Turn swap on for a device, with a higher priority than all other swap."""
    try:
        subprocess.run(["mkswap", device], check=True, capture_output=True)
        subprocess.run(["swapon", "-p", "32767", device], check=True, capture_output=True)
    except subprocess.CalledProcessError as e:
        raise BenchError(f"{e.cmd[0]}: {e.stderr.decode(errors='replace').strip()}") from e


@contextlib.contextmanager
def swap_file(ledger: Ledger, path: Path, size: int) -> Iterator[None]:
    """Swap on a new file, until the end of the block."""
    if os.geteuid():
        raise BenchError("needs root for swap on a file")
    device = os.fspath(path)
    with ledger.holding("swap", device):
        try:
            with path.open("wb") as f:
                path.chmod(0o600)
                os.posix_fallocate(f.fileno(), 0, size)
            _swap_on(device)
            yield
        finally:
            _swap_off(device)
            path.unlink(missing_ok=True)


def _zram_remove(number: int) -> None:
    device = f"/dev/zram{number}"
    _swap_off(device)
    block = Path(f"/sys/block/zram{number}")
    for _ in range(50):
        if not block.exists():
            return
        with contextlib.suppress(OSError):
            (block / "reset").write_text("1")
        with contextlib.suppress(OSError):
            (CONTROL / "hot_remove").write_text(str(number))
        if block.exists():
            time.sleep(0.1)


class Zram:
    """A zram device of our own, used for swap with a higher priority than all other swap."""

    def __init__(self, number: int, algorithm: str) -> None:
        self.number = number
        self.algorithm = algorithm
        self._block = Path(f"/sys/block/zram{number}")

    def ratio(self) -> tuple[int, float]:
        """The bytes stored in it now, and their compression ratio."""
        fields = [int(f) for f in _text(self._block / "mm_stat").split()]
        if len(fields) < 2 or not fields[1]:
            return 0, 0.0
        return fields[0], fields[0] / fields[1]


class RatioSampler(threading.Thread):
    """Samples the compression ratio of a zram device; keeps that of the fullest moment."""

    def __init__(self, device: Zram) -> None:
        super().__init__(daemon=True)
        self._device = device
        self._halt = threading.Event()
        self._best = (0, 0.0)

    def run(self) -> None:
        while not self._halt.wait(0.05):
            self._best = max(self._best, self._device.ratio())

    def stop(self) -> float:
        self._halt.set()
        self.join()
        return self._best[1]


def zram_algorithms() -> list[str]:
    """The compressors to compare with: the kernel's default, and lz4, which distributions set."""
    for block in sorted(Path("/sys/block").glob("zram*")):
        words = _text(block / "comp_algorithm").split()
        default = [w.strip("[]") for w in words if w.startswith("[")]
        return default + [w for w in words if w == "lz4"]
    return [""]


@contextlib.contextmanager
def zram(ledger: Ledger, size: int, algorithm: str) -> Iterator[Zram]:
    if os.geteuid():
        raise BenchError("needs root for a swap device on zram")
    if not (CONTROL / "hot_add").exists():
        subprocess.run(["modprobe", "zram", "num_devices=0"], check=False, capture_output=True)
    if not (CONTROL / "hot_add").exists():
        raise BenchError("no zram: load the module (modprobe zram) or build a kernel with it")
    number = int((CONTROL / "hot_add").read_text())
    with ledger.holding("zram", str(number)):
        try:
            block = Path(f"/sys/block/zram{number}")
            if algorithm:
                (block / "comp_algorithm").write_text(algorithm)
            (block / "disksize").write_text(str(size))
            device = f"/dev/zram{number}"
            for _ in range(50):
                if os.path.exists(device):
                    break
                time.sleep(0.1)
            _swap_on(device)
            yield Zram(number, algorithm)
        finally:
            _zram_remove(number)
