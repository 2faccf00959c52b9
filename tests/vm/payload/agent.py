# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in L1 and does what bed.py asks for through a virtio-serial port.

Both ways: a line of JSON, in it "n", the number of bytes that follow raw. Every
request has an id that its answer bears; each has a thread of its own, so a
command that hangs holds up no other. A stream (a socket in here, seen out there)
is a request whose answers go on.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WORK = Path("/run/bed/jobs")
OUTPUT_MAX = 32 << 20
POWER_OFF = 0x4321FEDC
KVM_CREATE_VM = 0xAE01
Head = dict[str, Any]
Reply = tuple[Head, bytes]


def connected(to: str) -> socket.socket:
    """A connection to a UNIX socket, which begins with a slash, or to ADDRESS:PORT."""
    if not to.startswith("/"):
        address, _, port = to.rpartition(":")
        return socket.create_connection((address, int(port)), 20)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(to)
    return sock


def find_port() -> Path:
    while True:
        for port in Path("/sys/class/virtio-ports").glob("*"):
            if (port / "name").read_text().strip() == "bed":
                return Path("/dev") / port.name
        time.sleep(0.05)


class Job:
    """One command: a session of its own, its output in files.

    Files, not pipes: a process left in the background would hold a pipe open.
    """

    def __init__(self, number: int, command: str | list[str], stdin: bytes) -> None:
        self.out, self.err = WORK / f"{number}.out", WORK / f"{number}.err"
        given = WORK / f"{number}.in"
        given.write_bytes(stdin)
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        with given.open("rb") as i, self.out.open("wb") as o, self.err.open("wb") as e:
            self.process = subprocess.Popen(
                argv, stdin=i, stdout=o, stderr=e, cwd="/tmp", start_new_session=True
            )
        given.unlink()
        # The agent is spared when memory runs out; what it starts is not.
        try:
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("0")
        except OSError:
            pass

    def wait(self, timeout: float) -> int | None:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        """To all of the session, also when its first process has ended."""
        try:
            # At once, so that none slips through by forking.
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass
        for pid in self.members():
            try:
                if os.getpgid(pid) != self.process.pid:
                    os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        deadline = time.monotonic() + 5
        while (self.wait(0) is None or self.members()) and time.monotonic() < deadline:
            self.signal(signal.SIGKILL)
            time.sleep(0.02)

    def members(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue
            if entry.name.isdigit() and int(words[3]) == self.process.pid and words[0] not in "ZX":
                found.append(int(entry.name))
        return found

    def stacks(self) -> str:
        """Where in the kernel its processes are."""
        said = []
        for pid in self.members():
            for file in ("comm", "syscall", "stack"):
                try:
                    said.append((Path("/proc") / str(pid) / file).read_text())
                except OSError as err:
                    said.append(f"{err}\n")
        return "".join(said)

    def output(self) -> tuple[bytes, bytes]:
        parts = []
        for path in (self.out, self.err):
            with path.open("rb") as file:
                parts.append(file.read(OUTPUT_MAX))
        return parts[0], parts[1]

    def forget(self) -> None:
        self.out.unlink(missing_ok=True)
        self.err.unlink(missing_ok=True)


class Agent:
    def __init__(self, port: Path) -> None:
        self.fd = os.open(port, os.O_RDWR)
        self.lock = threading.Lock()
        self.jobs: dict[int, Job] = {}
        self.streams: dict[int, queue.SimpleQueue[bytes]] = {}
        self.vm = -1

    def send(self, head: Head, body: bytes = b"") -> None:
        head["n"] = len(body)
        data = memoryview(json.dumps(head).encode() + b"\n" + body)
        with self.lock:
            while data:
                data = data[os.write(self.fd, data[:65536]) :]

    def serve(self) -> None:
        uptime = Path("/proc/uptime").read_text().split()[0]
        self.send({"id": 0, "kernel": os.uname().release, "uptime": float(uptime)})
        WORK.mkdir(parents=True, exist_ok=True)
        with open(self.fd, "rb", closefd=False) as port:
            while line := port.readline():
                head = json.loads(line)
                body = port.read(head["n"])
                if head["do"] == "data":
                    if head["id"] in self.streams:
                        self.streams[head["id"]].put(body)
                    continue
                threading.Thread(target=self.answer, args=(head, body), daemon=True).start()

    def answer(self, head: dict[str, Any], body: bytes) -> None:
        number = head["id"]
        try:
            reply, data = getattr(self, "do_" + head["do"])(number, head, body)
        except Exception as err:
            reply, data = {"error": f"{type(err).__name__}: {err}"}, b""
        self.send({"id": number, **reply}, data)

    # Each gets the request's number, head and body.

    def do_run(self, number: int, head: Head, body: bytes) -> Reply:
        job = Job(number, head["cmd"], body)
        status = job.wait(head["timeout"])
        reply: Head = {}
        if status is None:
            reply["were"] = job.stacks()
            job.kill()
            reply["stuck"] = job.stacks()
        out, err = job.output()
        job.forget()
        return {**reply, "status": status, "out": len(out)}, out + err

    def do_spawn(self, number: int, head: Head, body: bytes) -> Reply:
        self.jobs[number] = Job(number, head["cmd"], body)
        return {"pid": self.jobs[number].process.pid}, b""

    def do_wait(self, number: int, head: Head, body: bytes) -> Reply:
        return {"status": self.jobs[head["job"]].wait(head["timeout"])}, b""

    def do_signal(self, number: int, head: Head, body: bytes) -> Reply:
        self.jobs[head["job"]].signal(head["signal"])
        return {}, b""

    def do_kill(self, number: int, head: Head, body: bytes) -> Reply:
        self.jobs[head["job"]].kill()
        return {}, b""

    def do_output(self, number: int, head: Head, body: bytes) -> Reply:
        out, err = self.jobs[head["job"]].output()
        return {"out": len(out)}, out + err

    def do_left(self, number: int, head: Head, body: bytes) -> Reply:
        """End all that was spawned, say what still ran, and forget it."""
        left = {}
        for job in self.jobs.values():
            if job.members():
                left[str(job.process.args)] = job.stacks()
                job.kill()
            job.forget()
        self.jobs.clear()
        return {"left": left}, b""

    def do_put(self, number: int, head: Head, body: bytes) -> Reply:
        path = Path(head["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        path.chmod(head["mode"])
        return {}, b""

    def do_get(self, number: int, head: Head, body: bytes) -> Reply:
        return {}, Path(head["path"]).read_bytes()

    def do_stream(self, number: int, head: Head, body: bytes) -> Reply:
        """Connect; "end" in an answer is its end."""
        with connected(head["path"]) as sock:
            self.streams[number] = queue.SimpleQueue()
            self.send({"id": number, "open": True})
            threading.Thread(target=self.feed, args=(number, sock), daemon=True).start()
            try:
                while data := sock.recv(65536):
                    self.send({"id": number}, data)
            except OSError:
                pass
            self.streams[number].put(b"")
        return {"end": True}, b""

    def feed(self, number: int, sock: socket.socket) -> None:
        """Write the data that came for a stream to its socket; empty data ends the stream."""
        try:
            while data := self.streams[number].get():
                sock.sendall(data)
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        del self.streams[number]

    def do_kvm(self, number: int, head: Head, body: bytes) -> Reply:
        """Load KVM while only one processor is on, and keep a VM, so that no other is the first.

        The kernel patches its scheduler when the first VM starts and when the last one ends.
        While it patches there is a breakpoint instruction in the code, and another emulated
        processor may translate it and keep the translation.
        """
        if self.vm < 0:
            others = list(Path("/sys/devices/system/cpu").glob("cpu[1-9]*/online"))
            for cpu in others:
                cpu.write_text("0")
            if not Path("/sys/module/kvm_amd").exists():
                subprocess.run(["modprobe", "kvm_amd"], check=True)
            with open("/dev/kvm", "rb") as kvm:
                self.vm = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
            for cpu in others:
                cpu.write_text("1")
        return {}, b""

    def do_kmsg(self, number: int, head: Head, body: bytes) -> Reply:
        with open("/dev/kmsg", "wb", buffering=0) as log:
            log.write(body)
        return {}, b""

    def do_off(self, number: int, head: Head, body: bytes) -> Reply:
        # A command that was started before and hangs ends now.
        for job in list(self.jobs.values()):
            job.kill()
        self.send({"id": number})
        os.sync()
        ctypes.CDLL(None).reboot(POWER_OFF)
        return {"error": "still on"}, b""


def main() -> None:
    Path("/proc/self/oom_score_adj").write_text("-1000")
    # As systemd gives services; the kernel's own hard limit, 4096, is too low for a donor.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 524288))
    Agent(find_port()).serve()


if __name__ == "__main__":
    main()
    sys.exit(0)
