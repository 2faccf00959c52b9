# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl run`: start a program under libdcm, wait for its end, remove its files.

dcmctl remains as the parent, in the process group and session of the program, so that job control
and the terminal's signals work as usual. It passes the signals that it gets on to the program, and
ends with the program's exit status, or by the signal that killed the program. It takes all signals
synchronously by sigwaitinfo(), so that none can end it before the files are removed. If dcmctl
itself is killed (SIGKILL), the kernel sends SIGTERM to the program, and the next dcmctl that lists
VMs removes the files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from dcmctl.lib import keyfile
from dcmctl.lib.address import NAME
from dcmctl.lib.errors import DcmError, UsageError, reason
from dcmctl.lib.units import format_size
from dcmctl.pager import preflight, qemu, vmsock
from dcmctl.pager.settings import QEMU_EXTRA, Settings

_PASSED_ON = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGWINCH,
    }
)
_WAITED = _PASSED_ON | {signal.SIGCHLD}
# libdcm pages mappings of at least this size. Allocators map 1 MiB (Python, tcmalloc) or 2 MiB
# (jemalloc) at a time, so with libdcm's default of 16 MiB most programs would not be paged at all.
_PROGRAM_THRESHOLD = 1 << 20
_ALLOCATORS = ("libtcmalloc", "libjemalloc", "libmimalloc")  # one that is preloaded already stays
_SI_KERNEL = 0x80  # the terminal sent it, to the program too
_PR_SET_PDEATHSIG = 1


