# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot the stock Debian guest under QEMU and talk to it.

The guest knows nothing of this: its kernel writes to the first serial port,
which goes to a file, and systemd's own debug shell (a kernel command line
option) sits on the second, through which commands are run. Programs for the
guest come as a tar on a second read-only disk. QMP pauses and ends it.

Whatever is started is ended: by close(), when an exception passes, and by the
kernel (a parent death signal) should this process be killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.framework.emulator import ghost_breakpoint
from tests.framework.orphan import no_orphan

TOP = Path(__file__).resolve().parents[2]

# Any of these in the guest's kernel log means that something went wrong in it.
COMPLAINTS = re.compile(
    r"""\bBUG:|\bBUG\ at\b|kernel\ BUG|WARNING:\ (?:CPU|possible|suspicious|inconsistent|bad)
    |\bOops\b|general\ protection|stack\ segment|Kernel\ panic|Call\ Trace|\[\ cut\ here\ \]
    |lockdep|circular\ locking|rcu.*(?:stall|kthread\ starved)|self-detected\ stall
    |blocked\ for\ more\ than|soft\ lockup|hard\ LOCKUP|hung_task|Out\ of\ memory|oom-kill
    |Bad\ page|bad\ (?:pmd|pte|swap)|page\ allocation\ failure|corrupt|EXT4-fs\ error
    |I/O\ error|segfault|traps:|Machine\ check|\bmce:.*[Ee]rror
    |refcount_t:|\bUBSAN:|\bKASAN\b|\bKFENCE\b|list_(?:add|del)\b|DEBUG_LOCKS_WARN_ON|use-after-free
    |double\ free|unregister_netdevice:\ waiting|workqueue\ lockup|page\ dumped\ because
    |still\ (?:has\ locks\ held|in\ use)|unable\ to\ handle|INFO:\ (?:task|trying\ to\ register)""",
    re.VERBOSE,
)
# But for these: what the kernel was told, which may name what is looked for.
HARMLESS = re.compile(
    r"^\[ *\d+\.\d+\] (?:Command line:|Kernel command line:"
    r"|\tRCU CPU stall warnings timeout set to \d+ \(rcu_cpu_stall_timeout\)\.$"
    r"|rcu: \tRCU lockdep checking is enabled\.$)"
)


class GuestError(Exception):
    """The guest or its QEMU did not do what was asked."""


class GuestGone(GuestError):
    """QEMU has ended, or the guest is stopped for good.

    @by_emulator: the guest died of what no processor does (tests/framework/again.py)
    """

    def __init__(self, text: str, by_emulator: bool = False) -> None:
        super().__init__(text)
        self.by_emulator = by_emulator


class Process(Protocol):
    """QEMU's process as tests use it: of subprocess.Popen, or on another machine."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Image:
    """The image that scripts/guest-image made."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def kernel(self) -> str:
        return str(self.manifest["kernel"])


@dataclass(frozen=True)
class Accel:
    """How QEMU runs the guest's processor, and how that was found out."""

    name: str
    why: str


@dataclass(frozen=True)
class Ran:
    """One command that ran in the guest."""

    command: str
    status: int
    output: str
    seconds: float


