# SPDX-License-Identifier: GPL-2.0-or-later
"""Inspect a QEMU command line: the size of guest RAM, options that prevent paging, the balloon.

libdcm pages guest RAM that is private anonymous memory of the QEMU process and is not pinned.
Options that make it anything else are refused before QEMU starts. Otherwise the guest would run
without paging, or above its budget, and without a message.

Through a balloon with free page reporting, the guest reports to QEMU the memory that it has freed.
QEMU discards this memory, so the pager does not write it to donors.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import PurePath

from dcmctl.lib.errors import UsageError, printable
from dcmctl.lib.units import parse_size

DEFAULT_RAM = 128 << 20
_PROGRAM = re.compile(r"qemu-system-[A-Za-z0-9_]+|qemu-kvm|kvm")
_TEXT_VALUE = ("append", "kernel", "initrd", "serial", "fw_cfg", "smbios", "bios", "fsdev")
_ON = ("on", "yes", "true", "y")
_BALLOON = re.compile(r"virtio-balloon(-pci(-(non-)?transitional)?|-device|-ccw)?")
_REPORTING = "free-page-reporting"
_GLOBAL = re.compile(r"([^.,=]+)\.([^,=]+)=(.*)", re.DOTALL)
# The PCI slot for the balloon that dcmctl adds. On machines pc and q35, QEMU gives this slot to
# another device only when 25 others are in use, so the balloon moves no other device.
_SLOT = "1e"
_SLOT_TAKEN = re.compile(rf"addr\"?\s*[=:]\s*\"?(0x)?{_SLOT}\b", re.IGNORECASE)
_PINNING = {
    "sev-guest": "SEV",
    "sev-snp-guest": "SEV-SNP",
    "tdx-guest": "TDX",
    "s390-pv-guest": "protected virtualization",
    "pef-guest": "PEF",
}


def is_qemu(program: str) -> bool:
    return _PROGRAM.fullmatch(PurePath(program).name) is not None


def split_options(text: str) -> list[tuple[str, str]]:
    """Split QEMU's `a,b=c,d=e,,f` into pairs; a word without '=' is a value with the name ''.

    `,,` is a comma in a value. It is replaced by NUL meanwhile, as no argument contains a NUL.
    """
    pairs: list[tuple[str, str]] = []
    for part in text.replace(",,", "\0").split(","):
        word = part.replace("\0", ",")
        name, sep, value = word.partition("=")
        pairs.append((name, value) if sep else ("", word))
    return pairs


@dataclass
class Inspection:
    """The result of inspect(): RAM, name, options that are refused, and warnings."""

    ram: int | None = None
    name: str | None = None
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    machine: str = "pc"
    balloon: bool = False
    reporting: str = ""  # the value of free-page-reporting in the arguments
    readconfig: bool = False


@dataclass(frozen=True)
class _Backend:
    kind: str
    props: dict[str, str]


class _Inspector:
    def __init__(self) -> None:
        self.found = Inspection()
        self.machine: dict[str, str] = {}
        self.backends: dict[str, _Backend] = {}
        self.ram_ids: list[str] = []
        self.memory: str | None = None

    def problem(self, what: str, why: str) -> None:
        self.found.problems.append(printable(f"QEMU's {what} {why}", 400))

    # -- one option each --

    def option(self, name: str, value: str) -> None:
        handler = getattr(self, "on_" + name.replace("-", "_"), None)
        if handler is not None:
            handler(value)

    def on_m(self, value: str) -> None:
        self.memory = value

    def on_name(self, value: str) -> None:
        for key, word in split_options(value):
            if key in ("", "guest"):
                self.found.name = word

    def on_machine(self, value: str) -> None:
        if value.startswith("{"):
            self.machine.update(_json_props(value))
        else:
            pairs = split_options(value)
            if not pairs[0][0]:
                self.machine["type"] = pairs[0][1]
            self.machine.update((k, v) for k, v in pairs if k)

    on_M = on_machine

    def on_overcommit(self, value: str) -> None:
        mode = dict(split_options(value)).get("mem-lock", "off")
        if mode != "off":
            self.problem(
                f"-overcommit mem-lock={printable(mode, 20)}",
                "pins all guest memory on this host: leave it out",
            )

    def on_mem_path(self, value: str) -> None:
        self.problem(
            f"-mem-path {printable(value, 60)}",
            "puts guest memory into a file or hugepages, which cannot be paged: leave it out",
        )

    def on_object(self, value: str) -> None:
        kind, props = _kind_and_props(value, "qom-type")
        if kind.startswith("memory-backend-"):
            self.backends[props.get("id", "")] = _Backend(kind, props)
        elif kind in _PINNING:
            self.problem(
                f"-object {kind}",
                f"({_PINNING[kind]}) encrypts guest memory in place, so it cannot be moved",
            )

    def on_numa(self, value: str) -> None:
        for key, word in split_options(value):
            if key == "memdev":
                self.ram_ids.append(word)

    def on_device(self, value: str) -> None:
        driver, props = _kind_and_props(value, "driver")
        if _BALLOON.fullmatch(driver):
            self.found.balloon = True
            self.found.reporting = props.get(_REPORTING, self.found.reporting)
        elif driver.startswith("vfio-"):
            self.problem(
                f"-device {printable(driver, 40)}",
                "(VFIO) pins all guest memory for the device: use an emulated or virtio device",
            )
        elif driver.startswith("vhost-vdpa"):
            self.problem(
                f"-device {printable(driver, 40)}", "(vDPA) pins all guest memory: leave it out"
            )
        elif driver.startswith("vhost-user-"):
            self._vhost_user(f"-device {printable(driver, 40)}")
        elif driver == "pc-dimm" and "memdev" in props:
            self.ram_ids.append(props["memdev"])

    def on_global(self, value: str) -> None:
        short, props = _GLOBAL.fullmatch(value), dict(split_options(value))
        given = [props.get(key, "") for key in ("driver", "property", "value")]
        driver, name, to = short.groups() if short else given
        if _BALLOON.fullmatch(driver) and name == _REPORTING:
            self.found.reporting = self.found.reporting or to

    def on_netdev(self, value: str) -> None:
        if value.startswith("{"):
            kind = _json_props(value).get("type", "")
        else:
            pairs = split_options(value)
            kind = dict(pairs).get("type") or (pairs[0][1] if pairs else "")
        if kind == "vhost-vdpa":
            self.problem("-netdev vhost-vdpa", "(vDPA) pins all guest memory: leave it out")
        elif kind == "vhost-user":
            self._vhost_user("-netdev vhost-user")

    def _vhost_user(self, what: str) -> None:
        self.problem(
            what,
            "needs guest memory that another process can map, which libdcm cannot page: "
            "leave it out",
        )

    # -- all of it --

    def walk(self, args: list[str]) -> None:
        rest = iter(args)
        for arg in rest:
            if not arg.startswith("-") or arg == "-":
                continue
            name = arg.lstrip("-") if arg.startswith("--") else arg[1:]
            if name == "daemonize":
                self.problem(
                    "-daemonize",
                    "ends the process that dcmctl watches: leave it out, and run dcmctl in the "
                    "background",
                )
            elif name == "mem-prealloc":
                self._prealloc("-mem-prealloc")
            elif name == "readconfig":
                self.found.readconfig = True
                next(rest, "")
            elif name in _TEXT_VALUE:
                next(rest, "")
            elif hasattr(self, "on_" + name.replace("-", "_")):
                value = next(rest, None)
                if value is None:
                    raise UsageError(f"QEMU's -{printable(name)} needs a value")
                self.option(name, value)

    def _prealloc(self, what: str) -> None:
        self.found.warnings.append(
            printable(f"QEMU's {what}", 200)
            + " touches all guest memory at the start, which is slow and useless with donors"
        )

    def finish(self) -> Inspection:
        main = self.machine.get("memory-backend")
        if main:
            self.ram_ids.append(main)
        if self.machine.get("confidential-guest-support") or self.machine.get("memory-encryption"):
            self.problem(
                "-machine confidential-guest-support", "encrypts guest memory: it cannot be moved"
            )
        for ident in self.ram_ids:
            backend = self.backends.get(ident)
            if backend is not None:
                self._ram_backend(ident, backend)
        self.found.machine = self.machine.get("type") or "pc"
        self.found.ram = self._ram_size()
        return self.found

    def _ram_backend(self, ident: str, backend: _Backend) -> None:
        what = f"-object {backend.kind},id={printable(ident, 40)}"
        shared = backend.props.get("share", "").lower() in _ON
        if backend.kind == "memory-backend-memfd" and backend.props.get("share", "on") != "off":
            shared = True
        if backend.props.get("hugetlb", "").lower() in _ON:
            self.problem(what, "has hugetlb=on: hugepages cannot be paged, leave it out")
        elif shared:
            self.problem(
                what,
                "is shared memory (share=on), which cannot be paged: use "
                "memory-backend-ram,share=off, "
                "or no memory backend",
            )
        elif backend.kind != "memory-backend-ram":
            self.problem(
                what, "is not anonymous memory and cannot be paged: use memory-backend-ram"
            )
        elif backend.props.get("prealloc", "").lower() in _ON:
            self._prealloc(what + ",prealloc=on")

    def _ram_size(self) -> int | None:
        """The most RAM of the guest, including memory that can be plugged in."""
        if self.memory is None:
            return None if self.found.readconfig else DEFAULT_RAM
        total = DEFAULT_RAM
        for key, word in split_options(self.memory):
            if key in ("", "size"):
                total = max(parse_size(word, "QEMU's -m", default_shift=20), 0)
        for key, word in split_options(self.memory):
            if key == "maxmem":
                total = max(total, parse_size(word, "QEMU's maxmem", default_shift=20))
        if not total:
            raise UsageError("QEMU's -m is 0: give the guest memory")
        return total


def _json_props(text: str) -> dict[str, str]:
    """The members of an option in JSON, except objects, as text like in the comma syntax."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"QEMU option '{printable(text, 60)}' is not JSON") from None
    if not isinstance(value, dict):
        raise UsageError(f"QEMU option '{printable(text, 60)}' is not a JSON object")
    props: dict[str, str] = {}
    for name, item in value.items():
        if isinstance(item, bool):
            props[name] = "on" if item else "off"
        elif isinstance(item, str | int):
            props[name] = str(item)
    return props


