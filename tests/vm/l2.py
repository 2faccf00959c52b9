# SPDX-License-Identifier: GPL-2.0-or-later
"""L2: the stock Debian guest under stock QEMU and L1's real KVM.

Driven by the same harness as a guest of this host (tests/guest): its QEMU is a process in L1, its
shell and QMP are UNIX sockets there, and its logs are files there.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import tarfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from tests.guest import workload
from tests.guest.vmharness import Accel, Guest, GuestError
from tests.vm.bed import Bed
from tests.framework.emulator import QUICK
from tests.vm.job import Job

_numbers = itertools.count(1)


class L2(Guest):
    """Use it as a context manager, then wait_shell(), sh() and all that Guest has."""

    def __init__(
        self,
        bed: Bed,
        mem_path: str,
        *,
        ram_mib: int = 256,
        cpus: int = 1,
        memory: Sequence[str] = (),
        payload: Iterable[Path] = (),
        extra: Sequence[str] = (),
        keep: Path | None = None,
    ) -> None:
        """Its RAM is the file at `mem_path` in L1, mapped shared.

        `memory` has more properties of that memory backend, `extra` more of QEMU's command line;
        `keep` gets the logs.
        """
        if bed.guest_image is None:
            raise GuestError("this L1 was given no guest image: Spec(guest=True)")
        super().__init__(
            bed.guest_image,
            Accel("kvm", "L1's"),
            ram_mib=ram_mib,
            cpus=cpus,
            payload=payload,
            extra=extra,
            keep=keep,
        )
        self.bed = bed
        self.mem_path = mem_path
        self.memory = tuple(memory)
        self.far = f"/tmp/l2-{next(_numbers)}"
        self.wrong: list[str] = []  # complaints, known when it is closed
        self._job: Job | None = None

    @property
    def pid(self) -> int:
        """Of QEMU, in L1."""
        assert self._job is not None
        return self._job.pid

    def command_line(self) -> list[str]:
        far = self.far
        backend = ["memory-backend-file,id=ram", f"mem-path={self.mem_path}"]
        backend += [f"size={self.ram_mib}M", "share=on", "align=2M", *self.memory]
        cmd = ["qemu-system-x86_64", "-M", "q35,accel=kvm,memory-backend=ram", "-cpu", "host"]
        cmd += ["-smp", str(self.cpus), "-m", f"{self.ram_mib}M", "-object", ",".join(backend)]
        cmd += ["-nodefaults", "-display", "none", "-no-reboot"]
        cmd += ["-kernel", "/var/tmp/vmlinuz", "-initrd", "/var/tmp/initrd.img"]
        append = "root=/dev/vda rw console=ttyS0 panic=-1 systemd.debug_shell=ttyS1"
        # An emulated processor that shares its host's is slow, not stuck.
        append += " rcupdate.rcu_cpu_stall_timeout=60 watchdog_thresh=60"
        # Nothing starts that no test uses, and what is printed is what may be a complaint: each
        # character is an exit to QEMU.
        append += " systemd.unit=local-fs.target systemd.show_status=0 loglevel=5"
        if self.bed.spec.quick:
            append += f" {QUICK}"
        cmd += ["-append", append]
        cmd += ["-drive", "file=/run/disk/guest-root.img,format=raw,if=virtio,snapshot=on"]
        cmd += ["-drive", f"file={far}/payload.tar,format=raw,if=virtio,readonly=on"]
        cmd += ["-device", "virtio-rng-pci"]
        cmd += ["-chardev", f"file,id=console,path={far}/console.log"]
        cmd += ["-serial", "chardev:console"]
        cmd += ["-chardev", f"socket,id=shell,path={far}/shell,server=on,wait=off"]
        cmd += ["-serial", "chardev:shell"]
        cmd += ["-qmp", f"unix:{far}/qmp,server=on,wait=off"]
        return cmd + list(self.extra)

    def start(self) -> None:
        # QEMU maps its initrd, which a disk does not let it.
        for name in ("vmlinuz", "initrd.img"):
            self.bed.must(f"cd /var/tmp; [ -e {name} ] || cp /run/disk/guest-{name} {name}", 120)
        tarball = self._dir / "payload.tar"
        with tarfile.open(tarball, "w") as tar:
            for path in self.payload:
                tar.add(path, arcname=path.name)
        self.bed.put(tarball, f"{self.far}/payload.tar")
        self._started = time.monotonic()
        # TMPDIR is where the disk's changes go: not into memory.
        self._proc = self._job = self.bed.spawn(
            self.bed.with_kvm(
                ["env", "TMPDIR=/var/tmp", "sh", "-c", f'exec "$@" 2>{self.far}/qemu.log', "-"]
                + self.command_line()
            )
        )
        self._qmp = self._connect_qmp()
        self._shell = self._connect("shell")

    def _connect(self, name: str) -> socket.socket:
        return self.bed.connect(f"{self.far}/{name}")

    def _kill(self) -> None:
        assert self._job is not None
        self._job.end(5)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it; and an error when its kernel complained and nothing else was wrong."""
        self.close()
        if kind is None and self.wrong:
            raise GuestError(f"L2's kernel complains: {self.wrong[:20]}")

    def close(self) -> None:
        try:
            # Nothing of it is left to end when L1 is gone.
            with contextlib.suppress(GuestError):
                if self.running():
                    self._end()
            self.wrong = self.complaints()
            self.bed.l2_consoles.append(super().kernel_log())
            self.stderr_text()
            with contextlib.suppress(GuestError):
                self.bed.run(["rm", "-rf", self.far])
        finally:
            self._proc = None
            super().close()

    def kernel_log(self) -> str:
        self._fetch(self.console_path)
        return super().kernel_log()

    def stderr_text(self) -> str:
        self._fetch(self.stderr_path)
        return super().stderr_text()

    def _fetch(self, path: Path) -> None:
        with contextlib.suppress(GuestError, OSError):
            path.write_bytes(self.bed.get(f"{self.far}/{path.name}"))


class Work(threading.Thread):
    """Jobs one after the other in the guest, while the test does other things."""

    def __init__(self, guest: Guest, jobs: list[workload.Job]) -> None:
        super().__init__(daemon=True)
        self.guest = guest
        self.jobs = jobs
        self.wrong: list[str] = []

    def run(self) -> None:
        for job in self.jobs:
            try:
                ran = self.guest.sh(job.command, job.timeout)
            except (GuestError, OSError) as err:
                self.wrong.append(f"{job.name}: {err}")
                return
            if ran.status or job.check(ran.output):
                self.wrong.append(f"{job.name}: {ran.status} {ran.output[-500:]}")
            print(f"{job.name}: done ({ran.seconds:.0f} s)", flush=True)
