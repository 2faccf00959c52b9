# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcmctl run` apart from the paging: checks, configuration, signals, statuses.

The library preloaded here is an empty one and the donor a bare listening
socket, so that these tests need nothing built; test_dcmctl_e2e.py has the real
ones.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dcmctl.lib.errors import DcmError
from dcmctl.pager import preflight, settings
from tests.dcmctl.support import TOP, Cli

TIMEOUT = 30


@pytest.fixture(scope="session")
def libdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lib")
    library = path / "libdcm-preload.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "/dev/null"], check=True
    )
    return path


@pytest.fixture
def donor(runtime: Path) -> Iterator[str]:
    path = runtime / "donor.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        yield f"unix:{path}"


@pytest.fixture
def run(dcmctl: Cli, libdir: Path, donor: str, keys: Path) -> Cli:
    """A dcmctl whose `run` finds an empty library; RUN has the options that it needs."""
    dcmctl.env["DCM_LIBDIR"] = str(libdir)
    return dcmctl


@pytest.fixture
def good(donor: str, keys: Path) -> list[str]:
    return ["run", "--budget", "64M", "--donor", donor, "--keys", str(keys), "--malloc", "own"]


SHOW = (
    "import os, json; c = os.environ['DCM_CONFIG']; s = os.stat(c); "
    "print(json.dumps([c, s.st_mode, open(c).read(), os.environ['LD_PRELOAD'],"
    " os.environ['DCM_RUNTIME_DIR']]))"
)