def _kind_and_props(text: str, key: str) -> tuple[str, dict[str, str]]:
    """The kind that an option names (the value of `key`, or its first word), and its properties."""
    if text.startswith("{"):
        props = _json_props(text)
        return props.get(key, ""), props
    pairs = split_options(text)
    props = {name: value for name, value in pairs if name}
    return props.get(key) or (pairs[0][1] if pairs and not pairs[0][0] else ""), props


def inspect(args: list[str]) -> Inspection:
    """Inspect the arguments of QEMU, without the program's name."""
    inspector = _Inspector()
    inspector.walk(args)
    return inspector.finish()


def report_free_pages(argv: list[str], found: Inspection) -> tuple[list[str], str | None]:
    """Turn free page reporting on, unless the command line sets it.

    Return the new command line, and the reason why free memory is not reported (None if it is). A
    value in the command line comes after the added one, so it takes precedence. With -readconfig no
    balloon is added: that file may have one, and QEMU accepts only one.
    """
    why = None
    added = ["-global", f"virtio-balloon-device.{_REPORTING}=on"]
    is_pc = re.fullmatch(r"(pc|q35)(-.*)?", found.machine) and not re.match(
        r"qemu-system-(?!x86_64|i386)", PurePath(argv[0]).name
    )
    if found.reporting and found.reporting.lower() not in _ON:
        why = f"{_REPORTING}={printable(found.reporting, 20)} is among QEMU's arguments"
    elif not found.balloon and not found.readconfig and not is_pc:
        why = "dcmctl adds a balloon to the machines pc and q35 only"
    elif not found.balloon and not found.readconfig:
        taken = any(_SLOT_TAKEN.search(arg) for arg in argv)
        added += ["-device", "virtio-balloon-pci" + ("" if taken else f",addr={_SLOT}")]
    return [argv[0], *added, *argv[1:]], why