def cache_root() -> Path:
    if "DCM_CACHE" in os.environ:
        return Path(os.environ["DCM_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kvm-dcm"


def get_image() -> Image:
    """The guest image; made now when it is not in the cache (about a minute)."""
    done = subprocess.run(
        [str(TOP / "scripts" / "guest-image")], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise GuestError("scripts/guest-image failed; its message is above")
    folder = Path(done.stdout.strip())
    return Image(folder, json.loads((folder / "manifest.json").read_text()))


def find_complaints(log: str) -> list[str]:
    return [
        line.strip()
        for line in log.splitlines()
        if COMPLAINTS.search(line) and not HARMLESS.search(line)
    ]


class Machine(ABC):
    """A machine that runs while its `with` block does: entering starts it, leaving ends it."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End it, whatever state it is in; again is no harm."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Qmp:
    """The little of QMP that is needed: commands in turn, events skipped."""

    def __init__(self, sock: socket.socket, timeout: float = 20.0) -> None:
        """The connection becomes its own."""
        self._sock = sock
        self._sock.settimeout(timeout)
        self._file = self._sock.makefile("rw", encoding="utf-8", newline="\n")
        try:
            self._file.readline()  # the greeting
            self.command("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def command(self, name: str, **arguments: Any) -> Any:
        message: dict[str, Any] = {"execute": name}
        if arguments:
            message["arguments"] = arguments
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()
        while True:
            line = self._file.readline()
            if not line:
                raise GuestGone("QEMU closed its QMP connection")
            answer = json.loads(line)
            if "error" in answer:
                raise GuestError(f"QMP {name}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._sock.close()


class Guest(Machine):
    """One VM. Use it as a context manager: leaving ends QEMU."""

    def __init__(
        self,
        image: Image,
        accel: Accel,
        *,
        ram_mib: int = 1024,
        cpus: int = 2,
        payload: Iterable[Path] = (),
        wrap: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        extra: Sequence[str] = (),
        scratch_mib: int = 0,
        keep: Path | None = None,
    ) -> None:
        """`wrap` is put before QEMU's command line; `keep` gets the logs."""
        self.image = image
        self.accel = accel
        self.ram_mib = ram_mib
        self.cpus = cpus
        self.payload = tuple(payload)
        self.wrap = tuple(wrap)
        self.env = dict(env) if env is not None else None
        self.extra = tuple(extra)
        self.scratch_mib = scratch_mib
        self.keep = keep
        self.boot_seconds = 0.0
        self._dir = Path(tempfile.mkdtemp(prefix="dcm-guest-"))
        self._proc: Process | None = None
        self._shell: socket.socket | None = None
        self._qmp: Qmp | None = None
        self._pending = b""
        self._turn = 0

    # -- start and end ----------------------------------------------------

    @property
    def console_path(self) -> Path:
        return self._dir / "console.log"

    @property
    def stderr_path(self) -> Path:
        return self._dir / "qemu.log"

    @property
    def pid(self) -> int:
        """Of QEMU itself, under whatever wraps it."""
        try:
            return int((self._dir / "qemu.pid").read_text())
        except (OSError, ValueError):
            raise GuestGone(f"QEMU did not start: {self.stderr_tail()}") from None

    def command_line(self) -> list[str]:
        d = self._dir
        machine = "q35,accel=kvm" if self.accel.name == "kvm" else "q35"
        cmd = ["qemu-system-x86_64", "-M", machine]
        if self.accel.name == "kvm":
            cmd += ["-cpu", "host"]
        else:
            # QEMU 7.2's cmpxchg16b may leave rubbish in EFLAGS (seen with a stock
            # guest: spurious #DB and double faults in __kmalloc in 3 of 8 boots,
            # none in 8 without it), so the guest is not offered the instruction.
            # The others only cost time: tests/framework/emulator.py.
            cmd += ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-cx16,-la57,-erms"]
        cmd += ["-smp", str(self.cpus), "-m", f"{self.ram_mib}M"]
        cmd += ["-nodefaults", "-display", "none", "-no-reboot", "-pidfile", str(d / "qemu.pid")]
        cmd += ["-kernel", str(self.image.folder / "vmlinuz")]
        cmd += ["-initrd", str(self.image.folder / "initrd.img")]
        cmd += ["-append", "root=/dev/vda rw console=ttyS0 panic=-1 systemd.debug_shell=ttyS1"]
        # snapshot=on: what the guest writes goes to an unlinked temporary file.
        cmd += ["-drive", f"file={self.image.folder}/root.img,format=raw,if=virtio,snapshot=on"]
        cmd += ["-drive", f"file={d}/payload.tar,format=raw,if=virtio,readonly=on"]
        if self.scratch_mib:
            # O_DIRECT: the host's kernel reads and writes guest pages itself.
            cmd += ["-drive", f"file={d}/scratch.img,format=raw,if=virtio,cache=none,aio=threads"]
        cmd += ["-device", "virtio-rng-pci"]
        cmd += ["-chardev", f"file,id=console,path={self.console_path}"]
        cmd += ["-serial", "chardev:console"]
        cmd += ["-chardev", f"socket,id=shell,path={d}/shell,server=on,wait=off"]
        cmd += ["-serial", "chardev:shell"]
        cmd += ["-qmp", f"unix:{d}/qmp,server=on,wait=off"]
        return cmd + list(self.extra)

    def start(self) -> None:
        """Start QEMU; wait_shell() then waits for the guest."""
        with tarfile.open(self._dir / "payload.tar", "w") as tar:
            for path in self.payload:
                tar.add(path, arcname=path.name)
        if self.scratch_mib:
            with (self._dir / "scratch.img").open("wb") as f:
                f.truncate(self.scratch_mib << 20)
        # Dies with us even if we get no chance to end it.
        cmd = [*no_orphan("KILL"), *self.wrap, *self.command_line()]
        self._started = time.monotonic()
        with self.stderr_path.open("wb") as err:
            self._proc = subprocess.Popen(
                cmd,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                start_new_session=True,
                env=self.env,
            )
        self._qmp = self._connect_qmp()
        self._shell = self._connect("shell")

    def _connect(self, name: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(self._dir / name))
        except OSError:
            sock.close()
            raise
        return sock

    def _connect_qmp(self) -> Qmp:
        deadline = time.monotonic() + 30
        while True:
            try:
                return Qmp(self._connect("qmp"))
            except OSError:
                if not self.running():
                    raise GuestGone(f"QEMU did not start: {self.stderr_tail()}") from None
                if time.monotonic() > deadline:
                    raise GuestError(f"no QMP after 30 s: {self.stderr_tail()}") from None
                time.sleep(0.05)

    def running(self) -> bool:
        return self._proc is not None and self._proc.poll() is None

    def wait_exit(self, timeout: float) -> int:
        """Wait until QEMU ends by itself; its (or its wrapper's) status."""
        assert self._proc is not None
        try:
            return self._proc.wait(timeout)
        except subprocess.TimeoutExpired:
            raise GuestError(f"QEMU still runs after {timeout:.0f} s") from None

    def close(self) -> None:
        """End QEMU, whatever state it is in, and drop the temporary files."""
        try:
            if self.running():
                self._end()
        finally:
            if self._qmp is not None:
                self._qmp.close()
            if self._shell is not None:
                self._shell.close()
            if self.keep is not None and self._dir.exists():
                self.keep.mkdir(parents=True, exist_ok=True)
                for log in (self.console_path, self.stderr_path):
                    if log.exists():
                        shutil.copy(log, self.keep / log.name)
            shutil.rmtree(self._dir, ignore_errors=True)

    def _end(self) -> None:
        assert self._proc is not None
        if self._qmp is not None:
            self._qmp._sock.settimeout(3)
            with contextlib.suppress(GuestError, OSError, ValueError):
                self._qmp.command("quit")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._proc.wait(10)
        self._kill()

    def _kill(self) -> None:
        assert self._proc is not None
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.running():
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._proc.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._proc.wait(5)
        # A wrapper may have ended and left QEMU: it is ours, end it too.
        with contextlib.suppress(GuestGone, ProcessLookupError):
            if Path(f"/proc/{self.pid}/comm").read_text().startswith("qemu-system"):
                os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._proc.wait(5)

    # -- the shell --------------------------------------------------------

    def _read_shell(self, timeout: float) -> bytes:
        assert self._shell is not None
        ready, _, _ = select.select([self._shell], [], [], timeout)
        if not ready:
            return b""
        data = self._shell.recv(65536)
        if not data:
            raise self._gone()
        return data

    def _send(self, text: str) -> None:
        assert self._shell is not None
        if len(text) > 3500:  # the guest's tty takes 4095 in a line
            raise ValueError("command too long for the serial line; put it into the payload")
        self._shell.sendall(text.encode())

    def _gone(self) -> GuestGone:
        assert self._proc is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._proc.wait(5)
        return GuestGone(
            f"QEMU ended with status {self._proc.returncode}: {self.stderr_tail()}; "
            f"the guest's console: {self.console_tail()}",
            self.accel.name == "tcg" and ghost_breakpoint(self.kernel_log()),
        )

    def vm_state(self) -> str:
        assert self._qmp is not None
        return str(self._qmp.command("query-status")["status"])

    def _check_alive(self) -> None:
        if not self.running():
            raise self._gone()
        try:
            state = self.vm_state()
        except GuestGone:
            raise self._gone() from None
        if state in ("internal-error", "guest-panicked", "shutdown", "io-error"):
            raise GuestGone(f"the guest is in state {state}: {self.stderr_tail()}")

    def wait_shell(self, timeout: float = 180.0) -> None:
        """Wait for the guest's shell and unpack the payload in it."""
        deadline = time.monotonic() + timeout
        seen = b""
        while not seen.rstrip().endswith(b"#"):
            seen = (seen + self._read_shell(1.0))[-4096:]
            self._check_alive()
            if time.monotonic() > deadline:
                raise GuestError(f"no shell after {timeout:.0f} s; console: {self.console_tail()}")
        self._send("stty -echo -onlcr; exec env TERM=dumb PS1= PS2= ENV= /bin/sh\n")
        self._send("printf 'U%s\\n' P\n")  # its echo must not look like its output
        while b"UP\n" not in seen:
            seen = (seen + self._read_shell(1.0))[-4096:]
            if time.monotonic() > deadline:
                raise GuestError(f"the shell does not answer: {seen[-200:]!r}")
        self.boot_seconds = time.monotonic() - self._started
        # The shell is there before udev has loaded every driver.
        self.must("until [ -e /dev/vdb ]; do sleep 0.1; done", 60)
        self._send("mkdir -p /run/work; cd /run/work\n")  # sh() runs subshells
        self.must("tar xf /dev/vdb", 60)

    def sh(self, command: str, timeout: float, on_line: Callable[[str], None] | None = None) -> Ran:
        """Run a command in the guest; its output comes line by line."""
        self._turn += 1
        end = f"=={self._turn}=="
        start = time.monotonic()
        self._send(f"({command}) </dev/null 2>&1; printf '\\n%s %s\\n' {end} $?\n")
        lines: list[str] = []
        alive_check = start + 2
        while True:
            while b"\n" in self._pending:
                raw, _, self._pending = self._pending.partition(b"\n")
                line = raw.decode(errors="replace").rstrip("\r")
                if line.startswith(end + " "):
                    text = "\n".join(lines).strip("\n")
                    return Ran(command, int(line.split()[1]), text, time.monotonic() - start)
                lines.append(line)
                if on_line is not None and line:
                    on_line(line)
            now = time.monotonic()
            if now > start + timeout:
                raise GuestError(
                    f"not done after {timeout:.0f} s: {command!r}; said {lines[-3:]}; "
                    f"VM state {self.vm_state()}; {self.stderr_tail(3)}"
                )
            if now > alive_check:
                self._check_alive()
                alive_check = now + 2
            self._pending += self._read_shell(1.0)

    def must(self, command: str, timeout: float) -> str:
        ran = self.sh(command, timeout)
        if ran.status:
            raise GuestError(f"{command!r} ended with {ran.status}: {ran.output[-500:]}")
        return ran.output

    # -- what it says -----------------------------------------------------

    def pause(self) -> None:
        assert self._qmp is not None
        self._qmp.command("stop")

    def resume(self) -> None:
        assert self._qmp is not None
        self._qmp.command("cont")

    def kernel_log(self) -> str:
        try:
            return self.console_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def complaints(self) -> list[str]:
        return find_complaints(self.kernel_log())

    def console_tail(self, lines: int = 5) -> str:
        return " / ".join(self.kernel_log().splitlines()[-lines:])

    def stderr_text(self) -> str:
        try:
            return self.stderr_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def stderr_tail(self, lines: int = 8) -> str:
        return " / ".join(self.stderr_text().splitlines()[-lines:]) or "(it said nothing)"


# -- which accelerator ----------------------------------------------------


def _probe_kvm(image: Image) -> Accel:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accel("tcg", "/dev/kvm is not there or not ours to use")
    try:
        with Guest(image, Accel("kvm", "probe"), ram_mib=512) as guest:
            guest.wait_shell(30)
            guest.must("uname -r", 10)
            return Accel("kvm", f"a probe guest booted in {guest.boot_seconds:.0f} s")
    except GuestError as err:
        return Accel("tcg", f"/dev/kvm opens, but a probe guest died or hung: {err}"[:300])


def choose_accel(image: Image) -> Accel:
    """KVM where a stock guest really boots under it, TCG elsewhere.

    That /dev/kvm opens proves little (nested and paravirtual hosts offer one
    in which a stock guest dies), so a guest is booted. The verdict holds
    until the host reboots.
    """
    forced = os.environ.get("DCM_ACCEL")
    if forced in ("kvm", "tcg"):
        return Accel(forced, "DCM_ACCEL says so")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = cache_root() / f"accel-{boot_id}.json"
    try:
        return Accel(**json.loads(verdict.read_text()))
    except (OSError, ValueError, TypeError):
        pass
    accel = _probe_kvm(image)
    verdict.parent.mkdir(parents=True, exist_ok=True)
    for old in verdict.parent.glob("accel-*.json"):
        old.unlink(missing_ok=True)
    fresh = verdict.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({"name": accel.name, "why": accel.why}))
    fresh.rename(verdict)
    return accel
