# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU command lines: accepted, refused, ignored options."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess

import pytest

from dcmctl.lib.errors import UsageError
from dcmctl.pager import qemu


def test_is_qemu() -> None:
    assert qemu.is_qemu("/usr/bin/qemu-system-x86_64")
    assert qemu.is_qemu("qemu-kvm")
    assert not qemu.is_qemu("qemu-img")
    assert not qemu.is_qemu("/opt/qemu-system-x86_64/run")


def test_options_split() -> None:
    assert qemu.split_options("1G,slots=2") == [("", "1G"), ("slots", "2")]
    assert qemu.split_options("guest=a,,b,x=y") == [("guest", "a,b"), ("x", "y")]
    assert qemu.split_options("x=,,") == [("x", ",")]
    assert qemu.split_options("") == [("", "")]


@pytest.mark.parametrize(
    ("line", "ram"),
    [
        ("", 128 << 20),
        ("-m 1G", 1 << 30),
        ("--m 512", 512 << 20),
        ("-m size=2G,slots=2,maxmem=8G", 8 << 30),
        ("-m 1024,maxmem=4096M", 4 << 30),
        ("-m 1G -m 2G", 2 << 30),
        ("-append '-m 5G' -m 1G", 1 << 30),
        ("-append -m -m 1G", 1 << 30),
        ("-readconfig vm.cfg", None),
        ("-readconfig vm.cfg -m 1G", 1 << 30),
    ],
)
def test_ram(line: str, ram: int | None) -> None:
    assert qemu.inspect(shlex.split(line)).ram == ram


def test_name() -> None:
    assert qemu.inspect(["-name", "deb13,process=x"]).name == "deb13"
    assert qemu.inspect(["-name", "guest=deb13,debug-threads=on"]).name == "deb13"


@pytest.mark.parametrize(
    "line",
    [
        "-m 1G -smp 2 -machine q35,accel=tcg -nographic -drive file=x.img,if=virtio "
        "-netdev user,id=n -device virtio-net-pci,netdev=n -device virtio-balloon",
        "-object memory-backend-ram,id=m,size=1G -machine q35,memory-backend=m",
        "-object memory-backend-ram,id=m,size=1G,share=off -numa node,memdev=m",
        "-object memory-backend-file,id=nv,size=1G,mem-path=/x,share=on -device nvdimm,memdev=nv",
        "-overcommit mem-lock=off",
        "-overcommit cpu-pm=on",
        "-netdev tap,id=n,vhost=on",
        "-device ivshmem-plain,memdev=x",
        "-append vfio-pci",
    ],
)
def test_good(line: str) -> None:
    found = qemu.inspect(shlex.split(line))
    assert found.problems == []
    assert found.warnings == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-mem-path /dev/hugepages", "-mem-path /dev/hugepages"),
        ("-overcommit mem-lock=on", "pins all guest memory"),
        ("-overcommit cpu-pm=on,mem-lock=on-fault", "pins all guest memory"),
        ("-device vfio-pci,host=01:00.0", "VFIO"),
        ('-device {"driver":"vfio-pci","host":"01:00.0"}', "VFIO"),
        ("-device driver=vfio-ap", "VFIO"),
        ("-device vhost-vdpa-device-pci,vhostdev=/dev/vhost-vdpa-0", "vDPA"),
        ("-netdev vhost-vdpa,id=n", "vDPA"),
        ("-netdev type=vhost-user,id=n,chardev=c", "another process"),
        ("-device vhost-user-fs-pci,chardev=c,tag=x", "another process"),
        (
            "-object memory-backend-file,id=m,size=1G,mem-path=/x,share=on "
            "-machine q35,memory-backend=m",
            "share=on",
        ),
        ("-object memory-backend-file,id=m,size=1G,mem-path=/x -M memory-backend=m", "anonymous"),
        ("-object memory-backend-memfd,id=m,size=1G -numa node,memdev=m", "share=on"),
        (
            "-object memory-backend-memfd,id=m,size=1G,hugetlb=on -machine memory-backend=m",
            "hugetlb",
        ),
        ("-machine memory-backend=m -object memory-backend-ram,id=m,size=1G,share=yes", "share=on"),
        (
            '-machine memory-backend=m -object {"qom-type":"memory-backend-ram","id":"m",'
            '"size":1073741824,"share":true}',
            "share=on",
        ),
        ("-object memory-backend-epc,id=m,size=1G -device pc-dimm,memdev=m", "anonymous"),
        ("-machine q35,confidential-guest-support=s", "encrypts"),
        ("-object sev-snp-guest,id=s", "SEV-SNP"),
        ("-daemonize", "background"),
    ],
)
def test_refused(line: str, said: str) -> None:
    args = shlex.split(line, posix=True) if "{" not in line else line.split(" ")
    found = qemu.inspect(args)
    assert len(found.problems) == 1, found.problems
    assert said in found.problems[0]
    assert "\n" not in found.problems[0]


