# SPDX-License-Identifier: GPL-2.0-or-later
"""The XML of a libvirt domain whose memory is on donors: read it, check it, change it.

    <metadata>
      <dcm:memory xmlns:dcm="urn:kvm-dcm:domain:1" direct="4G">
        <dcm:donor name="far"/>
        <dcm:group name="rack1"/>
      </dcm:memory>
    </metadata>
    <memoryBacking><source type="file"/><access mode="shared"/></memoryBacking>

schema/domain.rng describes <dcm:memory>. <memoryBacking> makes libvirt give QEMU a file for the
guest's memory; the hook puts this file on dcmfs. With pager="user" libdcm pages QEMU's own memory,
and <emulator> is dcm-qemu (emulator.py), which starts QEMU with libdcm. The guest reports memory
that it frees (balloon.py). why_not() refuses domains whose memory can't be on donors, or would be
pinned on this host. All other XML stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dcmctl.lib import installation
from dcmctl.lib.address import NAME, Donor
from dcmctl.lib.errors import DcmError, printable
from dcmctl.lib.units import PAGE, SIZE_MAX, exact_size, format_size, parse_size
from dcmctl.libvirt import balloon
from dcmctl.libvirt.xmltree import Edit, Element, escape, parse, quoted
from dcmctl.pager.settings import BUDGET_MIN, DONORS_MAX, REDUNDANCY

NAMESPACE = "urn:kvm-dcm:domain:1"
PREFIX = "dcm"
MEMORY = f"{NAMESPACE} memory"
DONOR = f"{NAMESPACE} donor"
GROUP = f"{NAMESPACE} group"

QEMU = ("kvm", "qemu")
PAGERS = ("kernel", "user")

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIZE = re.compile(r"[1-9][0-9]{0,15}([KMGT](iB)?)?")
_EMULATOR = re.compile(r"/[!-~]{1,500}", re.ASCII)
_ADDED = ("source", "access", balloon.ADDED)
_BACKING = {"source": "<source type='file'/>", "access": "<access mode='shared'/>"}

# Units of sizes in libvirt's XML.
_UNITS = {
    "b": 1, "byte": 1, "bytes": 1,
    "KB": 1000, "k": 1024, "KiB": 1024,
    "MB": 1000**2, "M": 1 << 20, "MiB": 1 << 20,
    "GB": 1000**3, "G": 1 << 30, "GiB": 1 << 30,
    "TB": 1000**4, "T": 1 << 40, "TiB": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """The contents of <dcm:memory>."""

    direct: int  # bytes: the budget, the most of its memory on this host
    donors: tuple[str, ...] = ()  # the only ones it may use, all up at its start; (): any
    added: tuple[str, ...] = ()  # names from _ADDED: the parts of the XML that enable() added
    groups: tuple[str, ...] = ()  # it may use their donors too; one of each up at its start
    pager: str = "kernel"
    emulator: str = ""  # <emulator> before enable(); "": there was none
    redundancy: str = ""  # on how many donors each page is; "": as the configuration says
    seal: str = ""  # yes, no: encrypt pages before they leave; "": as the configuration says

    @property
    def chosen(self) -> tuple[str, ...]:
        """The chosen donors and @groups, in the form that dcm-hostd reads."""
        return (*self.donors, *(f"@{name}" for name in self.groups))

    def to_xml(self) -> str:
        """The element as lines; the first one is not indented."""
        open_tag = f"<{PREFIX}:memory xmlns:{PREFIX}={quoted(NAMESPACE)}"
        open_tag += f" direct={quoted(exact_size(self.direct))}"
        if self.redundancy:
            open_tag += f" redundancy={quoted(self.redundancy)}"
        if self.seal:
            open_tag += f" seal={quoted(self.seal)}"
        if self.pager != "kernel":
            open_tag += f" pager={quoted(self.pager)}"
        if self.added:
            open_tag += f" added={quoted(' '.join(self.added))}"
        if self.emulator:
            open_tag += f" emulator={quoted(self.emulator)}"
        if not self.chosen:
            return f"{open_tag}/>"
        lines = [f"  <{PREFIX}:donor name={quoted(name)}/>" for name in self.donors]
        lines += [f"  <{PREFIX}:group name={quoted(name)}/>" for name in self.groups]
        return "\n".join([f"{open_tag}>", *lines, f"</{PREFIX}:memory>"])


def chosen_donors(donors: tuple[Donor, ...], memory: Memory, conf: Path) -> tuple[Donor, ...]:
    """The donors of `conf` that a domain may use; refuse a donor or group that `conf` lacks."""
    for name in memory.donors:
        if not any(donor.name == name for donor in donors):
            raise DcmError(f"{conf} has no donor {name}, which the domain names")
    for name in memory.groups:
        if not any(donor.group == name for donor in donors):
            raise DcmError(
                f"no donor in {conf} is in group {name}, which the domain names: add group = {name}"
            )
    if not memory.chosen:
        return donors
    return tuple(d for d in donors if d.name in memory.donors or d.group in memory.groups)


class DomainError(DcmError):
    """The domain's XML is wrong, or the domain's memory cannot be on donors."""


# ---- reading ----


def read_domain(data: bytes) -> Element:
    """Parse the XML of a domain, which may be hostile."""
    try:
        root = parse(data)
    except DcmError as exc:
        raise DomainError(f"the domain's XML {exc}") from None
    if root.name != "domain":
        raise DomainError(f"this is the XML of a {printable(root.name, 60)}, not of a domain")
    return root


def _bad(text: str) -> DomainError:
    return DomainError(f"<{PREFIX}:memory> in the domain's <metadata>: {text}")


def read_memory(element: Element) -> Memory:
    """Read <dcm:memory>; check all that the schema checks, and more."""
    given = dict(element.attributes)
    direct = given.pop("direct", None)
    if direct is None:
        raise _bad('has no direct="SIZE", the most of its memory that is on this host')
    if not _SIZE.fullmatch(direct):
        raise _bad(f"direct='{printable(direct, 40)}' is not a size: write for example 4G")
    size = parse_size(direct, "direct") if len(direct) < 16 else SIZE_MAX + 1
    if size > SIZE_MAX or size < BUDGET_MIN or size % PAGE:
        raise _bad(
            f"direct='{direct}' must be whole pages (4K), at least 1M and at most "
            f"{format_size(SIZE_MAX)}"
        )
    redundancy = given.pop("redundancy", "")
    if redundancy not in REDUNDANCY and "redundancy" in element.attributes:
        raise _bad(
            f"redundancy='{printable(redundancy, 40)}' is not one of {', '.join(REDUNDANCY)}"
        )
    said = given.pop("added", "")
    added = tuple(name for name in _ADDED if name in said.split(" "))
    if " ".join(added) != said or ("added" in element.attributes and not said):
        raise _bad(f"added='{printable(said, 40)}' was not written by dcmctl")
    pager = given.pop("pager", "kernel")
    if pager not in PAGERS:
        raise _bad(f"pager='{printable(pager, 40)}' is not known: write 'kernel' or 'user'")
    emulator = given.pop("emulator", "")
    if emulator and (pager != "user" or not _EMULATOR.fullmatch(emulator)):
        raise _bad(f"emulator='{printable(emulator, 40)}' was not written by dcmctl")
    seal = given.pop("seal", "")
    if seal not in ("yes", "no") and "seal" in element.attributes:
        raise _bad(f"seal='{printable(seal, 40)}' is neither yes nor no")
    if set(added) & set(_BACKING) and pager == "user":
        raise _bad(f"added='{said}' is not allowed with pager='user'")
    for name in given:
        raise _bad(f"has no attribute '{printable(name, 60)}'")
    named: dict[str, list[str]] = {DONOR: [], GROUP: []}
    for child in element.children:
        if child.name not in named or set(child.attributes) != {"name"} or child.children:
            raise _bad(
                f'may have <{PREFIX}:donor name="NAME"/> and <{PREFIX}:group name="NAME"/> in '
                "it, and nothing else"
            )
        name, names = child.attributes["name"], named[child.name]
        what = "donor" if child.name == DONOR else "group"
        if not NAME.fullmatch(name):
            raise _bad(f"{what} '{printable(name, 60)}' is not the name of a {what}")
        if name in names:
            raise _bad(f"{what} '{name}' is there twice")
        names.append(name)
        if len(names) > DONORS_MAX:
            raise _bad(f"has more than {DONORS_MAX} {what}s")
    if (element.text + "".join(child.text for child in element.children)).strip():
        raise _bad("may have no text in it")
    donors, groups = tuple(named[DONOR]), tuple(named[GROUP])
    return Memory(size, donors, added, groups, pager, emulator, redundancy, seal)


def _element(root: Element) -> Element | None:
    found = root.all("metadata", MEMORY)
    if len(found) > 1:
        raise _bad("is there more than once")
    for other in root.all("metadata"):
        for child in other.children:
            if child.name.startswith(f"{NAMESPACE} ") and child.name != MEMORY:
                raise _bad(
                    "is the only known element of its namespace: remove "
                    f"<{printable(child.name, 80)}>"
                )
    return found[0] if found else None


def find_memory(root: Element) -> Memory | None:
    """The domain's <dcm:memory>; None if it has none."""
    element = _element(root)
    return None if element is None else read_memory(element)