def test_configuration_written(run: Cli, good: list[str], runtime: Path, libdir: Path) -> None:
    run.env["LD_PRELOAD"] = "libdl.so.2"
    done = run(
        *good, "--name", "t1", "--size", "1G", "--lanes", "3", "--on-loss", "sigbus",
        "--redundancy", "replica:2", "--threshold", "1M", "--set", "epsilon=7",
        "--set", "largest_block=16K",
        "--no-encrypt-data", "--", "/usr/bin/python3", "-c", SHOW,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert done.stderr == ""
    conf, mode, text, preload, rundir = json.loads(done.stdout)
    assert conf == str(runtime / "vm" / "t1.conf")
    assert stat.S_IMODE(mode) == 0o600
    assert preload == f"{libdir}/libdcm-preload.so:libdl.so.2"
    assert rundir == str(runtime)
    copy = runtime / "copy.conf"
    copy.write_text(text)
    s = settings.load(copy)
    assert (s.name, s.budget, s.size, s.lanes) == ("t1", 64 << 20, 1 << 30, 3)
    assert (s.mode, s.on_loss, s.threshold) == ("program", "sigbus", 1 << 20)
    assert s.redundancy == "replica:2"
    assert (s.tenant, s.data_encryption) == ("lab", False)
    assert s.tunables == {"epsilon": "7", "largest_block": "16384"}
    assert run.vm_files() == []


def test_rdma_is_not_encrypted(run: Cli, good: list[str]) -> None:
    """It must be said that this is known."""
    said = run.fails(*good, "--transport", "verbs", "--", "true", status=2)
    assert "needs --seal or --no-encrypt-data" in said
    done = run(*good, "--transport", "verbs", "--seal", "--", "/usr/bin/python3", "-c", SHOW)
    text = json.loads(done.stdout)[2]
    assert "transport = verbs\n" in text and "seal = yes\n" in text
    done = run(
        *good, "--transport", "verbs", "--no-encrypt-data", "--", "/usr/bin/python3", "-c", SHOW
    )
    assert "transport = verbs\n" in json.loads(done.stdout)[2]


@pytest.mark.parametrize("name", list(preflight.ALLOCATORS))
def test_allocator_after_the_shim(run: Cli, good: list[str], libdir: Path, name: str) -> None:
    good[good.index("own")] = name
    library = preflight.find_allocator(name)
    done = run(*good, "--", "/usr/bin/python3", "-c", SHOW)
    assert json.loads(done.stdout)[3] == f"{libdir}/libdcm-preload.so:{library}"
    # It is not preloaded twice, and one that is preloaded already stays.
    run.env["LD_PRELOAD"] = str(library)
    for chosen in preflight.ALLOCATORS:
        good[good.index("--malloc") + 1] = chosen
        done = run(*good, "--", "/usr/bin/python3", "-c", SHOW)
        assert json.loads(done.stdout)[3] == f"{libdir}/libdcm-preload.so:{library}"


def test_first_allocator_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """tcmalloc, else jemalloc; a missing one has one line with its package."""
    assert preflight.find_allocator(None) == preflight.find_allocator("tcmalloc")
    jemalloc = preflight.find_allocator("jemalloc")
    none = ("libnone.so.1", "libnone1")
    monkeypatch.setitem(preflight.ALLOCATORS, "tcmalloc", none)
    assert preflight.find_allocator(None) == jemalloc
    with pytest.raises(DcmError, match="libnone.so.1 is missing; .* apt install libnone1, or use"):
        preflight.find_allocator("tcmalloc")
    monkeypatch.setitem(preflight.ALLOCATORS, "jemalloc", none)
    with pytest.raises(DcmError, match="libnone.so.1 is missing"):
        preflight.find_allocator(None)


def test_dry_run_of_qemu(run: Cli, good: list[str], runtime: Path) -> None:
    qemu = runtime / "qemu-system-x86_64"
    qemu.symlink_to("/bin/true")
    good[good.index("own")] = "auto"
    args = [*good, "--dry-run", "--json", "--", qemu, "-name", "web 1", "-m", "1G,maxmem=2G"]
    done = run(*args)
    assert done.returncode == 0, done
    shown = json.loads(done.stdout)
    assert shown["name"] == "web-1"
    assert "mode = qemu\n" in shown["config"]
    assert "size = 2304M\n" in shown["config"]
    assert "threshold" not in shown["config"]
    assert "malloc" not in shown["environment"]["LD_PRELOAD"]
    shown = json.loads(run(*good, "--dry-run", "--json", "--", "true").stdout)
    assert "threshold = 1M\n" in shown["config"]
    assert run.vm_files() == []
    text = run(*[a for a in args if a != "--json"]).stdout
    assert "[vm]\nname = web-1\n" in text


def test_free_page_reporting_of_qemu(run: Cli, good: list[str], runtime: Path) -> None:
    """On unless told not to; what QEMU's arguments say counts, and is said."""
    qemu = runtime / "qemu-system-x86_64"
    qemu.symlink_to("/bin/true")

    def argv(*options: str, more: tuple[str, ...] = ()) -> tuple[list[str], str]:
        done = run(*good, *options, "--dry-run", "--json", "--", qemu, *more, "-m", "1G")
        assert done.returncode == 0, done
        return json.loads(done.stdout)["argv"][1:-2], done.stderr

    on = ["-global", "virtio-balloon-device.free-page-reporting=on"]
    assert argv() == ([*on, "-device", "virtio-balloon-pci,addr=1e"], "")
    assert argv("--free-page-reporting", "no") == ([], "")
    off = ("-device", "virtio-balloon,free-page-reporting=off")
    said, err = argv(more=off)
    assert said == [*on, *off] and "the guest frees goes to donors" in err
    assert argv("--free-page-reporting", "no", more=off) == ([*off], "")
    done = run(*good, "--dry-run", "--", "true", "-m")
    assert "balloon" not in done.stdout and "exec /usr/bin/true -m\n" in done.stdout


def test_no_secret_in_output(run: Cli, good: list[str]) -> None:
    done = run(*good, "--dry-run", "--", "true")
    assert "5a5a" not in done.stdout + done.stderr


# ---- exit status and signals ----


def test_exit_status(run: Cli, good: list[str]) -> None:
    for status in (0, 1, 7, 255):
        assert run(*good, "--", "sh", "-c", f"exit {status}").returncode == status
    assert run.vm_files() == []


def test_no_end_is_missed(run: Cli, good: list[str]) -> None:
    """A program that ends at once: its SIGCHLD was once missed one time in twenty."""
    for _ in range(15):
        assert run(*good, "--", "sh", "-c", "exit 5", timeout=20).returncode == 5


def test_started_with_sigchld_ignored(run: Cli, good: list[str]) -> None:
    process = run.start(
        *good, "--", "sh", "-c", "exit 6",
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    process.communicate(timeout=20)
    assert process.returncode == 6


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGBUS])
def test_death_by_signal(run: Cli, good: list[str], number: signal.Signals) -> None:
    done = run(*good, "--", "/usr/bin/python3", "-c", f"import os; os.kill(os.getpid(), {number})")
    assert done.returncode == -number, done
    assert run.vm_files() == []


