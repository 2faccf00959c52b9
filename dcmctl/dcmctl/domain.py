# SPDX-License-Identifier: GPL-2.0-or-later
"""A libvirt domain whose memory is on donors: what its XML says, and how it comes to say so.

    <metadata>
      <dcm:memory xmlns:dcm="urn:kvm-dcm:domain:1" direct="4G">
        <dcm:donor name="far"/>
        <dcm:group name="rack1"/>
      </dcm:memory>
    </metadata>
    <memoryBacking><source type="file"/><access mode="shared"/></memoryBacking>

The first is ours (schema/domain.rng), the second makes libvirt give QEMU a file for the guest's
memory, which the hook puts on dcmfs. A domain whose memory could not be there, or would be pinned
here, is refused: why_not(). Everything else of it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from dcmctl.address import NAME
from dcmctl.errors import DcmError, printable
from dcmctl.settings import BUDGET_MIN, DONORS_MAX
from dcmctl.units import PAGE, SIZE_MAX, exact_size, format_size, parse_size
from dcmctl.xmltree import Edit, Element, parse

NAMESPACE = "urn:kvm-dcm:domain:1"
PREFIX = "dcm"
MEMORY = f"{NAMESPACE} memory"
DONOR = f"{NAMESPACE} donor"
GROUP = f"{NAMESPACE} group"

QEMU = ("kvm", "qemu")

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIZE = re.compile(r"[1-9][0-9]{0,15}([KMGT](iB)?)?")
_ADDED = {
    "": (),
    "source": ("source",),
    "access": ("access",),
    "source access": ("source", "access"),
}
_BACKING = {"source": "<source type='file'/>", "access": "<access mode='shared'/>"}

# As libvirt has them: of a size in XML.
_UNITS = {
    "b": 1, "byte": 1, "bytes": 1,
    "KB": 1000, "k": 1024, "KiB": 1024,
    "MB": 1000**2, "M": 1 << 20, "MiB": 1 << 20,
    "GB": 1000**3, "G": 1 << 30, "GiB": 1 << 30,
    "TB": 1000**4, "T": 1 << 40, "TiB": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """What the element says."""

    direct: int  # bytes: the most of its memory that is on this host
    donors: tuple[str, ...] = ()  # only these are used, and must be up when it starts; (): any
    added: tuple[str, ...] = ()  # what `enable` put into memoryBacking
    groups: tuple[str, ...] = ()  # and the donors of these; one of each must be up

    @property
    def chosen(self) -> tuple[str, ...]:
        """As dcm-hostd is told of it."""
        return (*self.donors, *(f"@{name}" for name in self.groups))

    def to_xml(self) -> str:
        """Lines, without indentation before the first."""
        open_tag = f"<{PREFIX}:memory xmlns:{PREFIX}={quoteattr(NAMESPACE)}"
        open_tag += f" direct={quoteattr(exact_size(self.direct))}"
        if self.added:
            open_tag += f" added={quoteattr(' '.join(self.added))}"
        if not self.chosen:
            return f"{open_tag}/>"
        lines = [f"  <{PREFIX}:donor name={quoteattr(name)}/>" for name in self.donors]
        lines += [f"  <{PREFIX}:group name={quoteattr(name)}/>" for name in self.groups]
        return "\n".join([f"{open_tag}>", *lines, f"</{PREFIX}:memory>"])


class DomainError(DcmError):
    """The domain's XML is not what it must be."""


# ---- reading ----


def read_domain(data: bytes) -> Element:
    """A domain's XML, whoever wrote it."""
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
    """The element, checked as the schema does and more."""
    given = dict(element.attributes)
    direct = given.pop("direct", None)
    if direct is None:
        raise _bad('has no direct="SIZE", the most of its memory that is on this host')
    if not _SIZE.fullmatch(direct):
        raise _bad(f"direct='{printable(direct, 40)}' is not a size: write for example 4G")
    size = parse_size(direct, "direct") if len(direct) < 16 else SIZE_MAX + 1
    if size > SIZE_MAX or size < BUDGET_MIN or size % PAGE:
        raise _bad(f"direct='{direct}' is not at least 1M, whole pages and credible")
    redundancy = given.pop("redundancy", "none")
    if redundancy != "none":
        raise _bad(f"redundancy='{printable(redundancy, 40)}' is not supported yet: only 'none' is")
    added = given.pop("added", "")
    if added not in _ADDED or ("added" in element.attributes and not added):
        raise _bad(f"added='{printable(added, 40)}' was not written by dcmctl")
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
    return Memory(size, tuple(named[DONOR]), _ADDED[added], tuple(named[GROUP]))


def _element(root: Element) -> Element | None:
    found = list(root.all("metadata", MEMORY))
    if len(found) > 1:
        raise _bad("is there more than once")
    for other in root.all("metadata"):
        for child in other.children:
            if child.name.startswith(f"{NAMESPACE} ") and child.name != MEMORY:
                raise _bad(f"is what is known, not <{printable(child.name, 80)}>")
    return found[0] if found else None


def find_memory(root: Element) -> Memory | None:
    """What the domain says of its memory; None: nothing, it is an ordinary one."""
    element = _element(root)
    return None if element is None else read_memory(element)


def name_of(root: Element) -> str:
    element = root.one("name")
    return printable(element.text, 80) if element is not None else "?"


