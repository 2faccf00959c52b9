# SPDX-License-Identifier: GPL-2.0-or-later
"""The nested test bed: L1, a Debian 13 of ours, under an emulated processor that has SVM.

L1 runs Debian's own kernel, real kvm_amd included, so kernel modules, RDMA (rxe) and stock guests
under real KVM (L2, see l2.py) can be tested where the host has no KVM and loads no module. The
image is scripts/vm-image's and is never written. Its kernel writes to a serial port that goes to
a file, which is what is judged: it is there however L1 ends. Commands go through an agent.

Whatever is started is ended: by close(), when an exception passes, and by the kernel (a parent
death signal) should this process be killed.

As a program: `scripts/py python -m tests.vm.bed --shell` is a shell in L1.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.guest.vmharness import (
    TOP,
    GuestError,
    GuestGone,
    Image,
    Machine,
    Qmp,
    find_complaints,
    get_image,
)
from tests.vm.channel import Channel
from tests.framework.emulator import (
    FIRST_KVM_CPU,
    QUICK,
    QUICK_WITHOUT,
    WITHOUT,
    crashed_by_itself,
    stopped_timer,
    wrong_clock,
)
from tests.framework.orphan import no_orphan
from tests.vm.job import Command, CommandTimeout, Job, Ran

PAYLOAD = Path(__file__).resolve().parent / "payload"
# Bits of /proc/sys/kernel/tainted that tell of something that went wrong.
TAINTS = {4: "machine check", 5: "bad page", 7: "oops", 9: "warning", 14: "soft lockup"}


@dataclass(frozen=True)
class Spec:
    """The size and the kind of an L1."""

    memory_mib: int = 1536
    cpus: int = 2
    kvm: bool = True  # SVM, so that L1's KVM works; without it the processor is cheaper
    guest: bool = True  # the stock guest's kernel, initrd and disk are there, for L2
    append: str = ""  # to the kernel's command line
    kernel: Path | None = None  # another one, with all that a test needs built in
    extra: tuple[str, ...] = ()  # to QEMU's command line
    quick: bool = True  # spares the emulated processor work: emulator.py
    patience: int = 1  # times the limits that run() and must() are given; others grow with it


def vm_image() -> Image:
    """L1's image; made now when it is not in the cache (a minute or two)."""
    done = subprocess.run(
        [str(TOP / "scripts" / "vm-image")], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise GuestError("scripts/vm-image failed; its message is above")
    folder = Path(done.stdout.strip())
    return Image(folder, json.loads((folder / "manifest.json").read_text()))


class Bed(Machine):
    """One L1."""

    def __init__(self, spec: Spec | None = None, *, keep: Path | None = None) -> None:
        """The logs are in `keep`, from the start: a run that is killed has them too."""
        self.spec = spec or Spec()
        self.keep = keep
        self.image = vm_image()
        self.guest_image = get_image() if self.spec.guest else None
        self.boot_seconds = 0.0
        self._dir = Path(tempfile.mkdtemp(prefix="dcm-vm-"))
        self._proc: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._looks = itertools.count(1)
        self._judged = 0  # bytes of the console
        self._taints = 0
        self._off = False
        self._claim: int | None = None  # a descriptor of `keep`, which is locked by it
        self.l2_consoles: list[str] = []  # of those that have ended

    # -- start and end ----------------------------------------------------

    @property
    def initrd_path(self) -> Path:
        """L1's; there once it was started."""
        return self._dir / "initrd.img"

    @property
    def console_path(self) -> Path:
        return (self.keep or self._dir) / "console.log"

    @property
    def qemu_log_path(self) -> Path:
        return (self.keep or self._dir) / "qemu.log"

    @property
    def closed(self) -> bool:
        return not self._dir.exists()

    @property
    def pid(self) -> int:
        """Of QEMU, in this host."""
        assert self._proc is not None
        return self._proc.pid

    @property
    def channel(self) -> Channel:
        if self._channel is None:
            raise GuestGone("L1 is not running")
        return self._channel

    def command_line(self, shell: bool = False) -> list[str]:
        d, spec = self._dir, self.spec
        without = WITHOUT + (QUICK_WITHOUT if spec.quick else ())
        cpu = ",-".join(["max", *without] + ([] if spec.kvm else ["svm"]))
        cmd = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi,tb-size=512"]
        cmd += ["-cpu", cpu, "-smp", str(spec.cpus), "-m", f"{spec.memory_mib}M"]
        cmd += ["-nodefaults", "-display", "none", "-no-reboot"]
        cmd += ["-kernel", str(spec.kernel or self.image.folder / "vmlinuz")]
        cmd += ["-initrd", str(self.initrd_path)]
        # Against clocks that a busy host lets lag a TSC looks unstable: docs/testing.md.
        append = ["console=ttyS0 panic=-1 tsc=reliable"] + [QUICK] * spec.quick
        append += ["bed.shell"] * shell + [spec.append] * bool(spec.append)
        cmd += ["-append", " ".join(append)]
        disks = {"root": (self.image.folder / "root.img", "snapshot=on")}
        if self.guest_image is not None:
            for name in ("vmlinuz", "initrd.img", "root.img"):
                disks[f"guest-{name}"] = (self.guest_image.folder / name, "readonly=on")
        for name, (path, how) in disks.items():
            # snapshot=on: what L1 writes goes to an unlinked temporary file.
            cmd += ["-drive", f"file={path},format=raw,if=none,id={name},{how}"]
            cmd += ["-device", f"virtio-blk-pci,drive={name},serial={name}"]
        cmd += ["-device", "virtio-rng-pci"]
        cmd += ["-chardev", f"file,id=console,path={self.console_path}"]
        cmd += ["-serial", "chardev:console"]
        if shell:
            cmd += ["-chardev", "stdio,id=shell,mux=on,signal=off", "-serial", "chardev:shell"]
        cmd += ["-chardev", f"socket,id=bed,path={d}/bed,server=on,wait=off"]
        cmd += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=bed,name=bed"]
        cmd += ["-qmp", f"unix:{d}/qmp,server=on,wait=off"]
        return cmd + list(spec.extra)

    def start(self, timeout: float = 180.0, shell: bool = False) -> None:
        """Start it and wait for the agent; `shell` puts one on this terminal."""
        self.claim()
        try:
            self._boot(timeout, shell)
        except GuestError as err:
            crashed = isinstance(err, GuestGone) and self._emulator_crashed()
            if not crashed and not stopped_timer(self.console()):
                raise
            # docs/testing.md
            why = self._why_gone() if crashed else "a timer of L1 has stopped at its boot"
            print(f"bed: {why}; it boots again", file=sys.stderr)
            self._stop()
            self._boot(timeout, shell)
        if wrong_clock(self.console()):  # docs/testing.md
            print("bed: L1 took its clock for another; it boots again", file=sys.stderr)
            self._stop()
            self._boot(timeout, shell)
            if wrong_clock(self.console()):
                raise GuestError("L1's clock is wrong, twice: is this host very busy?")

    def claim(self) -> None:
        """Its logs have their folder to themselves, until it is closed."""
        if self.keep is None or self._claim is not None:
            return
        self.keep.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.keep, os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            why = f"{self.keep} has the logs of another L1, which is not closed"
            raise GuestError(why) from None
        self._claim = folder

    def _boot(self, timeout: float, shell: bool) -> None:
        self._write_initrd()
        # Dies with us even if we get no chance to end it.
        cmd = [*no_orphan("KILL"), *self.command_line(shell)]
        self.console_path.unlink(missing_ok=True)  # another L1's
        started = time.monotonic()
        with self.qemu_log_path.open("wb") as err:
            self._proc = subprocess.Popen(
                cmd,
                stdin=None if shell else subprocess.DEVNULL,
                stdout=None if shell else err,
                stderr=err,
                start_new_session=not shell,
            )
        least = 60.0 * (self.spec.patience - 1)
        self._channel = Channel(self._connect("bed"), self._why_gone, least)
        hello = self._channel.hello(timeout)
        self.boot_seconds = time.monotonic() - started
        if self.spec.kernel is None and hello["kernel"] != self.image.kernel:
            raise GuestError(f"L1 runs {hello['kernel']}, not {self.image.kernel}")

    def _emulator_crashed(self) -> bool:
        """Did QEMU die of its own fault?"""
        if self._proc is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._proc.wait(10)
        return crashed_by_itself(self._proc.returncode, self.qemu_log())

    def _write_initrd(self) -> None:
        """The image's, and after it one with what is ours; the kernel unpacks both."""
        tree = self._dir / "initrd"
        shutil.copytree(PAYLOAD, tree / "bed", ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "bed" / "init").rename(tree / "init")
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        ours = subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
            cwd=tree,
            input=f"{names}\n".encode(),
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        first = (self.image.folder / "initrd.img").read_bytes()
        self.initrd_path.write_bytes(first + ours)
        shutil.rmtree(tree)

    def _connect(self, name: str) -> socket.socket:
        deadline = time.monotonic() + 30
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(self._dir / name))
                return sock
            except OSError as err:
                sock.close()
                if not self.running():
                    raise GuestGone(self._why_gone()) from None
                if time.monotonic() > deadline:
                    raise GuestError(f"no {name} of QEMU after 30 s: {err}") from None
                time.sleep(0.05)

    def running(self) -> bool:
        return self._proc is not None and self._proc.poll() is None

    def _why_gone(self) -> str:
        if self.running():
            return ""
        status = self._proc.returncode if self._proc else None
        fresh = self._console_bytes()[self._judged :].decode(errors="replace")
        said = find_complaints(fresh)[:8] or fresh.splitlines()[-5:]
        return (
            f"L1's QEMU ended with status {status}: {self.qemu_log()[-500:]}; "
            f"console: {' / '.join(said)}"
        )

    def wait_exit(self, timeout: float) -> int:
        """Wait until QEMU ends by itself."""
        assert self._proc is not None
        return self._proc.wait(timeout)

    def power_off(self, timeout: float = 60.0) -> None:
        """As a machine is: the kernel's own power off. An error if it does not end so."""
        self.channel.ask("off", 30)
        self._off = True
        try:
            self.wait_exit(timeout)
        except subprocess.TimeoutExpired:
            raise GuestError(f"L1 is still on {timeout:.0f} s after power off") from None

    def close(self) -> None:
        """End it, whatever state it is in, and drop the temporary files."""
        try:
            if self.running():
                if self._channel is not None:
                    with contextlib.suppress(GuestError):
                        self.power_off(20)
                self._end()
        finally:
            self._hang_up()
            shutil.rmtree(self._dir, ignore_errors=True)
            if self._claim is not None:
                os.close(self._claim)
                self._claim = None

    def _stop(self) -> None:
        self._end()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _end(self) -> None:
        assert self._proc is not None
        if self.running():
            with contextlib.suppress(GuestError, OSError, ValueError):
                qmp = Qmp(self._connect("qmp"), 3)
                try:
                    qmp.command("quit")
                finally:
                    qmp.close()
                self._proc.wait(5)
        if self.running():
            self._proc.kill()
        self._proc.wait(10)

    # -- what it does -----------------------------------------------------

    def run(self, cmd: Command, timeout: float = 60, stdin: bytes = b"") -> Ran:
        """Run a command (a string is the shell's). Too slow: it is ended, CommandTimeout."""
        timeout *= self.spec.patience
        reply, data = self.channel.ask(
            "run",
            timeout + 60,
            stdin,
            cmd=cmd if isinstance(cmd, str) else list(cmd),
            timeout=timeout,
        )
        if reply["status"] is not None and "stuck" not in reply:
            return Ran.of(reply["status"], reply["out"], data)
        said = data.decode(errors="replace")[-1000:]
        stuck = f"; could not be ended: {reply['stuck']}" if reply["stuck"] else ""
        were = f"; its processes were in:\n{reply['were']}" if reply["were"] else ""
        raise CommandTimeout(
            f"{cmd!r} ended after {timeout:.0f} s; it said {said!r}{stuck}{were}"
        )

    def must(self, cmd: Command, timeout: float = 60, stdin: bytes = b"") -> str:
        """The same for what must succeed; what it printed."""
        ran = self.run(cmd, timeout, stdin)
        if ran.rc:
            raise GuestError(f"{cmd!r} ended with {ran.rc}: {(ran.stdout + ran.stderr)[-1000:]}")
        return ran.stdout

    def spawn(self, cmd: Command, stdin: bytes = b"") -> Job:
        """Start a command that goes on. It must have ended when the test has."""
        number, reply = self._spawn(cmd, stdin)
        return Job(self.channel, number, reply["pid"], cmd)

    def _spawn(self, cmd: Command, stdin: bytes) -> tuple[int, dict[str, Any]]:
        words = cmd if isinstance(cmd, str) else list(cmd)
        reply, _ = self.channel.ask("spawn", 60, stdin, cmd=words)
        return reply["id"], reply

    def put(self, source: Path | bytes, path: str, mode: int = 0o644) -> str:
        """A file of the host's, or these bytes, at that path in L1."""
        data = source if isinstance(source, bytes) else source.read_bytes()
        if isinstance(source, Path) and os.access(source, os.X_OK):
            mode |= 0o111
        self.channel.ask("put", 60 + len(data) / 100_000, data, path=path, mode=mode)
        return path

    def get(self, path: str) -> bytes:
        """A file of L1's."""
        return self.channel.ask("get", 120, path=path)[1]

    def connect(self, path: str, timeout: float = 30) -> socket.socket:
        """Connect to a UNIX socket in L1, or to ADDRESS:PORT there."""
        return self.channel.stream(path, timeout)

    def status(self, port: int) -> dict[str, Any]:
        """A donor's /status. It is asked from here: a program in L1 takes seconds to start."""
        with self.connect(f"127.0.0.1:{port}") as sock:
            sock.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            text = answer.read()
        assert answer.status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def insmod(self, module: Path, *params: str) -> str:
        """Load a module of the host's; its name in L1."""
        path = self.put(module, f"/run/bed/modules/{module.name}")
        self.must(["insmod", path, *params], 120)
        return module.stem.replace("-", "_")

    def modprobe(self, *names: str) -> None:
        """Have modules of L1's kernel; one that is not the image's has them built in."""
        if self.spec.kernel is None:
            self.must(["modprobe", "-a", *names])

    def with_kvm(self, cmd: Sequence[str]) -> list[str]:
        """The command, kept to the processors that KVM may run on."""
        last = self.spec.cpus - 1
        assert self.spec.kvm and last >= FIRST_KVM_CPU, "no KVM here: Spec(kvm=True, cpus=3)"
        self.channel.ask("kvm", 120)
        return ["taskset", "-c", f"{FIRST_KVM_CPU}-{last}", *cmd]

    def rmmod(self, name: str) -> None:
        self.must(["rmmod", name], 120)

    def dmesg(self) -> str:
        """The kernel's log, debug messages included, as far as it is kept."""
        return self.must(["dmesg"])

    # -- what it says -----------------------------------------------------

    def console(self) -> str:
        """All the kernel has said on its console, from the start."""
        return self._console_bytes().decode(errors="replace")

    def _console_bytes(self) -> bytes:
        try:
            return self.console_path.read_bytes()
        except FileNotFoundError:
            return b""

    def qemu_log(self) -> str:
        try:
            return self.qemu_log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def mark(self, text: str, timeout: float = 30) -> None:
        """A line in the kernel's log; back when it and all before it are in the file."""
        line = f"bed: {next(self._looks)}: {text}".encode()
        # Without a newline the kernel would wait for more of it.
        self.channel.ask("kmsg", timeout, b"<5>" + line + b"\n")
        deadline = time.monotonic() + timeout
        while line not in self._console_bytes()[self._judged :]:
            if time.monotonic() > deadline:
                raise GuestError(f"the console did not show a message in {timeout:.0f} s")
            time.sleep(0.05)

    def complaints(self, text: str = "looked at") -> list[str]:
        """Complaints since the last call: lines of the kernel's log, taints, things left behind.

        Also says why, when L1 is gone or does not answer.
        """
        wrong: list[str] = []
        try:
            if not self._off:
                wrong += self._ask_complaints(text)
        except GuestError as err:
            wrong.append(str(err))
        data = self._console_bytes()
        fresh_text = data[self._judged :].decode(errors="replace")
        self._judged = len(data)
        return find_complaints(fresh_text) + wrong

    def _ask_complaints(self, text: str) -> list[str]:
        reply, _ = self.channel.ask("left", 60)
        wrong = [f"left running in L1: {cmd} {why}" for cmd, why in reply["left"].items()]
        taints = int(self.get("/proc/sys/kernel/tainted"))
        fresh, self._taints = taints & ~self._taints, taints
        wrong += [f"the kernel is tainted: {t}" for b, t in TAINTS.items() if fresh >> b & 1]
        self.mark(text)
        return wrong

    def finish(self) -> list[str]:
        """The last look: also at how it powers off."""
        wrong = self.complaints("the end")
        if not self._off:
            try:
                self.power_off()
            except GuestError as err:
                wrong.append(str(err))
        return wrong + self.complaints()

    @contextmanager
    def provoked(self) -> Iterator[list[str]]:
        """The kernel's complaints in this context are expected, and are in the list afterwards."""
        before = self.complaints("begin of what is provoked")
        if before:
            raise GuestError(f"complaints before anything was provoked: {before}")
        found: list[str] = []
        try:
            yield found
        finally:
            found += self.complaints("end of what was provoked")