TELL = (
    "import os, signal, sys, time\n"
    "def say(text): os.write(1, (text + '\\n').encode())\n"
    "def got(n, f):\n"
    "    say(signal.Signals(n).name)\n"
    "    if n == signal.SIGTERM: sys.exit(42)\n"
    "for n in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT,\n"
    "          signal.SIGTERM): signal.signal(n, got)\n"
    "say('ready')\n"
    "while True: time.sleep(1)\n"
)


def test_signals_are_passed_on(run: Cli, good: list[str]) -> None:
    process = run.start(*good, "--name", "s", "--", "/usr/bin/python3", "-c", TELL)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        line = process.stdout.readline()
        assert line == name + "\n", (process.wait(), process.stderr and process.stderr.read())
    assert process.wait(TIMEOUT) == 42
    process.communicate()
    assert run.vm_files() == []


def test_terminal_interrupt_comes_once(run: Cli, good: list[str]) -> None:
    """^C reaches the whole foreground group, so dcmctl must not pass it on again."""
    program = (
        "import signal, time\n"
        "n = 0\n"
        "def got(*_):\n    global n\n    n += 1\n"
        "signal.signal(signal.SIGINT, got)\n"
        "print('ready', flush=True)\n"
        "while not n: time.sleep(0.05)\n"
        "time.sleep(0.5)\n"
        "print('got', n, flush=True)\n"
    )
    pid, master = os.forkpty()
    if pid == 0:
        os.execve(
            str(TOP / "bin" / "dcmctl"),
            ["dcmctl", *good, "--", "/usr/bin/python3", "-c", program],
            run.env,
        )
    try:
        seen = b""
        while b"ready" not in seen:
            seen += os.read(master, 4096)
        os.write(master, b"\x03")
        while b"got" not in seen or not seen.rstrip().split(b"got")[-1].strip():
            seen += os.read(master, 4096)
        assert b"got 1" in seen, seen
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(master)
    assert os.waitstatus_to_exitcode(status) == 0
    assert run.vm_files() == []