def uuid_of(root: Element) -> str:
    """As it becomes a file's name."""
    element = root.one("uuid")
    uuid = element.text.strip().lower() if element is not None else ""
    if not UUID.fullmatch(uuid):
        raise DomainError("the domain has no UUID")
    return uuid


def size_of(root: Element) -> int:
    """Bytes of guest memory."""
    element = root.one("memory")
    text = element.text.strip() if element is not None else ""
    unit = element.attributes.get("unit", "KiB") if element is not None else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or unit not in _UNITS:
        raise DomainError("the domain's <memory> is not a size")
    size = int(text) * _UNITS[unit]
    # libvirt counts in KiB.
    size = -(-size // 1024) * 1024
    if not 0 < size <= SIZE_MAX:
        raise DomainError(f"the domain's memory of {text} {unit} is none, or not credible")
    return size


# ---- what can't be ----


def why_not(root: Element, kinds: tuple[str, ...] = QEMU) -> Iterator[str]:
    """Why this domain's memory can't be on donors: a line for each reason."""
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
    yield from _why_not_backing(root)
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
    yield from _why_not_arguments(root)


def _why_not_backing(root: Element) -> Iterator[str]:
    if len(list(root.all("memoryBacking"))) > 1:
        yield "it has more than one <memoryBacking>"
    for name, why in (
        ("hugepages", "memory in huge pages can't be on donors"),
        ("locked", "locked memory can't leave this host"),
        ("discard", "its memory would be thrown away before it can be released"),
    ):
        if root.one("memoryBacking", name) is not None:
            yield f"its <memoryBacking> has <{name}/>: {why}"
    for element in root.all("memoryBacking", "allocation"):
        if element.attributes.get("mode", "ondemand") != "ondemand":
            yield "its <memoryBacking> has <allocation mode='immediate'/>: all would be touched"
    for element in root.all("memoryBacking", "source"):
        if element.attributes.get("type") != "file":
            kind = printable(element.attributes.get("type", ""), 40)
            yield f"its <memoryBacking> has <source type='{kind}'/>: it must be 'file'"
    for element in root.all("memoryBacking", "access"):
        if element.attributes.get("mode") != "shared":
            mode = printable(element.attributes.get("mode", ""), 40)
            yield f"its <memoryBacking> has <access mode='{mode}'/>: it must be 'shared'"


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


def _why_not_arguments(root: Element) -> Iterator[str]:
    prefix = "http://libvirt.org/schemas/domain/qemu/1.0 "
    for argument in root.all(f"{prefix}commandline", f"{prefix}arg"):
        value = argument.attributes.get("value", "")
        if "memory-backend" in value or re.match(r"-(mem|m$|overcommit|numa)", value):
            yield f"its <qemu:commandline> says something of memory: {printable(value, 60)}"
            return


def why_not_now(root: Element, memory: Memory, kinds: tuple[str, ...] = QEMU) -> Iterator[str]:
    """Why a domain that has the element can't be started as it is."""
    yield from why_not(root, kinds)
    for name, xml in _BACKING.items():
        if root.one("memoryBacking", name) is None:
            yield f"its <memoryBacking> has no {xml}: dcmctl vm enable puts it there"
    if memory.direct >= size_of(root):
        yield (
            f"its direct memory of {format_size(memory.direct)} is not less than all of its "
            f"{format_size(size_of(root))}: nothing would be on donors"
        )


# ---- changing ----


def enable(
    data: bytes,
    direct: int,
    donors: tuple[str, ...] | None = None,
    kinds: tuple[str, ...] = QEMU,
    groups: tuple[str, ...] | None = None,
) -> bytes:
    """The domain's XML with its memory on donors.

    `donors` and `groups` of donors that it may use; both None: those it has named already.
    """
    root = read_domain(data)
    before = _element(root)
    had = read_memory(before) if before is not None else None
    for reason in why_not(root, kinds):
        raise DomainError(f"{name_of(root)}: {reason}")
    if direct >= size_of(root):
        raise DomainError(
            f"{name_of(root)}: direct memory of {format_size(direct)} is not less than all of its "
            f"{format_size(size_of(root))}"
        )
    missing = tuple(name for name in _BACKING if root.one("memoryBacking", name) is None)
    had_added = had.added if had is not None else ()
    if donors is None and groups is None and had is not None:
        donors, groups = had.donors, had.groups
    added = tuple(name for name in _BACKING if name in missing or name in had_added)
    memory = Memory(direct, donors or (), added, groups or ())

    edit = Edit(data)
    if before is not None:
        indent = edit.indent(before) or "\n"
        edit.replace(before.start, before.end, memory.to_xml().replace("\n", indent))
    else:
        _put(edit, root, "metadata", memory.to_xml(), ("maxMemory", "memory"))
    if missing:
        text = "\n".join(_BACKING[name] for name in missing)
        _put(edit, root, "memoryBacking", text, ("vcpu", "os", "devices"))
    return edit.result()


def _put(edit: Edit, root: Element, name: str, text: str, before: tuple[str, ...]) -> None:
    """These lines into the element of that name, which is made if there is none."""
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
    """The domain's XML as it was before enable(), but for changes made since."""
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
    return edit.result()


def _take(edit: Edit, parent: Element | None, gone: list[Element]) -> None:
    """Remove children, and their parent if that leaves nothing in it."""
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
