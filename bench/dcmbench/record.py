# SPDX-License-Identifier: GPL-2.0-or-later
"""Page traces of real programs and of a whole guest: recorded once, kept in the cache.

A program is recorded by a tool of Valgrind's (pagetrace.c), with the allocator that dcmctl preloads
for it, so its memory lies as it does under the pager. The guest is a stock Debian in an emulated
machine, recorded by a plugin of QEMU's (guesttrace.c) from its first instruction on, while programs
of Debian's work in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from dcmbench import inputs, programs
from dcmbench.context import Context
from dcmbench.host import BenchError
from tests.guest import vmharness, workload

RECORDS_MAX = 150_000_000  # at this length a program is ended, and a guest's trace is cut
RECORD_S = 1200.0
GUEST = "guest"
GUEST_MIB = 512
GUEST_JOBS = (workload.redis(40_000), workload.sort(1_200_000), workload.sqlite(), workload.xz(4))
TINY_JOBS = (workload.redis(1_000),)
HERE = Path(__file__).resolve().parent.parent


def _tool(ctx: Context) -> tuple[list[str], dict[str, str]]:
    """The command for Valgrind with our tool, without the trace's path; and its environment."""
    folder = ctx.build / "bench" / "valgrind"
    if not (folder / "pagetrace-amd64-linux").exists():
        raise BenchError("pagetrace is not built: make -C bench (needs the valgrind package)")
    tool = ["valgrind", "-q", "--tool=pagetrace", f"--records={RECORDS_MAX}"]
    return tool, {"VALGRIND_LIB": os.fspath(folder)}


def _program(ctx: Context, app: programs.App, folder: Path, size: inputs.Size, out: Path) -> None:
    """Record a program. For a server, the load is another program, and not recorded."""
    tool, where = _tool(ctx)
    try:
        programs.run(
            ctx,
            app,
            folder,
            size,
            prefix=[*tool, f"--out={out}"],
            env=programs.environment(ctx, programs.preloaded(app)) | where,
            timeout=RECORD_S,
            cgroup=None,
        )
    except BenchError as e:
        raise BenchError(f"recording {app.name}: {e}") from e


def _guest(ctx: Context, image: vmharness.Image, jobs: Sequence[workload.Job], out: Path) -> None:
    """Record the guest, with one CPU, as the plugin has no locks."""
    plugin = ctx.program("guesttrace.so")
    with vmharness.Guest(
        image,
        vmharness.Accel("tcg", "the plugin needs it"),
        ram_mib=GUEST_MIB,
        cpus=1,
        payload=workload.PAYLOAD,
        extra=["-plugin", f"{plugin},out={out},records={RECORDS_MAX}"],
    ) as guest:
        try:
            guest.wait_shell(RECORD_S)
            for job in jobs:
                ran = guest.sh(job.command, RECORD_S)
                if wrong := f"status {ran.status}" if ran.status else job.check(ran.output):
                    raise BenchError(f"recording the guest: {job.name}: {wrong}")
                ctx.progress.say(f"policy: recording the guest: {job.name} done")
        except vmharness.GuestError as e:
            raise BenchError(f"recording the guest: {e}") from e


class Recorder:
    """Records the traces of programs and of a guest, and keeps them in the cache."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.size = inputs.SMALL if ctx.tiny else inputs.FULL
        self.jobs = TINY_JOBS if ctx.tiny else GUEST_JOBS
        self.apps = {app.name: app for app in programs.catalogue(ctx, self.size)}

    @property
    def names(self) -> list[str]:
        return [*self.apps, GUEST]

    def _path(self, name: str, *what: bytes) -> Path:
        digest = hashlib.sha256(str(RECORDS_MAX).encode())
        digest.update((HERE / "pagelog.h").read_bytes())
        for part in what:
            digest.update(part)
        return self.ctx.cache / f"bench-trace-{name}-{digest.hexdigest()[:16]}"

    def trace(self, name: str) -> Path:
        """The path of a trace, which is recorded now if it is not in the cache."""
        return self._of_guest() if name == GUEST else self._of_program(self.apps[name])

    def _of_program(self, app: programs.App) -> Path:
        folder = inputs.make(self.ctx.cache, self.size)
        binary = shutil.which(app.argv[0])
        if not binary:
            raise BenchError(f"{app.argv[0]} is missing: apt install {app.package}")
        path = self._path(
            app.name,
            folder.name.encode(),
            (HERE / "pagetrace.c").read_bytes(),
            repr((app.name, app.argv[1:])).replace(os.fspath(inputs.APPS), "").encode(),
            *(part.read_bytes() for part in sorted(inputs.APPS.iterdir())),
            Path(binary).read_bytes(),
            programs.preloaded(app).encode(),
        )
        self._record(app.name, path, lambda out: _program(self.ctx, app, folder, self.size, out))
        return path

    def _of_guest(self) -> Path:
        try:
            image = vmharness.get_image()
        except vmharness.GuestError as e:
            raise BenchError(str(e)) from e
        path = self._path(
            GUEST,
            image.folder.name.encode(),
            (HERE / "guesttrace.c").read_bytes(),
            repr((GUEST_MIB, [job.command for job in self.jobs])).encode(),
        )
        self._record(GUEST, path, lambda out: _guest(self.ctx, image, self.jobs, out))
        return path

    def _record(self, name: str, path: Path, record: Callable[[Path], None]) -> None:
        if path.exists():
            return
        self.ctx.progress.say(f"policy: recording {name} (once; kept in {self.ctx.cache})")
        temporary = path.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        record(temporary)
        temporary.rename(path)