def _until(condition: object, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_dcmctl_killed(run: Cli, good: list[str]) -> None:
    """dcmctl is killed: the program gets SIGTERM, and the next dcmctl removes the files."""
    process = run.start(
        *good, "--name", "k", "--", "/usr/bin/python3", "-c",
        "import os, time; print(os.getpid(), flush=True); time.sleep(600)",
    )  # fmt: skip
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(TIMEOUT)
    process.communicate()
    _until(lambda: not _alive(pid), "the program outlives a killed dcmctl")
    assert run.vm_files() == ["k.conf"]
    _until(lambda: (run("list"), not run.vm_files())[1], "k.conf stays")


def test_name_taken(run: Cli, good: list[str]) -> None:
    holder = run.start(*good, "--name", "one", "--", "sh", "-c", "echo up; exec sleep 600")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        assert "is running already" in run.fails(*good, "--name", "one", "--", "true")
        assert run.vm_files() == ["one.conf"]
    finally:
        holder.terminate()
        holder.communicate(timeout=TIMEOUT)
    assert run(*good, "--name", "one", "--", "true").returncode == 0


def test_socket_removed(run: Cli, good: list[str], runtime: Path) -> None:
    """The program is killed: dcmctl removes libdcm's socket."""
    program = (
        "import os, signal, socket\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind('{runtime}/vm/x.sock'); s.listen()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = run(*good, "--name", "x", "--", "/usr/bin/python3", "-c", program)
    assert done.returncode == -signal.SIGKILL
    assert run.vm_files() == []


# ---- refusals ----


def test_program_not_found(run: Cli, good: list[str], tmp_path: Path) -> None:
    assert "not found" in run.fails(*good, "--", "no-such-program", status=127)
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert "not an executable" in run.fails(*good, "--", plain, status=126)
    assert run.vm_files() == []


def test_what_cannot_be_preloaded(run: Cli, good: list[str], tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int main(void) { return 0; }\n")
    static = tmp_path / "static"
    subprocess.run(["cc", "-static", "-o", str(static), str(source)], check=True)
    assert "statically linked" in run.fails(*good, "--", static)
    script = tmp_path / "script"
    script.write_text(f"#!{static}\n")
    script.chmod(0o755)
    assert "statically linked" in run.fails(*good, "--", script)
    if os.geteuid() == 0:
        other = tmp_path / "other"
        shutil.copy("/bin/true", other)
        os.chown(other, 65534, -1)
        other.chmod(0o4755)
        assert "set-uid" in run.fails(*good, "--", other)
    done = run(*good, "--", "/usr/bin/env", "true")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("drop", "add", "said"),
    [
        ("--budget", [], "there is no default, because"),
        ("--donor", [], "no donor"),
        ("--keys", [], "dcmctl keygen"),
        ("", ["--budget", "lots"], "not a size"),
        ("", ["--budget", "64K"], "too small"),
        ("", ["--donor", "localhost:1"], "neither tcp:"),
        ("", ["--set", "epsilon"], "NAME=VALUE"),
        ("", ["--set", "Ep;s=1"], "not the name"),
        ("", ["--lanes", "65"], "1 to 64"),
        ("", ["--name", "a/b"], "is not a name"),
        ("", ["--mode", "xen"], "invalid choice"),
        ("", ["--bugdet", "1G"], "unrecognized"),
        ("", ["--budg", "1G"], "unrecognized"),
        ("", ["--tenant", "a:b"], "is not a name"),
        ("", ["python3"], "put options before --"),
    ],
)
def test_usage(run: Cli, good: list[str], drop: str, add: list[str], said: str) -> None:
    if drop:
        at = good.index(drop)
        del good[at : at + 2]
    assert said in run.fails(*good, *add, "--", "true", status=2)


def test_no_program(run: Cli, good: list[str]) -> None:
    assert "no program" in run.fails(*good, status=2)
    assert "no program" in run.fails(*good, "--", status=2)


def test_keys_are_checked(run: Cli, good: list[str], keys: Path) -> None:
    assert "no key of tenant" in run.fails(*good, "--tenant", "other", "--", "true")
    keys.chmod(0o644)
    assert "chmod 600" in run.fails(*good, "--", "true")


def test_qemu_refused_line_by_line(run: Cli, good: list[str], runtime: Path) -> None:
    qemu = runtime / "qemu-system-x86_64"
    qemu.symlink_to("/bin/true")
    bad = ["-m", "1G", "-mem-path", "/dev/hugepages", "-overcommit", "mem-lock=on"]
    bad += ["-device", "vfio-pci,host=01:00.0"]
    done = run(*good, "--", qemu, *bad)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("dcmctl: QEMU's -") for line in lines)


def test_library_missing(run: Cli, good: list[str], tmp_path: Path) -> None:
    run.env["DCM_LIBDIR"] = str(tmp_path)
    assert "is DCM_LIBDIR right?" in run.fails(*good, "--", "true")


def test_donor_down(run: Cli, good: list[str], runtime: Path) -> None:
    """One of two donors down: a warning that names it. All down: an error."""
    down = f"gone=unix:{runtime}/nobody.sock"
    done = run(*good, "--donor", down, "--", "echo", "ran")
    assert done.returncode == 0
    assert done.stdout == "ran\n"
    assert "warning: donor gone (unix:" in done.stderr
    with socket.socket() as unused:  # bound, not listening: refused
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        good[good.index("--donor") + 1] = f"tcp:127.0.0.1:{port}"
        done = run(*good, "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (1, "")
        warning, error = done.stderr.splitlines()
        assert f"donor d1 (tcp:127.0.0.1:{port}) does not answer: Connection refused" in warning
        assert error.startswith("dcmctl: no donor answers")
        assert run(*good, "--no-check", "--", "echo", "ran").stdout == "ran\n"


def test_busy_donor(run: Cli, good: list[str], runtime: Path) -> None:
    """A donor with a full backlog counts as silent, but only after the timeout."""
    path = runtime / "busy.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))
        done = run(*good, "--donor", f"busy=unix:{path}", "--", "true")
        assert done.returncode == 0
        assert "donor busy" in done.stderr
        assert "no answer within 2 s" in done.stderr


def test_config_file(run: Cli, good: list[str], tmp_path: Path, keys: Path, donor: str) -> None:
    conf = tmp_path / "vm.conf"
    conf.write_text(
        f"[vm]\nname = fromfile\nbudget = 32M\n[key]\nfile = keys\n[donor n]\naddress = {donor}\n"
    )
    args = ["run", "--config", conf, "--malloc", "own"]
    done = run(*args, "--", "/usr/bin/python3", "-c", SHOW)
    assert done.returncode == 0, done
    path, _, text, _, _ = json.loads(done.stdout)
    assert path.endswith("/fromfile.conf")
    assert "budget = 32M\n" in text
    assert f"file = {keys}\n" in text
    done = run(*args, "--budget", "8M", "--name", "b", "--", "/usr/bin/python3", "-c", SHOW)
    assert "budget = 8M\n" in json.loads(done.stdout)[2]
    conf.write_text("[vm]\nbugdet = 1G\n")
    assert str(conf) in run.fails(*args, "--", "true", status=2)


def test_shipped_config_is_good() -> None:
    """configs/host.conf is valid, as it is and with every commented setting turned on."""
    path = TOP / "configs" / "host.conf"
    assert settings.load(path) == settings.Settings()


def test_shipped_config_uncommented(tmp_path: Path) -> None:
    lines = (TOP / "configs" / "host.conf").read_text().splitlines()
    on = [
        line.removeprefix(";") if line.startswith(";") and line[1:2].isalpha() else line
        for line in lines
    ]
    on = [line.removeprefix(";") if line.startswith(";[") else line for line in on]
    path = tmp_path / "host.conf"
    path.write_text("\n".join(on) + "\n")
    s = settings.load(path)
    assert s.budget and s.size and s.keys and s.tenant and s.lanes and s.on_loss and s.mode
    assert len(s.donors) >= 2
    assert s.tunables


def test_unprivileged(run: Cli, good: list[str], runtime: Path) -> None:
    """Without a permission for userfaultfd: one line that says how to get one."""
    if os.geteuid() != 0:
        pytest.skip("needs root to drop privileges from")
    setting = Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip()
    if setting != "0" or os.stat("/dev/userfaultfd").st_mode & 0o006:
        pytest.skip("everybody may use userfaultfd here")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from dcmctl.pager import preflight\n"
        "from dcmctl.lib.errors import DcmError\n"
        "try: preflight.check_userfaultfd()\n"
        "except DcmError as e: print(e)\n"
    )
    package = runtime / "p"
    shutil.copytree(TOP / "dcmctl", package, ignore=shutil.ignore_patterns("__pycache__"))
    runtime.chmod(0o755)
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", program, str(package)],
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, cwd="/",
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "sysctl vm.unprivileged_userfaultfd=1" in done.stdout
    assert done.stdout.count("\n") == 1
    preflight.check_userfaultfd()  # permitted here


def test_runtime_dir_of_others(run: Cli, good: list[str], runtime: Path) -> None:
    (runtime / "vm").mkdir()
    (runtime / "vm").chmod(0o777)
    assert "chmod go-w" in run.fails(*good, "--", "true")
    assert "chmod go-w" in run.fails("list")
    (runtime / "vm").chmod(0o700)
    runtime.chmod(0o770)
    assert "chmod go-w" in run.fails(*good, "--", "true")
    if os.geteuid() == 0:
        runtime.chmod(0o750)
        # its owner can put another folder in place of the checked one
        os.chown(runtime, 65534, -1)
        assert "another user" in run.fails(*good, "--", "true")
        os.chown(runtime, 0, -1)
        assert run(*good, "--", "true").returncode == 0
        os.chown(runtime / "vm", 65534, -1)
        assert "another user" in run.fails(*good, "--", "true")
    (runtime / "vm").rmdir()
    (runtime / "vm").symlink_to("/etc")
    assert "not a directory" in run.fails(*good, "--", "true")


def test_child_sees_a_clean_python(run: Cli, good: list[str]) -> None:
    """The launcher's Python options do not reach the program."""
    program = "import os, sys; print(sorted(k for k in os.environ if k.startswith('PYTHON')))"
    done = run(*good, "--", sys.executable, "-c", program)
    assert done.stdout == "[]\n"