def test_warned() -> None:
    assert len(qemu.inspect(["-mem-prealloc"]).warnings) == 1
    line = "-object memory-backend-ram,id=m,size=1G,prealloc=on -machine memory-backend=m"
    assert len(qemu.inspect(line.split()).warnings) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["-m", "lots"],
        ["-m", "0"],
        ["-m"],
        ["-object", "{"],
        ["-device", "{" * 3000 + "}" * 3000],
        ["-device", '{"a":' * 50000],
        ["-object", "{[]}"],
    ],
)
def test_nonsense(args: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        qemu.inspect(args)
    assert len(str(error.value)) < 200


def test_random_arguments() -> None:
    """Any command line is accepted, or refused with printable lines."""
    seed = int(os.environ.get("SEED", "7"))
    rng = random.Random(seed)
    words = [
        "-m", "-M", "--machine", "-object", "-device", "-netdev", "-numa", "-name", "-overcommit",
        "-readconfig", "-", "--", "", ",,,", "=", "size=", "maxmem=1G", "1G,maxmem=2G", "x",
        "memory-backend-ram,id=m,share=on", "memory-backend=m", "mem-lock=on", "vfio-pci",
        '{"driver":5}', '{"qom-type":[1]}', '{"id":null,"qom-type":"memory-backend-ram"}', "{}",
        '{"a":1e999}', "memory-backend-\x1b[2J,id=m",
    ]  # fmt: skip
    for _ in range(5000):
        args = [
            rng.choice(words)
            if rng.random() < 0.8
            else "".join(chr(rng.randrange(1, 300)) for _ in range(rng.randrange(12)))
            for _ in range(rng.randrange(8))
        ]
        try:
            found = qemu.inspect(args)
        except UsageError as exc:
            assert str(exc).isprintable(), f"seed {seed}: {args}"
        else:
            lines = found.problems + found.warnings
            assert all(line.isprintable() for line in lines), f"seed {seed}: {args}"


def test_device_value_that_is_no_object() -> None:
    # No brace at the beginning, so it is not taken for JSON; QEMU refuses it.
    assert qemu.inspect(["-device", "[1]"]).problems == []


# ---- free page reporting ----

GLOBAL = ["-global", "virtio-balloon-device.free-page-reporting=on"]
BALLOON = ["-device", "virtio-balloon-pci,addr=1e"]


def report(line: str, program: str = "qemu-system-x86_64") -> tuple[list[str], str | None]:
    """The options added to a command line, and why free memory is not reported."""
    args = shlex.split(line) if "{" not in line else line.split(" ")
    argv, why = qemu.report_free_pages([program, *args], qemu.inspect(args))
    added = len(argv) - len(args)
    assert argv[0] == program and argv[added:] == args
    return argv[1:added], why


@pytest.mark.parametrize(
    "line", ["-m 1G", "-M q35,accel=kvm", "-machine type=pc-i440fx-9.0", '-M {"type":"q35"}']
)
def test_balloon_added(line: str) -> None:
    assert report(line) == ([*GLOBAL, *BALLOON], None)


def test_balloon_of_the_users_reports() -> None:
    for line in (
        "-device virtio-balloon",
        "-device virtio-balloon-pci-non-transitional,id=b",
        '-device {"driver":"virtio-balloon-pci","id":"b"}',
        "-device virtio-balloon,free-page-reporting=on",
        "-M microvm -device virtio-balloon-device",
        "-readconfig vm.cfg -m 1G",
    ):
        assert report(line) == (GLOBAL, None), line


def test_balloon_that_is_not_to_report() -> None:
    for line in (
        "-device virtio-balloon-pci,free-page-reporting=off",
        '-device {"driver":"virtio-balloon-pci","free-page-reporting":false}',
        "-device virtio-balloon -global virtio-balloon-pci.free-page-reporting=off",
        "-global driver=virtio-balloon-device,property=free-page-reporting,value=off",
    ):
        added, why = report(line)
        assert added == GLOBAL, line
        assert why is not None and "free-page-reporting=off is among" in why, line
    assert report("-device virtio-balloon -global virtio-net-pci.x=off") == (GLOBAL, None)


@pytest.mark.parametrize(
    ("line", "program"),
    [("-M microvm", "kvm"), ("-M isapc", "kvm"), ("-M virt", "qemu-system-aarch64"),
     ("", "/opt/qemu-system-s390x")],
)  # fmt: skip
def test_machines_that_get_no_balloon(line: str, program: str) -> None:
    added, why = report(line, program)
    assert added == GLOBAL and why is not None and "pc and q35 only" in why


@pytest.mark.parametrize(
    "line",
    [
        "-device virtio-net-pci,addr=1e",
        "-device virtio-net-pci,addr=0x1E.1",
        '-device {"driver":"virtio-net-pci","addr":"0x1e"}',
    ],
)
def test_slot_that_is_taken(line: str) -> None:
    assert report(line) == ([*GLOBAL, "-device", "virtio-balloon-pci"], None)


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="no QEMU: scripts/deps.sh qemu")
@pytest.mark.parametrize(
    ("line", "reports"),
    [
        ("-M q35", True),
        ("-M pc -device virtio-serial-pci -device virtio-rng-pci", True),
        ("-M q35 -device virtio-rng-pci,addr=1e", True),
        ("-M pc -device virtio-balloon", True),
        ("-M pc -device virtio-balloon,free-page-reporting=off", False),
        ("-M q35 -device virtio-balloon -global virtio-balloon-pci.free-page-reporting=off", False),
    ],
)
def test_qemu_takes_what_is_added(line: str, reports: bool) -> None:
    """A real QEMU, its guest not started, tells of its one balloon."""
    args = shlex.split(line)
    argv, why = qemu.report_free_pages(["qemu-system-x86_64", *args], qemu.inspect(args))
    more = ["-nodefaults", "-display", "none", "-S", "-m", "32", "-accel", "tcg", "-monitor"]
    done = subprocess.run(
        [*argv, *more, "stdio"],
        input="info qtree\nquit\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done
    found = re.findall(r"free-page-reporting = (\w+)", done.stdout)
    assert found == ["true" if reports else "false"] and (why is None) == reports