def name_of(root: Element) -> str:
    element = root.one("name")
    return printable(element.text, 80) if element is not None else "?"


def uuid_of(root: Element) -> str:
    """The domain's UUID in lower case, which is in the names of its files."""
    element = root.one("uuid")
    uuid = element.text.strip().lower() if element is not None else ""
    if not UUID.fullmatch(uuid):
        raise DomainError("the domain has no UUID")
    return uuid


def emulator_of(root: Element) -> str:
    """The domain's <emulator>; "": libvirt chooses."""
    element = root.one("devices", "emulator")
    return "" if element is None else element.text.strip()


def _is_ours(emulator: str) -> bool:
    return emulator.rpartition("/")[2] == installation.EMULATOR


def size_of(root: Element) -> int:
    """Bytes of guest memory."""
    element = root.one("memory")
    text = element.text.strip() if element is not None else ""
    unit = element.attributes.get("unit", "KiB") if element is not None else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or unit not in _UNITS:
        raise DomainError("the domain's <memory> is not a size")
    size = int(text) * _UNITS[unit]
    # libvirt's default unit is KiB.
    size = -(-size // 1024) * 1024
    if not 0 < size <= SIZE_MAX:
        raise DomainError(f"the domain's memory of {text} {unit} is 0 or too large")
    return size


# ---- domains that are refused ----


def why_not(
    root: Element, kinds: tuple[str, ...] = QEMU, pager: str = "kernel"
) -> Iterator[str]:
    """Reasons why the domain's memory can't be on donors, one line each."""
    kind = root.attributes.get("type", "")
    if kind not in kinds:
        yield f"it is a domain of type '{printable(kind, 40)}': only QEMU's can be on donors"
    machine = root.one("os", "type")
    arch = machine.attributes.get("arch", "") if machine is not None else ""
    model = machine.attributes.get("machine", "pc") if machine is not None else ""
    known = arch in ("x86_64", "") and re.fullmatch(r"(pc|q35)(-.*)?", model)
    if kind in QEMU and not known:
        yield (
            f"its machine is {printable(arch, 20)} {printable(model, 40)}: only the x86_64 "
            "machines pc and q35 are supported"
        )
    yield from _why_not_backing(root, pager)
    if any(root.all("cpu", "numa", "cell")):
        yield "it has NUMA cells (<cpu><numa>), whose memory is in a file each: not supported yet"
    if root.one("maxMemory") is not None or any(root.all("devices", "memory")):
        yield (
            "it can have memory plugged in (<maxMemory>, <memory model=>), which would not be on "
            "donors: not supported yet"
        )
    if root.one("launchSecurity") is not None:
        yield "its memory is encrypted for a confidential guest (<launchSecurity>)"
    yield from _why_not_devices(root)
    if pager == "user":
        yield from _why_not_shared(root)
    yield from _why_not_arguments(root)


def _why_not_backing(root: Element, pager: str) -> Iterator[str]:
    source, access = ("file", "shared") if pager == "kernel" else ("anonymous", "private")
    if len(root.all("memoryBacking")) > 1:
        yield "it has more than one <memoryBacking>"
    for name, why in (
        ("hugepages", "memory in huge pages can't be on donors"),
        ("locked", "locked memory can't leave this host"),
        ("discard", "its memory would be discarded before the hook releases it"),
    ):
        if root.one("memoryBacking", name) is not None:
            yield f"its <memoryBacking> has <{name}/>: {why}"
    for element in root.all("memoryBacking", "allocation"):
        if element.attributes.get("mode", "ondemand") != "ondemand":
            yield "its <memoryBacking> has <allocation mode='immediate'/>, which touches all memory"
    for element in root.all("memoryBacking", "source"):
        if element.attributes.get("type") != source:
            kind = printable(element.attributes.get("type", ""), 40)
            yield f"its <memoryBacking> has <source type='{kind}'/>: it must be '{source}'"
    for element in root.all("memoryBacking", "access"):
        if element.attributes.get("mode") != access:
            mode = printable(element.attributes.get("mode", ""), 40)
            yield f"its <memoryBacking> has <access mode='{mode}'/>: it must be '{access}'"


def _why_not_devices(root: Element) -> Iterator[str]:
    for device in root.all("devices", "hostdev"):
        if device.attributes.get("type") in ("pci", "mdev") or (
            device.attributes.get("mode") == "capabilities"
        ):
            yield "it has a device of this host (<hostdev>), which pins all of its memory here"
            break
    for device in root.all("devices", "interface"):
        if device.attributes.get("type") in ("hostdev", "vdpa"):
            yield "it has a network card of this host, which pins all of its memory here"
            break
    for device in root.all("devices", "disk"):
        if device.attributes.get("type") in ("vhostvdpa", "nvme"):
            yield "it has a disk of this host, which pins all of its memory here"
            break


def _why_not_shared(root: Element) -> Iterator[str]:
    for name in ("interface", "disk"):
        if any(e.attributes.get("type") == "vhostuser" for e in root.all("devices", name)):
            yield f"its <{name} type='vhostuser'> needs memory that another process can map"
    for driver in root.all("devices", "filesystem", "driver"):
        if driver.attributes.get("type") == "virtiofs":
            yield "its <filesystem> by virtiofs needs memory that another process can map"
            break


def _why_not_arguments(root: Element) -> Iterator[str]:
    prefix = "http://libvirt.org/schemas/domain/qemu/1.0 "
    for argument in root.all(f"{prefix}commandline", f"{prefix}arg"):
        value = argument.attributes.get("value", "")
        if "memory-backend" in value or re.match(r"-(mem|m$|overcommit|numa)", value):
            yield f"its <qemu:commandline> changes memory: {printable(value, 60)}"
            return


def why_not_now(root: Element, memory: Memory, kinds: tuple[str, ...] = QEMU) -> Iterator[str]:
    """Reasons why a domain that has <dcm:memory> can't be started as it is."""
    yield from why_not(root, kinds, memory.pager)
    if memory.pager == "user" and not _is_ours(emulator_of(root)):
        said = printable(emulator_of(root), 100)
        wanted = installation.EMULATOR
        yield f"its <emulator> is '{said}', not {wanted}: dcmctl vm enable puts it there"
    for name, xml in _BACKING.items() if memory.pager == "kernel" else ():
        if root.one("memoryBacking", name) is None:
            yield f"its <memoryBacking> has no {xml}: dcmctl vm enable puts it there"
    if memory.direct >= size_of(root):
        yield (
            f"its direct memory, {format_size(memory.direct)}, is not less than all of its "
            f"memory, {format_size(size_of(root))}: nothing would be on donors"
        )


# ---- changing ----


def enable(
    data: bytes,
    direct: int,
    donors: tuple[str, ...] | None = None,
    kinds: tuple[str, ...] = QEMU,
    groups: tuple[str, ...] | None = None,
    emulator: str = "",
    redundancy: str | None = None,
    seal: str | None = None,
    reporting: str | None = None,
) -> bytes:
    """The domain's XML with its memory on donors.

    `donors`, `groups`: the donors it may use; both None: those that the domain names already.
    `emulator`: the path of dcm-qemu, to page with libdcm; "": use the kernel pager.
    `redundancy`: on how many donors each page is; None: keep the domain's setting.
    `seal`: whether pages are encrypted before they leave; None: keep it.
    `reporting`: whether the guest reports memory that it frees; None: keep it.
    """
    pager = "user" if emulator else "kernel"
    root = read_domain(data)
    before = _element(root)
    had = read_memory(before) if before is not None else None
    if had is not None and had.pager != pager:
        raise DomainError(
            f"{name_of(root)}: it uses the {had.pager} pager: to change it, dcmctl vm disable first"
        )
    for reason in why_not(root, kinds, pager):
        raise DomainError(f"{name_of(root)}: {reason}")
    if direct >= size_of(root):
        raise DomainError(
            f"{name_of(root)}: direct memory of {format_size(direct)} is not less than all of its "
            f"memory, {format_size(size_of(root))}: give a smaller --direct"
        )
    backing = tuple(_BACKING) if pager == "kernel" else ()
    missing = tuple(name for name in backing if root.one("memoryBacking", name) is None)
    had_added = had.added if had is not None else ()
    if donors is None and groups is None and had is not None:
        donors, groups = had.donors, had.groups
    added = tuple(name for name in backing if name in missing or name in had_added)
    earlier = emulator_of(root) if emulator else ""
    if _is_ours(earlier):
        earlier = had.emulator if had is not None else ""
    if earlier and not _EMULATOR.fullmatch(earlier):
        raise DomainError(
            f"{name_of(root)}: its <emulator> '{printable(earlier, 100)}' is not the path of a "
            "program: correct <emulator>"
        )
    if redundancy is None:
        redundancy = had.redundancy if had is not None else ""
    if seal is None:
        seal = had.seal if had is not None else ""
    edit = Edit(data)
    if balloon.enable(edit, root, reporting, balloon.ADDED in had_added):
        added += (balloon.ADDED,)
    memory = Memory(direct, donors or (), added, groups or (), pager, earlier, redundancy, seal)
    if before is not None:
        indent = edit.indent(before) or "\n"
        edit.replace(before.start, before.end, memory.to_xml().replace("\n", indent))
    else:
        _put(edit, root, "metadata", memory.to_xml(), ("maxMemory", "memory"))
    if missing:
        text = "\n".join(_BACKING[name] for name in missing)
        _put(edit, root, "memoryBacking", text, ("vcpu", "os", "devices"))
    if emulator:
        _set_emulator(edit, root, emulator)
    return edit.result()


def _set_emulator(edit: Edit, root: Element, path: str) -> None:
    element = root.one("devices", "emulator")
    text = f"<emulator>{escape(path)}</emulator>"
    if element is not None:
        edit.replace(element.start, element.end, text)
        return
    devices = root.one("devices")
    if devices is None:
        raise DomainError(f"{name_of(root)}: the domain has no <devices>")
    edit.append(devices, text)


def _put(edit: Edit, root: Element, name: str, text: str, before: tuple[str, ...]) -> None:
    """Insert lines into the element `name`; make this element if the domain has none."""
    found = root.one(name)
    if found is not None:
        edit.append(found, text)
        return
    inside = text.replace("\n", "\n  ")
    made = f"<{name}>\n  {inside}\n</{name}>"
    for place in before:
        element = root.one(place)
        if element is not None:
            edit.before(element, made)
            return
    raise DomainError(f"{name_of(root)}: the domain has no <{before[-1]}>")


def disable(data: bytes) -> bytes:
    """Undo enable() in the domain's XML; other changes made since then are kept."""
    root = read_domain(data)
    element = _element(root)
    if element is None:
        raise DomainError(f"{name_of(root)}: its memory is not on donors: nothing to disable")
    memory = read_memory(element)
    edit = Edit(data)
    _take(edit, root.one("metadata"), [element])
    backing = root.one("memoryBacking")
    gone = [e for name in memory.added for e in root.all("memoryBacking", name)]
    if backing is not None and gone:
        _take(edit, backing, gone)
    if balloon.ADDED in memory.added:
        balloon.disable(edit, root)
    program = root.one("devices", "emulator")
    if memory.pager == "user" and program is not None and _is_ours(emulator_of(root)):
        if memory.emulator:
            _set_emulator(edit, root, memory.emulator)
        else:
            edit.remove(program)
    return edit.result()


def _take(edit: Edit, parent: Element | None, gone: list[Element]) -> None:
    """Remove child elements, and the parent too if nothing is left in it."""
    assert parent is not None
    inside = edit.data[parent.inner : parent.close]
    for child in reversed(gone):
        at = child.start - parent.inner
        inside = inside[:at] + inside[child.end - parent.inner :]
    if inside.strip() or parent.attributes:
        for child in gone:
            edit.remove(child)
    else:
        edit.remove(parent)