def _program() -> int:
    parser = argparse.ArgumentParser(
        prog="bed.py", description="Boot an L1 and run commands in it, or a shell."
    )
    parser.add_argument("--shell", action="store_true", help="a shell on this terminal")
    parser.add_argument("--memory", type=int, default=Spec.memory_mib, metavar="MIB")
    parser.add_argument("--cpus", type=int, default=Spec.cpus)
    parser.add_argument("--append", default="", help="to the kernel's command line")
    parser.add_argument("--no-kvm", action="store_true", help="a processor without SVM")
    parser.add_argument(
        "--put", action="append", default=[], type=Path, metavar="FILE", help="into L1's /tmp"
    )
    parser.add_argument("command", nargs="*", help="run in L1's shell")
    args = parser.parse_args()
    if args.shell == bool(args.command):
        parser.error("either --shell or a command")
    spec = Spec(args.memory, args.cpus, kvm=not args.no_kvm, append=args.append)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bed = Bed(spec)
    try:
        print("bed: booting L1", file=sys.stderr)
        bed.start(shell=args.shell)
        print(f"bed: L1 is up after {bed.boot_seconds:.0f} s", file=sys.stderr)
        for path in args.put:
            bed.put(path, f"/tmp/{path.name}")
        if args.shell:
            print("bed: exit ends it, or ctrl-a x\r\n", file=sys.stderr)
            return bed.wait_exit(1e6)
        ran = bed.run(args.command[0] if len(args.command) == 1 else shlex.join(args.command), 600)
        sys.stdout.write(ran.stdout)
        sys.stderr.write(ran.stderr)
        wrong = bed.finish()
        for line in wrong:
            print(f"bed: {line}", file=sys.stderr)
        return ran.rc or bool(wrong)
    except GuestError as err:
        print(f"bed: {err}", file=sys.stderr)
        return 1
    finally:
        bed.close()


if __name__ == "__main__":
    sys.exit(_program())