def warn(message: str) -> None:
    print(f"dcmctl: warning: {message}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Plan:
    """The decisions of `dcmctl run`, all of them made before the program is started."""

    settings: Settings
    name: str
    program: Path
    argv: list[str]
    memory: int | None
    preload: list[str]
    conf: Path
    socket: Path

    def environment(self) -> dict[str, str]:
        """The variables that are added to the program's environment."""
        return environment(self.conf, self.preload)


def environment(conf: Path, preload: list[str]) -> dict[str, str]:
    """The variables with which libdcm pages a program as configured in the file `conf`."""
    return {
        "DCM_CONFIG": str(conf),
        "DCM_RUNTIME_DIR": str(conf.parent.parent),
        "LD_PRELOAD": ":".join(preload),
        # With lazy binding, a fault thread would walk the loader's lists. If these are in paged
        # memory, it would wait for itself.
        "LD_BIND_NOW": "1",
        # tcmalloc takes memory by sbrk() first, which the shim can't see.
        "TCMALLOC_SKIP_SBRK": "1",
    }


# ---- deciding ----


def _default_name(argv: list[str], guest: str | None) -> str:
    for base in (guest, PurePath(argv[0]).name):
        name = re.sub(r"[^A-Za-z0-9._-]", "-", base or "").lstrip("._-")[:48]
        if NAME.fullmatch(name):
            return name if base is guest else f"{name}-{os.getpid()}"
    return f"vm-{os.getpid()}"


def _preload(mode: str, malloc: str) -> list[str]:
    """The parts of the new LD_PRELOAD: the shim, an allocator, then the inherited parts."""
    inherited = [p for p in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if p]
    shim = str(preflight.find_preload())
    parts = [shim]
    there = any(PurePath(p).name.startswith(_ALLOCATORS) for p in inherited)
    if mode == "program" and malloc != "own" and not there:
        parts.append(str(preflight.find_allocator(None if malloc == "auto" else malloc)))
    return parts + [p for p in inherited if p != shim]


def plan(settings: Settings, argv: list[str], malloc: str, report: bool = True) -> Plan:
    """Make the decisions; do those checks that need neither permission nor network.

    `report`: whether QEMU's guest should report memory that it has freed.
    """
    settings.check()
    assert settings.keys is not None and settings.budget is not None
    program = preflight.find_program(argv[0])
    mode = settings.mode or ("qemu" if qemu.is_qemu(argv[0]) else "program")
    guest: str | None = None
    memory = settings.size
    if mode == "qemu":
        found = qemu.inspect(argv[1:])
        if found.problems:
            for problem in found.problems[:-1]:
                print(f"dcmctl: {problem}", file=sys.stderr)
            raise UsageError(found.problems[-1])
        for warning in found.warnings:
            warn(warning)
        guest = found.name
        if settings.size is None:
            if found.ram is None:
                raise UsageError(
                    "QEMU's -m is missing and may be in its -readconfig file: give the size with "
                    "--size"
                )
            settings = replace(settings, size=found.ram + QEMU_EXTRA)
        memory = found.ram or memory
        if report:
            argv, why = qemu.report_free_pages(argv, found)
            if why is not None:
                warn(f"memory that the guest frees goes to donors as if it were in use: {why}")
    elif settings.threshold is None:
        settings = replace(settings, threshold=_PROGRAM_THRESHOLD)
    preflight.check_preloadable(program)
    assert settings.budget is not None
    if memory is not None and settings.budget >= memory:
        warn(
            f"the budget ({format_size(settings.budget)}) is not less than the memory "
            f"({format_size(memory)}), so donors will not be used: give a smaller --budget"
        )
    assert settings.keys is not None
    name = settings.name or _default_name(argv, guest)
    settings = replace(
        settings,
        name=name,
        mode=mode,
        tenant=keyfile.pick_tenant(settings.keys, settings.tenant),
    )
    directory = vmsock.runtime_dir() / "vm"
    made = Plan(
        settings=settings,
        name=name,
        program=program,
        argv=argv,
        memory=memory,
        preload=_preload(mode, malloc),
        conf=directory / f"{name}.conf",
        socket=vmsock.socket_path(directory, name),
    )
    settings.to_ini()  # refuses values that are too long
    return made


def check_machine(made: Plan) -> None:
    """Check that userfaultfd works, and that donors answer."""
    preflight.check_userfaultfd()
    donors = made.settings.donors
    answers = preflight.probe(donors)
    for donor in donors:
        why = answers[donor.name]
        if why is not None:
            warn(f"donor {donor.name} ({donor.address}) does not answer: {why}")
    if all(answers.values()):
        raise DcmError("no donor answers: start dcm-donord on them, or correct their addresses")


# ---- running ----


def _claim(made: Plan) -> int:
    """Lock and write the configuration; the returned descriptor holds the lock."""
    vmsock.make_vm_dir()
    try:
        fd = vmsock.lock_conf(made.conf)
    except OSError as exc:
        raise DcmError(f"cannot write {made.conf}: {reason(exc)}") from None
    if fd is None:
        raise DcmError(f"a VM called '{made.name}' is running already: choose another --name")
    try:
        if vmsock.listening(made.socket):
            raise DcmError(f"a VM called '{made.name}' is running already: choose another --name")
        made.socket.unlink(missing_ok=True)
        os.ftruncate(fd, 0)
        with os.fdopen(os.dup(fd), "w", encoding="utf-8") as file:
            file.write(made.settings.to_ini())
    except BaseException as exc:
        with contextlib.suppress(OSError):
            made.conf.unlink(missing_ok=True)
        os.close(fd)
        if isinstance(exc, OSError):
            raise DcmError(f"cannot write {made.conf}: {reason(exc)}") from None
        raise
    return fd


def _release(made: Plan, fd: int) -> None:
    with contextlib.suppress(OSError):
        if not vmsock.listening(made.socket):
            made.socket.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        made.conf.unlink(missing_ok=True)
    os.close(fd)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Pass signals on until the program has ended; return its Popen.returncode."""
    while True:
        info = signal.sigwaitinfo(_WAITED)
        if info.si_signo == signal.SIGCHLD:
            status = child.poll()
            if status is not None:
                return status
        elif info.si_code != _SI_KERNEL:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(info.si_signo)


def _die_of(number: int) -> int:
    """End by the signal that killed the program, so that dcmctl's parent sees it; dump no core."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number  # this signal does not end dcmctl


def inherited() -> dict[str, str]:
    """dcmctl's environment without DCM_PAGER_PID. dcmctl may run under libdcm itself; with that
    variable, libdcm would take the program for a child of dcmctl, and not page it."""
    return {k: v for k, v in os.environ.items() if k != "DCM_PAGER_PID"}


def execute(made: Plan, verbose: bool) -> int:
    """Run the program to its end; return its exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    # If dcmctl's parent ignores SIGCHLD, dcmctl has inherited that, and would never get one.
    chld = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def in_child() -> None:
        signal.signal(signal.SIGCHLD, chld)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        lock = _claim(made)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    try:
        if verbose:
            _announce(made)
        try:
            child = subprocess.Popen(
                made.argv,
                executable=made.program,
                env={**inherited(), **made.environment()},
                preexec_fn=in_child,  # noqa: PLW1509 - no other thread runs now
            )
        except OSError as exc:
            raise DcmError(f"cannot start {made.program}: {reason(exc)}", 126) from None
        status = _wait(child)
    finally:
        _release(made, lock)
    for number in _PASSED_ON:  # drop signals that came after the program's end
        signal.signal(number, signal.SIG_IGN)
    return _die_of(-status) if status < 0 else status


def _announce(made: Plan) -> None:
    s = made.settings
    size = "" if made.memory is None else f" of {format_size(made.memory)}"
    donors = ", ".join(f"{d.name} ({d.address})" for d in s.donors)
    print(
        f"dcmctl: VM {made.name}: at most {format_size(s.budget or 0)}{size} on this host, "
        f"the rest on {donors}; see dcmctl status {made.name}",
        file=sys.stderr,
        flush=True,
    )
